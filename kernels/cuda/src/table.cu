// table.cu: decompress + normalise + MaxSim for codebooks given as a table,
// and for scales per centroid that scan_b* cannot take. Fields are looked up,
// four dimensions at a time, as half-precision weights (relative to the
// largest), the query is half precision in units of a row entry of S, sums are
// float32 (mma.m16n8k16). Any number of bits and any dimension; its bound is
// the look-ups, 8 bytes of shared memory for four dimensions of a token.
#include "scan.cuh"

namespace plaid {

__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t b = __float_as_uint(v);
  return b ^ (uint32_t(int32_t(b) >> 31) | 0x80000000u);
}
__device__ __forceinline__ float unordered(uint32_t b) {
  return __uint_as_float(b ^ (b & 0x80000000u ? 0x80000000u : 0xFFFFFFFFu));
}

template <int NB> struct Table {
  struct Raw : Raw2 {
    const uint32_t *q;
  };
  using Row = RowPair;
  const uint2 *words;
  const uint32_t *rows;
  const char *s;
  const uint2 *b;
  const char *lut;
  int w;
  float scale;

  // fills shared memory: the query operand, then the look-up table.
  __device__ __forceinline__ void load(const ScanParams &p, uint2 *shared) {
    const int l = lane_id();
    w = p.lane_words;
    words = p.words + (l >> 2);
    rows = p.rows + ((l >> 2) * 4 + (l & 3)) * w;
    s = reinterpret_cast<const char *>(p.s_rows + blockIdx.y * p.s_stride) + (l & 3) * 16;
    scale = p.cols[blockIdx.y * kColumns + Walk::column()].z;
    const uint4 *f = reinterpret_cast<const uint4 *>(p.frags + size_t(blockIdx.y) * p.frag_stride);
    for (uint32_t i = threadIdx.x; i < p.frag_stride / 4; i += blockDim.x)
      reinterpret_cast<uint4 *>(shared)[i] = __ldg(f + i);
    b = shared + l;
    __half *t = reinterpret_cast<__half *>(reinterpret_cast<uint32_t *>(shared) + p.frag_stride);
    lut = reinterpret_cast<const char *>(t);
    constexpr int per = NB == 1 || NB == 2 ? 4 : NB == 4 ? 2 : 1, entries = NB == 1 ? 16 : 256;
    for (int i = threadIdx.x; i < entries * per; i += blockDim.x)
      t[i] = p.table[(i / per) >> (i % per * NB) & ((1 << NB) - 1)];
    __syncthreads();
  }
  __device__ __forceinline__ Raw raw(uint32_t tile) const {
    Raw r;
    const uint2 *wp = words + size_t(tile) * kTile;
    r.w0 = load_stream(wp), r.w1 = load_stream(wp + 8);
    r.q = rows + size_t(tile) * (kTile * 4) * w;
    return r;
  }
  __device__ __forceinline__ RowPair row(const Raw &r) const { return rows_of(s, r); }

  // look returns the four weights of step i of a word.
  __device__ __forceinline__ uint2 look(uint32_t word, int i) const {
    if constexpr (NB == 1) return *reinterpret_cast<const uint2 *>(lut + ((word >> (4 * i)) & 15) * 8);
    if constexpr (NB == 2) return *reinterpret_cast<const uint2 *>(lut + ((word >> (8 * i)) & 255) * 8);
    if constexpr (NB == 4) {
      const uint32_t h = word >> (16 * i);
      return {*reinterpret_cast<const uint32_t *>(lut + (h & 255) * 4), *reinterpret_cast<const uint32_t *>(lut + (h >> 8 & 255) * 4)};
    }
    auto one = [&](int k) -> uint32_t { return *reinterpret_cast<const uint16_t *>(lut + (word >> (8 * k) & 255) * 2); };
    return {one(0) | one(1) << 16, one(2) | one(3) << 16};
  }
  __device__ __forceinline__ void add(const Raw &r, const RowPair &s, uint32_t (&best)[8]) const {
    float acc[4][4] = {};
    constexpr int per = 8 / NB;  // steps a word
    for (int i = 0; i < w; i++) {
      const uint32_t u = load_stream(r.q + i), v = load_stream(r.q + 32 * w + i);
#pragma unroll
      for (int k = 0; k < per; k++) {
        const uint2 x = look(u, k), y = look(v, k);
#pragma unroll
        for (int n = 0; n < 4; n++) {
          const uint2 q = b[((i * per + k) * 4 + n) * 32];
          asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
              : "+f"(acc[n][0]), "+f"(acc[n][1]), "+f"(acc[n][2]), "+f"(acc[n][3])
              : "r"(x.x), "r"(y.x), "r"(x.y), "r"(y.y), "r"(q.x), "r"(q.y));
        }
      }
    }
    const uint32_t a[4] = {s.a.x, s.a.y, s.a.z, s.a.w}, c[4] = {s.b.x, s.b.y, s.b.z, s.b.w};
    const float n0 = __uint_as_float(r.w0.y), n1 = __uint_as_float(r.w1.y);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float s0 = float((a[n] >> (16 * e)) & 0xffff) - 16384.0f, s1 = float((c[n] >> (16 * e)) & 0xffff) - 16384.0f;
        best[2 * n + e] = max3(best[2 * n + e], ordered((s0 + acc[n][e]) * n0), ordered((s1 + acc[n][e + 2]) * n1));
      }
  }
  __device__ __forceinline__ float value(uint32_t m) const { return unordered(m) * scale; }
};

template <int NB, bool kList> __device__ __forceinline__ void scan_table_bits(const ScanParams &p) {
  extern __shared__ uint2 shared[];
  Table<NB> body;
  body.load(p, shared);
  Walk walk;
  if (!walk.start(p)) return;
  run<kList>(p, walk, body);
}

template <bool kList> __device__ __forceinline__ void scan_table_any(const ScanParams &p) {
  let_next(), wait_before();
  if (blockIdx.x + blockIdx.y == 0) stamp(p.clock);
  switch (p.nbits) {
    case 1: return scan_table_bits<1, kList>(p);
    case 2: return scan_table_bits<2, kList>(p);
    case 4: return scan_table_bits<4, kList>(p);
    default: return scan_table_bits<8, kList>(p);
  }
}

extern "C" __global__ void __launch_bounds__(kScanThreads, 4) scan_table(const __grid_constant__ ScanParams p) { scan_table_any<false>(p); }
extern "C" __global__ void __launch_bounds__(kScanThreads, 4) scan_table_list(const __grid_constant__ ScanParams p) { scan_table_any<true>(p); }

}  // namespace plaid
