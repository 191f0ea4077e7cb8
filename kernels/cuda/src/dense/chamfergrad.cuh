// chamfergrad.cuh: gradients of Chamfer distances. dense_chamfer_list chains the rows
// that have the same nearest row, in any order; the kernels that pull sort them. Longer
// chains are few, at most one for 33 rows: dense_chamfer_grad_long searches all rows for
// theirs, in order. So each gradient has the same bits each time.
#pragma once
#include "chamfer.cuh"

namespace plaid {

constexpr int kChamferChain = 32;

struct DenseChamferGradSide {
  const uint8_t *rows;
  const float *scale;               // a row, or null: 1
  const int32_t *near;              // [pairs][pitch]: the nearest row of the other side, or −1
  uint32_t *head;                   // [pairs][pitch], 0 before: the last row + 1 of the other side that has this one nearest
  uint32_t *next;                   // [pairs][pitch]: the row + 1 that was last before it
  const int32_t *offsets;           // [items + 1], or null: items are stride rows apart
  const uint32_t *pair_first;       // of kind 2: [items + 1]
  const uint32_t *pair_list;        // of kind 2: the pairs of each item, in order
  void *out;                        // [n][dim], or null
  uint64_t n;                       // rows
  uint32_t bytes, format, out_type;
  uint32_t items, stride, pitch;
};

// dense_chamfer_list: grid (pairs, ceil(most of pitches/256), 2), block 256.
// dense_chamfer_grad_METRIC, and _few, up to 8 dimensions: grid (ceil(most rows of a side/4),
// of _few /16, 2), block 128.
// dense_chamfer_grad_long_METRIC: grid (blocks), block 256.
struct DenseChamferGradParams {
  DenseChamferGradSide side[2];
  const DenseChamferPair *pairs;
  uint32_t *counts;                 // [pairs][2], 0 before: rows that have a nearest one
  uint32_t *chains;                 // 0 before: how many rows have a long chain; then 2·row + side of each
  const float *upstream;            // [pairs], or null: 1
  uint32_t n_pairs, kind, count;    // as of dense_chamfer_pairs
  uint32_t dim, mean;
  uint32_t reserved;
};

extern "C" __global__ void __launch_bounds__(256) dense_chamfer_list(const __grid_constant__ DenseChamferGradParams p) {
  const uint32_t which = blockIdx.z, t = blockIdx.y * 256 + threadIdx.x;
  const uint64_t at = blockIdx.x;
  const DenseChamferGradSide &s = p.side[which], &o = p.side[1 - which];
  const DenseChamferPair pair = p.pairs[at];
  int32_t near = -1;
  if (t < (which ? pair.y_len : pair.x_len)) near = s.near[at * s.pitch + t];
  const bool has = near >= 0 && uint32_t(near) < (which ? pair.x_len : pair.y_len);
  if (has && o.out) s.next[at * s.pitch + t] = atomicExch(o.head + at * o.pitch + near, t + 1);
  const uint32_t n = __syncthreads_count(has);
  if (threadIdx.x == 0 && n) atomicAdd(p.counts + 2 * at + which, n);
}

// The derivative of a distance by the first vector.
template <bool kL1>
__device__ __forceinline__ float chamfer_slope(float x, float y) {
  const float v = x - y;
  return kL1 ? (v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f) : 2 * v;
}

// What a row of a side is of.
struct ChamferPairs {
  uint64_t first, step, n;

  __device__ __forceinline__ ChamferPairs(const DenseChamferGradParams &p, uint32_t which, uint64_t r) : first(0), step(1), n(0) {
    const DenseChamferGradSide &s = p.side[which];
    uint32_t item = s.offsets ? 0 : uint32_t(r / s.stride);
    if (s.offsets)  // the last one that begins no later
      for (uint32_t end = s.items; item + 1 < end;) {
        const uint32_t middle = item + (end - item) / 2;
        if (uint64_t(s.offsets[middle]) <= r) item = middle;
        else end = middle;
      }
    if (item >= s.items) return;
    const uint32_t others = p.side[1 - which].items;
    if (p.kind == 0) first = uint64_t(item) * (which ? 1 : others), step = which ? s.items : 1, n = others;
    else if (p.kind == 1) first = uint64_t(item) * (which ? 1 : p.count), n = which ? 1 : p.count;
    else first = s.pair_first[item], n = s.pair_first[item + 1] - first;
  }
  __device__ __forceinline__ uint64_t at(const DenseChamferGradParams &p, uint32_t which, uint64_t i) const {
    return p.kind == 2 ? p.side[which].pair_list[first + i] : first + i * step;
  }
};

// Some dimensions of a row, and the sum of its gradient.
template <bool kL1, int kLanes, int kValues, int kFormat>
struct ChamferSum {
  const DenseChamferGradSide &o;
  uint32_t first, dim;
  float x[kValues], sum[kValues];

