#include "adamk/profile/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "small_model.h"

namespace adamk {
namespace {

const float poison = std::numeric_limits<float>::quiet_NaN();

TEST(CompareLogits, FiguresAreThoseOfTheDefinition) {
  const float got[] = {3.0f, 1.0f, -2.0f};
  const double want[] = {3.0, 0.0, -4.0};   // |want| = 5, |got - want| = sqrt(1 + 4)
  const LogitComparison c = compare_logits(got, want);
  EXPECT_DOUBLE_EQ(c.relative_l2, std::sqrt(5.0) / 5);
  EXPECT_DOUBLE_EQ(c.max_abs_error, 2.0);
  EXPECT_DOUBLE_EQ(c.top2_gap, 3.0);
  EXPECT_EQ(c.argmax_got, 0);
  EXPECT_EQ(c.argmax_want, 0);
  EXPECT_EQ(c.unwritten, 0u);
  EXPECT_TRUE(c.within(0.448));
  EXPECT_FALSE(c.within(0.447));
}

TEST(CompareLogits, UnwrittenElementsNeverPass) {
  const double want[] = {1.0, 2.0, 3.0};
  const float poisoned[] = {1.0f, poison, 3.0f};
  EXPECT_EQ(compare_logits(poisoned, want).unwritten, 1u);
  EXPECT_FALSE(compare_logits(poisoned, want).within(1e30));
  const float infinite[] = {1.0f, 2.0f, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(compare_logits(infinite, want).unwritten, 1u);
  const float few[] = {1.0f};
  EXPECT_EQ(compare_logits(few, want).unwritten, 2u);
}

TEST(CompareLogits, TheFirstOfEqualsIsTheArgmaxAndNanNeverWins) {
  const float values[] = {poison, 1.0f, 5.0f, 5.0f};
  EXPECT_EQ(argmax(values), 2);
  const double equal[] = {2.0, 2.0};
  EXPECT_EQ(argmax(equal), 0);
  const float same[] = {2.0f, 2.0f};
  EXPECT_DOUBLE_EQ(compare_logits(same, equal).top2_gap, 0.0);
}

/// Decodes the small model with the reference and keeps what a faultless kernel would report.
struct Recording {
  std::vector<std::vector<float>> logits;
  std::vector<GreedyStep> steps;
};

class Greedy : public testing::Test {
 protected:
  void SetUp() override {
    model_ = small::full_model();
    auto weights = small::weights_of(model_, WeightsFormat::bf16);
    ASSERT_TRUE(weights) << weights.error().message;
    auto decoder = ReferenceDecoder::create(model_, *weights, 64, 1);
    ASSERT_TRUE(decoder) << decoder.error().message;
    reference_ = std::make_unique<ReferenceDecoder>(std::move(*decoder));
  }

  Recording faultless(int count) {
    Recording recording;
    int token = 3;
    for (int position = 0; position < count; ++position) {
      const auto logits = reference_->step(token, position).value();
      recording.logits.emplace_back(logits.begin(), logits.end());
      const int next = argmax(logits);
      recording.steps.push_back({token, position, next, {}});
      token = next;
    }
    for (std::size_t i = 0; i < recording.steps.size(); ++i) recording.steps[i].logits = recording.logits[i];
    reference_->reset();
    return recording;
  }

  Model model_;
  std::unique_ptr<ReferenceDecoder> reference_;
};

TEST_F(Greedy, AFaultlessKernelPassesEveryStep) {
  const Recording r = faultless(6);
  const auto report = check_greedy(*reference_, r.steps);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->passed());
  EXPECT_EQ(report->compared, 6);
  EXPECT_EQ(report->equal, 6);
  EXPECT_LT(report->worst.relative_l2, 1e-6);
}

TEST_F(Greedy, AWrongTokenIsAMismatchAtItsPosition) {
  Recording r = faultless(6);
  r.steps[4].chosen = (r.steps[4].chosen + 1) % model_.vocab;
  r.steps[4].logits = {};
  const auto report = check_greedy(*reference_, r.steps, 1e-4);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->passed());
  EXPECT_EQ(report->mismatch, 4);
  EXPECT_EQ(report->compared, 5);
}

TEST_F(Greedy, ANearTieIsListedAndCheckingGoesOnWithTheKernelsToken) {
  // small_model.py, "full", third step: 2.394 (token 8) before 1.613 (token 4), 0.7809 apart.
  Recording r = faultless(3);
  const int inputs[] = {3, 0, 7};
  for (int i = 0; i < 3; ++i) {
    const auto logits = reference_->step(inputs[i], i).value();
    r.logits[static_cast<std::size_t>(i)].assign(logits.begin(), logits.end());
    r.steps[static_cast<std::size_t>(i)] = {inputs[i], i, argmax(logits), {}};
  }
  const auto after = reference_->step(4, 3).value();   // the kernel's token is what comes next
  r.steps.push_back({4, 3, argmax(after), {}});
  reference_->reset();

  r.steps[2].chosen = 4;
  const auto passing = check_greedy(*reference_, r.steps, 0.40);   // twice 0.40 > 0.7809
  ASSERT_TRUE(passing);
  EXPECT_TRUE(passing->passed()) << passing->reason;
  EXPECT_EQ(passing->compared, 4);
  EXPECT_EQ(passing->equal, 3);
  const auto at = std::find_if(passing->near_ties.begin(), passing->near_ties.end(),
                               [](const NearTie& tie) { return tie.position == 2; });
  ASSERT_NE(at, passing->near_ties.end());
  EXPECT_NEAR(at->gap, 2.39401544871 - 1.61311924655, 1e-9);
  EXPECT_EQ(at->reference, 8);
  EXPECT_EQ(at->chosen, 4);

  reference_->reset();
  const auto failing = check_greedy(*reference_, r.steps, 0.39);   // twice 0.39 < 0.7809
  ASSERT_TRUE(failing);
  EXPECT_EQ(failing->mismatch, 2);
}

TEST_F(Greedy, ATieDoesNotExcuseAThirdToken) {
  Recording r = faultless(1);
  r.steps[0] = {3, 0, 2, {}};   // token 2 is the lowest logit of all
  const auto report = check_greedy(*reference_, r.steps, 0.2);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->mismatch, 0);
}

