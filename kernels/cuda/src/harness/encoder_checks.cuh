// encoder_checks.cuh: the encoder's kernels against plain loops in float64, and the
// bits of their results against each other.
#pragma once
#include <cuda_fp16.h>
#include <cstring>
#include "../encoder/encoder.cu"
#include "device.cuh"

using namespace plaid;

inline uint32_t up(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit * unit; }
inline float half_of(float v) { return __half2float(__float2half(v)); }

// A tiled matrix; see encoder.cuh.
struct Tiled {
  uint32_t rows, cols;
  std::vector<__half> v;
  Tiled(uint32_t r, uint32_t c) : rows(r), cols(c), v(size_t(up(r, 128)) * c) {}
  static size_t at(uint32_t r, uint32_t c, uint32_t cols) {
    return (size_t(r / 64) * (cols / 64) + c / 64) * 4096 + r % 64 * 64 + ((c % 64 / 8) ^ (r % 8)) * 8 + c % 8;
  }
  __half &operator()(uint32_t r, uint32_t c) { return v[at(r, c, cols)]; }
  double get(uint32_t r, uint32_t c) const { return __half2float(v[at(r, c, cols)]); }
  template <class F> Tiled &fill(F f) {
    for (uint32_t r = 0; r < rows; r++)
      for (uint32_t c = 0; c < cols; c++) (*this)(r, c) = __float2half(f(r, c));
    return *this;
  }
};
struct Device {  // of a Tiled; poisoned where it is a result
  Buf<__half> b;
  explicit Device(const Tiled &t) : b(t.v) {}
  Device(uint32_t rows, uint32_t cols) : b(size_t(up(rows, 128)) * cols, 0xff) {}
  uint8_t *p() { return reinterpret_cast<uint8_t *>(b.p); }
  Tiled host(uint32_t rows, uint32_t cols) { Tiled t(rows, cols); t.v = b.host(); return t; }
};

struct Variant {
  const char *name;
  void (*kernel)(EncoderGemmParams);
  int n, rows, threads, per;  // rows: 0 of gemm, else a tile's
};
#ifdef PLAID_SM90A
#define GEMMS_OF(E) {#E " n64", encoder_gemm_##E##_n64, 64, 0, 384, 1}, {#E " n192", encoder_gemm_##E##_n192, 192, 0, 384, 1}, {#E " n256", encoder_gemm_##E##_n256, 256, 0, 384, 1}
#define GEMMS_128(E) , {#E " n128", encoder_gemm_##E##_n128, 128, 0, 288, 2}
#define GEMMS_GATED(E) {#E " n128", encoder_gemm_##E##_n128, 128, 0, 288, 2}, {#E " n256", encoder_gemm_##E##_n256, 256, 0, 384, 1}
#else
#define GEMMS_128(E)
#define GEMMS_OF(E)
#define GEMMS_GATED(E)
#endif
#define TILES_OF(E) {#E " m16", encoder_tile_##E##_m16, 16, 16, 128, 0}, {#E " m32", encoder_tile_##E##_m32, 32, 32, 128, 0}, {#E " m128", encoder_tile_##E##_m128, 64, 128, 128, 0}
enum { kBias, kRotary, kGelu, kGeglu, kSilu, kSwiglu };
inline const std::vector<Variant> &variants_of(int e) {
  static const std::vector<Variant> all[] = {{TILES_OF(bias), GEMMS_OF(bias) GEMMS_128(bias)}, {TILES_OF(rotary), GEMMS_OF(rotary)}, {TILES_OF(gelu), GEMMS_OF(gelu) GEMMS_128(gelu)}, {TILES_OF(geglu), GEMMS_GATED(geglu)}, {TILES_OF(silu)}, {TILES_OF(swiglu), GEMMS_GATED(swiglu)}};
  return all[e];
}
inline uint32_t shared_of(const Variant &v, uint32_t stages) {
  if (v.rows) return v.rows == 16 ? 4096 * stages : v.rows == 32 ? 8192 * stages : 73728;
  return v.n == 64 ? 213120 : v.n == 128 ? 114736 : v.n == 192 ? 221264 : 229440;
}

