// lists.cu: lists of documents for the scans: from the host, or from probed
// centroids.
#include "walk.cuh"

namespace plaid {

// fill_walk writes the tiles of a block's documents, those of document i at start[i] of total,
// from entry base of the walk on. The first of the documents has position pos0.
__device__ __forceinline__ void fill_walk(uint2 *walk, uint32_t capacity, const uint32_t *first, const uint32_t *start, uint32_t docs, uint32_t total, uint32_t base,
                                          uint32_t pos0) {
  for (uint32_t i = threadIdx.x; i < total; i += 256) {
    uint32_t lo = 0, hi = docs;  // start[lo] <= i < start[hi]
    while (hi - lo > 1) {
      const uint32_t m = (lo + hi) / 2;
      if (start[m] <= i) lo = m; else hi = m;
    }
    const bool last = i + 1 == start[lo + 1];
    if (base + i < capacity) walk[base + i] = make_uint2(first[lo] + (i - start[lo]), (pos0 + lo) | (last ? 0x80000000u : 0));
  }
}

// list_tiles: a block takes 256 documents and reserves a run of the walk. The
// order of the runs differs from launch to launch; maxima do not mind.
extern "C" __global__ void __launch_bounds__(256) list_tiles(const __grid_constant__ ListParams p) {
  __shared__ uint32_t first[256], start[257], warp_sum[8], base;
  const uint32_t n = p.n_dev ? min(*p.n_dev, p.n) : p.n;
  const uint32_t pos0 = blockIdx.x * 256, pos = pos0 + threadIdx.x, l = threadIdx.x & 31;
  if (pos0 >= n) return;
  uint32_t tiles = 0;
  if (pos < n) {
    const uint32_t doc = p.docs[pos], f = p.first_tile[doc];
    tiles = p.first_tile[doc + 1] - f;
    first[threadIdx.x] = f;
  }
  uint32_t sum = tiles;  // inclusive
  for (int s = 1; s < 32; s <<= 1) {
    const uint32_t v = __shfl_up_sync(0xffffffffu, sum, s);
    if (l >= s) sum += v;
  }
  if (l == 31) warp_sum[threadIdx.x / 32] = sum;
  __syncthreads();
  uint32_t before = 0, total = 0;
  for (int w = 0; w < 8; w++) {
    if (w < int(threadIdx.x / 32)) before += warp_sum[w];
    total += warp_sum[w];
  }
  __syncthreads();
  start[threadIdx.x] = before + sum - tiles;
  if (threadIdx.x == 0) {
    start[256] = total;
    base = atomicAdd(p.tiles_total, total);
  }
  __syncthreads();
  if (pos < n) {
    p.pos_first[pos] = base + start[threadIdx.x];
    p.pos_end[pos] = base + start[threadIdx.x] + tiles;
  }
  fill_walk(p.walk, p.walk_capacity, first, start, 256, total, base, pos0);
}

// cut: list_tiles of the documents with the largest gains, of as many levels as leave no more
// than most of them. Each block finds the level itself, from 16 KiB that are in L2.
extern "C" __global__ void __launch_bounds__(256) cut(const __grid_constant__ CutParams p) {
  __shared__ uint32_t first[256], start[257], doc_sum[8], tile_sum[8], level, base, base_doc;
  const uint32_t t = threadIdx.x, l = t & 31, w = t / 32, pos = blockIdx.x * 256 + t, n = min(*p.n_dev, p.n);
  if (blockIdx.x * 256 >= n) return;
  if (t == 0) level = 0;
  // Thread t has the 16 levels that are 16t and more below the highest.
  constexpr int kOwn = kGainLevels / 256;
  uint32_t h[kOwn], sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; i++) sum += h[i] = __ldcg(&p.levels[kGainLevels - 1 - kOwn * t - i]);
  uint32_t upto = sum;
  for (int s = 1; s < 32; s <<= 1) {
    const uint32_t v = __shfl_up_sync(0xffffffffu, upto, s);
    if (l >= s) upto += v;
  }
  if (l == 31) doc_sum[w] = upto;
  __syncthreads();
  for (uint32_t i = 0; i < w; i++) upto += doc_sum[i];
  uint32_t above = upto - sum;
  if (above <= p.most && upto > p.most) {
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      if (above <= p.most && above + h[i] > p.most) level = kGainLevels - kOwn * t - i;
      above += h[i];
    }
  }
  __syncthreads();
  const bool in = pos < n && p.gains[pos] >= level;
  const uint32_t kept = __ballot_sync(0xffffffffu, in), rank = __popc(kept & ((1u << l) - 1));
  uint32_t doc = 0, tiles = 0, f = 0;
  if (in) doc = p.docs[pos], f = p.first_tile[doc], tiles = p.first_tile[doc + 1] - f;
  sum = tiles;
  for (int s = 1; s < 32; s <<= 1) {
    const uint32_t v = __shfl_up_sync(0xffffffffu, sum, s);
    if (l >= s) sum += v;
  }
  if (l == 31) doc_sum[w] = __popc(kept), tile_sum[w] = sum;
  __syncthreads();
  uint32_t docs_before = 0, docs = 0, tiles_before = 0, total = 0;
  for (uint32_t i = 0; i < 8; i++) {
    if (i < w) docs_before += doc_sum[i], tiles_before += tile_sum[i];
    docs += doc_sum[i], total += tile_sum[i];
  }
  const uint32_t place = docs_before + rank, at = tiles_before + sum - tiles;
  if (in) first[place] = f, start[place] = at;
  if (t == 0) {
    start[docs] = total;
    if (docs) base_doc = atomicAdd(p.kept, docs), base = atomicAdd(p.tiles_total, total);
  }
  __syncthreads();
  if (!docs) return;
  if (in) {
    p.list[base_doc + place] = doc;
    p.pos_first[base_doc + place] = base + at;
    p.pos_end[base_doc + place] = base + at + tiles;
  }
  fill_walk(p.walk, p.walk_capacity, first, start, docs, total, base, base_doc);
}

