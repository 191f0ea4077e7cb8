// project.cuh: hidden states to token vectors, out = hidden · weightsᵀ + bias, for
// scores of a tile of documents at a time: what is written stays in the cache until it
// is read.
#pragma once
#include "any.cuh"
#ifdef PLAID_SM90A
#include "rows.cuh"
#endif

namespace plaid {

// A thread has 4 rows × 4 dimensions of 64 × 32.
extern "C" __global__ void __launch_bounds__(128) dense_project_any(const __grid_constant__ DenseProjectParams p) {
  constexpr int kRows = 64, kOut = 32, kDims = 32;
  __shared__ float hidden[kDims][kRows + 4], weights[kDims][kOut + 4];
  const uint32_t tid = threadIdx.x, x = tid % 8, y = tid / 8;
  const uint32_t r0 = blockIdx.x * kRows, c0 = blockIdx.y * kOut;
  float sums[4][4] = {};
  for (uint32_t d = 0; d < p.hidden_dim; d += kDims) {
    __syncthreads();
    for (uint32_t e = tid; e < kRows * kDims; e += 128) {
      const uint32_t r = e / kDims, k = e % kDims;
      const uint8_t *row = p.hidden + uint64_t(min(r0 + r, p.rows - 1)) * p.row_bytes;
      hidden[k][r] = d + k < p.hidden_dim ? value(p.hidden_format, row, d + k) : 0.0f;
    }
    for (uint32_t e = tid; e < kOut * kDims; e += 128) {
      const uint32_t r = e / kDims, k = e % kDims;
      const uint8_t *row = p.weights + uint64_t(min(c0 + r, p.dim - 1)) * p.weight_bytes;
      weights[k][r] = d + k < p.hidden_dim ? value(p.weight_format, row, d + k) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kDims; k++) {
      const float4 a = *reinterpret_cast<const float4 *>(&hidden[k][4 * y]), b = *reinterpret_cast<const float4 *>(&weights[k][4 * x]);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 4; n++) sums[m][n] = fmaf(as[m], bs[n], sums[m][n]);
    }
  }
#pragma unroll
  for (int m = 0; m < 4; m++) {
    const uint32_t r = r0 + 4 * y + m;
    if (r >= p.rows) break;
    const float scale = p.hidden_scale ? p.hidden_scale[r] : 1.0f;
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const uint32_t c = c0 + 4 * x + n;
      if (c < p.dim) p.out[uint64_t(r) * p.dim + c] = fmaf(sums[m][n], scale * (p.weight_scale ? p.weight_scale[c] : 1.0f), p.bias ? p.bias[c] : 0.0f);
    }
  }
}

