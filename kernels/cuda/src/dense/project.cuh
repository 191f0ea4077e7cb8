// project.cuh: hidden states to token vectors, out = hidden · weightsᵀ + bias, of any
// formats and on any device; head.cuh has the fast kernels.
#pragma once
#include "any.cuh"

namespace plaid {

// A thread has 4 rows × 4 dimensions of 64 × 32.
extern "C" __global__ void __launch_bounds__(128) dense_project_any(const __grid_constant__ DenseProjectParams p) {
  constexpr int kRows = 64, kOut = 32, kDims = 32;
  __shared__ __align__(16) float hidden[kDims][kRows + 4], weights[kDims][kOut + 4];
  const uint32_t tid = threadIdx.x, x = tid % 8, y = tid / 8;
  const uint32_t r0 = blockIdx.x * kRows, c0 = blockIdx.y * kOut;
  float sums[4][4] = {};
  for (uint32_t d = 0; d < p.hidden_dim; d += kDims) {
    __syncthreads();
    for (uint32_t e = tid; e < kRows * kDims; e += 128) {
      const uint32_t r = e / kDims, k = e % kDims;
      const uint8_t *row = p.hidden + uint64_t(min(r0 + r, p.rows - 1)) * p.row_bytes;
      hidden[k][r] = d + k < p.hidden_dim ? value(p.hidden_format, row, d + k) : 0.0f;
    }
    for (uint32_t e = tid; e < kOut * kDims; e += 128) {
      const uint32_t r = e / kDims, k = e % kDims;
      const uint8_t *row = p.weights + uint64_t(min(c0 + r, p.dim - 1)) * p.weight_bytes;
      weights[k][r] = d + k < p.hidden_dim ? value(p.weight_format, row, d + k) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kDims; k++) {
      const float4 a = *reinterpret_cast<const float4 *>(&hidden[k][4 * y]), b = *reinterpret_cast<const float4 *>(&weights[k][4 * x]);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 4; n++) sums[m][n] = fmaf(as[m], bs[n], sums[m][n]);
    }
  }
#pragma unroll
  for (int m = 0; m < 4; m++) {
    const uint32_t r = r0 + 4 * y + m;
    if (r >= p.rows) break;
    const float scale = p.hidden_scale ? p.hidden_scale[r] : 1.0f;
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const uint32_t c = c0 + 4 * x + n;
      if (c < p.dim) p.out[uint64_t(r) * p.dim + c] = fmaf(sums[m][n], scale * (p.weight_scale ? p.weight_scale[c] : 1.0f), p.bias ? p.bias[c] : 0.0f);
    }
  }
}

}  // namespace plaid
