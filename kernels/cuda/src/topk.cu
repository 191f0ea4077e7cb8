// topk.cu: the k best of many scores, in a fixed order. A key is the score as
// an ordered integer above the complement of the number, so keys are distinct
// and the largest is the best score with the lowest number. A block selects
// from 8,192 keys in registers, a byte of the key at a time (radix select);
// blocks repeat over their winners until one is left, which sorts. A million
// scores on an H200: 0.04 ms for k = 100, 0.15 ms for 4,096.
#include "plaid.cuh"

namespace plaid {

constexpr int kThreads = 1024, kPer = 8, kSlice = kThreads * kPer, kMaxK = 4096;

struct SelectShared {
  uint32_t hist[256];
  uint32_t want, digit, done, out;
  uint64_t sorted[kMaxK];
};

__device__ __forceinline__ uint64_t make_key(float score, uint32_t number) {
  if (score != score) return 0;
  uint32_t b = __float_as_uint(score + 0.0f);  // −0 is 0
  b ^= uint32_t(int32_t(b) >> 31) | 0x80000000u;
  return uint64_t(b) << 32 | uint32_t(~number);
}

// threshold returns the smallest of the k largest keys of the block; 1 when
// there are no more than k (0 stands for no key).
__device__ uint64_t threshold(const uint64_t (&key)[kPer], uint32_t k, SelectShared &s) {
  const uint32_t t = threadIdx.x, l = t & 31;
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < kPer; i++) mine += key[i] != 0;
  if (t == 0) s.want = 0;
  __syncthreads();
  for (int o = 16; o; o >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, o);
  if (l == 0) atomicAdd(&s.want, mine);
  __syncthreads();
  const bool all = s.want <= k;
  __syncthreads();
  if (all) return 1;
  uint64_t prefix = 0, mask = 0;
  uint32_t want = k;
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (t < 256) s.hist[t] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPer; i++) {
      const bool in = key[i] != 0 && (key[i] & mask) == prefix;
      const uint32_t d = uint32_t(key[i] >> shift) & 255;
      // The first digits are the same for most scores: one add for a warp.
      const uint32_t active = __ballot_sync(0xffffffffu, in);
      if (!active) continue;
      const uint32_t lead = __shfl_sync(0xffffffffu, d, __ffs(active) - 1);
      const uint32_t same = __ballot_sync(0xffffffffu, in && d == lead);
      if (l == uint32_t(__ffs(active) - 1)) atomicAdd(&s.hist[lead], __popc(same));
      else if (in && d != lead) atomicAdd(&s.hist[d], 1);
    }
    __syncthreads();
    if (t < 32) {  // lane l has digits 8·(31−l) .. +7, from the top
      uint32_t h[8], sum = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) sum += h[i] = s.hist[255 - 8 * l - i];
      uint32_t upto = sum;
      for (int o = 1; o < 32; o <<= 1) {
        const uint32_t v = __shfl_up_sync(0xffffffffu, upto, o);
        if (l >= o) upto += v;
      }
      uint32_t above = upto - sum;
      if (above < want && want <= upto) {
        for (int i = 0; i < 8; i++) {
          if (above + h[i] >= want) {
            s.digit = 255 - 8 * l - i, s.want = want - above, s.done = h[i] == want - above;
            break;
          }
          above += h[i];
        }
      }
    }
    __syncthreads();
    prefix |= uint64_t(s.digit) << shift, mask |= uint64_t(255) << shift;
    want = s.want;
    if (s.done) break;
  }
  return prefix;
}

// keep writes the keys from the threshold up to out, in no order, and fills
// with zeros up to k.
__device__ void keep(const uint64_t (&key)[kPer], uint64_t limit, uint64_t *out, uint32_t k, SelectShared &s) {
  const uint32_t t = threadIdx.x, l = t & 31;
  __syncthreads();
  if (t == 0) s.out = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPer; i++) {
    const bool in = key[i] >= limit;
    const uint32_t b = __ballot_sync(0xffffffffu, in);
    uint32_t base = 0;
    if (b && l == 0) base = atomicAdd(&s.out, __popc(b));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (in) out[base + __popc(b & ((1u << l) - 1))] = key[i];
  }
  __syncthreads();
  for (uint32_t i = s.out + t; i < k; i += kThreads) out[i] = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads) topk_first(const __grid_constant__ TopkFirstParams p) {
  __shared__ SelectShared s;
  const uint32_t q = blockIdx.y, n = p.n_dev ? min(*p.n_dev, p.n) : p.n;
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  uint64_t key[kPer];
#pragma unroll
  for (int i = 0; i < kPer; i++) {
    const uint32_t e = blockIdx.x * kSlice + i * kThreads + threadIdx.x;
    key[i] = 0;
    if (e >= n) continue;
    const uint32_t number = p.ids ? p.ids[q * p.ids_stride + e] : e;
    if (number == 0xFFFFFFFFu) continue;
    if (p.allowed && !(p.allowed[number / 32] >> (number & 31) & 1)) continue;
    float v = 0;
    for (uint32_t g = g0; g < g1; g++) v += p.scores[g * p.stride + e];
    key[i] = make_key(v, number);
  }
  uint64_t *out = p.keys + (size_t(q) * gridDim.x + blockIdx.x) * p.k;
  keep(key, threshold(key, p.k, s), out, p.k, s);
}

extern "C" __global__ void __launch_bounds__(kThreads) topk_next(const __grid_constant__ TopkNextParams p) {
  __shared__ SelectShared s;
  const uint32_t q = blockIdx.y, t = threadIdx.x;
  uint64_t key[kPer];
#pragma unroll
  for (int i = 0; i < kPer; i++) {
    const uint32_t e = blockIdx.x * kSlice + i * kThreads + t;
    key[i] = e < p.n ? p.keys[size_t(q) * p.n + e] : 0;
  }
  const uint64_t limit = threshold(key, p.k, s);
  uint64_t *out = p.out + (size_t(q) * gridDim.x + blockIdx.x) * p.k;
  if (gridDim.x > 1) {
    keep(key, limit, out, p.k, s);
    return;
  }
  uint32_t size = 2;
  while (size < p.k) size *= 2;
  keep(key, limit, s.sorted, p.k, s);
  const uint32_t valid = s.out;
  for (uint32_t i = p.k + t; i < size; i += kThreads) s.sorted[i] = 0;
  for (uint32_t span = 2; span <= size; span *= 2)
    for (uint32_t gap = span / 2; gap; gap /= 2) {
      __syncthreads();
      for (uint32_t i = t; i < size / 2; i += kThreads) {
        const uint32_t a = 2 * i - (i & (gap - 1)), b = a + gap;
        const uint64_t x = s.sorted[a], y = s.sorted[b];
        if ((x < y) == ((a & span) == 0)) s.sorted[a] = y, s.sorted[b] = x;
      }
    }
  __syncthreads();
  for (uint32_t i = t; i < p.k; i += kThreads) {
    const uint64_t x = s.sorted[i];
    if (p.out) out[i] = x;
    const uint32_t b = uint32_t(x >> 32);
    if (p.out_ids) p.out_ids[size_t(q) * p.k + i] = x ? ~uint32_t(x) : 0xFFFFFFFFu;
    if (p.out_scores)
      p.out_scores[size_t(q) * p.k + i] = x ? __uint_as_float(b & 0x80000000u ? b ^ 0x80000000u : ~b) : -INFINITY;
  }
  if (p.out_n && t == 0) p.out_n[q] = valid;
}

}  // namespace plaid
