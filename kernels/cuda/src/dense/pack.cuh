// pack.cuh: vectors as they come to rows.
#pragma once
#include "any.cuh"

namespace plaid {

// A dimension of a token that is decoded: factor · (centroid + scales · weight).
__device__ __forceinline__ float decoded_value(const DensePackParams &p, uint32_t r, uint32_t d) {
  const DenseCodec &c = p.codec;
  const uint32_t code = c.code_bytes == 2 ? reinterpret_cast<const uint16_t *>(p.in)[r] : reinterpret_cast<const uint32_t *>(p.in)[r];
  const uint64_t at = uint64_t(code) * p.dim + d;
  float v;
  if (c.centroid_type == 1) v = bf16_value(reinterpret_cast<const uint16_t *>(c.centroids)[at]);
  else if (c.centroid_type == 2) v = f16_value(reinterpret_cast<const uint16_t *>(c.centroids)[at]);
  else v = reinterpret_cast<const float *>(c.centroids)[at];
  const uint32_t bit = d * c.nbits;
  const uint32_t bucket = p.residuals[uint64_t(r) * c.residual_bytes + bit / 8] >> bit % 8 & ((1u << c.nbits) - 1);
  float w = c.weights[bucket];
  if (c.centroid_scale) w *= c.centroid_scale[code];
  if (c.dim_scale) w *= c.dim_scale[d];
  return float(p.factors[r]) * c.factor * (v + w);
}

// The value that a source has at a dimension, without its scale.
__device__ __forceinline__ float source_value(const DensePackParams &p, uint32_t r, uint32_t d) {
  const uint64_t i = uint64_t(r) * p.dim + d;
  switch (p.source) {
    case kF32: return reinterpret_cast<const float *>(p.in)[i];
    case kF16: return f16_value(reinterpret_cast<const uint16_t *>(p.in)[i]);
    case kBF16: return bf16_value(reinterpret_cast<const uint16_t *>(p.in)[i]);
    case kI8: return float(int32_t(int8_t(p.in[i])) - (p.zeros ? p.zeros[r] : 0));
    case kCompressed: return decoded_value(p, r, d);
    default: return e4m3_value(p.in[i]);
  }
}

extern "C" __global__ void __launch_bounds__(256) dense_pack(const __grid_constant__ DensePackParams p) {
  const uint32_t r = blockIdx.x * 8 + threadIdx.x / 32, l = threadIdx.x & 31;
  if (r >= p.n) return;
  float most = 0, square = 0;
  if (p.format == kSplit || p.inverse || p.unit) {
    for (uint32_t d = l; d < p.dim; d += 32) most = fmaxf(most, fabsf(source_value(p, r, d)));
    for (int s = 16; s; s >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, s));
  }
  // A power of two about the largest value, so that squares keep within range; for
  // values below the normal ones it stays where 2^−exponent is a float.
  int exponent = 0;
  if (most > 0) frexpf(most, &exponent);
  exponent = max(exponent, -110);
  const float down = ldexpf(1.0f, -exponent);
  float inverse = 1;
  const float given = p.scales ? p.scales[r] : 1.0f;
  if (p.inverse || p.unit) {
    for (uint32_t d = l; d < p.dim; d += 32) {
      const float v = source_value(p, r, d) * down;
      square = fmaf(v, v, square);
    }
    for (int s = 16; s; s >>= 1) square += __shfl_xor_sync(0xffffffffu, square, s);
    inverse = square > 0 ? 1 / sqrtf(square) : 0.0f;  // of values times down
  }
  uint8_t *row = p.rows + uint64_t(r) * p.row_bytes;
  uint16_t *wide = reinterpret_cast<uint16_t *>(row);
  switch (p.rows ? p.format : 0u) {
    case 0: break;
    case kSplit:
      for (uint32_t d = l; d < p.row_bytes / 4; d += 32) {
        const float v = d < p.dim ? source_value(p, r, d) * down * 0x1p15f : 0.0f;
        const __half hi = __float2half_rn(v);
        wide[d / 32 * 64 + d % 32] = __half_as_ushort(hi);
        wide[d / 32 * 64 + d % 32 + 32] = __half_as_ushort(__float2half_rn(v - __half2float(hi)));
      }
      break;
    case kF32:
      for (uint32_t d = l; d < p.row_bytes / 4; d += 32) reinterpret_cast<float *>(row)[d] = d < p.dim ? source_value(p, r, d) : 0.0f;
      break;
    case kF16:
      for (uint32_t d = l; d < p.row_bytes / 2; d += 32) wide[d] = d < p.dim ? __half_as_ushort(__float2half_rn(source_value(p, r, d))) : 0;
      break;
    case kBF16:
      for (uint32_t d = l; d < p.row_bytes / 2; d += 32) wide[d] = d < p.dim ? reinterpret_cast<const uint16_t *>(p.in)[uint64_t(r) * p.dim + d] : 0;
      break;
    default:
      for (uint32_t d = l; d < p.row_bytes; d += 32) row[d] = d < p.dim ? p.in[uint64_t(r) * p.dim + d] : 0;
  }
  if (l) return;
  // The length of the vector is |given| / (inverse · down).
  const float stored = p.format == kSplit ? 0x1p-15f : down;  // a value of the row over one times down
  if (p.scale) p.scale[r] = p.format == kSplit ? given * ldexpf(1.0f, exponent - 15) : given;
  if (p.unit) p.unit[r] = given == 0 ? 0.0f : copysignf(inverse, given) * stored;
  if (p.inverse) p.inverse[r] = given == 0 ? 0.0f : inverse * down / fabsf(given);
}

extern "C" __global__ void __launch_bounds__(256) dense_weights(const __grid_constant__ DenseWeightsParams p) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= p.n) return;
  bool token = true;
  if (p.lengths || p.mask) {
    const uint32_t item = i / p.stride, place = i % p.stride;
    token = item < p.items && place < p.longest && (p.lengths ? int32_t(place) < p.lengths[item] : p.mask[item * p.mask_stride + place] != 0);
  }
  p.out[i] = token ? (p.weights ? p.weights[i] : 1.0f) * (p.scale ? p.scale[i] : 1.0f) + 0.0f : -0.0f;
}

}  // namespace plaid
