// cuda.h: as much of the language and of the library as src/dense uses, for a C++ compiler.
#pragma once
#include <cmath>
#include <type_traits>

#include "threads.h"

#define __device__
#define __global__
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))

struct __align__(8) uint2 { uint32_t x, y; };
struct __align__(16) uint4 { uint32_t x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) double2 { double x, y; };
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class A, class B> std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin(T(a), T(b));
  return T(a) < T(b) ? T(a) : T(b);
}
template <class A, class B> std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax(T(a), T(b));
  return T(a) > T(b) ? T(a) : T(b);
}
using std::isfinite;
using std::isinf;
using std::isnan;
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __frcp_rn(float x) { return 1 / x; }

inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz(uint32_t(v)) : 32; }
inline float __uint_as_float(uint32_t v) { return host::from_bits<float>(v); }
inline float __int_as_float(int v) { return host::from_bits<float>(uint32_t(v)); }
inline uint32_t __float_as_uint(float v) { return uint32_t(host::bits(v)); }
inline int __float_as_int(float v) { return int(__float_as_uint(v)); }

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> void __stcg(T *p, T v) { *p = v; }

template <class T, class V> T atomicAdd(T *p, V v) { T old = *p; *p = T(old + v); return old; }
template <class T, class V> T atomicMin(T *p, V v) { T old = *p; *p = T(v) < old ? T(v) : old; return old; }
template <class T, class V> T atomicMax(T *p, V v) { T old = *p; *p = T(v) > old ? T(v) : old; return old; }
template <class T, class V> T atomicExch(T *p, V v) { T old = *p; *p = T(v); return old; }

// Halves are kept as their bits.
struct __half { uint16_t bits; };
struct __half_raw { uint16_t x; operator __half() const { return {x}; } };
struct __align__(4) __half2 { __half x, y; };
struct __nv_bfloat16 { uint16_t bits; };
using __nv_fp8_storage_t = uint8_t;
enum __nv_fp8_interpretation_t { __NV_E4M3 };

inline float __half2float(__half h) {
  const int exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  float v = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  if (exponent == 31) v = fraction ? NAN : INFINITY;
  return h.bits >> 15 ? -v : v;
}
inline __half __float2half_rn(float v) {
  const uint16_t sign = __float_as_uint(v) >> 16 & 0x8000;
  v = std::fabs(v);
  if (std::isnan(v)) return {uint16_t(sign | 0x7fff)};
  if (v >= 65520) return {uint16_t(sign | 0x7c00)};
  // Units of the last place; 2048 of them, after rounding, carry into the exponent.
  const int exponent = v < 0x1p-14f ? -14 : std::ilogb(v);
  const int units = int(std::nearbyint(std::ldexp(v, 10 - exponent)));
  return {uint16_t(sign | (units + ((exponent + 14) << 10)))};
}
inline uint16_t __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(uint16_t v) { return {v}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const uint32_t b = __float_as_uint(v);
  return {uint16_t(v != v ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16)};
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
// e4m3: a sign, four bits of exponent (bias 7), three of fraction; all ones is NaN.
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t v, __nv_fp8_interpretation_t) {
  const int exponent = v >> 3 & 15, fraction = v & 7;
  float f = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
  if ((v & 127) == 127) f = NAN;
  return {__float2half_rn(v & 128 ? -f : f).bits};
}
