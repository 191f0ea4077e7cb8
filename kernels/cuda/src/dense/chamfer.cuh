// chamfer.cuh: Chamfer distances of sets of vectors, and their gradients.
//
// Distances are added up from differences in float32: those of near vectors lose
// no digits, as they would from squares and products. Each is computed once for both
// directions: a tile's minima by row and by column go to keys in memory, the
// distance above the number of the row, by atomic minima, whose result no order
// changes. Bound: the additions, two for each dimension of a pair of vectors.
#pragma once
#include "any.cuh"

namespace plaid {

constexpr int kChamferTile = 64;

__device__ __forceinline__ uint64_t chamfer_key(float distance, uint32_t at) { return uint64_t(__float_as_uint(distance)) << 32 | at; }

__device__ __forceinline__ void lower_key(uint64_t *to, uint64_t key) {
  atomicMin(reinterpret_cast<unsigned long long *>(to), static_cast<unsigned long long>(key));
}

// load_tile brings up to 32 dimensions of 64 rows to shared memory; rows after the last
// repeat it.
__device__ __forceinline__ void load_tile(float (*to)[kChamferTile + 4], const uint8_t *rows, const float *scales, uint64_t first, uint32_t t, uint32_t len,
                                          uint32_t d, uint32_t dims, uint32_t format, uint32_t bytes) {
  for (uint32_t e = threadIdx.x; e < kChamferTile * dims; e += 128) {
    const uint32_t r = e / dims, k = e % dims;
    const uint64_t row = first + min(t + r, len - 1);
    to[k][r] = value(format, rows + row * bytes, d + k) * (scales ? scales[row] : 1.0f);
  }
}

// A thread has 8 rows of X × 4 of Y of a tile of 64 × 64.
template <bool kL1>
__device__ __forceinline__ void chamfer(const DenseChamferParams &p) {
  __shared__ __align__(16) float xs[32][kChamferTile + 4], ys[32][kChamferTile + 4];
  __shared__ uint64_t columns[4][kChamferTile];
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  if (pair.x_len == 0 || pair.y_len == 0) return;
  const uint32_t tid = threadIdx.x, warp = tid / 32, i = tid % 16, j = tid / 16;
  for (uint32_t tx = blockIdx.y * kChamferTile; tx < pair.x_len; tx += gridDim.y * kChamferTile) {
    float best[8];
    uint32_t at[8];
#pragma unroll
    for (int m = 0; m < 8; m++) best[m] = INFINITY, at[m] = 0;
    bool there = false;  // xs has all dimensions of these rows
    for (uint32_t ty = blockIdx.z * kChamferTile; ty < pair.y_len; ty += gridDim.z * kChamferTile) {
      float sums[8][4] = {};
      for (uint32_t d = 0; d < p.dim; d += 32) {
        const uint32_t dims = min(p.dim - d, 32u);
        __syncthreads();
        if (!there) load_tile(xs, p.x, p.x_scale, pair.x, tx, pair.x_len, d, dims, p.x_format, p.x_bytes);
        load_tile(ys, p.y, p.y_scale, pair.y, ty, pair.y_len, d, dims, p.y_format, p.y_bytes);
        there = p.dim <= 32;
        __syncthreads();
#pragma unroll 4
        for (uint32_t k = 0; k < dims; k++) {
          const float4 a = *reinterpret_cast<const float4 *>(&xs[k][8 * j]), b = *reinterpret_cast<const float4 *>(&xs[k][8 * j + 4]);
          const float4 c = *reinterpret_cast<const float4 *>(&ys[k][4 * i]);
          const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, y[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
          for (int m = 0; m < 8; m++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
              const float v = x[m] - y[n];
              sums[m][n] = kL1 ? sums[m][n] + fabsf(v) : fmaf(v, v, sums[m][n]);
            }
        }
      }
      // Rows of X: few tiles have a nearer one.
#pragma unroll
      for (int m = 0; m < 8; m++) {
        const float least = fminf(fminf(sums[m][0], sums[m][1]), fminf(sums[m][2], sums[m][3]));
        if (least < best[m]) {
          best[m] = least;
          const uint32_t n = sums[m][0] == least ? 0 : sums[m][1] == least ? 1 : sums[m][2] == least ? 2 : 3;
          at[m] = min(ty + 4 * i + n, pair.y_len - 1);
        }
      }
      // Rows of Y: over the thread's 8, then two threads of the warp, then the warps.
#pragma unroll
      for (int n = 0; n < 4; n++) {
        float least = sums[0][n];
#pragma unroll
        for (int m = 1; m < 8; m++) least = fminf(least, sums[m][n]);
        uint32_t first = 0;
#pragma unroll
        for (int m = 7; m > 0; m--)
          if (sums[m][n] == least) first = m;
        if (sums[0][n] == least) first = 0;
        uint64_t key = chamfer_key(least, min(tx + 8 * j + first, pair.x_len - 1));
        key = min(key, uint64_t(__shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(key), 16)));
        if (tid % 32 < 16) columns[warp][4 * i + n] = key;
      }
      __syncthreads();
      if (tid < kChamferTile && ty + tid < pair.y_len)
        lower_key(p.keys + pair.key_y + ty + tid, min(min(columns[0][tid], columns[1][tid]), min(columns[2][tid], columns[3][tid])));
    }
#pragma unroll
    for (int m = 0; m < 8; m++) {
      uint64_t key = chamfer_key(best[m], at[m]);
#pragma unroll
      for (int s = 1; s < 16; s <<= 1) key = min(key, uint64_t(__shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(key), s)));
      if (i == 0 && tx + 8 * j + m < pair.x_len) lower_key(p.keys + pair.key_x + tx + 8 * j + m, key);
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) dense_chamfer_l2(const __grid_constant__ DenseChamferParams p) { chamfer<false>(p); }
extern "C" __global__ void __launch_bounds__(128) dense_chamfer_l1(const __grid_constant__ DenseChamferParams p) { chamfer<true>(p); }

// One side of a pair: the sum of its distances, and the nearest rows.
__device__ __forceinline__ double chamfer_side(const uint64_t *keys, int32_t *near, uint32_t n, double *shared) {
  double sum = 0;
  for (uint32_t s = threadIdx.x; s < n; s += 256) {
    const uint64_t key = keys[s];
    sum += double(__uint_as_float(uint32_t(key >> 32)));
    if (near) near[s] = int32_t(uint32_t(key));
  }
  __syncthreads();
  shared[threadIdx.x] = sum;
  for (uint32_t half = 128; half; half >>= 1) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

extern "C" __global__ void __launch_bounds__(256) dense_chamfer_sum(const __grid_constant__ DenseChamferSumParams p) {
  __shared__ double shared[256];
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  double sum = 0;
  if (pair.x_len && pair.y_len) {
    const double x = chamfer_side(p.keys + pair.key_x, p.near_x ? p.near_x + uint64_t(blockIdx.x) * p.pitch_x : nullptr, pair.x_len, shared);
    const double y = chamfer_side(p.keys + pair.key_y, p.near_y ? p.near_y + uint64_t(blockIdx.x) * p.pitch_y : nullptr, pair.y_len, shared);
    sum = p.mean ? x / pair.x_len + y / pair.y_len : x + y;
  }
  if (threadIdx.x == 0) p.out[blockIdx.x] = float(sum);
}

// The derivative of a distance by the first vector.
template <bool kL1>
__device__ __forceinline__ float chamfer_slope(float x, float y) {
  const float v = x - y;
  return kL1 ? (v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f) : 2 * v;
}

// A warp has a row of X: what it gets from the rows that are nearest to it, in the order
// of the pairs of its item, then from those that it is nearest to, which are listed.
template <bool kL1>
__device__ __forceinline__ void chamfer_grad(const DenseChamferGradParams &p) {
  const uint32_t r = blockIdx.x * 4 + threadIdx.x / 32, l = threadIdx.x & 31;
  if (r >= p.rows) return;
  const uint32_t item = p.row_item[r];
  const float scale = p.x_scale ? p.x_scale[r] : 1.0f;
  for (uint32_t d0 = 0; d0 < p.dim; d0 += 128) {
    float x[4], sum[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint32_t d = d0 + 32 * k + l;
      x[k] = d < p.dim ? value(p.x_format, p.x + uint64_t(r) * p.x_bytes, d) * scale : 0.0f;
    }
    auto add = [&](float c, uint64_t row) {
      const float other = p.y_scale ? p.y_scale[row] : 1.0f;
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const uint32_t d = d0 + 32 * k + l;
        if (d < p.dim) sum[k] = fmaf(c, chamfer_slope<kL1>(x[k], value(p.y_format, p.y + row * p.y_bytes, d) * other), sum[k]);
      }
    };
    for (uint64_t i = p.pair_first[item]; i < p.pair_first[item + 1]; i++) {
      const uint32_t at = p.pair_list[i];
      const DenseChamferPair pair = p.pairs[at];
      const int32_t own = p.near_x[pair.key_x + (r - pair.x)];
      if (own >= 0) add(p.coef_x[at], pair.y + own);
    }
    for (uint64_t i = p.won_first[r]; i < p.won_first[r + 1]; i++) {
      const uint2 won = p.won[i];
      add(p.coef_y[won.x], p.pairs[won.x].y + won.y);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint32_t d = d0 + 32 * k + l;
      if (d < p.dim) p.out[uint64_t(r) * p.dim + d] = sum[k];
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_l2(const __grid_constant__ DenseChamferGradParams p) { chamfer_grad<false>(p); }
extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_l1(const __grid_constant__ DenseChamferGradParams p) { chamfer_grad<true>(p); }

}  // namespace plaid
