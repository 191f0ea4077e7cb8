// fine.cu: float32 scores of some documents: decode, product, maximum, as
// written in the definition. A block takes a document (or every splits-th of
// its tiles): 16 tokens are decoded into shared memory, 128 dimensions at a
// time, and each thread has the products of four of them with one query token.
// For a few hundred documents; bound by the products, 4·d·Lq flop a token.
#include "plaid.cuh"

namespace plaid {

constexpr int kDims = 128;

__device__ __forceinline__ uint32_t ordered_bits(float v) {
  const uint32_t b = __float_as_uint(v);
  return b ^ (uint32_t(int32_t(b) >> 31) | 0x80000000u);
}

extern "C" __global__ void __launch_bounds__(128) fine(const __grid_constant__ FineParams p) {
  __shared__ float query[kDims][33];
  __shared__ __align__(16) float tokens[kTile][kDims];
  const uint32_t i = blockIdx.x, q = blockIdx.y;
  const uint32_t doc = p.ids[size_t(q) * p.n + i];
  if (doc == 0xFFFFFFFFu) return;
  const uint32_t t0 = p.first_tile[doc], t1 = p.first_tile[doc + 1];
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  const uint32_t col = threadIdx.x & 31, quarter = threadIdx.x / 32;
  const uint32_t dim16 = (p.dim + 15) & ~15u, fields = 8 / p.nbits, row_bytes = 16 * p.lane_words;
  const bool once = p.dim <= kDims;  // the query's slice stays
  for (uint32_t g = g0; g < g1; g++) {
    const float *qg = p.query + size_t(g) * kColumns * p.dim;
    float best = -INFINITY;
    bool first = true;
    for (uint32_t t = t0 + blockIdx.z; t < t1; t += gridDim.z) {
      float sum[4] = {};
      for (uint32_t d0 = 0; d0 < p.dim; d0 += kDims) {
        __syncthreads();
        if (first || !once)
          for (uint32_t e = threadIdx.x; e < kDims * kColumns; e += blockDim.x) {
            const uint32_t d = e % kDims, c = e / kDims;
            query[d][c] = d0 + d < p.dim ? qg[size_t(c) * p.dim + d0 + d] : 0.0f;
          }
        first = false;
        for (uint32_t e = threadIdx.x; e < kDims * kTile; e += blockDim.x) {
          const uint32_t r = e / kDims, d = d0 + e % kDims;
          const size_t token = size_t(t) * kTile + r;
          float v = 0;
          if (d < p.dim) {
            const uint32_t code = p.words[token].x / 64;
            const uint8_t byte = reinterpret_cast<const uint8_t *>(p.rows)[token * row_bytes + d / fields];
            const uint32_t bucket = byte >> (d % fields * p.nbits) & ((1u << p.nbits) - 1);
            float w = p.weights_table[bucket];
            if (p.dim_scale) w *= p.dim_scale[d];
            if (p.centroid_ratio) w *= p.centroid_ratio[code] * p.a_max;
            v = __bfloat162float(p.centroids[size_t(code) * dim16 + d]) + w;
          }
          tokens[r][e % kDims] = v;
        }
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < kDims; d += 4) {
          const float a0 = query[d][col], a1 = query[d + 1][col], a2 = query[d + 2][col], a3 = query[d + 3][col];
#pragma unroll
          for (int k = 0; k < 4; k++) {
            const float4 v = *reinterpret_cast<const float4 *>(&tokens[quarter * 4 + k][d]);
            sum[k] = fmaf(a3, v.w, fmaf(a2, v.z, fmaf(a1, v.y, fmaf(a0, v.x, sum[k]))));
          }
        }
      }
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const uint2 word = p.words[size_t(t) * kTile + quarter * 4 + k];
        float n = __uint_as_float(word.y) * p.factor_max;
        if (p.centroid_ratio) n /= p.centroid_ratio[word.x / 64];
        best = fmaxf(best, n * sum[k]);
      }
    }
    if (!first) atomicMax(&p.best[((size_t(q) * p.n + i) * p.max_groups + (g - g0)) * kColumns + col], ordered_bits(best));
    __syncthreads();
  }
}

// fine_sum: a warp a document.
extern "C" __global__ void __launch_bounds__(256) fine_sum(const __grid_constant__ FineParams p) {
  const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32, q = blockIdx.y, col = threadIdx.x & 31;
  if (i >= p.n) return;
  const uint32_t doc = p.ids[size_t(q) * p.n + i];
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  float v = doc == 0xFFFFFFFFu ? -INFINITY : 0.0f;
  if (doc != 0xFFFFFFFFu && p.first_tile[doc] < p.first_tile[doc + 1]) {
    for (uint32_t g = g0; g < g1; g++) {
      const uint32_t b = p.best[((size_t(q) * p.n + i) * p.max_groups + (g - g0)) * kColumns + col];
      const float w = p.weights[g * kColumns + col];
      if (w != 0) v = fmaf(w, __uint_as_float(b ^ (b & 0x80000000u ? 0x80000000u : 0xFFFFFFFFu)), v);
    }
    for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffffu, v, s);
  }
  if (col == 0) p.scores[size_t(q) * p.n + i] = v;
}

}  // namespace plaid
