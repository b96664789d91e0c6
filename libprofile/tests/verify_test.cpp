// The gate with a made-up GPU: its kernel is the reference decoder itself, spoiled in one way at a time.
#include "adamk/profile/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "../../libruntime/tests/fake_device.h"
#include "adamk/dag/target.h"
#include "small_model.h"

namespace adamk {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t context = 16;
constexpr std::uint64_t seed = 9;

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = small::weights_of(deployment_.model, deployment_.weights);
    ASSERT_TRUE(loaded) << loaded.error().message;
    weights_.emplace(std::move(*loaded));
    auto made = ReferenceDecoder::create(deployment_.model, *weights_, context, 1);
    ASSERT_TRUE(made) << made.error().message;
    twin_.emplace(std::move(*made));
    device_.kernel = [this](const AdamkKernelParams& params) { launch(params); };
  }

  static Deployment deployment() {
    Deployment made{small::plain_model(), WeightsFormat::bf16, load_target("h200").value(), {}};
    made.workload.context = context;
    return made;
  }

  Recipe recipe() const {
    const Model& m = deployment_.model;
    Recipe r;
    r.arch = "sm_90a";
    r.grid = 1;
    r.threads = 32;
    r.max_steps = 3;   // so that greedy runs take several launches
    r.format = "bf16";
    r.layers = m.layers;
    r.hidden = m.hidden;
    r.heads = m.heads;
    r.kv_heads = m.kv_heads;
    r.head_dim = m.head_dim;
    r.ffn = m.ffn;
    r.vocab = m.vocab;
    r.context = context;
    r.kv_bytes = 4 * m.layers * m.kv_heads * context * m.head_dim;
    r.rope_inverse_frequencies = rope_inverse_frequencies(m);
    return r;
  }

  void launch(const AdamkKernelParams& params) {
    const auto vocab = static_cast<std::size_t>(deployment_.model.vocab);
    EXPECT_TRUE(std::isnan(params.logits[0])) << "outputs must be poisoned before every launch";
    EXPECT_EQ(params.tokens[0], -1) << "outputs must be poisoned before every launch";
    if (params.position != twin_->length()) {   // a check of one position: the KV before it must be on the device
      const std::uint64_t kv_seed = seed + static_cast<std::uint64_t>(params.position);
      const auto kv = random_kv(deployment_.model, deployment_.weights, context, kv_seed, params.position);
      EXPECT_EQ(std::memcmp(params.kv, kv.data(), kv.size() * sizeof(Half)), 0) << "KV before " << params.position;
      twin_->reset();
      ASSERT_TRUE(twin_->fill_kv(kv_seed, params.position));
    }
    int token = 0;
    for (int i = 0; i < params.steps; ++i) {
      if (i < params.given_count) token = params.given[i];
      const auto exact = twin_->step(token, params.position + i);
      ASSERT_TRUE(exact) << exact.error().message;
      std::vector<float> logits(exact->begin(), exact->end());
      token = argmax(std::span<const float>(logits));
      spoil(params.position + i, logits, token);
      std::memcpy(params.logits + static_cast<std::size_t>(i) * vocab, logits.data(), vocab * sizeof(float));
      params.tokens[i] = token;
      if (token < 0 || token >= deployment_.model.vocab) return;
    }
  }

  VerifyReport verify(VerifyOptions options) {
    options.seed = seed;
    auto decoder = Decoder::create(device_, recipe(), DecoderInputs{});
    EXPECT_TRUE(decoder) << decoder.error().message;
    auto report = verify_decoder(*decoder, deployment_, *weights_, options);
    EXPECT_TRUE(report) << report.error().message;
    VerifyReport none;
    none.failure = "no report";
    return report ? *report : none;
  }

  static VerifyOptions positions_only(std::vector<std::int64_t> positions) {
    VerifyOptions options;
    options.positions = std::move(positions);
    options.greedy_tokens = 0;
    return options;
  }
  static VerifyOptions greedy_only(std::vector<int> prompt, int tokens) {
    VerifyOptions options;
    options.positions.clear();
    options.prompt = std::move(prompt);
    options.greedy_tokens = tokens;
    return options;
  }

  Deployment deployment_ = deployment();
  std::optional<Weights> weights_;
  std::optional<ReferenceDecoder> twin_;
  testing::FakeDevice device_;
  std::function<void(std::int64_t position, std::vector<float>& logits, int& token)> spoil = [](auto, auto&, auto&) {};
};

TEST_F(VerifyTest, AnExactKernelPasses) {
  VerifyOptions options;
  options.positions = {0, 5, 15};
  options.prompt = {3, 0, 7, 7, 10};   // longer than a launch
  options.greedy_tokens = 8;
  const VerifyReport report = verify(options);
  EXPECT_TRUE(report.passed()) << report.failure;
  ASSERT_EQ(report.positions.size(), 3u);
  for (const PositionVerdict& each : report.positions) EXPECT_LT(each.logits.relative_l2, 1e-6);
  EXPECT_EQ(report.greedy.compared, 12);
  EXPECT_EQ(report.greedy.equal, 12);
  EXPECT_EQ(report.tolerance, 10.0 / 256);
}

