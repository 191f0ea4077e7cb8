// grad.cuh: gradients of MaxSim by what won.
//
// With Normalize, g is the gradient by the normalised vector x̂ = x·scale, and that
// by x is (g − ⟨g, x̂⟩·x̂)/|x|.
#pragma once
#include "any.cuh"

namespace plaid {

// The derivative of a vector times its scale by the vector is taken as 1, but for
// lengths.
__device__ __forceinline__ void through_length(float *out, const uint8_t *row, uint32_t format, float scale, float inverse, uint32_t dim, uint32_t l) {
  float along = 0;
  for (uint32_t d = l; d < dim; d += 32) along = fmaf(out[d], value(format, row, d) * scale, along);
  for (int s = 16; s; s >>= 1) along += __shfl_xor_sync(0xffffffffu, along, s);
  for (uint32_t d = l; d < dim; d += 32) out[d] = fmaf(-along, value(format, row, d) * scale, out[d]) * inverse;
}

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

__device__ __forceinline__ void store_four(float *out, const float (&x)[4], uint32_t d, uint32_t dim) {
  if (dim % 4 == 0) {
    *reinterpret_cast<float4 *>(out + d) = make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (d + k < dim) out[d + k] = x[k];
}

// Rows whose loads overlap.
template <int kFormat> constexpr uint32_t kRowsAtOnce = kFormat == kF32 || kFormat == kSplit ? 4 : 8;

// dense_grad_query: for each row the pairs of its group, in order. A lane has four
// dimensions of 128.
template <int kFormat>
__device__ __forceinline__ void grad_query(const DenseGradParams &p) {
  constexpr uint32_t kAtOnce = kRowsAtOnce<kFormat>;
  const uint32_t r = blockIdx.x * 4 + threadIdx.x / 32, l = threadIdx.x & 31;
  if (r >= p.rows) return;
  const uint32_t which = p.row_group[r];
  const DenseGroup group = p.groups[which];
  const float weight = p.weights ? p.weights[r] : 1.0f;
  const uint64_t begin = p.pairs ? p.pair_first[which] : 0, end = p.pairs ? p.pair_first[which + 1] : p.n_docs;
  float *out = p.out + uint64_t(r) * p.dim;
  for (uint32_t d0 = 0; d0 < p.dim; d0 += 128) {
    const uint32_t d = d0 + 4 * l;
    const bool mine = d < p.dim;
    float sum[4] = {};
    for (uint64_t i = begin; i < end; i += 32) {
      // A lane looks one pair up.
      float c = 0, scale = 1;
      uint64_t at = 0;
      bool there = false;
      if (i + l < end) {
        const uint2 pair = p.pairs ? p.pairs[i + l] : make_uint2(uint32_t(i + l), p.items[i + l].pos);
        const int32_t a = p.arg[group.arg + uint64_t(pair.y) * group.arg_pitch + (r - group.row)];
        there = a >= 0;
        if (there) {
          at = p.items[pair.x].begin + a;
          if (p.doc_scale) scale = p.doc_scale[at];
        }
        c = (p.upstream ? p.upstream[group.out + pair.y] : 1.0f) * weight;
      }
      uint32_t left = __ballot_sync(0xffffffffu, there);
      while (left) {
        Four<kFormat> x[kAtOnce];
        float cs[kAtOnce], scales[kAtOnce];
        uint32_t n = 0;
#pragma unroll
        for (uint32_t k = 0; k < kAtOnce; k++) {
          if (left) {
            const int from = __ffs(left) - 1;
            left &= left - 1;
            n = k + 1;
            cs[k] = __shfl_sync(0xffffffffu, c, from), scales[k] = __shfl_sync(0xffffffffu, scale, from);
            const uint64_t row = __shfl_sync(0xffffffffu, at, from);
            if (mine) x[k].load(p.docs + row * p.row_bytes, d);
          }
        }
#pragma unroll
        for (uint32_t k = 0; k < kAtOnce; k++)
          if (k < n)
#pragma unroll
            for (int m = 0; m < 4; m++) sum[m] = fmaf(cs[k], x[k].get(m) * scales[k], sum[m]);
      }
    }
    if (mine) store_four(out, sum, d, p.dim);
  }
  __syncwarp();
  if (p.query_inverse)
    through_length(out, p.queries + uint64_t(r) * p.query_bytes, p.query_format, p.query_scale ? p.query_scale[r] : 1.0f, p.query_inverse[r], p.dim, l);
}

// dense_grad_docs, by pulling. A block has 64 rows of a document. Entries that won
// one of them set a bit of that row's bitmap, whose order is that of the entries; a
// warp goes through the bitmap of a row and adds what its bits stand for, so that
// each row has one writer. Entries come in batches of 128 groups of up to 32; what
// earlier batches gave is read back.
template <int kFormat>
__device__ __forceinline__ void grad_docs(const DenseGradParams &p) {
  constexpr uint32_t kAtOnce = kRowsAtOnce<kFormat>, kRows = 64, kWarps = 8, kGroups = 128, kPitch = kGroups + 4, kList = 512;
  extern __shared__ __align__(1024) uint8_t shared[];
  uint32_t *bits = reinterpret_cast<uint32_t *>(shared);               // [kRows][kPitch]
  float *entry_c = reinterpret_cast<float *>(bits + kRows * kPitch);   // [kGroups][32]
  uint32_t *group_row = reinterpret_cast<uint32_t *>(entry_c + kGroups * 32);
  const uint32_t tid = threadIdx.x, warp = tid / 32, l = tid & 31;
  uint16_t *list = reinterpret_cast<uint16_t *>(group_row + kGroups) + warp * kList;
  const DenseItem item = p.items[blockIdx.x];
  const uint32_t t0 = blockIdx.y * kRows;
  if (t0 >= item.len) return;
  const uint32_t rows = min(kRows, item.len - t0);
  const uint64_t begin = p.pairs ? p.pair_first[blockIdx.x] : 0, end = p.pairs ? p.pair_first[blockIdx.x + 1] : p.n_groups;
  uint64_t from = begin;
  do {
    for (uint32_t i = tid; i < kRows * kPitch / 4; i += 256) reinterpret_cast<uint4 *>(bits)[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    for (uint32_t k = warp; k < kGroups && from + k < end; k += kWarps) {
      const uint2 pair = p.pairs ? p.pairs[from + k] : make_uint2(uint32_t(from + k), item.pos);
      const DenseGroup group = p.groups[pair.x];
      if (l == 0) group_row[k] = group.row;
      if (l < group.count) {
        const int32_t a = p.arg[group.arg + uint64_t(pair.y) * group.arg_pitch + l];
        if (a >= 0 && uint32_t(a) - t0 < rows) {
          atomicOr(bits + (uint32_t(a) - t0) * kPitch + k, 1u << l);
          entry_c[k * 32 + l] = (p.upstream ? p.upstream[group.out + pair.y] : 1.0f) * (p.weights ? p.weights[group.row + l] : 1.0f);
        }
      }
    }
    __syncthreads();
    for (uint32_t t = warp; t < rows; t += kWarps) {
      float *out = p.out + (item.begin + t0 + t) * p.dim;
      const uint4 v = *reinterpret_cast<const uint4 *>(bits + t * kPitch + 4 * l);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
      const uint32_t own = __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
      uint32_t place = own;
#pragma unroll
      for (int s = 1; s < 32; s <<= 1) {
        const uint32_t below = __shfl_up_sync(0xffffffffu, place, s);
        if (l >= s) place += below;
      }
      const uint32_t total = __shfl_sync(0xffffffffu, place, 31);
      place -= own;
      if (from > begin && total == 0) continue;
      for (uint32_t d0 = 0; d0 < p.dim; d0 += 128) {
        const uint32_t d = d0 + 4 * l;
        const bool mine = d < p.dim;
        float sum[4] = {};
        if (from > begin && mine)
#pragma unroll
          for (int k = 0; k < 4; k++)
            if (d + k < p.dim) sum[k] = out[d + k];
        for (uint32_t window = 0; window < total; window += kList) {
          __syncwarp();
          uint32_t at = place - window;  // below 0, and so beyond the list, where another window has it
#pragma unroll
          for (int k = 0; k < 4; k++)
            for (uint32_t w = words[k]; w; w &= w - 1, at++)
              if (at < kList) list[at] = uint16_t(l * 128 + k * 32 + __ffs(w) - 1);
          __syncwarp();
          const uint32_t n = min(total - window, kList);
          for (uint32_t i = 0; i < n; i += kAtOnce) {
            Four<kFormat> x[kAtOnce];
            float cs[kAtOnce], scales[kAtOnce];
#pragma unroll
            for (uint32_t k = 0; k < kAtOnce; k++) {
              if (i + k < n) {
                const uint32_t e = list[i + k], q = group_row[e / 32] + e % 32;
                cs[k] = entry_c[e], scales[k] = p.query_scale ? p.query_scale[q] : 1.0f;
                if (mine) x[k].load(p.queries + uint64_t(q) * p.query_bytes, d);
              }
            }
#pragma unroll
            for (uint32_t k = 0; k < kAtOnce; k++)
              if (i + k < n)
#pragma unroll
                for (int m = 0; m < 4; m++) sum[m] = fmaf(cs[k], x[k].get(m) * scales[k], sum[m]);
          }
        }
        if (mine) store_four(out, sum, d, p.dim);
      }
    }
    from += kGroups;
    __syncthreads();
  } while (from < end);
  if (!p.doc_inverse) return;
  for (uint32_t t = warp; t < rows; t += kWarps) {
    const uint64_t r = item.begin + t0 + t;
    through_length(p.out + r * p.dim, p.docs + r * p.row_bytes, p.doc_format, p.doc_scale ? p.doc_scale[r] : 1.0f, p.doc_inverse[r], p.dim, l);
  }
}

#define PLAID_DENSE_GRADS(NAME, FORMAT)                                                                                            \
  extern "C" __global__ void __launch_bounds__(128, 8) dense_grad_query_##NAME(const __grid_constant__ DenseGradParams p) {         \
    grad_query<FORMAT>(p);                                                                                                          \
  }                                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256, 3) dense_grad_docs_##NAME(const __grid_constant__ DenseGradParams p) {         \
    grad_docs<FORMAT>(p);                                                                                                           \
  }
