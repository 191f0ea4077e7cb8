// lists.cu: lists of documents for the scans: from the host, or from probed
// centroids.
#include "plaid.cuh"

namespace plaid {

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
  for (uint32_t i = threadIdx.x; i < total; i += 256) {
    uint32_t lo = 0, hi = 256;  // start[lo] <= i < start[hi]
    while (hi - lo > 1) {
      const uint32_t m = (lo + hi) / 2;
      if (start[m] <= i) lo = m; else hi = m;
    }
    const bool last = i + 1 == start[lo + 1];
    if (base + i < p.walk_capacity)
      p.walk[base + i] = make_uint2(first[lo] + (i - start[lo]), (pos0 + lo) | (last ? 0x80000000u : 0));
  }
}

extern "C" __global__ void __launch_bounds__(256) probe_mark(const __grid_constant__ MarkParams p) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= p.columns * p.n) return;
  const uint32_t column = i / p.n;
  if (!(p.weights[column] > 0)) return;
  uint32_t q = 0;
  while (q + 1 < p.queries && p.group_begin[q + 1] <= column / kColumns) q++;
  const uint32_t c = p.ids[size_t(column) * p.picked + i % p.n];
  if (c != 0xFFFFFFFFu) atomicOr(&p.marks[c], 1u << q);
}

// candidates: a thread a token; reads 8 bytes a token, and 4 of the marks, which
// are in L1 or L2.
extern "C" __global__ void __launch_bounds__(256) candidates(const __grid_constant__ CandidateParams p) {
  const uint64_t tokens = uint64_t(p.tiles) * kTile, stride = uint64_t(gridDim.x) * 256;
  for (uint64_t t = uint64_t(blockIdx.x) * 256 + threadIdx.x; t < tokens; t += stride) {
    // One lane a tile asks for its 16 tokens. The loop is uniform in a half-warp.
    uint32_t m = __ldg(&p.marks[p.words[t].x / 64]);
    m = __reduce_or_sync(0xffffu << (threadIdx.x & 16), m);
    if (m && (threadIdx.x & 15) == 0) atomicOr(&p.hits[p.tile_doc[t / kTile] & 0x7FFFFFFFu], m);
  }
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
