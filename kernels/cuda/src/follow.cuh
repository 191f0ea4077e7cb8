// follow.cuh: launches that begin before the one in front of them has ended (programmatic
// dependent launch, from compute capability 9.0 on).
#pragma once

namespace plaid {

// wait_before waits until the previous launch has ended and its results can be read. Data that is
// read before must have been complete when the previous launch called let_next.
__device__ __forceinline__ void wait_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// let_next lets the next launch begin.
__device__ __forceinline__ void let_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace plaid
