// batch.cuh: many query tokens. They are on the rows of the product, in registers
// for the whole of a unit; tiles of 64 document tokens come through a ring of shared
// memory, filled by a warpgroup of its own and multiplied by G others with 64 query
// tokens each, so that a tile is read once for 64·G of them. The maximum of a query
// token over a tile is a register. While some warpgroups take maxima the tensor
// cores have the products of the others.
//
// A tile is parts of 64 tokens × 128 bytes, with the swizzle that the product knows of:
// eight lanes copy 128 bytes of a token to as many in one place. (Copies that put the
// halves of a sector of 32 bytes far apart fetch it twice.) Places after a document's
// last token repeat that token; of a document's last tile no more than the next 16
// tokens are multiplied.
//
// f16, 128 dimensions, four warpgroups: 96 registers at the start, 104 and 40 after.
// Bound: the tensor cores. Measured on an H200, 64 × 1,024 query and as many document
// tokens: 808 TFLOP/s, tensor pipe 93 % busy; with columns of 16 bytes instead of the
// swizzle, whose copies fetch sectors twice, 630.
#pragma once
#include "product.cuh"

namespace plaid {

constexpr int kBatchTokens = 64;

// Registers of a thread, by which the blocks of a multiprocessor are bound.
template <int S, int G> constexpr int kBatchBlocks = G == 2 && S <= 8 ? 2 : 1;

template <class T, int S, int G, int kStages, bool kArg>
__device__ __forceinline__ void dense_batch(const DenseParams &p) {
  using Sum = typename T::Sum;
  constexpr bool kSplitRow = T::kFormat == kSplit;
  constexpr int kAhead = kStages - 2;  // copies under way while one is waited for
  constexpr int kParts = (S + 3) / 4;
  constexpr uint32_t kPart = kBatchTokens * 128, kTile = kParts * kPart;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t warp = threadIdx.x / 32, l = threadIdx.x & 31, g = l >> 2, j = l & 3;
  const uint32_t ring = shared_at(shared), scales = ring + kStages * kTile;
  const uint32_t full = scales + kStages * kBatchTokens * 4, empty = full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) barrier_init(full + 8 * i, 128), barrier_init(empty + 8 * i, 4 * G);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  wait_before();
  const DenseUnit unit = load_unit(p.units + blockIdx.x);