// early: programmatic dependent launch.
template <class P> void launch(void (*kernel)(P), dim3 grid, int block, uint32_t shared, const P &p, bool early = false, cudaStream_t st = 0) {
  if (shared > 48000) CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  cudaLaunchConfig_t c{};
  cudaLaunchAttribute a{};
  a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  a.val.programmaticStreamSerializationAllowed = 1;
  c.gridDim = grid, c.blockDim = dim3(block), c.dynamicSmemBytes = shared, c.stream = st, c.attrs = &a, c.numAttrs = early;
  CK(cudaLaunchKernelEx(&c, kernel, p));
}
inline void launch_gemm(const Variant &v, EncoderGemmParams p, bool early = false, cudaStream_t st = 0) {
  p.stages = v.rows == 128 ? 3 : std::min<uint32_t>(p.k / 64, v.rows == 16 ? 48 : 24);
  const uint32_t down = (p.rows + 127) / 128;
  const dim3 grid = v.rows ? dim3(p.n / v.n, (p.rows + v.rows - 1) / v.rows) : dim3(std::min<uint32_t>(sms() * v.per, p.n / v.n * down));
  launch(v.kernel, grid, v.threads, shared_of(v, p.stages), p, early, st);
}

inline int faults = 0;
inline void expect(bool ok, const char *what, const char *name, double worst) {
  if (!ok) faults++;
  if (!ok) std::printf("FAULT %s %s: %g\n", what, name, worst);
}
inline double gelu_exact(double x) { return x * 0.5 * (1 + std::erf(x * M_SQRT1_2)); }
inline double gelu_tanh(double x) { return x * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// An activation of the feed-forward part, with the numbers that the host gives its epilogue.
struct Curve {
  const char *name;
  int plain, gated;
  double (*exact)(double);
  float numbers[7];
};
inline const Curve curves[] = {
    {"GELU", kGelu, kGeglu, gelu_exact,
     {2.2602039351227177e-08f, -1.5895277556410292e-06f, 4.7777641157153994e-05f, -0.0008123188163153827f, 0.008764317259192467f, -0.06455575674772263f, 0.397871196269989f}},
    {"GELU by tanh", kGelu, kGeglu, gelu_tanh, {2.3943052e-08f, -1.6647177e-06f, 4.9404858e-05f, -0.00082895876f, 0.008840022f, -0.06464243f, 0.39774543f}},
    {"ReLU", kGelu, kGeglu, [](double x) { return std::max(x, 0.); }, {0, 0, 0, 0, 0, 0, 1e30f}},
    {"SiLU", kSilu, kSwiglu, [](double x) { return x / (1 + std::exp(-x)); }, {1, 0, -1.4426950408889634f, 0}},
    {"tanh", kSilu, kSwiglu, [](double x) { return std::tanh(x); }, {0, 2, -2 * 1.4426950408889634f, -1}},
};

inline std::mt19937 rng(7);
inline float gauss(float s = 1) { static std::normal_distribution<float> d; return d(rng) * s; }

// Products of all tiles: near float64's, and the same bits, wherever a row lies.
inline void check_gemm(int e, uint32_t rows, uint32_t n, uint32_t k, const Curve &curve = curves[0]) {
  const bool plain = e == kGelu || e == kSilu, gated = e == kGeglu || e == kSwiglu;
  const uint32_t half = 32, shift = 37, out_n = gated ? n / 2 : n;
  Tiled a(rows, k), w(n, k), moved(rows + shift, k);
  a.fill([](int, int) { return gauss(); }), w.fill([&](int, int) { return gauss(1 / std::sqrt(float(k))); });
  moved.fill([&](uint32_t r, uint32_t c) { return r < shift ? gauss() : float(a.get(r - shift, c)); });
  std::vector<float> bias(n), angles(600 * half * 2);
  for (auto &b : bias) b = gauss(0.3f);
  std::vector<uint32_t> at(rows + shift), at_moved(rows + shift);
  for (uint32_t i = 0; i < rows; i++) at[i] = at_moved[i + shift] = rng() % 600;
  for (size_t i = 0; i < angles.size(); i += 2) { const float x = gauss(3); angles[i] = std::cos(x), angles[i + 1] = std::sin(x); }
  Device da(a), dw(w), dm(moved);
  Buf<float> db(bias), dang(angles);
  Buf<uint32_t> dat(at), datm(at_moved);
  std::vector<double> want(size_t(rows) * out_n);
  std::vector<double> line(n), wide(size_t(n) * k);
  for (uint32_t c = 0; c < n; c++)
    for (uint32_t i = 0; i < k; i++) wide[size_t(c) * k + i] = w.get(c, i);
  for (uint32_t r = 0; r < rows; r++) {
    std::vector<double> x(k);
    for (uint32_t i = 0; i < k; i++) x[i] = a.get(r, i);
    for (uint32_t c = 0; c < n; c++) {
      double s = bias[c];
      for (uint32_t i = 0; i < k; i++) s += x[i] * wide[size_t(c) * k + i];
      line[c] = s;
    }
    for (uint32_t c = 0; c < n; c++) {
      if (e == kBias) want[size_t(r) * n + c] = line[c];
      if (plain) want[size_t(r) * n + c] = curve.exact(line[c]);
      if (gated && c % 16 < 8) want[size_t(r) * out_n + c / 16 * 8 + c % 8] = curve.exact(line[c]) * line[c + 8];
      if (e == kRotary) {
        const uint32_t j = c % (2 * half) / 16 * 8 + c % 8;
        const double co = angles[(at[r] * half + j) * 2], si = angles[(at[r] * half + j) * 2 + 1];
        want[size_t(r) * n + c] = c >= n / 3 * 2 ? line[c] : c % 16 < 8 ? line[c] * co - line[c + 8] * si : line[c] * co + line[c - 8] * si;
      }
    }
  }
  Tiled first(1, 64);
  for (const Variant &v : variants_of(e)) {
    if (n % v.n) continue;
    for (int m = 0; m < 2; m++) {
      const uint32_t rr = rows + m * shift;
      Device out(rr, out_n);
      EncoderGemmParams p{m ? dm.p() : da.p(), dw.p(), db.p, out.p(), m ? datm.p : dat.p, dang.p, rr, n, k, n / 3 * 2, 0, {}};
      std::copy(curve.numbers, curve.numbers + 7, p.curve);
      launch_gemm(v, p);
      CK(cudaDeviceSynchronize());
      Tiled got = out.host(rr, out_n);
      double worst = 0;
      size_t differ = 0;
      for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < out_n; c++) {
          const double x = got.get(r + m * shift, c), y = want[size_t(r) * out_n + c];
          const double err = std::fabs(x - y) / (6e-4 * std::fabs(y) + (gated ? 1e-3 : 3e-4));  // polynomials are 2e-4 off, times a gate
          worst = err <= worst ? worst : err;
          if (!(err == err)) worst = 1e30;
          if (first.cols == out_n) { __half p = got(r + m * shift, c), q = first(r, c); differ += std::memcmp(&p, &q, 2) != 0; }
        }
      if (!m && first.cols != out_n) first = got;
      expect(worst <= 1, plain || gated ? curve.name : "product", v.name, worst);
      if (differ) std::printf("  bits: %s moved %d rows %u n %u k %u: %zu of %zu differ from the first\n", v.name, m, rows, n, k, differ, want.size());
      faults += differ != 0;
    }
  }
}

