// encoder_models.cuh: times of whole models with random weights, and of their kernels.
#pragma once
#include "encoder_checks.cuh"

struct Sizes {
  const char *name;
  uint32_t hidden, heads, inter, layers;
  bool modern;
  double goal;  // M tokens/s
};

struct Texts {
  std::vector<uint32_t> ids, at;
  std::vector<EncoderSpan> spans;
  uint32_t rows = 0;
  explicit Texts(std::vector<uint32_t> lengths) {
    for (uint32_t n : lengths) {
      for (uint32_t i = 0; i < (n + 63) / 64; i++) spans.push_back({rows, n, n, i});
      for (uint32_t i = 0; i < n; i++) ids.push_back(rng() % 30000), at.push_back(i);
      rows += n;
    }
  }
};

// Lengths like those of SciFact's texts, cut at 300 tokens: 268 on average.
inline std::vector<uint32_t> lengths_of(uint32_t tokens) {
  std::vector<uint32_t> v;
  for (uint32_t sum = 0; sum < tokens; sum += v.back()) {
    const int n = int(std::normal_distribution<double>(300, 70)(rng));
    v.push_back(std::min<uint32_t>(std::clamp(n, 40, 300), tokens - sum));
  }
  std::sort(v.rbegin(), v.rend());
  return v;
}

inline Buf<__half> random_half(size_t n, float s) {
  static std::vector<__half> pool = [] { std::vector<__half> p(1 << 20); for (auto &x : p) x = __float2half(gauss()); return p; }();
  std::vector<__half> v(n);
  for (size_t i = 0; i < n; i++) v[i] = __float2half(__half2float(pool[(i + i / pool.size() * 7919) % pool.size()]) * s);
  return Buf<__half>(v);
}

struct Model {
  Sizes s;
  struct Layer { Buf<__half> qkv, o, up, down; };
  std::vector<Layer> layers;
  Buf<__half> words, places, head;
  Buf<float> gamma, bias, angles;
  Model(Sizes z) : s(z) {
    const uint32_t h = s.hidden, f = s.inter * (s.modern ? 2 : 1);
    const float e = 1 / std::sqrt(float(h));
    for (uint32_t i = 0; i < s.layers; i++)
      layers.push_back({random_half(size_t(3) * h * h, e), random_half(size_t(h) * h, e), random_half(size_t(f) * h, e), random_half(size_t(h) * s.inter, 1 / std::sqrt(float(s.inter)))});
    words = random_half(size_t(30000) * h, 0.05f), places = random_half(size_t(512) * h, 0.05f), head = random_half(size_t(128) * h, e);
    gamma = Buf<float>(std::vector<float>(h, 1)), bias = Buf<float>(std::vector<float>(4 * h + f, 0.01f)), angles = Buf<float>(std::vector<float>(512 * 64, 0.7f));
  }
};

// Which of the variants a product takes: by its n, for a size of batch.
struct Choice { int qkv, o, up, down; };

struct Pass {
  const Model &m;
  const Texts &t;
  Choice pick;
  bool early;
  Device x, qkv, ctx, wide, delta;
  Buf<float> stream, out;
  Buf<uint16_t> vectors;
  Buf<uint32_t> ids, at, bad;
  Buf<EncoderSpan> spans;
  Pass(const Model &m_, const Texts &t_, Choice c, bool e)
      : m(m_), t(t_), pick(c), early(e), x(t.rows, m.s.hidden), qkv(t.rows, 3 * m.s.hidden), ctx(t.rows, m.s.hidden), wide(t.rows, m.s.inter),
        delta(t.rows, m.s.hidden), stream(m.s.modern ? size_t(t.rows) * m.s.hidden : 1), out(size_t(up(t.rows, 128)) * 128), vectors(size_t(t.rows) * 128),
        ids(t.ids), at(t.at), bad(1, 0xff), spans(t.spans) {}

