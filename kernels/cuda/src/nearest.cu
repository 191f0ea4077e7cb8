// nearest.cu: the centroid with the largest product, for index builds.
//
// A half-precision product over all centroids keeps, for each row, the best
// two of small sets of centroids; float32 products of the few sets that the
// rounding leaves in question decide. Those are the processor's to the bit:
// rounded, then added, first dimension first. A block has 128 rows; a warp keeps 64
// of them, all dimensions, in registers (the A operand) and multiplies 32 of
// every 128 centroids, which come through two stages of shared memory
// (cp.async). 64 HMMA for 8 ldmatrix; the maxima are 32 instructions besides
// those 64. Bound: the tensor cores through mma.sync, about 62 % of their peak
// on sm_90. Measured on an H200, 67,584 rows, K = 65,536, 128 dimensions: 390
// TFLOP/s (255 registers, 8 warps an SM), 377 with nearest_exact.
#include "plaid.cuh"

namespace plaid {

extern "C" __global__ void __launch_bounds__(256) to_half(const __grid_constant__ HalfParams p) {
  const uint32_t r = blockIdx.x * 8 + threadIdx.x / 32, l = threadIdx.x & 31;
  if (r >= p.rows) return;
  float norm = 0, err = 0;
  for (uint32_t j = l; j < p.width; j += 32) {
    float v = 0;
    if (r < p.n && j < p.dim) v = p.in ? p.in[size_t(r) * p.dim + j] : __half2float(p.halves[size_t(p.numbers ? p.numbers[r] : r) * p.dim + j]);
    const __half h = __float2half_rn(v);
    const float e = v - __half2float(h);
    norm = fmaf(v, v, norm), err = fmaf(e, e, err);
    p.out[size_t(r) * p.width + j] = h;
  }
  for (int s = 16; s; s >>= 1) norm += __shfl_xor_sync(0xffffffffu, norm, s), err += __shfl_xor_sync(0xffffffffu, err, s);
  if (l == 0 && r < p.n) {
    if (p.norms) p.norms[r] = sqrtf(norm);
    // What is scaled of a half is rounded: by no more than this.
    if (p.errors) p.errors[r] = p.in ? sqrtf(err) : 0x1p-23f * sqrtf(norm);
  }
}

constexpr uint32_t kListed = 256, kParts = 16;

// A slot is the share of a lane: for row r, warp column w (of 4) and lane j of
// a quad, the columns 128·chunk + 32·w + 8·t + 2·j + c with t < 4, c < 2.
// It holds the two largest maxima over chunks, the chunks, and the third.
// With kAgain the 128 rows from first on are of those in doubt, and all centroids of some chunks
// are listed that their limits leave in question.
template <int kSteps, bool kAgain>
__device__ __forceinline__ void nearest_half(const NearestParams &p, uint32_t first_row, uint32_t chunk0, uint32_t n_chunks) {
  constexpr int kWidth = kSteps * 16, kRow = kWidth * 2, kPieces = kRow / 16, kStage = 128 * kRow;
  extern __shared__ __align__(128) char stages[];
  const uint32_t l = threadIdx.x & 31, g = l >> 2, j = l & 3, warp = threadIdx.x / 32;
  const uint32_t r0 = first_row + (warp & 1) * 64, cw = warp >> 1;
  const uint32_t n_doubts = kAgain ? p.doubts[0] : 0;
  auto row_of = [&](uint32_t r) { return kAgain ? (r < n_doubts ? p.doubts[1 + r] : 0) : r; };

  uint32_t a[4][kSteps][4];
#pragma unroll
  for (int m = 0; m < 4; m++) {
    const uint32_t *x0 = reinterpret_cast<const uint32_t *>(p.x_half + size_t(row_of(r0 + m * 16 + g)) * kWidth) + j;
    const uint32_t *x1 = reinterpret_cast<const uint32_t *>(p.x_half + size_t(row_of(r0 + m * 16 + 8 + g)) * kWidth) + j;
#pragma unroll
    for (int s = 0; s < kSteps; s++)
      a[m][s][0] = __ldg(x0 + s * 8), a[m][s][1] = __ldg(x1 + s * 8), a[m][s][2] = __ldg(x0 + s * 8 + 4), a[m][s][3] = __ldg(x1 + s * 8 + 4);
  }
  float first[8], second[8], third[8];
  uint32_t chunks[8];  // of first, and of second above it
#pragma unroll
  for (int i = 0; i < 8; i++) {
    first[i] = second[i] = third[i] = -INFINITY, chunks[i] = 0;
    const uint32_t r = r0 + (i >> 1) * 16 + (i & 1) * 8 + g;
    if constexpr (kAgain) first[i] = r < n_doubts ? p.limits[r] : INFINITY;
  }

  const uint32_t base = uint32_t(__cvta_generic_to_shared(stages));
  auto fetch = [&](uint32_t chunk, uint32_t stage) {
    const char *src = reinterpret_cast<const char *>(p.c_half) + size_t(chunk) * kStage;
#pragma unroll
    for (int i = 0; i < 128 * kPieces / 256; i++) {
      const uint32_t e = i * 256 + threadIdx.x, row = e / kPieces, piece = e % kPieces;
      const uint32_t to = base + stage * kStage + row * kRow + ((piece ^ (row & 7)) * 16);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(src + size_t(e) * 16));
    }
    asm volatile("cp.async.commit_group;");
  };
  fetch(chunk0, chunk0 & 1);
  for (uint32_t chunk = chunk0; chunk < n_chunks; chunk++) {
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    if (chunk + 1 < n_chunks) fetch(chunk + 1, (chunk + 1) & 1);
    const uint32_t stage = base + (chunk & 1) * kStage;
    float best[8];
#pragma unroll
    for (int i = 0; i < 8; i++) best[i] = -INFINITY;
#pragma unroll
    for (int half = 0; half < 2; half++) {  // 16 centroids
      float acc[4][2][4] = {};
      // Lanes 0–7, 8–15: rows of tile 0, lower and upper 8 dimensions; 16–31: of tile 1.
      const uint32_t row = cw * 32 + half * 16 + (l & 7) + (l >> 4) * 8;
      const uint32_t at = stage + row * kRow, x = row & 7, up = l >> 3 & 1;
#pragma unroll
      for (int s = 0; s < kSteps; s++) {
        uint32_t b[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(at + (((2 * s + up) ^ x) * 16)));
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
          for (int t = 0; t < 2; t++)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(acc[m][t][0]), "+f"(acc[m][t][1]), "+f"(acc[m][t][2]), "+f"(acc[m][t][3])
                : "r"(a[m][s][0]), "r"(a[m][s][1]), "r"(a[m][s][2]), "r"(a[m][s][3]), "r"(b[2 * t]), "r"(b[2 * t + 1]));
      }
      const uint32_t c0 = chunk * 128 + cw * 32 + half * 16 + 2 * j;
      if (c0 - 2 * j + 16 > p.k) {  // the end of the centroids
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
          for (int t = 0; t < 2; t++)
#pragma unroll
            for (int c = 0; c < 2; c++)
              if (c0 + t * 8 + c >= p.k) acc[m][t][c] = acc[m][t][c + 2] = -INFINITY;
      }
      if constexpr (kAgain) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const uint32_t r = r0 + (i >> 1) * 16 + (i & 1) * 8 + g;
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (acc[i >> 1][e >> 1][(i & 1) * 2 + (e & 1)] >= first[i]) {
              const uint32_t at = atomicAdd(p.counts + r, 1u);
              if (at < kListed) p.listed[size_t(r) * kListed + at] = c0 + (e >> 1) * 8 + (e & 1);
            }
        }
      } else {
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
          for (int t = 0; t < 2; t++) {
            best[2 * m] = fmaxf(best[2 * m], fmaxf(acc[m][t][0], acc[m][t][1]));
            best[2 * m + 1] = fmaxf(best[2 * m + 1], fmaxf(acc[m][t][2], acc[m][t][3]));
          }
      }
    }
