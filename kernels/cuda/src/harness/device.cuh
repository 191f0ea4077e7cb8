// device.cuh: device buffers and timing.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>
#include <cuda_runtime.h>

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
