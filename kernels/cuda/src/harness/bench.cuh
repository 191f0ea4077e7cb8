// bench.cuh: random indexes of any size made on the device, and timings.
#pragma once
#include "common.cuh"

__device__ inline uint32_t mix(uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return uint32_t(x);
}
__global__ void fill_words(uint2 *w, size_t n, uint32_t k) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
    w[i] = make_uint2(mix(i) % k * 64, __float_as_uint(0.9f + 0.1f * (mix(i * 3 + 1) & 1023) / 1023.0f));
}
__global__ void fill_bits(uint32_t *w, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) w[i] = mix(i + (seed << 40));
}

struct Bench {
  int nbits, dim, mode;
  uint32_t k, docs, tiles, w, fs;
  int groups;
  uint64_t tokens = 0;
  float step;
  Buf<uint2> words;
  Buf<uint32_t> rows, tile_doc, first, frags, part, count;
  Buf<__half> cent;
  Buf<uint32_t> parts;
  Buf<float> q, qw, alike, scores, s_float;
  Buf<float4> cols, bound, unit;
  Buf<uint16_t> s_rows;
  Buf<__half> table;
  std::vector<uint32_t> hfirst;

  Bench(int nbits_, int dim_, uint32_t k_, uint32_t docs_, int lo, int hi, int groups_, bool tab = false, bool fp8 = true)
      : nbits(nbits_), dim(dim_), mode(tab ? 16 : nbits_), k(k_), docs(docs_), groups(groups_) {
    std::mt19937 rng(7);
    std::normal_distribution<float> gauss;
    w = lane_words(dim, nbits);
    if (fp8 && !tab && has_fp8(nbits, w)) mode = 32 + nbits;
    fs = frag_words(mode, nbits, w);
    hfirst = {0};
    std::vector<uint32_t> td;
    for (uint32_t i = 0; i < docs; i++) {
      const uint32_t len = lo + rng() % (hi - lo + 1), t = (len + 15) / 16;
      tokens += len;
      for (uint32_t j = 0; j < t; j++) td.push_back(i | (j + 1 == t ? 0x80000000u : 0));
      hfirst.push_back(hfirst.back() + t);
    }
    tiles = hfirst.back();
    td.resize(tiles + 4);
    tile_doc = Buf<uint32_t>(td), first = Buf<uint32_t>(hfirst);
    words = Buf<uint2>(size_t(tiles + 4) * 16), rows = Buf<uint32_t>(size_t(tiles + 4) * 64 * w);
    fill_words<<<4096, 256>>>(words.p, size_t(tiles) * 16, k);
    fill_bits<<<4096, 256>>>(rows.p, rows.n, 1);
    std::vector<__half> c(size_t(k) * ((lane_dims() / 4 + 1) / 2) * 32);
    std::vector<float> base(1 << 16);
    for (auto &v : base) v = gauss(rng) / std::sqrt(float(dim));
    for (size_t i = 0; i < c.size(); i++) c[i] = __float2half_rn(base[rng() & 0xffff]);
    cent = Buf<__half>(c.size());
    CK(cudaMemcpy(cent.p, c.data(), c.size() * 2, cudaMemcpyHostToDevice));
    std::vector<float> hq(size_t(groups) * 32 * dim);
    for (auto &v : hq) v = gauss(rng) / std::sqrt(float(dim));
    q = Buf<float>(hq), qw = Buf<float>(std::vector<float>(groups * 32, 1.0f)), alike = Buf<float>(std::vector<float>(groups * 32, 1.0f));
    step = 0.35f / std::sqrt(float(dim)) * (nbits == 1 ? 1.6f : nbits == 2 ? 1.0f : nbits == 4 ? 0.335f : 0.03f);
    frags = Buf<uint32_t>(size_t(groups) * fs), cols = Buf<float4>(groups * 32), bound = Buf<float4>(groups * 32);
    parts = Buf<uint32_t>(size_t(groups) * lane_dims() * 256), unit = Buf<float4>(groups * 32);
    s_rows = Buf<uint16_t>(size_t((groups + 3) / 4 * 4) * k * 32), scores = Buf<float>(size_t(groups) * docs);
    part = Buf<uint32_t>(size_t(groups) * sms() * 64 * 64), count = Buf<uint32_t>(size_t(groups) * sms() * 64);
    std::vector<__half> ht(1 << nbits);
    for (int i = 0; i < 1 << nbits; i++) ht[i] = __float2half_rn(2.0f * i / ((1 << nbits) - 1) - 1);
    table = Buf<__half>(ht);
    prep(), centroids();
    CK(cudaDeviceSynchronize());
  }
  uint32_t lane_dims() const { return w * 32 / nbits; }
  void prep() {
    PrepParams p{q.p, qw.p, alike.p, nullptr, frags.p, cols.p, bound.p, parts.p, unit.p, nullptr, nullptr, uint32_t(dim), uint32_t(mode), uint32_t(nbits), w, fs, 0,
                 mode == 16 ? step * ((1 << nbits) - 1) / 2 : step, 1.5f, 1.5f, 1.0f, 1.0f, 1.0f, dim <= 1024, 0};
    prep_query<<<dim3(4, groups), 512, dim <= 1024 ? 32 * dim : 0>>>(p);
  }
  void centroids(float *sf = nullptr, uint32_t side = 1) {
    CentroidParams p{cent.p, parts.p, unit.p, cols.p, nullptr, s_rows.p, sf, nullptr, k, mode > 32, lane_dims(), side};
    centroid_scores<<<dim3((k + 127) / 128, groups), 256>>>(p);
  }
  ScanParams params() {
    ScanParams sp{};
    sp.words = words.p, sp.rows = rows.p, sp.tile_doc = tile_doc.p, sp.doc_first = first.p, sp.doc_end = first.p + 1;
    sp.s_rows = s_rows.p, sp.frags = frags.p, sp.cols = cols.p, sp.table = table.p, sp.scores = scores.p, sp.part = part.p, sp.count = count.p;
    sp.s_stride = uint64_t(k) * 32, sp.score_stride = docs, sp.n_tiles = tiles, sp.lane_words = w, sp.frag_stride = fs, sp.dim = dim, sp.nbits = nbits, sp.groups = groups;
    return sp;
  }
  double scan(Scan kern = nullptr, bool cold = false, int threads = kScanThreads, int runs = 21) {
    bool shared = false;
    if (!kern) kern = scan_for(mode, w, false, shared);
    const size_t smem = scan_smem(mode, w, fs, shared) * (shared ? 1 : threads) / (shared ? 1 : kScanThreads);
    int blocks = blocks_for(kern, smem, tiles * 128 / threads, threads);
    auto sp = params();
    return median_ms([&] { kern<<<dim3(blocks, groups), threads, smem>>>(sp); }, runs, cold);
  }
};
