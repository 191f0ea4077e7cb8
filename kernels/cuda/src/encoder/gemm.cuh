// gemm.cuh: products of many rows on sm_90a. A block stays and takes tiles of 128 × N in
// turn. One thread copies chunks 64 deep into a ring of stages; two warpgroups
// multiply, 64 rows each, and write blocks of 64 × 64 through shared memory.
#pragma once
#include "wgmma.cuh"

namespace plaid {
namespace encoder {

// kPer: blocks an SM. Two hide each other's epilogues; wide tiles read less from L2.
template <int N> struct Shape {
  static constexpr int kPer = N == 128 ? 2 : 1;
  static constexpr int kStages = N == 64 ? 8 : N == 128 ? 3 : N == 192 ? 5 : 4;
  static constexpr int kBuffers = N == 256 ? 2 : 1;  // of 8 KiB, of a warpgroup
  static constexpr int kThreads = N == 128 ? 288 : 384;
  static constexpr uint32_t kStage = (128 + N) * 128;
  static constexpr uint32_t kShared = kStages * kStage + 2 * kBuffers * kBlock + 2 * 8 * kStages;
};

template <class E, int N> __device__ __forceinline__ void gemm(const EncoderGemmParams &p) {
  using S = Shape<N>;
  extern __shared__ __align__(1024) uint8_t gemm_stages[];
  const uint32_t stages = shared_at(gemm_stages), buffers = stages + S::kStages * S::kStage;
  const uint32_t full = buffers + 2 * S::kBuffers * kBlock, empty = full + 8 * S::kStages;
  const uint32_t chunks = p.k / 64, across = p.n / N, tiles = across * ((p.rows + 127) / 128);
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 2);
    barriers_made();
  }
  __syncthreads();
  let_next();
  if (group == 2) {
    if (S::kThreads == 384) fewer_registers<40>();
    if (threadIdx.x == 256) {
      uint32_t slot = 0, parity = 1;
      // The first weights come before what the launch in front writes.
      const uint8_t *w = p.w + size_t(blockIdx.x % across) * (N / 64) * chunks * kBlock;
      const uint32_t early = min(chunks, uint32_t(S::kStages));
      auto right = [&](const uint8_t *from, uint32_t chunk, uint32_t slot) {
#pragma unroll
        for (int i = 0; i < N / 64; i++) bulk_load(stages + slot * S::kStage + (2 + i) * kBlock, from + (size_t(i) * chunks + chunk) * kBlock, kBlock, full + 8 * slot);
      };
      // Of a's last rows only as many as there are come, by 8.
      auto left_of = [&](uint32_t tile) { return min(128u, (p.rows - tile / across * 128 + 7) / 8 * 8) * 128; };
      uint32_t left = left_of(blockIdx.x);
      for (uint32_t i = 0; i < early; i++) barrier_expect(full + 8 * i, left + N * 128), right(w, i, i);
      wait_before();
      bool first = true;
      for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, first = false) {
        const uint8_t *a = p.a + size_t(tile / across) * 2 * chunks * kBlock;
        w = p.w + size_t(tile % across) * (N / 64) * chunks * kBlock;
        left = left_of(tile);
        for (uint32_t c = 0; c < chunks; c++) {
          if (!first || c >= early) {
            barrier_wait(empty + 8 * slot, parity);
            barrier_expect(full + 8 * slot, left + N * 128);
            right(w, c, slot);
          }
          bulk_load(stages + slot * S::kStage, a + size_t(c) * kBlock, min(left, kBlock), full + 8 * slot);
          if (left > kBlock) bulk_load(stages + slot * S::kStage + kBlock, a + size_t(chunks + c) * kBlock, left - kBlock, full + 8 * slot);
          if (++slot == S::kStages) slot = 0, parity ^= 1;
        }
      }
    }
    return;
  }
  if (S::kThreads == 384) more_registers<232>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, half = group;
  const uint32_t q = lane % 4, row = warp * 16 + lane / 4, out_blocks = p.n / 64 / E::kShrink;
  const bool leads = threadIdx.x % 128 == 0;
  uint32_t slot = 0, parity = 0, buffer = 0;
  for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sums[N / 2];
    uint32_t before = 0;
    const uint32_t row0 = (tile / across) * 128 + half * 64, col0 = tile % across * N;
    const auto at0 = E::row(p, row0 + row, q), at1 = E::row(p, row0 + row + 8, q);
    for (uint32_t c = 0; c < chunks; c++) {
      barrier_wait(full + 8 * slot, parity);
      const uint64_t a = operand(stages + slot * S::kStage + half * kBlock), b = operand(stages + slot * S::kStage + 2 * kBlock);
      products_begin();
#pragma unroll
      for (int s = 0; s < 4; s++) products<N>(sums, a + 2 * s, b + 2 * s, c + s);
      products_commit();
      // The chunk before has been multiplied when this one is under way alone.
      products_wait<1>();
      if (c > 0 && leads) barrier_arrive(empty + 8 * before);
      before = slot;
      if (++slot == S::kStages) slot = 0, parity ^= 1;
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(sums[i])::"memory");
    if (leads) barrier_arrive(empty + 8 * before);

    uint8_t *out = p.out + (size_t(row0 / 64) * out_blocks + col0 / 64 / E::kShrink) * kBlock;
    constexpr int kGroups = 4 * E::kShrink;  // of 16 columns, for a block that is written
