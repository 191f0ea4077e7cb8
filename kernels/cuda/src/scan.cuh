// scan.cuh: decompress + normalise + MaxSim for uniform levels.
//
// v̂ = n·(c + step·(b − mid)), so with coefficients k_j = q_j·step/u in units u
// of each query token, ⟨q, v̂⟩ = n·u·(S/u − mid·Σk + Σ k_j b_j). The sum is an
// integer product on the tensor cores, u8 fields × s8 coefficients with 32-bit
// sums (mma.m16n8k32, on every device from sm_80). A coefficient does not fit
// 8 bits, so
//
//   k = M·h + x·2^(position of the field in its half-byte):
//
// fields moved to the top of their byte (M·b, M = 256 / 2^bits) times h, plus
// whole half-bytes times x. One x serves all fields of a half-byte and is
// chosen, with the h, for the least error of them together: 2 bits get
// 13-bit coefficients for half the cost of a second product (3 steps of 32
// where one part takes 2 and two parts 4).
//
// The accumulators start at S: a row holds the 15-bit integers
// (S/u − mid·Σk + 2^22) / 256, a byte permute puts one into bits 8 to 22 of a
// float with exponent 2^23, and the integer product adds into the mantissa.
// One FMA then takes 2^23 + 2^22 away, applies n and adds 2^22, which leaves a
// positive float; positive floats compare as integers, three at a time.
//
// 2 bits, 128 dimensions: 114 registers, 16 warps an SM, 188 instructions for 16
// tokens, 24 of them IMMA at about 6 cycles. Measured as fp8.cuh: 41 G tokens/s,
// issue slots 56 %, IMMA 43 %, stalls mostly dependent instructions; with the
// product cut to a sixth, 54. Loads in registers in place of the rings of
// ring.cuh: 38, as ptxas moves them down to their use. Score error over 32 query
// tokens 5e-4 rms, 1.9e-3 worst among the best 4,096 of a million.
//
// Lane 4g + j has bytes [4W·j, 4W·(j+1)) of rows g and g + 8.
#pragma once
#include "walk.cuh"

namespace plaid {

constexpr float kBias = 4194304.0f;           // 2^22
constexpr float kMagic = 8388608.0f + kBias;  // 2^23 + 2^22

__device__ __forceinline__ void mma_u8(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint2 b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b.x), "r"(b.y));
}

// Steps of 32 for a word (8 bits: for two words) a lane.
template <int NB> constexpr int kWordSteps = NB == 1 ? 5 : NB == 2 ? 3 : 2;

// field i of each byte of w, at the top of the byte.
template <int NB, int I> __device__ __forceinline__ uint32_t field(uint32_t w) {
  constexpr uint32_t mask = NB == 1 ? 0x80808080u : NB == 2 ? 0xC0C0C0C0u : 0xF0F0F0F0u;
  return (w << (8 - NB * (I + 1))) & mask;
}

struct Raw2 {
  uint2 w0, w1;
};
template <int W> struct RawRows : Raw2 {
  uint32_t r0[W], r1[W];
};
struct RowPair {
  uint4 a, b;
};

// rows_of loads the rows of S of the two tokens of a lane.
__device__ __forceinline__ RowPair rows_of(const char *s, const Raw2 &r) {
  return {load_row(s + r.w0.x), load_row(s + r.w1.x)};
}

// begin turns the rows of S into accumulators.
__device__ __forceinline__ void begin(int (&acc)[4][4], const RowPair &s) {
  const uint32_t a[4] = {s.a.x, s.a.y, s.a.z, s.a.w}, b[4] = {s.b.x, s.b.y, s.b.z, s.b.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    acc[i][0] = __byte_perm(a[i], 0x4B000000u, 0x7104);
    acc[i][1] = __byte_perm(a[i], 0x4B000000u, 0x7324);
    acc[i][2] = __byte_perm(b[i], 0x4B000000u, 0x7104);
    acc[i][3] = __byte_perm(b[i], 0x4B000000u, 0x7324);
  }
}

