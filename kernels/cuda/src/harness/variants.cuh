// variants.cuh: the headline scan with other occupancies, and of several queries side by side.
#pragma once
#include "bench.cuh"

template <int kBlocks> __global__ void __launch_bounds__(128, kBlocks) variant(const __grid_constant__ ScanParams p) {
  scan_fp8<2, 2, false>(p);
}

inline void variants(Bench &b) {
  auto show = [&](const char *name, Scan k) {
    const size_t smem = scan_smem(34, 2, b.fs, false);
    const int blocks = blocks_for(k, smem, b.tiles);
    auto sp = b.params();
    const double ms = median_ms([&] { k<<<blocks, 128, smem>>>(sp); }, 11);
    std::printf("  %-30s %8.4f ms %6.1f G tokens/s (%d blocks)\n", name, ms, b.tokens / ms / 1e6, blocks / sms());
  };
  show("bound 5", variant<5>);
  show("bound 6", variant<6>);
  show("bound 7", variant<7>);
  show("bound 8", variant<8>);
}

// side_by_side times what shares the decoding of tokens beside what does not.
inline void side_by_side(uint32_t docs, int lo, int hi, uint32_t k, int queries, int runs) {
  Bench b(2, 128, k, docs, lo, hi, queries);
  std::printf("%d queries, %.1f M tokens, K %u\n", queries, b.tokens / 1e6, k);
  struct V { Scan kern; int side, threads; };
  for (V v : {V{scan_f2_w2, 1, 128}, {scan_f2_w2_x2, 2, 128}, {scan_f2_w2_x4, 4, 512}}) {
    b.centroids(nullptr, v.side);
    const size_t smem = 4 * b.fs * v.side + v.threads / 32 * (v.side == 1 ? kRingBytes<2> : v.side == 2 ? kRingBytes<2, 2> : kRingBytes<2, 4>);
    const int blocks = blocks_for(v.kern, smem, b.tiles, v.threads), sets = (queries + v.side - 1) / v.side;
    auto sp = b.params();
    const double ms = median_ms([&] { v.kern<<<dim3(blocks, sets), v.threads, smem>>>(sp); }, runs);
    std::printf("  %d side by side %9.4f ms %7.1f G tokens/s, of all queries\n", v.side, ms, b.tokens * double(queries) / ms / 1e6);
  }
}
