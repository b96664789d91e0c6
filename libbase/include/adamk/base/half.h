// bfloat16 and IEEE binary16 as raw 16-bit patterns, round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace adamk {

inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
std::uint16_t float_to_bf16(float value);
float fp16_to_float(std::uint16_t bits);
std::uint16_t float_to_fp16(float value);

}  // namespace adamk
