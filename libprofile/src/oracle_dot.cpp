#include "oracle_dot.h"

#include <bit>

namespace adamk {
namespace {

struct FromBf16 {
  static inline __attribute__((always_inline)) float value(Half bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// binary16 to binary32 by moving the fields, without branches, so that the loop below vectorises.
struct FromFp16 {
  static inline __attribute__((always_inline)) float value(Half bits) {
    constexpr std::uint32_t exponent_mask = 0x7c00u << 13, rebias = (127u - 15u) << 23;
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    const std::uint32_t exponent = magnitude & exponent_mask;
    std::uint32_t moved = magnitude + rebias;
    moved += exponent == exponent_mask ? rebias : 0u;   // infinity and NaN
    // Subnormal: give it an implicit one, and take that one's worth away again.
    const float subnormal =
        std::bit_cast<float>(moved + (1u << 23)) - std::bit_cast<float>(rebias + (1u << 23));
    const std::uint32_t result = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : moved;
    return std::bit_cast<float>(result | ((bits & 0x8000u) << 16));
  }
};

template <class Format>
inline __attribute__((always_inline)) double dot_loop(const Half* weights, const double* x, std::int64_t n) {
  constexpr int block = 256;
  double sums[8] = {};
  double values[block];
  std::int64_t i = 0;
  for (; i + block <= n; i += block) {
    for (int j = 0; j < block; ++j) values[j] = static_cast<double>(Format::value(weights[i + j]));
    for (int j = 0; j < block; j += 8) {
      for (int lane = 0; lane < 8; ++lane) sums[lane] += values[j + lane] * x[i + j + lane];
    }
  }
  for (; i < n; ++i) sums[i % 8] += static_cast<double>(Format::value(weights[i])) * x[i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

double dot_bf16(const Half* weights, const double* x, std::int64_t n) { return dot_loop<FromBf16>(weights, x, n); }
double dot_fp16(const Half* weights, const double* x, std::int64_t n) { return dot_loop<FromFp16>(weights, x, n); }

#if defined(__x86_64__)
// Plain functions chosen by a test, not target_clones: an ifunc resolver runs before a sanitizer's run-time is ready.
// No fma: it would round differently from the portable loop.
__attribute__((target("avx2"))) double dot_bf16_avx2(const Half* weights, const double* x, std::int64_t n) {
  return dot_loop<FromBf16>(weights, x, n);
}
__attribute__((target("avx2"))) double dot_fp16_avx2(const Half* weights, const double* x, std::int64_t n) {
  return dot_loop<FromFp16>(weights, x, n);
}
#endif

}  // namespace

DotFunction portable_dot_function(WeightsFormat format) {
  return format == WeightsFormat::bf16 ? dot_bf16 : dot_fp16;
}

DotFunction dot_function(WeightsFormat format) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return format == WeightsFormat::bf16 ? dot_bf16_avx2 : dot_fp16_avx2;
#endif
  return portable_dot_function(format);
}

}  // namespace adamk
