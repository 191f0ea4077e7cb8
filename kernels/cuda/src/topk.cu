// topk.cu: the k best of many scores, in a fixed order. A key is the score as
// an ordered integer above the complement of the number, so keys are distinct
// and the largest is the best score with the lowest number. A block selects
// from 8,192 keys in registers, a byte of the key at a time (radix select);
// blocks repeat over their winners until one is left, which sorts. A million
// scores on an H200: 0.04 ms for k = 100, 0.15 ms for 4,096.
//
// pick and collect list the documents that can be among the k best, of which
// the order is that of their fine scores.
#include "plaid.cuh"

namespace plaid {

constexpr int kThreads = 1024, kPer = 8, kSlice = kThreads * kPer, kMaxK = 4096;

struct SelectShared {
  uint32_t hist[256];
  uint32_t want, digit, done, out;
};
struct SortShared : SelectShared {
  uint64_t sorted[kMaxK];
};

__device__ __forceinline__ float key_score(uint64_t key) {
  const uint32_t b = uint32_t(key >> 32);
  return key ? __uint_as_float(b & 0x80000000u ? b ^ 0x80000000u : ~b) : -INFINITY;
}

// query_bound is E of a query, and the sum of |weight|·|q|, for a warp.
__device__ __forceinline__ float2 query_bound(const float4 *bound, uint32_t g0, uint32_t g1, float deviations) {
  float4 sum = {};
  for (uint32_t i = g0 * kColumns + (threadIdx.x & 31); i < g1 * kColumns; i += 32) {
    const float4 b = bound[i];
    sum.x += b.x, sum.y += b.y, sum.z += b.z, sum.w += b.w;
  }
  for (int s = 16; s; s >>= 1) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, s), sum.y += __shfl_xor_sync(0xffffffffu, sum.y, s);
    sum.z += __shfl_xor_sync(0xffffffffu, sum.z, s), sum.w += __shfl_xor_sync(0xffffffffu, sum.w, s);
  }
  return {deviations < 0 ? sum.x : fminf(sum.x, sum.y + deviations * sqrtf(sum.z)), sum.w};
}

__device__ __forceinline__ uint64_t make_key(float score, uint32_t number) {
  if (score != score) return 0;
  uint32_t b = __float_as_uint(score + 0.0f);  // −0 is 0
  b ^= uint32_t(int32_t(b) >> 31) | 0x80000000u;
  return uint64_t(b) << 32 | uint32_t(~number);
}

// Entries are the entries of a query that a thread has, kStride apart.
template <int kCount, int kStride> struct Entries {
  uint32_t number[kCount];
  float score[kCount], most[kCount];  // most: doc_max
  bool in[kCount];                    // may be returned

  // Loads stand side by side, so that they are under way together.
  template <class P> __device__ __forceinline__ void load(const P &p, uint32_t q, uint64_t ids_stride, uint32_t first, uint32_t n, uint32_t g0, uint32_t g1) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      const uint32_t e = first + i * kStride;
      in[i] = e < n;
      number[i] = e;
      if (p.ids && in[i]) number[i] = p.ids[q * ids_stride + e];
      score[i] = in[i] ? p.scores[g0 * p.stride + e] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      in[i] = in[i] && number[i] != 0xFFFFFFFFu;
      most[i] = in[i] && p.bound ? __uint_as_float(p.doc_max[p.max_by_entry ? first + i * kStride : number[i]]) : 0.0f;
      uint32_t word = 0xFFFFFFFFu;
      if (p.allowed && in[i]) word = p.allowed[number[i] / 32];
      in[i] = in[i] && (word >> (number[i] & 31) & 1);
    }
    for (uint32_t g = g0 + 1; g < g1; g++)
#pragma unroll
      for (int i = 0; i < kCount; i++)
        if (first + i * kStride < n) score[i] += p.scores[g * p.stride + first + i * kStride];
  }
};

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
  if (blockIdx.x + q == 0) stamp(p.clock);
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  float lower = 0;
  if (p.bound) lower = p.slack * query_bound(p.bound, g0, g1, p.deviations).x;
  Entries<kPer, kThreads> e;
  e.load(p, q, p.ids_stride, blockIdx.x * kSlice + threadIdx.x, n, g0, g1);
  uint64_t key[kPer];
#pragma unroll
  for (int i = 0; i < kPer; i++) key[i] = e.in[i] ? make_key(e.score[i] - lower * e.most[i], e.number[i]) : 0;
  uint64_t *out = p.keys + (size_t(q) * gridDim.x + blockIdx.x) * p.k;
  keep(key, threshold(key, p.k, s), out, p.k, s);
}

