#include "adamk/runtime/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fake_device.h"
#include "sample_recipe.h"

namespace adamk {
namespace {

using ::testing::HasSubstr;
using adamk::testing::FakeDevice;
using adamk::testing::sample_recipe;
using adamk::testing::SampleInputs;

/// Writes token 3, 4, 5, ... and, where asked for, logits equal to the step's number.
void counting_kernel(const AdamkKernelParams& params) {
  for (int step = 0; step < params.steps; ++step) {
    params.tokens[step] = 3 + step;
    if (params.logits == nullptr) continue;
    for (int i = 0; i < 10; ++i) params.logits[step * 10 + i] = static_cast<float>(step);
  }
}

class DecoderTest : public ::testing::Test {
 protected:
  Decoder make(const Recipe& recipe = sample_recipe()) {
    auto decoder = Decoder::create(device, recipe, inputs.view());
    EXPECT_TRUE(decoder.has_value()) << decoder.error().message;
    return std::move(*decoder);
  }
  FakeDevice device;
  SampleInputs inputs;
};

TEST_F(DecoderTest, RefusesPositionsStepsAndTokensOutOfBounds) {
  Decoder decoder = make();
  const std::vector<int> one{1}, two{1, 2}, outside{1, 10}, negative{-1}, none;
  struct Case {
    std::int64_t position;
    std::vector<int> given;
    int steps;
    const char* names;
  };
  for (const Case& each : {Case{-1, one, 1, "position: -1"}, Case{16, one, 1, "position: 16"},
                           Case{13, one, 4, "position: 13"}, Case{0, one, 0, "steps: 0"}, Case{0, one, 5, "steps: 5"},
                           Case{0, none, 1, "given: 0 tokens"}, Case{0, two, 1, "given: 2 tokens"},
                           Case{0, outside, 2, "given[1]: token 10"}, Case{0, negative, 1, "given[0]: token -1"}}) {
    auto result = decoder.decode(each.position, each.given, each.steps);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Errc::bad_input);
    EXPECT_THAT(result.error().message, HasSubstr(each.names));
  }
  EXPECT_TRUE(device.launches.empty());
  EXPECT_EQ(decoder.epoch(), 0u);
  EXPECT_TRUE(decoder.decode(12, one, 4).has_value()) << "the last four positions are in bounds";
}

TEST_F(DecoderTest, EpochAdvancesByTheStepsOfEveryLaunch) {
  Decoder decoder = make();
  const std::vector<int> given{1};
  ASSERT_TRUE(decoder.decode(0, given, 3).has_value());
  ASSERT_TRUE(decoder.decode(3, given, 1).has_value());
  ASSERT_TRUE(decoder.time_launches_us(4, given, 4, 2).has_value());
  std::vector<float> logits;
  ASSERT_TRUE(decoder.decode_with_logits(0, given, 2, &logits).has_value());
  std::vector<unsigned> epochs;
  for (const AdamkKernelParams& launch : device.launches) epochs.push_back(launch.epoch);
  EXPECT_EQ(epochs, (std::vector<unsigned>{0, 3, 4, 8, 12}));
  EXPECT_EQ(decoder.epoch(), 14u);
}

TEST_F(DecoderTest, PassesWhatTheKernelReads) {
  Decoder decoder = make();
  decoder.set_watchdog_ms(5);
  std::vector<int> seen;
  device.kernel = [&](const AdamkKernelParams& params) {
    seen.assign(params.given, params.given + params.given_count);
    EXPECT_EQ(std::memcmp(params.weights, inputs.packed.data(), 64), 0);
    EXPECT_EQ(std::memcmp(params.small_tensors, inputs.small.data(), 32), 0);
    EXPECT_EQ(std::memcmp(params.embedding, inputs.embedding.data(), 160), 0);
    const auto* kv = static_cast<const unsigned char*>(params.kv);
    const auto* workspace = static_cast<const unsigned char*>(params.workspace);
    EXPECT_EQ(std::count(kv, kv + 512, 0), 512);
    EXPECT_EQ(std::count(workspace, workspace + 256, 0), 256);
    // Position 5, pair 1: angle 0.05.
    EXPECT_FLOAT_EQ(params.rope[(5 * 2 + 1) * 2], 0.99875026F);
    EXPECT_FLOAT_EQ(params.rope[(5 * 2 + 1) * 2 + 1], 0.04997917F);
    EXPECT_EQ(params.logits, nullptr);
    EXPECT_EQ(params.position, 6);
    EXPECT_EQ(params.steps, 3);
    EXPECT_EQ(params.watchdog_clocks, 5000000) << "5 ms at 1 GHz";
  };
  ASSERT_TRUE(decoder.decode(6, std::vector<int>{7, 2}, 3).has_value());
  EXPECT_EQ(seen, (std::vector<int>{7, 2}));
  EXPECT_EQ(device.last_shape.grid, 4);
  EXPECT_EQ(device.last_shape.threads, 128);
  EXPECT_EQ(device.last_shape.smem, 1024);
  EXPECT_TRUE(device.last_shape.cooperative);
}

TEST_F(DecoderTest, ReturnsTokensAndLogitsOfEveryStep) {
  Decoder decoder = make();
  device.kernel = counting_kernel;
  std::vector<float> logits;
  auto tokens = decoder.decode_with_logits(0, std::vector<int>{1}, 3, &logits);
  ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
  EXPECT_EQ(*tokens, (std::vector<int>{3, 4, 5}));
  ASSERT_EQ(logits.size(), 30u);
  EXPECT_EQ(logits[9], 0.0F);
  EXPECT_EQ(logits[29], 2.0F);
}

TEST_F(DecoderTest, PoisonShowsElementsThatNoKernelWrote) {
  Decoder decoder = make();
  ASSERT_TRUE(decoder.poison_outputs().has_value());
  std::vector<float> logits;
  auto tokens = decoder.decode_with_logits(0, std::vector<int>{1}, 1, &logits);  // the kernel does nothing
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->at(0), -1);
  for (const float value : logits) EXPECT_TRUE(std::isnan(value));
}