// window: 0 means unbounded, else tokens attend that far before, and a third of it behind. share: the
// number of heads of queries for each head of keys.
template <int D> void check_attention(void (*kernel)(EncoderAttentionParams), uint32_t heads, uint32_t window, uint32_t share = 1, bool relative = false) {
  const uint32_t width = up(heads * D, 64), keys = heads * D, values = up(heads / share * D, 64), columns = up(keys + 2 * values, 64), zero = 400 + 63;
  const uint32_t before = window ? window : 1 << 30, after = window ? window / 3 : 1 << 30, shared = D == 256 ? 101376 : 0;
  std::vector<float> far(size_t(heads) * (2 * zero + 1));
  for (auto &v : far) v = gauss(2);
  Buf<float> dfar(far);
  struct T { uint32_t n, attended; };
  const std::vector<T> texts = {{300, 300}, {1, 1}, {65, 65}, {64, 64}, {32, 9}, {130, 128}, {17, 17}, {400, 399}, {63, 50}};
  uint32_t rows = 0;
  std::vector<EncoderSpan> spans;
  std::vector<uint32_t> firsts;
  for (auto t : texts) {
    firsts.push_back(rows);
    for (uint32_t i = 0; i < (t.n + 63) / 64; i++) spans.push_back({rows, t.n, t.attended, i});
    rows += t.n;
  }
  Tiled qkv(rows, columns);
  qkv.fill([](int, int) { return gauss(1.5f); });
  Device dq(qkv), out(rows, width);
  Buf<EncoderSpan> ds(spans);
  const EncoderAttentionParams p{dq.p(), out.p(), ds.p, relative ? dfar.p : nullptr, float(1 / std::sqrt(double(D))), columns, width, keys, values, share, before, after, zero, 0};
  launch(kernel, dim3(spans.size(), heads), 128, shared, p);
  CK(cudaDeviceSynchronize());
  Tiled got = out.host(rows, width);
  double worst = 0;
  for (size_t t = 0; t < texts.size(); t++)
    for (uint32_t h = 0; h < heads; h++)
      for (uint32_t i = 0; i < texts[t].n; i++) {
        std::vector<double> s(texts[t].attended, -1e300);
        double most = -1e300, sum = 0;
        for (uint32_t j = 0; j < texts[t].attended; j++) {
          if (j + before < i || j > i + after) continue;
          double x = 0;
          for (int d = 0; d < D; d++) x += qkv.get(firsts[t] + i, h * D + d) * qkv.get(firsts[t] + j, keys + h / share * D + d);
          if (relative) x += far[h * (2 * zero + 1) + zero + j - i];
          s[j] = x / std::sqrt(double(D)), most = std::max(most, s[j]);
        }
        for (auto &x : s) x = x == -1e300 ? 0 : std::exp(x - most), sum += x;
        for (int d = 0; d < D; d++) {
          double y = 0;
          if (sum > 0) for (uint32_t j = 0; j < s.size(); j++) y += s[j] / sum * qkv.get(firsts[t] + j, keys + values + h / share * D + d);
          const double err = std::fabs(got.get(firsts[t] + i, h * D + d) - y);
          worst = err <= worst ? worst : err;
          if (!(err == err)) worst = 1e30;
        }
      }
  char name[64];
  std::snprintf(name, sizeof name, "d%d window %u share %u%s", D, window, share, relative ? " relative" : "");
  expect(worst < 6e-3, "attention", name, worst);
  std::printf("attention %s: %.2g off at most\n", name, worst);
  // A text by itself has the bits that it has among others.
  size_t differ = 0;
  for (size_t t = 0; t < texts.size(); t++) {
    Tiled own(texts[t].n, columns);
    own.fill([&](uint32_t r, uint32_t c) { return float(qkv.get(firsts[t] + r, c)); });
    std::vector<EncoderSpan> mine;
    for (uint32_t i = 0; i < (texts[t].n + 63) / 64; i++) mine.insert(mine.begin(), {0, texts[t].n, texts[t].attended, i});
    Device dn(own), o(texts[t].n, width);
    Buf<EncoderSpan> dm(mine);
    EncoderAttentionParams alone = p;
    alone.qkv = dn.p(), alone.out = o.p(), alone.spans = dm.p;
    launch(kernel, dim3(mine.size(), heads), 128, shared, alone);
    CK(cudaDeviceSynchronize());
    Tiled x = o.host(texts[t].n, width);
    for (uint32_t r = 0; r < texts[t].n; r++)
      for (uint32_t c = 0; c < heads * D; c++) { __half a = x(r, c), b = got(firsts[t] + r, c); differ += std::memcmp(&a, &b, 2) != 0; }
  }
  expect(differ == 0, "attention bits", name, double(differ));
}