// probe_mark: a block a query.
extern "C" __global__ void __launch_bounds__(1024) probe_mark(const __grid_constant__ MarkParams p) {
  __shared__ float sums[32];
  const uint32_t q = blockIdx.x, t = threadIdx.x, l = t & 31, w = t / 32;
  const uint32_t c0 = (p.group_begin ? p.group_begin[q] : q) * kColumns, c1 = (p.group_begin ? p.group_begin[q + 1] : q + 1) * kColumns;
  uint32_t *bits = p.bits + size_t(q) * p.bit_words, *any = p.bits + size_t(p.queries) * p.bit_words;
  for (uint32_t i = t; i < (c1 - c0) * p.n; i += 1024) {
    const uint32_t column = c0 + i / p.n;
    if (!(p.unit[column].w > 0)) continue;
    const uint32_t c = p.ids[size_t(column) * p.picked + i % p.n];
    if (c == 0xFFFFFFFFu) continue;
    atomicOr(&p.marks[c], 1u << q);
    atomicOr(&bits[c / 32], 1u << (c & 31));
    atomicOr(&any[c / 32], 1u << (c & 31));
  }
  // total sums what v gives for the columns of the query that probe, in an order that is always the same.
  auto total = [&](auto v) {
    float sum = 0;
    for (uint32_t column = c0 + t; column < c1; column += 1024)
      if (p.unit[column].w > 0) sum += v(p.unit[column].w, p.scores + size_t(column) * p.picked);
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    __syncthreads();
    if (l == 0) sums[w] = sum;
    __syncthreads();
    sum = sums[l];
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    return sum;
  };
  const float probing = total([](float, const float *) { return 1.0f; });
  const float gap = kUnseenGap * total([&](float, const float *s) { return s[p.n / 2] - s[p.picked - 1]; }) / fmaxf(probing, 1.0f);
  const float most = total([&](float weight, const float *s) { return weight * (s[0] - s[p.picked - 1] + gap); });
  for (uint32_t column = c0 + t; column < c1; column += 1024) {
    const float weight = p.unit[column].w, by = 1.0f / p.cols[column].x;
    p.gain_cols[column] = make_float4(by, -p.cols[column].y * by, p.scores[size_t(column) * p.picked + p.picked - 1], weight > 0 ? weight / fmaxf(most, 1e-30f) : 0.0f);
  }
  if (t == 0) p.gaps[q] = gap;
}

