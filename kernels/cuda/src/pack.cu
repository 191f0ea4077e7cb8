// pack.cu: stored arrays to the resident layout of plaid.cuh. One warp a tile.
// Bound: bytes moved; runs once.
#include "plaid.cuh"

namespace plaid {

extern "C" __global__ void __launch_bounds__(256) pack(const __grid_constant__ PackParams p) {
  const uint32_t i = blockIdx.x * 8 + threadIdx.x / 32, l = threadIdx.x & 31;
  if (i >= p.tiles) return;
  const uint32_t tile = p.first_tile[0] + i;
  uint32_t lo = 0, hi = p.docs;  // first_tile[lo] <= tile < first_tile[hi]
  while (hi - lo > 1) {
    const uint32_t m = lo + (hi - lo) / 2;
    if (p.first_tile[m] <= tile) lo = m; else hi = m;
  }
  const uint32_t begin = p.offsets[lo], end = p.offsets[lo + 1];
  const uint32_t at = begin + (tile - p.first_tile[lo]) * kTile;
  if (l == 0) p.tile_doc[tile] = (p.doc_base + lo) | (at + kTile >= end ? 0x80000000u : 0);
  if (l < kTile) {
    const uint32_t t = min(at + l, end - 1);
    const uint32_t code = p.code_bytes == 2 ? reinterpret_cast<const uint16_t *>(p.codes)[t] : reinterpret_cast<const uint32_t *>(p.codes)[t];
    float n = float(p.factors[t]) * (1.0f / 32767);
    float most = fabsf(n);
    if (p.centroid_scale) n *= p.centroid_scale[code];
    if (p.code_bytes == 2) reinterpret_cast<uint16_t *>(p.code_list)[size_t(tile) * kTile + l] = uint16_t(code);
    else reinterpret_cast<uint32_t *>(p.code_list)[size_t(tile) * kTile + l] = code;
    p.words[size_t(tile) * kTile + l] = make_uint2(code * 64, __float_as_uint(n));
    if (!p.plain_max) most = fabsf(n);
    for (int s = 8; s; s >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffu, most, s));
    if (l == 0) atomicMax(&p.doc_max[p.doc_base + lo], __float_as_uint(most));
  }
  const uint32_t words = 4 * p.lane_words;
  uint32_t *out = p.rows + size_t(tile) * kTile * words;
  for (uint32_t w = l; w < kTile * words; w += 32) {
    const uint32_t t = min(at + w / words, end - 1), b0 = w % words * 4;
    const uint8_t *row = p.residuals + size_t(t) * p.row_bytes;
    uint32_t v = 0;
    for (uint32_t b = 0; b < 4; b++)
      if (b0 + b < p.row_bytes) v |= uint32_t(row[b0 + b]) << (8 * b);
    out[w] = v;
  }
}

}  // namespace plaid
