// variants.cuh: the headline scan with other occupancies.
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
