// chamferwide.cuh: dense_chamfer_product with wgmma. A warpgroup has 64 of a tile's 128
// rows of X, whose operands are in registers; rows of Y lie in shared memory as core
// matrices. Groups of rows of Y are 8 of the 16 of a warp.
#pragma once
#include "chamferproduct.cuh"
#include "product.cuh"

namespace plaid {

template <bool kResident>
__device__ __forceinline__ void chamfer_wide(const DenseChamferParams &p) {
  constexpr uint32_t kStage = kResident ? kPointChunk : 2 * kPointChunk, kPlane = 128 * 16;
  extern __shared__ __align__(1024) uint8_t shared[];
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  const uint32_t tid = threadIdx.x, warp = tid / 32, l = tid & 31, g = l >> 2, j = l & 3;
  const uint32_t chunks = p.point_bytes / 128, tiles = (pair.y_len + 127) / 128, per = (tiles + gridDim.z - 1) / gridDim.z;
  const uint32_t begin = blockIdx.z * per, end = min(begin + per, tiles);
  if (begin >= end) return;
  const uint32_t stages_at = kResident ? chunks * kPointChunk : 0;
  const uint32_t base = shared_at(shared), stages = base + stages_at;
  float *const groups = reinterpret_cast<float *>(shared + stages_at + 2 * kStage);  // [2][16][128]
  float2 *const ys = reinterpret_cast<float2 *>(groups + 2 * 16 * 128);

  auto load_x = [&](uint32_t to, uint32_t tile, uint32_t chunk) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t r = tid / 8 + 32 * i, unit = tid % 8;
      copy_point(to + r * 128 + ((unit ^ (r & 7)) * 16), p.side[0].points + (pair.x + min(tile * 128 + r, pair.x_len - 1)) * p.point_bytes + chunk * 128 + unit * 16);
    }
  };
  auto load_y = [&](uint32_t to, uint32_t tile, uint32_t chunk) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t part = warp + 8 * i, r = part / 2 * 8 + l % 8, unit = part % 2 * 4 + l / 8;
      copy_point(to + unit * kPlane + r * 16, p.side[1].points + (pair.y + min(tile * 128 + r, pair.y_len - 1)) * p.point_bytes + chunk * 128 + unit * 16);
    }
  };
  for (uint32_t tx = blockIdx.y; tx * 128 < pair.x_len; tx += gridDim.y) {
    __syncthreads();
    auto fetch = [&](uint32_t tile, uint32_t chunk, uint32_t to) {
      load_y(to, tile, chunk);
      if constexpr (!kResident) load_x(to + kPointChunk, tx, chunk);
    };
    if constexpr (kResident)
      for (uint32_t c = 0; c < chunks; c++) load_x(base + c * kPointChunk, tx, c);
    const uint32_t first = begin + tx % (end - begin);  // blocks do not meet at keys
    fetch(first, 0, stages);
    asm volatile("cp.async.commit_group;" ::: "memory");
    float2 x[2];  // of the lane's rows
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t r = tx * 128 + warp * 16 + h * 8 + g;
      x[h] = __ldg(p.side[0].norms + pair.x + min(r, pair.x_len - 1));
      x[h] = make_float2(-2 * x[h].x, r < pair.x_len ? x[h].y : INFINITY);
    }
    Least least;
    float sums[64];
    uint32_t chunk = 0, slot = 0, tile = first;
    for (uint32_t left_over = end - begin; left_over > 0;) {
      asm volatile("cp.async.wait_group 0;\nfence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      const bool last = chunk + 1 == chunks;
      const uint32_t after = tile + 1 == end ? begin : tile + 1;
      if (!last || left_over > 1) fetch(last ? after : tile, last ? 0 : chunk + 1, stages + (slot ^ 1) * kStage);
      asm volatile("cp.async.commit_group;" ::: "memory");
      float2 norm = make_float2(0, INFINITY);
      if (chunk == 0 && tid < 128 && tile * 128 + tid < pair.y_len) norm = __ldg(p.side[1].norms + pair.y + tile * 128 + tid);
      const uint32_t y_at = stages + slot * kStage, x_row = (kResident ? base + chunk * kPointChunk : y_at + kPointChunk) + (warp * 16 + (l & 15)) * 128;
      uint32_t left[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++) load_matrices(left[i], x_row + (((2 * i + (l >> 4)) ^ (l & 7)) * 16));
      const uint64_t b = right(y_at, kPlane, 128);
      constexpr uint32_t kStep = 2 * kPlane / 16;
      products_begin();
#pragma unroll
      for (int i = 0; i < 2; i++) {
        product(Split{}, Width<128>{}, sums, left[i], b + i * kStep, i > 0 || chunk > 0);
        product(Split{}, Width<128>{}, sums, left[i], b + (i + 2) * kStep, 1);
        product(Split{}, Width<128>{}, sums, left[i + 2], b + i * kStep, 1);
      }
      products_end();
#pragma unroll
      for (int i = 0; i < 64; i++) settle(sums[i]);
      if (chunk == 0 && tid < 128) ys[tid] = norm;
      slot ^= 1;
      if (!last) {
        chunk++;
        continue;
      }
      chunk = 0;
      __syncthreads();

      // The least of each group: of a row of X columns 8n + 2j + e of 32, of a row of Y rows
      // 8h + g of the warp's with the same g / 4.
      float of_columns[32];
#pragma unroll
      for (int n = 0; n < 16; n += 4) {
        float of_rows[2] = {INFINITY, INFINITY};
#pragma unroll
        for (int i = n; i < n + 4; i++) {
          const float4 y = *reinterpret_cast<const float4 *>(ys + i * 8 + 2 * j);
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const float v0 = fmaf(sums[4 * i + 2 * h] * x[h].x, y.x, x[h].y + y.y), v1 = fmaf(sums[4 * i + 2 * h + 1] * x[h].x, y.z, x[h].y + y.w);
            of_rows[h] = fminf(of_rows[h], fminf(v0, v1));
            of_columns[2 * i] = h ? fminf(of_columns[2 * i], v0) : v0, of_columns[2 * i + 1] = h ? fminf(of_columns[2 * i + 1], v1) : v1;
          }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) groups[(n + j) * 128 + ((warp * 16 + h * 8 + g) ^ (j << 3))] = of_rows[h];
      }
      // Of four lanes each ends with a quarter of the columns: 8·(4i + 2·(g / 2 % 2) + g % 2).
      const bool odd = g & 1, high = g & 2;
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float a = of_columns[4 * i + e], c = of_columns[4 * i + 2 + e];
          of_columns[2 * i + e] = fminf(odd ? c : a, __shfl_xor_sync(0xffffffffu, odd ? a : c, 4));
        }
      const uint32_t group = warp * 2 + (g >> 2);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float v[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float a = of_columns[4 * i + e], c = of_columns[4 * i + 2 + e];
          v[e] = fminf(high ? c : a, __shfl_xor_sync(0xffffffffu, high ? a : c, 8));
        }
        const uint32_t column = (4 * i + (high ? 2 : 0) + (odd ? 1 : 0)) * 8 + 2 * j;
        *reinterpret_cast<float2 *>(groups + (16 + group) * 128 + (column ^ ((group & 3) << 3))) = make_float2(v[0], v[1]);
      }
      __syncthreads();
      least.meet(p, pair, groups, tx, tile);
      tile = after, left_over--;
    }
    least.end(p, pair, tx);
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) dense_chamfer_wide_resident(const __grid_constant__ DenseChamferParams p) { chamfer_wide<true>(p); }
extern "C" __global__ void __launch_bounds__(256, 2) dense_chamfer_wide(const __grid_constant__ DenseChamferParams p) { chamfer_wide<false>(p); }

}  // namespace plaid
