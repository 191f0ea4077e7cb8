// attention.cuh: softmax(Q·Kᵀ·scale)·V over texts one behind the other, with running
// maxima and sums (Dao et al., FlashAttention, 2022). A block has up to 64
// queries of a text and one head, 16 a warp, and goes through 64 keys at a time.
#pragma once
#include "common.cuh"

namespace plaid {
namespace encoder {

struct Yes { static constexpr bool value = true; };
struct No { static constexpr bool value = false; };

constexpr uint32_t kAll = 1u << 30;  // a window without an end

// Queries are in registers, and pass through the last stage, except those of the largest heads,
// which have a tile of their own in shared memory that the launch requests.
template <int D> struct Attention {
  static constexpr bool kHeld = D <= 128;
  static constexpr int kStages = D <= 64 ? 2 : 1;
  static constexpr uint32_t kRow = 2 * D + 16, kTile = 64 * kRow;  // padded: 8 rows of matrices share no bank
  static constexpr uint32_t kShared = kStages * 2 * kTile + (kHeld ? 0 : kTile), kQueries = kHeld ? kShared - 2 * kTile : kShared - kTile;
};

template <int D> __device__ __forceinline__ void attention(const EncoderAttentionParams &p, uint8_t *tiles) {
  using A = Attention<D>;
  constexpr bool kHeld = A::kHeld;
  constexpr int kStages = A::kStages;
  constexpr uint32_t kRow = A::kRow, kTile = A::kTile;
  const EncoderSpan span = p.spans[blockIdx.x];
  const uint32_t strips = (span.length + 15) / 16, parts = (strips + 3) / 4, share = (strips + parts - 1) / parts * 16;
  const uint32_t query = span.part * share, last = min(query + share, span.length);  // the queries
  const uint32_t head = blockIdx.y * D, blocks = p.columns / 64;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t q = lane % 4, shared = opaque(shared_at(tiles));
  let_next();

  uint32_t begin = 0, end = span.attended;
  const bool windowed = p.before < kAll || p.after < kAll;
  if (windowed) {
    begin = query > p.before ? (query - p.before) / 64 * 64 : 0;
    end = min(end, last + p.after);
  }
  const uint32_t steps = end > begin ? (end - begin + 63) / 64 : 0;
  // A thread copies the same pieces of every 64 rows of D columns; 64 rows further they
  // are where they were in the next block of rows.
  constexpr int kPieces = 64 * D / 8 / 128;
  uint32_t place[kPieces];
  auto find = [&](uint32_t column, uint32_t first) {
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      const uint32_t n = i * 128 + threadIdx.x;
      place[i] = uint32_t(tiled(span.first + first + n / (D / 8), column / 8 + n % (D / 8), blocks));
    }
  };
  // Rows from limit on are zero.
  auto copy = [&](uint32_t to, const uint8_t *from, uint32_t first, uint32_t limit) {
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
      const uint32_t n = i * 128 + threadIdx.x, r = n / (D / 8), c = n % (D / 8);
      const bool some = first + r < limit;
      copy16(to + r * kRow + c * 16, from + (some ? place[i] : 0), some);
    }
  };
  const uint8_t *keys_at = p.qkv;  // base of the offsets in place
  const size_t further = size_t(blocks) * kBlock, to_values = size_t(p.values / 64) * kBlock;
  auto copy_keys = [&](uint32_t step) {
    const uint32_t to = shared + step % kStages * 2 * kTile, first = begin + step * 64;
    copy(to, keys_at, first, span.attended);
    copy(to + kTile, keys_at + to_values, first, span.attended);
    copies_commit();
    keys_at += further;
  };

  wait_before();
  find(head, query);
  copy(shared + A::kQueries, p.qkv, query, last);
  copies_commit();
  find(p.keys + blockIdx.y / p.share * D, begin);
  if (kStages > 1 && steps > 0) copy_keys(0);
  if (kStages > 1) copies_wait<1>(); else copies_wait<0>();
  __syncthreads();
  uint32_t x[kHeld ? D / 16 : 1][4];
  const uint32_t queries = shared + A::kQueries + (warp * 16 + lane % 16) * kRow + lane / 16 * 16;
  if (kHeld) {
#pragma unroll
    for (int i = 0; i < D / 16; i++) load_matrices(x[kHeld ? i : 0], queries + i * 32);
    __syncthreads();
  }

