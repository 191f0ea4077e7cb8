// head.cuh: hidden states to token vectors on the tensor cores, and from there to
// scores or to memory.
//
// A block of four teams multiplies 256 rows, 64 a team, with N columns of weights, 128
// bytes of a row, a chunk, at a time. Chunks of hidden states come through a ring of
// three stages in shared memory by asynchronous copies, those of a warp's rows by the
// warp itself. The weights stay in shared memory if there is room; else they come
// through a ring of as many chunks as have room, by bulk copies, each begun by the warp
// that is the last to need the previous content of its place. Teams wait for each other only for
// that ring: while one takes maxima the tensor cores have the products of the others.
// Loads to registers, as in rows.cuh, pass through the first-level cache, for which the
// weights would leave no room.
//
// Scores: token vectors stay in registers, as two f16 (format split), and are the left
// operand of the product with the query. That of 128 dimensions is 32 · 512 bytes.
// Masked rows become NaN, which is never the maximum.
//
// A launch may begin while the one in front lays the weights: hidden states are on their way
// then.
//
// Bound: HBM, and the weights' way from the second-level cache: 128 bytes · N a chunk
// for 32 KiB of hidden states.
#pragma once
#include "rows.cuh"

namespace plaid {

constexpr int kHeadTeams = 4, kHeadStages = 3;
constexpr uint32_t kHeadStage = kHeadTeams * 64 * 128;  // bytes of hidden states
constexpr uint32_t kHeadQuery = 32 * 16 + 16;           // 16 bytes of each of 32 query tokens
constexpr uint32_t kHeadJoint = kHeadTeams * 8 * 32 * 4;
constexpr int kHeadRing = 3;            // chunks of weights, at most
constexpr uint32_t kHeadBarriers = 96;  // of the ring, of the weights that stay, and of the teams that are done

// copy16 copies 16 bytes to shared memory, or zeros.
__device__ __forceinline__ void copy16(uint32_t to, const uint8_t *from, bool there) {
  asm volatile("cp.async.cg.shared.global" PLAID_HINT " [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// copy_bulk copies a multiple of 16 bytes; the barrier counts them.
__device__ __forceinline__ void copy_bulk(uint32_t to, const uint8_t *from, uint32_t bytes, uint32_t barrier) {
#ifdef PLAID_SM90A
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
#endif
}

// left_of loads rows × 32 bytes of a warp as a left operand.
__device__ __forceinline__ void left_of(uint32_t (&a)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
}

template <bool V> struct Is {
  static constexpr bool value = V;
};

// Where a team is: 64 rows from a token of an item on.
struct HeadTile {
  uint32_t begin;  // first row of the item: a device has no room for more
  uint32_t token, len, pos, index;  // len as of the item
};

template <class T, int N, bool kScore>
__device__ __forceinline__ void dense_head(const DenseProjectParams &p, const DenseParams &s, bool normalize, bool before) {
  constexpr bool kSplitRow = T::kFormat == kSplit;
  constexpr uint32_t kPlane = N * 16, kChunk = 8 * kPlane;       // 16 bytes of each column
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t tid = threadIdx.x, team = tid / 128, warp = tid / 32, l = tid & 31, g = l >> 2, j = l & 3;
  const uint32_t c0 = blockIdx.y * N, chunks = (p.row_bytes + 127) / 128;
  const uint32_t ring = shared_at(shared) + warp * (16 * 128), query = shared_at(shared) + kHeadStages * kHeadStage;
  const uint32_t columns = query + (kScore ? N / 4 * kHeadQuery + kHeadJoint : 0);
  const uint32_t full = columns + N * 8, weights = full + kHeadBarriers;
  uint32_t room;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(room));
  room = (room - (weights - shared_at(shared))) / kChunk;
  const uint32_t places = room >= chunks ? 0 : min(room, kHeadRing), kept = places == 0 ? chunks : room - places, others = chunks - kept;
  const uint8_t *const laid = p.weights + uint64_t(blockIdx.y) * chunks * kChunk;

  if (!before) wait_before();
  DenseUnit unit{};
  if constexpr (kScore) unit = load_unit(s.units + blockIdx.x * kHeadTeams + team);
  auto first_tile = [&] {
    if constexpr (kScore) return HeadTile{uint32_t(unit.first.begin), 0, unit.first.len, unit.first.pos, unit.begin};
    const uint32_t token = (blockIdx.x * kHeadTeams + team) * 64;
    return HeadTile{0, token, p.rows, 0, 0};
  };
  auto more = [&](const HeadTile &t) { return kScore ? t.index < unit.end : t.token < p.rows; };
  auto to_item = [](HeadTile &t, const DenseItem &item) { t.begin = uint32_t(item.begin), t.len = item.len, t.pos = item.pos, t.token = 0; };
  auto item_at = [&](uint32_t i) { return load_item(s.items + min(i, max(unit.end, 1) - 1)); };

  // How often a block goes round: as often as its longest team.
  uint32_t &tiles = *reinterpret_cast<uint32_t *>(shared + (columns - shared_at(shared)));
  uint32_t *const done = &tiles + (full - columns) / 4 + 2 * (kHeadRing + 1);  // warps that need a chunk no more
  if (tid == 0) {
    tiles = 0;
    for (int i = 0; i < kHeadRing; i++) barrier_init(full + 8 * i, 1), done[i] = 0;
    barrier_init(full + 8 * kHeadRing, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if constexpr (kScore) {
    uint32_t mine = 0;
    for (uint32_t i = unit.begin + l; i < unit.end; i += 32) mine += max((s.items[i].len & kRows) + 63, 64) / 64;
    mine = __reduce_add_sync(0xffffffffu, mine);
    if (l == 0) atomicMax(&tiles, mine);
  } else if (tid == 0) {
    const uint32_t first = blockIdx.x * kHeadTeams * 64, step = gridDim.x * kHeadTeams * 64;
    tiles = first < p.rows ? (p.rows - first + step - 1) / step : 0;
  }
  __syncthreads();
  const uint32_t rounds = __shfl_sync(0xffffffffu, tiles, 0);
  __syncthreads();

  // Copies of hidden states are two stages ahead of the products.
  HeadTile ahead = first_tile();
  ahead.len &= kRows;
  DenseItem after;
  if constexpr (kScore) after = item_at(ahead.index + 1);
  uint32_t chunk_ahead = 0;
  const uint32_t copy_to = ring + l / 8 * 128;
  auto fetch = [&](uint32_t slot) {
    const uint32_t c = l % 8, at = chunk_ahead * 128 + c * 16;
    if (more(ahead)) {
      const uint32_t token = ahead.token + warp % 4 * 16 + l / 8;
      const uint8_t *from = p.hidden + uint64_t(ahead.begin + token) * p.row_bytes + at;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const bool there = token + 4 * i < ahead.len && at < p.row_bytes;
        copy16(copy_to + slot * kHeadStage + i * 512 + (c ^ (l / 8 + 4 * (i & 1))) * 16, there ? from + 4 * i * p.row_bytes : p.hidden, there);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (++chunk_ahead < chunks) return;
    chunk_ahead = 0;
    if constexpr (kScore) {
      if ((ahead.token += 64) < ahead.len) return;
      to_item(ahead, after);
      ahead.len &= kRows;
      ahead.index = min(ahead.index + 1, unit.end);
      after = item_at(ahead.index + 1);
    } else {
      ahead.token += gridDim.x * kHeadTeams * 64;
    }
  };
#pragma unroll
  for (int i = 0; i < kHeadStages - 1; i++) fetch(i);
  if (before) wait_before();

  const uint32_t streamed = others * rounds;
  auto send = [&](uint32_t n) { copy_bulk(weights + (kept + n % places) * kChunk, laid + (kept + n % others) * kChunk, kChunk, full + 8 * (n % places)); };
  if (tid == 0) {
    if (kept > 0) copy_bulk(weights, laid, kept * kChunk, full + 8 * kHeadRing);
    for (uint32_t n = 0; n < min(places, streamed); n++) send(n);
  }
  __syncwarp();

  float2 *const column = reinterpret_cast<float2 *>(shared + (columns - shared_at(shared)));  // scale, bias
  if (tid < N) {
    const uint32_t c = c0 + tid;
    const bool there = c < p.dim;
    column[tid] = make_float2(!there ? 0.0f : p.weight_scale ? p.weight_scale[c] : 1.0f, there && p.bias ? p.bias[c] : 0.0f);
  }
  // What the warps of a team have, of 32 columns each, of a document and of the next one.
  float weight = 0;
  uint32_t turn = 0;
  float *const joint = reinterpret_cast<float *>(shared + kHeadStages * kHeadStage + N / 4 * kHeadQuery) + warp / 4 * 8 * 32;
  if constexpr (kScore) {
    const uint32_t first_row = s.groups[unit.group].row, count = s.groups[unit.group].count;
    const uint8_t *rows = s.queries + uint64_t(first_row) * s.query_bytes;
    for (uint32_t i = tid; i < N / 4 * 32; i += 128 * kHeadTeams) {
      const uint32_t n = i / (N / 4), c = i % (N / 4);
      uint4 v = make_uint4(0, 0, 0, 0);
      if (n < count && c * 16 < s.query_bytes) v = reinterpret_cast<const uint4 *>(rows + uint64_t(n) * s.query_bytes)[c];
      *reinterpret_cast<uint4 *>(shared + kHeadStages * kHeadStage + c * kHeadQuery + n * 16) = v;
    }
    if (l < count) weight = s.weights[first_row + l];
    joint[warp % 4 * 32 + l] = joint[(warp % 4 + 4) * 32 + l] = -INFINITY;
  }
  // The sum of the maxima of a document, by the first or the third warp.
  auto finish = [&](uint32_t pos) {
    team_sync(team);
    if (warp % 4 == turn * 2) {
      float *v = joint + turn * 4 * 32 + l;
      const float most = fmaxf(fmaxf(v[0], v[32]), fmaxf(v[64], v[96]));
      v[0] = v[32] = v[64] = v[96] = -INFINITY;
      float sum = weight != 0 && counts(most) ? most * weight : 0.0f;
#pragma unroll
      for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
      if (l == 0) s.out[s.groups[unit.group].out + pos] = sum;
    }
    turn ^= 1;
  };

  // The query and the columns were written here, and are read by products.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (kept > 0) barrier_wait(full + 8 * kHeadRing, 0);

  HeadTile here = first_tile();
  uint32_t slot = 0, taken = 0, taken_slot = 0, taken_parity = 0;
  float sums[N / 2];
  // Rows of a core matrix lie as fetch puts them.
  const uint32_t left_row = ring + (l & 15) * 128, left_piece = l >> 4, left_turn = l & 7;
  for (uint32_t round = 0; round < rounds; round++) {
    auto take = [&](uint32_t chunk, auto resides) {
      constexpr bool kStays = decltype(resides)::value;
      asm volatile("cp.async.wait_group %0;" ::"n"(kHeadStages - 2) : "memory");
      __syncwarp();
      fetch(slot == 0 ? kHeadStages - 1 : slot - 1);
      uint32_t left[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++) left_of(left[i], left_row + slot * kHeadStage + ((2 * i + left_piece) ^ left_turn) * 16);
      slot = slot == kHeadStages - 1 ? 0 : slot + 1;
      if constexpr (!kStays) barrier_wait(full + 8 * taken_slot, taken_parity);
      const uint64_t b = right(weights + (kStays ? chunk : kept + taken_slot) * kChunk, kPlane, 128);
      constexpr uint32_t kStep = 2 * kPlane / 16;  // of the weights, in units of 16 bytes
      const int add = chunk > 0;
      products_begin();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint64_t at = b + i * kStep;
        if constexpr (kSplitRow) {
          if (i & 2) continue;
          product(T{}, Width<N>{}, sums, left[i], at, i > 0 || add);
          product(T{}, Width<N>{}, sums, left[i], at + 2 * kStep, 1);
          product(T{}, Width<N>{}, sums, left[i + 2], at, 1);
        } else {
          product(T{}, Width<N>{}, sums, left[i], at, i > 0 || add);
        }
      }
      products_end();
#pragma unroll
      for (int i = 0; i < N / 2; i++) settle(sums[i]);
      if constexpr (!kStays) {
        if (l == 0 && atomicAdd(done + taken_slot, 1) % (4 * kHeadTeams) == 4 * kHeadTeams - 1 && taken + places < streamed) send(taken + places);
        __syncwarp();
        taken++;
        if (++taken_slot == places) taken_slot = 0, taken_parity ^= 1;
      }
    };
    for (uint32_t chunk = 0; chunk < kept; chunk++) take(chunk, Is<true>{});
    for (uint32_t chunk = kept; chunk < chunks; chunk++) take(chunk, Is<false>{});

    // Teams that are done go along: products are for all warps at once.
    const uint32_t r = here.token + warp % 4 * 16 + g;
    float in[2], up[2], square[2], most[2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const bool there = more(here) && r + 8 * half < (here.len & kRows);
      in[half] = p.hidden_scale && there ? load_scale(p.hidden_scale + here.begin + r + 8 * half) : 1.0f;
      if (kScore && here.len & kHoles && there && !s.mask[here.begin + r + 8 * half]) in[half] = kNone;
    }
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
      const float4 c = *reinterpret_cast<const float4 *>(column + i * 8 + j * 2);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float *v = sums + 4 * i + 2 * half;
        v[0] = fmaf(v[0], in[half] * c.x, c.y), v[1] = fmaf(v[1], in[half] * c.z, c.w);
        most[half] = fmaxf(most[half], fmaxf(fabsf(v[0]), fabsf(v[1])));
      }
    }
    // A row of format split, as dense_pack makes it; lanes of a quad have it together.
#pragma unroll
    for (int half = 0; half < 2; half++) {
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffu, most[half], 1));
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffu, most[half], 2));
      int exponent = 0;
      if (most[half] > 0) frexpf(most[half], &exponent);
      up[half] = ldexpf(1.0f, 15 - max(exponent, -110)), square[half] = 0;
    }
    if constexpr (!kScore) {
      if (p.out) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float *out = p.out + uint64_t(r + 8 * half) * p.dim;
#pragma unroll
          for (int i = 0; i < N / 8; i++) {
            const uint32_t c = c0 + i * 8 + j * 2;
            if (r + 8 * half < here.len && c < p.dim) out[c] = sums[4 * i + 2 * half];
            if (r + 8 * half < here.len && c + 1 < p.dim) out[c + 1] = sums[4 * i + 2 * half + 1];
          }
        }
      }
    }
    float scores[16], best[8];
