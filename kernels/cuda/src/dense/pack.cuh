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

// A power of two about the largest value, so that squares keep within range; for values below
// the normal ones it stays where 2^−exponent is a float.
__device__ __forceinline__ int pack_exponent(float most) {
  int exponent = 0;
  if (most > 0) frexpf(most, &exponent);
  return max(exponent, -110);
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int s = 16; s; s >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, s));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffffu, v, s);
  return v;
}

// pack_scales writes the factors of a row. square is the sum of the squares of its values times
// 2^−exponent.
__device__ __forceinline__ void pack_scales(const DensePackParams &p, uint32_t r, int exponent, float square) {
  const float down = ldexpf(1.0f, -exponent), given = p.scales ? p.scales[r] : 1.0f;
  const float inverse = square > 0 ? 1 / sqrtf(square) : 0.0f;
  // The length of the vector is |given| / (inverse · down).
  const float stored = p.format == kSplit ? 0x1p-15f : down;  // a value of the row over one times down
  if (p.scale) p.scale[r] = p.format == kSplit ? given * ldexpf(1.0f, exponent - 15) : given;
  if (p.unit) p.unit[r] = given == 0 ? 0.0f : copysignf(inverse, given) * stored;
  if (p.inverse) p.inverse[r] = given == 0 ? 0.0f : inverse * down / fabsf(given);
}

// packed_at is where a byte of a row lies, and with it those up to the next multiple of 16.
__device__ __forceinline__ uint8_t *packed_at(const DensePackParams &p, uint32_t r, uint32_t byte) {
  if (p.columns == 0) return p.rows + uint64_t(r) * p.row_bytes + byte;
  const uint64_t piece = uint64_t(r / p.columns) * (p.row_bytes / 16) + byte / 16;
  return p.rows + (piece * p.columns + r % p.columns) * 16 + byte % 16;
}

// Rows that stay as they are, or of zeros, 16 bytes at a time.
__device__ __forceinline__ void pack_copied(const DensePackParams &p, uint32_t r, uint32_t bytes) {
  const uint4 *in = reinterpret_cast<const uint4 *>(p.in + uint64_t(r) * bytes);
  for (uint32_t c = threadIdx.x & 31; c < p.row_bytes / 16; c += 32)
    *reinterpret_cast<uint4 *>(packed_at(p, r, c * 16)) = c < bytes / 16 ? __ldg(in + c) : make_uint4(0, 0, 0, 0);
}

// Rows whose values a warp has in registers, up to kHeldValues a lane, 16 bytes at a time. Bound: the bytes.
constexpr uint32_t kHeldValues = 32;

template <int kSource>
__device__ __forceinline__ void pack_held(const DensePackParams &p, uint32_t r) {
  constexpr int kPer = kSource == kF32 ? 4 : 8, kHeld = kHeldValues / kPer;
  const uint32_t l = threadIdx.x & 31, n = p.dim / kPer;
  const uint4 *in = reinterpret_cast<const uint4 *>(p.in) + uint64_t(r) * n;
  float v[kHeld][kPer] = {};
  float most = 0, square = 0;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const uint32_t c = l + 32 * i;
    if (c >= n) continue;
    const uint4 w = __ldg(in + c);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int k = 0; k < kPer; k++) {
      if constexpr (kSource == kF32) v[i][k] = __uint_as_float(words[k]);
      else if constexpr (kSource == kF16) v[i][k] = f16_value(uint16_t(words[k / 2] >> k % 2 * 16));
      else v[i][k] = bf16_value(uint16_t(words[k / 2] >> k % 2 * 16));
      most = fmaxf(most, fabsf(v[i][k]));
    }
  }
  const int exponent = pack_exponent(warp_max(most));
  const float down = ldexpf(1.0f, -exponent);
  if (p.inverse || p.unit) {
#pragma unroll
    for (int i = 0; i < kHeld; i++)
#pragma unroll
      for (int k = 0; k < kPer; k++) square = fmaf(v[i][k] * down, v[i][k] * down, square);
    square = warp_sum(square);
  }
  if (p.rows) {  // of format split
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const uint32_t d = (l + 32 * i) * kPer;
      if (d >= p.row_bytes / 4) continue;
      uint32_t hi[kPer / 2], lo[kPer / 2];
#pragma unroll
      for (int k = 0; k < kPer / 2; k++) {
        const float x = v[i][2 * k] * down * 0x1p15f, y = v[i][2 * k + 1] * down * 0x1p15f;
        const __half2 h = __floats2half2_rn(x, y);
        const __half2 rest = __floats2half2_rn(x - __low2float(h), y - __high2float(h));
        hi[k] = *reinterpret_cast<const uint32_t *>(&h), lo[k] = *reinterpret_cast<const uint32_t *>(&rest);
      }
      const uint32_t byte = d / 32 * 128 + d % 32 * 2;
      uint8_t *to = packed_at(p, r, byte), *to_lo = packed_at(p, r, byte + 64);
      if constexpr (kPer == 4) {
        *reinterpret_cast<uint2 *>(to) = make_uint2(hi[0], hi[1]);
        *reinterpret_cast<uint2 *>(to_lo) = make_uint2(lo[0], lo[1]);
      } else {
        *reinterpret_cast<uint4 *>(to) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
        *reinterpret_cast<uint4 *>(to_lo) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
      }
    }
  }
  if (l == 0) pack_scales(p, r, exponent, square);
}

