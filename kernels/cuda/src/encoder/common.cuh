// common.cuh: what the encoder's kernels share: copies, products of mma.sync,
// activations, and the epilogues of products.
#pragma once
#include "../follow.cuh"
#include "encoder.cuh"

namespace plaid {
namespace encoder {

constexpr uint32_t kBlock = 8192;  // bytes of 64 × 64 f16

// tiled is the byte of 8 columns, piece, of a row; see encoder.cuh. blocks: of 64 columns, in a row.
__device__ __forceinline__ size_t tiled(uint32_t row, uint32_t piece, uint32_t blocks) {
  return (size_t(row >> 6) * blocks + (piece >> 3)) * kBlock + (row & 63) * 128 + ((piece ^ row) & 7) * 16;
}

__device__ __forceinline__ uint32_t shared_at(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// opaque keeps the compiler from computing an address again in every round.
__device__ __forceinline__ uint32_t opaque(uint32_t v) {
  asm volatile("mov.b32 %0, %0;" : "+r"(v));
  return v;
}

// Copies 16 bytes, or writes zeros unless some.
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool some = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(some ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

__device__ __forceinline__ void barrier_init(uint32_t at, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t at, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(at), "r"(parity) : "memory");
#else
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(at), "r"(parity) : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900 || defined(PLAID_SM90A)
__device__ __forceinline__ void barrier_expect(uint32_t at, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#endif

__device__ __forceinline__ void load_matrices(uint32_t (&v)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&v)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
}
// c += a · b: 16 rows × 8 columns, 16 deep.
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two f16. Values beyond the largest become the largest: sums of models with large
// values in few dimensions stay finite.
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  uint32_t v;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}
__device__ __forceinline__ float2 unpack(uint32_t v) { return __half22float2(*reinterpret_cast<const __half2 *>(&v)); }

// Eight columns of a row.
__device__ __forceinline__ void add8(float (&x)[8], const uint4 &v) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 f = unpack(w[i]);
    x[2 * i] += f.x, x[2 * i + 1] += f.y;
  }
}
__device__ __forceinline__ void load8(float (&x)[8], const float *from) {
  const float4 a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
__device__ __forceinline__ void store8(float *to, const float (&x)[8]) {
  reinterpret_cast<float4 *>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4 *>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}
__device__ __forceinline__ uint4 pack8(const float (&x)[8]) { return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])); }

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Activations of the feed-forward part; their numbers are in constant memory, where operands
// of sums may be.
//
// Polynomial is x·Φ(x): Φ − 1/2 by an odd polynomial up to 4, where it reaches 1/2, and
// saturates beyond. A steep line makes ReLU of it.
struct Polynomial {
  __device__ __forceinline__ static float of(float x, const EncoderGemmParams &p) {
    const float z = fminf(__fmul_rn(x, x), 16.f);
    float y = p.curve[0];
#pragma unroll
    for (int i = 1; i < 7; i++) y = fmaf(y, z, p.curve[i]);
    return __fmul_rn(x, __saturatef(fmaf(x, y, 0.5f)));
  }
};
// Sigmoid is SiLU, and tanh(x) as 2σ(2x) − 1.
struct Sigmoid {
  __device__ __forceinline__ static float of(float x, const EncoderGemmParams &p) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fadd_rn(1.f, exp2_fast(__fmul_rn(x, p.curve[2])))));
    return fmaf(fmaf(x, p.curve[0], p.curve[1]), y, p.curve[3]);
  }
};

// activate is that of a dense head.
__device__ __forceinline__ float activate(float x, uint32_t kind) {
  switch (kind) {
    case 1: return fmaxf(x, 0.f);
    case 2: return __fmul_rn(0.5f * x, 1.f + erff(0.70710678f * x));
    case 3: return x / (1.f + expf(-x));
    case 4: return tanhf(x);
    case 5: return __fmul_rn(0.5f * x, 1.f + tanhf(0.79788456f * fmaf(0.044715f * x * x, x, x)));
    default: return x;
  }
}

