// rows.cuh: operations on single rows, by a warp: embeddings, norms, unit
// vectors. A lane has 8 columns of each 256. Warps take rows in turn.
#pragma once
#include "common.cuh"

namespace plaid {
namespace encoder {

// Parts of 256 columns that a row has, at most. Of the fewer, gammas stay in registers.
constexpr int kFew = 4, kMany = 10;

__device__ __forceinline__ float sum_of(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(0xffffffffu, v, i);
  return v;
}
// nearer copies weights of columns to shared memory, while a launch waits: read behind the wait, they
// would come from the device's memory. The threads of a block have to meet before they read them.
__device__ __forceinline__ const float *nearer(const float *from, float *to, uint32_t width) {
  if (!from) return from;
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) to[c] = from[c];
  return to;
}
// Norm has the weights of a norm, of a lane's columns, or where they are. P is the parameters.
template <int kParts> struct Norm {
  static constexpr bool kHeld = kParts <= kFew;
  const float *gamma, *beta;
  float held[kHeld ? kParts : 1][8];
  template <class P> __device__ __forceinline__ Norm(const P &p, int lane) : gamma(p.gamma), beta(p.beta) {
#pragma unroll
    for (int i = 0; i < (kHeld ? kParts : 0); i++) {
      const uint32_t c = i * 256 + lane * 8;
#pragma unroll
      for (int j = 0; j < 8; j++) held[i][j] = 0.f;
      if (gamma && c < p.width) load8(held[i], gamma + c);
    }
    __shared__ __align__(16) float betas[kHeld ? kParts * 256 : 4];
    if (kHeld) beta = nearer(beta, betas, p.width);
  }
  // apply norms a row in place; x is zero beyond hidden.
  template <class P> __device__ __forceinline__ void apply(float (&x)[kParts][8], const P &p, int lane) const {
    if (!gamma) return;
    const float inverse = even(x, p, p.epsilon, lane);
#pragma unroll
    for (int i = 0; i < kParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      if (c >= p.width) continue;
      if (kHeld) {
        weigh(x[i], inverse, held[kHeld ? i : 0], beta, c);
      } else {
        float g[8];
        load8(g, gamma + c);
        weigh(x[i], inverse, g, beta, c);
      }
    }
  }
  // even subtracts the mean, unless the norm keeps it, and returns the factor of x.
  template <class P> __device__ __forceinline__ static float even(float (&x)[kParts][8], const P &p, float epsilon, int lane) {
    float mean = 0.f;
    if (!p.rms) {
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < kParts; i++) {
        if (i * 256 >= p.width) break;
#pragma unroll
        for (int j = 0; j < 8; j++) sum += x[i][j];
      }
      mean = __fdiv_rn(sum_of(sum), float(p.hidden));
    }
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < kParts; i++) {
      if (i * 256 >= p.width) break;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        x[i][j] = i * 256 + lane * 8 + j < p.hidden ? __fsub_rn(x[i][j], mean) : 0.f;
        squares = fmaf(x[i][j], x[i][j], squares);
      }
    }
    return rsqrtf(__fdiv_rn(sum_of(squares), float(p.hidden)) + epsilon);
  }
  __device__ __forceinline__ static void weigh(float (&x)[8], float inverse, const float (&g)[8], const float *beta, uint32_t c) {
    float b[8] = {};
    if (beta) load8(b, beta + c);
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] = fmaf(__fmul_rn(x[j], inverse), g[j], b[j]);
  }
};

// store writes a row as f16, and as float32 where there is a stream.
template <int kParts> __device__ __forceinline__ void store(const float (&x)[kParts][8], uint8_t *to, float *stream, uint32_t row, uint32_t width, int lane) {
#pragma unroll
  for (int i = 0; i < kParts; i++) {
    const uint32_t c = i * 256 + lane * 8;
    if (c >= width) break;
    if (to) *reinterpret_cast<uint4 *>(to + tiled(row, c / 8, width / 64)) = pack8(x[i]);
    if (stream) store8(stream + size_t(row) * width + c, x[i]);
  }
}

template <int kParts> __device__ __forceinline__ void embed_rows(const EncoderEmbedParams &p) {
  const int lane = threadIdx.x % 32;
  let_next();
  const Norm<kParts> norm(p, lane);
  __syncthreads();
  wait_before();
  for (uint32_t row = blockIdx.x * 8 + threadIdx.x / 32; row < p.rows; row += gridDim.x * 8) {
    const uint16_t *word = p.words + size_t(p.ids[row]) * p.width, *place = p.places ? p.places + size_t(p.positions[row]) * p.width : nullptr;
    float x[kParts][8] = {};
#pragma unroll
    for (int i = 0; i < kParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      if (c >= p.width) continue;
      add8(x[i], *reinterpret_cast<const uint4 *>(word + c));
      if (place) add8(x[i], *reinterpret_cast<const uint4 *>(place + c));
    }
    norm.apply(x, p, lane);
    store(x, p.x, p.stream, row, p.width, lane);
  }
}

