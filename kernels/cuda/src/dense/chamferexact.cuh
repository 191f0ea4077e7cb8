// chamferexact.cuh: Chamfer distances of any number of dimensions from differences: L1,
// and squared L2 of rows whose nearest one is in doubt after the tensor cores. Bound: the
// additions, two for each dimension of a pair of vectors.
#pragma once
#include "chamfer.cuh"

namespace plaid {

constexpr int kChamferTile = 64;

// load_tile brings up to 32 dimensions of 64 rows to shared memory, those of a list or
// one after another; rows after the last repeat it.
__device__ __forceinline__ void load_tile(float (*to)[kChamferTile + 4], const DenseChamferSide &s, const uint32_t *list, uint64_t first, uint32_t t, uint32_t len,
                                          uint32_t d, uint32_t dims, float far) {
  const uint32_t k = threadIdx.x % 32;
  if (k >= dims) return;
  with_format(s.format, s.format, [&](auto format) {
#pragma unroll 4
    for (uint32_t r = threadIdx.x / 32; r < kChamferTile; r += 4) {
      const uint32_t at = min(t + r, len - 1);
      const uint64_t row = first + (list ? list[at] : at);
      float v = value_of<decltype(format)::kIs>(s.format, s.rows + row * s.bytes, d + k) * (s.scale ? s.scale[row] : 1.0f);
      if (!chamfer_token(s, row)) v = d + k == 0 ? far : 0.0f;
      to[k][r] = v;
    }
  });
}

// A thread has 8 rows of X × 4 of Y of a tile of 64 × 64. With a list of rows, which may be
// rows of Y, only the nearest rows of these are computed.
template <bool kL1, bool kList>
__device__ __forceinline__ void chamfer_exact(const DenseChamferParams &p, const DenseChamferSide &side_x, const DenseChamferSide &side_y, const DenseChamferPair &pair,
                                              const uint32_t *list, uint32_t x_len, uint32_t tile, uint32_t tiles) {
  __shared__ __align__(16) float xs[32][kChamferTile + 4], ys[32][kChamferTile + 4];
  __shared__ uint64_t columns[4][kChamferTile];
  const uint32_t tid = threadIdx.x, warp = tid / 32, i = tid % 16, j = tid / 16;
  for (uint32_t tx = tile * kChamferTile; tx < x_len; tx += tiles * kChamferTile) {
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
        if (!there) load_tile(xs, side_x, list, pair.x, tx, x_len, d, dims, -INFINITY);
        load_tile(ys, side_y, nullptr, pair.y, ty, pair.y_len, d, dims, INFINITY);
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
            for (int n = 0; n < 4; n++) sums[m][n] = add_distance<kL1>(sums[m][n], x[m], y[n], false);
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
      if constexpr (!kList) {
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
          const uint64_t key = least_key(chamfer_key(least, min(tx + 8 * j + first, x_len - 1)), 16);
          if (tid % 32 < 16) columns[warp][4 * i + n] = key;
        }
        __syncthreads();
        if (tid < kChamferTile && ty + tid < pair.y_len) {
          const uint64_t key = min(min(columns[0][tid], columns[1][tid]), min(columns[2][tid], columns[3][tid]));
          if (key < chamfer_key(INFINITY, 0)) lower_key(p.keys + pair.key_y + ty + tid, key);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 8; m++) {
      uint64_t key = chamfer_key(best[m], at[m]);
#pragma unroll
      for (int s = 1; s < 16; s <<= 1) key = least_key(key, s);
      const uint32_t r = tx + 8 * j + m;
      if (i == 0 && r < x_len && key < chamfer_key(INFINITY, 0)) lower_key(p.keys + pair.key_x + (kList ? list[r] : r), key);
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) dense_chamfer_l1(const __grid_constant__ DenseChamferParams p) {
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  if (pair.x_len == 0 || pair.y_len == 0) return;
  chamfer_exact<true, false>(p, p.side[0], p.side[1], pair, nullptr, pair.x_len, blockIdx.y, gridDim.y);
}

extern "C" __global__ void __launch_bounds__(128) dense_chamfer_l2(const __grid_constant__ DenseChamferParams p) {
  DenseChamferPair pair = p.pairs[blockIdx.x];
  const uint32_t n = p.counts[2 * uint64_t(blockIdx.x) + blockIdx.y];
  if (n == 0) return;
  const uint32_t *list = p.doubt + (blockIdx.y ? pair.key_y : pair.key_x);
  if (blockIdx.y) pair = DenseChamferPair{pair.y, pair.x, pair.key_y, pair.key_x, pair.y_len, pair.x_len};
  chamfer_exact<false, true>(p, p.side[blockIdx.y], p.side[1 - blockIdx.y], pair, list, n, 0, 1);
}

}  // namespace plaid