// early reads floats of weights while a launch waits: the compiler does not move it behind the wait.
__device__ __forceinline__ float2 early(const float2 *p) {
  float2 v;
  asm volatile("ld.global.nc.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ float4 early(const float4 *p) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  return v;
}

// Epilogues: of 16 columns of a row's products, from a multiple of 16 on, a lane has
// columns 2·q and 2·q + 1 of either half, q = lane % 4; n counts them within the tile.
// Row has what a row needs; RowEarly the same of 16 columns, read while a launch waits.
struct Bias {
  static constexpr int kShrink = 1;
  struct Row {};
  using RowEarly = Row;
  __device__ static Row row(const EncoderGemmParams &, uint32_t, uint32_t) { return {}; }
  __device__ static Row row_early(const EncoderGemmParams &, uint32_t, uint32_t, uint32_t) { return {}; }
  __device__ __forceinline__ static void apply(const EncoderGemmParams &, const Row &, uint32_t, int, float (&x)[2], float (&y)[2], uint32_t (&out)[2]) {
    out[0] = pack(x[0], x[1]), out[1] = pack(y[0], y[1]);
  }
};

template <class A> struct Active : Bias {
  __device__ __forceinline__ static void apply(const EncoderGemmParams &p, const Row &, uint32_t, int, float (&x)[2], float (&y)[2], uint32_t (&out)[2]) {
    out[0] = pack(A::of(x[0], p), A::of(x[1], p)), out[1] = pack(A::of(y[0], p), A::of(y[1], p));
  }
};

// Half as many columns come out as go in.
template <class A> struct Gated : Bias {
  static constexpr int kShrink = 2;
  __device__ __forceinline__ static void apply(const EncoderGemmParams &p, const Row &, uint32_t, int, float (&x)[2], float (&y)[2], uint32_t (&out)[2]) {
    out[0] = pack(__fmul_rn(A::of(x[0], p), y[0]), __fmul_rn(A::of(x[1], p), y[1]));
  }
};
using Gelu = Active<Polynomial>;
using Silu = Active<Sigmoid>;
using Geglu = Gated<Polynomial>;
using Swiglu = Gated<Sigmoid>;

// Rotary positions (Su et al., RoFormer, 2021).
__device__ __forceinline__ void turn(const float4 &a, float (&x)[2], float (&y)[2]) {
  const float x0 = fmaf(x[0], a.x, -__fmul_rn(y[0], a.y)), x1 = fmaf(x[1], a.z, -__fmul_rn(y[1], a.w));
  y[0] = fmaf(y[0], a.x, __fmul_rn(x[0], a.y)), y[1] = fmaf(y[1], a.z, __fmul_rn(x[1], a.w));
  x[0] = x0, x[1] = x1;
}
__device__ __forceinline__ const float4 *angles_of(const EncoderGemmParams &p, uint32_t row, uint32_t q) {
  return reinterpret_cast<const float4 *>(p.angles + size_t(p.positions[min(row, p.rows - 1)]) * 64) + q;
}
struct Rotary : Bias {
  struct Row {
    const float4 *angles;  // of the position, from the lane's columns on
    __device__ float4 of(uint32_t column) const { return __ldg(angles + column / 4 % 16); }  // four for 16 columns
  };
  struct RowEarly {
    float4 angles;
    __device__ float4 of(uint32_t) const { return angles; }
  };
  __device__ static Row row(const EncoderGemmParams &p, uint32_t row, uint32_t q) { return {angles_of(p, row, q)}; }
  __device__ static RowEarly row_early(const EncoderGemmParams &p, uint32_t row, uint32_t q, uint32_t column) {
    if (column >= p.turned) return {};
    return {early(angles_of(p, row, q) + column / 4 % 16)};
  }
  template <class R>
  __device__ __forceinline__ static void apply(const EncoderGemmParams &p, const R &r, uint32_t column, int, float (&x)[2], float (&y)[2], uint32_t (&out)[2]) {
    if (column < p.turned) turn(r.of(column), x, y);
    out[0] = pack(x[0], x[1]), out[1] = pack(y[0], y[1]);
  }
};
// The same with the row's angles in registers: they are there before the products are.
struct RotaryAhead : Bias {
  struct Row {
    float4 angles[4];
  };
  __device__ static Row row(const EncoderGemmParams &p, uint32_t row, uint32_t q) {
    const float4 *a = angles_of(p, row, q);
    return {{__ldg(a), __ldg(a + 4), __ldg(a + 8), __ldg(a + 12)}};
  }
  __device__ __forceinline__ static void apply(const EncoderGemmParams &p, const Row &r, uint32_t column, int n, float (&x)[2], float (&y)[2], uint32_t (&out)[2]) {
    if (column < p.turned) turn(r.angles[n % 4], x, y);
    out[0] = pack(x[0], x[1]), out[1] = pack(y[0], y[1]);
  }
};

}  // namespace encoder
}  // namespace plaid
