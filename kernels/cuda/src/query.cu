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
__device__ float3 prepare(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
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
  float total = 0, errors = 0, squares = 0;
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
      const float e = made - k[f];
      if (d0 + f < p.dim) total += made, errors += fabsf(e), squares += e * e;  // else the field is 0
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
  total = warp_sum(total), errors = warp_sum(errors), squares = warp_sum(squares);
  if (l == 0) p.cols[g * kColumns + col] = make_float4(inv, kHalfRange - kMid * total, weight * u * p.factor_max, weight * u);
  // S rounded to 256 units, the coefficients, float32 arithmetic near 2^23, S itself.
  const float always = u * 4 + 2e-5f * p.s_max * norm;
  return {u * (128 + kMid * errors) + always, always, u * u * (128 * 128 + kMid * kMid * squares)};
}

__device__ __forceinline__ uint8_t to_fp8(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }
__device__ __forceinline__ float of_fp8(uint8_t v) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3))); }

// A warp's column for scan_f*: coefficients in e4m3, placed as the
// core matrices (8 query tokens × 16 bytes) of wgmma's B operand.
__device__ float3 prepare_fp8(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
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
  float total = 0, errors = 0, squares = 0;
  for (uint32_t i = l; i < 16 * words * fields; i += 32) {
    const uint32_t f = i % fields, byte = i / fields, lane = byte / (4 * words), word = byte / 4 % words, m = byte & 3;
    const float place = float(1 << (f % (4 / nb) * nb));
    const float k = i < p.dim ? q[i] * (p.dim_scale ? p.dim_scale[i] : 1.0f) * p.step * alpha : 0.0f;
    const uint8_t v = to_fp8(k / place);
    const float made = of_fp8(v) * place;
    total += made, errors += fabsf(made - k), squares += (made - k) * (made - k);
    const uint32_t at = (word * per + f / 2) * 1024 + col / 8 * 256 + (f & 1) * 128 + (col & 7) * 16 + lane * 4 + m;
    frags[at] = v;
  }
  total = warp_sum(total), errors = warp_sum(errors), squares = warp_sum(squares);
  const float mul = alpha * (1.0f / 512);
  if (l == 0) p.cols[g * kColumns + col] = make_float4(mul, -mid * total * (1.0f / 512), weight * p.factor_max / mul, weight / mul);
  // Of the start −mid·Σk and the fields up to a place, each dimension has one, so
  // that no sum on the way is larger than ‖c‖·|q|/a_c + this; coefficients were rounded
  // by up to a sixteenth. It is rounded at each step, S once, and the factor and their
  // product, which several columns may share. Roundings are in proportion, and with
  // the factor, f·a_c, comes ‖c‖·|q|·f + a_c·f·this: doc_max is of f alone.
  const float most = p.s_least * norm + mid * sum * (1 + 0x1p-4f), one = 0x1p-11f * most;
  const float shared = 2 * one + 2e-5f * p.s_least * norm, c = mid / alpha;
  const float sums = steps + 1;
  return {c * errors + sums * one + shared, shared, c * c * squares + sums * one * one};
}

// A warp's column for a table codebook: half-precision coefficients in units
// of a row entry, 1/16000 of the largest S.
__device__ float3 prepare_table(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
  const int l = threadIdx.x & 31;
  float largest = 0, norm = 0, sum = 0, squares = 0;
  for (uint32_t j = l; j < p.dim; j += 32) {
    const float v = q[j], a = fabsf(v * (p.dim_scale ? p.dim_scale[j] : 1.0f)) * p.step;
    norm += v * v, largest = fmaxf(largest, a), sum += a, squares += a * a;
  }
  norm = sqrtf(warp_sum(norm)), largest = warp_max(largest), sum = warp_sum(sum), squares = warp_sum(squares);
  const float u = fmaxf(fmaxf(p.s_max * norm / 16000.0f, largest / 30000.0f), 1e-30f), inv = 1.0f / u;
  __half *frags = reinterpret_cast<__half *>(p.frags + size_t(g) * p.frag_stride);
  const uint32_t lane_dims = p.lane_words * 32 / p.nbits;
  for (uint32_t i = l; i < 4 * lane_dims; i += 32) {
    const uint32_t j = i / lane_dims, e = i % lane_dims;  // dimension e of lane j
    const float v = i < p.dim ? q[i] * (p.dim_scale ? p.dim_scale[i] : 1.0f) * p.step * inv : 0.0f;
    frags[((((e / 4) * 4 + col / 8) * 32 + (col & 7) * 4 + j) * 2 + (e >> 1 & 1)) * 2 + (e & 1)] = __float2half_rn(v);
  }
  if (l == 0) p.cols[g * kColumns + col] = make_float4(256 * inv, 16384.0f * 256, weight * u * p.factor_max, weight * u / 256);
  // S rounded to a unit; the query's and the table's halves, the former rounded
  // for each dimension by itself, the latter shared by all columns.
  const float always = 2e-5f * p.s_max * norm, half = 0x1p-11f * 1.01f;
  return {u + 2 * half * sum + always, half * sum + always, u * u + half * half * squares};
}