template <int kParts, bool kPost> __device__ __forceinline__ void norm_rows(const EncoderNormParams &p) {
  constexpr bool kAhead = kParts <= kFew;
  const int lane = threadIdx.x % 32;
  let_next();
  const Norm<kParts> norm(p, lane);
  // Weights of the first of two norms.
  const float *post = p.post, *post_beta = p.post_beta;
  if constexpr (kPost && kAhead) {
    __shared__ __align__(16) float posts[2][kParts * 256];
    post = nearer(post, posts[0], p.width), post_beta = nearer(post_beta, posts[1], p.width);
  }
  __syncthreads();
  wait_before();
  // What the next row adds is on its way while a row is normed.
  uint4 delta[kAhead ? kParts : 1], old[kAhead ? kParts : 1];
  auto load = [&](uint32_t row, int i, uint4 &delta, uint4 &old) {
    const uint32_t c = i * 256 + lane * 8;
    delta = old = make_uint4(0, 0, 0, 0);
    if (c >= p.width || row >= p.rows) return;
    const size_t at = tiled(row, c / 8, p.width / 64);
    if (p.delta) delta = *reinterpret_cast<const uint4 *>(p.delta + at);
    if (!p.stream) old = *reinterpret_cast<const uint4 *>(p.x + at);
  };
  auto fetch = [&](uint32_t row) {
#pragma unroll
    for (int i = 0; i < (kAhead ? kParts : 0); i++) load(row, i, delta[i], old[i]);
  };
  uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;
  fetch(row);
  for (; row < p.rows; row += gridDim.x * 8) {
    float x[kParts][8] = {};
    float inverse = 0.f;
    if (kPost && p.post) {
#pragma unroll
      for (int i = 0; i < kParts; i++) {
        if (!kAhead) load(row, i, delta[0], old[0]);
        add8(x[i], delta[kAhead ? i : 0]);
      }
      inverse = Norm<kParts>::even(x, p, p.post_epsilon, lane);
    }
#pragma unroll
    for (int i = 0; i < kParts; i++) {
      const uint32_t c = i * 256 + lane * 8;
      if (c >= p.width) continue;
      float *stream = p.stream + size_t(row) * p.width + c;
      float d[8];
      if (kPost && p.post) {
        float g[8];
        load8(g, post + c);
        Norm<kParts>::weigh(x[i], inverse, g, post_beta, c);
#pragma unroll
        for (int j = 0; j < 8; j++) d[j] = x[i][j], x[i][j] = 0.f;
      } else if (!kAhead) {
        load(row, i, delta[0], old[0]);
      }
      if (!p.stream) add8(x[i], old[kAhead ? i : 0]);
      else if (!p.fresh) load8(x[i], stream);
      if (kPost && p.post) {
#pragma unroll
        for (int j = 0; j < 8; j++) x[i][j] += d[j];
      } else {
        add8(x[i], delta[kAhead ? i : 0]);
      }
      if (p.stream && p.delta) store8(stream, x[i]);
    }
    fetch(row + gridDim.x * 8);
    norm.apply(x, p, lane);
    store(x, p.x, nullptr, row, p.width, lane);
  }
}

}  // namespace encoder

extern "C" __global__ void __launch_bounds__(256, 2) encoder_embed(EncoderEmbedParams p) { encoder::embed_rows<encoder::kFew>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) encoder_embed_wide(EncoderEmbedParams p) { encoder::embed_rows<encoder::kMany>(p); }
extern "C" __global__ void __launch_bounds__(256, 2) encoder_norm(EncoderNormParams p) { encoder::norm_rows<encoder::kFew, false>(p); }
extern "C" __global__ void __launch_bounds__(256, 2) encoder_norm_post(EncoderNormParams p) { encoder::norm_rows<encoder::kFew, true>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) encoder_norm_wide(EncoderNormParams p) { encoder::norm_rows<encoder::kMany, true>(p); }

extern "C" __global__ void __launch_bounds__(256) encoder_unit(EncoderUnitParams p) {
  using namespace encoder;
  const int lane = threadIdx.x % 32;
  const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32;
  let_next();
  wait_before();
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