TEST_F(Greedy, TheChoiceMustBeTheArgmaxOfTheKernelsOwnLogits) {
  Recording r = faultless(2);
  r.steps[1].chosen = (r.steps[1].chosen + 1) % model_.vocab;
  const auto report = check_greedy(*reference_, r.steps);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->mismatch, 1);
  EXPECT_NE(report->reason.find("its own largest logit"), std::string::npos);
}

TEST_F(Greedy, PoisonLeftInTheLogitsIsAMismatch) {
  Recording r = faultless(2);
  r.logits[0][5] = poison;
  const auto report = check_greedy(*reference_, r.steps);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->mismatch, 0);
}

TEST(LogitTolerance, IsTheStatedMultipleOfTheUnitRoundoff) {
  Model model;
  model.layers = 25;   // 1 + 1.6 x 5 = 9
  EXPECT_DOUBLE_EQ(logit_tolerance(model, WeightsFormat::bf16), 10.0 / 256);
  EXPECT_DOUBLE_EQ(logit_tolerance(model, WeightsFormat::bf16, WeightsOrigin::random), 9.0 / 256);
  EXPECT_DOUBLE_EQ(logit_tolerance(model, WeightsFormat::fp16, WeightsOrigin::random), 9.0 / 2048);
  model.layers = 100;   // 1 + 1.6 x 10 = 17
  EXPECT_DOUBLE_EQ(logit_tolerance(model, WeightsFormat::fp16), 17.0 / 2048);
}

/// A kernel that accumulates exactly and rounds what it publishes must pass, with a margin for its own accumulation order; a
/// bound far above that would let faults through.
TEST(LogitTolerance, LiesJustAboveWhatRoundedActivationsCost) {
  for (const int layers : {2, 8, 24}) {
    Model model = small::full_model();
    model.hidden = 128;
    model.heads = 8;
    model.kv_heads = 4;
    model.head_dim = 16;
    model.ffn = 256;
    model.vocab = 500;
    model.layers = layers;
    for (const auto format : {WeightsFormat::bf16, WeightsFormat::fp16}) {
      const auto weights = Weights::random(model, format, 11);
      ASSERT_TRUE(weights);
      auto exact = ReferenceDecoder::create(model, *weights, 64);
      auto rounded = ReferenceDecoder::create(model, *weights, 64, 0, Rounding::activations);
      ASSERT_TRUE(exact && rounded);
      ASSERT_TRUE(exact->fill_kv(1, 40) && rounded->fill_kv(1, 40));
      double worst = 0;
      for (int i = 0; i < 6; ++i) {
        const auto want = exact->step(i * 37, 40 + i).value();
        const auto got = rounded->step(i * 37, 40 + i).value();
        worst = std::max(worst, compare_logits(std::vector<float>(got.begin(), got.end()), want).relative_l2);
      }
      const double tolerance = logit_tolerance(model, format, WeightsOrigin::random);
      RecordProperty((format == WeightsFormat::bf16 ? "bf16_" : "fp16_") + std::to_string(layers),
                     std::to_string(worst / tolerance));
      EXPECT_LT(worst, tolerance / 1.5) << layers;
      EXPECT_GT(worst, tolerance / 8) << layers;
    }
  }
}

}  // namespace
}  // namespace adamk
