// check.cuh: every stage against double precision on small indexes.
#pragma once
#include "common.cuh"

struct Case {
  int nbits, dim, k, lq, docs, max_len;
  bool table, dim_scale, centroid_scale;
  int seed;
  bool fp8 = false;
};

struct Worst {
  double scan = 0, scan_rms = 0, list = 0, fine = 0, approx = 0, bound = 0;
  bool ok = true;
};

inline Worst check(const Case &c) {
  std::mt19937 rng(c.seed);
  std::normal_distribution<float> gauss;
  auto uniform = [&](int n) { return int(rng() % uint32_t(n)); };
  const int d = c.dim, levels = 1 << c.nbits, d16 = (d + 15) & ~15;
  const int row_bytes = (d * c.nbits + 7) / 8;
  const uint32_t w = lane_words(d, c.nbits);
  // Centroids, codebook, documents.
  std::vector<uint16_t> cent(size_t(c.k) * d16);
  std::vector<float> cf(size_t(c.k) * d);
  for (int i = 0; i < c.k; i++) {
    std::vector<float> v(d);
    double n = 0;
    for (auto &x : v) x = gauss(rng), n += x * x;
    for (int j = 0; j < d; j++) cent[size_t(i) * d16 + j] = bf16_bits(float(v[j] / std::sqrt(n))), cf[size_t(i) * d + j] = bf16_float(cent[size_t(i) * d16 + j]);
  }
  const float sigma = 0.35f / std::sqrt(float(d));
  const float step = sigma * (c.nbits == 1 ? 1.6f : c.nbits == 2 ? 1.0f : c.nbits == 4 ? 0.335f : 0.03f);
  std::vector<float> weights(levels);
  for (int b = 0; b < levels; b++) weights[b] = c.table ? sigma * 2.5f * std::tanh(2.0f * (b + 0.3f - levels / 2.0f) / levels) : step * (b - (levels - 1) / 2.0f);
  float wmax = 0;
  for (float x : weights) wmax = std::max(wmax, std::fabs(x));
  std::vector<__half> table(levels);
  for (int b = 0; b < levels; b++) table[b] = __float2half_rn(weights[b] / wmax);
  std::vector<float> g(d, 1.0f), a(c.k, 1.0f);
  if (c.dim_scale) for (auto &x : g) x = 0.5f + (rng() & 1023) / 1023.0f;
  if (c.centroid_scale) for (auto &x : a) x = 0.5f + (rng() & 1023) / 1023.0f;
  float amax = 0, amin = 1e9;
  for (float x : a) amax = std::max(amax, x), amin = std::min(amin, x);
  std::vector<uint32_t> off{0}, first{0};
  for (int i = 0; i < c.docs; i++) {
    int len = uniform(20) == 0 ? 0 : uniform(3) == 0 ? 1 + uniform(20) : 1 + uniform(c.max_len);
    if (i == 1) len = 3000;
    off.push_back(off.back() + len), first.push_back(first.back() + (len + 15) / 16);
  }
  const size_t n = off.back();
  const uint32_t tiles = first.back();
  const int code_bytes = c.k <= 65536 && (c.seed & 1) ? 2 : 4;
  std::vector<uint8_t> codes(n * code_bytes), res(n * row_bytes);
  std::vector<uint32_t> code(n);
  for (size_t t = 0; t < n; t++) {
    code[t] = uniform(c.k);
    memcpy(&codes[t * code_bytes], &code[t], code_bytes);
    for (int j = 0; j < row_bytes; j++) res[t * row_bytes + j] = rng();
    if (d * c.nbits % 8) res[t * row_bytes + row_bytes - 1] &= (1 << (d * c.nbits % 8)) - 1;
  }
  std::vector<double> dec(n * d);
  std::vector<int16_t> fac(n);
  const float factor_max = 1.9f;
  auto field = [&](size_t t, int j) { return res[t * row_bytes + j * c.nbits / 8] >> (j * c.nbits % 8) & (levels - 1); };
  parallel_for(n, [&](size_t t) {
    double norm = 0;
    for (int j = 0; j < d; j++) {
      const double v = cf[size_t(code[t]) * d + j] + double(a[code[t]]) * g[j] * weights[field(t, j)];
      dec[t * d + j] = v, norm += v * v;
    }
    fac[t] = int16_t(std::lround(std::min(1.9, 1 / std::sqrt(norm)) / factor_max * 32767));
    for (int j = 0; j < d; j++) dec[t * d + j] *= double(fac[t]) * factor_max / 32767;
  });
  const int groups = (c.lq + 31) / 32;
  std::vector<float> q(size_t(groups) * 32 * d), qw(groups * 32);
  for (int s = 0; s < c.lq; s++) {
    double nn = 0;
    for (int j = 0; j < d; j++) q[size_t(s) * d + j] = gauss(rng), nn += q[size_t(s) * d + j] * q[size_t(s) * d + j];
    for (int j = 0; j < d; j++) q[size_t(s) * d + j] /= float(std::sqrt(nn));
    qw[s] = c.seed % 3 == 2 ? (s % 5) * 0.5f - 0.5f : 1.0f;
  }
  // Reference.
  std::vector<double> ref(c.docs), ref_approx(c.docs);
  parallel_for(c.docs, [&](size_t i) {
    if (off[i] == off[i + 1]) return;
    for (int s = 0; s < c.lq; s++) {
      double m = -1e30, ma = -1e30;
      for (uint32_t t = off[i]; t < off[i + 1]; t++) {
        double p = 0, pa = 0;
        for (int j = 0; j < d; j++) p += q[size_t(s) * d + j] * dec[size_t(t) * d + j], pa += double(q[size_t(s) * d + j]) * cf[size_t(code[t]) * d + j];
        m = std::max(m, p), ma = std::max(ma, pa);
      }
      ref[i] += qw[s] * m, ref_approx[i] += qw[s] * ma;
    }
  });
  // Device.
  Buf<uint8_t> dcodes(codes), dres(res);
  Buf<int16_t> dfac(fac);
  Buf<uint32_t> doff(off), dfirst(first), tile_doc(tiles + 4), rows(size_t(tiles + 4) * 16 * 4 * w);
  Buf<uint2> words(size_t(tiles + 4) * 16);
  std::vector<float> ratio(c.k), inv(c.k);
  for (int i = 0; i < c.k; i++) ratio[i] = a[i] / amax, inv[i] = 1 / a[i];
  Buf<float> dratio(ratio), dinv(inv), dg(g), dq(q), dqw(qw), dwt(weights);
  Buf<__half> dtable(table);
  Buf<__nv_bfloat16> dcent(cent.size());
  CK(cudaMemcpy(dcent.p, cent.data(), cent.size() * 2, cudaMemcpyHostToDevice));
  PackParams pk{dcodes.p, dfac.p, dres.p, doff.p, dfirst.p, c.centroid_scale ? dratio.p : nullptr, words.p, rows.p, tile_doc.p,
                uint32_t(c.docs), 0, tiles, uint32_t(code_bytes), uint32_t(row_bytes), w};
  if (tiles) pack<<<(tiles + 7) / 8, 256>>>(pk);
  CK(cudaDeviceSynchronize());
  const int mode = c.fp8 ? 32 + c.nbits : c.table ? 16 : c.nbits;
  const uint32_t fs = frag_words(mode, c.nbits, w);
  Buf<uint32_t> frags(size_t(groups) * fs, 0xee);
  Buf<float4> cols(groups * 32);
  Buf<float> bound(groups);
  Buf<__nv_bfloat16> split(size_t(groups) * 64 * d16);
  float smax = 1.01f / amin;
  PrepParams pp{dq.p, dqw.p, c.dim_scale ? dg.p : nullptr, frags.p, cols.p, bound.p, split.p, uint32_t(d), uint32_t(mode), uint32_t(c.nbits), w, fs,
                c.table ? wmax : step, smax, factor_max * amax};
  prep_query<<<dim3(4, groups), 256>>>(pp);
  Buf<uint16_t> s_rows(size_t(groups) * c.k * 32), s_plain(size_t(groups) * c.k * 32);
  Buf<float> s_float(size_t(groups) * c.k * 32);
  CentroidParams cp{dcent.p, split.p, cols.p, c.centroid_scale ? dinv.p : nullptr, s_rows.p, s_float.p, uint32_t(c.k), uint32_t(d), c.fp8, 0};
  centroid_scores<<<dim3((c.k + 127) / 128, groups), 256>>>(cp);
  cp.inv_scale = nullptr, cp.s_rows = s_plain.p, cp.s_float = nullptr;
  centroid_scores<<<dim3((c.k + 127) / 128, groups), 256>>>(cp);
  CK(cudaDeviceSynchronize());
  bool shared;
  Scan k = scan_for(mode, w, false, shared);
  const size_t smem = scan_smem(mode, w, fs, shared);
  int blocks = blocks_for(k, smem, tiles);
  if (c.seed % 4 == 1) blocks = std::min(blocks, 3);
  Buf<float> scores(size_t(groups) * c.docs);
  Buf<uint32_t> part(size_t(groups) * sms() * 64 * 64), count(size_t(groups) * sms() * 64);
  ScanParams sp{};
  sp.words = words.p, sp.rows = rows.p, sp.tile_doc = tile_doc.p, sp.doc_first = dfirst.p, sp.doc_end = dfirst.p + 1;
  sp.s_rows = s_rows.p, sp.frags = frags.p, sp.cols = cols.p, sp.table = dtable.p, sp.scores = scores.p, sp.part = part.p, sp.count = count.p;
  sp.s_stride = uint64_t(c.k) * 32, sp.score_stride = c.docs, sp.n_tiles = tiles, sp.lane_words = w, sp.frag_stride = fs, sp.dim = d, sp.nbits = c.nbits;
  Worst r;
  auto compare = [&](const std::vector<double> &want, double *worst, double *rms, const std::vector<uint32_t> *pos) {
    auto got = scores.host();
    double sq = 0;
    size_t m = pos ? pos->size() : c.docs;
    for (size_t i = 0; i < m; i++) {
      double v = 0;
      for (int gr = 0; gr < groups; gr++) v += got[size_t(gr) * sp.score_stride + i];
      const double e = std::fabs(v - want[pos ? (*pos)[i] : i]);
      if (!(e <= *worst)) *worst = e;
      sq += e * e;
    }
    if (rms) *rms = std::sqrt(sq / m);
  };
  for (int rep = 0; rep < 2; rep++) k<<<dim3(blocks, groups), 128, smem>>>(sp);
  CK(cudaDeviceSynchronize());
  compare(ref, &r.scan, &r.scan_rms, nullptr);
  for (float b : bound.host()) r.bound += b;
  ScanParams ap = sp;
  ap.s_rows = s_plain.p;
  scores.zero();
  if (!c.centroid_scale && !c.fp8) {
    approx<<<dim3(blocks_for(approx, 0, tiles), groups), 128>>>(ap);
    CK(cudaDeviceSynchronize());
    compare(ref_approx, &r.approx, nullptr, nullptr);
  }
  for (uint32_t v : count.host()) if (v) r.ok = false;
  // A list, with repeats of none, in random order.
  std::vector<uint32_t> list(c.docs);
  for (int i = 0; i < c.docs; i++) list[i] = i;
  std::shuffle(list.begin(), list.end(), rng);
  list.resize(c.docs / 2 + 1);
  Buf<uint32_t> dlist(list), pf(list.size()), pe(list.size()), total(1);
  Buf<uint2> walk(tiles + 1);
  ListParams lp{dlist.p, nullptr, dfirst.p, walk.p, pf.p, pe.p, total.p, uint32_t(list.size()), tiles};
  list_tiles<<<(list.size() + 255) / 256, 256>>>(lp);
  Scan kl = scan_for(mode, w, true, shared);
  ScanParams sl = sp;
  sl.walk = walk.p, sl.n_tiles_dev = total.p, sl.doc_first = pf.p, sl.doc_end = pe.p, sl.score_stride = list.size();
  scores.zero();
  kl<<<dim3(blocks_for(kl, smem, tiles), groups), 128, smem>>>(sl);
  CK(cudaDeviceSynchronize());
  sp.score_stride = list.size();
  compare(ref, &r.list, nullptr, &list);
  // Fine.
  Buf<float> fs_out(list.size());
  Buf<uint32_t> best(list.size() * groups * 32), gb(std::vector<uint32_t>{0, uint32_t(groups)});
  FineParams fp{words.p, rows.p, dfirst.p, dcent.p, dwt.p, c.dim_scale ? dg.p : nullptr, c.centroid_scale ? dratio.p : nullptr, dq.p, dqw.p, gb.p,
                dlist.p, best.p, fs_out.p, factor_max, amax, uint32_t(list.size()), uint32_t(d), uint32_t(c.nbits), w, uint32_t(groups), 0};
  fine<<<dim3(list.size(), 1, 4), 128>>>(fp);
  fine_sum<<<dim3((list.size() + 7) / 8, 1), 256>>>(fp);
  CK(cudaDeviceSynchronize());
  auto f = fs_out.host();
  for (size_t i = 0; i < list.size(); i++) {
    const double e = std::fabs(f[i] - ref[list[i]]);
    if (!(e <= r.fine)) r.fine = e;
  }
  return r;
}

