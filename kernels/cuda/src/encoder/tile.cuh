// tile.cuh: products by mma.sync, for devices without wgmma, and for few rows, where
// many small tiles bring the weights in sooner.
#pragma once
#include "common.cuh"

namespace plaid {
namespace encoder {

// A chunk is 64 deep: kM rows of a, kN rows of w, as they lie in global memory. A
// block has a ring of stages for them, each with a barrier that opens when its chunk has come.
template <int kM, int kN> struct Tile {
  static constexpr uint32_t kLeft = kM * 128, kRight = kN * 128, kStage = kLeft + kRight;
  static constexpr int kMaxStages = kM == 16 ? 48 : 24;

  uint32_t shared, full;      // stages, barriers
  const uint8_t *a, *w;       // the tile's first chunks
  size_t a_more;              // from the first 64 rows to the next

#if __CUDA_ARCH__ >= 900
  // One thread copies a chunk.
  static constexpr uint32_t kArrivals = 1;
  __device__ __forceinline__ void copy_right(uint32_t chunk, uint32_t slot) const {
    barrier_expect(full + slot * 8, kStage);
    bulk_load(shared + slot * kStage + kLeft, w + size_t(chunk) * kBlock, kRight, full + slot * 8);
  }
  __device__ __forceinline__ void copy_left(uint32_t chunk, uint32_t slot) const {
    for (int i = 0; i < (kM + 63) / 64; i++)
      bulk_load(shared + slot * kStage + i * kBlock, a + size_t(chunk) * kBlock + i * a_more, min(kLeft, kBlock), full + slot * 8);
  }
  template <class F> __device__ __forceinline__ void each(uint32_t n, F f) const {
    if (threadIdx.x < n) f(threadIdx.x);
  }
  __device__ __forceinline__ void refill(uint32_t chunk, uint32_t slot) const {
    if (threadIdx.x == 0) copy_right(chunk, slot), copy_left(chunk, slot);
  }
#else
  // Each thread copies its pieces of all.
  static constexpr uint32_t kArrivals = 128;
  __device__ __forceinline__ void copy(const uint8_t *from, uint32_t to, uint32_t bytes) const {
    for (uint32_t i = threadIdx.x * 16; i < bytes; i += 128 * 16) copy16(to + i, from + i);
  }
  __device__ __forceinline__ void copy_right(uint32_t chunk, uint32_t slot) const {
    copy(w + size_t(chunk) * kBlock, shared + slot * kStage + kLeft, kRight);
  }
  __device__ __forceinline__ void copy_left(uint32_t chunk, uint32_t slot) const {
    for (int i = 0; i < (kM + 63) / 64; i++) copy(a + size_t(chunk) * kBlock + i * a_more, shared + slot * kStage + i * kBlock, min(kLeft, kBlock));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full + slot * 8) : "memory");
  }
  template <class F> __device__ __forceinline__ void each(uint32_t n, F f) const {
    for (uint32_t i = 0; i < n; i++) f(i);
  }
  __device__ __forceinline__ void refill(uint32_t chunk, uint32_t slot) const { copy_right(chunk, slot), copy_left(chunk, slot); }
#endif
};

