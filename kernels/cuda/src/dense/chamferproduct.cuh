// chamferproduct.cuh: squared L2 of many dimensions on the tensor cores of any device:
// |x|² + |y|² − 2·x·y of two f16 parts of each, products as for format split. A block has
// tiles of 128 × 128 rows, a warp 64 × 32 of them; chunks of 128 bytes of their rows come
// through two stages of shared memory, those of X stay if there is room.
//
// A lane has 8 values of a row of X, and 8 of a row of Y: a GROUP. The least value of all,
// and the least of another group, go to memory. dense_chamfer_resolve adds the distances
// of a group up from differences; where another group is within what rounding can
// explain, the row is in doubt, and dense_chamfer_l2 computes all of its distances. So
// the nearest row is that of distances from differences.
//
// Rounding: parts leave out 2⁻²² of a value, the product of two low ones as much, a sum of
// the tensor cores 2⁻²² of |x|·|y| for each of 3/16 products a dimension, squared lengths
// 2⁻²⁴ for each of 1/32 additions a dimension.
#pragma once
#include "chamfer.cuh"
#include "tensorcores.cuh"

namespace plaid {

constexpr uint32_t kPointChunk = 128 * 128;  // bytes of a chunk of a tile's rows

// What a thread of 256 has: of a row of X the least value so far and the least of
// another group, or those of a row of Y in a tile. What was in memory is looked at when the
// next tile is met, by when it has come.
struct Least {
  float best = INFINITY, second = INFINITY;
  uint32_t group = 0, place = ~0u;  // of the row in its item; ~0: it was not put
  uint64_t old;