// power is the power of two that brings a largest value below 2^15, so that its
// half is finite and the second half, 2^-11 of it, far from the smallest.
__device__ __forceinline__ float power(float largest) {
  int exponent = 0;
  if (largest > 0) frexpf(largest, &exponent);
  return ldexpf(1.0f, max(-100, min(14 - exponent, 100)));
}

// A warp's column for fine scores, and for S: a lane writes four dimensions of
// each part at a time.
__device__ void prepare_parts(const PrepParams &p, const float *q, uint32_t g, uint32_t col, float weight) {
  const int l = threadIdx.x & 31, nb = p.nbits;
  const uint32_t lane_dims = p.lane_words * 32 / nb, steps = lane_dims / 4, per = 8 / nb;
  const bool table = p.mode == 16;
  float largest = 0, scaled = 0;
  for (uint32_t j = l; j < p.dim; j += 32) {
    const float v = fabsf(q[j]);
    largest = fmaxf(largest, v), scaled = fmaxf(scaled, fabsf(v * (p.dim_scale ? p.dim_scale[j] : 1.0f)));
  }
  const float by = table ? 1.0f / p.table_scale : p.step;
  const float up = power(warp_max(largest)), up_k = power(warp_max(scaled) * by);
  uint32_t *out = p.parts + (size_t(g) * 4 * steps * 4 + col / 8) * 64 + (col & 7) * 4;
  const size_t part = size_t(steps) * 256;
  float total = 0;  // of the coefficients as they are made
  for (uint32_t i = l; i < 4 * steps; i += 32) {
    const uint32_t j = i & 3, step = i / 4;
    __align__(8) __half h[4][4];
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) {
      const uint32_t d = j * lane_dims + 4 * step + e;
      const float v = d < p.dim ? q[d] * up : 0.0f;
      h[0][e] = __float2half_rn(v);
      h[1][e] = __float2half_rn(v - __half2float(h[0][e]));
      uint32_t f = d;
      float place = 1;
      if (!table) {
        const uint32_t i = step % per * 2 + (e >> 1);
        f = j * lane_dims + step / per * (32 / nb) + i + (e & 1) * (16 / nb);
        place = float(1 << (i * nb & 7));
      }
      const float k = f < p.dim ? q[f] * (p.dim_scale ? p.dim_scale[f] : 1.0f) * by * up_k / place : 0.0f;
      h[2][e] = __float2half_rn(k);
      h[3][e] = __float2half_rn(k - __half2float(h[2][e]));
      total += (__half2float(h[2][e]) + __half2float(h[3][e])) * place;
    }
    uint32_t *to = out + size_t(step) * 256 + j;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint2 v = *reinterpret_cast<const uint2 *>(h[k]);
      to[k * part] = v.x, to[k * part + 32] = v.y;
    }
  }
  total = warp_sum(total);
  const float one = 1.0f / up_k, mid = ((1 << nb) - 1) * 0.5f;
  if (l == 0)
    p.unit[g * kColumns + col] = make_float4(1.0f / up / p.centroid_up, table ? one : one * 0x1p24f, table ? 0.0f : -mid * (total * one), weight);
}

// prep_query: two warps a column. One makes the operands of fine scores and of S, the
// other that of the scan and the bound.
extern "C" __global__ void __launch_bounds__(512) prep_query(const __grid_constant__ PrepParams p) {
  const uint32_t g = blockIdx.y, warp = threadIdx.x / 32, col = blockIdx.x * 8 + warp % 8, l = threadIdx.x & 31;
  let_next();
  const uint64_t began = now();
  extern __shared__ __align__(16) float columns[];
  const float *q = p.query + (size_t(g) * kColumns + col) * p.dim;
  const float weight = p.weights[g * kColumns + col], alike = p.alike[g * kColumns + col];
  if (p.staged) {
    const float4 *from = reinterpret_cast<const float4 *>(p.query + (size_t(g) * kColumns + blockIdx.x * 8) * p.dim);
    for (uint32_t i = threadIdx.x; i < 2 * p.dim; i += 512) reinterpret_cast<float4 *>(columns)[i] = from[i];
    q = columns + warp % 8 * p.dim;
  }
  if (blockIdx.x == 0 && g == 0)
    for (uint32_t i = threadIdx.x; i < p.zero_words; i += 512) p.zeros[i] = 0;
  __syncthreads();
  if (blockIdx.x + g == 0 && threadIdx.x == 0 && p.clock) *p.clock = began;  // clock is one of the zeroed arrays
  if (warp < 8) {
    prepare_parts(p, q, g, col, weight);
    return;
  }
  float3 bound;
  switch (p.mode) {
    case 1: bound = prepare<1>(p, q, g, col, weight); break;
    case 2: bound = prepare<2>(p, q, g, col, weight); break;
    case 4: bound = prepare<4>(p, q, g, col, weight); break;
    case 8: bound = prepare<8>(p, q, g, col, weight); break;
    case 16: bound = prepare_table(p, q, g, col, weight); break;
    default: bound = prepare_fp8(p, q, g, col, weight);
  }
  float square = 0;
  for (uint32_t j = l; j < p.dim; j += 32) square += q[j] * q[j];
  square = warp_sum(square);
  const float w = fabsf(weight), by = w * p.factor_max;
  if (weight < 0) bound.y = bound.x, bound.z = 0;
  if (l == 0)
    p.bound[g * kColumns + col] = make_float4(by * bound.x, by * bound.y, by * by * bound.z * alike, w * sqrtf(square));
}

