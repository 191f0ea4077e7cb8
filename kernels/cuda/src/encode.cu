// encode.cu: residuals and factors of tokens, for index builds. The arithmetic is
// that of package codec (encode.go, levels.go), operation for operation: every
// product is rounded before it is added, sums run in the same order. (Products
// of two floats are exact as doubles, so that those may be fused with a sum.)
//
// A block has up to 32 tokens in shared memory, [dim][rows]. Thread rows·i + t
// tries the i-th of nine targets for token t; four threads a token have the
// four sums of products in double, one has the descent. Some 40,000 warp
// instructions for 32 tokens of 128 dimensions, three quarters of them in the nine
// trials; nearest centroids take more from K = 1,000 on.
#include "plaid.cuh"

namespace plaid {

// exact_sum adds the four sums of a product as norm.Square and dot64 do.
__device__ __forceinline__ double exact_sum(const double *part, uint32_t stride) {
  return __dadd_rn(__dadd_rn(__dadd_rn(part[0], part[stride]), part[2 * stride]), part[3 * stride]);
}

extern "C" __global__ void __launch_bounds__(256) scale_rows(const __grid_constant__ ScaleParams p) {
  extern __shared__ __align__(16) float scale_values[];
  __shared__ double part[4 * 32], by[32];
  const uint32_t rows = p.rows, pitch = rows | 1, r0 = blockIdx.x * rows, warp = threadIdx.x / 32, l = threadIdx.x & 31;
  for (uint32_t t = warp; t < rows && r0 + t < p.n; t += 8) {
    const uint32_t row = p.numbers ? p.numbers[r0 + t] : r0 + t;
    for (uint32_t j = l; j < p.dim; j += 32) {
      const size_t at = size_t(row) * p.dim + j;
      scale_values[j * pitch + t] = p.half ? __half2float(static_cast<const __half *>(p.in)[at]) : static_cast<const float *>(p.in)[at];
    }
  }
  __syncthreads();
  const uint32_t t = threadIdx.x % rows, i = threadIdx.x / rows;
  const bool first = i == 0 && r0 + t < p.n;  // of the threads of a row
  auto square = [&]() {
    if (i < 4) {
      double s = 0;
      const uint32_t whole = p.dim / 4 * 4;
      for (uint32_t j = i; j < whole; j += 4) s = __fma_rn(double(scale_values[j * pitch + t]), double(scale_values[j * pitch + t]), s);
      for (uint32_t j = whole; i == 0 && j < p.dim; j++) s = __fma_rn(double(scale_values[j * pitch + t]), double(scale_values[j * pitch + t]), s);
      part[i * 32 + t] = s;
    }
    __syncthreads();
    return exact_sum(part + t, 32);
  };
  if (p.unit) {
    const double s = square();
    if (i == 0) by[t] = s > 0 ? __ddiv_rn(1.0, __dsqrt_rn(s)) : 1.0;
    __syncthreads();
    for (uint32_t s = warp; s < rows && r0 + s < p.n; s += 8)
      for (uint32_t j = l; j < p.dim; j += 32) {
        float &v = scale_values[j * pitch + s];
        v = __double2float_rn(__dmul_rn(double(v), by[s]));
      }
    __syncthreads();
  }
  if (p.by && first) p.by[r0 + t] = p.unit ? by[t] : 1.0;
  if (p.squares) {
    const double s = square();
    if (first) p.squares[r0 + t] = s;
  }
  if (p.x)
    for (uint32_t s = warp; s < rows && r0 + s < p.n; s += 8)
      for (uint32_t j = l; j < p.dim; j += 32) p.x[size_t(r0 + s) * p.dim + j] = scale_values[j * pitch + s];
}

extern "C" __global__ void __launch_bounds__(256) gather_rows(const __grid_constant__ GatherParams p) {
  const uint32_t r = blockIdx.x * 8 + threadIdx.x / 32;
  if (r >= p.n) return;
  const uint16_t *in = reinterpret_cast<const uint16_t *>(p.in + size_t(p.numbers[r]) * p.row_bytes);
  uint16_t *out = reinterpret_cast<uint16_t *>(p.out + size_t(r) * p.row_bytes);
  for (uint32_t j = threadIdx.x & 31; j < p.row_bytes / 2; j += 32) out[j] = in[j];
}

// Levels are the uniform levels around a token's centroid.
struct Levels {
  const float *x, *c, *inverse, *g;  // of the token: x, C and 1/width; of all: the scales of dimensions, or null
  uint32_t dim, pitch;
  float inv, a, half, least;         // 1/⟨x, C⟩, scale·step, half the number of levels, 1/FactorMax²
  int top;