inline void norm_of(std::vector<double> &x, uint32_t hidden, const std::vector<float> &g, const std::vector<float> &b, double eps, bool rms = false) {
  double m = 0, v = 0;
  for (uint32_t c = 0; c < hidden && !rms; c++) m += x[c] / hidden;
  for (uint32_t c = 0; c < hidden; c++) v += (x[c] - m) * (x[c] - m) / hidden;
  for (uint32_t c = 0; c < x.size(); c++) x[c] = c < hidden ? (x[c] - m) / std::sqrt(v + eps) * g[c] + b[c] : 0;
}

inline void check_rows(uint32_t hidden) {
  const uint32_t rows = 77, width = up(hidden, 64), vocab = 500;
  std::vector<float> g(width), b(width), stream(size_t(rows) * width);
  for (uint32_t c = 0; c < hidden; c++) g[c] = 1 + gauss(0.2f), b[c] = gauss(0.2f);
  std::vector<__half> words(size_t(vocab) * width), places(size_t(vocab) * width);
  for (auto *t : {&words, &places})
    for (size_t i = 0; i < t->size(); i++) (*t)[i] = __float2half(i % width < hidden ? gauss(0.05f) : 0.f);
  std::vector<uint32_t> ids(rows), at(rows);
  for (uint32_t r = 0; r < rows; r++) ids[r] = rng() % vocab, at[r] = rng() % vocab;
  Buf<float> dg(g), db(b), ds(size_t(rows) * width, 0xff);
  Buf<__half> dw(words), dp(places);
  Buf<uint32_t> di(ids), da(at);
  Device x(rows, width);
  launch(width > 1024 ? encoder_embed_wide : encoder_embed, dim3((rows + 7) / 8), 256, 0,
         EncoderEmbedParams{di.p, da.p, reinterpret_cast<uint16_t *>(dw.p), reinterpret_cast<uint16_t *>(dp.p), dg.p, db.p, x.p(), ds.p, 1e-12f, rows, hidden, width, 0, 0});
  CK(cudaDeviceSynchronize());
  Tiled got = x.host(rows, width);
  stream = ds.host();
  double worst = 0;
  auto off = [&](double a, double b) { const double e = std::fabs(a - b); worst = e <= worst ? worst : e; if (!(e == e)) worst = 1e30; };
  for (uint32_t r = 0; r < rows; r++) {
    std::vector<double> y(width);
    for (uint32_t c = 0; c < width; c++) y[c] = double(__half2float(words[size_t(ids[r]) * width + c])) + __half2float(places[size_t(at[r]) * width + c]);
    norm_of(y, hidden, g, b, 1e-12);
    for (uint32_t c = 0; c < width; c++) off(got.get(r, c), y[c]), off(stream[size_t(r) * width + c], y[c]);
  }
  expect(worst < 4e-3, "embed", "", worst);
  Tiled delta(rows, width);
  delta.fill([&](uint32_t, uint32_t c) { return c < hidden ? gauss() : 0.f; });
  Device dd(delta);
  // As BERT, ModernBERT and Gemma have it; at last with a stream that begins.
  for (int form = 0; form < 4; form++) {
    const bool streams = form > 0, rms = form > 1, post = form > 1, fresh = form > 2;
    Tiled in = got;
    Device dx(in);
    launch(width > 1024 ? encoder_norm_wide : post ? encoder_norm_post : encoder_norm, dim3(streams ? 3 : 10), 256, 0,
           EncoderNormParams{dd.p(), dx.p(), streams ? ds.p : nullptr, dg.p, streams ? nullptr : db.p, post ? dg.p : nullptr, nullptr, 1e-5f, 1e-3f, rows, hidden, width, rms, fresh, 0});
    CK(cudaDeviceSynchronize());
    Tiled res = dx.host(rows, width);
    auto after = ds.host();
    worst = 0;
    const std::vector<float> none(width);
    for (uint32_t r = 0; r < rows; r++) {
      std::vector<double> y(width);
      for (uint32_t c = 0; c < width; c++) y[c] = delta.get(r, c);
      if (post) norm_of(y, hidden, g, none, 1e-3, rms);
      for (uint32_t c = 0; c < width; c++) {
        if (!fresh) y[c] += streams ? double(stream[size_t(r) * width + c]) : in.get(r, c);
        if (streams) off(after[size_t(r) * width + c] / 4, y[c] / 4);
      }
      norm_of(y, hidden, g, streams ? none : b, 1e-5, rms);
      for (uint32_t c = 0; c < width; c++) off(res.get(r, c), y[c]);
    }
    stream = after;
    expect(worst < 5e-3, "norm", form == 0 ? "" : form == 1 ? "with a stream" : form == 2 ? "of the sum" : "of a fresh stream", worst);
  }
  // Heads and unit vectors.
  for (int tile = 0; tile < 3; tile++)
    for (uint32_t act = 0; act < 6; act++) {
      const uint32_t n = 128, kept_n = 50;
      Tiled w(n, width), add(rows, n);
      w.fill([&](uint32_t, uint32_t c) { return c < hidden ? gauss(0.05f) : 0.f; }), add.fill([](int, int) { return gauss(); });
      std::vector<float> bias(n), more(size_t(rows) * n);
      for (auto &v : bias) v = gauss();
      for (auto &v : more) v = gauss();
      std::vector<uint32_t> kept(kept_n);
      for (auto &v : kept) v = rng() % rows;
      Device dw2(w), dadd(add), oh(rows, n);
      Buf<float> dbias(bias), dmore(more), o(size_t(rows) * n, 0xff), u(size_t(kept_n) * 96, 0xff);
      Buf<uint32_t> dk(kept), bad(1, 0xff);
      Buf<uint16_t> uh(size_t(kept_n) * 96, 0xff);
      const uint32_t stages = tile == 1 ? 3 : std::min(width / 64, tile ? 48u : 24u), side = tile ? 16 : 32;
      EncoderHeadParams h{x.p(), dw2.p(), dbias.p, act & 1 ? dmore.p : nullptr, act & 2 ? dadd.p() : nullptr, o.p, oh.p(), rows, n, width, act, stages, 0};
      launch(tile == 1 ? encoder_head_m128 : tile ? encoder_head_m16 : encoder_head_m32, tile == 1 ? dim3(n / 64, 1) : dim3(n / side, (rows + side - 1) / side), 128,
             tile == 1 ? 73728 : 256 * side * stages, h);
      launch(encoder_unit, dim3((kept_n + 7) / 8), 256, 0, EncoderUnitParams{o.p, nullptr, dk.p, u.p, uh.p, bad.p, kept_n, 96, n, 0});
      CK(cudaDeviceSynchronize());
      auto ho = o.host(), hu = u.host();
      Tiled hh = oh.host(rows, n);
      worst = 0;
      for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < n; c++) {
          double s = bias[c];
          for (uint32_t i = 0; i < width; i++) s += got.get(r, i) * w.get(c, i);
          s = act == 1 ? std::max(s, 0.) : act == 2 ? gelu_exact(s) : act == 3 ? s / (1 + std::exp(-s)) : act == 4 ? std::tanh(s) : act == 5 ? gelu_tanh(s) : s;
          if (h.add) s += more[size_t(r) * n + c];
          if (h.add_half) s += add.get(r, c);
          off(100 * ho[size_t(r) * n + c], 100 * s), off(hh.get(r, c), s);
        }
      expect(worst < 6e-3, "head", tile == 1 ? "m128" : tile ? "m16" : "m32", worst);
      worst = 0;
      for (uint32_t i = 0; i < kept_n; i++) {
        double s = 0;
        for (int c = 0; c < 96; c++) s += double(ho[size_t(kept[i]) * n + c]) * ho[size_t(kept[i]) * n + c];
        for (int c = 0; c < 96; c++) off(hu[i * 96 + c], ho[size_t(kept[i]) * n + c] / std::sqrt(s));
      }
      expect(worst < 1e-6 && bad.host()[0] == ~0u, "unit", "", worst);
    }
}