__device__ __forceinline__ void mma_half(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// centroid_scores: the query is the sum of two half-precision vectors, sums are
// float32. A warp takes 16 centroids; lane 4g + j ends with exactly the 16 bytes of
// a row that lane 4g' + j of a scan will load.
// Bound: 2·d bytes a centroid, from L2 for all but the first group.
extern "C" __global__ void __launch_bounds__(256, 3) centroid_scores(const __grid_constant__ CentroidParams p) {
  const uint32_t group = blockIdx.y, l = threadIdx.x & 31, g = l >> 2, j = l & 3;
  const uint32_t c0 = (blockIdx.x * 8 + threadIdx.x / 32) * 16;
  const uint32_t steps = p.lane_dims / 4, pairs = (steps + 1) / 2;
  let_next();
  if (group == 0 && c0 < p.k) {  // centroids come while the query is prepared
    const char *from = reinterpret_cast<const char *>(p.centroids) + size_t(c0) * pairs * 64;
    for (uint32_t i = l * 128; i < min(16u, p.k - c0) * pairs * 64; i += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
  }
  wait_before();
  if (blockIdx.x == 0 && group == 0) stamp(p.clock);
  __shared__ float largest[8][kColumns];
  if (c0 >= p.k) {
    if (p.maxima) {
      largest[threadIdx.x / 32][l] = -INFINITY;
      __syncthreads();
    }
    return;
  }
  const uint32_t r0 = min(c0 + g, p.k - 1), r1 = min(c0 + g + 8, p.k - 1);
  const uint4 *a0 = reinterpret_cast<const uint4 *>(p.centroids) + size_t(r0) * pairs * 4 + j;
  const uint4 *a1 = reinterpret_cast<const uint4 *>(p.centroids) + size_t(r1) * pairs * 4 + j;
  const uint32_t *hi = p.parts + size_t(group) * 4 * steps * 256 + l, *lo = hi + size_t(steps) * 256;
  float acc[4][4] = {};
  auto step = [&](const uint32_t(&a)[4], uint32_t s) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const uint32_t at = (s * 4 + n) * 64;
      mma_half(acc[n], a, __ldg(lo + at), __ldg(lo + at + 32));
      mma_half(acc[n], a, __ldg(hi + at), __ldg(hi + at + 32));
    }
  };
#pragma unroll 4
  for (uint32_t i = 0; i < pairs; i++) {
    const uint4 u = __ldg(a0 + i * 4), v = __ldg(a1 + i * 4);
    step({u.x, v.x, u.y, v.y}, 2 * i);
    if (2 * i + 1 < steps) step({u.z, v.z, u.w, v.w}, 2 * i + 1);
  }
#pragma unroll
  for (int n = 0; n < 4; n++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float one = p.unit[group * kColumns + n * 8 + j * 2 + c].x;
      acc[n][c] *= one, acc[n][c + 2] *= one;
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
  if (p.maxima) {
    float most[8];
#pragma unroll
    for (int i = 0; i < 8; i++) most[i] = fmaxf(acc[i / 2][i % 2], acc[i / 2][i % 2 + 2]);
#pragma unroll
    for (int half = 4, bit = 16; half; half /= 2, bit /= 2) {
      const bool upper = l & bit;
#pragma unroll
      for (int i = 0; i < half; i++) {
        const float keep = upper ? most[half + i] : most[i], send = upper ? most[i] : most[half + i];
        most[i] = fmaxf(keep, __shfl_xor_sync(0xffffffffu, send, bit));
      }
    }
    const uint32_t i = (l >> 4 & 1) * 4 + (l >> 3 & 1) * 2 + (l >> 2 & 1);
    largest[threadIdx.x / 32][(i >> 1) * 8 + j * 2 + (i & 1)] = most[0];
    __syncthreads();
    if (threadIdx.x < kColumns) {
      float m = largest[0][l];
#pragma unroll
      for (int w = 1; w < 8; w++) m = fmaxf(m, largest[w][l]);
      p.maxima[(size_t(group) * kColumns + l) * gridDim.x + blockIdx.x] = m;
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
  const uint32_t side = group % p.side;
  uint4 *rows = reinterpret_cast<uint4 *>(p.s_rows + size_t(group - side) * kColumns * p.k) + side * 4 + j;
  if (in0) rows[size_t(r0) * p.side * 4] = make_uint4(w0[0], w0[1], w0[2], w0[3]);
  if (in1) rows[size_t(r1) * p.side * 4] = make_uint4(w1[0], w1[1], w1[2], w1[3]);
}

}  // namespace plaid
