// wgmma.cuh: products of a warpgroup with both operands in shared memory, barriers
// and bulk copies of sm_90a.
#pragma once
#include "common.cuh"

namespace plaid {
namespace encoder {

#define PLAID_SUM8(o) "+f"(c[o]), "+f"(c[o + 1]), "+f"(c[o + 2]), "+f"(c[o + 3]), "+f"(c[o + 4]), "+f"(c[o + 5]), "+f"(c[o + 6]), "+f"(c[o + 7])
#define PLAID_SUM32(o) PLAID_SUM8(o), PLAID_SUM8(o + 8), PLAID_SUM8(o + 16), PLAID_SUM8(o + 24)
#define PLAID_SUMS_32 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define PLAID_SUMS_64 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define PLAID_SUMS_96 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}"
#define PLAID_SUMS_128 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"

// products<N> adds a step of 16: 64 rows of a by N rows of b, c of 4 for each 8 columns. Without
// add the sums begin.
template <int N> __device__ __forceinline__ void products(float *c, uint64_t a, uint64_t b, uint32_t add);
#define PLAID_WGMMA(N, REGS, A, B, P, ...)                                                                        \
  template <> __device__ __forceinline__ void products<N>(float *c, uint64_t a, uint64_t b, uint32_t add) {      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N            \
                 "k16.f32.f16.f16 " REGS ", " A ", " B ", p, 1, 1, 0, 0;\n}"                                      \
                 : __VA_ARGS__                                                                                    \
                 : "l"(a), "l"(b), "r"(add));                                                                     \
  }
PLAID_WGMMA(64, PLAID_SUMS_32, "%32", "%33", "%34", PLAID_SUM32(0))
PLAID_WGMMA(128, PLAID_SUMS_64, "%64", "%65", "%66", PLAID_SUM32(0), PLAID_SUM32(32))
PLAID_WGMMA(192, PLAID_SUMS_96, "%96", "%97", "%98", PLAID_SUM32(0), PLAID_SUM32(32), PLAID_SUM32(64))
PLAID_WGMMA(256, PLAID_SUMS_128, "%128", "%129", "%130", PLAID_SUM32(0), PLAID_SUM32(32), PLAID_SUM32(64), PLAID_SUM32(96))

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// operand describes rows of 128 bytes whose pieces are exchanged: 8 rows are 1,024 bytes.
__device__ __forceinline__ uint64_t operand(uint32_t at) { return uint64_t(at >> 4 & 0x3FFF) | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62; }

__device__ __forceinline__ void barrier_arrive(uint32_t at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
__device__ __forceinline__ void bulk_store(void *to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
// stores_read<N> returns when all but the last N stores of this thread have read shared memory.
template <int N> __device__ __forceinline__ void stores_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// meet waits for the 128 threads of a warpgroup.
__device__ __forceinline__ void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory"); }

template <int N> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

}  // namespace encoder
}  // namespace plaid
