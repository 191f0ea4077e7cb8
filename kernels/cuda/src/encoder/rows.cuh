// rows.cuh: what is done to rows by themselves, by a warp: embeddings, layer norms, unit
// vectors. A lane has 8 columns of each 256. Warps take rows in turn, with gammas in
// registers.
#pragma once
#include "common.cuh"

namespace plaid {
namespace encoder {

constexpr int kMaxParts = 4;  // of 256 columns

__device__ __forceinline__ float sum_of(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(0xffffffffu, v, i);
  return v;
}
__device__ __forceinline__ void add8(float (&x)[8], const uint4 &v) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 f = unpack(w[i]);
    x[2 * i] += f.x, x[2 * i + 1] += f.y;
  }
}
__device__ __forceinline__ void load8(float (&x)[8], const float *from) {
  const float4 a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
__device__ __forceinline__ void store8(float *to, const float (&x)[8]) {
  reinterpret_cast<float4 *>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4 *>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}
__device__ __forceinline__ uint4 pack8(const float (&x)[8]) { return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])); }

// Norm is a layer norm: the weights of a lane's columns.
struct Norm {
  float gamma[kMaxParts][8];
  template <class P> __device__ __forceinline__ Norm(const P &p, int lane) {
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
#pragma unroll
      for (int j = 0; j < 8; j++) gamma[i][j] = 0.f;
      if (c < p.width) load8(gamma[i], p.gamma + c);
    }
  }
  // apply norms a row in place; x is zero beyond hidden.
  template <class P> __device__ __forceinline__ void apply(float (&x)[kMaxParts][8], const P &p, int lane) const {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      if (i * 256 >= p.width) break;
#pragma unroll
      for (int j = 0; j < 8; j++) sum += x[i][j];
    }
    const float mean = __fdiv_rn(sum_of(sum), float(p.hidden));
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      if (i * 256 >= p.width) break;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        x[i][j] = i * 256 + lane * 8 + j < p.hidden ? __fsub_rn(x[i][j], mean) : 0.f;
        squares = fmaf(x[i][j], x[i][j], squares);
      }
    }
    const float inverse = rsqrtf(__fdiv_rn(sum_of(squares), float(p.hidden)) + p.epsilon);
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      if (c >= p.width) continue;
      float beta[8] = {};
      if (p.beta) load8(beta, p.beta + c);
#pragma unroll
      for (int j = 0; j < 8; j++) x[i][j] = fmaf(__fmul_rn(x[i][j], inverse), gamma[i][j], beta[j]);
    }
  }
};

// store writes a row as f16, and as float32 where there is a stream.
__device__ __forceinline__ void store(const float (&x)[kMaxParts][8], uint8_t *to, float *stream, uint32_t row, uint32_t width, int lane) {
#pragma unroll
  for (int i = 0; i < kMaxParts; i++) {
    const uint32_t c = i * 256 + lane * 8;
    if (c >= width) break;
    if (to) *reinterpret_cast<uint4 *>(to + tiled(row, c / 8, width / 64)) = pack8(x[i]);
    if (stream) store8(stream + size_t(row) * width + c, x[i]);
  }
}

}  // namespace encoder

extern "C" __global__ void __launch_bounds__(256, 2) encoder_embed(EncoderEmbedParams p) {
  using namespace encoder;
  const int lane = threadIdx.x % 32;
  let_next_begin();
  const Norm norm(p, lane);
  await_launches();
  for (uint32_t row = blockIdx.x * 8 + threadIdx.x / 32; row < p.rows; row += gridDim.x * 8) {
    const uint16_t *word = p.words + size_t(p.ids[row]) * p.width, *place = p.places ? p.places + size_t(p.positions[row]) * p.width : nullptr;
    float x[kMaxParts][8] = {};
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      if (c >= p.width) continue;
      add8(x[i], *reinterpret_cast<const uint4 *>(word + c));
      if (place) add8(x[i], *reinterpret_cast<const uint4 *>(place + c));
    }
    norm.apply(x, p, lane);
    store(x, p.x, p.stream, row, p.width, lane);
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) encoder_norm(EncoderNormParams p) {
  using namespace encoder;
  const int lane = threadIdx.x % 32;
  let_next_begin();
  const Norm norm(p, lane);
  await_launches();
  // What the next row adds is on its way while a row is normed.
  uint4 delta[kMaxParts], old[kMaxParts];
  auto fetch = [&](uint32_t row) {
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      delta[i] = old[i] = make_uint4(0, 0, 0, 0);
      if (c >= p.width || row >= p.rows) continue;
      const size_t at = tiled(row, c / 8, p.width / 64);
      if (p.delta) delta[i] = *reinterpret_cast<const uint4 *>(p.delta + at);
      if (!p.stream) old[i] = *reinterpret_cast<const uint4 *>(p.x + at);
    }
  };
  uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;
  fetch(row);
  for (; row < p.rows; row += gridDim.x * 8) {
    float x[kMaxParts][8] = {};
#pragma unroll
    for (int i = 0; i < kMaxParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      if (c >= p.width) continue;
      float *stream = p.stream + size_t(row) * p.width + c;
      if (p.stream) load8(x[i], stream);
      else add8(x[i], old[i]);
      add8(x[i], delta[i]);
      if (p.stream && p.delta) store8(stream, x[i]);
    }
    fetch(row + gridDim.x * 8);
    norm.apply(x, p, lane);
    store(x, p.x, nullptr, row, p.width, lane);
  }
}

extern "C" __global__ void __launch_bounds__(256) encoder_unit(EncoderUnitParams p) {
  using namespace encoder;
  const int lane = threadIdx.x % 32;
  const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32;
  let_next_begin();
  await_launches();
  if (i >= p.count) return;
  const uint32_t row = p.kept ? p.kept[i] : i;
  auto value = [&](uint32_t c) {
    if (p.in) return p.in[size_t(row) * p.stride + c];
    return __half2float(*reinterpret_cast<const __half *>(p.in_half + tiled(row, c / 8, p.stride / 64) + c % 8 * 2));
  };
  float squares = 0.f;
  for (uint32_t c = lane; c < p.dim; c += 32) {
    const float v = value(c);
    squares = fmaf(v, v, squares);
  }
  squares = sum_of(squares);
  if (lane == 0 && !(squares - squares == 0.f)) atomicMin(p.bad, row);
  const float length = fmaxf(__fsqrt_rn(squares), 1e-12f);
  for (uint32_t c = lane; c < p.dim; c += 32) {
    const float v = __fdiv_rn(value(c), length);
    if (p.out) p.out[size_t(i) * p.dim + c] = v;
    if (p.out_half) reinterpret_cast<__half *>(p.out_half)[size_t(i) * p.dim + c] = __float2half_rn(v);
  }
}

}  // namespace plaid