// take applies the factors and updates the maxima.
__device__ __forceinline__ void take(uint32_t (&best)[8], const int (&acc)[4][4], float n0, float n1) {
  const float k0 = fmaf(n0, -kMagic, kBias), k1 = fmaf(n1, -kMagic, kBias);
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float v0 = fmaf(__int_as_float(acc[i][c]), n0, k0);
      const float v1 = fmaf(__int_as_float(acc[i][c + 2]), n1, k1);
      best[2 * i + c] = max3(best[2 * i + c], __float_as_uint(v0), __float_as_uint(v1));
    }
}

struct Uniform {
  const uint2 *words;      // of row g of tile 0
  const uint32_t *rows;    // of row g of tile 0, the lane's quarter
  const char *s;           // the lane's quarter of row 0 of S
  float scale;             // of column()

  __device__ __forceinline__ void start(const ScanParams &p, uint32_t lane_words) {
    const int l = lane_id();
    words = p.words + (l >> 2);
    rows = p.rows + (l >> 2) * 4 * lane_words + (l & 3) * lane_words;
    s = reinterpret_cast<const char *>(p.s_rows + blockIdx.y * p.s_stride) + (l & 3) * 16;
    scale = p.cols[blockIdx.y * kColumns + Walk::column()].z;
  }
  __device__ __forceinline__ float value(uint32_t m) const { return (__uint_as_float(m) - kBias) * scale; }
};

// InRegisters keeps the query operand in registers.
template <int NB, int W> struct InRegisters : Uniform {
  using Raw = RawRows<W>;
  static constexpr int kSteps = kWordSteps<NB> * W, kWords = W;
  uint2 b[kSteps][4];

  __device__ __forceinline__ void load(const ScanParams &p) {
    start(p, W);
    const uint2 *f = reinterpret_cast<const uint2 *>(p.frags + size_t(blockIdx.y) * p.frag_stride) + lane_id();
#pragma unroll
    for (int i = 0; i < kSteps; i++)
#pragma unroll
      for (int n = 0; n < 4; n++) b[i][n] = __ldg(f + (i * 4 + n) * 32);
  }
  template <int I> __device__ __forceinline__ void step(int (&acc)[4][4], int k, uint32_t u, uint32_t v) const {
    const uint32_t a0 = field<NB, I>(u), a1 = field<NB, I>(v), a2 = field<NB, I + 1>(u), a3 = field<NB, I + 1>(v);
#pragma unroll
    for (int n = 0; n < 4; n++) mma_u8(acc[n], a0, a1, a2, a3, b[k][n]);
  }
  __device__ __forceinline__ void add(const Raw &r, const RowPair &s, uint32_t (&best)[8]) const {
    int acc[4][4];
    begin(acc, s);
#pragma unroll
    for (int i = 0; i < W; i++) {
      const uint32_t u = r.r0[i], v = r.r1[i];
      constexpr int per = kWordSteps<NB>;
      step<0>(acc, per * i, u, v);
      if constexpr (NB <= 2) step<2>(acc, per * i + 1, u, v);
      if constexpr (NB == 1) step<4>(acc, per * i + 2, u, v), step<6>(acc, per * i + 3, u, v);
      constexpr uint32_t low = 0x0F0F0F0Fu;
#pragma unroll
      for (int n = 0; n < 4; n++)
        mma_u8(acc[n], u & low, v & low, (u >> 4) & low, (v >> 4) & low, b[per * i + per - 1][n]);
    }
    take(best, acc, __uint_as_float(r.w0.y), __uint_as_float(r.w1.y));
  }
};