  static uint8_t *b(const Buf<__half> &v) { return reinterpret_cast<uint8_t *>(v.p); }
  void product(int e, int pick, uint8_t *a, const Buf<__half> &w, uint8_t *o, uint32_t n, uint32_t k, cudaStream_t st) {
    EncoderGemmParams p{a, b(w), m.bias.p, o, at.p, m.angles.p, t.rows, n, k, 2 * m.s.hidden, 0, {}};
    std::copy(curves[0].numbers, curves[0].numbers + 7, p.curve);
    launch_gemm(variants_of(e)[pick], p, early, st);
  }
  void attention(uint32_t window, cudaStream_t st) {
    const uint32_t d = m.s.hidden / m.s.heads, reach = window ? window : 1 << 30;
    launch(d == 32 ? encoder_attention_d32 : encoder_attention_d64, dim3(t.spans.size(), m.s.heads), 128, 0,
           EncoderAttentionParams{qkv.p(), ctx.p(), spans.p, nullptr, float(1 / std::sqrt(double(d))), 3 * m.s.hidden, m.s.hidden, m.s.hidden, m.s.hidden, 1, reach, reach, 0, 0},
           early, st);
  }
  void norm(cudaStream_t st) {
    launch(encoder_norm, dim3(std::min<uint32_t>((t.rows + 7) / 8, 2 * sms())), 256, 0,
           EncoderNormParams{delta.p(), x.p(), m.s.modern ? stream.p : nullptr, m.gamma.p, nullptr, nullptr, nullptr, 1e-5f, 0, t.rows, m.s.hidden, m.s.hidden, 0, 0, 0}, early, st);
  }
  void run(cudaStream_t st) {
    const Sizes &s = m.s;
    const uint32_t h = s.hidden, rows8 = (t.rows + 7) / 8;
    launch(encoder_embed, dim3(rows8), 256, 0,
           EncoderEmbedParams{ids.p, at.p, reinterpret_cast<uint16_t *>(m.words.p), s.modern ? nullptr : reinterpret_cast<uint16_t *>(m.places.p), m.gamma.p, nullptr,
                              x.p(), s.modern ? stream.p : nullptr, 1e-12f, t.rows, h, h, 0, 0}, false, st);
    for (uint32_t i = 0; i < s.layers; i++) {
      const auto &l = m.layers[i];
      product(s.modern ? kRotary : kBias, pick.qkv, x.p(), l.qkv, qkv.p(), 3 * h, h, st);
      attention(s.modern && i % 3 ? 64 : 0, st);
      product(kBias, pick.o, ctx.p(), l.o, delta.p(), h, h, st);
      norm(st);
      product(s.modern ? kGeglu : kGelu, pick.up, x.p(), l.up, wide.p(), s.modern ? 2 * s.inter : s.inter, h, st);
      product(kBias, pick.down, wide.p(), l.down, delta.p(), h, s.inter, st);
      norm(st);
    }
    const bool small = t.rows <= 512;
    const uint32_t stages = small ? h / 64 : 3;
    launch(small ? encoder_head_m16 : encoder_head_m128, small ? dim3(8, (t.rows + 15) / 16) : dim3(2, (t.rows + 127) / 128), 128, small ? 4096 * stages : 73728,
           EncoderHeadParams{x.p(), b(m.head), nullptr, nullptr, nullptr, out.p, nullptr, t.rows, 128, h, 0, stages, 0}, early, st);
    launch(encoder_unit, dim3(rows8), 256, 0, EncoderUnitParams{out.p, nullptr, nullptr, nullptr, vectors.p, bad.p, t.rows, 128, 128, 0}, early, st);
  }
};

