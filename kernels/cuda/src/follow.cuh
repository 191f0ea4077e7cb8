// follow.cuh: launches that begin before the one in front of them has ended (programmatic
// dependent launch, from compute capability 9.0 on).
#pragma once

namespace plaid {

// wait_before waits until the launch in front has ended and what it wrote can be read. What is
// read before that must have been complete when the launch in front called let_next.
__device__ __forceinline__ void wait_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// let_next says that what follows may begin.
__device__ __forceinline__ void let_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace plaid
