// rows.cuh: few query tokens. Documents are on the rows of the product and are
// read once, from memory straight into the operand: lane j of a quad loads quarters
// of 64 bytes, and the query operand, in shared memory, has its words in that order.
// A block takes 64 tokens at a time, 16 a warp, and holds the next 64 in flight
// while it multiplies; places after a document's last token repeat that token.
//
// Words of the row of a query token, for step s, half h and lane j: of 32-bit, 16-bit and
// int8 rows (s/2)·16 + 4·j + 2·(s%2) + h; of e4m3, whose 16 loaded values are four
// steps, (s/4)·32 + 8·j + 2·(s%4) + h of the f16 row.
//
// f16, 32 query tokens, 128 dimensions: 126 registers, four teams a multiprocessor with
// 64 KiB in flight. Bound: HBM. Measured on an H200, 3 million tokens: 4.27 TB/s;
// without the hint of 128 bytes 3.5, with 256 3.85. An operand of several KiB for each
// team leaves the cache too small for the loads in flight (768 dimensions: 2.6 TB/s, shared
// by four teams 4.06).
#pragma once
#include "product.cuh"

namespace plaid {

// Where a round is: a chunk of 64·V bytes of 64 tokens.
struct Place {
  uint32_t pos, len, token, chunk;
};

// lay_operand writes count rows as the right operand of N columns: the shares of the lanes of a
// quad in 64 bytes, as two steps. For float32 it writes the first half of all words, and then the
// second.
template <int N, int kTimes, bool kHalves = false>
__device__ __forceinline__ void lay_operand(uint8_t *to_shared, const uint8_t *rows, uint32_t count, uint32_t operand_bytes, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < N * (operand_bytes / 64); i += blockDim.x) {
    const uint32_t n = i % N, x = i / N;
    const uint32_t word = kTimes == 2 ? x / 2 * 32 + x % 2 * 4 : x * 16;
    uint4 w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint32_t from = word + 4 * kTimes * k;
      w[k] = make_uint4(0, 0, 0, 0);
      if (n < count && from * 4 < bytes) w[k] = __ldg(reinterpret_cast<const uint4 *>(rows + uint64_t(n) * bytes) + from / 4);
    }
    uint4 *to = reinterpret_cast<uint4 *>(to_shared) + x * (4 * N) + n / 8 * 16 + n % 8;
    auto put = [&] {
      to[0] = make_uint4(w[0].x, w[1].x, w[2].x, w[3].x);
      to[8] = make_uint4(w[0].y, w[1].y, w[2].y, w[3].y);
      to[2 * N] = make_uint4(w[0].z, w[1].z, w[2].z, w[3].z);
      to[2 * N + 8] = make_uint4(w[0].w, w[1].w, w[2].w, w[3].w);
    };
    if constexpr (kHalves) {
      uint4 low[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        halve(w[k].x, w[k].x, low[k].x), halve(w[k].y, w[k].y, low[k].y);
        halve(w[k].z, w[k].z, low[k].z), halve(w[k].w, w[k].w, low[k].w);
      }
      put();
#pragma unroll
      for (int k = 0; k < 4; k++) w[k] = low[k];
      to += N * (operand_bytes / 16);
    }
    put();
  }
}

// By names that the compiler knows: it would reserve all barriers of a block else.
__device__ __forceinline__ void team_sync(uint32_t team) {
  switch (team) {
    case 0: asm volatile("bar.sync 1, 128;" ::: "memory"); break;
    case 1: asm volatile("bar.sync 2, 128;" ::: "memory"); break;
    case 2: asm volatile("bar.sync 3, 128;" ::: "memory"); break;
    case 3: asm volatile("bar.sync 4, 128;" ::: "memory"); break;
    default: asm volatile("bar.sync 5, 128;" ::: "memory");
  }
}

