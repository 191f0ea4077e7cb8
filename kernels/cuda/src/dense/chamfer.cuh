// chamfer.cuh: Chamfer distances: the interface of the kernels for the host, their common
// code, and the first and the last of them.
//
//   dense_chamfer_pairs    offsets, lengths and lists -> pairs
//   dense_chamfer_rows     rows -> points; what a call counts with is set
//   dense_chamfer_few_*    up to 8 dimensions: points -> keys         (chamferfew.cuh)
//   dense_chamfer_find     groups of rows in keys -> rows
//   dense_chamfer_product  squared L2 of more: points -> keys         (chamferproduct.cuh)
//   dense_chamfer_resolve  keys of the tensor cores -> exact ones, and rows in doubt
//   dense_chamfer_l2       of rows in doubt: all distances            (chamferexact.cuh)
//   dense_chamfer_l1       L1 of more than 8 dimensions: rows -> keys
//   dense_chamfer_sum      keys -> distances and nearest rows
//   dense_chamfer_list, dense_chamfer_grad_*   gradients              (chamfergrad.cuh)
//
// A distance that is reported was added up from differences in float32: that of near
// vectors loses no digits, as it would from squares and products. Each distance is
// computed once for both directions. Minima go to keys in memory, the distance above
// the number of the row or of a group of rows, by atomic minima, whose result no order
// changes.
#pragma once
#include "any.cuh"

namespace plaid {

// A pair of items of X and Y.
struct DenseChamferPair {
  uint64_t x, y;                    // first rows
  uint64_t key_x, key_y;            // places of the keys of their rows
  uint32_t x_len, y_len;
};

// X or Y: rows. Those that the mask excludes, or that are in no pair, are not tokens.
struct DenseChamferSide {
  const uint8_t *rows;
  const float *scale;               // a row, or null: 1
  const uint8_t *mask;              // a byte a row of items that are stride rows apart, or null
  uint8_t *points;                  // out of dense_chamfer_rows: [n][point_bytes], or null
  float2 *norms;                    // likewise: the factor of products, and the squared length; or null
  int32_t *near;                    // out [pairs][pitch]: nearest rows, −1 for rows that are not tokens; or null
  uint32_t n, bytes, format;        // rows, and of a row
  uint32_t stride, mask_stride;     // of the mask: rows of an item, bytes of an item
  uint32_t pitch;                   // rows of an item at most
};

// dense_chamfer_rows: grid (blocks, 2), block 256: a thread a row, for products a warp.
// dense_chamfer_few_METRIC_dD: grid (pairs, tiles of 1024 rows of X, splits of Y), block 128.
// D: 3, 4 or 8 dimensions at most; point_bytes is 16 or, of 8, 32.
// dense_chamfer_find: grid (pairs, enough blocks for a warp a row), block 256.
// dense_chamfer_product, and _resident, where points have up to 512 bytes: grid (pairs,
// tiles of 128 rows of X, splits of Y), block 256, shared memory 82944, and of _resident
// 50176 + 128·point_bytes. point_bytes is that of a row of format split. dense_chamfer_wide and
// _resident are the same for sm_90a.
// dense_chamfer_resolve: grid (pairs, enough blocks for a warp a row), block 256.
// dense_chamfer_l2: grid (pairs, 2, splits), block 128.
// dense_chamfer_l1: grid (pairs, tiles of 64 rows of X, splits of Y), block 128.
// dense_chamfer_sum: grid (pairs, parts), block 256: a part is 256 places of pitch X, then of Y.
struct DenseChamferParams {
  DenseChamferSide side[2];
  const DenseChamferPair *pairs;
  uint64_t *keys;                   // [pairs][pitch of X], [pairs][pitch of Y]
  uint32_t *seconds;                // the same of dense_chamfer_product: the least of another group
  uint32_t *doubt;                  // the same: rows in doubt
  uint32_t *counts;                 // [pairs][2] of these; then two largest squared lengths
  double *parts;                    // [pairs][parts][2]: sums and counts
  uint32_t *done;                   // [pairs]: parts that are
  float *out;                       // [pairs]
  uint64_t n_keys;
  uint32_t n_pairs;
  uint32_t dim, point_bytes;
  uint32_t products;                // 1: points are for the tensor cores; 2: groups are those of dense_chamfer_wide
  uint32_t l1, mean;
};

// dense_chamfer_pairs: grid (ceil(pairs/256)), block 256.
struct DenseChamferItems {
  const int32_t *offsets;           // [items + 1], or null: items are stride rows apart
  const int32_t *lengths;           // or null: longest
  const int32_t *list;              // of kind 2: the item of each pair
  uint32_t items, stride, longest;
  uint32_t rows;                    // of all items
};
struct DenseChamferPairsParams {
  DenseChamferItems side[2];
  DenseChamferPair *pairs;          // out
  uint32_t n, kind, count;          // 0: all; 1: own, count of each of X; 2: listed
  uint32_t reserved;
};

__device__ __forceinline__ uint64_t chamfer_key(float distance, uint32_t at) { return uint64_t(__float_as_uint(distance)) << 32 | at; }

__device__ __forceinline__ uint64_t lower_key(uint64_t *to, uint64_t key) {
  return atomicMin(reinterpret_cast<unsigned long long *>(to), static_cast<unsigned long long>(key));
}
__device__ __forceinline__ uint64_t least_key(uint64_t key, int lanes) {
  const uint64_t other = __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(key), lanes);
  return other < key ? other : key;
}