  __device__ __forceinline__ float width(uint32_t j) const { return g ? __fmul_rn(a, g[j]) : a; }
  __device__ __forceinline__ float unit(uint32_t j) const { return __fmul_rn(x[j * pitch], inv); }
  __device__ __forceinline__ float slope(uint32_t j) const { return __fmul_rn(unit(j), inverse[j * pitch]); }
  __device__ __forceinline__ float shift(uint32_t j) const { return __fsub_rn(__fmul_rn(c[j * pitch], inverse[j * pitch]), half); }
  __device__ __forceinline__ float base(uint32_t j) const { return __fsub_rn(c[j * pitch], __fmul_rn(width(j), half - 0.5f)); }
  __device__ __forceinline__ float value(uint32_t j, float level) const { return __fadd_rn(base(j), __fmul_rn(width(j), level)); }

  __device__ __forceinline__ float level(float z) const { return float(max(min(__float2int_rz(z), top), 0)); }

  __device__ __forceinline__ void round(float t, float &dot, float &norm) const {
    float d[2] = {0, 0}, n[2] = {0, 0};
#pragma unroll 4
    for (uint32_t j = 0; j < dim; j += 2)
#pragma unroll
      for (uint32_t i = 0; i < 2; i++)
        if (j + i < dim) {
          const float y = value(j + i, level(__fsub_rn(__fmul_rn(t, slope(j + i)), shift(j + i))));
          d[i] = __fadd_rn(d[i], __fmul_rn(unit(j + i), y));
          n[i] = __fadd_rn(n[i], __fmul_rn(y, y));
        }
    dot = __fadd_rn(d[0], d[1]), norm = __fadd_rn(n[0], n[1]);
  }

  __device__ __forceinline__ float quality(float dot, float norm) const {
    const float q = __fdiv_rn(__fmul_rn(dot, dot), fmaxf(norm, least));
    return dot < 0 ? -q : q;
  }

  __device__ __forceinline__ float attempt(float t) const {
    float dot, norm;
    round(t, dot, norm);
    return quality(dot, norm);
  }

