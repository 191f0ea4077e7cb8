// main.cu: harness check | bench | all. Checks first: a failed one ends it.
//   nvcc -std=c++17 -O3 -DPLAID_SM90A -gencode=arch=compute_90a,code=sm_90a -o harness main.cu
#include <array>
#include <cstring>
#include "bench.cuh"
#include "check.cuh"
#include "variants.cuh"

static int checks() {
  int bad = 0;
  std::printf("bits dim K Lq table scales | scan worst rms (bound) | list | fine | approx\n");
  const int dims[] = {128, 64, 96, 256, 1, 33, 1024, 48, 384};
  int seed = 0;
  for (int nbits : {1, 2, 4, 8})
    for (int table = 0; table < 2; table++)
      for (int i = 0; i < 9; i++) {
        seed++;
        Case c{nbits, dims[i], i % 2 ? 3000 : 700, (int[]){32, 8, 64, 33, 1}[seed % 5], 120, 150, bool(table), seed % 4 == 3, seed % 5 == 4, seed};
        if (i == 0) c.lq = 32, c.docs = 600, c.k = 4096;
        const Worst w = check(c);
        if (!table && has_fp8(nbits, lane_words(c.dim, nbits))) {
          c.fp8 = true;
          const Worst f = check(c);
          const bool ok = f.ok && (f.scan < 4e-3 * (c.lq > 32 ? 1.5 : 1) || c.dim < 48) && f.scan <= f.bound && f.list <= f.scan * 1.01 + 1e-6;
          std::printf("%d %4d %4d %2d fp8  | %.1e %.1e (%.1e) | %.1e %s\n", nbits, c.dim, c.k, c.lq, f.scan, f.scan_rms, f.bound, f.list, ok ? "" : "BAD");
          bad += !ok;
        }
        const bool ok = w.ok && (w.scan < 3e-3 * (c.lq > 32 ? 1.5 : 1) || c.dim < 48) && w.scan <= w.bound && w.list <= w.scan * 1.01 + 1e-6 && w.fine < 2e-5 && (w.approx < 4e-3 || c.dim < 48);
        std::printf("%d %4d %4d %2d %d %d%d | %.1e %.1e (%.1e) | %.1e | %.1e | %.1e %s\n", nbits, c.dim, c.k, c.lq, table, c.dim_scale, c.centroid_scale, w.scan, w.scan_rms, w.bound, w.list, w.fine, w.approx, ok ? "" : "BAD");
        bad += !ok;
      }
  for (uint32_t n : {1u, 100u, 8192u, 8193u, 300000u})
    for (uint32_t k : {1u, 10u, 100u, 1000u, 4096u})
      for (int ties : {0, 3, 1000})
        if (!check_topk(n, k, ties, n + k)) bad++, std::printf("topk %u %u %d BAD\n", n, k, ties);
  for (auto t : {std::array<uint32_t, 3>{1000, 5000, 128}, {777, 1000, 64}, {130, 33, 96}, {5, 1, 7}, {300, 700, 200}, {256, 4096, 128}})
    if (int b = check_nearest(t[0], t[1], t[2], 5)) bad++, std::printf("nearest %u %u %u: %d wrong BAD\n", t[0], t[1], t[2], b);
  std::printf("%d bad\n", bad);
  return bad;
}

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
    auto sp = i.params();
    row("approx, all", i, median_ms([&] { approx<<<blocks_for(approx, 0, i.tiles), 128>>>(sp); }));
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
      topk_first<<<dim3(g, 1), 1024>>>({b.scores.p, nullptr, nullptr, nullptr, nullptr, x.p, b.docs, b.docs, k, 0});
      uint64_t *from = x.p, *to = y.p;
      for (uint32_t m = g * k;; m = g * k) {
        g = (m + 8191) / 8192;
        topk_next<<<dim3(g, 1), 1024>>>({from, to, ids.p, os.p, nullptr, m, k});
        if (g == 1) break;
        std::swap(from, to);
      }
    }));
    // Fine scores of what came out.
    Buf<uint32_t> best(size_t(k) * 32);
    std::vector<float> wt(4);
    for (int i = 0; i < 4; i++) wt[i] = b.step * (i - 1.5f);
    Buf<float> dwt(wt), fsc(k);
    FineParams fp{b.words.p, b.rows.p, b.first.p, b.cent.p, dwt.p, nullptr, nullptr, b.q.p, b.qw.p, nullptr, ids.p, best.p, fsc.p, 1.0f, 1.0f, k, 128, 2, b.w, 1, 0};
    std::printf("fine %u: %.4f ms", k, median_ms([&] { cudaMemsetAsync(best.p, 0, best.n * 4); fine<<<dim3(k, 1, 1), 128>>>(fp); fine_sum<<<(k + 7) / 8, 256>>>(fp); }));
    b.scan(nullptr, false, kScanThreads, 1);
    auto i0 = ids.host();
    auto f = fsc.host(), s = b.scores.host();
    double worst = 0, sq = 0;
    for (uint32_t i = 0; i < k; i++) { const double e = std::fabs(f[i] - s[i0[i]]); worst = std::max(worst, e), sq += e * e; }
    std::printf(", scan differs worst %.2e rms %.2e\n", worst, std::sqrt(sq / k));
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

int main(int argc, char **argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  int bad = 0;
  if (what == "check" || what == "all") bad = checks();
  if (what != "check") headline(), std::fflush(stdout), nearest_bench(), std::fflush(stdout), shapes();
  return bad != 0;
}