TEST_F(DecoderTest, WatchdogReportBecomesTheErrorAndEndsTheDecoder) {
  Decoder decoder = make();
  device.kernel = [](const AdamkKernelParams& params) {
    const unsigned words[ADAMK_REPORT_WORDS] = {1, 12, 1, 3, 3, 0, 7, 6};
    std::memcpy(params.report, words, sizeof words);
  };
  auto result = decoder.decode(0, std::vector<int>{1}, 1);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Errc::machine);
  EXPECT_EQ(result.error().message,
            "watchdog: SM 12, role consumer, stage gate_up, layer 3, step 0: waited for tag 7, saw 6");
  auto again = decoder.decode(0, std::vector<int>{1}, 1);
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().message, HasSubstr("cannot be used after a failed launch: watchdog: SM 12"));
  EXPECT_EQ(device.launches.size(), 1u);
}

TEST_F(DecoderTest, OneLaunchCanBeOutstanding) {
  Decoder decoder = make();
  device.kernel = counting_kernel;
  const std::vector<int> given{1};
  EXPECT_FALSE(decoder.finish().has_value());
  ASSERT_TRUE(decoder.enqueue(0, given, 2).has_value());
  auto second = decoder.enqueue(2, given, 2);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("finish()"));
  auto tokens = decoder.finish();
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(*tokens, (std::vector<int>{3, 4}));
  EXPECT_TRUE(decoder.enqueue(2, given, 2).has_value());
}

TEST_F(DecoderTest, RefusesAGridThatCannotBeResident) {
  Recipe recipe = sample_recipe();
  recipe.grid = 5;
  auto decoder = Decoder::create(device, recipe, inputs.view());
  ASSERT_FALSE(decoder.has_value());
  EXPECT_EQ(decoder.error().code, Errc::infeasible);
  EXPECT_THAT(decoder.error().message, HasSubstr("needs 5 blocks resident at once; Fake GPU holds 4"));
  EXPECT_EQ(device.live(), 0);
}

TEST_F(DecoderTest, RefusesAKernelForAnotherArchitectureBeforeAnyUpload) {
  device.mutable_info().sm = 89;
  auto decoder = Decoder::create(device, sample_recipe(), inputs.view());
  ASSERT_FALSE(decoder.has_value());
  EXPECT_THAT(decoder.error().message, HasSubstr("sm_90a"));
  EXPECT_THAT(decoder.error().message, HasSubstr("sm_89"));
  EXPECT_EQ(device.calls, 0);
}