  __device__ void descend(float t, uint8_t *buckets) const {
    float dot, norm;
    round(t, dot, norm);
    for (uint32_t j = 0; j < dim; j++) {
      const float u = unit(j);
      float b = level(__fsub_rn(__fmul_rn(t, slope(j)), shift(j)));
      const float y = value(j, b), d = __fsub_rn(dot, __fmul_rn(u, y)), m = __fsub_rn(norm, __fmul_rn(y, y));
      if (d > 0) {
        const float nb = level(__fsub_rn(__fmul_rn(slope(j), __fdiv_rn(m, d)), shift(j)));
        if (nb != b) {
          const float z = value(j, nb), nd = __fadd_rn(d, __fmul_rn(u, z)), nn = __fadd_rn(m, __fmul_rn(z, z));
          if (quality(nd, nn) > quality(dot, norm)) b = nb, dot = nd, norm = nn;
        }
      }
      buckets[j * pitch] = uint8_t(b);
    }
  }
};

__constant__ float encode_targets[9] = {1, 0.6f, 0.7f, 0.8f, 0.9f, 1.1f, 1.2f, 1.3f, 1.4f};

extern "C" __global__ void __launch_bounds__(288) encode_tokens(const __grid_constant__ EncodeParams p) {
  extern __shared__ __align__(16) float encode_values[];
  __shared__ double part[2][4 * 32];
  __shared__ float quality[9 * 32], reach[32];
  const uint32_t rows = p.rows, pitch = rows | 1, dim = p.dim, r0 = blockIdx.x * rows;
  float *xs = encode_values, *cs = xs + dim * pitch, *inverse = cs + dim * pitch, *gs = inverse + dim * pitch;
  uint8_t *buckets = reinterpret_cast<uint8_t *>(gs + dim);
  const uint32_t t = threadIdx.x % rows, i = threadIdx.x / rows, whole = dim / 4 * 4;
  const uint32_t row = r0 + t, code = row < p.n ? p.codes[row] : 0;
  const bool real = row < p.n && code < p.k;
  const float scale = real && p.centroid_scale ? p.centroid_scale[code] : 1.0f;

  for (uint32_t s = threadIdx.x / 32; s < rows; s += 9) {  // a warp a token
    const uint32_t r = r0 + s, c = r < p.n ? p.codes[r] : p.k;
    const bool there = c < p.k;
    const float a = __fmul_rn(there && p.centroid_scale ? p.centroid_scale[c] : 1.0f, p.step);
    for (uint32_t j = threadIdx.x & 31; j < dim; j += 32) {
      xs[j * pitch + s] = there ? p.x[size_t(r) * dim + j] : 0.0f;
      cs[j * pitch + s] = there ? p.centroids[size_t(c) * dim + j] : 0.0f;
      inverse[j * pitch + s] = __fdiv_rn(1.0f, p.dim_scale ? __fmul_rn(a, p.dim_scale[j]) : a);
    }
  }
  if (p.dim_scale)
    for (uint32_t j = threadIdx.x; j < dim; j += 288) gs[j] = p.dim_scale[j];
  __syncthreads();

  auto products = [&](uint32_t which, auto a, auto b) {  // by threads with i < 4
    double s = 0;
    for (uint32_t j = i; j < whole; j += 4) s = __fma_rn(double(a(j)), double(b(j)), s);
    for (uint32_t j = whole; i == 0 && j < dim; j++) s = __fma_rn(double(a(j)), double(b(j)), s);
    part[which][i * 32 + t] = s;
  };
  auto x_at = [&](uint32_t j) { return xs[j * pitch + t]; };
  auto c_at = [&](uint32_t j) { return cs[j * pitch + t]; };
  if (i < 4) products(0, x_at, x_at), products(1, x_at, c_at);
  __syncthreads();
  const double xx = exact_sum(part[0] + t, 32);
  if (i == 0) {
    const double xc = exact_sum(part[1] + t, 32);
    reach[t] = xx == 0 ? 0.0f : __double2float_rn(__ddiv_rn(1.0, fmax(xc, __dmul_rn(0.2, __dsqrt_rn(xx)))));
  }
  __syncthreads();

  Levels levels;
  levels.x = xs + t, levels.c = cs + t, levels.inverse = inverse + t, levels.g = p.dim_scale ? gs : nullptr;
  levels.dim = dim, levels.pitch = pitch, levels.inv = reach[t], levels.a = __fmul_rn(scale, p.step);
  levels.half = float(1 << p.nbits) / 2, levels.top = (1 << p.nbits) - 1;
  levels.least = __fdiv_rn(1.0f, __fmul_rn(p.factor_max, p.factor_max));
  if (i < 9) quality[i * 32 + t] = levels.attempt(encode_targets[i]);
  __syncthreads();
  float best = -INFINITY, at = 1;
  for (uint32_t k = 0; k < 9; k++)
    if (quality[k * 32 + t] > best) best = quality[k * 32 + t], at = encode_targets[k];
  const float lower = __fsub_rn(at, 0.05f), upper = __fadd_rn(at, 0.05f);
  __syncthreads();
  if (i < 2) quality[i * 32 + t] = levels.attempt(i ? upper : lower);
  __syncthreads();
  if (i == 0) {
    if (quality[t] > best) best = quality[t], at = lower;
    if (quality[32 + t] > best) at = upper;
    levels.descend(at, buckets + t);
  }
  __syncthreads();

  const float middle = float((1 << p.nbits) - 1) / 2;
  auto y_at = [&](uint32_t j) {
    const float s = p.dim_scale ? __fmul_rn(scale, gs[j]) : scale, w = __fmul_rn(p.step, float(buckets[j * pitch + t]) - middle);
    return __fadd_rn(cs[j * pitch + t], __fmul_rn(s, w));
  };
  if (i < 4) products(0, x_at, y_at), products(1, y_at, y_at);
  const uint32_t per = 8 / p.nbits;
  for (uint32_t s = threadIdx.x / 32; s < rows && r0 + s < p.n; s += 9) {
    if (p.codes[r0 + s] >= p.k) continue;
    for (uint32_t b = threadIdx.x & 31; b < p.row_bytes; b += 32) {
      uint32_t byte = 0;
      for (uint32_t f = 0; f < per && b * per + f < dim; f++) byte |= uint32_t(buckets[(b * per + f) * pitch + s]) << (f * p.nbits);
      p.residuals[size_t(r0 + s) * p.row_bytes + b] = uint8_t(byte);
    }
  }
  __syncthreads();
  if (i != 0 || !real) return;
  if (xx == 0) {
    p.factors[row] = 0, p.errors[row] = 0;
    return;
  }
  const double xy = exact_sum(part[0] + t, 32), yy = exact_sum(part[1] + t, 32);
  const double exact = __ddiv_rn(1.0, fmax(__dsqrt_rn(yy), 1e-6));
  const double steps = __dmul_rn(__ddiv_rn(exact, double(p.factor_max)), 32767.0);
  const bool clamped = steps >= 32767.5;
  const int16_t f = clamped ? int16_t(32767) : int16_t(fmax(round(steps), 1.0));
  const double v = __fmul_rn(float(f), __fdiv_rn(p.factor_max, 32767.0f));
  const double off = __dadd_rn(__dsub_rn(xx, __dmul_rn(__dmul_rn(2.0, v), xy)), __dmul_rn(__dmul_rn(v, v), yy));
  p.factors[row] = f, p.errors[row] = copysign(fmax(off, 0.0), clamped ? -1.0 : 1.0);
}

}  // namespace plaid
