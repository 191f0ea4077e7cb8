// query.cu: from query tokens to the operands of the scans, and the centroid
// scores S = C·Qᵀ that become rows of accumulators.
#include <cuda_fp8.h>
#include "plaid.cuh"

namespace plaid {

constexpr float kHalfRange = 4194304.0f;  // 2^22: sums lie in −2^22 .. 2^22 units

__device__ __forceinline__ float warp_sum(float v) {
  for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffffu, v, s);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int s = 16; s; s >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, s));
  return v;
}

// Split of the coefficients k[0..n) of a half-byte: k[f] ~ m·h[f] + x·2^(bits·f).
// Returns the squared error.
template <int kFields>
__device__ __forceinline__ float split(const float (&k)[kFields], int bits, float m, int (&h)[kFields], int &x) {
  auto cost = [&](int cand, int (&hh)[kFields]) {
    float e2 = 0;
#pragma unroll
    for (int f = 0; f < kFields; f++) {
      const float low = float(cand << (bits * f));
      hh[f] = max(-127, min(127, __float2int_rn((k[f] - low) / m)));
      const float e = k[f] - low - m * float(hh[f]);
      e2 += e * e;
    }
    return e2;
  };
  float best = INFINITY;
  int hh[kFields];
  const int half = int(m) / 2;
  auto consider = [&](int cand) {
    const float e = cost(cand, hh);
    if (e < best) {
      best = e, x = cand;
#pragma unroll
      for (int f = 0; f < kFields; f++) h[f] = hh[f];
    }
  };
  if constexpr (kFields == 1) {
    consider(__float2int_rn(k[0] - m * rintf(k[0] / m)));
  } else if constexpr (kFields == 2) {
    // x within 1 of k[1]/4 modulo 16, and of those the four modulo 64.
    const int r = __float2int_rn(k[1] * 0.25f);
    for (int d = -1; d <= 1; d++)
      for (int j = 0; j < 4; j++) {
        const int v = (r + d + 16 * j) & 63;
        consider(v >= 32 ? v - 64 : v);
      }
  } else {
    for (int v = -half; v < half; v++) consider(v);
  }
  return best;
}