#pragma unroll
    for (int i = 0; i < 8 && !kAgain; i++) {
      const bool one = best[i] > first[i], two = best[i] > second[i];
      third[i] = fmaxf(third[i], two ? second[i] : best[i]);
      second[i] = one ? first[i] : two ? best[i] : second[i];
      chunks[i] = one ? (chunks[i] << 16 | chunk) : two ? ((chunks[i] & 0xffff) | chunk << 16) : chunks[i];
      first[i] = one ? best[i] : first[i];
    }
  }
  if constexpr (kAgain) {
    __syncthreads();  // the stages are filled again
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const uint32_t r = r0 + (i >> 1) * 16 + (i & 1) * 8 + g;
      p.slots[size_t(r) * 16 + cw * 4 + j] = make_uint4(__float_as_uint(first[i]), __float_as_uint(second[i]), chunks[i], __float_as_uint(third[i]));
    }
    if (threadIdx.x < 128) p.counts[first_row + threadIdx.x] = 0;
    if (first_row == 0 && threadIdx.x == 0) p.doubts[0] = 0;
  }
}

template <int kSteps>
__device__ __forceinline__ void nearest_again(const NearestParams &p) {
  const uint32_t n_chunks = (p.k + 127) / 128, parts = min(kParts, n_chunks), items = (p.doubts[0] + 127) / 128 * parts;
  for (uint32_t i = blockIdx.x; i < items; i += gridDim.x) {
    const uint32_t part = i % parts;
    nearest_half<kSteps, true>(p, i / parts * 128, n_chunks * part / parts, n_chunks * (part + 1) / parts);
  }
}

