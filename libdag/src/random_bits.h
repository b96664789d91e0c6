// The counter-based generator: 64 well-mixed bits as a pure function of (seed, stream, counter). docs/random-weights.md
#pragma once

#include <cstdint>

namespace adamk {

/// The output function of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15u;

/// The start of one stream; mixed twice so that neighbouring seeds and streams share nothing.
constexpr std::uint64_t stream_key(std::uint64_t seed, std::uint64_t stream) {
  return mix_bits(mix_bits(seed + golden_gamma) ^ (stream * golden_gamma));
}

constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  return mix_bits(key + (counter + 1) * golden_gamma);
}

}  // namespace adamk
