// scan.cu: the entry points of the scans; the work is in scan.cuh and walk.cuh.
#include "fp8.cuh"

namespace plaid {

template <int NB, bool kList>
__device__ __forceinline__ void scan_shared(const ScanParams &p) {
  extern __shared__ uint2 shared[];
  InShared<NB> body;
  body.load(p, shared);
  Walk walk;
  if (!walk.start(p)) return;
  run<kList>(p, walk, body);
}

#define PLAID_SCAN(name, threads, blocks, call)                                                               \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ ScanParams p) {    \
    let_next(), wait_before();                                                                                \
    if (blockIdx.x + blockIdx.y == 0) stamp(p.clock);                                                         \
    call;                                                                                                     \
  }
#define PLAID_REGISTERS(nb, w, blocks)                                                                     \
  PLAID_SCAN(scan_b##nb##_w##w, kScanThreads, blocks, (scan_ring<InRegisters<nb, w>, false>(p)))           \
  PLAID_SCAN(scan_b##nb##_w##w##_list, kScanThreads, blocks, (scan_ring<InRegisters<nb, w>, true>(p)))
#define PLAID_SHARED(nb, blocks)                                                     \
  PLAID_SCAN(scan_b##nb, kScanThreads, blocks, (scan_shared<nb, false>(p)))          \
  PLAID_SCAN(scan_b##nb##_list, kScanThreads, blocks, (scan_shared<nb, true>(p)))

PLAID_REGISTERS(1, 1, 4)
PLAID_REGISTERS(2, 1, 4)
PLAID_REGISTERS(2, 2, 4)
PLAID_REGISTERS(4, 2, 4)
PLAID_REGISTERS(4, 4, 3)
PLAID_SHARED(1, 4)
PLAID_SHARED(2, 4)
PLAID_SHARED(4, 4)
PLAID_SHARED(8, 4)

#ifdef PLAID_SM90A
// Blocks of 512, since four groups' operand is large and the warps of a block share it.
#define PLAID_FP8(nb, w, blocks)                                                             \
  PLAID_SCAN(scan_f##nb##_w##w, kScanThreads, blocks, (scan_fp8<nb, w, false>(p)))           \
  PLAID_SCAN(scan_f##nb##_w##w##_list, kScanThreads, blocks, (scan_fp8<nb, w, true>(p)))     \
  PLAID_SCAN(scan_f##nb##_w##w##_x2, kScanThreads, blocks, (scan_fp8<nb, w, false, 2>(p)))   \
  PLAID_SCAN(scan_f##nb##_w##w##_x4, kWideThreads, 1, (scan_fp8<nb, w, false, 4>(p)))
PLAID_FP8(1, 1, 6)
PLAID_FP8(2, 1, 6)
PLAID_FP8(2, 2, 6)
PLAID_FP8(4, 2, 6)
PLAID_FP8(4, 4, 5)
#endif

}  // namespace plaid