// A warp's column, uniform levels of NB bits.
template <int NB>
__device__ void prepare(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
  constexpr int kFields = NB == 1 ? 4 : NB == 2 ? 2 : 1;  // of a half-byte; of a byte at 8 bits
  constexpr float kM = NB == 1 ? 128 : NB == 2 ? 64 : 16;
  // Room for x: 8·64 of 128 a unit of h at 1 bit, 4·32 of 64 at 2, 8 of 16 else.
  constexpr float kLimit = NB == 1 ? 120 * 128.0f : NB == 2 ? 124 * 64.0f : 126 * 16.0f;
  constexpr float kMid = ((1 << NB) - 1) * 0.5f;
  const int l = threadIdx.x & 31;
  float largest = 0, sum = 0, norm = 0;
  for (uint32_t j = l; j < p.dim; j += 32) {
    const float v = q[j], a = fabsf(v * (p.dim_scale ? p.dim_scale[j] : 1.0f)) * p.step;
    norm += v * v, sum += a, largest = fmaxf(largest, a);
  }
  norm = sqrtf(warp_sum(norm)), sum = warp_sum(sum), largest = warp_max(largest);
  const float range = (p.s_max * norm + kMid * sum) * (1.0f / (0.97f * kHalfRange));
  float u = fmaxf(fmaxf(largest / kLimit, range), 1e-30f);
  const float inv = 1.0f / u;

  uint8_t *frags = reinterpret_cast<uint8_t *>(p.frags + size_t(g) * p.frag_stride);
  const uint32_t nb = col / 8, words = p.lane_words;
  auto put = [&](uint32_t step, uint32_t j, uint32_t reg, uint32_t byte, int v) {
    frags[(((step * 4 + nb) * 32 + (col & 7) * 4 + j) * 2 + reg) * 4 + byte] = uint8_t(int8_t(v));
  };
  const uint32_t parts = NB == 8 ? 1 : 2;  // of a byte
  float total = 0, errors = 0;
  for (uint32_t i = l; i < 16 * words * parts; i += 32) {
    const uint32_t half = i % parts, byte = i / parts;  // byte of the row
    const uint32_t lane = byte / (4 * words), word = byte / 4 % words, m = byte & 3;
    float k[kFields];
    int h[kFields], x;
    const uint32_t d0 = NB == 8 ? byte : (byte * 2 + half) * kFields;
    for (int f = 0; f < kFields; f++) {
      const uint32_t d = d0 + f;
      k[f] = d < p.dim ? q[d] * (p.dim_scale ? p.dim_scale[d] : 1.0f) * p.step * inv : 0.0f;
    }
    split<kFields>(k, NB, kM, h, x);
    for (int f = 0; f < kFields; f++) {
      const float made = kM * float(h[f]) + float(x << (NB == 8 ? 0 : NB * f));
      if (d0 + f < p.dim) total += made, errors += fabsf(made - k[f]);  // else the field is 0
      if (NB == 8) {
        put(word & ~1u, lane, word & 1, m, h[f]);
      } else {
        const uint32_t field = half * kFields + f, per = NB == 1 ? 5 : NB == 2 ? 3 : 2;
        put(word * per + field / 2, lane, field & 1, m, h[f]);
      }
    }
    if (NB == 8) put(word | 1u, lane, word & 1, m, x);
    else put(word * (NB == 1 ? 5 : NB == 2 ? 3 : 2) + (NB == 1 ? 4 : NB == 2 ? 2 : 1), lane, half, m, x);
  }
  if (NB == 8 && (words & 1))  // the second word of the last pair does not exist
    for (uint32_t i = l; i < 16; i += 32) put(words - 1, i / 4, 1, i & 3, 0), put(words, i / 4, 1, i & 3, 0);
  total = warp_sum(total), errors = warp_sum(errors);
  if (l == 0) {
    p.cols[g * kColumns + col] = make_float4(inv, kHalfRange - kMid * total, weight * u * p.factor_max, weight * u);
    // S rounded to 256 units, the coefficients, float32 arithmetic near 2^23, S itself.
    if (p.bound) atomicAdd(&p.bound[g], fabsf(weight) * p.factor_max * (u * (128 + kMid * errors + 4) + 2e-5f * p.s_max * norm));
  }
}

__device__ __forceinline__ uint8_t to_fp8(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }
__device__ __forceinline__ float of_fp8(uint8_t v) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3))); }

// A warp's column for scan_f*: coefficients in two e4m3 parts, placed as the
// core matrices (8 query tokens × 16 bytes) of wgmma's B operand.
__device__ void prepare_fp8(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
  const int l = threadIdx.x & 31, nb = p.nbits;
  const float mid = ((1 << nb) - 1) * 0.5f;
  float largest = 0, norm = 0, sum = 0;
  for (uint32_t j = l; j < p.dim; j += 32) {
    const float v = q[j], a = fabsf(v * (p.dim_scale ? p.dim_scale[j] : 1.0f)) * p.step;
    norm += v * v, largest = fmaxf(largest, a), sum += a;
  }
  norm = sqrtf(warp_sum(norm)), largest = warp_max(largest), sum = warp_sum(sum);
  // Coefficients reach 440 of 448; sums, in units of 2^-9, stay below 32,000.
  const float reach = p.s_max * norm + 2 * mid * sum;
  const float alpha = fminf(440.0f / fmaxf(largest, 1e-30f), 32000.0f * 512 / fmaxf(reach, 1e-30f));
  uint8_t *frags = reinterpret_cast<uint8_t *>(p.frags + size_t(g) * p.frag_stride);
  const uint32_t words = p.lane_words, fields = 8 / nb, per = fields / 2, steps = per * words;
  float total = 0, errors = 0;
  for (uint32_t i = l; i < 16 * words * fields; i += 32) {
    const uint32_t f = i % fields, byte = i / fields, lane = byte / (4 * words), word = byte / 4 % words, m = byte & 3;
    const float place = float(1 << (f % (4 / nb) * nb));
    const float k = i < p.dim ? q[i] * (p.dim_scale ? p.dim_scale[i] : 1.0f) * p.step * alpha : 0.0f;
    const uint8_t hi = to_fp8(k / place), lo = to_fp8(k / place - of_fp8(hi));
    const float made = (of_fp8(hi) + of_fp8(lo)) * place;
    total += made, errors += fabsf(made - k);
    const uint32_t at = (word * per + f / 2) * 1024 + col / 8 * 256 + (f & 1) * 128 + (col & 7) * 16 + lane * 4 + m;
    frags[at] = hi, frags[at + steps * 1024] = lo;
  }
  total = warp_sum(total), errors = warp_sum(errors);
  if (l == 0) {
    const float mul = alpha * (1.0f / 512);
    p.cols[g * kColumns + col] = make_float4(mul, -mid * total * (1.0f / 512), weight * p.factor_max / mul, weight / mul);
    // 2·steps roundings of the sum, those of S, of the factor and of their product.
    if (p.bound) atomicAdd(&p.bound[g], fabsf(weight) * p.factor_max * (mid * errors / alpha + (2 * steps + 4) * 0x1p-11f * reach));
  }
}

