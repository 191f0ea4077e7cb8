// fp8.cuh: the fast scan of sm_90a, uniform levels of 1, 2 and 4 bits.
//
// In e4m3 the bytes 0 to 15 are 0 to 15 times 2^-9: masked fields are operands
// as they are, a field 2^p high in its half-byte being worth 2^p more, for
// which its coefficient is divided. A coefficient is one e4m3 number: its rounding is
// the smaller part of the error (plaid.cuh, Bounds), and the largest share of the
// bound that was seen on real vectors is 0.08, where it was 0.05 with a second
// number for what the first leaves, and twice the products.
//
// Sums are half precision, so that rows of S in lane order, copied to shared
// memory, are read straight into the accumulators, and factor and maximum take
// 8 HMUL2 and 4 three-way maxima for 16 tokens × 32 query tokens. wgmma: the
// four warps of a block multiply in step, each with tiles of its own; the query
// operand is in shared memory. Two or four groups side by side share what there
// is to do for a token: its copies, its decoding, its place.
//
// 2 bits, 128 dimensions, for 16 tokens and a group: 150 instructions; with two
// side by side 99, with four 66. Registers: 68, 80 and 108. Measured on an H200, a
// million documents of 40 to 120 tokens, K = 65,536: 59 G tokens/s for one query,
// limited by all at once (the data pipe of shared memory and L1 73 % busy, issue
// slots 70 %, L2 69 %, DRAM 53 %, tensor cores 30 %); for eight, token-queries:
// 54 G with one group, 67 with two, 76 with four. Long runs are limited by power:
// the clock falls from 1.98 to 1.4-1.7 GHz at 700 W.
#pragma once
#include "ring.cuh"

namespace plaid {

// wgmma_step adds the products of 64 tokens, 16 a warp, with 8, 16 or 32 registers' columns.
#define PLAID_REGS8(c, i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), "+r"(c[i + 7])
#define PLAID_WGMMA(n, cs, a0, a1, a2, a3, b, ...)                                                                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                                      \
      "wgmma.mma_async.sync.aligned.m64n" #n "k32.f16.e4m3.e4m3 {" cs "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", p, 1, 1;\n}"    \
      : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at))