// value_of is value, of a format that is known where kFormat is not 0: loads of several
// dimensions are in flight.
template <int kFormat>
__device__ __forceinline__ float value_of(uint32_t format, const uint8_t *row, uint32_t d) {
  return value(kFormat ? kFormat : format, row, d);
}
template <int N> struct Format {
  static constexpr int kIs = N;
};
// with_format calls fn with the format of both sides, or with 0.
template <class Fn>
__device__ __forceinline__ void with_format(uint32_t x, uint32_t y, Fn fn) {
  switch (x == y ? x : 0) {
    case kF32: return fn(Format<kF32>{});
    case kF16: return fn(Format<kF16>{});
    case kBF16: return fn(Format<kBF16>{});
    case kSplit: return fn(Format<kSplit>{});
    default: return fn(Format<0>{});
  }
}

// chamfer_token is for rows of items; chamfer_any_token for those between them, too.
__device__ __forceinline__ bool chamfer_token(const DenseChamferSide &s, uint64_t row) {
  return !s.mask || s.mask[row / s.stride * s.mask_stride + row % s.stride];
}
__device__ __forceinline__ bool chamfer_any_token(const DenseChamferSide &s, uint64_t row) {
  return !s.mask || (row % s.stride < s.pitch && chamfer_token(s, row));
}

// add_distance adds what a dimension counts; the first one begins.
template <bool kL1>
__device__ __forceinline__ float add_distance(float sum, float x, float y, bool begins) {
  const float v = x - y;
  if (begins) return kL1 ? fabsf(v) : v * v;
  return kL1 ? sum + fabsf(v) : fmaf(v, v, sum);
}

extern "C" __global__ void __launch_bounds__(256) dense_chamfer_pairs(const __grid_constant__ DenseChamferPairsParams p) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= p.n) return;
  uint32_t item[2];
  item[0] = p.kind == 0 ? i / p.side[1].items : p.kind == 1 ? i / p.count : uint32_t(p.side[0].list[i]);
  item[1] = p.kind == 0 ? i % p.side[1].items : p.kind == 1 ? i : uint32_t(p.side[1].list[i]);
  uint64_t first[2];
  uint32_t len[2];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const DenseChamferItems &s = p.side[k];
    first[k] = 0, len[k] = 0;
    if (item[k] >= s.items) continue;  // such a pair has no tokens
    first[k] = uint64_t(item[k]) * s.stride;
    int32_t n = s.lengths ? s.lengths[item[k]] : int32_t(s.longest);
    if (s.offsets) {  // of rows that there are
      first[k] = min(uint32_t(s.offsets[item[k]]), s.rows);
      n = int32_t(min(uint32_t(s.offsets[item[k] + 1]), s.rows)) - int32_t(first[k]);
    }
    len[k] = min(uint32_t(max(n, 0)), s.longest);
  }
  p.pairs[i] = DenseChamferPair{first[0], first[1], uint64_t(i) * p.side[0].longest, uint64_t(p.n) * p.side[0].longest + uint64_t(i) * p.side[1].longest, len[0], len[1]};
}