// A warpgroup, or team, does a unit; those of a block share the query operand, and so the group.
// A unit without items does nothing.
template <class T, int N, int V, bool kArg>
__device__ __forceinline__ void dense_rows(const DenseParams &p) {
  constexpr bool kSplitRow = T::kFormat == kSplit, kWiden = T::kFormat == kE4M3, kHalves = T::kFormat == kF32;
  static_assert(!kSplitRow || V % 2 == 0);
  constexpr int kSteps = kWiden ? 4 : 2;  // steps of 16 loaded bytes
  constexpr uint32_t kStep = N * 2;       // of the query operand, in units of 16 bytes
  constexpr int kCols = N / 4;            // columns of a lane
  using Sum = typename T::Sum;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t tid = threadIdx.x % 128, team = threadIdx.x / 128, warp = tid / 32, l = tid & 31, g = l >> 2, j = l & 3;
  wait_before();
  const DenseUnit unit = load_unit(p.units + blockIdx.x * (blockDim.x / 128) + team);
  const uint32_t first_row = p.groups[unit.group].row, count = p.groups[unit.group].count;
  const uint32_t chunks = p.row_bytes / (64 * V);

  // The cursor is one round ahead of the products.
  uint32_t index = unit.begin;
  DenseItem item = unit.first, after = load_item(p.items + min(index + 1, max(unit.end, 1) - 1));
  Place at{item.pos, item.len & kRows, 0, 0};
  bool more = unit.begin < unit.end;
  const uint8_t *row;
  uint32_t apart;  // of the lane's rows, in bytes
  float next0 = 1, next1 = 1;
  auto aim = [&] {
    const uint32_t r = at.token + warp * 16 + g, last = max(at.len, 1) - 1;
    const uint64_t i0 = item.begin + min(r, last);
    const uint32_t down = min(r + 8, last) - min(r, last);
    row = p.docs + i0 * p.row_bytes + j * 16;
    apart = down * p.row_bytes;
    if (p.doc_scale) next0 = load_scale(p.doc_scale + i0), next1 = load_scale(p.doc_scale + i0 + down);
    else next0 = next1 = 1;
    if (int32_t(item.len) <= 0) {  // a product with a scale that is NaN is never the largest
      if (!is_token(p, item, i0)) next0 = kNone;
      if (!is_token(p, item, i0 + down)) next1 = kNone;
    }
  };
  uint32_t raw[2 * V][4];
  auto load = [&] {
    if (!more) return;
    const uint8_t *below = row + apart;
#pragma unroll
    for (int v = 0; v < V; v++) load_row(raw[2 * v], row + v * 64), load_row(raw[2 * v + 1], below + v * 64);
  };
  auto advance = [&] {
    if (++at.chunk < chunks) {
      row += 64 * V;
      return;
    }
    at.chunk = 0, at.token += 64;
    if (at.token >= at.len) {
      more = ++index < unit.end;
      item = after;
      after = load_item(p.items + min(index + 1, unit.end - 1));
      at = Place{item.pos, item.len & kRows, 0, 0};
    }
    aim();
  };
  if (more) aim();
  load();

  constexpr int kTimes = kWiden ? 2 : 1;  // f16 rows are twice as long
  const uint32_t operand_bytes = p.row_bytes * kTimes;
  lay_operand<N, kTimes, kHalves>(shared, p.queries + uint64_t(first_row) * p.query_bytes, count, operand_bytes, p.query_bytes);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t operand = right(shared_at(shared), 128, 256);
  float *joint = reinterpret_cast<float *>(shared + (kHalves ? 2 : 1) * N * operand_bytes) + team * (kArg ? 16 : 8) * N;
  uint32_t *joint_arg = reinterpret_cast<uint32_t *>(joint + 8 * N);
  uint32_t turn = 0;
  float weight[N / 32];
#pragma unroll
  for (int i = 0; i < N / 32; i++) weight[i] = l + 32 * i < count ? p.weights[first_row + l + 32 * i] : 0.0f;

  float best[kCols];
  uint32_t first[kArg ? kCols : 1];
#pragma unroll
  for (int i = 0; i < kCols; i++) best[i] = -INFINITY;
  if constexpr (kArg)
#pragma unroll
    for (int i = 0; i < kCols; i++) first[i] = 0;

  auto finish = [&](uint32_t pos) {
#pragma unroll
    for (int i = 0; i < kCols; i++) {
#pragma unroll
      for (int s = 4; s < 32; s <<= 1) {
        const float v = __shfl_xor_sync(0xffffffffu, best[i], s);
        if constexpr (kArg) {
          const uint32_t f = __shfl_xor_sync(0xffffffffu, first[i], s);
          if (v > best[i] || (v == best[i] && f < first[i])) best[i] = v, first[i] = f;
        } else {
          best[i] = fmaxf(best[i], v);
        }
      }
    }
    if (g == 0) {
#pragma unroll
      for (int i = 0; i < kCols; i++) {
        const uint32_t to = (turn * 4 + warp) * N + (i >> 1) * 8 + j * 2 + (i & 1);
        joint[to] = best[i];
        if constexpr (kArg) joint_arg[to] = first[i];
      }
    }
    team_sync(team);
    if (warp == (turn ? 2 : 0)) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < N / 32; i++) {
        const uint32_t from = turn * 4 * N + l + 32 * i;
        float v = joint[from];
        if constexpr (kArg) {
          uint32_t f = joint_arg[from];
#pragma unroll
          for (int w = 1; w < 4; w++) {
            const float v2 = joint[from + w * N];
            const uint32_t f2 = joint_arg[from + w * N];
            if (v2 > v || (v2 == v && f2 < f)) v = v2, f = f2;
          }
          if (l + 32 * i < count) {
            const uint64_t to = p.groups[unit.group].arg + uint64_t(pos) * p.groups[unit.group].arg_pitch + l + 32 * i;
            p.arg[to] = counts(v) && is_query(weight[i]) ? int32_t(f) : -1;
            if (p.top) p.top[to] = v;
          }
        } else {
#pragma unroll
          for (int w = 1; w < 4; w++) v = fmaxf(v, joint[from + w * N]);
        }
        if (weight[i] != 0 && counts(v)) sum = fmaf(v, weight[i], sum);
      }
#pragma unroll
      for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
      if (l == 0) p.out[p.groups[unit.group].out + pos] = sum;
    }
    turn ^= 1;
