// lists.cuh: the pairs of each query, and of each document, of a list of pairs that is on the
// device.
#pragma once
#include "dense.cuh"

namespace plaid {

// The pairs of an item come in any order first, then each one goes to as many places from
// the first as there are smaller ones.
__device__ __forceinline__ void list_step(const DenseListSide &s, uint32_t n, uint32_t step) {
  if (!s.first) return;
  const uint64_t begin = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, apart = uint64_t(gridDim.x) * blockDim.x;
  switch (step) {
    case 0:
      for (uint64_t i = begin; i <= s.items; i += apart) s.first[i] = 0;
      break;
    case 1:  // count; which of its item a pair is
      for (uint64_t i = begin; i < n; i += apart)
        if (s.item[i] < s.items) s.pairs[i] = atomicAdd(s.first + s.item[i], 1u);
      break;
    case 2: {  // sums, by one block
      if (blockIdx.x) return;
      __shared__ uint32_t warps[32];
      __shared__ uint32_t before;
      const uint32_t l = threadIdx.x & 31, warp = threadIdx.x / 32;
      if (threadIdx.x == 0) before = 0;
      for (uint64_t base = 0; base <= s.items; base += blockDim.x) {
        const uint64_t i = base + threadIdx.x;
        const uint32_t own = i < s.items ? s.first[i] : 0;
        uint32_t sum = own;
        for (uint32_t k = 1; k < 32; k <<= 1) {
          const uint32_t below = __shfl_up_sync(0xffffffffu, sum, k);
          if (l >= k) sum += below;
        }
        if (l == 31) warps[warp] = sum;
        __syncthreads();
        uint32_t front = before;
        for (uint32_t k = 0; k < warp; k++) front += warps[k];
        if (i <= s.items) s.first[i] = front + sum - own;
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) before = front + sum;
        __syncthreads();
      }
      break;
    }
    case 3:
      for (uint64_t i = begin; i < n; i += apart)
        if (s.item[i] < s.items) s.loose[s.first[s.item[i]] + s.pairs[i]] = uint32_t(i);
      break;
    default:
      for (uint64_t i = begin; i < n; i += apart) {
        const uint32_t item = s.item[i];
        if (item >= s.items) continue;
        const uint32_t first = s.first[item], end = s.first[item + 1];
        uint32_t smaller = 0;
        for (uint32_t k = first; k < end; k++) smaller += s.loose[k] < uint32_t(i);
        s.pairs[first + smaller] = uint32_t(i);
      }
  }
}

extern "C" __global__ void __launch_bounds__(1024) dense_lists(const __grid_constant__ DenseListsParams p) {
  for (uint32_t step = p.from; step < p.end; step++) {
    list_step(p.q, p.n, step);
    list_step(p.d, p.n, step);
    __threadfence();
    __syncthreads();
  }
}

}  // namespace plaid