// A point of few dimensions. Rows that are not tokens become points far from all others.
__device__ __forceinline__ void few_point(const DenseChamferParams &p, const DenseChamferSide &s, uint64_t r, float far) {
  const float scale = s.scale ? s.scale[r] : 1.0f;
  const bool token = chamfer_any_token(s, r);
  float *to = reinterpret_cast<float *>(s.points + r * p.point_bytes);
  for (uint32_t d = 0; d < p.point_bytes / 4; d++) {
    float v = d < p.dim ? value(s.format, s.rows + r * s.bytes, d) * scale : 0.0f;
    if (!token) v = d == 0 ? far : 0.0f;
    to[d] = v;
  }
}

// A point for the tensor cores, of format split, by a warp: its difference from the first row
// of Y of the first pair, if that is a token, so that cancellation loses few digits if all
// points are far from 0. It returns the squared length.
template <int kFormat>
__device__ __forceinline__ float product_point(const DenseChamferParams &p, const DenseChamferSide &s, uint64_t r) {
  const uint32_t l = threadIdx.x & 31;
  const bool token = chamfer_any_token(s, r);
  const DenseChamferSide &y = p.side[1];
  const uint64_t centre = p.pairs->y;
  const bool centred = p.pairs->y_len && chamfer_token(y, centre);
  const float scale = s.scale ? s.scale[r] : 1.0f, scale_y = centred && y.scale ? y.scale[centre] : 1.0f;
  const uint8_t *const centre_row = y.rows + centre * y.bytes;
  auto from_centre = [&](uint32_t d) {
    if (d >= p.dim || !token) return 0.0f;
    const float c = centred ? value_of<kFormat>(y.format, centre_row, d) * scale_y : 0.0f;
    return value_of<kFormat>(s.format, s.rows + r * s.bytes, d) * scale - (fabsf(c) < INFINITY ? c : 0.0f);
  };
  constexpr uint32_t kKept = 4;  // values of a lane that are not computed twice
  float kept[kKept], most = 0, square = 0;
  auto meet = [&](float v) { most = fmaxf(most, fabsf(v)), square = fmaf(v, v, square); };
#pragma unroll
  for (uint32_t i = 0; i < kKept; i++) kept[i] = from_centre(l + 32 * i);
#pragma unroll
  for (uint32_t i = 0; i < kKept; i++) meet(kept[i]);
  for (uint32_t d = l + 32 * kKept; d < p.dim; d += 32) meet(from_centre(d));
  for (int i = 16; i; i >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, i)), square += __shfl_xor_sync(0xffffffffu, square, i);
  int exponent = 0;
  if (most > 0 && most < INFINITY) frexpf(most, &exponent);
  exponent = max(exponent, -110);
  const float up = ldexpf(1.0f, 15 - exponent);
  uint16_t *to = reinterpret_cast<uint16_t *>(s.points + r * p.point_bytes) + l;
  auto put = [&](uint32_t i, float v) {
    const __half hi = __float2half_rn(v * up);
    to[i * 64] = __half_as_ushort(hi);
    to[i * 64 + 32] = __half_as_ushort(__float2half_rn(v * up - __half2float(hi)));
  };
