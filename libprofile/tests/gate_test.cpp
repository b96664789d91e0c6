// The gate over a made-up kernel: the reference decoder itself, spoiled in one way at a time.
#include "gate.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "../../libruntime/tests/fake_device.h"
#include "small_model.h"

namespace adamk {
namespace {

Workload workload(std::int64_t context, int steps_per_launch) {
  Workload w;
  w.context = context;
  w.steps_per_launch = steps_per_launch;
  return w;
}

std::vector<int> steps_of(const std::vector<CheckedLaunch>& launches) {
  std::vector<int> steps;
  for (const CheckedLaunch& launch : launches) steps.push_back(launch.steps);
  return steps;
}

TEST(CheckedLaunches, several_tokens_are_decoded_at_the_last_position_with_room) {
  const std::vector<std::int64_t> positions{0, 64, 255};
  EXPECT_EQ(steps_of(checked_launches(positions, workload(2048, 32))), (std::vector<int>{1, 1, 4}));
  // 255 is the last position of 256: a single step, so position 64 takes the launch of several.
  EXPECT_EQ(steps_of(checked_launches(positions, workload(256, 32))), (std::vector<int>{1, 4, 1}));
}

TEST(CheckedLaunches, are_no_longer_than_a_launch_or_the_context) {
  const std::vector<std::int64_t> positions{0, 1};
  EXPECT_EQ(steps_of(checked_launches(positions, workload(3, 32))), (std::vector<int>{3, 1}));
  EXPECT_EQ(steps_of(checked_launches(positions, workload(64, 2))), (std::vector<int>{1, 2}));
  EXPECT_TRUE(checked_launches({}, workload(64, 2)).empty());
}

constexpr std::int64_t context = 64;
constexpr std::uint64_t seed = 5;

struct Gate : ::testing::Test {
  void SetUp() override {
    deployment.model = small::plain_model();
    deployment.workload = workload(context, 8);
    auto read = small::weights_of(deployment.model, WeightsFormat::bf16);
    ASSERT_TRUE(read) << read.error().message;
    weights = std::move(*read);
    auto made = ReferenceLogits::create(deployment, *weights, WeightsOrigin::trained, seed);
    ASSERT_TRUE(made) << made.error().message;
    reference = std::move(*made);
    auto second = ReferenceDecoder::create(deployment.model, *weights, context, 1);
    ASSERT_TRUE(second);
    truth = std::move(*second);
    const std::vector<std::int64_t> positions{0, 9, 63};
    launches = checked_launches(positions, deployment.workload);
    device.kernel = [this](const AdamkKernelParams& params) { kernel(params); };

    Recipe recipe;
    recipe.arch = "sm_90a";
    recipe.grid = 4;
    recipe.threads = 128;
    recipe.max_steps = 8;
    recipe.vocab = deployment.model.vocab;
    recipe.context = context;
    recipe.kv_bytes = static_cast<std::int64_t>(reference->kv().size());
    recipe.rope_inverse_frequencies = {1.0, 0.01};
    auto created = Decoder::create(device, recipe, std::span<const std::byte>(),
                                   std::make_shared<Decoder::DeviceWeights>());
    ASSERT_TRUE(created) << created.error().message;
    decoder = std::move(*created);
  }

  /// What a correct kernel writes, then the fault.
  void kernel(const AdamkKernelParams& params) {
    truth->reset();
    ASSERT_TRUE(truth->fill_kv(seed, params.position));
    int token = params.given[0];
    for (int step = 0; step < params.steps; ++step) {
      if (forgets_what_it_appended && step > 0) {
        truth->reset();
        ASSERT_TRUE(truth->fill_kv(seed, params.position + step));
      }
      const auto logits = truth->step(token, params.position + step);
      ASSERT_TRUE(logits) << logits.error().message;
      token = argmax(*logits);
      float* out = params.logits + step * deployment.model.vocab;
      for (std::size_t i = 0; i < logits->size(); ++i) out[i] = static_cast<float>((*logits)[i] * scale);
      params.tokens[step] = token;
    }
    spoil(params);
  }

  Deployment deployment;
  std::optional<Weights> weights;
  std::optional<ReferenceLogits> reference;
  std::optional<ReferenceDecoder> truth;
  std::vector<CheckedLaunch> launches;
  adamk::testing::FakeDevice device;
  std::optional<Decoder> decoder;
  bool forgets_what_it_appended = false;
  double scale = 1;
  std::function<void(const AdamkKernelParams&)> spoil = [](const AdamkKernelParams&) {};
};

TEST_F(Gate, passes_a_kernel_that_computes_what_the_reference_does) {
  const auto result = check_decoder(*decoder, *reference, launches);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->passed) << result->message;
  EXPECT_TRUE(result->verdict.checked);
  EXPECT_EQ(result->verdict.positions, 3);
  EXPECT_EQ(result->verdict.tokens, 1 + 4 + 1);
  EXPECT_LT(result->verdict.max_error, 1e-6);
  EXPECT_DOUBLE_EQ(result->verdict.tolerance, 10.0 / 256);
  EXPECT_TRUE(check_again(*decoder, *reference, launches)->passed);
}

TEST_F(Gate, stops_a_kernel_that_forgets_the_keys_it_appended) {
  forgets_what_it_appended = true;
  const auto result = check_decoder(*decoder, *reference, launches);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->passed);
  EXPECT_NE(result->message.find("position 9, step 1 of the launch"), std::string::npos) << result->message;
}

TEST_F(Gate, stops_logits_beyond_the_tolerance) {
  scale = 1.05;   // 5 % off everywhere; 3.9 % are allowed
  const auto result = check_decoder(*decoder, *reference, launches);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->passed);
  EXPECT_NEAR(result->verdict.max_error, 0.05, 1e-6);
}

TEST_F(Gate, stops_an_element_left_unwritten) {
  std::uint32_t poison = 0;
  device.kernel = [&](const AdamkKernelParams& params) {
    std::memcpy(&poison, params.logits + 3, sizeof poison);   // as it was before the launch
    kernel(params);
    std::memcpy(params.logits + 3, &poison, sizeof poison);
  };
  const auto result = check_decoder(*decoder, *reference, launches);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->passed);
  EXPECT_NE(result->message.find("1 logits were not written"), std::string::npos) << result->message;
}

TEST_F(Gate, stops_a_token_that_is_not_the_argmax_of_its_own_logits) {
  spoil = [](const AdamkKernelParams& params) { params.tokens[0] = (params.tokens[0] + 1) % 11; };
  const auto result = check_decoder(*decoder, *reference, launches);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->passed);
  EXPECT_NE(result->message.find("its own logits' argmax"), std::string::npos) << result->message;
}

TEST_F(Gate, sees_after_timing_what_went_wrong_since) {
  EXPECT_TRUE(check_decoder(*decoder, *reference, launches)->passed);
  forgets_what_it_appended = true;
  EXPECT_FALSE(check_again(*decoder, *reference, launches)->passed);
}

TEST_F(Gate, what_was_prepared_is_not_computed_again) {
  ASSERT_TRUE(reference->prepare(launches));
  const auto first = reference->after(9, {reference->first_token(9)});
  ASSERT_TRUE(first);
  // The same from a decoder of one's own: the KV fill and the token are the same for every candidate.
  ASSERT_TRUE(truth->fill_kv(seed, 9));
  EXPECT_EQ(*first, *truth->step(reference->first_token(9), 9));
}

}  // namespace
}  // namespace adamk