#pragma unroll
    for (int i = 0; i < kCols; i++) best[i] = -INFINITY;
    if constexpr (kArg)
#pragma unroll
      for (int i = 0; i < kCols; i++) first[i] = 0;
  };

  Sum sums[N / 2];
  float s0 = 1, s1 = 1;
  for (bool going = more; going; going = more) {
    const Place here = at;
    if (here.chunk == 0) s0 = next0, s1 = next1;
    // The left operands; of split, hi and lo of 32 dimensions follow one another.
    constexpr int kAll = V * kSteps;
    uint32_t left[kAll][4];
#pragma unroll
    for (int i = 0; i < kAll; i++) {
      const int v = i / kSteps, s = i % kSteps;
      if constexpr (kWiden) {
        widen_e4m3(raw[2 * v][s], left[i][0], left[i][2]);
        widen_e4m3(raw[2 * v + 1][s], left[i][1], left[i][3]);
      } else {
        left[i][0] = raw[2 * v][2 * s], left[i][2] = raw[2 * v][2 * s + 1];
        left[i][1] = raw[2 * v + 1][2 * s], left[i][3] = raw[2 * v + 1][2 * s + 1];
      }
    }
    advance();
    load();
    const uint64_t b = operand + here.chunk * (kAll * kStep);
    const int add = here.chunk > 0;
    if constexpr (kHalves) {  // some steps at a time, whose halves are in registers
      constexpr int kSome = kAll == 4 ? 4 : kAll % 3 == 0 ? 3 : 2;
      const uint64_t lower = b + (operand_bytes >> 4) * N;
#pragma unroll
      for (int i0 = 0; i0 < kAll; i0 += kSome) {
        uint32_t lo[kSome][4];
#pragma unroll
        for (int i = 0; i < kSome; i++)
#pragma unroll
          for (int k = 0; k < 4; k++) halve(left[i0 + i][k], left[i0 + i][k], lo[i][k]);
        products_begin();
#pragma unroll
        for (int i = 0; i < kSome; i++) {
          product(T{}, Width<N>{}, sums, left[i0 + i], b + (i0 + i) * kStep, i0 + i > 0 || add);
          product(T{}, Width<N>{}, sums, left[i0 + i], lower + (i0 + i) * kStep, 1);
          product(T{}, Width<N>{}, sums, lo[i], b + (i0 + i) * kStep, 1);
        }
        products_end();
#pragma unroll
        for (int i = 0; i < N / 2; i++) settle(sums[i]);
      }
    } else {
      products_begin();
#pragma unroll
      for (int i = 0; i < kAll; i++) {
        if constexpr (kSplitRow) {
          if (i & 2) continue;
          product(T{}, Width<N>{}, sums, left[i], b + i * kStep, i > 0 || add);
          product(T{}, Width<N>{}, sums, left[i], b + (i + 2) * kStep, 1);
          product(T{}, Width<N>{}, sums, left[i + 2], b + i * kStep, 1);
        } else {
          product(T{}, Width<N>{}, sums, left[i], b + i * kStep, i > 0 || add);
        }
      }
      products_end();
#pragma unroll
      for (int i = 0; i < N / 2; i++) settle(sums[i]);
    }
    if (here.chunk + 1 < chunks) continue;
    const uint32_t token = here.token + warp * 16 + g;
#pragma unroll
    for (int i = 0; i < kCols; i++) {
      const float v0 = float(sums[i / 2 * 4 + (i & 1)]) * s0, v1 = float(sums[i / 2 * 4 + 2 + (i & 1)]) * s1;
      if constexpr (kArg) {
        if (v0 > best[i]) best[i] = v0, first[i] = token;
        if (v1 > best[i]) best[i] = v1, first[i] = token + 8;
      } else {
        best[i] = fmaxf(best[i], fmaxf(v0, v1));
      }
    }
    if (here.token + 64 >= here.len) finish(here.pos);
  }
}

// TEAMS: warpgroups of a multiprocessor, by which registers are bound.
#define PLAID_DENSE_ROWS(NAME, T, N, V, TEAMS)                                                                                      \
  extern "C" __global__ void __launch_bounds__(128 * (TEAMS), 1) dense_rows_##NAME##_n##N##_v##V(const __grid_constant__ DenseParams p) { \
    dense_rows<T, N, V, false>(p);                                                                                                 \
  }                                                                                                                                \
  extern "C" __global__ void __launch_bounds__(128 * (TEAMS - 1), 1) dense_rows_##NAME##_n##N##_v##V##_arg(const __grid_constant__ DenseParams p) { \
    dense_rows<T, N, V, true>(p);                                                                                                  \
  }

}  // namespace plaid
