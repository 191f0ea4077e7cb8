// common.cuh: device buffers, timing, and a small index with its reference in
// double precision.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>
#include "../plaid.cu"

using namespace plaid;

#define CK(x)                                                                                       \
  do {                                                                                              \
    cudaError_t e_ = (x);                                                                           \
    if (e_ != cudaSuccess) {                                                                        \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                       \
      std::exit(1);                                                                                 \
    }                                                                                               \
  } while (0)

template <class T> struct Buf {
  T *p = nullptr;
  size_t n = 0;
  Buf() = default;
  explicit Buf(size_t n_, int fill = 0) : n(n_) {
    CK(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
    CK(cudaMemset(p, fill, std::max<size_t>(n, 1) * sizeof(T)));
  }
  explicit Buf(const std::vector<T> &v) : Buf(v.size()) { CK(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice)); }
  Buf(Buf &&o) : p(o.p), n(o.n) { o.p = nullptr; }
  Buf &operator=(Buf &&o) { std::swap(p, o.p), std::swap(n, o.n); return *this; }
  ~Buf() { if (p) cudaFree(p); }
  void zero() { CK(cudaMemset(p, 0, n * sizeof(T))); }
  std::vector<T> host() const {
    std::vector<T> v(n);
    CK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
};

inline int sms() {
  static int n = [] { int v; CK(cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, 0)); return v; }();
  return n;
}

template <class K> int blocks_for(K kernel, size_t smem, uint32_t tiles, int threads = kScanThreads) {
  int occ = 0;
  CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem)));
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occ, kernel, threads, smem));
  return std::max(1, std::min<int>(sms() * occ, (tiles + 3) / 4));
}

// Median milliseconds of runs; cold: the L2 cache is overwritten before each.
inline double median_ms(const std::function<void()> &f, int runs = 21, bool cold = false) {
  static Buf<char> flush(256 << 20);
  cudaEvent_t a, b;
  CK(cudaEventCreate(&a));
  CK(cudaEventCreate(&b));
  f();
  std::vector<float> t;
  for (int i = 0; i < runs; i++) {
    if (cold) CK(cudaMemsetAsync(flush.p, i, flush.n));
    CK(cudaEventRecord(a));
    f();
    CK(cudaEventRecord(b));
    CK(cudaEventSynchronize(b));
    float ms;
    CK(cudaEventElapsedTime(&ms, a, b));
    t.push_back(ms);
  }
  CK(cudaGetLastError());
  cudaEventDestroy(a), cudaEventDestroy(b);
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

inline uint32_t lane_words(int dim, int nbits) { return ((dim * nbits + 7) / 8 + 15) / 16; }
inline uint32_t frag_words(int mode, int nbits, uint32_t w) {
  switch (mode) {
    case 1: return 5 * w * 256;
    case 2: return 3 * w * 256;
    case 4: return 2 * w * 256;
    case 8: return 2 * ((w + 1) / 2) * 256;
    case 33: return 4 * w * 256;
    case 34: return 2 * w * 256;
    case 36: return w * 256;
    default: return 8 * w / nbits * 256;
  }
}

// Dynamic shared memory of a scan.
inline size_t scan_smem(int mode, uint32_t w, uint32_t fs, bool shared) {
  if (mode > 32) return fs * 4 + 4 * (3072 + 1024 * w);
  return !shared ? 4 * (3072 + 1024 * w) : fs * 4 + (mode == 16 ? 2048 : 0);
}

// Whether scan_f* has it.
inline bool has_fp8(int nbits, uint32_t w) { return (nbits <= 2 && w == 1) || (nbits == 2 && w == 2) || (nbits == 4 && (w == 2 || w == 4)); }

using Scan = void (*)(ScanParams);
inline Scan scan_for(int mode, uint32_t w, bool list, bool &shared) {
  shared = false;
  if (mode == 33 && w == 1) return list ? scan_f1_w1_list : scan_f1_w1;
  if (mode == 34 && w == 1) return list ? scan_f2_w1_list : scan_f2_w1;
  if (mode == 34 && w == 2) return list ? scan_f2_w2_list : scan_f2_w2;
  if (mode == 36 && w == 2) return list ? scan_f4_w2_list : scan_f4_w2;
  if (mode == 36 && w == 4) return list ? scan_f4_w4_list : scan_f4_w4;
  if (mode == 1 && w == 1) return list ? scan_b1_w1_list : scan_b1_w1;
  if (mode == 2 && w == 1) return list ? scan_b2_w1_list : scan_b2_w1;
  if (mode == 2 && w == 2) return list ? scan_b2_w2_list : scan_b2_w2;
  if (mode == 4 && w == 2) return list ? scan_b4_w2_list : scan_b4_w2;
  if (mode == 4 && w == 4) return list ? scan_b4_w4_list : scan_b4_w4;
  shared = true;
  switch (mode) {
    case 1: return list ? scan_b1_list : scan_b1;
    case 2: return list ? scan_b2_list : scan_b2;
    case 4: return list ? scan_b4_list : scan_b4;
    case 8: return list ? scan_b8_list : scan_b8;
    default: return list ? scan_table_list : scan_table;
  }
}