// A warp's column for a table codebook: half-precision coefficients in units
// of a row entry, 1/16000 of the largest S.
__device__ void prepare_table(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
  const int l = threadIdx.x & 31;
  float largest = 0, norm = 0, sum = 0;
  for (uint32_t j = l; j < p.dim; j += 32) {
    const float v = q[j], a = fabsf(v * (p.dim_scale ? p.dim_scale[j] : 1.0f)) * p.step;
    norm += v * v, largest = fmaxf(largest, a), sum += a;
  }
  norm = sqrtf(warp_sum(norm)), largest = warp_max(largest), sum = warp_sum(sum);
  const float u = fmaxf(fmaxf(p.s_max * norm / 16000.0f, largest / 30000.0f), 1e-30f), inv = 1.0f / u;
  __half *frags = reinterpret_cast<__half *>(p.frags + size_t(g) * p.frag_stride);
  const uint32_t lane_dims = p.lane_words * 32 / p.nbits;
  for (uint32_t i = l; i < 4 * lane_dims; i += 32) {
    const uint32_t j = i / lane_dims, e = i % lane_dims;  // dimension e of lane j
    const float v = i < p.dim ? q[i] * (p.dim_scale ? p.dim_scale[i] : 1.0f) * p.step * inv : 0.0f;
    frags[((((e / 4) * 4 + col / 8) * 32 + (col & 7) * 4 + j) * 2 + (e >> 1 & 1)) * 2 + (e & 1)] = __float2half_rn(v);
  }
  if (l == 0) {
    p.cols[g * kColumns + col] = make_float4(256 * inv, 16384.0f * 256, weight * u * p.factor_max, weight * u / 256);
    if (p.bound) atomicAdd(&p.bound[g], fabsf(weight) * p.factor_max * (u + 1.1e-3f * sum + 2e-5f * p.s_max * norm));
  }
}

// prep_query: a warp a column. 8 to 10 µs for a group of 128 dimensions.
extern "C" __global__ void __launch_bounds__(256) prep_query(const __grid_constant__ PrepParams p) {
  const uint32_t g = blockIdx.y, col = blockIdx.x * 8 + threadIdx.x / 32, l = threadIdx.x & 31;
  const float *q = p.query + (size_t(g) * kColumns + col) * p.dim;
  const uint32_t dim16 = (p.dim + 15) & ~15u;
  __nv_bfloat16 *hi = p.split + (size_t(g) * 2 * kColumns + col) * dim16, *lo = hi + size_t(kColumns) * dim16;
  for (uint32_t j = l; j < dim16; j += 32) {
    const float v = j < p.dim ? q[j] : 0.0f;
    const __nv_bfloat16 h = __float2bfloat16_rn(v);
    hi[j] = h, lo[j] = __float2bfloat16_rn(v - __bfloat162float(h));
  }
  const float weight = p.weights[g * kColumns + col];
  switch (p.mode) {
    case 1: prepare<1>(p, q, g, col, weight); break;
    case 2: prepare<2>(p, q, g, col, weight); break;
    case 4: prepare<4>(p, q, g, col, weight); break;
    case 8: prepare<8>(p, q, g, col, weight); break;
    case 16: prepare_table(p, q, g, col, weight); break;
    default: prepare_fp8(p, q, g, col, weight);
  }
}