  if (warp >= 4 * G) {  // copies tiles
#ifdef PLAID_SM90A
    if constexpr (S <= 8) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
    const uint32_t w = warp - 4 * G;
    const uint32_t n0 = w * 4 + (l >> 3), c0 = l & 7;  // token of 16, and 16 bytes of it
    const uint32_t to = ring + n0 * 128 + (c0 ^ (n0 & 7)) * 16, scale_to = scales + (w * 32 + l) * 4;
    uint32_t stage = 0, round = 0, landed = 0;
    DenseItem after = unit.first;
    for (uint32_t i = unit.begin; i < unit.end; i++) {
      const DenseItem item = after;
      after = load_item(p.items + min(i + 1, unit.end - 1));
      const uint32_t len = item.len & kRows, last = len - 1;
      for (uint32_t t = 0; t < len; t += kBatchTokens) {
        if (round >= kStages) barrier_wait(empty + 8 * stage, (round / kStages - 1) & 1);
        const uint32_t at = to + stage * kTile;
#pragma unroll
        for (int n = 0; n < 4; n++) {
          const uint8_t *from = p.docs + (item.begin + min(t + n0 + 16 * n, last)) * uint64_t(S * 32) + c0 * 16;
#pragma unroll
          for (int c = 0; c < kParts; c++)
            if (S % 4 == 0 || c * 8 + c0 < 2 * S)
              asm volatile("cp.async.cg.shared.global" PLAID_HINT " [%0], [%1], 16;" ::"r"(at + c * kPart + n * 2048), "l"(from + c * 128) : "memory");
        }
        if (w < 2 && p.mask) {
          const uint64_t row = item.begin + min(t + w * 32 + l, last);
          const float scale = !is_token(p, item, row) ? kNone : p.doc_scale ? load_scale(p.doc_scale + row) : 1.0f;
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(scale_to + stage * kBatchTokens * 4), "f"(scale) : "memory");
        } else if (w < 2 && p.doc_scale) {
          asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(scale_to + stage * kBatchTokens * 4), "l"(p.doc_scale + item.begin + min(t + w * 32 + l, last)) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (round >= kAhead) {
          asm volatile("cp.async.wait_group %0;" ::"n"(kAhead) : "memory");
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          barrier_arrive(full + 8 * landed);
          if (++landed == kStages) landed = 0;
        }
        round++;
        if (++stage == kStages) stage = 0;
      }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (uint32_t i = 0; i < min(round, uint32_t(kAhead)); i++) {
      barrier_arrive(full + 8 * landed);
      if (++landed == kStages) landed = 0;
    }
    return;
  }

#ifdef PLAID_SM90A
  if constexpr (S <= 8) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(G == 2 ? 96 : 104));
#endif
  // Words of step s, half h and lane j: 8·s + 4·h + j.
  uint32_t a[S][4];
  const bool used = warp < unit.groups;
  DenseGroup group{};
  if (used) group = p.groups[unit.group + warp];
  const bool lower = g < group.count, upper = g + 8 < group.count;
  {
    const uint32_t *q0 = reinterpret_cast<const uint32_t *>(p.queries + uint64_t(group.row + (lower ? g : 0)) * (S * 32)) + j;
    const uint32_t *q1 = reinterpret_cast<const uint32_t *>(p.queries + uint64_t(group.row + (upper ? g + 8 : 0)) * (S * 32)) + j;
#pragma unroll
    for (int s = 0; s < S; s++) {
      a[s][0] = lower ? __ldg(q0 + 8 * s) : 0, a[s][2] = lower ? __ldg(q0 + 8 * s + 4) : 0;
      a[s][1] = upper ? __ldg(q1 + 8 * s) : 0, a[s][3] = upper ? __ldg(q1 + 8 * s + 4) : 0;
    }
  }
  const float weight0 = lower ? p.weights[group.row + g] : 0, weight1 = upper ? p.weights[group.row + g + 8] : 0;

