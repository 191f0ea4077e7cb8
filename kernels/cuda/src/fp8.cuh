// fp8.cuh: the fast scan of sm_90a, uniform levels of 1, 2 and 4 bits.
//
// In e4m3 the bytes 0 to 15 are 0 to 15 times 2^-9: masked fields are operands
// as they are, a field 2^p high in its half-byte being worth 2^p more, for
// which its coefficient is divided. Coefficients are the sum of two e4m3 parts
// (twice the products). Sums are half precision, so that rows of S in lane
// order, copied to shared memory, are read straight into the accumulators,
// and factor and maximum take 8 HMUL2 and 4 three-way maxima for 16 tokens ×
// 32 query tokens. wgmma.m64n32k32: the four warps of a block multiply in
// step, each with tiles of its own; the query operand is in shared memory.
//
// 2 bits, 128 dimensions: 68 registers, 28 warps an SM, 149 instructions for
// 16 tokens (8 QGMMA, 20 to decode, 16 to finish, about 60 of addresses and
// copies, the rest at document ends). Bound: HBM, 44 bytes a token with the
// places that fill tiles. Measured on an H200, a million documents of 40 to
// 120 tokens, K = 65,536: 49 G tokens/s; the data pipe of shared memory and L1
// is 72 % busy, half of that the query operand, issue slots 63 %, DRAM 45 %.
// Rows of S loaded straight into registers, without the ring: 47. Score error
// over 32 query tokens 7.7e-4 rms, 2.9e-3 worst of 600 documents, 4e-3 among
// the best 4,096 of a million: scan_b* is the more precise.
#pragma once
#include "ring.cuh"