// Products of a tile: a warp has kRows × kCols of it. Small tiles load what a chunk's
// products need while those of the chunk before are computed, others a step of 16. prepare
// reads what the epilogue needs of weights, before the wait for the launch in front.
template <int kM, int kN, int kRows, int kCols, class Prepare, class Epilogue>
__device__ __forceinline__ void tile_products(const uint8_t *a, const uint8_t *w, uint32_t k, uint32_t stages, Prepare &&prepare, Epilogue &&epilogue) {
  using T = Tile<kM, kN>;
  extern __shared__ __align__(1024) uint8_t tile_stages[];
  __shared__ __align__(8) uint64_t barriers[T::kMaxStages];
  constexpr int kAcross = kN / kCols, kWarps = kM / kRows * kAcross, kSteps = kM <= 32 ? 4 : 1;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t row0 = blockIdx.y * kM, col0 = blockIdx.x * kN, blocks = k / 64;
  const T t{opaque(shared_at(tile_stages)), opaque(shared_at(barriers)),
            a + size_t(row0 / 64) * blocks * kBlock + row0 % 64 * 128, w + size_t(col0 / 64) * blocks * kBlock + col0 % 64 * 128,
            size_t(blocks) * kBlock};
  if (threadIdx.x < stages) barrier_init(t.full + threadIdx.x * 8, T::kArrivals);
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x < stages) barriers_made();
#endif
  __syncthreads();
  let_next();
  t.each(min(stages, blocks), [&](uint32_t i) { t.copy_right(i, i); });
  prepare();
  wait_before();
  t.each(min(stages, blocks), [&](uint32_t i) { t.copy_left(i, i); });
  const bool works = kWarps == 4 || warp < kWarps;
  if (!works && stages >= blocks) return;

  float sums[kRows / 16][kCols / 8][4] = {};
  const uint32_t wr = warp / kAcross * kRows, wc = warp % kAcross * kCols;
  // Where a lane's rows of a and w are in a stage; a step of 16 further, bits 5 and 6 change.
  const uint32_t a_row = wr + lane % 16, b_row = wc + lane % 8 + lane / 16 * 8;
  const uint32_t a_at = opaque(t.shared + a_row * 128 + ((lane / 16 ^ a_row) & 7) * 16);
  const uint32_t b_at = opaque(t.shared + T::kLeft + b_row * 128 + ((lane / 8 % 2 ^ b_row) & 7) * 16);
  struct Step {
    uint32_t x[kSteps][kRows / 16][4], y[kSteps][kCols / 16][4];
  } steps[2];
  // load copies a step of 16 of a chunk to registers, add multiplies one.
  auto load = [&](Step &f, int at, uint32_t slot, int s) {
    const uint32_t left = (a_at + slot * T::kStage) ^ s * 32, right = (b_at + slot * T::kStage) ^ s * 32;
#pragma unroll
    for (int m = 0; m < kRows / 16; m++) load_matrices(f.x[at][m], left + m * 2048);
#pragma unroll
    for (int n = 0; n < kCols / 16; n++) load_matrices(f.y[at][n], right + n * 2048);
  };
  auto add = [&](Step &f, int at) {
#pragma unroll
    for (int n = 0; n < kCols / 16; n++) {
#pragma unroll
      for (int m = 0; m < kRows / 16; m++) {
        multiply(sums[m][2 * n], f.x[at][m], f.y[at][n][0], f.y[at][n][1]);
        multiply(sums[m][2 * n + 1], f.x[at][m], f.y[at][n][2], f.y[at][n][3]);
      }
    }
  };
  uint32_t slot = 0, parity = 0;
  if (works) {
    barrier_wait(t.full, 0);
#pragma unroll
    for (int s = 0; s < kSteps; s++) load(steps[0], s, 0, s);
  }
  // chunk multiplies the loaded values of chunk i, and loads the next one's first part.
  auto chunk = [&](uint32_t i, Step &one, Step &other) {
    const uint32_t here = slot;
    if (++slot == stages) slot = 0, parity ^= 1;
    if (works && kSteps == 4) {
      // Products wait for those before them: loads of a step go between those of two.
      add(one, 0);
      if (i + 1 < blocks) {
        barrier_wait(t.full + slot * 8, parity);
        load(other, 0, slot, 0);
#pragma unroll
        for (int s = 1; s < kSteps; s++) add(one, s), load(other, s, slot, s);
      } else {
#pragma unroll
        for (int s = 1; s < kSteps; s++) add(one, s);
      }
    } else if (works) {
#pragma unroll
      for (int s = 0; s < 4; s++) {
        Step &now = s % 2 ? other : one, &next = s % 2 ? one : other;
        if (s < 3) {
          load(next, 0, here, s + 1);
        } else if (i + 1 < blocks) {
          barrier_wait(t.full + slot * 8, parity);
          load(next, 0, slot, 0);
        }
        add(now, 0);
      }
    }
    if (i + stages < blocks) {  // all have read the stage: a later chunk takes it
      __syncthreads();
      t.refill(i + stages, here);
    }
  };
  if (kSteps == 4) {
    for (uint32_t i = 0; i < blocks; i += 2) {
      chunk(i, steps[0], steps[1]);
      if (i + 1 < blocks) chunk(i + 1, steps[1], steps[0]);
    }
  } else {
    for (uint32_t i = 0; i < blocks; i++) chunk(i, steps[0], steps[1]);
  }
  if (!works) return;
#pragma unroll
  for (int m = 0; m < kRows / 16; m++) epilogue(sums[m], row0 + wr + m * 16 + lane / 4, col0 + wc, lane % 4);
}