TEST_F(DecoderTest, RefusesInputsOfAnotherSizeThanTheRecipeStates) {
  inputs.packed.pop_back();
  auto decoder = Decoder::create(device, sample_recipe(), inputs.view());
  ASSERT_FALSE(decoder.has_value());
  EXPECT_EQ(decoder.error().message, "packed weights: 63 bytes, the recipe says 64");
}

TEST_F(DecoderTest, ReleasesEverythingOnDestruction) {
  {
    Decoder decoder = make();
    EXPECT_GT(device.live(), 0);
    ASSERT_TRUE(decoder.enqueue(0, std::vector<int>{1}, 1).has_value());
  }
  EXPECT_EQ(device.live(), 0);
}

TEST_F(DecoderTest, AFailureAtAnyCallOfCreationLeavesNothingBehind) {
  { Decoder decoder = make(); }
  const int calls = device.calls;
  ASSERT_GT(calls, 15);
  for (int failing = 0; failing < calls; ++failing) {
    device.calls = 0;
    device.failing_call = failing;
    {
      auto decoder = Decoder::create(device, sample_recipe(), inputs.view());
      ASSERT_FALSE(decoder.has_value()) << "call " << failing;
      EXPECT_THAT(decoder.error().message, HasSubstr("fake failure"));
    }
    EXPECT_EQ(device.live(), 0) << "call " << failing;
  }
}

TEST_F(DecoderTest, AFailureAtAnyCallOfADecodeLeavesNothingBehind) {
  for (int failing = 0; failing < 4; ++failing) {  // upload, launch, synchronize, download
    {
      device.failing_call = -1;
      Decoder decoder = make();
      device.calls = 0;
      device.failing_call = failing;
      EXPECT_FALSE(decoder.decode(0, std::vector<int>{1}, 1).has_value()) << "call " << failing;
    }
    EXPECT_EQ(device.live(), 0) << "call " << failing;
  }
}

TEST_F(DecoderTest, WeightsAreSharedAndOutliveTheDecoderThatCameFirst) {
  auto weights = Decoder::upload_weights(device, inputs.view());
  ASSERT_TRUE(weights.has_value());
  auto first = Decoder::create(device, sample_recipe(), inputs.image, *weights);
  auto second = Decoder::create(device, sample_recipe(), inputs.image, *weights);
  ASSERT_TRUE(first.has_value() && second.has_value());
  const DeviceAddress packed = (*weights)->packed;
  weights->reset();
  { Decoder gone = std::move(*first); }
  ASSERT_TRUE(second->decode(0, std::vector<int>{1}, 1).has_value());
  EXPECT_EQ(reinterpret_cast<DeviceAddress>(device.launches.back().weights), packed);
  { Decoder gone = std::move(*second); }
  EXPECT_EQ(device.live(), 0);
}

TEST_F(DecoderTest, ACallersKvIsUsedAsItIsAndNotReleased) {
  auto kv = device.allocate(512);
  ASSERT_TRUE(kv.has_value());
  {
    auto decoder = Decoder::create(device, sample_recipe(), inputs.view(), DecoderOptions{*kv});
    ASSERT_TRUE(decoder.has_value());
    ASSERT_TRUE(decoder->decode(0, std::vector<int>{1}, 1).has_value());
    EXPECT_EQ(reinterpret_cast<DeviceAddress>(device.launches.back().kv), *kv);
    std::vector<std::byte> read(512);
    ASSERT_TRUE(decoder->read_kv(read).has_value());
    EXPECT_EQ(read[0], std::byte{0xA5}) << "not cleared";
  }
  EXPECT_EQ(device.live(), 1);
}

TEST_F(DecoderTest, KvIsWrittenAndReadWhole) {
  Decoder decoder = make();
  std::vector<std::byte> kv(512, std::byte{9}), back(512), shorter(511);
  ASSERT_TRUE(decoder.write_kv(kv).has_value());
  ASSERT_TRUE(decoder.read_kv(back).has_value());
  EXPECT_EQ(kv, back);
  EXPECT_FALSE(decoder.write_kv(shorter).has_value());
}

}  // namespace
}  // namespace adamk