extern "C" __global__ void __launch_bounds__(256, 1) nearest64(const __grid_constant__ NearestParams p) { nearest_half<4, false>(p, blockIdx.x * 128, 0, (p.k + 127) / 128); }
extern "C" __global__ void __launch_bounds__(256, 1) nearest128(const __grid_constant__ NearestParams p) { nearest_half<8, false>(p, blockIdx.x * 128, 0, (p.k + 127) / 128); }
extern "C" __global__ void __launch_bounds__(256, 1) nearest_again64(const __grid_constant__ NearestParams p) { nearest_again<4>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) nearest_again128(const __grid_constant__ NearestParams p) { nearest_again<8>(p); }

// The better of two, the lower number of equals.
__device__ __forceinline__ void better(float &v, uint32_t &c, float v2, uint32_t c2) {
  if (v2 > v || (v2 == v && c2 < c)) v = v2, c = c2;
}

// add_product is a term of a product as the processor computes it.
__device__ __forceinline__ float add_product(float s, float x, float c) { return __fadd_rn(s, __fmul_rn(x, c)); }

__device__ __forceinline__ float product(const float *x, const float *c, uint32_t dim) {
  float s = 0;
  uint32_t d = 0;
  if (dim % 4 == 0)  // rows begin at multiples of 16 bytes
    for (; d < dim; d += 4) {
      const float4 u = *reinterpret_cast<const float4 *>(x + d), v = *reinterpret_cast<const float4 *>(c + d);
      s = add_product(add_product(add_product(add_product(s, u.x, v.x), u.y, v.y), u.z, v.z), u.w, v.w);
    }
  for (; d < dim; d++) s = add_product(s, x[d], c[d]);
  return s;
}

