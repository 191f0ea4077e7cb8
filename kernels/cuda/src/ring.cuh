// ring.cuh: the scan's main loop. What a tile needs is copied into rings of
// shared memory that belong to a warp (cp.async: no registers are held while
// copies are under way, and the compiler cannot move them to where the data is
// used, as it does with loads): residuals, words and document four tiles
// ahead, rows of S two tiles ahead.
#pragma once
#include "scan.cuh"

namespace plaid {

template <int kBytes> __device__ __forceinline__ void copy_async(uint32_t to, const void *from) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
}
template <class T> __device__ __forceinline__ T shared_load(uint32_t at);
template <> __device__ __forceinline__ uint32_t shared_load(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
template <> __device__ __forceinline__ uint2 shared_load(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
  return v;
}
template <> __device__ __forceinline__ uint4 shared_load(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
  return v;
}

// A warp's rings: four slots of 256 B for words and document, four of 256·W B
// for residuals, two of 1 KiB for rows of S (each lane's own two quarters), of as
// many groups as are side by side.
template <int W, int kSide = 1> constexpr int kRingBytes = 4 * 256 + 4 * 256 * W + 2 * 1024 * kSide;

template <class Body, bool kList>
__device__ __forceinline__ void scan_ring(const ScanParams &p) {
  constexpr int W = Body::kWords;
  constexpr uint32_t kWordSlot = 256, kWordMask = 4 * kWordSlot - 1, kSlot = 1024;
  extern __shared__ __align__(1024) char rings[];
  Walk walk;
  if (!walk.start(p)) return;
  const int l = lane_id(), g = l >> 2, j = l & 3;
  Body body;
  body.load(p);

  uint32_t ring = uint32_t(__cvta_generic_to_shared(rings)) + threadIdx.x / 32 * kRingBytes<W>;
  uint32_t word_in = ring + l * 8, word_out = ring + g * 8;
  uint32_t row_in = ring + 1024 + l * 16, row_out = ring + 1024 + (g * 4 + j) * 4 * W;
  uint32_t s_at = ring + 1024 + 1024 * W + l * 16;  // this round's slot; the other is 1 KiB further or back
  uint32_t s_sum = 2 * s_at + kSlot;
  // Through a shuffle, or the compiler computes them again in every round.
  for (uint32_t *v : {&ring, &word_in, &word_out, &row_in, &row_out, &s_at, &s_sum}) *v = __shfl_sync(0xffffffffu, *v, l);
  const bool lower = l < 16, lane0 = l == 0;

  // Where the tile to be copied next is.
  uint32_t next = walk.t0;
  const char *words = reinterpret_cast<const char *>(p.words) + l * 8;
  const char *rows = reinterpret_cast<const char *>(p.rows) + l * 16;
  const uint32_t *docs = p.tile_doc + walk.t0;
  uint2 entry;
  if constexpr (kList) {
    entry = load_stream(p.walk + next);
  } else {
    words += size_t(next) * 128, rows += size_t(next) * (256 * W);
  }
  auto copy_tile = [&](uint32_t slot) {  // slot: its offset in the ring of words
    const char *w = words, *r = rows;
    if constexpr (kList) w += size_t(entry.x) * 128, r += size_t(entry.x) * (256 * W);
    const uint32_t to = word_in + slot, row_to = row_in + slot * W;
    if (lower) {
      copy_async<8>(to, w);
      if constexpr (W == 1) copy_async<16>(row_to, r);
    }
    if constexpr (W > 1) {
#pragma unroll
      for (int i = 0; i < W / 2; i++) copy_async<16>(row_to + i * 512, r + i * 512);
    }
    if constexpr (kList) {
      if (lane0) asm volatile("st.shared.u32 [%0+128], %1;" ::"r"(to), "r"(entry.y) : "memory");
      next++;
      entry = load_stream(p.walk + min(next, walk.t1 - 1));
    } else {
      if (lane0) copy_async<4>(to + 128, docs);
      words += 128, rows += 256 * W, docs++;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  auto copy_s = [&](uint32_t slot, uint32_t to) {
    const uint32_t at = word_out + slot;
    const uint32_t c0 = shared_load<uint32_t>(at), c1 = shared_load<uint32_t>(at + 64);
    copy_async<16>(to, body.s + c0);
    copy_async<16>(to + 512, body.s + c1);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  copy_tile(0), copy_tile(kWordSlot);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncwarp();
  walk.head = p.doc_first[shared_load<uint32_t>(word_out - g * 8 + 128) & ~kLast] < walk.t0;
  copy_s(0, s_at);
  copy_tile(2 * kWordSlot);

  uint32_t best[8] = {};
  uint32_t doc;
  uint32_t slot = 0;
  for (uint32_t t = walk.t0;;) {
    // Done: the rows of S of this tile, and the next tile. Under way: the one after.
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();
    const uint32_t after = (slot + kWordSlot) & kWordMask;
    copy_s(after, s_sum - s_at);
    copy_tile((slot - kWordSlot) & kWordMask);

    typename Body::Raw r;
    RowPair s;
    s.a = shared_load<uint4>(s_at);
    s.b = shared_load<uint4>(s_at + 512);
    const uint32_t at = row_out + slot * W;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      uint32_t(&x)[W] = h ? r.r1 : r.r0;
      if constexpr (W == 1) {
        x[0] = shared_load<uint32_t>(at + h * 128);
      } else if constexpr (W == 2) {
        const uint2 v = shared_load<uint2>(at + h * 256);
        x[0] = v.x, x[1] = v.y;
      } else {
        const uint4 v = shared_load<uint4>(at + h * 512);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
      }
    }
    r.w0.y = shared_load<uint32_t>(word_out + slot + 4);
    r.w1.y = shared_load<uint32_t>(word_out + slot + 68);
    doc = shared_load<uint32_t>(ring + slot + 128);
    body.add(r, s, best);
    slot = after;
    s_at = s_sum - s_at;
    t++;
    if (doc & kLast) {
      walk.end(body, doc & ~kLast, true, best);
      if (t == walk.t1) break;
#pragma unroll
      for (int i = 0; i < 8; i++) best[i] = 0;
    } else if (t == walk.t1) {
      walk.end(body, doc, false, best);
      break;
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

}  // namespace plaid