#pragma unroll
    for (int block = 0; block < N / 32; block++) {  // 64 bytes of the one part and 64 of the other
      uint32_t hi[2][4], lo[2][4];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float *v = sums + 16 * block + 4 * i + 2 * half;
          const float w0 = v[0] * up[half], w1 = v[1] * up[half];
          square[half] = fmaf(w0, w0, fmaf(w1, w1, square[half]));
          const __half2 high = __floats2half2_rn(w0, w1);
          const __half2 low = __floats2half2_rn(w0 - __low2float(high), w1 - __high2float(high));
          hi[i / 2][i % 2 * 2 + half] = *reinterpret_cast<const uint32_t *>(&high);
          lo[i / 2][i % 2 * 2 + half] = *reinterpret_cast<const uint32_t *>(&low);
        }
      if constexpr (kScore) {
        products_begin();
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const uint64_t at = right(query, kHeadQuery, 128) + (block * 8 + i * 2) * (kHeadQuery / 16);
          product(Split{}, Width<32>{}, scores, hi[i], at, block + i > 0);
          product(Split{}, Width<32>{}, scores, hi[i], at + 4 * (kHeadQuery / 16), 1);
          product(Split{}, Width<32>{}, scores, lo[i], at, 1);
        }
        products_end();
#pragma unroll
        for (int i = 0; i < 16; i++) settle(scores[i]);
      } else if (!p.out && block * 128 < p.out_bytes) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            uint32_t *to = reinterpret_cast<uint32_t *>(p.rows_out + uint64_t(r + 8 * half) * p.out_bytes) + block * 32 + i * 4 + j;
            if (r + 8 * half < here.len) to[0] = hi[i / 2][i % 2 * 2 + half], to[16] = lo[i / 2][i % 2 * 2 + half];
          }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      square[half] += __shfl_xor_sync(0xffffffffu, square[half], 1);
      square[half] += __shfl_xor_sync(0xffffffffu, square[half], 2);
      const float unit_scale = square[half] > 0 ? rsqrtf(square[half]) : 0.0f, plain = __frcp_rn(up[half]);
      if constexpr (kScore) {
        const float scale = normalize ? unit_scale : plain;
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const float v = r + 8 * half < (here.len & kRows) ? scores[i / 2 * 4 + 2 * half + (i & 1)] * scale : -INFINITY;
          best[i] = half ? fmaxf(best[i], v) : v;
        }
      } else if (!p.out && j == 0 && r + 8 * half < here.len) {
        p.scale[r + 8 * half] = plain;
        if (p.unit) p.unit[r + 8 * half] = unit_scale;
      }
    }
    if constexpr (kScore) {
#pragma unroll
      for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int d = 4; d < 32; d <<= 1) best[i] = fmaxf(best[i], __shfl_xor_sync(0xffffffffu, best[i], d));
        float *to = joint + (turn * 4 + warp % 4) * 32 + (i >> 1) * 8 + j * 2 + (i & 1);
        if (g == 0) *to = fmaxf(*to, best[i]);
      }
      here.token += 64;
      if (more(here) && here.token >= (here.len & kRows)) {
        finish(here.pos);
        to_item(here, item_at(++here.index));
      }
    } else {
      here.token += gridDim.x * kHeadTeams * 64;
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

#define PLAID_DENSE_HEAD(NAME, T, N)                                                                                               \
  extern "C" __global__ void __launch_bounds__(512, 1) dense_project_##NAME##_n##N(const __grid_constant__ DenseProjectParams p) { \
    dense_head<T, N, false>(p, DenseParams{}, false, false);                                                                       \
  }                                                                                                                                \
  extern "C" __global__ void __launch_bounds__(512, 1) dense_head_##NAME##_n##N(const __grid_constant__ DenseHeadParams p) {       \
    dense_head<T, N, true>(p.head, p.score, p.normalize, p.ahead);                                                                 \
  }
PLAID_DENSE_HEAD(f16, F16, 64)
PLAID_DENSE_HEAD(f16, F16, 96)
PLAID_DENSE_HEAD(f16, F16, 128)
PLAID_DENSE_HEAD(bf16, BF16, 64)
PLAID_DENSE_HEAD(bf16, BF16, 96)
PLAID_DENSE_HEAD(bf16, BF16, 128)
PLAID_DENSE_HEAD(split, Split, 64)
PLAID_DENSE_HEAD(split, Split, 96)
PLAID_DENSE_HEAD(split, Split, 128)

}  // namespace plaid
