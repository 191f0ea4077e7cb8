// chamferfew.cuh: Chamfer distances of few dimensions. A warp has 256 rows of X, 8 a
// lane, in registers, and meets rows of Y one after another, which all lanes read from
// shared memory. A key has the number of a group of rows, 32 of Y or 256 of X, in which
// dense_chamfer_find finds the row. Bound: instructions, of a pair of three dimensions
// six to add up and two minima.
#pragma once
#include "chamfer.cuh"

namespace plaid {

template <int D, bool kL1>
__device__ __forceinline__ void chamfer_few(const DenseChamferParams &p) {
  constexpr int kRows = 8, kVectors = (D + 3) / 4;
  __shared__ float4 ys[kVectors][128];
  __shared__ uint32_t columns[4][128];
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  const uint32_t tid = threadIdx.x, warp = tid / 32, l = tid & 31;
  const uint32_t groups = (pair.y_len + 31) / 32, per = (groups + gridDim.z - 1) / gridDim.z;
  const uint32_t begin = blockIdx.z * per * 32, end = min(begin + per * 32, pair.y_len);
  if (begin >= end) return;
  for (uint32_t tx = blockIdx.y * (128 * kRows); tx < pair.x_len; tx += gridDim.y * (128 * kRows)) {
    const uint32_t first = tx + warp * (32 * kRows);
    float x[kRows][4 * kVectors], best[kRows];
    uint32_t at[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const uint32_t r = first + 32 * i + l;
#pragma unroll
      for (int v = 0; v < kVectors; v++) {
        float4 f = make_float4(v ? 0.0f : -INFINITY, 0, 0, 0);
        if (r < pair.x_len) f = reinterpret_cast<const float4 *>(p.side[0].points + (pair.x + r) * p.point_bytes)[v];
        x[i][4 * v] = f.x, x[i][4 * v + 1] = f.y, x[i][4 * v + 2] = f.z, x[i][4 * v + 3] = f.w;
      }
      best[i] = INFINITY, at[i] = 0;
    }
    for (uint32_t y0 = begin; y0 < end; y0 += 128) {
      __syncthreads();
#pragma unroll
      for (int v = 0; v < kVectors; v++) {
        float4 f = make_float4(v ? 0.0f : INFINITY, 0, 0, 0);
        if (y0 + tid < end) f = reinterpret_cast<const float4 *>(p.side[1].points + (pair.y + y0 + tid) * p.point_bytes)[v];
        ys[v][tid] = f;
      }
      __syncthreads();
      if (first < pair.x_len) {
        for (uint32_t t = 0; t < min(end - y0, 128u); t += 32) {
          float before[kRows];
#pragma unroll
          for (int i = 0; i < kRows; i++) before[i] = best[i];
#pragma unroll 4
          for (uint32_t k = t; k < t + 32; k++) {
            float y[4 * kVectors], least = INFINITY;
#pragma unroll
            for (int v = 0; v < kVectors; v++) y[4 * v] = ys[v][k].x, y[4 * v + 1] = ys[v][k].y, y[4 * v + 2] = ys[v][k].z, y[4 * v + 3] = ys[v][k].w;
#pragma unroll
            for (int i = 0; i < kRows; i++) {
              float sum = 0;
#pragma unroll
              for (int d = 0; d < D; d++) sum = add_distance<kL1>(sum, x[i][d], y[d], d == 0);
              best[i] = fminf(best[i], sum), least = fminf(least, sum);
            }
            const uint32_t m = __reduce_min_sync(0xffffffffu, __float_as_uint(least));  // none is negative
            if (l == 0) columns[warp][k] = m;
          }
#pragma unroll
          for (int i = 0; i < kRows; i++)
            if (best[i] < before[i]) at[i] = (y0 + t) / 32;
        }
      } else {
#pragma unroll
        for (int k = 0; k < 128; k += 32) columns[warp][k + l] = 0x7f800000u;
      }
      __syncthreads();
      if (y0 + tid < end) {
        uint32_t m = columns[0][tid], w = 0;
#pragma unroll
        for (int i = 1; i < 4; i++)
          if (columns[i][tid] < m) m = columns[i][tid], w = i;
        if (m < 0x7f800000u) lower_key(p.keys + pair.key_y + y0 + tid, uint64_t(m) << 32 | (tx / (32 * kRows) + w));
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const uint32_t r = first + 32 * i + l;
      if (r < pair.x_len && best[i] < INFINITY) lower_key(p.keys + pair.key_x + r, chamfer_key(best[i], at[i]));
    }
  }
}

#define PLAID_CHAMFER_FEW(D)                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(128) dense_chamfer_few_l2_d##D(const __grid_constant__ DenseChamferParams p) { chamfer_few<D, false>(p); } \
  extern "C" __global__ void __launch_bounds__(128) dense_chamfer_few_l1_d##D(const __grid_constant__ DenseChamferParams p) { chamfer_few<D, true>(p); }
PLAID_CHAMFER_FEW(3)
PLAID_CHAMFER_FEW(4)
PLAID_CHAMFER_FEW(8)

// The first row of a group that has the distance of a point.
template <bool kL1>
__device__ __forceinline__ uint32_t few_row(const DenseChamferParams &p, const float *x, const uint8_t *points, uint32_t from, uint32_t end, float distance) {
  const uint32_t vectors = p.point_bytes / 16;
  uint32_t found = ~0u;
#pragma unroll 8
  for (uint32_t i = from + threadIdx.x % 32; i < end; i += 32) {
    const float4 *y = reinterpret_cast<const float4 *>(points + uint64_t(i) * p.point_bytes);
    float sum = 0;
    for (uint32_t v = 0; v < vectors; v++) {
      const float4 f = y[v];
      sum = add_distance<kL1>(sum, x[4 * v], f.x, v == 0), sum = add_distance<kL1>(sum, x[4 * v + 1], f.y, false);
      sum = add_distance<kL1>(sum, x[4 * v + 2], f.z, false), sum = add_distance<kL1>(sum, x[4 * v + 3], f.w, false);
    }
    if (sum == distance) found = min(found, i);
  }
  return __reduce_min_sync(0xffffffffu, found);
}

// A warp has a row.
extern "C" __global__ void __launch_bounds__(256) dense_chamfer_find(const __grid_constant__ DenseChamferParams p) {
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  for (uint32_t i = blockIdx.y * 8 + threadIdx.x / 32; i < pair.x_len + pair.y_len; i += gridDim.y * 8) {
    const bool which = i >= pair.x_len;
    const uint32_t r = which ? i - pair.x_len : i;
    uint64_t *at = p.keys + (which ? pair.key_y : pair.key_x) + r;
    const uint64_t key = *at;
    if (key == ~0ull) continue;
    const float *x = reinterpret_cast<const float *>(p.side[which].points + ((which ? pair.y : pair.x) + r) * p.point_bytes);
    const uint8_t *points = p.side[!which].points + (which ? pair.x : pair.y) * p.point_bytes;
    const uint32_t group = which ? 256 : 32, from = uint32_t(key) * group, end = min(from + group, which ? pair.x_len : pair.y_len);
    const float distance = __uint_as_float(uint32_t(key >> 32));
    const uint32_t row = p.l1 ? few_row<true>(p, x, points, from, end, distance) : few_row<false>(p, x, points, from, end, distance);
    if (threadIdx.x % 32 == 0) *at = chamfer_key(distance, row);
  }
}

}  // namespace plaid