  __device__ __forceinline__ ChamferSum(const DenseChamferGradParams &p, uint32_t which, uint64_t r, uint32_t d0) : o(p.side[1 - which]), dim(p.dim) {
    const DenseChamferGradSide &s = p.side[which];
    first = d0 + threadIdx.x % kLanes;
    const float scale = s.scale ? s.scale[r] : 1.0f;
#pragma unroll
    for (int k = 0; k < kValues; k++)
      x[k] = first + kLanes * k < dim ? value_of<kFormat>(s.format, s.rows + r * s.bytes, first + kLanes * k) * scale : 0.0f, sum[k] = 0;
  }
  __device__ __forceinline__ void add(float c, uint64_t row) {
    const float scale = o.scale ? o.scale[row] : 1.0f;
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      const uint32_t d = first + kLanes * k;
      if (d < dim) sum[k] = fmaf(c, chamfer_slope<kL1>(x[k], value_of<kFormat>(o.format, o.rows + row * o.bytes, d) * scale), sum[k]);
    }
  }
  __device__ __forceinline__ void write(const DenseChamferGradSide &s, uint64_t r) const {
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      if (first + kLanes * k >= dim) continue;
      const uint64_t to = r * dim + first + kLanes * k;
      if (s.out_type == kF32) static_cast<float *>(s.out)[to] = sum[k];
      else if (s.out_type == kF16) static_cast<__half *>(s.out)[to] = __float2half_rn(sum[k]);
      else static_cast<__nv_bfloat16 *>(s.out)[to] = __float2bfloat16_rn(sum[k]);
    }
  }
};

// A pair as the row of a side sees it.
__device__ __forceinline__ DenseChamferPair chamfer_pair(const DenseChamferGradParams &p, uint64_t at, uint32_t which) {
  const DenseChamferPair pair = p.pairs[at];
  return which ? DenseChamferPair{pair.y, pair.x, 0, 0, pair.y_len, pair.x_len} : pair;
}
__device__ __forceinline__ float chamfer_coefficient(const DenseChamferGradParams &p, uint64_t at, uint32_t which) {
  const float up = p.upstream ? p.upstream[at] : 1.0f;
  return p.mean ? float(double(up) / max(p.counts[2 * at + which], 1u)) : up;
}

// Some lanes have a row, each kValues dimensions at a time: the contribution of the row
// that is nearest to it, then from those that it is nearest to, in the order of the
// pairs of its item and of their rows.
template <bool kL1, int kLanes, int kValues, int kFormat>
__device__ __forceinline__ void chamfer_grad(const DenseChamferGradParams &p) {
  constexpr int kMine = kChamferChain / kLanes;  // rows of a chain that a lane has
  const uint32_t which = blockIdx.y;
  const DenseChamferGradSide &s = p.side[which], &o = p.side[1 - which];
  const uint64_t r = uint64_t(blockIdx.x) * (128 / kLanes) + threadIdx.x / kLanes;
  const uint32_t l = threadIdx.x % kLanes;
  const uint32_t lanes = kLanes == 32 ? 0xffffffffu : ((1u << kLanes % 32) - 1) << threadIdx.x % 32 / kLanes * kLanes;
  if (r >= s.n || !s.out) return;
  const ChamferPairs pairs(p, which, r);
  for (uint32_t d0 = 0; d0 < p.dim; d0 += kLanes * kValues) {
    ChamferSum<kL1, kLanes, kValues, kFormat> sum(p, which, r, d0);
    for (uint64_t i = 0; i < pairs.n; i++) {
      const uint64_t at = pairs.at(p, which, i);
      const DenseChamferPair pair = chamfer_pair(p, at, which);
      const uint64_t place = r - pair.x;
      if (place >= pair.x_len) continue;
      const int32_t own = s.near[at * s.pitch + place];
      uint32_t listed = s.head[at * s.pitch + place];
      if (own >= 0 && uint32_t(own) < pair.y_len) sum.add(chamfer_coefficient(p, at, which), pair.y + own);
      if (listed == 0) continue;
      const float c = chamfer_coefficient(p, at, 1 - which);
      uint32_t mine[kMine], count = 0;
#pragma unroll
      for (int k = 0; k < kMine; k++) mine[k] = ~0u;
      for (; listed && count < kChamferChain; count++) {
#pragma unroll
        for (int k = 0; k < kMine; k++)
          if (kLanes * k + l == count) mine[k] = listed - 1;
        listed = o.next[at * o.pitch + listed - 1];
      }
      if (listed) {  // dense_chamfer_grad_long has it
        if (l == 0) p.chains[1 + atomicAdd(p.chains, 1)] = uint32_t(r) << 1 | which;
        return;
      }
      for (; count; count--) {
        uint32_t t = mine[0];
#pragma unroll
        for (int k = 1; k < kMine; k++) t = min(t, mine[k]);
        t = __reduce_min_sync(lanes, t);
#pragma unroll
        for (int k = 0; k < kMine; k++)
          if (mine[k] == t) mine[k] = ~0u;
        sum.add(c, pair.y + t);
      }
    }
    sum.write(s, r);
  }
}