PLAID_DENSE_GRADS(f32, kF32)
PLAID_DENSE_GRADS(f16, kF16)
PLAID_DENSE_GRADS(bf16, kBF16)
PLAID_DENSE_GRADS(i8, kI8)
PLAID_DENSE_GRADS(e4m3, kE4M3)
PLAID_DENSE_GRADS(split, kSplit)

// dense_push adds each entry's query row where it goes, in no order.
extern "C" __global__ void __launch_bounds__(256) dense_push(const __grid_constant__ DenseGradParams p) {
  const uint32_t l = threadIdx.x & 31;
  const DenseGroup group = p.groups[blockIdx.x];
  const uint64_t begin = p.pairs ? p.pair_first[blockIdx.x] : 0, end = p.pairs ? p.pair_first[blockIdx.x + 1] : p.n_docs;
  for (uint64_t i = begin + blockIdx.y * 8 + threadIdx.x / 32; i < end; i += gridDim.y * 8) {
    const uint2 pair = p.pairs ? p.pairs[i] : make_uint2(uint32_t(i), p.items[i].pos);
    const float up = p.upstream ? p.upstream[group.out + pair.y] : 1.0f;
    const uint64_t first = p.items[pair.x].begin;
    for (uint32_t s = 0; s < group.count; s++) {
      const int32_t a = p.arg[group.arg + uint64_t(pair.y) * group.arg_pitch + s];
      if (a < 0) continue;
      const uint32_t q = group.row + s;
      const uint8_t *v = p.queries + uint64_t(q) * p.query_bytes;
      const float c = up * (p.weights ? p.weights[q] : 1.0f), scale = p.query_scale ? p.query_scale[q] : 1.0f;
      float *out = p.out + (first + a) * p.dim;
      for (uint32_t d = l; d < p.dim; d += 32) atomicAdd(out + d, c * (value(p.query_format, v, d) * scale));
    }
  }
}

// dense_lengths: through the normalisation, after dense_push. Grid (ceil(rows/8)).
extern "C" __global__ void __launch_bounds__(256) dense_lengths(const __grid_constant__ DenseGradParams p) {
  const uint32_t r = blockIdx.x * 8 + threadIdx.x / 32;
  if (r >= p.rows) return;
  through_length(p.out + uint64_t(r) * p.dim, p.docs + uint64_t(r) * p.row_bytes, p.doc_format, p.doc_scale ? p.doc_scale[r] : 1.0f, p.doc_inverse[r], p.dim, threadIdx.x & 31);
}

}  // namespace plaid
