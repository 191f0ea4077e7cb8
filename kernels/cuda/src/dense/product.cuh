// product.cuh: what the kernels of sm_90a share: wgmma with the left operand in
// registers, loads, barriers in shared memory.
//
// The order of dimensions is free as long as both operands follow it. It is counted
// in words of four bytes, so that it is one for all types. The right operand lies
// in core matrices, 8 tokens × 16 bytes one after another, without swizzle.
#pragma once
#include "dense.cuh"

namespace plaid {

struct F16 {
  using Sum = float;
  static constexpr int kFormat = kF16;
};
struct BF16 {
  using Sum = float;
  static constexpr int kFormat = kBF16;
};
struct I8 {
  using Sum = int32_t;
  static constexpr int kFormat = kI8;
};
struct E4M3 {  // made f16 in registers: the sums of QGMMA keep too few bits
  using Sum = float;
  static constexpr int kFormat = kE4M3;
};
struct Split {
  using Sum = float;
  static constexpr int kFormat = kSplit;
};
struct F32 {  // made two tf32 in registers
  using Sum = float;
  static constexpr int kFormat = kF32;
};

#define PLAID_REGS8 "{%0,%1,%2,%3,%4,%5,%6,%7}"
#define PLAID_REGS24 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23}"
#define PLAID_REGS16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define PLAID_REGS32 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define PLAID_REGS48 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}"
#define PLAID_REGS64 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
  "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define PLAID_SUMS8(k, o) k(c[o]), k(c[o + 1]), k(c[o + 2]), k(c[o + 3]), k(c[o + 4]), k(c[o + 5]), k(c[o + 6]), k(c[o + 7])
#define PLAID_SUMS16(k) PLAID_SUMS8(k, 0), PLAID_SUMS8(k, 8)
#define PLAID_SUMS24(k) PLAID_SUMS16(k), PLAID_SUMS8(k, 16)
#define PLAID_SUMS32(k) PLAID_SUMS16(k), PLAID_SUMS8(k, 16), PLAID_SUMS8(k, 24)
#define PLAID_SUMS48(k) PLAID_SUMS32(k), PLAID_SUMS8(k, 32), PLAID_SUMS8(k, 40)
#define PLAID_SUMS64(k) PLAID_SUMS48(k), PLAID_SUMS8(k, 48), PLAID_SUMS8(k, 56)
#define PLAID_F(x) "+f"(x)
#define PLAID_R(x) "+r"(x)
#define PLAID_LEFT(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

template <int N> struct Width {
  static constexpr int kTokens = N;
};

// product adds a step of 32 bytes of 64 rows × N query (or document) tokens;
// without add, the sums begin.
#ifdef PLAID_SM90A
#define PLAID_PRODUCT(T, S, N, SHAPE, REGS, SUMS, A0, A1, A2, A3, B, P, TAIL)                                          \
  __device__ __forceinline__ void product(T, Width<N>, S *c, const uint32_t (&a)[4], uint64_t b, int add) {           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." SHAPE " " REGS           \
                 ", {" A0 "," A1 "," A2 "," A3 "}, " B ", p" TAIL ";\n}"                                              \
                 : SUMS                                                                                               \
                 : PLAID_LEFT(a), "l"(b), "r"(add));                                                                  \
  }
#else
#define PLAID_PRODUCT(T, S, N, SHAPE, REGS, SUMS, A0, A1, A2, A3, B, P, TAIL) \
  __device__ __forceinline__ void product(T, Width<N>, S *, const uint32_t (&)[4], uint64_t, int) {}
#endif
#define PLAID_PRODUCTS(T, S, K, TYPES, TAIL)                                                                                       \
  PLAID_PRODUCT(T, S, 16, "m64n16" TYPES, PLAID_REGS8, PLAID_SUMS8(K, 0), "%8", "%9", "%10", "%11", "%12", "%13", TAIL)        \
  PLAID_PRODUCT(T, S, 32, "m64n32" TYPES, PLAID_REGS16, PLAID_SUMS16(K), "%16", "%17", "%18", "%19", "%20", "%21", TAIL)       \
  PLAID_PRODUCT(T, S, 48, "m64n48" TYPES, PLAID_REGS24, PLAID_SUMS24(K), "%24", "%25", "%26", "%27", "%28", "%29", TAIL)       \
  PLAID_PRODUCT(T, S, 64, "m64n64" TYPES, PLAID_REGS32, PLAID_SUMS32(K), "%32", "%33", "%34", "%35", "%36", "%37", TAIL)
#define PLAID_WIDE_PRODUCTS(T, S, K, TYPES, TAIL)                                                                                 \
  PLAID_PRODUCT(T, S, 96, "m64n96" TYPES, PLAID_REGS48, PLAID_SUMS48(K), "%48", "%49", "%50", "%51", "%52", "%53", TAIL)       \
  PLAID_PRODUCT(T, S, 128, "m64n128" TYPES, PLAID_REGS64, PLAID_SUMS64(K), "%64", "%65", "%66", "%67", "%68", "%69", TAIL)

PLAID_PRODUCTS(F16, float, PLAID_F, "k16.f32.f16.f16", ", 1, 1, 0")
PLAID_PRODUCTS(BF16, float, PLAID_F, "k16.f32.bf16.bf16", ", 1, 1, 0")
PLAID_PRODUCTS(I8, int32_t, PLAID_R, "k32.s32.s8.s8", "")
PLAID_PRODUCTS(E4M3, float, PLAID_F, "k16.f32.f16.f16", ", 1, 1, 0")
PLAID_PRODUCTS(Split, float, PLAID_F, "k16.f32.f16.f16", ", 1, 1, 0")
PLAID_PRODUCTS(F32, float, PLAID_F, "k8.f32.tf32.tf32", ", 1, 1")
PLAID_WIDE_PRODUCTS(F16, float, PLAID_F, "k16.f32.f16.f16", ", 1, 1, 0")
PLAID_WIDE_PRODUCTS(BF16, float, PLAID_F, "k16.f32.bf16.bf16", ", 1, 1, 0")
PLAID_WIDE_PRODUCTS(Split, float, PLAID_F, "k16.f32.f16.f16", ", 1, 1, 0")

__device__ __forceinline__ void products_begin() {
#ifdef PLAID_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// products_end waits for the products that were begun.
__device__ __forceinline__ void products_end() {
#ifdef PLAID_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// settle keeps the compiler from moving the use of sums before the wait.
__device__ __forceinline__ void settle(float &v) { asm volatile("" : "+f"(v)::"memory"); }
__device__ __forceinline__ void settle(int32_t &v) { asm volatile("" : "+r"(v)::"memory"); }

// right is the descriptor of a right operand at a shared address: bytes from a core
// matrix to the next along dimensions, and along tokens.
__device__ __forceinline__ uint64_t right(uint32_t at, uint32_t along_dims, uint32_t along_tokens) {
  return uint64_t(at >> 4 & 0x3FFF) | uint64_t(along_dims >> 4) << 16 | uint64_t(along_tokens >> 4) << 32;
}

// Lines are fetched whole: lanes ask for halves of them one after the other.
#define PLAID_HINT ".L2::128B"
__device__ __forceinline__ void load_row(uint32_t (&v)[4], const uint8_t *at) {
  asm volatile("ld.global.nc.L1::no_allocate" PLAID_HINT ".v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(at));
}
__device__ __forceinline__ float load_scale(const float *at) {
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(at));
  return v;
}
__device__ __forceinline__ DenseItem load_item(const DenseItem *at) {
  const uint4 v = __ldg(reinterpret_cast<const uint4 *>(at));
  return DenseItem{uint64_t(v.y) << 32 | v.x, v.z, v.w};
}
// Not by __ldg, which the compiler may move to where the launch in front has not ended.
__device__ __forceinline__ DenseUnit load_unit(const DenseUnit *at) {
  const uint4 *words = reinterpret_cast<const uint4 *>(at);
  const uint4 v = words[0], first = words[1];
  return DenseUnit{v.x, v.y, v.z, v.w, {uint64_t(first.y) << 32 | first.x, first.z, first.w}};
}

__device__ __forceinline__ uint32_t shared_at(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void barrier_init(uint32_t at, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t at, uint32_t parity) {
#ifdef PLAID_SM90A
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(at), "r"(parity) : "memory");
#endif
}

// A float32 as the sum of two tf32, which keep 22 bits of it, at any exponent.
__device__ __forceinline__ uint32_t tf32_of(float v) {
  uint32_t t;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(t) : "f"(v));
  return t;
}
__device__ __forceinline__ void halve(uint32_t v, uint32_t &hi, uint32_t &lo) {
  hi = tf32_of(__uint_as_float(v));
  lo = tf32_of(__uint_as_float(v) - __uint_as_float(hi));
}

// four e4m3 to twice two f16, exactly.
__device__ __forceinline__ void widen_e4m3(uint32_t v, uint32_t &lo, uint32_t &hi) {
#ifdef PLAID_SM90A
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}" : "=r"(lo), "=r"(hi) : "r"(v));
#endif
}

}  // namespace plaid