namespace plaid {

__device__ __forceinline__ void wgmma_step(uint32_t (&c)[8], const uint32_t (&a)[4], uint64_t b) {
#ifdef PLAID_SM90A
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f16.e4m3.e4m3 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1;\n}"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

__device__ __forceinline__ uint32_t hmul2(uint32_t a, uint32_t b) {
  uint32_t v;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
}
__device__ __forceinline__ uint32_t hmax2(uint32_t a, uint32_t b) {
  uint32_t v;
  asm("max.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
}

// Steps of 32 dimensions of a part of the query operand, 1 KiB each.
template <int NB, int W> constexpr int kFp8Steps = NB == 1 ? 4 * W : NB == 2 ? 2 * W : W;

// masked gives a field of each byte of w, times 2 to its place in the half-byte.
template <int NB> __device__ __forceinline__ uint32_t masked(uint32_t w, int field) {
  const int in_half = 4 / NB;  // fields of a half-byte
  const uint32_t mask = (NB == 1 ? 0x01010101u : NB == 2 ? 0x03030303u : 0x0F0F0F0Fu) << (field % in_half * NB);
  return (field >= in_half ? w >> 4 : w) & mask;
}

template <int NB, int W, bool kList>
__device__ __forceinline__ void scan_fp8(const ScanParams &p) {
  constexpr int kSteps = kFp8Steps<NB, W>, kPer = 8 / NB / 2;  // steps a word
  constexpr uint32_t kWordSlot = 256, kWordMask = 4 * kWordSlot - 1, kSlot = 1024;
  extern __shared__ __align__(1024) char rings[];
  Walk walk;
  walk.start(p);
  const int l = lane_id(), g = l >> 2, j = l & 3;
  const uint32_t base = uint32_t(__cvta_generic_to_shared(rings));
  {
    const uint4 *f = reinterpret_cast<const uint4 *>(p.frags + size_t(blockIdx.y) * p.frag_stride);
    for (uint32_t i = threadIdx.x; i < 2 * kSteps * 64; i += blockDim.x) reinterpret_cast<uint4 *>(rings)[i] = __ldg(f + i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
  }
  // The first warp of a block has the most tiles.
  const uint32_t n = p.n_tiles_dev ? *p.n_tiles_dev : p.n_tiles;
  const uint32_t first = blockIdx.x * 4 * walk.per;
  if (first >= n) return;
  const uint32_t rounds = min(walk.per, n - first);
  const uint32_t lo = walk.t0, hi = walk.t1;
  const uint32_t final_tile = hi > lo ? hi - 1 : 0;  // what a warp without more tiles repeats

  // No swizzle; core matrices are 128 bytes apart along dimensions, 256 along query tokens.
  const uint64_t desc = uint64_t(base >> 4 & 0x3FFF) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
  const char *s = reinterpret_cast<const char *>(p.s_rows + blockIdx.y * p.s_stride) + j * 16;
  const float scale = p.cols[blockIdx.y * kColumns + Walk::column()].z;

  uint32_t ring = base + 2 * kSteps * 1024 + threadIdx.x / 32 * kRingBytes<W>;
  uint32_t word_in = ring + l * 8, word_out = ring + g * 8;
  uint32_t row_in = ring + 1024 + l * 16, row_out = ring + 1024 + (g * 4 + j) * 4 * W;
  uint32_t s_at = ring + 1024 + 1024 * W + l * 16;
  uint32_t s_sum = 2 * s_at + kSlot;
  for (uint32_t *v : {&ring, &word_in, &word_out, &row_in, &row_out, &s_at, &s_sum}) *v = __shfl_sync(0xffffffffu, *v, l);
  const bool lower = l < 16, lane0 = l == 0;

  uint32_t next = min(lo, final_tile);
  const char *words = reinterpret_cast<const char *>(p.words) + l * 8;
  const char *rows = reinterpret_cast<const char *>(p.rows) + l * 16;
  const uint32_t *docs = p.tile_doc + next;
  uint2 entry;
  if constexpr (kList) {
    entry = load_stream(p.walk + next);
  } else {
    words += size_t(next) * 128, rows += size_t(next) * (256 * W);
  }
  auto copy_tile = [&](uint32_t slot) {
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
      entry = load_stream(p.walk + min(next, final_tile));
    } else {
      // Past the last tile of all, the copies stay within the four spare tiles.
      if (lane0) copy_async<4>(to + 128, docs);
      words += 128, rows += 256 * W, docs++;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  auto copy_s = [&](uint32_t slot, uint32_t to) {
    const uint32_t at = word_out + slot;
    const uint32_t c0 = shared_load<uint32_t>(at), c1 = shared_load<uint32_t>(at + 64);
    copy_async<16>(to, s + c0);
    copy_async<16>(to + 512, s + c1);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  copy_tile(0), copy_tile(kWordSlot);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncwarp();
  bool head = p.doc_first[shared_load<uint32_t>(ring + 128) & ~kLast] < lo;
  copy_s(0, s_at);
  copy_tile(2 * kWordSlot);

  constexpr uint32_t kLowest = 0xFC00FC00u;  // −inf
  uint32_t best[4] = {kLowest, kLowest, kLowest, kLowest};
  uint32_t slot = 0;
  const uint32_t mine = hi - lo;
  const uint32_t copies = max(mine, 1u);  // a warp without tiles needs its four slots filled too
  for (uint32_t i = 0; i < rounds; i++) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();
    const uint32_t after = (slot + kWordSlot) & kWordMask;
    copy_s(after, s_sum - s_at);
    if (kList || i < copies) copy_tile((slot - kWordSlot) & kWordMask);
    else asm volatile("cp.async.commit_group;" ::: "memory");

    uint32_t acc[8], r0[W], r1[W], a[kSteps][4];
    {
      const uint4 u = shared_load<uint4>(s_at), v = shared_load<uint4>(s_at + 512);
      acc[0] = u.x, acc[2] = u.y, acc[4] = u.z, acc[6] = u.w;
      acc[1] = v.x, acc[3] = v.y, acc[5] = v.z, acc[7] = v.w;
    }
    const uint32_t at = row_out + slot * W;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      uint32_t(&x)[W] = h ? r1 : r0;
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
    const float f0 = __uint_as_float(shared_load<uint32_t>(word_out + slot + 4)), f1 = __uint_as_float(shared_load<uint32_t>(word_out + slot + 68));
    const uint32_t doc = shared_load<uint32_t>(ring + slot + 128);
#pragma unroll
    for (int w = 0; w < W; w++)
#pragma unroll
      for (int k = 0; k < kPer; k++) {
        uint32_t(&x)[4] = a[w * kPer + k];
        x[0] = masked<NB>(r0[w], 2 * k), x[1] = masked<NB>(r1[w], 2 * k);
        x[2] = masked<NB>(r0[w], 2 * k + 1), x[3] = masked<NB>(r1[w], 2 * k + 1);
      }
#ifdef PLAID_SM90A
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 2 * kSteps; k++) wgmma_step(acc, a[k % kSteps], desc + k * 64);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    const __half2 n0 = __float2half2_rn(f0), n1 = __float2half2_rn(f1);
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3]), "+r"(acc[4]), "+r"(acc[5]), "+r"(acc[6]), "+r"(acc[7])::"memory");
    const uint32_t m0 = *reinterpret_cast<const uint32_t *>(&n0), m1 = *reinterpret_cast<const uint32_t *>(&n1);
#pragma unroll
    for (int b = 0; b < 4; b++) best[b] = hmax2(hmax2(best[b], hmul2(acc[2 * b], m0)), hmul2(acc[2 * b + 1], m1));
#endif
    slot = after;
    s_at = s_sum - s_at;
    const bool last = doc & kLast;
    if (i < mine && (last || i + 1 == mine)) {
      uint32_t x[2];
      const bool h4 = l & 16, h3 = l & 8;
#pragma unroll
      for (int b = 0; b < 2; b++) x[b] = hmax2(h4 ? best[2 + b] : best[b], __shfl_xor_sync(0xffffffffu, h4 ? best[b] : best[2 + b], 16));
      uint32_t y = hmax2(h3 ? x[1] : x[0], __shfl_xor_sync(0xffffffffu, h3 ? x[0] : x[1], 8));
      y = hmax2(y, __shfl_xor_sync(0xffffffffu, y, 4));
      float m = __half2float(__ushort_as_half(uint16_t(l & 4 ? y >> 16 : y)));
      bool whole = last && !head;
      if (!whole) {
        const uint32_t bits = __float_as_uint(m);
        const uint2 joined = join(p, walk.part, walk.count, walk.warp, walk.per, doc & ~kLast, head ? 0 : 1, bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u));
        m = __uint_as_float(joined.x ^ (joined.x & 0x80000000u ? 0x80000000u : 0xFFFFFFFFu));
        whole = joined.y;
        head = false;
      }
      float v = m * scale;
#pragma unroll
      for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
      if (whole && lane0) walk.scores[doc & ~kLast] = v;
#pragma unroll
      for (int b = 0; b < 4; b++) best[b] = kLowest;
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

}  // namespace plaid