// Heads that are normed and turned, with zeros behind where stride is more than size.
inline void check_turn(uint32_t size, uint32_t stride, bool rms, bool normed, bool turned) {
  const uint32_t rows = 41, heads = 3, key_heads = 1, columns = up((heads + 2 * key_heads) * stride, 64);
  Tiled x(rows, columns);
  x.fill([](int, int) { return gauss(3); });
  std::vector<float> q(size), k(size), angles(600 * size);
  for (auto *v : {&q, &k})
    for (auto &g : *v) g = 1 + gauss(0.3f);
  for (size_t i = 0; i < angles.size(); i += 2) { const float a = gauss(3); angles[i] = std::cos(a), angles[i + 1] = std::sin(a); }
  std::vector<uint32_t> at(rows);
  for (auto &v : at) v = rng() % 600;
  Device dx(x);
  Buf<float> dq(q), dk(k), da(angles);
  Buf<uint32_t> dat(at);
  uint32_t lanes = 1;
  while (lanes * 16 < size) lanes *= 2;
  launch(encoder_turn, dim3((rows * (heads + key_heads) * lanes + 255) / 256), 256, 0,
         EncoderTurnParams{dx.p(), dat.p, turned ? da.p : nullptr, normed ? dq.p : nullptr, nullptr, normed ? dk.p : nullptr, nullptr, 1e-6f, rows, columns, heads, key_heads, size, stride, rms});
  CK(cudaDeviceSynchronize());
  Tiled got = dx.host(rows, columns);
  double worst = 0;
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t c = 0; c < columns; c++) {
      const uint32_t h = c / stride, j = c % stride;
      double want = x.get(r, c);
      if (h < heads + key_heads && j < size) {
        std::vector<double> y(size);
        for (uint32_t i = 0; i < size; i++) y[i] = x.get(r, h * stride + i);
        if (normed) norm_of(y, size, h < heads ? q : k, std::vector<float>(size), 1e-6, rms);
        const uint32_t a = (at[r] * (size / 2) + j / 16 * 8 + j % 8) * 2;
        want = !turned ? y[j] : j % 16 < 8 ? y[j] * angles[a] - y[j + 8] * angles[a + 1] : y[j] * angles[a] + y[j - 8] * angles[a + 1];
      }
      const double err = std::fabs(got.get(r, c) - want) / (1e-3 * std::fabs(want) + 2e-3);
      worst = err <= worst ? worst : err;
      if (!(err == err)) worst = 1e30;
    }
  expect(worst <= 1, "turn", rms ? "rms" : "", worst);
}