  // meet takes the values of 16 groups of a tile, [2][16][128]: of its rows of X, then of Y.
  __device__ __forceinline__ void meet(const DenseChamferParams &p, const DenseChamferPair &pair, const float *groups, uint32_t tile_x, uint32_t tile_y) {
    const uint32_t r = threadIdx.x % 128;
    const bool is_row = threadIdx.x < 128;
    if (!is_row) {
      put_second(p, pair.key_y);
      best = second = INFINITY, groups += 16 * 128;
    }
    const uint32_t first = (is_row ? tile_y : tile_x) * 16;
#pragma unroll
    for (uint32_t k = 0; k < 16; k++) {
      const float v = fmaxf(groups[k * 128 + (r ^ ((k & 3) << 3))], 0.0f);
      second = fminf(second, fmaxf(best, v));
      if (v < best) group = first + k;
      best = fminf(best, v);
    }
    if (!is_row && tile_y * 128 + r < pair.y_len) put(p, pair.key_y, tile_y * 128 + r);
  }
  __device__ __forceinline__ void end(const DenseChamferParams &p, const DenseChamferPair &pair, uint32_t tile_x) {
    const uint32_t r = tile_x * 128 + threadIdx.x;
    if (threadIdx.x < 128 && r < pair.x_len) put(p, pair.key_x, r);
    put_second(p, threadIdx.x < 128 ? pair.key_x : pair.key_y);
  }
  __device__ __forceinline__ void put(const DenseChamferParams &p, uint64_t keys, uint32_t r) {
    if (!(best < INFINITY)) return;
    place = r;
    old = lower_key(p.keys + keys + r, chamfer_key(best, group));
  }
  // Whichever of two best ones is not the best after all is the least of another group.
  __device__ __forceinline__ void put_second(const DenseChamferParams &p, uint64_t keys) {
    if (place == ~0u) return;
    atomicMin(p.seconds + keys + place, min(max(uint32_t(old >> 32), __float_as_uint(best)), __float_as_uint(second)));
    place = ~0u;
  }
};

template <bool kResident>
__device__ __forceinline__ void chamfer_product(const DenseChamferParams &p) {
  constexpr uint32_t kStage = kResident ? kPointChunk : 2 * kPointChunk;
  extern __shared__ __align__(1024) uint8_t shared[];
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  const uint32_t tid = threadIdx.x, warp = tid / 32, l = tid & 31, g = l >> 2, j = l & 3, wm = warp / 4, wn = warp % 4;
  const uint32_t chunks = p.point_bytes / 128, tiles = (pair.y_len + 127) / 128, per = (tiles + gridDim.z - 1) / gridDim.z;
  const uint32_t begin = blockIdx.z * per, end = min(begin + per, tiles);
  if (begin >= end) return;
  const uint32_t stages_at = kResident ? chunks * kPointChunk : 0;
  const uint32_t base = uint32_t(__cvta_generic_to_shared(shared)), stages = base + stages_at;
  float *const groups = reinterpret_cast<float *>(shared + stages_at + 2 * kStage);  // [2][16][128]
  float2 *const xs = reinterpret_cast<float2 *>(groups + 2 * 16 * 128);

  // load brings a chunk of the rows of a tile, 16 bytes of a row where no two of eight rows meet.
  auto load = [&](uint32_t to, const DenseChamferSide &s, uint64_t first, uint32_t tile, uint32_t len, uint32_t chunk) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t r = tid / 8 + 32 * i, unit = tid % 8;
      copy_point(to + r * 128 + ((unit ^ (r & 7)) * 16), s.points + (first + min(tile * 128 + r, len - 1)) * p.point_bytes + chunk * 128 + unit * 16);
    }
  };
  for (uint32_t tx = blockIdx.y; tx * 128 < pair.x_len; tx += gridDim.y) {
    __syncthreads();
    auto tile_at = [&](uint32_t i) { return begin + (i + tx) % (end - begin); };  // blocks do not meet at keys
    auto fetch = [&](uint32_t step) {
      const uint32_t tile = tile_at(step / chunks), chunk = step % chunks, to = stages + (step & 1) * kStage;
      load(to, p.side[1], pair.y, tile, pair.y_len, chunk);
      if constexpr (!kResident) load(to + kPointChunk, p.side[0], pair.x, tx, pair.x_len, chunk);
    };
    if constexpr (kResident)
      for (uint32_t c = 0; c < chunks; c++) load(base + c * kPointChunk, p.side[0], pair.x, tx, pair.x_len, c);
    if (tid < 128) {
      float2 n = make_float2(0, INFINITY);
      if (tx * 128 + tid < pair.x_len) n = p.side[0].norms[pair.x + tx * 128 + tid];
      xs[tid] = make_float2(-2 * n.x, n.y);
    }
    const uint32_t steps = (end - begin) * chunks;
    fetch(0);
    commit_copies();
    Least least;
    float sums[4][4][4] = {};
    uint32_t chunk = 0, tile = tile_at(0);
    for (uint32_t step = 0; step < steps; step++) {
      wait_for_copies();
      __syncthreads();
      if (step + 1 < steps) fetch(step + 1);
      commit_copies();
      const uint32_t y_at = stages + (step & 1) * kStage, x_at = kResident ? base + chunk * kPointChunk : y_at + kPointChunk;
      const uint32_t x_row = x_at + (wm * 64 + (l & 15)) * 128, y_row = y_at + (wn * 32 + (l & 7) + (l >> 4) * 8) * 128;
#pragma unroll
      for (int k = 0; k < 2; k++) {
        uint32_t hi[2][4], lo[2][4];  // of Y: two tiles of eight rows each
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const uint32_t unit = 2 * k + (l >> 3 & 1);
          load_matrices(hi[n], y_row + n * 16 * 128 + ((unit ^ (l & 7)) * 16));
          load_matrices(lo[n], y_row + n * 16 * 128 + (((unit + 4) ^ (l & 7)) * 16));
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
          uint32_t a[4];
          const uint32_t unit = 2 * k + (l >> 4);
          load_matrices(a, x_row + m * 16 * 128 + ((unit ^ (l & 7)) * 16));
#pragma unroll
          for (int n = 0; n < 4; n++) multiply(sums[m][n], a, hi[n / 2][n % 2 * 2], hi[n / 2][n % 2 * 2 + 1]);
#pragma unroll
          for (int n = 0; n < 4; n++) multiply(sums[m][n], a, lo[n / 2][n % 2 * 2], lo[n / 2][n % 2 * 2 + 1]);
          load_matrices(a, x_row + m * 16 * 128 + (((unit + 4) ^ (l & 7)) * 16));
#pragma unroll
          for (int n = 0; n < 4; n++) multiply(sums[m][n], a, hi[n / 2][n % 2 * 2], hi[n / 2][n % 2 * 2 + 1]);
        }
      }
      if (++chunk < chunks) continue;
      chunk = 0;

      // The least of each group of 8: of a row of X columns 8n + 2j + e of the warp's, of a
      // row of Y rows 8m + g.
      float of_rows[8], of_columns[8];
#pragma unroll
      for (int i = 0; i < 8; i++) of_rows[i] = of_columns[i] = INFINITY;
#pragma unroll
      for (int n = 0; n < 4; n++) {
        float2 y[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const uint32_t c = tile * 128 + wn * 32 + n * 8 + 2 * j + e;
          y[e] = __ldg(p.side[1].norms + pair.y + min(c, pair.y_len - 1));
          if (c >= pair.y_len) y[e].y = INFINITY;
        }
#pragma unroll
        for (int m = 0; m < 8; m++) {
          const float2 x = xs[wm * 64 + m * 8 + g];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float &sum = sums[m / 2][n][m % 2 * 2 + e];
            const float v = fmaf(sum * x.x, y[e].x, x.y + y[e].y);
            of_rows[m] = fminf(of_rows[m], v), of_columns[2 * n + e] = fminf(of_columns[2 * n + e], v);
            sum = 0;
          }
        }
      }
      const uint32_t row_group = wn * 4 + j, column_group = wm * 8 + g;