// Adds the bias to 16 columns of sums, and stores what the epilogue makes of them.
template <class E, int kM, int kN, int kRows, int kCols> __device__ __forceinline__ void tile_gemm(const EncoderGemmParams &p) {
  // A warp of a small tile has 16 columns of 16 rows: biases are loaded early, and are there when the products are.
  constexpr bool kEarly = kRows == 16 && kCols == 16;
  float2 bias[2];
  typename E::RowEarly rows[2];
  auto prepare = [&] {
    if constexpr (kEarly) {
      const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
      const uint32_t row = blockIdx.y * kM + warp / (kN / 16) * 16 + lane / 4, col = blockIdx.x * kN + warp % (kN / 16) * 16;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        if (p.bias) bias[h] = early(reinterpret_cast<const float2 *>(p.bias + col + 8 * h) + q);
        rows[h] = E::row_early(p, row + 8 * h, q, col);
      }
    }
  };
  tile_products<kM, kN, kRows, kCols>(p.a, p.w, p.k, p.stages, prepare, [&](float (&sums)[kCols / 8][4], uint32_t row, uint32_t col, uint32_t q) {
    const uint32_t out_blocks = p.n / 64 / E::kShrink;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t r = row + 8 * h;
      if (r >= p.rows) continue;
      const auto at = [&] {
        if constexpr (kEarly) return rows[h]; else return E::row(p, r, q);
      }();
#pragma unroll
      for (int g = 0; g < kCols / 16; g++) {
        const uint32_t c = col + 16 * g;
        float x[2] = {sums[2 * g][2 * h], sums[2 * g][2 * h + 1]}, y[2] = {sums[2 * g + 1][2 * h], sums[2 * g + 1][2 * h + 1]};
        if (p.bias) {
          if constexpr (!kEarly) bias[0] = __ldg(reinterpret_cast<const float2 *>(p.bias + c) + q), bias[1] = __ldg(reinterpret_cast<const float2 *>(p.bias + c + 8) + q);
          x[0] += bias[0].x, x[1] += bias[0].y, y[0] += bias[1].x, y[1] += bias[1].y;
        }
        uint32_t out[2];
        E::apply(p, at, c, g, x, y, out);
#pragma unroll
        for (int i = 0; i < 2 / E::kShrink; i++)
          *reinterpret_cast<uint32_t *>(p.out + tiled(r, c / 8 / E::kShrink + i, out_blocks) + q * 4) = out[i];
      }
    }
  });
}

template <int kM, int kN, int kRows, int kCols> __device__ __forceinline__ void tile_head(const EncoderHeadParams &p) {
  tile_products<kM, kN, kRows, kCols>(p.a, p.w, p.k, p.stages, [] {}, [&](float (&sums)[kCols / 8][4], uint32_t row, uint32_t col, uint32_t q) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t r = row + 8 * h;
      if (r >= p.rows) continue;
#pragma unroll
      for (int g = 0; g < kCols / 8; g++) {
        const uint32_t c = col + 8 * g + 2 * q;
        const size_t flat = size_t(r) * p.n + c, tile = tiled(r, c / 8, p.n / 64) + q * 4;
        float x = sums[g][2 * h], y = sums[g][2 * h + 1];
        if (p.bias) x += p.bias[c], y += p.bias[c + 1];
        x = activate(x, p.activation), y = activate(y, p.activation);
        if (p.add) x += p.add[flat], y += p.add[flat + 1];
        if (p.add_half) {
          const float2 v = unpack(*reinterpret_cast<const uint32_t *>(p.add_half + tile));
          x += v.x, y += v.y;
        }
        if (p.out) *reinterpret_cast<float2 *>(p.out + flat) = make_float2(x, y);
        if (p.out_half) *reinterpret_cast<uint32_t *>(p.out_half + tile) = pack(x, y);
      }
    }
  });
}

}  // namespace encoder

#define PLAID_ENCODER_TILES(NAME, E)                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(128) encoder_tile_##NAME##_m16(EncoderGemmParams p) { encoder::tile_gemm<encoder::E, 16, 16, 16, 16>(p); } \
  extern "C" __global__ void __launch_bounds__(128) encoder_tile_##NAME##_m32(EncoderGemmParams p) { encoder::tile_gemm<encoder::E, 32, 32, 16, 16>(p); } \
  extern "C" __global__ void __launch_bounds__(128) encoder_tile_##NAME##_m128(EncoderGemmParams p) { encoder::tile_gemm<encoder::E, 128, 64, 32, 64>(p); }
PLAID_ENCODER_TILES(bias, Bias)
PLAID_ENCODER_TILES(rotary, Rotary)
PLAID_ENCODER_TILES(gelu, Gelu)
PLAID_ENCODER_TILES(geglu, Geglu)
PLAID_ENCODER_TILES(silu, Silu)
PLAID_ENCODER_TILES(swiglu, Swiglu)
extern "C" __global__ void __launch_bounds__(128) encoder_head_m16(EncoderHeadParams p) { encoder::tile_head<16, 16, 16, 16>(p); }
extern "C" __global__ void __launch_bounds__(128) encoder_head_m32(EncoderHeadParams p) { encoder::tile_head<32, 32, 16, 16>(p); }
extern "C" __global__ void __launch_bounds__(128) encoder_head_m128(EncoderHeadParams p) { encoder::tile_head<128, 64, 32, 64>(p); }

}  // namespace plaid