// A row, by a warp.
__device__ __forceinline__ void pack_row(const DensePackParams &p, uint32_t r) {
  const uint32_t l = threadIdx.x & 31;
  if (r >= p.n) {
    if (p.columns > 0 && r < (p.n + p.columns - 1) / p.columns * p.columns) pack_copied(p, r, 0);
    return;
  }
  if (p.columns > 0 && p.source == p.format && p.dim % 8 == 0 && reinterpret_cast<uint64_t>(p.in) % 16 == 0)
    return pack_copied(p, r, p.dim * 2);
  if ((p.format == kSplit || !p.rows) && reinterpret_cast<uint64_t>(p.in) % 16 == 0) {
    if (p.source == kF32 && p.dim % 4 == 0 && p.dim <= 32 * kHeldValues) return pack_held<kF32>(p, r);
    if (p.source == kF16 && p.dim % 8 == 0 && p.dim <= 32 * kHeldValues) return pack_held<kF16>(p, r);
    if (p.source == kBF16 && p.dim % 8 == 0 && p.dim <= 32 * kHeldValues) return pack_held<kBF16>(p, r);
  }
  float most = 0, square = 0;
  if (p.format == kSplit || p.inverse || p.unit) {
    for (uint32_t d = l; d < p.dim; d += 32) most = fmaxf(most, fabsf(source_value(p, r, d)));
    most = warp_max(most);
  }
  const int exponent = pack_exponent(most);
  const float down = ldexpf(1.0f, -exponent);
  if (p.inverse || p.unit) {
    for (uint32_t d = l; d < p.dim; d += 32) {
      const float v = source_value(p, r, d) * down;
      square = fmaf(v, v, square);
    }
    square = warp_sum(square);
  }
  uint8_t *row = p.rows + uint64_t(r) * p.row_bytes;  // where there are no columns
  auto put = [&](uint32_t byte, uint16_t v) { *reinterpret_cast<uint16_t *>(packed_at(p, r, byte)) = v; };
  switch (p.rows ? p.format : 0u) {
    case 0: break;
    case kSplit:
      for (uint32_t d = l; d < p.row_bytes / 4; d += 32) {
        const float v = d < p.dim ? source_value(p, r, d) * down * 0x1p15f : 0.0f;
        const __half hi = __float2half_rn(v);
        put(d / 32 * 128 + d % 32 * 2, __half_as_ushort(hi));
        put(d / 32 * 128 + d % 32 * 2 + 64, __half_as_ushort(__float2half_rn(v - __half2float(hi))));
      }
      break;
    case kF32:
      for (uint32_t d = l; d < p.row_bytes / 4; d += 32) reinterpret_cast<float *>(row)[d] = d < p.dim ? source_value(p, r, d) : 0.0f;
      break;
    case kF16:
      for (uint32_t d = l; d < p.row_bytes / 2; d += 32) put(2 * d, d < p.dim ? __half_as_ushort(__float2half_rn(source_value(p, r, d))) : 0);
      break;
    case kBF16:
      for (uint32_t d = l; d < p.row_bytes / 2; d += 32) put(2 * d, d < p.dim ? reinterpret_cast<const uint16_t *>(p.in)[uint64_t(r) * p.dim + d] : 0);
      break;
    default:
      for (uint32_t d = l; d < p.row_bytes; d += 32) row[d] = d < p.dim ? p.in[uint64_t(r) * p.dim + d] : 0;
  }
  if (l == 0) pack_scales(p, r, exponent, square);
}

extern "C" __global__ void __launch_bounds__(256, 4) dense_pack(const __grid_constant__ DensePackParams p) {
  let_next();
  pack_row(p, blockIdx.x * 8 + threadIdx.x / 32);
  wait_before();
}

// query_weight is what dense_weights writes.
__device__ __forceinline__ float query_weight(const DenseWeightsParams &p, uint32_t i) {
  if (p.lengths || p.mask) {
    const uint32_t item = i / p.stride, place = i % p.stride;
    if (item >= p.items || place >= p.longest) return -0.0f;
    if (p.lengths ? int32_t(place) >= p.lengths[item] : p.mask[item * p.mask_stride + place] == 0) return -0.0f;
  }
  return (p.weights ? p.weights[i] : 1.0f) * (p.scale ? p.scale[i] : 1.0f) + 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) dense_weights(const __grid_constant__ DenseWeightsParams p) {
  let_next();
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i < p.n) p.out[i] = query_weight(p, i);
  wait_before();
}

extern "C" __global__ void __launch_bounds__(256, 4) dense_prepare(const __grid_constant__ DensePrepareParams p) {
  let_next();
  const bool head = blockIdx.x >= p.first_blocks;
  const DensePackParams &side = p.side[head];
  const uint32_t r = (blockIdx.x - (head ? p.first_blocks : 0)) * 8 + threadIdx.x / 32;
  pack_row(side, r);
  // The scale of a row was written by this thread.
  if (!head && r < side.n && threadIdx.x % 32 == 0 && p.weights.out) p.weights.out[r] = query_weight(p.weights, r);
  wait_before();
}

}  // namespace plaid
