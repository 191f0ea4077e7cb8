// fine.cu: scores of some documents as precise as float32, on the tensor cores.
// A block takes documents, or a share of the tiles of each; a warp two tiles at a
// time.
//
// Centroids are bfloat16, so that with the query in three bfloat16 parts the
// products with them are exact, and so are those of the fields, less the mean of
// the levels, with half-precision parts of the coefficients: what is left are
// the parts' last bits (2^-24 and 2^-22) and the sums, float32, which begin with
// the lower parts, while they are small. Fields are looked up, as in table.cu;
// weights of tables are two halves.
//
// 2 bits, 128 dimensions: 160 products m16n8k16 for 16 tokens. Operands of the
// query are read from shared memory once for two tiles.
#include "plaid.cuh"

namespace plaid {

constexpr int kFineSteps = 8;  // of the query's operands that are in shared memory at a time

__device__ __forceinline__ void mma_half(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

// look_up gives the weights of four fields, those of step i of a word.
template <int NB> __device__ __forceinline__ uint2 look_up(const char *lut, uint32_t word, int i) {
  if constexpr (NB == 1) return *reinterpret_cast<const uint2 *>(lut + ((word >> (4 * i)) & 15) * 8);
  if constexpr (NB == 2) return *reinterpret_cast<const uint2 *>(lut + ((word >> (8 * i)) & 255) * 8);
  if constexpr (NB == 4) {
    const uint32_t h = word >> (16 * i);
    return {*reinterpret_cast<const uint32_t *>(lut + (h & 255) * 4), *reinterpret_cast<const uint32_t *>(lut + (h >> 8 & 255) * 4)};
  }
  auto one = [&](int k) -> uint32_t { return *reinterpret_cast<const uint16_t *>(lut + (word >> (8 * k) & 255) * 2); };
  return {one(0) | one(1) << 16, one(2) | one(3) << 16};
}

template <int NB, bool kTable> __device__ __forceinline__ void fine_scores(const FineParams &p) {
  constexpr int kFields = NB <= 2 ? 4 : NB == 4 ? 2 : 1, kEntries = NB == 1 ? 16 : 256;  // of a look-up
  constexpr int kPer = 8 / NB;                                                           // steps of a word
  constexpr int kAhead = kTable ? 2 : 3;  // steps by which centroids are loaded before they are used
  __shared__ __align__(16) uint2 ops[5][kFineSteps][128];
  __shared__ __align__(16) __half lut[kTable ? 2 : 1][kEntries * kFields];
  __shared__ float maxima[4][kColumns];
  __shared__ uint32_t joined;
  const uint32_t q = blockIdx.y, z = blockIdx.z, l = threadIdx.x & 31, warp = threadIdx.x / 32;
  if (blockIdx.x + q + z == 0) stamp(p.clock);
  const uint32_t n_docs = min(p.found[q * 4], p.capacity);
  if (blockIdx.x >= n_docs) return;
  const uint32_t g0 = p.group_begin ? p.group_begin[q] : q, g1 = p.group_begin ? p.group_begin[q + 1] : q + 1;
  const uint32_t dim16 = (p.dim + 15) & ~15u, lane_dims = p.lane_words * 32 / NB, steps = lane_dims / 4;
  const uint32_t g = l >> 2, j = l & 3;
#pragma unroll
  for (int part = 0; part < (kTable ? 2 : 1); part++)
    for (int e = threadIdx.x; e < kEntries * kFields; e += 128)
      lut[part][e] = p.table[(part << NB) + ((e / kFields) >> (e % kFields * NB) & ((1 << NB) - 1))];
  uint32_t loaded = 0xFFFFFFFFu;  // the group whose operands are in shared memory
  for (uint32_t i = blockIdx.x; i < n_docs; i += gridDim.x) {
    const size_t cell = size_t(q) * p.capacity + i;
    const uint32_t doc = p.ids[cell], t0 = p.first_tile[doc], tiles = p.first_tile[doc + 1] - t0;
    if (tiles == 0) {
      if (z == 0 && threadIdx.x == 0) p.scores[cell] = 0;
      continue;
    }
    const uint32_t per = (tiles + gridDim.z - 1) / gridDim.z, shares = (tiles + per - 1) / per;
    if (z >= shares) continue;
    const uint32_t lo = t0 + z * per, hi = min(lo + per, t0 + tiles);
    float total = 0;
    for (uint32_t group = g0; group < g1; group++) {
      const uint4 *from = reinterpret_cast<const uint4 *>(p.parts + size_t(group) * 5 * steps * 128);
      float best[4][2];
#pragma unroll
      for (int n = 0; n < 4; n++) best[n][0] = best[n][1] = -INFINITY;
      for (uint32_t round = 0; round * 8 < hi - lo; round++) {
        float sum[2][4][4] = {}, rest[2][4][4] = {};
        auto token = [&](int t, int h) -> size_t { return size_t(min(lo + round * 8 + warp * 2 + t, hi - 1)) * kTile + g + 8 * h; };
        const __nv_bfloat16 *centroid[2][2];
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
          for (int h = 0; h < 2; h++) centroid[t][h] = p.centroids + size_t(p.words[token(t, h)].x / 64) * dim16 + j * lane_dims;
        for (uint32_t s0 = 0; s0 < steps; s0 += kFineSteps) {
          // Steps past the last have operands 0.
          uint32_t a[kAhead + 1][2][4];
          auto fetch = [&](int s) {
            const uint32_t d = 4 * (s0 + s);
#pragma unroll
            for (int t = 0; t < 2; t++) {
              uint2 u = {}, v = {};
              if (d < lane_dims && j * lane_dims + d < dim16)
                u = __ldg(reinterpret_cast<const uint2 *>(centroid[t][0] + d)), v = __ldg(reinterpret_cast<const uint2 *>(centroid[t][1] + d));
              uint32_t(&to)[4] = a[s % (kAhead + 1)][t];
              to[0] = u.x, to[1] = v.x, to[2] = u.y, to[3] = v.y;
            }
          };
#pragma unroll
          for (int s = 0; s < kAhead; s++) fetch(s);
          if (steps > kFineSteps || loaded != group) {
            const uint32_t m = min(steps - s0, uint32_t(kFineSteps)) * 64;
            __syncthreads();
            for (uint32_t e = threadIdx.x; e < 5 * kFineSteps * 64; e += 128) {
              const uint32_t part = e / (kFineSteps * 64), r = e % (kFineSteps * 64);
              reinterpret_cast<uint4 *>(ops[part])[r] = r < m ? __ldg(from + (size_t(part) * steps + s0) * 64 + r) : make_uint4(0, 0, 0, 0);
            }
            __syncthreads();
            loaded = group;
          }
#pragma unroll
          for (int s = 0; s < kFineSteps; s++) {
            if (s + kAhead < kFineSteps) fetch(s + kAhead);
#pragma unroll
            for (int n = 0; n < 4; n++) {
              const uint2 b = ops[1][s][n * 32 + l], c = ops[2][s][n * 32 + l];
#pragma unroll
              for (int t = 0; t < 2; t++) mma_bf16(sum[t][n], a[s % (kAhead + 1)][t], c.x, c.y), mma_bf16(sum[t][n], a[s % (kAhead + 1)][t], b.x, b.y);
            }
          }
          // The largest part last, and the fields. Centroids come from L1.
#pragma unroll
          for (int s = 0; s < kAhead; s++) fetch(s);
          uint32_t x[2][2][NB];
#pragma unroll
          for (int t = 0; t < 2; t++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
              for (int w = 0; w < NB; w++)
                x[t][h][w] = s0 / kPer + w < p.lane_words ? __ldg(p.rows + (token(t, h) * 4 + j) * p.lane_words + s0 / kPer + w) : 0;
#pragma unroll
          for (int s = 0; s < kFineSteps; s++) {
            if (s + kAhead < kFineSteps) fetch(s + kAhead);
            uint32_t f[2][4], f_low[2][4];
#pragma unroll
            for (int t = 0; t < 2; t++) {
              const uint2 y = look_up<NB>(reinterpret_cast<const char *>(lut[0]), x[t][0][s / kPer], s % kPer);
              const uint2 w = look_up<NB>(reinterpret_cast<const char *>(lut[0]), x[t][1][s / kPer], s % kPer);
              f[t][0] = y.x, f[t][1] = w.x, f[t][2] = y.y, f[t][3] = w.y;
              if constexpr (kTable) {
                const uint2 yl = look_up<NB>(reinterpret_cast<const char *>(lut[1]), x[t][0][s / kPer], s % kPer);
                const uint2 wl = look_up<NB>(reinterpret_cast<const char *>(lut[1]), x[t][1][s / kPer], s % kPer);
                f_low[t][0] = yl.x, f_low[t][1] = wl.x, f_low[t][2] = yl.y, f_low[t][3] = wl.y;
              }
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
              const uint2 b = ops[0][s][n * 32 + l], k = ops[3][s][n * 32 + l], k_low = ops[4][s][n * 32 + l];
#pragma unroll
              for (int t = 0; t < 2; t++) {
                mma_half(rest[t][n], f[t], k_low);
                mma_bf16(sum[t][n], a[s % (kAhead + 1)][t], b.x, b.y);
                mma_half(rest[t][n], f[t], k);
                if constexpr (kTable) mma_half(rest[t][n], f_low[t], k);
              }
            }
          }
        }
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const uint2 word = p.words[token(t, h)];
            float factor = __uint_as_float(word.y) * p.factor_max, ratio = 1;
            if (p.centroid_ratio) ratio = p.centroid_ratio[word.x / 64], factor /= ratio;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
              for (int c = 0; c < 2; c++) {
                const int e = 2 * h + c;
                const float unit = ratio * p.a_max * p.unit[group * kColumns + n * 8 + j * 2 + c];
                best[n][c] = fmaxf(best[n][c], factor * fmaf(rest[t][n][e], unit, sum[t][n][e]));
              }
          }
      }
#pragma unroll
      for (int n = 0; n < 4; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          float v = best[n][c];
          for (int s = 4; s < 32; s *= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, s));
          if (l < 4) maxima[warp][n * 8 + j * 2 + c] = v;
        }
      __syncthreads();
      if (warp == 0) {
        const float m = fmaxf(fmaxf(maxima[0][l], maxima[1][l]), fmaxf(maxima[2][l], maxima[3][l])), w = p.weights[group * kColumns + l];
        if (shares > 1) __stcg(&p.part[((cell * gridDim.z + z) * p.max_groups + (group - g0)) * kColumns + l], m);
        else if (w != 0) total = fmaf(w, m, total);
      }
      __syncthreads();
    }
    if (warp) continue;
    if (shares > 1) {
      __threadfence();
      __syncwarp();
      if (l == 0) joined = atomicAdd(&p.count[cell], 1);
      __syncwarp();
      if (joined != shares - 1) continue;
      __threadfence();
      for (uint32_t group = g0; group < g1; group++) {
        float m = -INFINITY;
        for (uint32_t s = 0; s < shares; s++) m = fmaxf(m, __ldcg(&p.part[((cell * gridDim.z + s) * p.max_groups + (group - g0)) * kColumns + l]));
        const float w = p.weights[group * kColumns + l];
        if (w != 0) total = fmaf(w, m, total);
      }
      if (l == 0) p.count[cell] = 0;
    }
    for (int s = 16; s; s >>= 1) total += __shfl_xor_sync(0xffffffffu, total, s);
    if (l) continue;
    p.scores[cell] = total;
    if (p.coarse) {
      const float2 c = p.coarse[cell];
      if (c.y > 0) atomicMax(&p.found[q * 4 + 3], __float_as_uint(fmaxf(total - c.x, 0.0f) / c.y));
    }
  }
  if (p.clock && threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned long long *>(p.clock + 1), now());
}

#define PLAID_FINE(nb)                                                                                                             \
  extern "C" __global__ void __launch_bounds__(128, 3) fine_b##nb(const __grid_constant__ FineParams p) { fine_scores<nb, false>(p); } \
  extern "C" __global__ void __launch_bounds__(128, 3) fine_t##nb(const __grid_constant__ FineParams p) { fine_scores<nb, true>(p); }
PLAID_FINE(1)
PLAID_FINE(2)
PLAID_FINE(4)
PLAID_FINE(8)

}  // namespace plaid