// A block has a row with a long chain: each of 8 warps looks through an eighth of the rows
// of a pair, and their sums are added up in order.
template <bool kL1, int kFormat>
__device__ __forceinline__ void chamfer_grad_long(const DenseChamferGradParams &p, float (&sums)[8][128], uint32_t (&found)[8][256]) {
  constexpr uint32_t kAhead = 8;
  const uint32_t warp = threadIdx.x / 32, l = threadIdx.x & 31, n = p.chains[0];
  for (uint32_t chain = blockIdx.x; chain < n; chain += gridDim.x) {
    const uint32_t which = p.chains[1 + chain] & 1;
    const uint64_t r = p.chains[1 + chain] >> 1;
    const DenseChamferGradSide &s = p.side[which], &o = p.side[1 - which];
    const ChamferPairs pairs(p, which, r);
    for (uint32_t d0 = 0; d0 < p.dim; d0 += 128) {
      ChamferSum<kL1, 32, 4, kFormat> sum(p, which, r, d0);
      for (uint64_t i = 0; i < pairs.n; i++) {
        const uint64_t at = pairs.at(p, which, i);
        const DenseChamferPair pair = chamfer_pair(p, at, which);
        const uint64_t place = r - pair.x;
        if (place >= pair.x_len) continue;
        const int32_t own = s.near[at * s.pitch + place];
        if (warp == 0 && own >= 0 && uint32_t(own) < pair.y_len) sum.add(chamfer_coefficient(p, at, which), pair.y + own);
        if (s.head[at * s.pitch + place] == 0) continue;
        const float c = chamfer_coefficient(p, at, 1 - which);
        const uint32_t per = (pair.y_len + 7) / 8, end = min((warp + 1) * per, pair.y_len);
        for (uint32_t t = warp * per; t < end; t += 32 * kAhead) {
          int32_t near[kAhead];
          uint32_t count = 0;
#pragma unroll
          for (uint32_t k = 0; k < kAhead; k++) near[k] = o.near[at * o.pitch + min(t + 32 * k + l, end - 1)];
#pragma unroll
          for (uint32_t k = 0; k < kAhead; k++) {
            const bool hit = t + 32 * k + l < end && near[k] == int32_t(place);
            const uint32_t hits = __ballot_sync(0xffffffffu, hit);
            if (hit) found[warp][count + __popc(hits & ((1u << l) - 1))] = t + 32 * k + l;
            count += __popc(hits);
          }
          __syncwarp();
#pragma unroll 4
          for (uint32_t k = 0; k < count; k++) sum.add(c, pair.y + found[warp][k]);
          __syncwarp();
        }
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < 4; k++) sums[warp][32 * k + l] = sum.sum[k];
      __syncthreads();
      if (warp) continue;
#pragma unroll
      for (int k = 0; k < 4; k++)
        for (int w = 1; w < 8; w++) sum.sum[k] += sums[w][32 * k + l];
      sum.write(s, r);
    }
  }
}

#define PLAID_CHAMFER_GRAD(METRIC, L1)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_##METRIC(const __grid_constant__ DenseChamferGradParams p) {       \
    with_format(p.side[0].format, p.side[1].format, [&](auto format) { chamfer_grad<L1, 32, 4, decltype(format)::kIs>(p); });             \
  }                                                                                                                                     \
  extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_##METRIC##_few(const __grid_constant__ DenseChamferGradParams p) { \
    with_format(p.side[0].format, p.side[1].format, [&](auto format) { chamfer_grad<L1, 8, 1, decltype(format)::kIs>(p); });              \
  }                                                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256) dense_chamfer_grad_long_##METRIC(const __grid_constant__ DenseChamferGradParams p) { \
    __shared__ float sums[8][128];                                                                                                       \
    __shared__ uint32_t found[8][256];                                                                                                   \
    with_format(p.side[0].format, p.side[1].format, [&](auto format) { chamfer_grad_long<L1, decltype(format)::kIs>(p, sums, found); }); \
  }
PLAID_CHAMFER_GRAD(l2, false)
PLAID_CHAMFER_GRAD(l1, true)

}  // namespace plaid