TEST_F(VerifyTest, RandomWeightsAreHeldToTheTighterBound) {
  VerifyOptions options = positions_only({0});
  options.origin = WeightsOrigin::random;
  EXPECT_NEAR(verify(options).tolerance, (1 + 1.6 * std::sqrt(2.0)) / 256, 1e-12);
}

TEST_F(VerifyTest, WrongLogitsAtOnePositionAreNamed) {
  spoil = [](std::int64_t position, std::vector<float>& logits, int&) {
    for (float& logit : logits) logit *= position == 5 ? 1.05f : 1.01f;   // 5 % is above the tolerance of 3.9 %, 1 % below
  };
  const VerifyReport report = verify(positions_only({0, 5, 15}));
  EXPECT_THAT(report.failure, HasSubstr("position 5: relative error 0.05"));
  EXPECT_EQ(report.positions.size(), 3u);
}

TEST_F(VerifyTest, AnUnwrittenLogitIsNamedHoweverSmall) {
  spoil = [](std::int64_t, std::vector<float>& logits, int&) { logits[10] = std::nanf(""); };
  EXPECT_THAT(verify(positions_only({0})).failure, HasSubstr("position 0: 1 logits were never written"));
  EXPECT_THAT(verify(greedy_only({1}, 2)).failure, HasSubstr("greedy, position 0: 1 logits were never written"));
}

TEST_F(VerifyTest, AChoiceThatIsNotTheArgmaxOfItsOwnLogitsIsNamed) {
  spoil = [](std::int64_t, std::vector<float>&, int& token) { token = (token + 1) % 11; };
  EXPECT_THAT(verify(positions_only({5})).failure, HasSubstr("position 5: the kernel chose token"));
  EXPECT_THAT(verify(greedy_only({1}, 2)).failure, HasSubstr("greedy, position 0: the kernel chose token"));
}

TEST_F(VerifyTest, AChoiceOutsideTheVocabularyEndsTheGreedyRunInAReport) {
  spoil = [](std::int64_t position, std::vector<float>&, int& token) { token = position == 2 ? -1 : token; };
  EXPECT_THAT(verify(greedy_only({1}, 8)).failure, HasSubstr("greedy, position 2: "));
}

/// The runner-up is lifted just above the best: the error is the gap and a little, so the gap is below twice the error.
TEST_F(VerifyTest, ANearTieIsListedAndTheRunGoesOn) {
  std::int64_t tied = -1;
  double gap = 0;
  spoil = [&](std::int64_t position, std::vector<float>& logits, int& token) {
    if (position != 3) return;
    const auto best = static_cast<std::size_t>(token);
    std::size_t second = best == 0 ? 1 : 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (i != best && logits[i] > logits[second]) second = i;
    }
    tied = position;
    gap = logits[best] - logits[second];
    logits[second] = logits[best] + 0.01f;
    token = static_cast<int>(second);
  };
  const VerifyReport report = verify(greedy_only({3, 0, 7, 7}, 6));
  ASSERT_EQ(tied, 3);
  ASSERT_FALSE(report.greedy.near_ties.empty());
  EXPECT_EQ(report.greedy.near_ties.front().position, 3);
  EXPECT_NEAR(report.greedy.near_ties.front().gap, gap, 1e-5);
  EXPECT_EQ(report.greedy.compared, 9);
  EXPECT_EQ(report.greedy.equal, 8);
  EXPECT_TRUE(report.greedy.passed()) << report.greedy.reason;
}

TEST_F(VerifyTest, WhatDoesNotFitTheContextIsRefusedNotCut) {
  auto decoder = Decoder::create(device_, recipe(), DecoderInputs{});
  ASSERT_TRUE(decoder) << decoder.error().message;
  for (const VerifyOptions& options : {positions_only({16}), positions_only({-1}), greedy_only({1, 2}, 16)}) {
    const auto report = verify_decoder(*decoder, deployment_, *weights_, options);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, Errc::bad_input);
    EXPECT_THAT(report.error().message, HasSubstr("context of 16"));
  }
}

TEST_F(VerifyTest, AFailureOfTheDeviceIsAnErrorNotAVerdict) {
  auto decoder = Decoder::create(device_, recipe(), DecoderInputs{});
  ASSERT_TRUE(decoder);
  device_.failing_call = device_.calls + 5;
  const auto report = verify_decoder(*decoder, deployment_, *weights_, positions_only({0}));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::machine);
}

}  // namespace
}  // namespace adamk
