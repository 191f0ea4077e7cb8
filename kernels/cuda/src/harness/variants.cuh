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

// gather copies random rows of 64 bytes to shared memory, as a scan does with those of S.
__global__ void __launch_bounds__(128) gather(const char *s, uint32_t rows, uint32_t rounds) {
  extern __shared__ __align__(1024) char ring[];
  const uint32_t l = threadIdx.x & 31, warp = blockIdx.x * 4 + threadIdx.x / 32;
  const uint32_t to = uint32_t(__cvta_generic_to_shared(ring)) + threadIdx.x / 32 * 2048 + l * 16;
  for (uint32_t i = 0; i < rounds; i++) {
    for (uint32_t k = 0; k < 2; k++)
      copy_async<16>(to + (i & 1) * 1024 + k * 512, s + size_t(mix(warp * 977 + i * 16 + k * 8 + l / 4) % rows) * 64 + l % 4 * 16);
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;" ::: "memory");
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}
inline void gathered(uint32_t rows) {
  Buf<char> s(size_t(rows) * 64);
  const uint32_t rounds = 4000, warps = sms() * 8 * 4;
  const double ms = median_ms([&] { gather<<<sms() * 8, 128, 8192>>>(s.p, rows, rounds); }, 7);
  std::printf("random rows of 64 bytes of %.1f MB: %.2f TB/s\n", s.n / 1e6, double(warps) * rounds * 1024 / ms / 1e9);
}

// side_by_side times scans that share the decoding of tokens, and scans that do not.
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
