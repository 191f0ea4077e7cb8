// walk.cuh: what all scans share: the run of tiles that belongs to a warp,
// loads some tiles ahead, and the end of a document.
//
// A warp takes the tiles [w·per, (w+1)·per) of the walk. A document inside
// them is finished by the warp alone. Of one that reaches further the warp
// leaves its column maxima in part: slot 0 when the document began before the
// warp's tiles, slot 1 otherwise; the warp that leaves the last piece joins them.
#pragma once
#include "plaid.cuh"

namespace plaid {

constexpr uint32_t kLast = 0x80000000u;

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

__device__ __forceinline__ uint32_t max3(uint32_t a, uint32_t b, uint32_t c) { return __vimax3_u32(a, b, c); }

// Streamed once: kept out of L1.
__device__ __forceinline__ uint2 load_stream(const uint2 *p) {
  uint2 v;
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 load_stream(const uint4 *p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_stream(const uint32_t *p) {
  uint32_t v;
  asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 load_row(const char *p) {
  uint4 v;
  asm("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// join leaves a warp's piece of a document, and returns the maxima of the
// whole of it in x, with 1 in y, where that was the last piece to come.
// A call, with plain arguments: rare, and nothing of the scan goes to memory.
__device__ __noinline__ uint2 join(const ScanParams &p, uint32_t *part, uint32_t *count, uint32_t warp, uint32_t per,
                                   uint32_t doc, int slot, uint32_t m) {
  const uint32_t owner = p.doc_first[doc] / per, end = (p.doc_end[doc] - 1) / per;
  const int l = lane_id();
  __stcg(&part[(size_t(warp) * 2 + slot) * kColumns + l], m);
  __threadfence();
  __syncwarp();
  uint32_t before = 0;
  if (l == 0) before = atomicAdd(&count[owner], 1);
  before = __shfl_sync(0xffffffffu, before, 0);
  if (before != end - owner) return {0, 0};
  __threadfence();
  m = __ldcg(&part[(size_t(owner) * 2 + 1) * kColumns + l]);
#pragma unroll 8
  for (uint32_t w = owner + 1; w <= end; w++) m = max(m, __ldcg(&part[size_t(w) * 2 * kColumns + l]));
  if (l == 0) count[owner] = 0;
  return {m, 1};
}

// Walk is a warp's share and the place of its results. Best has, in lane
// 4g + j, the maxima of columns 8b + 2j + c over rows g and g + 8 of the tiles
// so far, at index 2b + c.
struct Walk {
  uint32_t t0, t1, per;
  uint32_t warp;                  // number in the grid row
  bool head;                      // the document in hand began before t0
  const ScanParams *p;
  float *scores;
  uint32_t *part, *count;

  __device__ __forceinline__ bool start(const ScanParams &params) {
    p = &params;
    const uint32_t warps = gridDim.x * (blockDim.x / 32);
    // The same in all lanes: keep it in uniform registers.
    warp = __shfl_sync(0xffffffffu, blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, 0);
    const uint32_t n = p->n_tiles_dev ? *p->n_tiles_dev : p->n_tiles;
    per = (n + warps - 1) / warps;
    t0 = min(uint64_t(warp) * per, uint64_t(n));
    t1 = min(uint64_t(t0) + per, uint64_t(n));
    const size_t g = blockIdx.y;
    scores = p->scores + g * p->score_stride;
    part = p->part + g * warps * 2 * kColumns;
    count = p->count + g * warps;
    return t0 < t1;
  }

  // column of this lane after spread().
  __device__ __forceinline__ static int column() {
    const int l = lane_id();
    const int i = (l >> 4 & 1) * 4 + (l >> 3 & 1) * 2 + (l >> 2 & 1);
    return (i >> 1) * 8 + (l & 3) * 2 + (i & 1);
  }

  // spread reduces over the rows: each lane is left with column().
  __device__ __forceinline__ static uint32_t spread(const uint32_t best[8]) {
    const int l = lane_id();
    const bool h4 = l & 16, h3 = l & 8, h2 = l & 4;
    uint32_t a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t keep = h4 ? best[4 + i] : best[i], send = h4 ? best[i] : best[4 + i];
      a[i] = max(keep, __shfl_xor_sync(0xffffffffu, send, 16));
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t keep = h3 ? a[2 + i] : a[i], send = h3 ? a[i] : a[2 + i];
      b[i] = max(keep, __shfl_xor_sync(0xffffffffu, send, 8));
    }
    const uint32_t keep = h2 ? b[1] : b[0], send = h2 ? b[0] : b[1];
    return max(keep, __shfl_xor_sync(0xffffffffu, send, 4));
  }

  template <class Body>
  __device__ __forceinline__ void write(const Body &body, uint32_t doc, uint32_t m) {
    float v = body.value(m);
#pragma unroll
    for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffffu, v, s);
    if (lane_id() == 0) scores[doc] = v;
  }

  // end closes the document whose maxima are in best: at its last tile, or
  // (last false) at the end of the warp's tiles.
  template <class Body>
  __device__ __forceinline__ void end(const Body &body, uint32_t doc, bool last, const uint32_t best[8]) {
    const uint32_t m = spread(best);
    if (last && !head) {
      write(body, doc, m);
      return;
    }
    const uint2 joined = join(*p, part, count, warp, per, doc, head ? 0 : 1, m);
    head = false;
    if (joined.y) write(body, doc, joined.x);
  }

};

// run drives a Body over the warp's tiles. Body has
//   Raw, raw(tile)          what a tile needs from the resident arrays
//   Row, row(raw)           what of it must wait for that: rows of S
//   add(raw, row, best)     maxima
//   value(m)                a column's part of the score
template <bool kList, class Body>
__device__ __forceinline__ void run(const ScanParams &p, Walk &walk, Body &body) {
  struct Place {
    uint32_t tile, doc;
  };
  auto place = [&](uint32_t t) -> Place {
    if constexpr (kList) {
      const uint2 e = load_stream(p.walk + min(t, walk.t1 - 1));
      return {e.x, e.y};
    } else {
      return {t, load_stream(p.tile_doc + t)};
    }
  };
  uint32_t best[8] = {};
  uint32_t t = walk.t0;
  Place e0 = place(t), e1 = place(t + 1), e2 = place(t + 2);
  walk.head = p.doc_first[e0.doc & ~kLast] < walk.t0;
  typename Body::Raw r0 = body.raw(e0.tile), r1 = body.raw(e1.tile);
  typename Body::Row s0 = body.row(r0), s1;
  uint32_t doc;
  // Two tiles a round, so that no register moves.
  while (true) {
    s1 = body.row(r1);
    doc = e0.doc;
    body.add(r0, s0, best);
    r0 = body.raw(e2.tile);
    e0 = e2;
    e2 = place(t + 3);
    if (doc & kLast) {
      walk.end(body, doc & ~kLast, true, best);
#pragma unroll
      for (int i = 0; i < 8; i++) best[i] = 0;
    }
    if (++t == walk.t1) break;
    s0 = body.row(r0);
    doc = e1.doc;
    body.add(r1, s1, best);
    r1 = body.raw(e2.tile);
    e1 = e2;
    e2 = place(t + 3);
    if (doc & kLast) {
      walk.end(body, doc & ~kLast, true, best);
#pragma unroll
      for (int i = 0; i < 8; i++) best[i] = 0;
    }
    if (++t == walk.t1) break;
  }
  if (!(doc & kLast)) walk.end(body, doc, false, best);
}

}  // namespace plaid