// Convolutions of texts that are attended to in part.
inline void check_conv(uint32_t width, uint32_t taps, uint32_t before, bool all) {
  struct T { uint32_t n, attended; };
  const std::vector<T> texts = {{100, 100}, {1, 1}, {70, 33}, {5, 2}};
  uint32_t rows = 0;
  std::vector<EncoderSpan> spans;
  for (auto t : texts) {
    for (uint32_t i = 0; i < (t.n + 63) / 64; i++) spans.push_back({rows, t.n, t.attended, i});
    rows += t.n;
  }
  Tiled in(rows, 3 * width);
  in.fill([](int, int) { return gauss(); });
  std::vector<float> weights(size_t(taps) * width), bias(width), nothing(3 * width);
  for (auto *v : {&weights, &bias, &nothing})
    for (auto &x : *v) x = gauss(0.7f);
  Device di(in), out(rows, width);
  Buf<EncoderSpan> ds(spans);
  Buf<float> dw(weights), db(bias), dn(nothing);
  launch(encoder_conv, dim3(spans.size(), (width + 255) / 256), 256, 0, EncoderConvParams{di.p(), out.p(), ds.p, dw.p, db.p, dn.p, width, taps, before, all});
  CK(cudaDeviceSynchronize());
  Tiled got = out.host(rows, width);
  double worst = 0;
  uint32_t first = 0;
  for (auto t : texts) {
    auto value = [&](uint32_t i, uint32_t c) { return all || i < t.attended ? in.get(first + i, c) : double(nothing[c]); };
    for (uint32_t i = 0; i < t.n; i++)
      for (uint32_t c = 0; c < width; c++) {
        double sum = bias[c];
        for (uint32_t j = 0; j < taps; j++)
          if (i + j >= before && i + j - before < t.n) sum += weights[size_t(j) * width + c] * value(i + j - before, c) * value(i + j - before, 2 * width + c);
        const double want = sum * value(i, width + c), err = std::fabs(got.get(first + i, c) - want) / (1e-3 * std::fabs(want) + 1e-3);
        worst = err <= worst ? worst : err;
        if (!(err == err)) worst = 1e30;
      }
    first += t.n;
  }
  expect(worst <= 1, "convolution", all ? "of all" : "", worst);
}