// InShared reads the query operand from shared memory, for any number of
// lane words: dimensions above 128, and 8 bits.
template <int NB> struct InShared : Uniform {
  struct Raw : Raw2 {
    const uint32_t *p;
    uint32_t first[2][4];  // the first words, ahead
  };
  using Row = RowPair;
  const uint2 *b;
  int w;

  __device__ __forceinline__ void load(const ScanParams &p, uint2 *shared) {
    w = p.lane_words;
    start(p, w);
    b = shared + lane_id();
    const uint4 *f = reinterpret_cast<const uint4 *>(p.frags + size_t(blockIdx.y) * p.frag_stride);
    for (uint32_t i = threadIdx.x; i < p.frag_stride / 4; i += blockDim.x)
      reinterpret_cast<uint4 *>(shared)[i] = __ldg(f + i);
    __syncthreads();
  }
  __device__ __forceinline__ void chunk(uint32_t (&x)[2][4], const uint32_t *q, int i) const {
    const uint32_t *q8 = q + 8 * 4 * w;
    if ((w & 3) == 0) {
      const uint4 u = load_stream(reinterpret_cast<const uint4 *>(q + i)), v = load_stream(reinterpret_cast<const uint4 *>(q8 + i));
      x[0][0] = u.x, x[0][1] = u.y, x[0][2] = u.z, x[0][3] = u.w;
      x[1][0] = v.x, x[1][1] = v.y, x[1][2] = v.z, x[1][3] = v.w;
      return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const bool in = i + k < w;
      x[0][k] = in ? load_stream(q + i + k) : 0;
      x[1][k] = in ? load_stream(q8 + i + k) : 0;
    }
  }
  __device__ __forceinline__ Raw raw(uint32_t tile) const {
    Raw r;
    const uint2 *wp = words + size_t(tile) * kTile;
    r.w0 = load_stream(wp), r.w1 = load_stream(wp + 8);
    r.p = rows + size_t(tile) * (kTile * 4) * w;
    chunk(r.first, r.p, 0);
    return r;
  }
  __device__ __forceinline__ Row row(const Raw &r) const { return rows_of(s, r); }

  __device__ __forceinline__ void step(int (&acc)[4][4], int k, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3) const {
#pragma unroll
    for (int n = 0; n < 4; n++) mma_u8(acc[n], a0, a1, a2, a3, b[(k * 4 + n) * 32]);
  }
  template <int I> __device__ __forceinline__ void fields(int (&acc)[4][4], int k, uint32_t u, uint32_t v) const {
    step(acc, k, field<NB, I>(u), field<NB, I>(v), field<NB, I + 1>(u), field<NB, I + 1>(v));
  }
  __device__ __forceinline__ void add(const Raw &r, const Row &s, uint32_t (&best)[8]) const {
    int acc[4][4], high[4][4];
    begin(acc, s);
    if constexpr (NB == 8) {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) high[i][c] = 0;
    }
    uint32_t x[2][4], y[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int k = 0; k < 4; k++) x[h][k] = r.first[h][k];
    for (int i = 0; i < w; i += 4) {
      if (i + 4 < w) chunk(y, r.p, i + 4);
#pragma unroll
      for (int k = 0; k < 4; k += NB == 8 ? 2 : 1) {
        if (k && i + k >= w) break;
        const uint32_t u = x[0][k], v = x[1][k];
        if constexpr (NB == 8) {
          const int at = i + k;  // two steps for two words
          step(high, at, u, v, x[0][k + 1], x[1][k + 1]);
          step(acc, at + 1, u, v, x[0][k + 1], x[1][k + 1]);
        } else {
          constexpr int per = kWordSteps<NB>;
          const int at = (i + k) * per;
          fields<0>(acc, at, u, v);
          if constexpr (NB <= 2) fields<2>(acc, at + 1, u, v);
          if constexpr (NB == 1) fields<4>(acc, at + 2, u, v), fields<6>(acc, at + 3, u, v);
          constexpr uint32_t low = 0x0F0F0F0Fu;
          step(acc, at + per - 1, u & low, v & low, (u >> 4) & low, (v >> 4) & low);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int k = 0; k < 4; k++) x[h][k] = y[h][k];
    }
    if constexpr (NB == 8) {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) acc[i][c] += high[i][c] * 16;
    }
    take(best, acc, __uint_as_float(r.w0.y), __uint_as_float(r.w1.y));
  }
};

}  // namespace plaid
