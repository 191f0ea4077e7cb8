// any.cuh: MaxSim of rows of any two formats, for devices and shapes that the
// kernels of sm_90a are not for: float32 products from shared memory. Not tuned; its
// bound is fused multiplications.
#pragma once
#include "dense.cuh"

namespace plaid {

__device__ __forceinline__ float bf16_value(uint16_t v) { return __uint_as_float(uint32_t(v) << 16); }
__device__ __forceinline__ float f16_value(uint16_t v) { return __half2float(__ushort_as_half(v)); }
__device__ __forceinline__ float e4m3_value(uint8_t v) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(v), __NV_E4M3)));
}

// value is a dimension of a row, without its scale.
__device__ __forceinline__ float value(uint32_t format, const uint8_t *row, uint32_t d) {
  const uint16_t *wide = reinterpret_cast<const uint16_t *>(row);
  switch (format) {
    case kF32: return reinterpret_cast<const float *>(row)[d];
    case kF16: return f16_value(wide[d]);
    case kBF16: return bf16_value(wide[d]);
    case kI8: return float(int8_t(row[d]));
    case kE4M3: return e4m3_value(row[d]);
    default: {  // split
      const uint16_t *hi = wide + d / 32 * 64 + d % 32;
      return f16_value(hi[0]) + f16_value(hi[32]);
    }
  }
}

// A thread has 4 document tokens × 4 query tokens of 64 × 32.
extern "C" __global__ void __launch_bounds__(128) dense_any(const __grid_constant__ DenseParams p) {
  constexpr int kDocs = 64, kQueries = 32, kDims = 32;
  __shared__ __align__(16) float docs[kDims][kDocs + 4], queries[kDims][kQueries + 4];
  __shared__ float tops[16][kQueries + 1];
  __shared__ uint32_t tops_at[16][kQueries + 1];
  const uint32_t tid = threadIdx.x, x = tid % 8, y = tid / 8;
  wait_before();
  const DenseUnit unit = p.units[blockIdx.x];
  const DenseGroup group = p.groups[unit.group];
  for (uint32_t i = unit.begin; i < unit.end; i++) {
    const DenseItem item = p.items[i];
    float best[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    uint32_t first[4] = {};
    const uint32_t len = item.len & kRows;
    for (uint32_t t = 0; t < len; t += kDocs) {
      float sums[4][4] = {};
      for (uint32_t d = 0; d < p.dim; d += kDims) {
        __syncthreads();
        for (uint32_t e = tid; e < kDocs * kDims; e += 128) {
          const uint32_t r = e / kDims, k = e % kDims;
          const uint8_t *row = p.docs + (item.begin + min(t + r, len - 1)) * p.row_bytes;
          docs[k][r] = d + k < p.dim ? value(p.doc_format, row, d + k) : 0.0f;
        }
        for (uint32_t e = tid; e < kQueries * kDims; e += 128) {
          const uint32_t r = e / kDims, k = e % kDims;
          const uint8_t *row = p.queries + uint64_t(group.row + min(r, max(group.count, 1) - 1)) * p.query_bytes;
          queries[k][r] = d + k < p.dim ? value(p.query_format, row, d + k) : 0.0f;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < kDims; k++) {
          const float4 a = *reinterpret_cast<const float4 *>(&docs[k][4 * y]), b = *reinterpret_cast<const float4 *>(&queries[k][4 * x]);
          const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
          for (int m = 0; m < 4; m++)
#pragma unroll
            for (int n = 0; n < 4; n++) sums[m][n] = fmaf(as[m], bs[n], sums[m][n]);
        }
      }
#pragma unroll
      for (int m = 0; m < 4; m++) {
        const uint32_t r = t + 4 * y + m;
        const uint64_t row = item.begin + min(r, len - 1);
        float scale = p.doc_scale ? p.doc_scale[row] : 1.0f;
        if (!is_token(p, item, row)) scale = kNone;
#pragma unroll
        for (int n = 0; n < 4; n++) {
          const float v = sums[m][n] * scale;
          if (v > best[n]) best[n] = v, first[n] = r;
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 4; n++) tops[y][4 * x + n] = best[n], tops_at[y][4 * x + n] = first[n];
    __syncthreads();
    if (tid < 32) {
      float v = tops[0][tid];
      uint32_t f = tops_at[0][tid];
      for (int r = 1; r < 16; r++)
        if (tops[r][tid] > v || (tops[r][tid] == v && tops_at[r][tid] < f)) v = tops[r][tid], f = tops_at[r][tid];
      const bool used = tid < group.count;
      const float weight = used ? p.weights[group.row + tid] : 0.0f;
      const uint64_t to = group.arg + uint64_t(item.pos) * group.arg_pitch + tid;
      if (used && p.arg) p.arg[to] = counts(v) && is_query(weight) ? int32_t(f) : -1;
      if (used && p.top) p.top[to] = v;
      float sum = weight != 0 && counts(v) ? v * weight : 0.0f;
      for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
      if (tid == 0) p.out[group.out + item.pos] = sum;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) dense_sum(const __grid_constant__ DenseSumParams p) {
  const uint32_t i = blockIdx.y * 256 + threadIdx.x, n = p.count[blockIdx.x], groups = p.groups[blockIdx.x];
  if (i >= n) return;
  const float *part = p.part + p.part_at[blockIdx.x] + i;
  float sum = 0;
  for (uint32_t k = 0; k < groups; k++) sum += part[uint64_t(k) * n];
  p.out[p.out_at[blockIdx.x] + i] = sum;
}

}  // namespace plaid
