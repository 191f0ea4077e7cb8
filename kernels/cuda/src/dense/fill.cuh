// fill.cuh: the tables of units, if only the device knows how many tokens there are. Bound: the
// launch, except for masks, which are read a little more than once.
#pragma once
#include "dense.cuh"

namespace plaid {

// What an item has of the rows that there are. len is the most that it may have.
__device__ __forceinline__ void fill_span(const int32_t *offsets, int64_t item, uint32_t rows, int64_t &begin, int64_t &len) {
  begin = min(uint32_t(offsets[item]), rows);
  len = min(len, int64_t(min(uint32_t(offsets[item + 1]), rows)) - begin);
}

// An item, made by a warp. If the tokens of a mask are the first rows, the item has only these
// rows and no holes.
__device__ __forceinline__ DenseItem fill_item(const DenseFillParams &p, uint32_t e) {
  const uint32_t l = threadIdx.x & 31, seg = e % p.segments;
  int64_t doc = e / p.segments;
  DenseItem item{0, 0, e};
  if (p.pair_d) {
    const int32_t query = p.pair_q[doc];
    doc = p.pair_d[doc];
    if (doc < 0 || doc >= p.d_items || query < 0 || uint32_t(query) >= p.q_items) return item;
  }
  int64_t begin = doc * int64_t(p.d_stride), len = p.d_longest;
  if (p.d_offsets) fill_span(p.d_offsets, doc, p.d_rows, begin, len);
  else if (p.d_lengths) len = min(len, int64_t(p.d_lengths[doc]));
  const int64_t from = int64_t(seg) * p.segment;
  begin += from, len = min(len - from, int64_t(p.segment));
  if (len <= 0) return item;
  uint32_t holes = 0;
  if (p.d_mask) {
    const uint8_t *mask = p.d_mask + doc * int64_t(p.d_mask_stride) + from;
    uint32_t last = 0, count = 0;
#pragma unroll 8
    for (uint32_t t = l; t < len; t += 32)
      if (mask[t]) last = t + 1, count++;
    last = __reduce_max_sync(0xffffffffu, last), count = __reduce_add_sync(0xffffffffu, count);
    if (last == 0) return item;
    holes = count < last ? kHoles : 0;
    if (holes && p.row_mask)
      for (uint32_t t = l; t < last; t += 32) p.row_mask[begin + t] = mask[t];
    len = last;
  }
  item.begin = uint64_t(begin), item.len = uint32_t(len) | holes;
  return item;
}

// The first item of a run, by a warp, which asks at 32 places at a time.
__device__ __forceinline__ uint32_t fill_bound(const DenseFillParams &p, uint32_t run) {
  if (run == p.runs) return p.n_items;
  const int64_t first = p.d_offsets[0], want = first + (int64_t(p.d_offsets[p.n_items]) - first) * run / p.runs;
  uint32_t lo = 0, hi = p.n_items;  // the items before lo begin below want, that of hi does not
  while (lo < hi) {
    const uint32_t step = (hi - lo + 31) / 32, at = lo + (threadIdx.x & 31) * step;
    const uint32_t below = __popc(__ballot_sync(0xffffffffu, at < hi && p.d_offsets[at] < want));
    if (below == 0) return lo;
    hi = min(hi, lo + below * step);
    lo += (below - 1) * step + 1;
  }
  return lo;
}

// The rows of a query. A pair that names none has as many as others, which meet no document.
__device__ __forceinline__ void fill_query(const DenseFillParams &p, uint32_t pair, uint32_t query, int64_t &row, int64_t &len) {
  row = 0, len = 0;
  if (p.pair_q) {
    query = uint32_t(p.pair_q[pair]);
    if (query >= p.q_items) {
      if (!p.q_offsets) len = p.q_longest;
      return;
    }
  }
  row = int64_t(query) * int64_t(p.q_stride), len = p.q_longest;
  if (p.q_offsets) fill_span(p.q_offsets, query, p.q_rows, row, len);
}

extern "C" __global__ void __launch_bounds__(256) dense_fill(const __grid_constant__ DenseFillParams p) {
  let_next();
  const uint64_t thread = uint64_t(blockIdx.x) * 256 + threadIdx.x;
  const uint32_t l = threadIdx.x & 31;
  uint32_t w = uint32_t(thread / 32);
  if (w < p.n_items) {
    const DenseItem item = fill_item(p, w);
    if (l == 0) p.items[w] = item;
  } else if (w -= p.n_items; w < p.n_units) {
    DenseUnit unit{};
    if (p.units_in) {
      unit = p.units_in[w];
      if (p.runs && unit.begin < unit.end) unit.begin = fill_bound(p, unit.begin), unit.end = fill_bound(p, unit.end);
    } else {
      const uint32_t blocks = (p.per_query + p.unit_groups - 1) / p.unit_groups, b = w % blocks;
      unit.begin = w / blocks, unit.end = unit.begin + 1;
      unit.group = unit.begin / p.segments * p.per_query + b * p.unit_groups;
      unit.groups = min(p.unit_groups, p.per_query - b * p.unit_groups);
    }
    if (unit.begin < unit.end) unit.first = fill_item(p, unit.begin);
    if (l == 0) p.units[w] = unit;
  }
  if (thread >= uint64_t(p.n_groups) + p.n_joins) return;
  const uint32_t i = uint32_t(thread);
  int64_t row, len;
  if (i < p.n_groups) {
    const uint32_t owner = i / p.per_query, part = i % p.per_query;
    fill_query(p, owner, owner, row, len);
    DenseGroup group{};
    if (p.groups_in) group = p.groups_in[i];
    else group.out = uint64_t(part) * p.n_items, group.arg = uint64_t(part) * p.tokens, group.arg_pitch = p.arg_pitch;
    const int64_t from = int64_t(part) * p.tokens, count = min(len - from, int64_t(p.tokens));
    group.row = count > 0 ? uint32_t(row + from) : 0, group.count = count > 0 ? uint32_t(count) : 0;
    p.groups[i] = group;
  } else {
    const uint32_t j = i - p.n_groups;
    fill_query(p, j, j / p.join_docs, row, len);
    p.joins[j] = DenseJoin{uint64_t(j) * p.segments, uint64_t(j / p.join_docs) * p.join_pitch + j % p.join_docs, p.segments, uint32_t(row), uint32_t(max(len, int64_t(0))), 0};
  }
  wait_before();
}

}  // namespace plaid
