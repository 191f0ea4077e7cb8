// lists.cuh: the pairs of each query, and of each document, of a list of pairs that is on the
// device: a stable radix sort of the pairs by item.
#pragma once
#include "dense.cuh"

namespace plaid {

// Pairs without an item come last.
__device__ __forceinline__ uint32_t list_item(const DenseListSide &s, uint32_t pair) {
  return min(s.item[pair], s.items);
}

// A pass sorts by a digit of the items. Each block has its share of the pairs, as the pass before
// left them in from; null in the first pass: in order.
struct ListPass {
  const DenseListSide &s;
  const uint32_t *from;
  uint32_t *to;
  uint64_t begin, end;
  uint32_t shift;

  __device__ ListPass(const DenseListSide &s, const DenseListsParams &p, uint32_t pass) : s(s), shift(8 * pass) {
    const bool last = (p.passes - pass) & 1;  // or an even number of passes before it
    from = pass == 0 ? nullptr : last ? s.loose : s.pairs;
    to = last ? s.pairs : s.loose;
    const uint64_t turns = (uint64_t(p.n) + blockDim.x - 1) / blockDim.x;
    const uint64_t share = (turns + gridDim.x - 1) / gridDim.x * blockDim.x;
    begin = min(blockIdx.x * share, uint64_t(p.n)), end = min(begin + share, uint64_t(p.n));
  }

  __device__ __forceinline__ uint32_t pair(uint64_t i) const { return from ? from[i] : uint32_t(i); }
  __device__ __forceinline__ uint32_t digit(uint32_t pair) const {
    return list_item(s, pair) >> shift & (kListDigits - 1);
  }

  // count: how many pairs of the block have each digit.
  __device__ __forceinline__ void count(uint32_t *digits) const {
    if (threadIdx.x < kListDigits) digits[threadIdx.x] = 0;
    __syncthreads();
    for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) atomicAdd(digits + digit(pair(i)), 1u);
    __syncthreads();
    if (threadIdx.x < kListDigits) s.counts[blockIdx.x * kListDigits + threadIdx.x] = digits[threadIdx.x];
  }

  // move: pairs to their places, a pair a thread at a time.
  __device__ __forceinline__ void move(uint32_t *digits, uint32_t (*warps)[kListDigits]) const {
    const uint32_t l = threadIdx.x & 31;
    uint32_t *const own = warps[threadIdx.x / 32];
    // Of a thread's digit: where the block's next pair goes.
    uint32_t place = 0;
    if (threadIdx.x < kListDigits) {
      uint32_t all = 0;
      for (uint32_t b = 0; b < gridDim.x; b++) {
        const uint32_t count = s.counts[b * kListDigits + threadIdx.x];
        all += count;
        if (b < blockIdx.x) place += count;
      }
      digits[threadIdx.x] = all;
    }
    __syncthreads();
    if (threadIdx.x < kListDigits)
      for (uint32_t k = 0; k < threadIdx.x; k++) place += digits[k];
    for (uint64_t base = begin; base < end; base += blockDim.x) {
      const uint64_t i = base + threadIdx.x;
      const uint32_t x = i < end ? pair(i) : 0, d = i < end ? digit(x) : kListDigits;
      __syncwarp();
      for (uint32_t k = l; k < kListDigits; k += 32) own[k] = 0;
      __syncwarp();
      const uint32_t same = __match_any_sync(0xffffffffu, d), below = __popc(same & ((1u << l) - 1));
      if (i < end && below == 0) own[d] = __popc(same);
      __syncthreads();
      if (threadIdx.x < kListDigits)
        for (uint32_t w = 0; w < blockDim.x / 32; w++) {
          const uint32_t count = warps[w][threadIdx.x];
          warps[w][threadIdx.x] = place;
          place += count;
        }
      __syncthreads();
      if (i < end) to[own[d] + below] = x;
    }
  }
};

// list_first finds where the sorted pairs of each item begin.
__device__ __forceinline__ void list_first(const DenseListSide &s, uint32_t n) {
  const uint64_t apart = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i <= s.items; i += apart) {
    uint32_t begin = 0, end = n;
    while (begin < end) {
      const uint32_t middle = begin + (end - begin) / 2;
      if (list_item(s, s.pairs[middle]) < i) begin = middle + 1;
      else end = middle;
    }
    s.first[i] = begin;
  }
}

extern "C" __global__ void __launch_bounds__(1024) dense_lists(const __grid_constant__ DenseListsParams p) {
  __shared__ uint32_t digits[kListDigits], warps[32][kListDigits];
  const DenseListSide &s = blockIdx.y ? p.d : p.q;
  if (!s.first) return;
  for (uint32_t step = p.from; step < p.end; step++) {
    if (step == 2 * p.passes) list_first(s, p.n);
    else if (const ListPass pass(s, p, step / 2); step & 1) pass.move(digits, warps);
    else pass.count(digits);
    __threadfence();
    __syncthreads();
  }
}

}  // namespace plaid
