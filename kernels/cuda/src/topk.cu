// topk.cu: the k best of many scores, in a fixed order. A key is the score as
// an ordered integer above the complement of the number, so keys are distinct
// and the largest is the best score with the lowest number. A block selects
// from 8,192 keys in registers, a byte of the key at a time (radix select);
// blocks repeat over their winners until one is left, which sorts. A million
// scores on an H200: 0.04 ms for k = 100, 0.15 ms for 4,096.
//
// pick and collect list the documents that can be among the k best, whose fine
// scores decide the order later. pick compares scores only, not keys.
#include "plaid.cuh"

namespace plaid {

constexpr int kThreads = 1024, kPer = 8, kSlice = kThreads * kPer, kMaxK = 4096;

struct SelectShared {
  uint32_t hist[256];
  uint32_t want, digit, done, out;
};
// Of kth.
constexpr int kSteps = 2 * kThreads, kFew = 128;
struct StepShared {
  uint32_t hist[kSteps], few[kFew];
  uint32_t least[kThreads / 32], most[kThreads / 32], sum[kThreads / 32];
  uint32_t step, want, held, gathered, result;
};
struct SortShared : SelectShared {
  uint64_t sorted[kMaxK];
};

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

// ordered_bits is a score as an integer of the same order, and score_of the inverse.
__device__ __forceinline__ uint32_t ordered_bits(float score) {
  const uint32_t b = __float_as_uint(score + 0.0f);  // −0 is 0
  return b ^ (uint32_t(int32_t(b) >> 31) | 0x80000000u);
}
__device__ __forceinline__ float score_of(uint32_t b) { return __uint_as_float(b & 0x80000000u ? b ^ 0x80000000u : ~b); }

__device__ __forceinline__ uint64_t make_key(float score, uint32_t number) {
  return score != score ? 0 : uint64_t(ordered_bits(score)) << 32 | uint32_t(~number);
}

__device__ __forceinline__ float key_score(uint64_t key) { return key ? score_of(uint32_t(key >> 32)) : -INFINITY; }

// Entries are the entries of a query that a thread has, kStride apart.
template <int kCount, int kStride> struct Entries {
  uint32_t number[kCount];
  float score[kCount], most[kCount];  // most: doc_max
  bool in[kCount];                    // may be returned

  // Loads stand side by side, so that they are under way together. what loads all but
  // the scores.
  template <class P> __device__ __forceinline__ void what(const P &p, uint32_t q, uint64_t ids_stride, uint32_t first, uint32_t n) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      const uint32_t e = first + i * kStride;
      in[i] = e < n;
      number[i] = e;
      if (p.ids && in[i]) number[i] = p.ids[q * ids_stride + e];
    }
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      in[i] = in[i] && number[i] != 0xFFFFFFFFu;
      most[i] = in[i] && p.bound ? __uint_as_float(p.doc_max[p.max_by_entry ? first + i * kStride : number[i]]) : 0.0f;
      uint32_t word = 0xFFFFFFFFu;
      if (p.allowed && in[i]) word = p.allowed[number[i] / 32];
      in[i] = in[i] && (word >> (number[i] & 31) & 1);
    }
  }
  template <class P> __device__ __forceinline__ void scores(const P &p, uint32_t first, uint32_t n, uint32_t g0, uint32_t g1) {
#pragma unroll
    for (int i = 0; i < kCount; i++) score[i] = first + i * kStride < n ? p.scores[g0 * p.stride + first + i * kStride] : 0.0f;
    for (uint32_t g = g0 + 1; g < g1; g++)
#pragma unroll
      for (int i = 0; i < kCount; i++)
        if (first + i * kStride < n) score[i] += p.scores[g * p.stride + first + i * kStride];
  }
  template <class P> __device__ __forceinline__ void load(const P &p, uint32_t q, uint64_t ids_stride, uint32_t first, uint32_t n, uint32_t g0, uint32_t g1) {
    scores(p, first, n, g0, g1);
    what(p, q, ids_stride, first, n);
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

// kth returns the k-th largest of the block's values that are in, and false where
// there are fewer. Scores are spread, so that a histogram of equal steps from the
// least to the most leaves a few in the step of the k-th, which are compared with one
// another; where many share it, it is divided again.
__device__ bool kth(const uint32_t (&value)[kPer], const bool (&in)[kPer], uint32_t k, StepShared &s, uint32_t &result) {
  const uint32_t t = threadIdx.x, l = t & 31, w = t / 32;
  uint32_t least = 0xFFFFFFFFu, most = 0, many = 0;
#pragma unroll
  for (int i = 0; i < kPer; i++)
    if (in[i]) least = min(least, value[i]), most = max(most, value[i]), many++;
  least = __reduce_min_sync(0xffffffffu, least), most = __reduce_max_sync(0xffffffffu, most), many = __reduce_add_sync(0xffffffffu, many);
  if (l == 0) s.least[w] = least, s.most[w] = most, s.sum[w] = many;
  __syncthreads();
  least = __reduce_min_sync(0xffffffffu, s.least[l]), most = __reduce_max_sync(0xffffffffu, s.most[l]);
  if (__reduce_add_sync(0xffffffffu, s.sum[l]) < k) return false;
  uint32_t range = most - least;
  while (true) {
    const int shift = max(21 - __clz(range), 0);
    s.hist[t] = 0, s.hist[t + kThreads] = 0;
    if (t == 0) s.gathered = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPer; i++)
      if (in[i] && value[i] - least <= range) atomicAdd(&s.hist[(value[i] - least) >> shift], 1);
    __syncthreads();
    // Thread t has the two steps that are 2t and 2t + 1 below the highest.
    const uint32_t h0 = s.hist[kSteps - 1 - 2 * t], h1 = s.hist[kSteps - 2 - 2 * t];
    uint32_t upto = h0 + h1;
    for (int o = 1; o < 32; o <<= 1) {
      const uint32_t v = __shfl_up_sync(0xffffffffu, upto, o);
      if (l >= o) upto += v;
    }
    if (l == 31) s.sum[w] = upto;
    __syncthreads();
    const uint32_t above = upto - h0 - h1 + __reduce_add_sync(0xffffffffu, l < w ? s.sum[l] : 0);
    if (above < k && k <= above + h0 + h1) {
      const bool second = above + h0 < k;
      s.step = kSteps - 1 - 2 * t - second, s.want = k - above - (second ? h0 : 0), s.held = second ? h1 : h0;
    }
    __syncthreads();
    least += s.step << shift, range = (1u << shift) - 1, k = s.want;
    if (shift == 0) {
      result = least;
      return true;
    }
    if (s.held <= kFew) break;
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPer; i++)
    if (in[i] && value[i] - least <= range) s.few[atomicAdd(&s.gathered, 1)] = value[i];
  __syncthreads();
  if (t < s.held) {
    const uint32_t v = s.few[t];
    uint32_t over = 0, same = 0;
    for (uint32_t i = 0; i < s.held; i++) over += s.few[i] > v, same += s.few[i] == v;
    if (over < k && k <= over + same) s.result = v;
  }
  __syncthreads();
  result = s.result;
  return true;
}