#pragma unroll
  for (uint32_t i = 0; i < kKept; i++)
    if (i < p.point_bytes / 128) put(i, kept[i]);
  for (uint32_t i = kKept; i < p.point_bytes / 128; i++) put(i, from_centre(l + 32 * i));
  if (l == 0) s.norms[r] = make_float2(ldexpf(1.0f, exponent - 15), token ? square : INFINITY);
  return token ? square : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) dense_chamfer_rows(const __grid_constant__ DenseChamferParams p) {
  __shared__ float squares[8];
  const DenseChamferSide &s = p.side[blockIdx.y];
  const uint64_t thread = (uint64_t(blockIdx.y) * gridDim.x + blockIdx.x) * 256 + threadIdx.x, threads = uint64_t(gridDim.x) * 512;
  for (uint64_t i = thread; i < p.n_keys; i += threads) {
    p.keys[i] = ~0ull;
    if (p.products) p.seconds[i] = ~0u;
  }
  for (uint64_t i = thread; i < p.n_pairs; i += threads) p.done[i] = 0;
  if (!s.points) return;
  if (!p.products) {
    for (uint64_t r = uint64_t(blockIdx.x) * 256 + threadIdx.x; r < s.n; r += uint64_t(gridDim.x) * 256) few_point(p, s, r, blockIdx.y ? INFINITY : -INFINITY);
    return;
  }
  float most = 0;
  with_format(p.side[0].format, p.side[1].format, [&](auto format) {
    for (uint64_t r = uint64_t(blockIdx.x) * 8 + threadIdx.x / 32; r < s.n; r += uint64_t(gridDim.x) * 8) {
      const float square = product_point<decltype(format)::kIs>(p, s, r);
      if (square < INFINITY) most = fmaxf(most, square);
    }
  });
  if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < 8; i++) most = fmaxf(most, squares[i]);
  atomicMax(p.counts + 2 * uint64_t(p.n_pairs) + blockIdx.y, __float_as_uint(most));
}

// A block has 256 places of a side of a pair; the last block of a pair adds all up.
extern "C" __global__ void __launch_bounds__(256) dense_chamfer_sum(const __grid_constant__ DenseChamferParams p) {
  __shared__ double shared[2][8];
  __shared__ bool last;
  const uint32_t l = threadIdx.x & 31, warp = threadIdx.x / 32;
  const uint64_t at = blockIdx.x;
  const DenseChamferPair pair = p.pairs[at];
  const uint32_t parts_x = (p.side[0].pitch + 255) / 256, which = blockIdx.y >= parts_x;
  const DenseChamferSide &s = p.side[which];
  const uint32_t r = (blockIdx.y - (which ? parts_x : 0)) * 256 + threadIdx.x, len = which ? pair.y_len : pair.x_len;
  uint64_t key = ~0ull;
  if (r < len) key = p.keys[(which ? pair.key_y : pair.key_x) + r];
  const float distance = __uint_as_float(uint32_t(key >> 32));
  const bool token = key != ~0ull;
  if (s.near && r < s.pitch) s.near[at * s.pitch + r] = token ? int32_t(uint32_t(key)) : -1;
  double sum = token ? double(distance) : 0.0, count = token;
  auto add_up = [&] {
    for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, i), count += __shfl_xor_sync(0xffffffffu, count, i);
    __syncthreads();
    if (l == 0) shared[0][warp] = sum, shared[1][warp] = count;
    __syncthreads();
    sum = count = 0;
    for (int i = 0; i < 8; i++) sum += shared[0][i], count += shared[1][i];
  };
  add_up();
  double *parts = p.parts + at * gridDim.y * 2;
  if (threadIdx.x == 0) {
    parts[2 * blockIdx.y] = sum, parts[2 * blockIdx.y + 1] = count;
    __threadfence();
    last = atomicAdd(p.done + at, 1) == gridDim.y - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  double total = 0;
  for (uint32_t k = 0; k < 2; k++) {
    sum = count = 0;
    for (uint32_t i = (k ? parts_x : 0) + threadIdx.x; i < (k ? gridDim.y : parts_x); i += 256) sum += __ldcg(parts + 2 * i), count += __ldcg(parts + 2 * i + 1);
    add_up();
    if (count > 0) total += p.mean ? sum / count : sum;
  }
  if (threadIdx.x == 0) p.out[at] = float(total);
}

}  // namespace plaid