__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// centroid_scores: bf16 centroids are exact, the query is the sum of two bf16
// vectors, sums are float32. A warp takes 16 centroids; lane 4g + j ends with
// exactly the 16 bytes of a row that lane 4g' + j of a scan will load.
// Bound: 2·d bytes a centroid. K = 65,536, d = 128: 0.03 to 0.04 ms.
extern "C" __global__ void __launch_bounds__(256) centroid_scores(const __grid_constant__ CentroidParams p) {
  const uint32_t group = blockIdx.y, l = threadIdx.x & 31, g = l >> 2, j = l & 3;
  const uint32_t c0 = (blockIdx.x * 8 + threadIdx.x / 32) * 16;
  if (c0 >= p.k) return;
  const uint32_t dim16 = (p.dim + 15) & ~15u;
  const uint32_t r0 = min(c0 + g, p.k - 1), r1 = min(c0 + g + 8, p.k - 1);
  const uint32_t *a0 = reinterpret_cast<const uint32_t *>(p.centroids + size_t(r0) * dim16) + j;
  const uint32_t *a1 = reinterpret_cast<const uint32_t *>(p.centroids + size_t(r1) * dim16) + j;
  const uint32_t *hi = reinterpret_cast<const uint32_t *>(p.split + (size_t(group) * 2 * kColumns + g) * dim16) + j;
  const uint32_t *lo = hi + kColumns * dim16 / 2;
  float acc[4][4] = {};
  const uint32_t half = dim16 / 2;  // words a row
#pragma unroll 4
  for (uint32_t k = 0; k < half; k += 8) {
    const uint32_t a[4] = {__ldg(a0 + k), __ldg(a1 + k), __ldg(a0 + k + 4), __ldg(a1 + k + 4)};
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const uint32_t *h = hi + n * 8 * half + k, *w = lo + n * 8 * half + k;
      mma_bf16(acc[n], a, __ldg(h), __ldg(h + 4));
      mma_bf16(acc[n], a, __ldg(w), __ldg(w + 4));
    }
  }
  const bool in0 = c0 + g < p.k, in1 = c0 + g + 8 < p.k;
  if (p.s_float) {
    float *s = p.s_float + size_t(group) * kColumns * p.k;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float *column = s + size_t(n * 8 + j * 2 + c) * p.k;
        if (in0) column[r0] = acc[n][c];
        if (in1) column[r1] = acc[n][c + 2];
      }
  }
  if (!p.s_rows) return;
  const float i0 = p.inv_scale ? p.inv_scale[r0] : 1.0f, i1 = p.inv_scale ? p.inv_scale[r1] : 1.0f;
  uint32_t w0[4], w1[4];
#pragma unroll
  for (int n = 0; n < 4; n++) {
    uint32_t v[4];
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float4 col = p.cols[group * kColumns + n * 8 + j * 2 + c];
      if (p.half_rows) {
        v[c] = __half_as_ushort(__float2half_rn(fmaf(acc[n][c] * i0, col.x, col.y)));
        v[c + 2] = __half_as_ushort(__float2half_rn(fmaf(acc[n][c + 2] * i1, col.x, col.y)));
        continue;
      }
      const float mul = col.x * (1.0f / 256), add = col.y * (1.0f / 256);
      v[c] = uint32_t(max(0, min(32767, __float2int_rn(fmaf(acc[n][c] * i0, mul, add)))));
      v[c + 2] = uint32_t(max(0, min(32767, __float2int_rn(fmaf(acc[n][c + 2] * i1, mul, add)))));
    }
    w0[n] = v[0] | v[1] << 16, w1[n] = v[2] | v[3] << 16;
  }
  uint4 *rows = reinterpret_cast<uint4 *>(p.s_rows + size_t(group) * kColumns * p.k) + j;
  if (in0) rows[size_t(r0) * 4] = make_uint4(w0[0], w0[1], w0[2], w0[3]);
  if (in1) rows[size_t(r1) * 4] = make_uint4(w1[0], w1[1], w1[2], w1[3]);
}

}  // namespace plaid
