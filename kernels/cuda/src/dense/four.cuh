// four.cuh: rows that are read four values at a time.
#pragma once
#include "any.cuh"

namespace plaid {

constexpr int kAny = 0;  // any format and alignment

// Four is four values of a row from a dimension on that is a multiple of four,
// without the scale, as they were loaded.
template <int kFormat> struct Four {
  uint2 v;
  __device__ __forceinline__ void load(const uint8_t *row, uint32_t d) { v = *reinterpret_cast<const uint2 *>(row + 2 * d); }
  __device__ __forceinline__ float get(int k) const {
    const uint16_t h = uint16_t((k < 2 ? v.x : v.y) >> 16 * (k & 1));
    return kFormat == kF16 ? f16_value(h) : bf16_value(h);
  }
};
template <> struct Four<kF32> {
  float4 v;
  __device__ __forceinline__ void load(const uint8_t *row, uint32_t d) { v = *reinterpret_cast<const float4 *>(row + 4 * d); }
  __device__ __forceinline__ float get(int k) const { return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w; }
};
template <> struct Four<kI8> {
  uint32_t v;
  __device__ __forceinline__ void load(const uint8_t *row, uint32_t d) { v = *reinterpret_cast<const uint32_t *>(row + d); }
  __device__ __forceinline__ float get(int k) const { return float(int8_t(v >> 8 * k)); }
};
template <> struct Four<kE4M3> {
  uint32_t v;
  __device__ __forceinline__ void load(const uint8_t *row, uint32_t d) { v = *reinterpret_cast<const uint32_t *>(row + d); }
  __device__ __forceinline__ float get(int k) const { return e4m3_value(uint8_t(v >> 8 * k)); }
};
template <> struct Four<kSplit> {
  Four<kF16> hi, lo;
  __device__ __forceinline__ void load(const uint8_t *row, uint32_t d) {
    hi.load(row + d / 32 * 128, d % 32), lo.load(row + d / 32 * 128 + 64, d % 32);
  }
  __device__ __forceinline__ float get(int k) const { return hi.get(k) + lo.get(k); }
};

template <> struct Four<kAny> {
  float v[4];
  __device__ __forceinline__ float get(int k) const { return v[k]; }
};

template <int kFormat>
__device__ __forceinline__ void load_four(Four<kFormat> &x, const DenseGradSide &s, uint64_t r, uint32_t d, uint32_t dim) {
  const uint8_t *row = s.rows + r * s.row_bytes;
  if constexpr (kFormat == kAny) {
    const float zero = s.zeros ? float(s.zeros[r]) : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) x.v[k] = d + k < dim ? value(s.format, row, d + k) - zero : 0.0f;
  } else {
    x.load(row, d);
  }
}

}  // namespace plaid