#pragma unroll
      for (int m = 0; m < 8; m++) groups[row_group * 128 + ((wm * 64 + m * 8 + g) ^ (j << 3))] = of_rows[m];
#pragma unroll
      for (int n = 0; n < 4; n++)
        *reinterpret_cast<float2 *>(groups + (16 + column_group) * 128 + ((wn * 32 + n * 8 + 2 * j) ^ ((g & 3) << 3))) = make_float2(of_columns[2 * n], of_columns[2 * n + 1]);
      __syncthreads();
      least.meet(p, pair, groups, tx, tile);
      if (++tile == end) tile = begin;
    }
    least.end(p, pair, tx);
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) dense_chamfer_product_resident(const __grid_constant__ DenseChamferParams p) { chamfer_product<true>(p); }
extern "C" __global__ void __launch_bounds__(256, 2) dense_chamfer_product(const __grid_constant__ DenseChamferParams p) { chamfer_product<false>(p); }

// A warp has a row, and all rows of its group.
template <int kFormat>
__device__ __forceinline__ void chamfer_resolve(const DenseChamferParams &p) {
  const DenseChamferPair pair = p.pairs[blockIdx.x];
  const uint32_t l = threadIdx.x & 31;
  const float rounding = (0.2f * p.dim + 6) * 0x1p-22f;
  for (uint32_t i = blockIdx.y * 8 + threadIdx.x / 32; i < pair.x_len + pair.y_len; i += gridDim.y * 8) {
    const bool which = i >= pair.x_len;
    const uint32_t r = which ? i - pair.x_len : i, len = which ? pair.x_len : pair.y_len;
    const DenseChamferSide &s = p.side[which], &o = p.side[!which];
    const uint64_t at = (which ? pair.key_y : pair.key_x) + r, row = (which ? pair.y : pair.x) + r, first = which ? pair.x : pair.y;
    const uint64_t key = p.keys[at];
    if (key == ~0ull) continue;
    const uint32_t tile = uint32_t(key) / 16 * 128, k = uint32_t(key) % 16;
    // Rows of a group, as lanes of dense_chamfer_product or of dense_chamfer_wide have them.
    auto candidate = [&](uint32_t c) {
      if (!which) return tile + k / 4 * 32 + c / 2 * 8 + 2 * (k % 4) + (c & 1);
      return tile + (p.products == 2 ? k / 2 * 16 + c / 4 * 8 + k % 2 * 4 + c % 4 : k / 8 * 64 + c * 8 + k % 8);
    };
    const uint8_t *to[8];
    float scales[8], sums[8] = {};
#pragma unroll
    for (uint32_t c = 0; c < 8; c++) {
      const uint64_t other = first + min(candidate(c), len - 1);
      to[c] = o.rows + other * o.bytes, scales[c] = o.scale ? o.scale[other] : 1.0f;
    }
    const uint8_t *from = s.rows + row * s.bytes;
    const float scale = s.scale ? s.scale[row] : 1.0f;
#pragma unroll 2
    for (uint32_t d = l; d < p.dim; d += 32) {
      const float x = value_of<kFormat>(s.format, from, d) * scale;
      float y[8];
#pragma unroll
      for (uint32_t c = 0; c < 8; c++) y[c] = value_of<kFormat>(o.format, to[c], d) * scales[c];
#pragma unroll
      for (uint32_t c = 0; c < 8; c++) sums[c] = add_distance<false>(sums[c], x, y[c], false);
    }
    uint64_t exact = ~0ull;
#pragma unroll
    for (uint32_t c = 0; c < 8; c++) {
      for (int n = 16; n; n >>= 1) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], n);
      if (candidate(c) < len && chamfer_token(o, first + candidate(c))) exact = min(exact, chamfer_key(sums[c], candidate(c)));
    }
    if (l) continue;
    p.keys[at] = exact;
    const float margin = 2 * rounding * (s.norms[row].y + __uint_as_float(p.counts[2 * uint64_t(p.n_pairs) + !which]));
    // NaN, which compares false, if no other group exists.
    if (__uint_as_float(p.seconds[at]) <= __uint_as_float(uint32_t(key >> 32)) + margin)
      p.doubt[(which ? pair.key_y : pair.key_x) + atomicAdd(p.counts + 2 * uint64_t(blockIdx.x) + which, 1)] = r;
  }
}

extern "C" __global__ void __launch_bounds__(256) dense_chamfer_resolve(const __grid_constant__ DenseChamferParams p) {
  with_format(p.side[0].format, p.side[1].format, [&](auto format) { chamfer_resolve<decltype(format)::kIs>(p); });
}

}  // namespace plaid