// nearest_exact: a warp a row. Centroids numbered above 2^23 cannot occur (16-bit chunks).
extern "C" __global__ void __launch_bounds__(256) nearest_exact(const __grid_constant__ NearestParams p) {
  const uint32_t r = blockIdx.x * 8 + threadIdx.x / 32, l = threadIdx.x & 31;
  if (r >= p.n) return;
  uint4 slot = make_uint4(0xFF800000u, 0xFF800000u, 0, 0xFF800000u);  // −inf
  if (l < 16) slot = p.slots[size_t(r) * 16 + l];
  float top = __uint_as_float(slot.x);
  for (int s = 16; s; s >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, s));
  const float *x = p.x + size_t(r) * p.dim;
  // Two products are compared, each off by no more than this.
  const float error = p.x_errors[r] * p.c_norm + p.x_norms[r] * p.c_error + float(p.dim) * 0x1p-22f * p.x_norms[r] * p.c_norm;
  const float limit = top - 2 * error;
  float v = -INFINITY;
  uint32_t code = 0xFFFFFFFFu;
  if (__any_sync(0xffffffffu, __uint_as_float(slot.w) >= limit)) {  // more sets in question than were kept
    if (l == 0) {
      const uint32_t i = atomicAdd(p.doubts, 1u);
      p.doubts[1 + i] = r, p.limits[i] = limit;
    }
    return;
  } else {
    // Four sets at a time: lane 8·set + column has a product.
    uint32_t ones = __ballot_sync(0xffffffffu, __uint_as_float(slot.x) >= limit), twos = __ballot_sync(0xffffffffu, __uint_as_float(slot.y) >= limit);
    while (ones | twos) {
      int at = -1;
      bool second = false;
      for (uint32_t i = 0; i < 4 && (ones | twos); i++) {
        const bool two = !ones;
        const int next = __ffs(two ? twos : ones) - 1;
        if (two) twos &= twos - 1; else ones &= ones - 1;
        if (i == l >> 3) at = next, second = two;
      }
      const uint32_t both = __shfl_sync(0xffffffffu, slot.z, at & 31), chunk = second ? both >> 16 : both & 0xffff;
      const uint32_t c = chunk * 128 + (at >> 2) * 32 + (l >> 1 & 3) * 8 + (at & 3) * 2 + (l & 1);
      if (at >= 0 && c < p.k) better(v, code, product(x, p.centroids + size_t(c) * p.dim, p.dim), c);
    }
  }
  for (int s = 16; s; s >>= 1) {
    const float v2 = __shfl_xor_sync(0xffffffffu, v, s);
    better(v, code, v2, __shfl_xor_sync(0xffffffffu, code, s));
  }
  if (l == 0) {
    p.codes[r] = code;
    if (p.scores) p.scores[r] = v;
  }
}

// nearest_doubts: a warp a row in doubt.
extern "C" __global__ void __launch_bounds__(256) nearest_doubts(const __grid_constant__ NearestParams p) {
  const uint32_t l = threadIdx.x & 31, n = p.doubts[0];
  for (uint32_t i = blockIdx.x * 8 + threadIdx.x / 32; i < n; i += gridDim.x * 8) {
    const uint32_t r = p.doubts[1 + i], count = p.counts[i];
    const float *x = p.x + size_t(r) * p.dim;
    float v = -INFINITY;
    uint32_t code = 0xFFFFFFFFu;
    if (count > kListed) {  // not all of them are there
      for (uint32_t c = l; c < p.k; c += 32) better(v, code, product(x, p.centroids + size_t(c) * p.dim, p.dim), c);
    } else {
      for (uint32_t e = l; e < count; e += 32) {
        const uint32_t c = p.listed[size_t(i) * kListed + e];
        better(v, code, product(x, p.centroids + size_t(c) * p.dim, p.dim), c);
      }
    }
    for (int s = 16; s; s >>= 1) {
      const float v2 = __shfl_xor_sync(0xffffffffu, v, s);
      better(v, code, v2, __shfl_xor_sync(0xffffffffu, code, s));
    }
    if (l == 0) {
      p.codes[r] = code;
      if (p.scores) p.scores[r] = v;
    }
  }
}