// Bits says which centroids are probed; staged are those in shared memory.
__device__ __forceinline__ const uint32_t *stage_bits(const uint32_t *bits, uint32_t words, bool staged, uint32_t *shared) {
  if (!staged) return bits;
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) shared[i] = bits[i];
  __syncthreads();
  return shared;
}

// unit_codes gives the codes in 16 bytes.
template <int B> __device__ __forceinline__ void unit_codes(uint32_t (&c)[16 / B], const uint4 &v) {
  if constexpr (B == 4) {
    c[0] = v.x, c[1] = v.y, c[2] = v.z, c[3] = v.w;
  } else {
    c[0] = v.x & 0xffff, c[1] = v.x >> 16, c[2] = v.y & 0xffff, c[3] = v.y >> 16;
    c[4] = v.z & 0xffff, c[5] = v.z >> 16, c[6] = v.w & 0xffff, c[7] = v.w >> 16;
  }
}

// candidates: a thread takes 16 bytes of codes at a time. Most are of no probed centroid, which
// a bit in shared memory tells.
template <int B> __device__ __forceinline__ void find_candidates(const CandidateParams &p, const uint32_t *bits) {
  constexpr uint32_t kUnits = B, kAhead = 2;  // 16-byte units of a tile
  const uint4 *codes = reinterpret_cast<const uint4 *>(p.codes);
  const uint64_t units = uint64_t(p.tiles) * kUnits, stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += stride * kAhead) {
    uint4 v[kAhead];
#pragma unroll
    for (uint32_t a = 0; a < kAhead; a++) v[a] = load_stream(codes + min(i + a * stride, units - 1));
#pragma unroll
    for (uint32_t a = 0; a < kAhead; a++) {
      uint32_t c[16 / B], m = 0;
      unit_codes<B>(c, v[a]);
#pragma unroll
      for (int e = 0; e < 16 / B; e++)
        if (bits[c[e] / 32] >> (c[e] & 31) & 1) m |= __ldg(&p.marks[c[e]]);
      if (m) atomicOr(&p.hits[p.tile_doc[min(i + a * stride, units - 1) / kUnits] & 0x7FFFFFFFu], m);
    }
  }
}
extern "C" __global__ void __launch_bounds__(512) candidates(const __grid_constant__ CandidateParams p) {
  extern __shared__ uint32_t shared_bits[];
  const uint32_t *bits = stage_bits(p.bits, p.bit_words, p.staged, shared_bits);
  if (p.code_bytes == 2) find_candidates<2>(p, bits);
  else find_candidates<4>(p, bits);
}

