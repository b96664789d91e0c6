#include "adamk/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace adamk {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(HalfTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(-2.0f), 0xc000);
  // One unit in the last place of bf16 at 1 is 2^-7.
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);             // tie, down to even
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);   // tie, up to even
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // above a tie
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bf16(-infinity), 0xff80);
}

TEST(HalfTest, Bf16NanStaysNan) {
  const float low_payload = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(low_payload))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(-low_payload))));
}

TEST(HalfTest, Bf16RoundTripsEveryPattern) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_bf16(value), bits);
  }
}

// Expected patterns from Python's struct format 'e'.
TEST(HalfTest, Fp16RoundsToNearestEven) {
  EXPECT_EQ(float_to_fp16(1.0f), 0x3c00);
  EXPECT_EQ(float_to_fp16(1.00048828125f), 0x3c00);  // tie, down to even
  EXPECT_EQ(float_to_fp16(1.00146484375f), 0x3c02);  // tie, up to even
  EXPECT_EQ(float_to_fp16(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);  // tie, up to infinity
  EXPECT_EQ(float_to_fp16(1e9f), 0x7c00);
  EXPECT_EQ(float_to_fp16(-infinity), 0xfc00);
  EXPECT_EQ(float_to_fp16(-0.0f), 0x8000);
}

TEST(HalfTest, Fp16SubnormalsRoundToNearestEven) {
  EXPECT_EQ(float_to_fp16(0x1p-14f), 0x0400);                 // smallest normal
  EXPECT_EQ(float_to_fp16(0x1p-24f), 0x0001);                 // smallest subnormal
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0x0000);                 // tie, down to zero
  EXPECT_EQ(float_to_fp16(0x1.000002p-25f), 0x0001);          // above the tie
  EXPECT_EQ(float_to_fp16(0x1.8p-24f), 0x0002);               // tie, up to even
  EXPECT_EQ(float_to_fp16(0x1.ffcp-15f + 0x1p-25f), 0x0400);  // tie between the last subnormal and the first normal
  EXPECT_EQ(float_to_fp16(-1e-30f), 0x8000);
}

TEST(HalfTest, Fp16RoundTripsEveryPattern) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = fp16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(fp16_to_float(float_to_fp16(value))));
      continue;
    }
    ASSERT_EQ(float_to_fp16(value), bits);
  }
}

}  // namespace
}  // namespace adamk