// member is a component of a row of a cluster, in float32 as nearest centroids are found of it.
__device__ __forceinline__ float member(const MeansParams &p, uint32_t row, uint32_t d) {
  if (p.x) return p.x[size_t(row) * p.dim + d];
  return __double2float_rn(__dmul_rn(double(__half2float(p.halves[size_t(p.numbers[row]) * p.dim + d])), p.by[row]));
}

// cluster_sums: the sum of each centroid's rows in float32, in the order of the rows. Launch
// and bound are those of cluster_means.
extern "C" __global__ void __launch_bounds__(128) cluster_sums(const __grid_constant__ MeansParams p) {
  const uint32_t c = blockIdx.x, from = p.starts[c], to = p.starts[c + 1];
  for (uint32_t d = threadIdx.x; d < p.dim; d += 128) {
    float s = 0;
#pragma unroll 8
    for (uint32_t i = from; i < to; i++) s = __fadd_rn(s, member(p, p.order[i], d));
    p.centroids[size_t(c) * p.dim + d] = s;
  }
}

// cluster_means: the direction of the sum of each centroid's rows, to the bit that of the
// processor: sums in double in the order of the rows, the squared length first dimension
// first. A block a centroid, a thread a dimension. Bound: reading rows at random, 4·dim bytes,
// or 2·dim of halves.
extern "C" __global__ void __launch_bounds__(128) cluster_means(const __grid_constant__ MeansParams p) {
  extern __shared__ double means[];  // [dim]
  __shared__ double length;
  const uint32_t c = blockIdx.x, from = p.starts[c], to = p.starts[c + 1];
  if (from == to) return;
  for (uint32_t d = threadIdx.x; d < p.dim; d += 128) {
    double s = 0;
#pragma unroll 8
    for (uint32_t i = from; i < to; i++) s = __dadd_rn(s, double(member(p, p.order[i], d)));
    means[d] = s;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double n2 = 0;
    for (uint32_t d = 0; d < p.dim; d++) n2 = __dadd_rn(n2, __dmul_rn(means[d], means[d]));
    length = __dsqrt_rn(n2);
  }
  __syncthreads();
  if (!(length > __dmul_rn(1e-12, double(to - from)))) return;
  for (uint32_t d = threadIdx.x; d < p.dim; d += 128) p.centroids[size_t(c) * p.dim + d] = __double2float_rn(__ddiv_rn(means[d], length));
}

// nearest_any: 32 rows a block, four a warp, a centroid a lane.
extern "C" __global__ void __launch_bounds__(256) nearest_any(const __grid_constant__ NearestParams p) {
  const uint32_t l = threadIdx.x & 31, r0 = (blockIdx.x * 8 + threadIdx.x / 32) * 4;
  float v[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  uint32_t code[4] = {~0u, ~0u, ~0u, ~0u};
  if (r0 >= p.n) return;
  const float *x[4];
  for (int i = 0; i < 4; i++) x[i] = p.x + size_t(min(r0 + i, p.n - 1)) * p.dim;
  for (uint32_t c = l; c < p.k; c += 32) {
    const float *row = p.centroids + size_t(c) * p.dim;
    float s[4] = {};
    for (uint32_t d = 0; d < p.dim; d++) {
      const float w = row[d];
#pragma unroll
      for (int i = 0; i < 4; i++) s[i] = add_product(s[i], x[i][d], w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) better(v[i], code[i], s[i], c);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    for (int s = 16; s; s >>= 1) {
      const float v2 = __shfl_xor_sync(0xffffffffu, v[i], s);
      better(v[i], code[i], v2, __shfl_xor_sync(0xffffffffu, code[i], s));
    }
    if (l == 0 && r0 + i < p.n) {
      p.codes[r0 + i] = code[i];
      if (p.scores) p.scores[r0 + i] = v[i];
    }
  }
}

}  // namespace plaid