// list appends an entry to those of its query, which counter counts, for all
// lanes of a warp.
__device__ __forceinline__ void list(const PickParams &p, uint32_t *counter, uint32_t q, uint32_t number, float score, float error, bool in) {
  const uint32_t l = threadIdx.x & 31, b = __ballot_sync(0xffffffffu, in);
  if (!b) return;
  uint32_t base = 0;
  if (l == 0) base = atomicAdd(counter, __popc(b));
  base = __shfl_sync(0xffffffffu, base, 0) + __popc(b & ((1u << l) - 1));
  if (in && base < p.capacity) {
    p.out_ids[size_t(q) * p.capacity + base] = number;
    p.out_scores[size_t(q) * p.capacity + base] = make_float2(score, error);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) pick(const __grid_constant__ PickParams p) {
  __shared__ SelectShared s;
  __shared__ uint64_t least[kThreads / 32];
  __shared__ uint32_t listed;
  const uint32_t q = blockIdx.y, n = p.n_dev ? min(*p.n_dev, p.n) : p.n, t = threadIdx.x;
  if (q == 0) stamp(p.clock);
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  Entries<kPer, kThreads> e;
  e.load(p, q, 0, t, n, g0, g1);
  const float2 bound = query_bound(p.bound, g0, g1, p.deviations);
  const float more = p.error * bound.y;
  uint64_t key[kPer];
#pragma unroll
  for (int i = 0; i < kPer; i++) key[i] = e.in[i] ? make_key(e.score[i] - p.slack * bound.x * e.most[i], e.number[i]) : 0;
  const uint64_t from = threshold(key, p.k, s);
  // The smallest key from there up, which the search may have stopped short of.
  uint64_t low = ~0ull;
  uint32_t many = 0;
#pragma unroll
  for (int i = 0; i < kPer; i++)
    if (key[i] >= from && key[i] != 0) low = min(low, key[i]), many++;
  for (int o = 16; o; o >>= 1) low = min(low, __shfl_xor_sync(0xffffffffu, low, o)), many += __shfl_xor_sync(0xffffffffu, many, o);
  if (t == 0) s.out = 0, listed = 0;
  __syncthreads();
  if ((t & 31) == 0) least[t / 32] = low, atomicAdd(&s.out, many);
  __syncthreads();
  low = least[t & 31];
  for (int o = 16; o; o >>= 1) low = min(low, __shfl_xor_sync(0xffffffffu, low, o));
  const float limit = s.out < p.k ? -INFINITY : key_score(low);
#pragma unroll
  for (int i = 0; i < kPer; i++) {
    const float error = bound.x * e.most[i];
    list(p, &listed, q, e.number[i], e.score[i], error, key[i] != 0 && e.score[i] + error + more >= limit);
  }
  __syncthreads();
  if (t == 0) {
    uint32_t *found = p.found + q * 4;
    found[0] = listed, found[1] = __float_as_uint(limit), found[2] = __float_as_uint(bound.x);
  }
}

extern "C" __global__ void __launch_bounds__(256) collect(const __grid_constant__ PickParams p) {
  const uint32_t q = blockIdx.y, n = p.n_dev ? min(*p.n_dev, p.n) : p.n, t = threadIdx.x;
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  const float2 bound = query_bound(p.bound, g0, g1, p.deviations);
  const float more = p.error * bound.y, limit = p.kth[size_t(q) * p.k + p.k - 1];
  if (blockIdx.x == 0 && t == 0) p.found[q * 4 + 1] = __float_as_uint(limit), p.found[q * 4 + 2] = __float_as_uint(bound.x);
  for (int at = 0; at < kSlice; at += 256 * kPer) {
    Entries<kPer, 256> e;
    e.load(p, q, 0, blockIdx.x * kSlice + at + t, n, g0, g1);
#pragma unroll
    for (int i = 0; i < kPer; i++) {
      const float error = bound.x * e.most[i];
      list(p, &p.found[q * 4], q, e.number[i], e.score[i], error, e.in[i] && e.score[i] + error + more >= limit);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) topk_next(const __grid_constant__ TopkNextParams p) {
  __shared__ SortShared s;
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
    if (p.out_ids) p.out_ids[size_t(q) * p.k + i] = x ? ~uint32_t(x) : 0xFFFFFFFFu;
    if (p.out_scores) p.out_scores[size_t(q) * p.k + i] = key_score(x);
  }
  if (p.out_n && t == 0) p.out_n[q] = valid;
}

}  // namespace plaid
