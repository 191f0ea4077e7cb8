// rank.cuh: the best documents of each query, piece by piece of the documents, and
// documents that were cut into segments.
#pragma once
#include "any.cuh"

namespace plaid {

// A key is the score as an ordered integer above the complement of the document, so
// that keys are distinct and the largest is the best. No document has the key 0.
__device__ __forceinline__ uint64_t rank_key(float score, uint32_t doc) {
  uint32_t b = __float_as_uint(score + 0.0f);  // −0 is 0
  b ^= uint32_t(int32_t(b) >> 31) | 0x80000000u;
  return uint64_t(b) << 32 | uint32_t(~doc);
}

// dense_rank: a block has a query. Scores that beat the worst of the best so far are
// listed, with those, and the k largest keys of the list are the best from now on:
// a byte of the key at a time says where the k-th lies (radix select). After the
// first pieces little is listed. The order of the keys is left to the host.
extern "C" __global__ void __launch_bounds__(1024) dense_rank(const __grid_constant__ DenseRankParams p) {
  __shared__ uint32_t hist[256], count, want, digit;
  __shared__ unsigned long long least;
  const uint32_t tid = threadIdx.x, l = tid & 31;
  const float *scores = p.scores + uint64_t(blockIdx.x) * p.n;
  uint64_t *best = p.best + uint64_t(blockIdx.x) * p.k, *list = p.list + uint64_t(blockIdx.x) * (uint64_t(p.n) + p.k);
  if (tid == 0) least = ~0ull, count = 0;
  __syncthreads();
  unsigned long long low = ~0ull;
  for (uint32_t i = tid; i < p.k; i += 1024) low = min(low, static_cast<unsigned long long>(best[i]));
  for (int s = 16; s; s >>= 1) low = min(low, __shfl_xor_sync(0xffffffffu, low, s));
  if (l == 0) atomicMin(&least, low);
  __syncthreads();
  low = least;
  for (uint32_t i0 = 0; i0 < p.n_items; i0 += 1024) {
    uint64_t key = 0;
    if (i0 + tid < p.n_items) {
      const uint32_t pos = p.items[i0 + tid].pos;
      key = rank_key(scores[pos], p.first + pos);
    }
    const uint32_t in = __ballot_sync(0xffffffffu, key > low);
    uint32_t to = 0;
    if (l == 0 && in) to = atomicAdd(&count, __popc(in));
    to = __shfl_sync(0xffffffffu, to, 0) + __popc(in & ((1u << l) - 1));
    if (key > low) list[to] = key;
  }
  __syncthreads();
  const uint32_t fresh = count;
  if (fresh == 0) return;
  for (uint32_t i = tid; i < p.k; i += 1024) list[fresh + i] = best[i];
  const uint32_t n = fresh + p.k;  // zeros among them where there are fewer than k so far
  __syncthreads();
  uint64_t prefix = 0, mask = 0;
  if (tid == 0) want = p.k;
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (tid < 256) hist[tid] = 0;
    __syncthreads();
    for (uint32_t i0 = 0; i0 < n; i0 += 1024) {
      const uint64_t key = i0 + tid < n ? list[i0 + tid] : 0;
      const bool in = i0 + tid < n && (key & mask) == prefix;
      const uint32_t d = uint32_t(key >> shift) & 255;
      // The first digits are the same for most scores: one add for a warp.
      const uint32_t active = __ballot_sync(0xffffffffu, in);
      if (!active) continue;
      const uint32_t lead = __shfl_sync(0xffffffffu, d, __ffs(active) - 1);
      const uint32_t same = __ballot_sync(0xffffffffu, in && d == lead);
      if (l == uint32_t(__ffs(active) - 1)) atomicAdd(&hist[lead], __popc(same));
      else if (in && d != lead) atomicAdd(&hist[d], 1);
    }
    __syncthreads();
    if (tid < 32) {  // lane l has eight digits, from the top
      uint32_t h[8], sum = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) h[i] = hist[255 - 8 * l - i], sum += h[i];
      uint32_t above = sum;
#pragma unroll
      for (int s = 1; s < 32; s <<= 1) {
        const uint32_t v = __shfl_up_sync(0xffffffffu, above, s);
        if (l >= s) above += v;
      }
      above -= sum;
      const uint32_t wanted = want;
      __syncwarp();
      if (above < wanted && above + sum >= wanted) {
        uint32_t left = wanted - above, i = 0;
#pragma unroll
        for (int k = 0; k < 7; k++)
          if (i == k && h[k] < left) left -= h[k], i++;
        want = left, digit = 255 - 8 * l - i;
      }
    }
    __syncthreads();
    prefix |= uint64_t(digit) << shift, mask |= 255ull << shift;
  }
  // prefix is the k-th largest key; where it is 0, all others are among the best.
  if (tid == 0) count = 0;
  __syncthreads();
  for (uint32_t i = tid; i < n; i += 1024) {
    const uint64_t key = list[i];
    if (key != 0 && key >= prefix) best[atomicAdd(&count, 1)] = key;
  }
  __syncthreads();
  for (uint32_t i = count + tid; i < p.k; i += 1024) best[i] = 0;
}

// dense_join: a block has a pair, whose document was cut: of the maxima of the
// segments the largest, and of those the first. A warp has a query token.
extern "C" __global__ void __launch_bounds__(1024) dense_join(const __grid_constant__ DenseJoinParams p) {
  __shared__ float sums[32];
  const DenseJoin join = p.joins[blockIdx.x];
  const uint32_t warp = threadIdx.x / 32, l = threadIdx.x & 31;
  float sum = 0;
  for (uint32_t s = warp; s < join.count; s += 32) {
    float best = -INFINITY;
    uint32_t at = ~0u;
#pragma unroll 4
    for (uint32_t k = l; k < join.segments; k += 32) {
      const uint64_t from = (join.first + k) * p.pitch + s;
      const float v = p.top[from];
      if (v > best) best = v, at = k * p.segment + uint32_t(p.arg[from]);
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
      const float v = __shfl_xor_sync(0xffffffffu, best, o);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, at, o);
      if (v > best || (v == best && other < at)) best = v, at = other;
    }
    const float weight = p.weights[join.row + s];
    if (weight != 0 && counts(best)) sum = fmaf(best, weight, sum);
    if (l == 0 && p.out_arg) p.out_arg[join.out * p.pitch + s] = counts(best) && is_query(weight) ? int32_t(at) : -1;
  }
  if (l == 0) sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = sums[l];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (l == 0) p.out[join.out] = sum;
  }
}

}  // namespace plaid