// list appends the entries that are in to those of their query, which counter counts,
// for all lanes of a warp.
template <int kCount, int kStride>
__device__ __forceinline__ void list(const PickParams &p, uint32_t *counter, uint32_t q, const Entries<kCount, kStride> &e, const bool (&in)[kCount], float bound) {
  const uint32_t l = threadIdx.x & 31;
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < kCount; i++) mine += in[i];
  uint32_t upto = mine;
  for (int o = 1; o < 32; o <<= 1) {
    const uint32_t v = __shfl_up_sync(0xffffffffu, upto, o);
    if (l >= o) upto += v;
  }
  uint32_t base = 0;
  if (l == 31 && upto) base = atomicAdd(counter, upto);
  base = __shfl_sync(0xffffffffu, base, 31) + upto - mine;
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    if (!in[i]) continue;
    if (base < p.capacity) {
      p.out_ids[size_t(q) * p.capacity + base] = e.number[i];
      p.out_scores[size_t(q) * p.capacity + base] = make_float2(e.score[i], bound * e.most[i]);
    }
    base++;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) pick(const __grid_constant__ PickParams p) {
  __shared__ StepShared s;
  __shared__ uint32_t listed;
  const uint32_t q = blockIdx.y, n = p.n_dev ? min(*p.n_dev, p.n) : p.n, t = threadIdx.x;
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  Entries<kPer, kThreads> e;
  e.what(p, q, 0, t, n);
  if (t == 0) listed = 0;
  wait_before();
  let_next();
  if (q == 0) stamp(p.clock);
  e.scores(p, t, n, g0, g1);
  const float2 bound = query_bound(p.bound, g0, g1, p.deviations);
  const float more = p.error * bound.y;
  uint32_t lowered[kPer];
  bool in[kPer];
#pragma unroll
  for (int i = 0; i < kPer; i++) {
    const float low = e.score[i] - p.slack * bound.x * e.most[i];
    in[i] = e.in[i] && low == low;
    lowered[i] = ordered_bits(low);
  }
  uint32_t from;
  const float limit = kth(lowered, in, p.k, s, from) ? score_of(from) : -INFINITY;
#pragma unroll
  for (int i = 0; i < kPer; i++) in[i] = in[i] && e.score[i] + bound.x * e.most[i] + more >= limit;
  list(p, &listed, q, e, in, bound.x);
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
    bool in[kPer];
#pragma unroll
    for (int i = 0; i < kPer; i++) in[i] = e.in[i] && e.score[i] + bound.x * e.most[i] + more >= limit;
    list(p, &p.found[q * 4], q, e, in, bound.x);
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

// probe_pick: the k-th largest of the maxima is a limit that at least k scores reach, in as many
// runs of 128 as there are such maxima. A warp takes out the maxima one by one.
template <int kCount> __device__ __forceinline__ void pick_centroids(const ProbePickParams &p) {
  constexpr uint32_t kRoom = 512;
  __shared__ uint64_t keys[kRoom];
  const uint32_t column = blockIdx.x, l = threadIdx.x, runs = (p.k + 127) / 128;
  const float *maxima = p.maxima + size_t(column) * runs, *scores = p.scores + size_t(column) * p.k;
  uint32_t most[kCount];
#pragma unroll
  for (int i = 0; i < kCount; i++) most[i] = i * 32 + l < runs ? ordered_bits(maxima[i * 32 + l]) : 0;
  uint32_t limit = 0;
  for (uint32_t r = 0; r < p.picked && r < runs; r++) {
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < kCount; i++) mine = max(mine, most[i]);
    limit = __reduce_max_sync(0xffffffffu, mine);
    const uint32_t have = __ballot_sync(0xffffffffu, mine == limit);
    bool take = l == uint32_t(__ffs(have) - 1);
#pragma unroll
    for (int i = 0; i < kCount; i++)
      if (take && most[i] == limit) most[i] = 0, take = false;
  }
  if (runs < p.picked) limit = 0;
  uint32_t n = 0;
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    // The maxima are read again: those that were taken out are gone.
    const bool in = i * 32 + l < runs && ordered_bits(maxima[i * 32 + l]) >= limit;
    for (uint32_t b = __ballot_sync(0xffffffffu, in); b && n <= kRoom; b &= b - 1) {
      const uint32_t first = (i * 32 + __ffs(b) - 1) * 128;
#pragma unroll
      for (uint32_t c = first + l; c < first + 128; c += 32) {
        const uint64_t key = c < p.k ? make_key(scores[c], c) : 0;
        const bool reaches = key && uint32_t(key >> 32) >= limit;
        const uint32_t which = __ballot_sync(0xffffffffu, reaches);
        const uint32_t at = n + __popc(which & ((1u << l) - 1));
        if (reaches && at < kRoom) keys[at] = key;
        n += __popc(which);
      }
    }
  }
  __syncwarp();
  uint32_t *ids = p.ids + size_t(column) * p.picked;
  float *out = p.out_scores + size_t(column) * p.picked;
  if (n <= kRoom) {
    for (uint32_t i = l; i < n; i += 32) {
      const uint64_t key = keys[i];
      uint32_t rank = 0;
      for (uint32_t e = 0; e < n; e++) rank += keys[e] > key;
      if (rank < p.picked) ids[rank] = ~uint32_t(key), out[rank] = key_score(key);
    }
    for (uint32_t i = n + l; i < p.picked; i += 32) ids[i] = 0xFFFFFFFFu, out[i] = -INFINITY;
    return;
  }
  // So many are the same: one after the other.
  uint64_t last = ~uint64_t(0);
  for (uint32_t r = 0; r < p.picked; r++) {
    uint64_t next = 0;
    for (uint32_t c = l; c < p.k; c += 32) {
      const uint64_t key = make_key(scores[c], c);
      if (key < last && key > next) next = key;
    }
    for (int s = 16; s; s >>= 1) {
      const uint64_t other = __shfl_xor_sync(0xffffffffu, next, s);
      next = max(next, other);
    }
    last = next;
    if (l == 0) ids[r] = next ? ~uint32_t(next) : 0xFFFFFFFFu, out[r] = key_score(next);
  }
}

extern "C" __global__ void __launch_bounds__(32) probe_pick(const __grid_constant__ ProbePickParams p) {
  if (blockIdx.x == 0) stamp(p.clock);
  if (p.k <= 16 * 32 * 128) pick_centroids<16>(p);
  else pick_centroids<kMostMaxima / 32>(p);
}

}  // namespace plaid