inline void check_all() {
  for (uint32_t k : {64u, 384u, 1536u, 3072u})
    for (uint32_t rows : {1u, 32u, 300u}) check_gemm(kBias, rows, 768, k);
  check_gemm(kBias, 700, 384, 384), check_gemm(kBias, 100, 320, 192);
  for (uint32_t rows : {33u, 520u}) check_gemm(kGelu, rows, 1536, 384), check_gemm(kRotary, rows, 1152, 384), check_gemm(kRotary, rows, 2304, 768), check_gemm(kGeglu, rows, 768, 768);
  for (const Curve &c : curves) check_gemm(c.plain, 200, 768, 192, c), check_gemm(c.gated, 200, 768, 192, c);
  for (uint32_t window : {0u, 20u, 64u, 100u}) {
    check_attention<64>(encoder_attention_d64, 3, window);
    check_attention<32>(encoder_attention_d32, 4, window);
  }
  check_attention<16>(encoder_attention_d16, 3, 0), check_attention<48>(encoder_attention_d48, 4, 0);
  check_attention<96>(encoder_attention_d96, 2, 30), check_attention<128>(encoder_attention_d128, 2, 0);
  check_attention<256>(encoder_attention_d256, 3, 0, 3), check_attention<256>(encoder_attention_d256, 2, 100, 1, true);
  check_attention<64>(encoder_attention_d64, 4, 0, 1, true), check_attention<32>(encoder_attention_d32, 6, 30, 3, true);
  for (bool on : {false, true}) check_turn(256, 256, on, true, true), check_turn(64, 64, true, on, true), check_turn(80, 96, on, true, false);
  for (bool on : {false, true}) check_conv(1024, 3, 2, on), check_conv(128, 4, 1, on);
  for (uint32_t hidden : {384u, 768u, 1024u, 312u, 48u, 1152u, 2560u}) check_rows(hidden);
  std::printf("checks: %d faults\n", faults);
}
