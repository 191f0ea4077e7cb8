// chamfergrad.cuh: gradients of Chamfer distances. dense_chamfer_list chains the rows
// that have the same nearest row, in any order; who pulls sorts them. Chains that are
// longer than four rows a lane are few, and their rows are looked for in order among all.
// So each gradient is the same bits each time.
#pragma once
#include "chamfer.cuh"

namespace plaid {

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
struct DenseChamferGradParams {
  DenseChamferGradSide side[2];
  const DenseChamferPair *pairs;
  uint32_t *counts;                 // [pairs][2], 0 before: rows that have a nearest one
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

// Some lanes have a row, each kValues dimensions at a time: what it gets from the row
// that is nearest to it, then from those that it is nearest to, in the order of the
// pairs of its item and of their rows.
template <bool kL1, int kLanes, int kValues>
__device__ __forceinline__ void chamfer_grad(const DenseChamferGradParams &p) {
  constexpr int kMine = 4;  // rows of a chain that a lane has
  constexpr uint32_t kAhead = 8;
  const DenseChamferGradSide &s = p.side[blockIdx.y], &o = p.side[1 - blockIdx.y];
  const uint64_t r = uint64_t(blockIdx.x) * (128 / kLanes) + threadIdx.x / kLanes;
  const uint32_t l = threadIdx.x % kLanes, begin = threadIdx.x % 32 / kLanes * kLanes;
  const uint32_t lanes = kLanes == 32 ? 0xffffffffu : ((1u << kLanes % 32) - 1) << begin;
  if (r >= s.n || !s.out) return;
  uint32_t item = s.offsets ? 0 : uint32_t(r / s.stride);
  if (s.offsets)  // the last one that begins no later
    for (uint32_t end = s.items; item + 1 < end;) {
      const uint32_t middle = item + (end - item) / 2;
      if (uint64_t(s.offsets[middle]) <= r) item = middle;
      else end = middle;
    }
  uint64_t first = 0, step = 1, n = 0;
  if (item < s.items) {
    if (p.kind == 0) first = uint64_t(item) * (blockIdx.y ? 1 : o.items), step = blockIdx.y ? s.items : 1, n = o.items;
    else if (p.kind == 1) first = uint64_t(item) * (blockIdx.y ? 1 : p.count), n = blockIdx.y ? 1 : p.count;
    else first = s.pair_first[item], n = s.pair_first[item + 1] - first;
  }
  const float scale = s.scale ? s.scale[r] : 1.0f;
  for (uint32_t d0 = 0; d0 < p.dim; d0 += kLanes * kValues) {
    float x[kValues], sum[kValues] = {};
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      const uint32_t d = d0 + kLanes * k + l;
      x[k] = d < p.dim ? value(s.format, s.rows + r * s.bytes, d) * scale : 0.0f;
    }
    auto add = [&](float c, uint64_t row) {
      const float other = o.scale ? o.scale[row] : 1.0f;
#pragma unroll
      for (int k = 0; k < kValues; k++) {
        const uint32_t d = d0 + kLanes * k + l;
        if (d < p.dim) sum[k] = fmaf(c, chamfer_slope<kL1>(x[k], value(o.format, o.rows + row * o.bytes, d) * other), sum[k]);
      }
    };
    for (uint64_t i = 0; i < n; i++) {
      const uint64_t at = p.kind == 2 ? s.pair_list[first + i] : first + i * step;
      DenseChamferPair pair = p.pairs[at];
      if (blockIdx.y) pair = DenseChamferPair{pair.y, pair.x, 0, 0, pair.y_len, pair.x_len};
      const uint64_t place = r - pair.x;
      if (place >= pair.x_len) continue;
      const double up = p.upstream ? p.upstream[at] : 1.0f;
      auto coefficient = [&](uint32_t which) { return p.mean ? float(up / max(p.counts[2 * at + which], 1u)) : float(up); };
      const int32_t own = s.near[at * s.pitch + place];
      if (own >= 0 && uint32_t(own) < pair.y_len) add(coefficient(blockIdx.y), pair.y + own);
      uint32_t listed = s.head[at * s.pitch + place];
      if (listed == 0) continue;
      const float c = coefficient(1 - blockIdx.y);
      uint32_t mine[kMine], count = 0;
#pragma unroll
      for (int k = 0; k < kMine; k++) mine[k] = ~0u;
      for (; listed && count <= kLanes * kMine; count++) {
#pragma unroll
        for (int k = 0; k < kMine; k++)
          if (kLanes * k + l == count) mine[k] = listed - 1;
        listed = o.next[at * o.pitch + listed - 1];
      }
      if (count <= kLanes * kMine) {
        for (; count; count--) {
          uint32_t t = mine[0];
#pragma unroll
          for (int k = 1; k < kMine; k++) t = min(t, mine[k]);
          t = __reduce_min_sync(lanes, t);
#pragma unroll
          for (int k = 0; k < kMine; k++)
            if (mine[k] == t) mine[k] = ~0u;
          add(c, pair.y + t);
        }
        continue;
      }
      for (uint32_t t = 0; t < pair.y_len; t += kLanes * kAhead) {
        int32_t near[kAhead];
#pragma unroll
        for (uint32_t k = 0; k < kAhead; k++) near[k] = o.near[at * o.pitch + min(t + kLanes * k + l, pair.y_len - 1)];
#pragma unroll
        for (uint32_t k = 0; k < kAhead; k++) {
          const bool hit = t + kLanes * k + l < pair.y_len && near[k] == int32_t(place);
          for (uint32_t hits = __ballot_sync(lanes, hit) >> begin; hits; hits &= hits - 1) add(c, pair.y + t + kLanes * k + __ffs(hits) - 1);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      const uint32_t d = d0 + kLanes * k + l;
      if (d >= p.dim) continue;
      const uint64_t to = r * p.dim + d;
      if (s.out_type == kF32) static_cast<float *>(s.out)[to] = sum[k];
      else if (s.out_type == kF16) static_cast<__half *>(s.out)[to] = __float2half_rn(sum[k]);
      else static_cast<__nv_bfloat16 *>(s.out)[to] = __float2bfloat16_rn(sum[k]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_l2(const __grid_constant__ DenseChamferGradParams p) { chamfer_grad<false, 32, 4>(p); }
extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_l1(const __grid_constant__ DenseChamferGradParams p) { chamfer_grad<true, 32, 4>(p); }
extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_l2_few(const __grid_constant__ DenseChamferGradParams p) { chamfer_grad<false, 8, 1>(p); }
extern "C" __global__ void __launch_bounds__(128) dense_chamfer_grad_l1_few(const __grid_constant__ DenseChamferGradParams p) { chamfer_grad<true, 8, 1>(p); }

}  // namespace plaid