inline bool check_topk(uint32_t n, uint32_t k, int ties, int seed) {
  std::mt19937 rng(seed);
  std::vector<float> s(n);
  for (auto &v : s) v = ties ? float(int(rng() % ties)) - ties / 2 : float(int(rng())) * 1e-9f;
  std::vector<uint32_t> allowed((n + 31) / 32);
  for (auto &a : allowed) a = rng() | rng();
  std::vector<uint32_t> want;
  for (uint32_t i = 0; i < n; i++) if (allowed[i / 32] >> (i & 31) & 1) want.push_back(i);
  std::sort(want.begin(), want.end(), [&](uint32_t a, uint32_t b) { return s[a] != s[b] ? s[a] > s[b] : a < b; });
  if (want.size() > k) want.resize(k);
  Buf<float> ds(s), os(k);
  Buf<uint32_t> da(allowed), oi(k), on(1);
  uint32_t g = (n + 8191) / 8192;
  Buf<uint64_t> a(size_t(g) * k + 1), b(size_t(g) * k + 1);
  TopkFirstParams fp{ds.p, nullptr, nullptr, nullptr, da.p, a.p, n, n, k, 0};
  topk_first<<<dim3(g, 1), 1024>>>(fp);
  uint32_t m = g * k;
  while (true) {
    g = (m + 8191) / 8192;
    TopkNextParams np{a.p, b.p, oi.p, os.p, on.p, m, k};
    topk_next<<<dim3(g, 1), 1024>>>(np);
    if (g == 1) break;
    m = g * k;
    std::swap(a.p, b.p);
  }
  CK(cudaDeviceSynchronize());
  auto ids = oi.host();
  auto sc = os.host();
  bool ok = on.host()[0] == want.size();
  for (size_t i = 0; i < want.size(); i++) ok = ok && ids[i] == want[i] && sc[i] == s[want[i]];
  return ok;
}

