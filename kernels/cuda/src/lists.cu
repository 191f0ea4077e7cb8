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
  const uint32_t c = p.ids[size_t(column) * p.picked + i % p.n];
  if (c != 0xFFFFFFFFu) atomicOr(&p.bitmap[c / 32], 1u << (c & 31));
}

// candidates: a thread a token; reads 8 bytes a token, and the bitmap from
// shared memory or L1.
extern "C" __global__ void __launch_bounds__(256) candidates(const __grid_constant__ CandidateParams p) {
  extern __shared__ uint32_t marks[];
  const uint32_t *bitmap = p.bitmap;
  if (p.smem) {
    for (uint32_t i = threadIdx.x; i < (p.k + 31) / 32; i += 256) marks[i] = p.bitmap[i];
    __syncthreads();
    bitmap = marks;
  }
  const uint64_t tokens = uint64_t(p.tiles) * kTile, stride = uint64_t(gridDim.x) * 256;
  for (uint64_t t = uint64_t(blockIdx.x) * 256 + threadIdx.x; t < tokens; t += stride) {
    const uint32_t code = p.words[t].x / 64;
    const bool hit = bitmap[code / 32] >> (code & 31) & 1;
    // One lane a tile asks for its 16 tokens. The loop is uniform in a half-warp.
    const uint32_t half = 0xffffu << (threadIdx.x & 16);
    if (__ballot_sync(__activemask(), hit) & half) {
      if ((threadIdx.x & 15) == 0) {
        const uint32_t doc = p.tile_doc[t / kTile] & 0x7FFFFFFFu;
        atomicOr(&p.hits[doc / 32], 1u << (doc & 31));
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) compact(const __grid_constant__ CompactParams p) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x, l = threadIdx.x & 31;
  uint32_t w = i < p.words ? p.a[i] & (p.b ? p.b[i] : 0xffffffffu) : 0;
  uint32_t sum = __popc(w);
  for (int s = 1; s < 32; s <<= 1) {
    const uint32_t v = __shfl_up_sync(0xffffffffu, sum, s);
    if (l >= s) sum += v;
  }
  uint32_t base = 0;
  if (l == 31 && sum) base = atomicAdd(p.n, sum);
  base = __shfl_sync(0xffffffffu, base, 31) + sum - __popc(w);
  for (; w; w &= w - 1, base++)
    if (base < p.capacity) p.list[base] = i * 32 + __ffs(w) - 1;
}

}  // namespace plaid