  uint32_t stage = 0, parity = 0;
  DenseItem after = unit.first;
  for (uint32_t i = unit.begin; i < unit.end; i++) {
    const DenseItem item = after;
    after = load_item(p.items + min(i + 1, unit.end - 1));
    float best0 = -INFINITY, best1 = -INFINITY;
    uint32_t first0 = 0, first1 = 0;
    auto tile = [&](auto width, uint32_t t) {
      constexpr int kTokens = decltype(width)::kTokens;
      barrier_wait(full + 8 * stage, parity);
      Sum products[kTokens / 2];
      const uint64_t b = right(ring + stage * kTile, 16, 1024) | uint64_t(1) << 62;
      auto step = [](int s) { return uint64_t(s / 4 * (kPart / 16) + s % 4 * 2); };
      products_begin();
      if constexpr (kSplitRow) {
#pragma unroll
        for (int s = 0; s < S; s++) {
          if (s & 2) continue;
          product(T{}, width, products, a[s], b + step(s), s > 0);
          product(T{}, width, products, a[s], b + step(s + 2), 1);
          product(T{}, width, products, a[s + 2], b + step(s), 1);
        }
      } else {
#pragma unroll
        for (int s = 0; s < S; s++) product(T{}, width, products, a[s], b + step(s), s > 0);
      }
      products_end();
#pragma unroll
      for (int k = 0; k < kTokens / 2; k++) settle(products[k]);
      float sums[kTokens / 2];
#pragma unroll
      for (int k = 0; k < kTokens / 2; k++) sums[k] = float(products[k]);
      if (p.doc_scale || p.mask) {
        const float2 *scale = reinterpret_cast<const float2 *>(shared + kStages * kTile + stage * kBatchTokens * 4) + j;
#pragma unroll
        for (int k = 0; k < kTokens / 8; k++) {
          const float2 s = scale[4 * k];
          sums[4 * k] *= s.x, sums[4 * k + 1] *= s.y, sums[4 * k + 2] *= s.x, sums[4 * k + 3] *= s.y;
        }
        if (kArg && p.mask)  // comparisons would keep a first sum that is NaN
          sums[0] = fmaxf(sums[0], -INFINITY), sums[2] = fmaxf(sums[2], -INFINITY);
      }
      __syncwarp();
      if (l == 0) barrier_arrive(empty + 8 * stage);
      if (++stage == kStages) stage = 0, parity ^= 1;
      if constexpr (kArg) {
        float top0 = sums[0], top1 = sums[2];
        uint32_t at0 = 0, at1 = 0;
#pragma unroll
        for (int k = 1; k < kTokens / 4; k++) {
          const float v0 = sums[k / 2 * 4 + (k & 1)], v1 = sums[k / 2 * 4 + 2 + (k & 1)];
          const uint32_t c = k / 2 * 8 + (k & 1);
          if (v0 > top0) top0 = v0, at0 = c;
          if (v1 > top1) top1 = v1, at1 = c;
        }
        if (top0 > best0) best0 = top0, first0 = t + at0;
        if (top1 > best1) best1 = top1, first1 = t + at1;
      } else {
        // Two chains each.
        float x0 = fmaxf(best0, sums[0]), y0 = sums[1], x1 = fmaxf(best1, sums[2]), y1 = sums[3];
#pragma unroll
        for (int k = 1; k < kTokens / 8; k++) {
          x0 = fmaxf(x0, sums[4 * k]), y0 = fmaxf(y0, sums[4 * k + 1]);
          x1 = fmaxf(x1, sums[4 * k + 2]), y1 = fmaxf(y1, sums[4 * k + 3]);
        }
        best0 = fmaxf(x0, y0), best1 = fmaxf(x1, y1);
      }
    };
    const uint32_t len = item.len & kRows;
    uint32_t t = 0;
    for (; t + 48 < len; t += kBatchTokens) tile(Width<64>{}, t);
    if (t < len) {
      const uint32_t rest = len - t;
      if (rest > 32) tile(Width<48>{}, t);
      else if (rest > 16) tile(Width<32>{}, t);
      else tile(Width<16>{}, t);
    }
    if constexpr (kArg) first0 += 2 * j, first1 += 2 * j;
#pragma unroll
    for (int s = 1; s < 4; s <<= 1) {
      const float v0 = __shfl_xor_sync(0xffffffffu, best0, s), v1 = __shfl_xor_sync(0xffffffffu, best1, s);
      if constexpr (kArg) {
        const uint32_t f0 = __shfl_xor_sync(0xffffffffu, first0, s), f1 = __shfl_xor_sync(0xffffffffu, first1, s);
        if (v0 > best0 || (v0 == best0 && f0 < first0)) best0 = v0, first0 = f0;
        if (v1 > best1 || (v1 == best1 && f1 < first1)) best1 = v1, first1 = f1;
      } else {
        best0 = fmaxf(best0, v0), best1 = fmaxf(best1, v1);
      }
    }
    if constexpr (kArg) {
      const uint64_t to = group.arg + uint64_t(item.pos) * group.arg_pitch + g;
      if (j == 0 && lower) p.arg[to] = counts(best0) && is_query(weight0) ? int32_t(first0) : -1;
      if (j == 0 && upper) p.arg[to + 8] = counts(best1) && is_query(weight1) ? int32_t(first1) : -1;
      if (p.top && j == 0) {
        if (lower) p.top[to] = best0;
        if (upper) p.top[to + 8] = best1;
      }
    }
    if (weight0 == 0 || !counts(best0)) best0 = 0;
    if (weight1 == 0 || !counts(best1)) best1 = 0;
    float sum = fmaf(best0, weight0, best1 * weight1);
#pragma unroll
    for (int s = 4; s < 32; s <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (l == 0 && used) p.out[group.out + item.pos] = sum;
  }
}

#define PLAID_DENSE_BATCH(NAME, T, S, G, STAGES)                                                               \
  extern "C" __global__ void __launch_bounds__(128 * (G + 1), (kBatchBlocks<S, G>))                            \
      dense_batch_##NAME##_s##S##_g##G(const __grid_constant__ DenseParams p) {                                \
    dense_batch<T, S, G, STAGES, false>(p);                                                                    \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(128 * (G + 1), (kBatchBlocks<S, G>))                            \
      dense_batch_##NAME##_s##S##_g##G##_arg(const __grid_constant__ DenseParams p) {                          \
    dense_batch<T, S, G, STAGES, true>(p);                                                                     \
  }

}  // namespace plaid