// gains: a warp a document. Lanes look for codes of probed centroids, and for each of them the
// warp reads a row of S: lane l has its entry l, of column 8·(l/2 mod 4) + 2·(l/8) + l mod 2.
// What a document needs is asked for while those before it are looked at: its number three
// ahead, its tiles two, its codes one. Rows are asked for four at a time.
template <int B> __device__ __forceinline__ void find_gains(const GainParams &p, const uint32_t *bits) {
  constexpr uint32_t kUnits = B, kCodes = 16 / B;
  __shared__ uint32_t queues[16][32 * kCodes];  // codes found, of a warp
  const uint32_t l = threadIdx.x & 31, warps = gridDim.x * (blockDim.x / 32), n = min(*p.n_dev, p.n);
  const uint32_t column = (l / 2 & 3) * 8 + l / 8 * 2 + (l & 1);
  uint32_t *queue = queues[threadIdx.x / 32], i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (i >= n) return;
  const uint4 *codes = reinterpret_cast<const uint4 *>(p.codes);
  const float gap = *p.gap;
  auto doc_of = [&](uint32_t at) { return __ldg(p.docs + min(at, n - 1)); };
  auto units_of = [&](uint32_t doc) { return make_uint2(__ldg(p.first_tile + doc) * kUnits, __ldg(p.first_tile + doc + 1) * kUnits); };
  auto own_unit = [&](uint2 of, uint32_t u) { return __ldg(codes + min(u + l, of.y - 1)); };
  uint32_t doc = doc_of(i + 2 * warps);
  uint2 units = units_of(doc_of(i)), after = units_of(doc_of(i + warps));
  uint4 own = own_unit(units, units.x);
  for (; i < n; i += warps) {
    const uint4 next = own_unit(after, after.x);
    const uint2 later = units_of(doc);
    doc = doc_of(i + 3 * warps);
    float gain = 0;
    for (uint32_t group = 0; group < p.groups; group++) {
      const float4 col = __ldg(p.gain_cols + group * kColumns + column);
      const uint16_t *rows = p.s_rows + size_t(group) * p.k * kColumns + l;
      float best = 0;  // above the floor
      for (uint32_t u = units.x; u < units.y; u += 32) {
        uint32_t c[kCodes], found = 0;
        unit_codes<B>(c, u == units.x ? own : own_unit(units, u));
#pragma unroll
        for (uint32_t e = 0; e < kCodes; e++) {
          const bool in = u + l < units.y && (bits[c[e] / 32] >> (c[e] & 31) & 1);
          const uint32_t which = __ballot_sync(0xffffffffu, in);
          if (in) queue[found + __popc(which & ((1u << l) - 1))] = c[e];
          found += __popc(which);
        }
        __syncwarp();
        for (uint32_t f = 0; f < found; f += 4) {
          uint32_t code[4];
          uint16_t r[4];
          float inv[4];
#pragma unroll
          for (int k = 0; k < 4; k++) code[k] = queue[min(f + k, found - 1)];
#pragma unroll
          for (int k = 0; k < 4; k++) r[k] = __ldg(rows + size_t(code[k]) * kColumns), inv[k] = p.inv_scale ? __ldg(p.inv_scale + code[k]) : 1.0f;
#pragma unroll
          for (int k = 0; k < 4; k++) {
            const float s = fmaf(p.half_rows ? __half2float(__ushort_as_half(r[k])) : float(r[k]) * 256.0f, col.x, col.y);
            best = fmaxf(best, (p.inv_scale ? s / inv[k] : s) - col.z);
          }
        }
        __syncwarp();
      }
      if (best > 0) gain = fmaf(best + gap, col.w, gain);
    }
    for (int s = 16; s; s >>= 1) gain += __shfl_xor_sync(0xffffffffu, gain, s);
    if (l == 0) {
      const uint32_t level = min(uint32_t(gain * kGainLevels), kGainLevels - 1u);
      p.gains[i] = level;
      atomicAdd(&p.levels[level], 1);
    }
    units = after, after = later, own = next;
  }
}
extern "C" __global__ void __launch_bounds__(512, 3) gains(const __grid_constant__ GainParams p) {
  extern __shared__ uint32_t shared_bits[];
  const uint32_t *bits = stage_bits(p.bits, p.bit_words, p.staged, shared_bits);
  if (p.code_bytes == 2) find_gains<2>(p, bits);
  else find_gains<4>(p, bits);
}

extern "C" __global__ void __launch_bounds__(256) compact(const __grid_constant__ CompactParams p) {
  const uint32_t doc = blockIdx.x * 256 + threadIdx.x, l = threadIdx.x & 31;
  const bool in = doc < p.docs && (p.hits[doc] >> p.query & 1) && (p.allowed[doc / 32] >> (doc & 31) & 1);
  const uint32_t b = __ballot_sync(0xffffffffu, in);
  if (!b) return;
  uint32_t base = 0;
  if (l == 0) base = atomicAdd(p.n, __popc(b));
  base = __shfl_sync(0xffffffffu, base, 0);
  if (in) p.list[base + __popc(b & ((1u << l) - 1))] = doc;
}

}  // namespace plaid