inline int check_nearest(uint32_t n, uint32_t k, uint32_t dim, int seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> gauss;
  std::vector<float> x(size_t(n) * dim), c(size_t(k) * dim);
  auto fill = [&](std::vector<float> &v) {
    for (size_t i = 0; i < v.size(); i += dim) {
      double s = 0;
      for (uint32_t j = 0; j < dim; j++) v[i + j] = gauss(rng), s += v[i + j] * v[i + j];
      for (uint32_t j = 0; j < dim; j++) v[i + j] /= float(std::sqrt(s));
    }
  };
  fill(x), fill(c);
  for (uint32_t i = 0; i + 7 < k; i += 97) std::copy_n(&c[size_t(i) * dim], dim, &c[size_t(i + 7) * dim]);  // equals
  std::vector<uint32_t> want(n);
  std::vector<double> gap(n);
  parallel_for(n, [&](size_t i) {
    double best = -1e9, second = -1e9;
    for (uint32_t m = 0; m < k; m++) {
      double p = 0;
      for (uint32_t j = 0; j < dim; j++) p += double(x[i * dim + j]) * c[size_t(m) * dim + j];
      if (p > best) second = best, best = p, want[i] = m; else if (p > second && p != best) second = p;
    }
    gap[i] = best - second;
  });
  const uint32_t width = dim <= 64 ? 64 : 128, n128 = (n + 127) & ~127u, k128 = (k + 127) & ~127u;
  Buf<float> dx(x), dc(c), xn(n), xe(n), cn(k), ce(k), sc(n);
  Buf<__half> xh(size_t(n128) * width), ch(size_t(k128) * width);
  to_half<<<(n128 + 7) / 8, 256>>>({dx.p, xh.p, xn.p, xe.p, n, n128, dim, width});
  to_half<<<(k128 + 7) / 8, 256>>>({dc.p, ch.p, cn.p, ce.p, k, k128, dim, width});
  auto hn = cn.host(), he = ce.host();
  Buf<uint4> slots(size_t(n128) * 16);
  Buf<uint32_t> codes(n), any(n);
  NearestParams p{xh.p, ch.p, dx.p, dc.p, xn.p, xe.p, slots.p, codes.p, sc.p, *std::max_element(hn.begin(), hn.end()), *std::max_element(he.begin(), he.end()), n, k, dim, width};
  auto kern = width == 64 ? nearest64 : nearest128;
  CK(cudaFuncSetAttribute(kern, cudaFuncAttributeMaxDynamicSharedMemorySize, 512 * width));
  if (dim <= 128) {
    kern<<<n128 / 128, 256, 512 * width>>>(p);
    nearest_exact<<<(n + 7) / 8, 256>>>(p);
  }
  auto pa = p;
  pa.codes = any.p;
  nearest_any<<<(n + 31) / 32, 256>>>(pa);
  CK(cudaDeviceSynchronize());
  auto a = codes.host(), b = any.host();
  int bad = 0;
  for (uint32_t i = 0; i < n; i++) bad += ((dim <= 128 && a[i] != want[i]) || b[i] != want[i]) && gap[i] > 1e-6;
  return bad;
}