#define PLAID_C8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define PLAID_C16 PLAID_C8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define PLAID_C32 PLAID_C16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
template <int N> __device__ __forceinline__ void wgmma_step(uint32_t (&c)[N], const uint32_t (&a)[4], uint64_t b_at) {
#ifdef PLAID_SM90A
  if constexpr (N == 8) PLAID_WGMMA(32, PLAID_C8, "%8", "%9", "%10", "%11", "%12", PLAID_REGS8(c, 0));
  else if constexpr (N == 16) PLAID_WGMMA(64, PLAID_C16, "%16", "%17", "%18", "%19", "%20", PLAID_REGS8(c, 0), PLAID_REGS8(c, 8));
  else PLAID_WGMMA(128, PLAID_C32, "%32", "%33", "%34", "%35", "%36", PLAID_REGS8(c, 0), PLAID_REGS8(c, 8), PLAID_REGS8(c, 16), PLAID_REGS8(c, 24));
#endif
}
// wgmma_wait returns when the sums are in the registers.
template <int N> __device__ __forceinline__ void wgmma_wait(uint32_t (&c)[N]) {
#ifdef PLAID_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  if constexpr (N == 8) asm volatile("wgmma.wait_group.sync.aligned 0;" : PLAID_REGS8(c, 0)::"memory");
  else if constexpr (N == 16) asm volatile("wgmma.wait_group.sync.aligned 0;" : PLAID_REGS8(c, 0), PLAID_REGS8(c, 8)::"memory");
  else asm volatile("wgmma.wait_group.sync.aligned 0;" : PLAID_REGS8(c, 0), PLAID_REGS8(c, 8), PLAID_REGS8(c, 16), PLAID_REGS8(c, 24)::"memory");
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

constexpr uint32_t kLowest = 0xFC00FC00u;  // two halves of −inf

// join_pairs is join for kPairs pairs of columns a lane.
template <int kPairs>
__device__ __noinline__ uint4 join_pairs(const ScanParams &p, uint32_t *part, uint32_t *count, uint32_t warp, uint32_t per,
                                         uint32_t doc, int slot, uint2 m) {
  const uint32_t owner = p.doc_first[doc] / per, end = (p.doc_end[doc] - 1) / per;
  const int l = lane_id();
  auto at = [&](uint32_t w, int slot, int i) { return &part[((size_t(w) * 2 + slot) * kPairs + i) * 32 + l]; };
  __stcg(at(warp, slot, 0), m.x);
  if constexpr (kPairs == 2) __stcg(at(warp, slot, 1), m.y);
  __threadfence();
  __syncwarp();
  uint32_t before = 0;
  if (l == 0) before = atomicAdd(&count[owner], 1);
  before = __shfl_sync(0xffffffffu, before, 0);
  if (before != end - owner) return {0, 0, 0, 0};
  __threadfence();
  m.x = __ldcg(at(owner, 1, 0));
  if constexpr (kPairs == 2) m.y = __ldcg(at(owner, 1, 1));
#pragma unroll 8
  for (uint32_t w = owner + 1; w <= end; w++) {
    m.x = hmax2(m.x, __ldcg(at(w, 0, 0)));
    if constexpr (kPairs == 2) m.y = hmax2(m.y, __ldcg(at(w, 0, 1)));
  }
  if (l == 0) count[owner] = 0;
  return {m.x, m.y, 1, 0};
}

// Ends turns the maxima of a document into its scores for the groups side by side.
// In lane 4g + j, maximum 4q + b is that of the pair of columns 8b + 2j of group q, over
// rows g and g + 8. Lane bits 4, 3 and 2 in turn halve the maxima and double the rows that
// they stand for. A lane is left with kSide columns of one group: one of a pair, which two
// lanes have, or kSide/2 pairs.
template <int kSide> struct Ends {
  static constexpr int kPairs = kSide == 4 ? 2 : 1, kLanes = 32 / kSide;  // lanes of a group
  uint32_t *part;
  uint32_t group;
  float scale[kSide];

  __device__ __forceinline__ explicit Ends(const ScanParams &p) {
    const int l = lane_id();
    part = p.part + size_t(blockIdx.y) * gridDim.x * (blockDim.x / 32) * 2 * 32 * kPairs;
    group = blockIdx.y * kSide + l / kLanes;
    const float4 *cols = p.cols + size_t(min(group, p.groups - 1)) * kColumns + (l & 3) * 2;
    if constexpr (kSide == 1) {
      scale[0] = cols[(l >> 3) * 8 + (l >> 2 & 1)].z;
    } else {
#pragma unroll
      for (int i = 0; i < kSide; i++) scale[i] = cols[(kSide == 2 ? l >> 2 & 3 : (l >> 2 & 1) * 2 + i / 2) * 8 + i % 2].z;
    }
  }

  // half folds n maxima by a lane bit: half as many, over twice the rows.
  template <int n> __device__ __forceinline__ static void half(uint32_t *to, const uint32_t *from, int bit) {
    const bool upper = lane_id() & bit;
#pragma unroll
    for (int i = 0; i < n / 2; i++) {
      const uint32_t keep = upper ? from[n / 2 + i] : from[i], send = upper ? from[i] : from[n / 2 + i];
      to[i] = hmax2(keep, __shfl_xor_sync(0xffffffffu, send, bit));
    }
  }

  // end writes the scores of a document at its last tile, or leaves the maxima for
  // the last warp, if several warps share the document: head says that it began before.
  __device__ __forceinline__ void end(const ScanParams &p, const Walk &walk, uint32_t doc, bool last, bool head, const uint32_t (&best)[4 * kSide]) const {
    const int l = lane_id();
    uint32_t x[2 * kSide];
    half<4 * kSide>(x, best, 16);
    half<2 * kSide>(x, x, 8);
    if constexpr (kSide == 1) x[0] = hmax2(x[0], __shfl_xor_sync(0xffffffffu, x[0], 4));
    else half<kSide>(x, x, 4);
    bool whole = last && !head;
    if (!whole) {
      const uint4 joined = join_pairs<kPairs>(p, part, walk.count, walk.warp, walk.per, doc, head ? 0 : 1, make_uint2(x[0], x[kPairs - 1]));
      x[0] = joined.x, whole = joined.z;
      if constexpr (kPairs == 2) x[1] = joined.y;
    }
    float v = 0;
    if constexpr (kSide == 1) {
      v = __half2float(__ushort_as_half(uint16_t(l & 4 ? x[0] >> 16 : x[0]))) * scale[0];
    } else {
#pragma unroll
      for (int i = 0; i < kPairs; i++) {
        const float2 m = __half22float2(*reinterpret_cast<const __half2 *>(&x[i]));
        v += m.x * scale[2 * i] + m.y * scale[2 * i + 1];
      }
    }
#pragma unroll
    for (int o = kLanes / 2; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    if (whole && l % kLanes == 0 && group < p.groups) p.scores[group * p.score_stride + doc] = v;
  }
};

// scan_fp8 takes kSide groups side by side: their columns are those of one product, and
// their rows of S lie one behind the other.
template <int NB, int W, bool kList, int kSide = 1>
__device__ __forceinline__ void scan_fp8(const ScanParams &p) {
  constexpr int kSteps = kFp8Steps<NB, W>, kPer = 8 / NB / 2;  // steps a word
  constexpr uint32_t kWordSlot = 256, kWordMask = 4 * kWordSlot - 1, kSlot = 1024 * kSide;
  constexpr int kPieces = 4 * kSide, kRows = 32 / kPieces;  // 16-byte pieces of a row of S, rows a copy
  extern __shared__ __align__(1024) char rings[];
  Walk walk;
  walk.start(p);
  const int l = lane_id(), g = l >> 2, j = l & 3;
  const uint32_t base = uint32_t(__cvta_generic_to_shared(rings));
#pragma unroll
  for (int q = 0; q < kSide; q++) {
    const uint4 *f = reinterpret_cast<const uint4 *>(p.frags + size_t(min(blockIdx.y * kSide + q, p.groups - 1)) * p.frag_stride);
    for (uint32_t i = threadIdx.x; i < kSteps * 64; i += blockDim.x)
      reinterpret_cast<uint4 *>(rings)[(i / 64 * kSide + q) * 64 + i % 64] = __ldg(f + i);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  // Four warps multiply in step; the first of them has the most tiles.
  const uint32_t n = p.n_tiles_dev ? *p.n_tiles_dev : p.n_tiles;
  const uint32_t first = (walk.warp & ~3u) * walk.per;
  if (first >= n) return;
  const uint32_t rounds = min(walk.per, n - first);
  const uint32_t lo = walk.t0, hi = walk.t1;
  const uint32_t final_tile = hi > lo ? hi - 1 : 0;  // what a warp without more tiles repeats

  // No swizzle; core matrices are 128 bytes apart along dimensions, 256 along query tokens.
  const uint64_t desc = uint64_t(base >> 4 & 0x3FFF) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
  const char *s = reinterpret_cast<const char *>(p.s_rows + blockIdx.y * kSide * p.s_stride) + l % kPieces * 16;
  const Ends<kSide> ends(p);

  uint32_t ring = base + kSteps * 1024 * kSide + threadIdx.x / 32 * kRingBytes<W, kSide>;
  uint32_t word_in = ring + l * 8, word_out = ring + g * 8, code_out = ring + l / kPieces * 8;
  uint32_t row_in = ring + 1024 + l * 16, row_out = ring + 1024 + (g * 4 + j) * 4 * W;
  // Rows of S: this round's slot; the other is kSlot further or back. Where a row is more
  // than 64 bytes, every other one has its halves of 128 bytes swapped, so that neither
  // copies nor loads meet in a bank.
  uint32_t s_at = ring + 1024 + 1024 * W + (kSide == 1 ? l * 16 : g * 64 * kSide + (g & 1) * 64 + j * 16);
  uint32_t s_sum = 2 * s_at + kSlot;
  uint32_t s_in = kSide == 1 ? 0 : ring + 1024 + 1024 * W + (l ^ (l / kPieces & 1) * 4) * 16 - s_at;  // from s_at
  for (uint32_t *v : {&ring, &word_in, &word_out, &code_out, &row_in, &row_out, &s_at, &s_sum, &s_in}) *v = __shfl_sync(0xffffffffu, *v, l);
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
    const uint32_t at = code_out + slot;
#pragma unroll
    for (int i = 0; i < 2 * kSide; i++) copy_async<16>(to + s_in + i * 512, s + size_t(shared_load<uint32_t>(at + i * kRows * 8)) * kSide);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  copy_tile(0), copy_tile(kWordSlot);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncwarp();
  bool head = p.doc_first[shared_load<uint32_t>(ring + 128) & ~kLast] < lo;
  copy_s(0, s_at);
  copy_tile(2 * kWordSlot);

  uint32_t best[4 * kSide];
#pragma unroll
  for (int b = 0; b < 4 * kSide; b++) best[b] = kLowest;
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

    uint32_t acc[8 * kSide], r0[W], r1[W], a[kSteps][4];
#pragma unroll
    for (int q = 0; q < kSide; q++) {
      const uint4 u = shared_load<uint4>(s_at ^ q * 64), v = shared_load<uint4>((s_at ^ q * 64) + 512 * kSide);
      acc[8 * q] = u.x, acc[8 * q + 2] = u.y, acc[8 * q + 4] = u.z, acc[8 * q + 6] = u.w;
      acc[8 * q + 1] = v.x, acc[8 * q + 3] = v.y, acc[8 * q + 5] = v.z, acc[8 * q + 7] = v.w;
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
#endif
#pragma unroll
    for (int k = 0; k < kSteps; k++) wgmma_step(acc, a[k], desc + k * 64 * kSide);
    const __half2 n0 = __float2half2_rn(f0), n1 = __float2half2_rn(f1);
    wgmma_wait(acc);
    const uint32_t m0 = *reinterpret_cast<const uint32_t *>(&n0), m1 = *reinterpret_cast<const uint32_t *>(&n1);
#pragma unroll
    for (int b = 0; b < 4 * kSide; b++) best[b] = hmax2(hmax2(best[b], hmul2(acc[2 * b], m0)), hmul2(acc[2 * b + 1], m1));
    slot = after;
    s_at = s_sum - s_at;
    const bool last = doc & kLast;
    if (i < mine && (last || i + 1 == mine)) {
      ends.end(p, walk, doc & ~kLast, last, head, best);
      head = false;
#pragma unroll
      for (int b = 0; b < 4 * kSide; b++) best[b] = kLowest;
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

}  // namespace plaid