  float out[D / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {};
  // Where a lane's rows are in a tile of keys, and of values.
  const uint32_t keys_lane = opaque(shared + (lane % 8 + lane / 16 * 8) * kRow + lane / 8 % 2 * 16);
  const uint32_t values_lane = opaque(shared + kTile + lane % 16 * kRow + lane / 16 * 16);
  const float scale = p.scale * 1.4426950408889634f;
  const uint32_t strip = query + warp * 16, row0 = strip + lane / 4;  // and 8 further
  const bool works = strip < last;
  for (uint32_t step = 0; step < steps; step++) {
    if (kStages == 1) copy_keys(step);
    else if (step + 1 < steps) copy_keys(step + 1);
    if (kStages > 1 && step + 1 < steps) copies_wait<1>(); else copies_wait<0>();
    __syncthreads();
    const uint32_t keys = keys_lane + step % kStages * 2 * kTile, values = values_lane + step % kStages * 2 * kTile, first = begin + step * 64;
    // The products of 64 keys; at an edge some are not seen, or not there.
    auto attend = [&](auto kEdge, int groups) {
      float s[8][4] = {};
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        if (!kHeld) load_matrices(x[0], queries + i * 32);
        const uint32_t (&own)[4] = x[kHeld ? i : 0];
#pragma unroll
        for (int n = 0; n < 4; n++) {
          if (decltype(kEdge)::value && n >= groups) break;
          uint32_t y[4];
          load_matrices(y, keys + n * 16 * kRow + i * 32);
          multiply(s[2 * n], own, y[0], y[1]);
          multiply(s[2 * n + 1], own, y[2], y[3]);
        }
      }
      if (p.relative) {
        const float *far = p.relative + size_t(blockIdx.y) * (2 * p.zero + 1) + p.zero + first + q * 2 - row0;
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
          for (int e = 0; e < 4; e++) s[n][e] += __ldg(far + (n * 8 + e % 2 - e / 2 * 8));
        }
      }
      if (decltype(kEdge)::value) {
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const uint32_t key = first + n * 8 + q * 2 + e % 2, row = row0 + e / 2 * 8;
            const bool seen = key < span.attended && (!windowed || (key + p.before >= row && key <= row + p.after));
            if (!seen) s[n][e] = -INFINITY;
          }
        }
      }
      float base[2], shrink[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float m = most[h];
#pragma unroll
        for (int n = 0; n < 8; n++) m = fmaxf(m, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        base[h] = m == -INFINITY ? 0.f : __fmul_rn(m, scale);
        shrink[h] = exp2_fast(fmaf(most[h], scale, -base[h]));
        most[h] = m;
        total[h] = __fmul_rn(total[h], shrink[h]);
      }
#pragma unroll
      for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          s[n][e] = exp2_fast(fmaf(s[n][e], scale, -base[e / 2]));
          total[e / 2] += s[n][e];
        }
      }
#pragma unroll
      for (int d = 0; d < D / 8; d++) {
#pragma unroll
        for (int e = 0; e < 4; e++) out[d][e] = __fmul_rn(out[d][e], shrink[e / 2]);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (decltype(kEdge)::value && i >= groups) break;
        const uint32_t w[4] = {pack(s[2 * i][0], s[2 * i][1]), pack(s[2 * i][2], s[2 * i][3]), pack(s[2 * i + 1][0], s[2 * i + 1][1]),
                               pack(s[2 * i + 1][2], s[2 * i + 1][3])};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          uint32_t y[4];
          load_transposed(y, values + i * 16 * kRow + d * 32);
          multiply(out[2 * d], w, y[0], y[1]);
          multiply(out[2 * d + 1], w, y[2], y[3]);
        }
      }
    };
    const bool edge = first + 64 > span.attended || (windowed && (first + p.before < strip + 15 || first + 63 > strip + p.after));
    // A warp does not see all keys of the block.
    const bool seen = !windowed || (first + 63 + p.before >= strip && first <= strip + 15 + p.after);
    if (works && seen) {
      if (edge) attend(Yes{}, min(4, int(end - first + 15) / 16)); else attend(No{}, 4);
    }
    __syncthreads();
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float t = total[h];
    t += __shfl_xor_sync(0xffffffffu, t, 1);
    t += __shfl_xor_sync(0xffffffffu, t, 2);
    const float inverse = t > 0.f ? __frcp_rn(t) : 0.f;
    const uint32_t row = row0 + 8 * h;
    if (row >= last) continue;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      uint8_t *to = p.out + tiled(span.first + row, head / 8 + d, p.width / 64) + q * 4;
      *reinterpret_cast<uint32_t *>(to) = pack(__fmul_rn(out[d][2 * h], inverse), __fmul_rn(out[d][2 * h + 1], inverse));
    }
  }
}

}  // namespace encoder

#define PLAID_ENCODER_ATTENTION(D) \
  extern "C" __global__ void __launch_bounds__(128, D <= 32 ? 5 : D <= 64 ? 4 : 2) encoder_attention_d##D(EncoderAttentionParams p) { \
    __shared__ __align__(128) uint8_t tiles[encoder::Attention<D>::kShared];                                                    \
    encoder::attention<D>(p, tiles);                                                                                           \
  }
PLAID_ENCODER_ATTENTION(16)
PLAID_ENCODER_ATTENTION(32)
PLAID_ENCODER_ATTENTION(48)
PLAID_ENCODER_ATTENTION(64)
PLAID_ENCODER_ATTENTION(96)
PLAID_ENCODER_ATTENTION(128)
extern "C" __global__ void __launch_bounds__(128, 2) encoder_attention_d256(EncoderAttentionParams p) {
  extern __shared__ __align__(128) uint8_t attention_tiles[];
  encoder::attention<256>(p, attention_tiles);
}

}  // namespace plaid