#pragma unroll
    for (int o = 0; o < N / 16 / kGroups; o++) {
      const uint32_t to = buffers + (half * S::kBuffers + buffer) * kBlock + row * 128 + q * 4;
      if (leads) stores_read<S::kBuffers - 1>();
      meet(1 + group);
#pragma unroll
      for (int g = 0; g < kGroups; g++) {
        const int n = o * kGroups + g;
        const uint32_t c = col0 + 16 * n;
        float2 b = make_float2(0.f, 0.f), d = b;
        if (p.bias) b = __ldg(reinterpret_cast<const float2 *>(p.bias + c) + q), d = __ldg(reinterpret_cast<const float2 *>(p.bias + c + 8) + q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float *s = sums + 8 * n + 2 * h;
          float x[2] = {s[0] + b.x, s[1] + b.y}, y[2] = {s[4] + d.x, s[5] + d.y};
          uint32_t v[2];
          E::apply(p, h ? at1 : at0, c, n, x, y, v);
#pragma unroll
          for (int i = 0; i < 2 / E::kShrink; i++) {
            const uint32_t piece = g * 2 / E::kShrink + i;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + h * 1024 + ((piece ^ row) & 7) * 16), "r"(v[i]) : "memory");
          }
        }
      }
      publish();
      meet(1 + group);
      if (leads) bulk_store(out + size_t(o) * kBlock, buffers + (half * S::kBuffers + buffer) * kBlock, kBlock);
      if (++buffer == S::kBuffers) buffer = 0;
    }
  }
  if (leads) stores_done();
}

}  // namespace encoder

#define PLAID_ENCODER_GEMM(NAME, E, N)                                                                                    \
  extern "C" __global__ void __launch_bounds__(encoder::Shape<N>::kThreads, encoder::Shape<N>::kPer) encoder_gemm_##NAME##_n##N(EncoderGemmParams p) { \
    encoder::gemm<encoder::E, N>(p);                                                                                      \
  }
#define PLAID_ENCODER_GEMMS(NAME, E) \
  PLAID_ENCODER_GEMM(NAME, E, 64)    \
  PLAID_ENCODER_GEMM(NAME, E, 128)   \
  PLAID_ENCODER_GEMM(NAME, E, 192)   \
  PLAID_ENCODER_GEMM(NAME, E, 256)
PLAID_ENCODER_GEMMS(bias, Bias)
PLAID_ENCODER_GEMM(rotary, RotaryAhead, 64)
PLAID_ENCODER_GEMM(rotary, RotaryAhead, 192)
PLAID_ENCODER_GEMM(rotary, RotaryAhead, 256)
PLAID_ENCODER_GEMMS(gelu, Gelu)
PLAID_ENCODER_GEMM(geglu, Geglu, 128)
PLAID_ENCODER_GEMM(geglu, Geglu, 256)
PLAID_ENCODER_GEMM(swiglu, Swiglu, 128)
PLAID_ENCODER_GEMM(swiglu, Swiglu, 256)

}  // namespace plaid
