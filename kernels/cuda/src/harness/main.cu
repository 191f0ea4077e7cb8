// main.cu: times of single kernels. The tests of package compressed check them.
//   nvcc -std=c++17 -O3 -DPLAID_SM90A -gencode=arch=compute_90a,code=sm_90a -o harness main.cu
#include <array>
#include <cstring>
#include "bench.cuh"
#include "variants.cuh"

static void row(const char *name, const Bench &b, double ms) {
  std::printf("%-44s %9.4f ms %7.1f G tokens/s\n", name, ms, b.tokens * double(b.groups) / ms / 1e6);
}

static void shapes() {
  {
    Buf<char> a(size_t(2) << 30), b(size_t(2) << 30);
    const double ms = median_ms([&] { cudaMemcpyAsync(a.p, b.p, a.n, cudaMemcpyDeviceToDevice); }, 7);
    std::printf("copy: %.2f TB/s\n", 2.0 * a.n / ms / 1e9);
  }
  struct S { const char *name; uint32_t docs; int lo, hi; uint32_t k; };
  for (S s : {S{"1,024 x 100-200", 1024, 100, 200, 32768}, {"1,024 x 256-512", 1024, 256, 512, 32768}, {"1,024 x 512-1,024", 1024, 512, 1024, 32768},
              {"1,024 x 2,048-4,096", 1024, 2048, 4096, 32768}, {"2,048 x 256-512", 2048, 256, 512, 32768}, {"25,000 x 150-300", 25000, 150, 300, 32768}}) {
    Bench b(2, 128, s.k, s.docs, s.lo, s.hi, 1);
    row(s.name, b, b.scan());
    row("  cold L2", b, b.scan(nullptr, true));
  }
  struct D { int nbits, dim; bool table; };
  for (D d : {D{1, 128, false}, {4, 128, false}, {8, 128, false}, {2, 64, false}, {2, 96, false}, {2, 256, false}, {4, 96, false}, {2, 128, true}, {4, 128, true}}) {
    Bench b(d.nbits, d.dim, 65536, 250000, 40, 120, 1, d.table);
    char name[64];
    std::snprintf(name, sizeof name, "%d bits d %d%s, 20 M tokens", d.nbits, d.dim, d.table ? " table" : "");
    row(name, b, b.scan(nullptr, false, kScanThreads, 11));
  }
  {
    Bench b(2, 128, 4096, 5183, 100, 360, 300);
    row("SciFact-like: 300 queries", b, b.scan(nullptr, false, kScanThreads, 5));
  }
}

static void headline() {
  Bench b(2, 128, 65536, 1000000, 40, 120, 1);
  row("1 M x 40-120, K 65,536", b, b.scan());
  {
    Bench i(2, 128, 65536, 1000000, 40, 120, 1, false, false);
    row("  the same, scan_b2_w2", i, i.scan());
  }
  variants(b);
  std::printf("prep_query %.4f ms\n", median_ms([&] { b.prep(); }));
  std::printf("centroid_scores %.4f ms\n", median_ms([&] { b.centroids(); }));
  Buf<float> sf(size_t(b.k) * 32);
  std::printf("  with float columns %.4f ms\n", median_ms([&] { b.centroids(sf.p); }));
  for (uint32_t k : {100u, 1000u, 4096u}) {
    uint32_t g = (b.docs + 8191) / 8192;
    Buf<uint64_t> x(size_t(g) * k), y(size_t(g) * k);
    Buf<uint32_t> ids(k);
    Buf<float> os(k);
    std::printf("topk %u of %u: %.4f ms\n", k, b.docs, median_ms([&] {
      uint32_t g = (b.docs + 8191) / 8192;
      TopkFirstParams first{};
      first.scores = b.scores.p, first.keys = x.p, first.stride = first.n = b.docs, first.k = k;
      topk_first<<<dim3(g, 1), 1024>>>(first);
      uint64_t *from = x.p, *to = y.p;
      for (uint32_t m = g * k;; m = g * k) {
        g = (m + 8191) / 8192;
        topk_next<<<dim3(g, 1), 1024>>>({from, to, ids.p, os.p, nullptr, m, k});
        if (g == 1) break;
        std::swap(from, to);
      }
    }));
  }
  for (uint32_t n : {4096u, 65536u}) {
    std::mt19937 rng(3);
    std::vector<uint32_t> list(n);
    uint64_t tok = 0;
    for (auto &v : list) v = rng() % b.docs, tok += (b.hfirst[v + 1] - b.hfirst[v]) * 16;
    Buf<uint32_t> dl(list), pf(n), pe(n), total(1);
    Buf<uint2> walk(tok / 16 + 4);
    ListParams lp{dl.p, nullptr, b.first.p, walk.p, pf.p, pe.p, total.p, n, uint32_t(tok / 16)};
    auto sl = b.params();
    sl.walk = walk.p, sl.n_tiles_dev = total.p, sl.doc_first = pf.p, sl.doc_end = pe.p;
    const size_t smem = scan_smem(34, 2, b.fs, false);
    const int blocks = blocks_for(scan_f2_w2_list, smem, uint32_t(tok / 16));
    auto f = [&] { cudaMemsetAsync(total.p, 0, 4); list_tiles<<<(n + 255) / 256, 256>>>(lp); scan_f2_w2_list<<<blocks, 128, smem>>>(sl); };
    std::printf("list of %u documents: %.4f ms, cold %.4f\n", n, median_ms(f), median_ms(f, 21, true));
  }
}

static void nearest_bench() {
  const uint32_t n = 128 * 132 * 4, k = 65536, dim = 128;
  Buf<float> x(size_t(n) * dim), c(size_t(k) * dim), xn(n), xe(n), cn(k), ce(k), sc(n);
  std::mt19937 rng(1);
  std::normal_distribution<float> gauss;
  for (auto *v : {&x, &c}) {
    std::vector<float> h(v->n);
    for (auto &e : h) e = gauss(rng) * 0.0883883f;
    CK(cudaMemcpy(v->p, h.data(), h.size() * 4, cudaMemcpyHostToDevice));
  }
  Buf<__half> xh(x.n), ch(c.n);
  to_half<<<n / 8, 256>>>({x.p, xh.p, xn.p, xe.p, n, n, dim, 128});
  to_half<<<k / 8, 256>>>({c.p, ch.p, cn.p, ce.p, k, k, dim, 128});
  Buf<uint4> slots(size_t(n) * 16);
  Buf<uint32_t> codes(n);
  NearestParams p{xh.p, ch.p, x.p, c.p, xn.p, xe.p, slots.p, codes.p, sc.p, 1.4f, 1e-7f, n, k, dim, 128};
  CK(cudaFuncSetAttribute(nearest128, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  const double a = median_ms([&] { nearest128<<<n / 128, 256, 65536>>>(p); }, 11), b = median_ms([&] { nearest_exact<<<n / 8, 256>>>(p); }, 11);
  const double flop = 2.0 * n * k * dim;
  std::printf("nearest128: %u rows, K %u: %.3f ms %.0f TFLOP/s; exact %.3f ms; together %.0f TFLOP/s\n", n, k, a, flop / a / 1e9, b, flop / (a + b) / 1e9);
}

int main() {
  headline(), std::fflush(stdout), nearest_bench(), std::fflush(stdout), shapes(), std::fflush(stdout);
  gathered(65536);
  side_by_side(5183, 150, 310, 16384, 32, 11);
  side_by_side(625000, 40, 120, 65536, 8, 7);
  side_by_side(1000000, 40, 120, 65536, 8, 7);
  side_by_side(7500000, 40, 120, 65536, 8, 3);
}