// Median ms of a graph of the pass.
inline double graph_ms(Pass &p, bool copies, int runs = 21) {
  cudaStream_t st;
  CK(cudaStreamCreate(&st));
  p.run(st);
  CK(cudaStreamSynchronize(st));
  uint32_t *pinned;
  CK(cudaMallocHost(&pinned, size_t(p.t.rows) * 260));
  cudaGraph_t g;
  cudaGraphExec_t e;
  CK(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
  if (copies) CK(cudaMemcpyAsync(p.ids.p, pinned, 4 * p.t.rows, cudaMemcpyHostToDevice, st));
  p.run(st);
  if (copies) CK(cudaMemcpyAsync(pinned + p.t.rows, p.vectors.p, 256 * p.t.rows, cudaMemcpyDeviceToHost, st));
  CK(cudaStreamEndCapture(st, &g));
  CK(cudaGraphInstantiate(&e, g, 0));
  for (uint32_t i = 0; i < p.t.rows; i++) pinned[i] = rng() % 30000;
  std::vector<double> ms;
  cudaEvent_t a, b;
  CK(cudaEventCreate(&a));
  CK(cudaEventCreate(&b));
  for (int i = 0; i < runs + 3; i++) {
    CK(cudaEventRecord(a, st));
    CK(cudaGraphLaunch(e, st));
    CK(cudaEventRecord(b, st));
    CK(cudaEventSynchronize(b));
    float v;
    CK(cudaEventElapsedTime(&v, a, b));
    if (i >= 3) ms.push_back(v);
  }
  CK(cudaGetLastError());
  cudaGraphExecDestroy(e), cudaGraphDestroy(g), cudaStreamDestroy(st), cudaFreeHost(pinned), cudaEventDestroy(a), cudaEventDestroy(b);
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

// Times every variant of every product, each with the next layer's weights, and picks the fastest.
inline Choice choose(Pass &p, bool print) {
  const Sizes &s = p.m.s;
  const uint32_t h = s.hidden;
  struct Product { const char *name; int e; Device *a, *out; uint32_t n, k; int which; };
  std::vector<Product> products = {{"qkv", s.modern ? kRotary : kBias, &p.x, &p.qkv, 3 * h, h, 0}, {"o", kBias, &p.ctx, &p.delta, h, h, 1},
                                   {"up", s.modern ? kGeglu : kGelu, &p.x, &p.wide, s.modern ? 2 * s.inter : s.inter, h, 2}, {"down", kBias, &p.wide, &p.delta, h, s.inter, 3}};
  int best[4];
  for (auto &q : products) {
    double least = 1e9;
    const auto &all = variants_of(q.e);
    if (print) std::printf("  %-5s n %4u k %4u:", q.name, q.n, q.k);
    for (int i = 0; i < int(all.size()); i++) {
      if (q.n % all[i].n || (all[i].rows && all[i].rows <= 32 && p.t.rows > 2048)) continue;
      uint32_t layer = 0;
      auto f = [&] {
        for (int r = 0; r < 4; r++) {
          const auto &l = p.m.layers[layer++ % s.layers];
          p.product(q.e, i, q.a->p(), q.which == 0 ? l.qkv : q.which == 1 ? l.o : q.which == 2 ? l.up : l.down, q.out->p(), q.n, q.k, 0);
        }
      };
      const double ms = median_ms(f, 9) / 4;
      if (ms < least) least = ms, best[q.which] = i;
      if (print) std::printf("  %s %.1f us %.0f T", std::strchr(all[i].name, ' ') + 1, ms * 1e3, 2.0 * p.t.rows * q.n * q.k / ms / 1e9);
    }
    if (print) std::printf("\n");
  }
  return {best[0], best[1], best[2], best[3]};
}

inline void whole(const Sizes &s, const std::vector<uint32_t> &sizes) {
  Model m(s);
  for (uint32_t tokens : sizes) {
    Texts t(lengths_of(tokens));
    std::printf("%s, %u tokens, %zu spans\n", s.name, tokens, t.spans.size());
    Pass p(m, t, {2, 2, 2, 2}, true);
    p.run(0);
    CK(cudaDeviceSynchronize());
    p.pick = choose(p, true);
    const double a = median_ms([&] { p.attention(0, 0); }, 11), w = median_ms([&] { p.attention(64, 0); }, 11), n = median_ms([&] { p.norm(0); }, 11);
    std::printf("  attention %.1f us, window %.1f us; norm %.1f us\n", a * 1e3, w * 1e3, n * 1e3);
    const double early = graph_ms(p, false);
    p.early = false;
    const double late = graph_ms(p, false);
    std::printf("  graph: %.3f ms, %.2f M tokens/s (without early launches %.3f ms, %.2f M); goal %.1f M\n", early, tokens / early / 1e3, late, tokens / late / 1e3, s.goal);
    std::fflush(stdout);
  }
}

// Microseconds of a kernel that follows others like it.
inline double each_us(const std::function<void()> &f) {
  return median_ms([&] { for (int i = 0; i < 20; i++) f(); }, 9) / 20 * 1e3;
}

inline void questions(const Sizes &s) {
  Model m(s);
  for (auto lengths : {std::vector<uint32_t>{32}, std::vector<uint32_t>(32, 32)}) {
    Texts t(lengths);
    Pass p(m, t, {0, 0, 0, 0}, true);
    std::printf("%s, %zu questions of 32:", s.name, lengths.size());
    const double bare = graph_ms(p, false), copied = graph_ms(p, true);
    std::printf(" m16 %.4f ms, with copies %.4f", bare, copied);
    p.pick = {1, 1, 1, 1};
    std::printf("; m32 %.4f", graph_ms(p, true));
    p.pick = {0, 0, 0, 0};
    p.early = false;
    std::printf("; late %.4f", graph_ms(p, true));
    p.early = true, p.pick = choose(p, true);
    {
      const auto name = [&](int e, int i) { return variants_of(e)[i].name; };
      std::printf("; best (%s, %s, %s, %s) %.4f", name(s.modern ? kRotary : kBias, p.pick.qkv), name(kBias, p.pick.o), name(s.modern ? kGeglu : kGelu, p.pick.up), name(kBias, p.pick.down), graph_ms(p, true));
    }
    std::printf("; attention %.1f us, norm %.1f us\n", each_us([&] { p.attention(0, 0); }), each_us([&] { p.norm(0); }));
    std::fflush(stdout);
  }
}