#ifdef PLAID_SM90A
// The same as rows.cuh: hidden states are on the rows of the product, read once from
// memory straight into the operand, and weights in shared memory for all tiles of a
// block. 64 columns are a product.
template <class T, int N, int V>
__device__ __forceinline__ void dense_project(const DenseProjectParams &p) {
  constexpr bool kSplitRow = T::kFormat == kSplit;
  static_assert(!kSplitRow || V % 2 == 0);
  constexpr int kAll = 2 * V, kParts = N / 64;  // steps, and products of a step
  constexpr uint32_t kStep = N * 2;             // of the operand, in units of 16 bytes
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t tid = threadIdx.x % 128, team = threadIdx.x / 128, teams = blockDim.x / 128, warp = tid / 32, l = tid & 31, g = l >> 2, j = l & 3;
  const uint32_t c0 = blockIdx.y * N, chunks = p.row_bytes / (64 * V), tiles = (p.rows + 63) / 64;

  // The cursor is one round ahead of the products.
  uint32_t tile = blockIdx.x * teams + team, chunk = 0;
  const uint8_t *row;
  uint32_t apart;  // of the lane's rows, in bytes
  auto aim = [&] {
    const uint32_t r = tile * 64 + warp * 16 + g, last = p.rows - 1;
    row = p.hidden + uint64_t(min(r, last)) * p.row_bytes + j * 16;
    apart = (min(r + 8, last) - min(r, last)) * p.row_bytes;
  };
  uint32_t raw[2 * V][4];
  auto load = [&] {
    if (tile >= tiles) return;
    const uint8_t *below = row + apart;
#pragma unroll
    for (int v = 0; v < V; v++) load_row(raw[2 * v], row + v * 64), load_row(raw[2 * v + 1], below + v * 64);
  };
  if (tile < tiles) aim();
  load();
  lay_operand<N, 1>(shared, p.weights + uint64_t(c0) * p.weight_bytes, min(p.dim - c0, uint32_t(N)), p.row_bytes, p.weight_bytes);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t operand = right(shared_at(shared), 128, 256);

  float sums[N / 2];
  while (tile < tiles) {
    const uint32_t here = chunk, r = tile * 64 + warp * 16 + g;
    uint32_t left[kAll][4];
#pragma unroll
    for (int i = 0; i < kAll; i++) {
      const int v = i / 2, s = i % 2;
      left[i][0] = raw[2 * v][2 * s], left[i][2] = raw[2 * v][2 * s + 1];
      left[i][1] = raw[2 * v + 1][2 * s], left[i][3] = raw[2 * v + 1][2 * s + 1];
    }
    if (++chunk < chunks) {
      row += 64 * V;
    } else {
      chunk = 0, tile += gridDim.x * teams;
      if (tile < tiles) aim();
    }
    load();
    const uint64_t b = operand + here * (kAll * kStep);
    const int add = here > 0;
    products_begin();
#pragma unroll
    for (int i = 0; i < kAll; i++) {
#pragma unroll
      for (int part = 0; part < kParts; part++) {
        const uint64_t at = b + i * kStep + part * 128;
        if constexpr (kSplitRow) {
          if (i & 2) continue;
          product(T{}, Width<64>{}, sums + 32 * part, left[i], at, i > 0 || add);
          product(T{}, Width<64>{}, sums + 32 * part, left[i], at + 2 * kStep, 1);
          product(T{}, Width<64>{}, sums + 32 * part, left[i + 2], at, 1);
        } else {
          product(T{}, Width<64>{}, sums + 32 * part, left[i], at, i > 0 || add);
        }
      }
    }
    products_end();
#pragma unroll
    for (int i = 0; i < N / 2; i++) settle(sums[i]);
    if (here + 1 < chunks) continue;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const bool there = r + 8 * half < p.rows;
      const float scale = p.hidden_scale && there ? p.hidden_scale[r + 8 * half] : 1.0f;
      float most = 0;
#pragma unroll
      for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
          const uint32_t c = c0 + i * 8 + j * 2 + k;
          float &v = sums[4 * i + 2 * half + k];
          v = c < p.dim ? fmaf(v, scale * (p.weight_scale ? __ldg(p.weight_scale + c) : 1.0f), p.bias ? __ldg(p.bias + c) : 0.0f) : 0.0f;
          most = fmaxf(most, fabsf(v));
        }
      if (p.out) {
        float *out = p.out + uint64_t(r + 8 * half) * p.dim;
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
          const uint32_t c = c0 + i * 8 + j * 2;
          if (there && c < p.dim) out[c] = sums[4 * i + 2 * half];
          if (there && c + 1 < p.dim) out[c + 1] = sums[4 * i + 2 * half + 1];
        }
        continue;
      }
      // A row of format split, as dense_pack makes it; lanes of a quad have it together.
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      int exponent = 0;
      if (most > 0) frexpf(most, &exponent);
      exponent = max(exponent, -110);
      const float down = ldexpf(1.0f, -exponent);
      float square = 0;
      uint32_t *out = reinterpret_cast<uint32_t *>(p.rows_out + uint64_t(r + 8 * half) * p.out_bytes);
#pragma unroll
      for (int i = 0; i < N / 8; i++) {
        const uint32_t c = i * 8 + j * 2;
        const float v0 = sums[4 * i + 2 * half] * down, v1 = sums[4 * i + 2 * half + 1] * down;
        square = fmaf(v0, v0, fmaf(v1, v1, square));
        const float w0 = v0 * 0x1p15f, w1 = v1 * 0x1p15f;
        const __half2 hi = __floats2half2_rn(w0, w1);
        const __half2 lo = __floats2half2_rn(w0 - __low2float(hi), w1 - __high2float(hi));
        if (there && c * 4 < p.out_bytes) {
          uint32_t *to = out + c / 32 * 32 + c % 32 / 2;
          to[0] = *reinterpret_cast<const uint32_t *>(&hi), to[16] = *reinterpret_cast<const uint32_t *>(&lo);
        }
      }
      square += __shfl_xor_sync(0xffffffffu, square, 1);
      square += __shfl_xor_sync(0xffffffffu, square, 2);
      if (j == 0 && there) {
        p.scale[r + 8 * half] = ldexpf(1.0f, exponent - 15);
        if (p.unit) p.unit[r + 8 * half] = square > 0 ? 0x1p-15f / sqrtf(square) : 0.0f;
      }
    }
  }
}

#define PLAID_DENSE_PROJECT(NAME, T, N, V)                                                                                              \
  extern "C" __global__ void __launch_bounds__(384, 1) dense_project_##NAME##_n##N##_v##V(const __grid_constant__ DenseProjectParams p) { \
    dense_project<T, N, V>(p);                                                                                                          \
  }
PLAID_DENSE_PROJECT(f16, F16, 64, 1)
PLAID_DENSE_PROJECT(f16, F16, 64, 4)
PLAID_DENSE_PROJECT(f16, F16, 128, 1)
PLAID_DENSE_PROJECT(f16, F16, 128, 4)
PLAID_DENSE_PROJECT(bf16, BF16, 64, 1)
PLAID_DENSE_PROJECT(bf16, BF16, 64, 4)
PLAID_DENSE_PROJECT(bf16, BF16, 128, 1)
PLAID_DENSE_PROJECT(bf16, BF16, 128, 4)
PLAID_DENSE_PROJECT(split, Split, 64, 2)
PLAID_DENSE_PROJECT(split, Split, 64, 4)
#endif

}  // namespace plaid
