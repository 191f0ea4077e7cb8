// grad.cuh: gradients of MaxSim by what won, by pulling: each row has one writer, so
// that results are the same bits on every run, and are written once, in the type that
// is asked for.
//
// With Normalize, g is the gradient by the normalised vector x̂ = x·scale, and that
// by x is (g − ⟨g, x̂⟩·x̂)/|x|. A warp holds 128 dimensions of g; where there are
// more, they are summed up twice, for ⟨g, x̂⟩ and for the result.
//
// f16: 64 registers, four blocks a multiprocessor. Bound: what the second-level cache gives.
// Measured on an H200, 256 queries of 32 tokens with 256 documents of 300: 4.6 TB/s for
// queries, 2.5 for documents, whose entries have to be sorted first; with three blocks a tenth slower.
#pragma once
#include "four.cuh"

namespace plaid {

__device__ __forceinline__ void store_four(const DenseGradSide &s, uint64_t r, const float (&x)[4], uint32_t d, uint32_t dim) {
  const uint64_t i = r * dim + d;
  if (s.out_type == kF32) {
    float *out = reinterpret_cast<float *>(s.out) + i;
    if (s.whole) {
      *reinterpret_cast<float4 *>(out) = make_float4(x[0], x[1], x[2], x[3]);
      return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (d + k < dim) out[k] = x[k];
    return;
  }
  uint16_t h[4];
#pragma unroll
  for (int k = 0; k < 4; k++)
    h[k] = s.out_type == kF16 ? __half_as_ushort(__float2half_rn(x[k])) : __bfloat16_as_ushort(__float2bfloat16_rn(x[k]));
  uint16_t *out = reinterpret_cast<uint16_t *>(s.out) + i;
  if (s.whole) {
    *reinterpret_cast<uint2 *>(out) = make_uint2(h[0] | uint32_t(h[1]) << 16, h[2] | uint32_t(h[3]) << 16);
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (d + k < dim) out[k] = h[k];
}

// own_four is four values of a row whose gradient is computed, as they are multiplied.
__device__ __forceinline__ float4 own_four(const DenseGradSide &s, uint64_t r, uint32_t d, uint32_t dim) {
  float x[4] = {};
  const uint8_t *row = s.rows + r * s.row_bytes;
  const float scale = s.scale ? s.scale[r] : 1.0f;
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (d + k < dim) x[k] = value(s.format, row, d + k) * scale;
  return make_float4(x[0], x[1], x[2], x[3]);
}

// finish writes 128 dimensions of a gradient from d0 on, through the normalisation; in the first
// of two passes it only adds to along. Of a row kLanes lanes have four dimensions of each of
// 32/kLanes parts. All lanes of a warp call it. Rows that got nothing may hold anything: they
// are not multiplied with.
template <int kLanes>
__device__ __forceinline__ void finish(const DenseGradSide &s, bool write, uint64_t r, float (&sum)[32 / kLanes][4], uint32_t d0, uint32_t dim, uint32_t pass, float &along) {
  const uint32_t d = d0 + 4 * (threadIdx.x % kLanes);
  if (s.inverse) {
    if (pass == 0) {
      float part = 0;
#pragma unroll
      for (uint32_t c = 0; c < 32 / kLanes; c++) {
        if (!write) continue;
        const float4 x = own_four(s, r, d + c * 4 * kLanes, dim);
        if (sum[c][0] != 0) part = fmaf(sum[c][0], x.x, part);
        if (sum[c][1] != 0) part = fmaf(sum[c][1], x.y, part);
        if (sum[c][2] != 0) part = fmaf(sum[c][2], x.z, part);
        if (sum[c][3] != 0) part = fmaf(sum[c][3], x.w, part);
      }
      for (int m = kLanes / 2; m; m >>= 1) part += __shfl_xor_sync(0xffffffffu, part, m);
      along += part;
      if (dim > 128) return;
    }
    const float inverse = write ? s.inverse[r] : 0.0f;
#pragma unroll
    for (uint32_t c = 0; c < 32 / kLanes; c++) {
      if (write && along != 0) {
        const float4 x = own_four(s, r, d + c * 4 * kLanes, dim);
        sum[c][0] = fmaf(-along, x.x, sum[c][0]), sum[c][1] = fmaf(-along, x.y, sum[c][1]);
        sum[c][2] = fmaf(-along, x.z, sum[c][2]), sum[c][3] = fmaf(-along, x.w, sum[c][3]);
      }
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (sum[c][k] != 0) sum[c][k] *= inverse;
    }
  }
#pragma unroll
  for (uint32_t c = 0; c < 32 / kLanes; c++)
    if (write && d + c * 4 * kLanes < dim) store_four(s, r, sum[c], d + c * 4 * kLanes, dim);
}

struct Span {
  uint64_t begin;
  uint32_t len;
};

// Offsets that are not in order make no item longer than it may be.
__device__ __forceinline__ Span span(const DenseGradSide &s, uint32_t i) {
  if (!s.offsets) return {uint64_t(i) * s.stride, s.longest};
  const uint64_t begin = min(uint64_t(s.offsets[i]), s.n_rows), end = min(uint64_t(s.offsets[i + 1]), s.n_rows);
  return {begin, end > begin ? uint32_t(min(end - begin, uint64_t(s.longest))) : 0};
}

// find finds the item of a row, and which of its rows it is.
__device__ __forceinline__ bool find(const DenseGradSide &s, uint64_t r, uint32_t &item, uint32_t &row) {
  if (!s.items) return false;
  if (!s.offsets) {
    const uint64_t i = r / s.stride, in = r - i * s.stride;
    item = uint32_t(i), row = uint32_t(in);
    return i < s.items && in < s.longest;
  }
  if (r < s.offsets[0] || r >= s.offsets[s.items]) return false;
  uint32_t lo = 0, hi = s.items;  // offsets[lo] <= r < offsets[hi]
  while (hi - lo > 1) {
    const uint32_t mid = lo + (hi - lo) / 2;
    if (s.offsets[mid] <= r) lo = mid;
    else hi = mid;
  }
  const Span found = span(s, lo);
  item = lo, row = uint32_t(r - found.begin);
  return row < found.len;
}

__device__ __forceinline__ float coefficient(float upstream, float weight) {
  return upstream == 0 || weight == 0 ? 0.0f : upstream * weight;
}

// Rows whose loads overlap.
template <int kFormat> constexpr uint32_t kRowsAtOnce = kFormat == kF32 || kFormat == kSplit || kFormat == kAny ? 4 : 8;

constexpr uint32_t kGradWarps = 8;

// For each row of a query its pairs, in order. A lane has four dimensions of 128.
template <int kFormat>
__device__ __forceinline__ void grad_query(const DenseGradParams &p, uint32_t block) {
  constexpr uint32_t kAtOnce = kRowsAtOnce<kFormat>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const DenseGradSide &q = p.q, &d = p.d;
  const uint32_t warp = threadIdx.x / 32, l = threadIdx.x & 31, part = warp % p.parts;
  const uint64_t r = uint64_t(block) * (kGradWarps / p.parts) + warp / p.parts;
  uint32_t which = 0, s = 0, first = 0, n = 0;
  float weight = 1;
  if (r < q.n_rows && find(q, r, which, s)) {
    if (p.weights) weight = p.weights[r];
    if (p.kind == kListedPairs) first = q.pair_first[which], n = q.pair_first[which + 1] - first;
    else n = p.count;
    if (weight == 0) n = 0;
  }
  const uint32_t share = p.parts == 1 ? n : (n + p.parts * 32 - 1) / (p.parts * 32) * 32;
  const uint32_t begin = min(part * share, n), end = min(begin + share, n);
  const uint32_t passes = q.inverse && p.dim > 128 ? 2 : 1;
  // A lane looks one pair up, 32 pairs ahead.
  struct Look {
    uint32_t doc;
    int32_t a;
    float upstream;
  };
  auto look = [&](uint32_t i) {
    Look x{0, -1, 0};
    if (i + l >= end) return x;
    uint64_t pair = uint64_t(which) * p.count + i + l;
    x.doc = p.kind == kOwnPairs ? uint32_t(pair) : i + l;
    if (p.kind == kListedPairs) pair = q.pairs[first + i + l], x.doc = d.pair_item[pair];
    x.a = x.doc < d.items ? p.arg[pair * p.pitch + s] : -1;
    x.upstream = p.upstream ? p.upstream[pair] : 1.0f;
    return x;
  };
  float along = 0;
  for (uint32_t pass = 0; pass < passes; pass++) {
    for (uint32_t d0 = 0; d0 < p.dim; d0 += 128) {
      const uint32_t dims = d0 + 4 * l;
      const bool mine = dims < p.dim;
      float sums[1][4] = {};
      float (&sum)[4] = sums[0];
      Look next = look(begin);
      for (uint32_t i = begin; i < end; i += 32) {
        const Look x = next;
        next = look(i + 32);
        float c = 0;
        uint32_t at = 0;
        if (x.a >= 0) {
          const Span tokens = span(d, x.doc);
          if (uint32_t(x.a) < tokens.len) {
            at = uint32_t(tokens.begin) + x.a, c = coefficient(x.upstream, weight);
            if (d.scale && c != 0) c *= d.scale[at];
          }
        }
        uint32_t left = __ballot_sync(0xffffffffu, c != 0);
        while (left) {
          Four<kFormat> rows[kAtOnce];
          uint32_t these = left;
#pragma unroll
          for (uint32_t k = 0; k < kAtOnce; k++) {
            if (left) {
              const uint32_t row = __shfl_sync(0xffffffffu, at, __ffs(left) - 1);
              if (mine) load_four(rows[k], d, row, dims, p.dim);
              left &= left - 1;
            }
          }
#pragma unroll
          for (uint32_t k = 0; k < kAtOnce; k++) {
            if (these) {
              const float of = __shfl_sync(0xffffffffu, c, __ffs(these) - 1);
#pragma unroll
              for (int m = 0; m < 4; m++)
                if (mine) sum[m] = fmaf(of, rows[k].get(m), sum[m]);
              these &= these - 1;
            }
          }
        }
      }
      if (p.parts > 1) {
        float4 *parts = reinterpret_cast<float4 *>(shared);  // [kGradWarps][32]
        parts[threadIdx.x] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        __syncthreads();
        for (uint32_t k = 1; part == 0 && k < p.parts; k++) {
          const float4 more = parts[threadIdx.x + 32 * k];
          sum[0] += more.x, sum[1] += more.y, sum[2] += more.z, sum[3] += more.w;
        }
        __syncthreads();
      }
      finish<32>(q, part == 0 && r < q.n_rows, r, sums, d0, p.dim, pass, along);
    }
  }
}

// Entries that a block has in shared memory; those whose rows it remembers, so that argmaxima are
// read once; those of a row that all of a block adds up. Tests go beyond each with small problems.
#ifdef PLAID_SMALL
constexpr uint32_t kGradList = 64, kGradHits = 128, kGradMany = 16;
#else
constexpr uint32_t kGradList = 4096, kGradHits = 8192, kGradMany = 256;
#endif

// A block has p.rows rows of a document at a time. The entries that won one of them are
// sorted by row in shared memory: each warp has some groups of up to 32 query tokens, one after
// another, and counts their entries of each row; the counts give where each entry goes, in
// the order of the entries of a row. Then warps take two rows after another, and half a warp adds
// what the entries of one stand for; a row with many is done by all of the block first. Where there
// are more entries than there is room, they come in windows of the sorted ones, and the sum of
// the row that goes on is carried.
template <int kFormat>
__device__ __forceinline__ void grad_docs(const DenseGradParams &p, uint32_t block) {
  constexpr uint32_t kAtOnce = kRowsAtOnce<kFormat> / 4, kMost = 128, kList = kGradList, kHits = kGradHits, kMiss = 255, kMany = kGradMany;
  constexpr uint32_t kLanes = 16, kParts = 32 / kLanes;  // that add up a row
  extern __shared__ __align__(1024) uint8_t shared[];
  uint2 *list = reinterpret_cast<uint2 *>(shared);                    // [kList]: query row, coefficient
  uint8_t *hits = reinterpret_cast<uint8_t *>(list + kList);          // [kHits]: the row that an entry won
  uint32_t *place = reinterpret_cast<uint32_t *>(hits + kHits);       // [kGradWarps][kMost]
  uint32_t *start = place + kGradWarps * kMost;                       // [kMost + 4]
  float *alongs = reinterpret_cast<float *>(start + kMost + 4);       // [kMost]
  uint32_t *taken = reinterpret_cast<uint32_t *>(alongs + kMost);     // [4]: rows; rows with many entries
  uint8_t *many = reinterpret_cast<uint8_t *>(taken + 4);             // [kMost]: the latter
  float *parts = reinterpret_cast<float *>(many + kMost);             // [kGradWarps][128]
  float *carry = parts + kGradWarps * 128;                            // [2][dim]
  const DenseGradSide &q = p.q, &d = p.d;
  const uint32_t tid = threadIdx.x, warp = tid / 32, l = tid & 31;
  uint32_t *own = place + warp * kMost;
  const uint32_t doc = block / p.tiles, pitch = (p.dim + 127) / 128 * 128;
  const Span tokens = doc < d.items ? span(d, doc) : Span{0, 0};
  // Rows in front of the first document are its own, those behind each one that one's.
  const uint64_t lo = doc ? tokens.begin : 0;
  const uint64_t hi = doc + 1 < d.items ? span(d, doc + 1).begin : d.n_rows;
  uint32_t first = 0, n = 0;  // pairs
  if (tokens.len) {
    if (p.kind == kAllPairs) n = q.items;
    else if (p.kind == kOwnPairs) n = doc / p.count < q.items;
    else first = d.pair_first[doc], n = d.pair_first[doc + 1] - first;
  }
  const uint32_t end = n * p.groups, share = (end + kGradWarps - 1) / kGradWarps;
  const uint32_t g0 = min(warp * share, end), g1 = min(g0 + share, end);
  struct Group {
    uint64_t pair;
    uint32_t row, s;  // of the lane
    bool there;
  };
  auto group = [&](uint32_t g) {
    const uint32_t i = p.groups == 1 ? g : g / p.groups, s = (p.groups == 1 ? 0 : g % p.groups) * 32 + l;
    uint64_t pair = uint64_t(i) * p.count + doc;
    uint32_t query = i;
    if (p.kind == kOwnPairs) query = doc / p.count, pair = doc;
    if (p.kind == kListedPairs) pair = d.pairs[first + i], query = q.pair_item[pair];
    const Span of = query < q.items ? span(q, query) : Span{0, 0};  // lists may name queries that there are not
    return Group{pair, uint32_t(of.begin) + s, s, s < of.len};
  };
  for (uint64_t r0 = lo + uint64_t(block % p.tiles) * p.rows; r0 < hi; r0 += uint64_t(p.tiles) * p.rows) {
    const uint32_t rows = uint32_t(min(uint64_t(p.rows), hi - r0));
    // What an argmax is of the block's rows.
    auto hit = [&](const Group &x) {
      const int32_t a = x.there ? p.arg[x.pair * p.pitch + x.s] : -1;
      const uint64_t t = tokens.begin + uint32_t(a) - r0;
      return uint32_t(a) < tokens.len && t < rows ? uint32_t(t) : kMiss;
    };
    uint32_t total = 0;
    if (end) {
      static_assert(kGradWarps * kMost == 4 * 256);
      reinterpret_cast<uint4 *>(place)[tid] = make_uint4(0, 0, 0, 0);
      if (tid < kMost) alongs[tid] = 0;
      __syncthreads();
      constexpr uint32_t kLooks = 4;  // whose loads overlap
      for (uint32_t g = g0; g < g1; g += kLooks) {
        uint32_t t[kLooks];
#pragma unroll
        for (uint32_t j = 0; j < kLooks; j++) t[j] = g + j < g1 ? hit(group(g + j)) : kMiss;
#pragma unroll
        for (uint32_t j = 0; j < kLooks; j++) {
          if (t[j] != kMiss) atomicAdd(own + t[j], 1u);
          if (g + j < g1 && g + j < kHits / 32) hits[(g + j) * 32 + l] = uint8_t(t[j]);
        }
      }
      __syncthreads();
      if (warp == 0) {  // counts become places; a lane has four rows
        static_assert(kMost == 4 * 32);
        uint4 *places = reinterpret_cast<uint4 *>(place) + l;
        uint32_t at[4] = {};
#pragma unroll
        for (uint32_t w = 0; w < kGradWarps; w++) {
          const uint4 v = places[w * 32];
          at[0] += v.x, at[1] += v.y, at[2] += v.z, at[3] += v.w;
        }
        const uint32_t sum = at[0] + at[1] + at[2] + at[3];
        uint32_t front = sum;
#pragma unroll
        for (int k = 1; k < 32; k <<= 1) {
          const uint32_t below = __shfl_up_sync(0xffffffffu, front, k);
          if (l >= k) front += below;
        }
        uint32_t with_many = 0;
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
          const uint32_t these = __ballot_sync(0xffffffffu, at[k] >= kMany);
          if (at[k] >= kMany) many[with_many + __popc(these & ((1u << l) - 1))] = uint8_t(4 * l + k);
          with_many += __popc(these);
        }
        if (l == 0) taken[1] = with_many;
        if (l == 31) start[kMost] = front;
        front -= sum;
        at[3] = front + at[0] + at[1] + at[2], at[2] = front + at[0] + at[1], at[1] = front + at[0], at[0] = front;
        reinterpret_cast<uint4 *>(start)[l] = make_uint4(at[0], at[1], at[2], at[3]);
#pragma unroll
        for (uint32_t w = 0; w < kGradWarps; w++) {
          const uint4 v = places[w * 32];
          places[w * 32] = make_uint4(at[0], at[1], at[2], at[3]);
          at[0] += v.x, at[1] += v.y, at[2] += v.z, at[3] += v.w;
        }
      }
      __syncthreads();
      total = start[rows];
    }
    if (!total) {
      const float zero[4] = {};
      for (uint32_t t = warp; t < rows; t += kGradWarps)
        for (uint32_t dims = 4 * l; dims < p.dim; dims += 128) store_four(d, r0 + t, zero, dims, p.dim);
      __syncthreads();
      continue;
    }
    const bool several = total > kList;
    const uint32_t passes = d.inverse && p.dim > 128 ? 2 : 1, outer = several ? passes : 1, inner = several ? 1 : passes;
    for (uint32_t far = 0; far < outer; far++)
    for (uint32_t w0 = 0, turn = 0; w0 < total; w0 += kList, turn ^= 1) {
      if (far + w0 > 0) {  // every warp went on to where the next one began
        for (uint32_t w = kGradWarps - 1; tid < kMost && w > 0; w--) place[w * kMost + tid] = place[(w - 1) * kMost + tid];
        if (tid < kMost) place[tid] = start[tid];
        __syncthreads();
      }
      if (tid == 0) *taken = 0;
      constexpr uint32_t kLooks = 2;
      for (uint32_t g = g0; g < g1; g += kLooks) {
        uint32_t t[kLooks], row[kLooks];
        float c[kLooks];
#pragma unroll
        for (uint32_t j = 0; j < kLooks; j++) {
          t[j] = kMiss, c[j] = 0, row[j] = 0;
          if (g + j >= g1) continue;
          const Group x = group(g + j);
          t[j] = g + j < kHits / 32 ? hits[(g + j) * 32 + l] : hit(x);
          if (t[j] == kMiss) continue;
          row[j] = x.row, c[j] = coefficient(p.upstream ? p.upstream[x.pair] : 1.0f, p.weights ? p.weights[x.row] : 1.0f);
          if (q.scale && c[j] != 0) c[j] *= q.scale[x.row];
        }
#pragma unroll
        for (uint32_t j = 0; j < kLooks; j++) {
          if (g + j >= g1) continue;
          const uint32_t same = __match_any_sync(0xffffffffu, t[j]), below = same & ((1u << l) - 1);
          uint32_t at = 0;
          if (t[j] != kMiss) at = own[t[j]];
          __syncwarp();
          if (t[j] != kMiss) {
            if (!below) own[t[j]] = at + __popc(same);
            at += __popc(below) - w0;
            if (at < kList) list[at] = make_uint2(row[j], __float_as_uint(c[j]));
          }
          __syncwarp();
        }
      }
      __syncthreads();
      for (uint32_t h = 0;; h++) {
        const bool all = h < taken[1];  // of the block
        uint32_t t;
        if (all) {
          t = many[h];
        } else {
          if (l == 0) t = atomicAdd(taken, kParts);
          t = __shfl_sync(0xffffffffu, t, 0);
          if (t >= rows) break;
          t += l / kLanes;
        }
        const bool there = t < rows;
        const uint32_t s0 = there ? start[t] : 0, s1 = there ? start[t + 1] : 0;
        const bool here = there && all == (s1 - s0 >= kMany) && (s0 == s1 ? w0 == 0 : s1 > w0 && s0 < w0 + kList), goes_on = s0 < s1 && s1 > w0 + kList;
        // Rows that won nothing are written with the first window, wherever they come among the entries.
        uint32_t m0 = here ? min(max(s0, w0) - w0, kList) : 0, m1 = here ? min(s1, w0 + kList) - w0 : 0;
        if (all) {
          const uint32_t share = (m1 - m0 + 256 / kLanes - 1) / (256 / kLanes);
          m0 = min(m0 + tid / kLanes * share, m1), m1 = min(m0 + share, m1);
        }
        const uint32_t most = __reduce_max_sync(0xffffffffu, m1 - m0);
        float along = here ? alongs[t] : 0.0f;
        for (uint32_t near = 0; near < inner; near++)
        for (uint32_t d0 = 0; d0 < p.dim; d0 += 128) {
          const uint32_t dims = d0 + 4 * (l % kLanes);
          float sum[kParts][4] = {};
          if (!all && here && s0 < w0)
#pragma unroll
            for (uint32_t b = 0; b < kParts; b++) {
              const float4 v = *reinterpret_cast<const float4 *>(carry + turn * pitch + dims + b * 4 * kLanes);
              sum[b][0] = v.x, sum[b][1] = v.y, sum[b][2] = v.z, sum[b][3] = v.w;
            }
          for (uint32_t i = m0; i < m0 + most; i += kAtOnce) {
            Four<kFormat> x[kAtOnce][kParts];
#pragma unroll
            for (uint32_t k = 0; k < kAtOnce; k++) {
              if (i + k >= m1) continue;
              const uint32_t row = list[i + k].x;
#pragma unroll
              for (uint32_t b = 0; b < kParts; b++)
                if (dims + b * 4 * kLanes < p.dim) load_four(x[k][b], q, row, dims + b * 4 * kLanes, p.dim);
            }
#pragma unroll
            for (uint32_t k = 0; k < kAtOnce; k++) {
              const float c = i + k < m1 ? __uint_as_float(list[i + k].y) : 0.0f;
              if (c == 0) continue;
#pragma unroll
              for (uint32_t b = 0; b < kParts; b++)
                if (dims + b * 4 * kLanes < p.dim)
#pragma unroll
                  for (int m = 0; m < 4; m++) sum[b][m] = fmaf(c, x[k][b].get(m), sum[b][m]);
            }
          }
          if (all) {  // the first warp has all sums, in both halves
#pragma unroll
            for (uint32_t b = 0; b < kParts; b++) {
              float4 *to = reinterpret_cast<float4 *>(parts + b * 4 * kLanes) + l % kLanes;
#pragma unroll
              for (int m = 0; m < 4; m++) sum[b][m] += __shfl_down_sync(0xffffffffu, sum[b][m], kLanes);
              if (l < kLanes) to[warp * 32] = make_float4(sum[b][0], sum[b][1], sum[b][2], sum[b][3]);
            }
            __syncthreads();
            if (warp == 0)
#pragma unroll
              for (uint32_t b = 0; b < kParts; b++) {
                float4 v = make_float4(0, 0, 0, 0);
                if (here && s0 < w0) v = *reinterpret_cast<const float4 *>(carry + turn * pitch + dims + b * 4 * kLanes);
                for (uint32_t w = 0; w < kGradWarps; w++) {
                  const float4 more = reinterpret_cast<const float4 *>(parts + b * 4 * kLanes)[w * 32 + l % kLanes];
                  v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
                }
                sum[b][0] = v.x, sum[b][1] = v.y, sum[b][2] = v.z, sum[b][3] = v.w;
              }
            __syncthreads();
          }
          const bool mine = here && (!all || warp == 0);
          if (mine && goes_on)
#pragma unroll
            for (uint32_t b = 0; b < kParts; b++)
              *reinterpret_cast<float4 *>(carry + (turn ^ 1) * pitch + dims + b * 4 * kLanes) = make_float4(sum[b][0], sum[b][1], sum[b][2], sum[b][3]);
          finish<kLanes>(d, mine && !goes_on, r0 + t, sum, d0, p.dim, far + near, along);
        }
        __syncwarp();  // all lanes have read it
        if (here && l % kLanes == 0 && (!all || tid == 0)) alongs[t] = along;
        if (all) __syncthreads();
      }
      __syncthreads();
    }
  }
}

template <int kFormat>
__device__ __forceinline__ void gradients(const DenseGradParams &p) {
  if (blockIdx.x < p.doc_blocks) grad_docs<kFormat>(p, blockIdx.x);
  else grad_query<kFormat>(p, blockIdx.x - p.doc_blocks);
}

#define PLAID_DENSE_GRAD(NAME, FORMAT)                                                                                   \
  extern "C" __global__ void __launch_bounds__(256, 4) dense_grad_##NAME(const __grid_constant__ DenseGradParams p) {   \
    gradients<FORMAT>(p);                                                                                                \
  }
PLAID_DENSE_GRAD(f32, kF32)
PLAID_DENSE_GRAD(f16, kF16)
PLAID_DENSE_GRAD(bf16, kBF16)
PLAID_DENSE_GRAD(i8, kI8)
PLAID_DENSE_GRAD(e4m3, kE4M3)
PLAID_DENSE_GRAD(split, kSplit)
PLAID_DENSE_GRAD(any, kAny)

}  // namespace plaid
