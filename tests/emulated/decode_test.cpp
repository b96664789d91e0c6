// The tiny model decoded by the actual kernels, lane by lane: tokens and logits as the reference has them, and not one race.
#include "kernel_fixture.h"

namespace adamk::emulated {
namespace {

const std::vector<Variant>& variants() {
  const auto bf16 = WeightsFormat::bf16, fp16 = WeightsFormat::fp16;
  static const std::vector<Variant> all = {
      {"tagged_sm89", "l20", 2, bf16, every_input(Exchange::tagged)},
      {"tagged_sm90a", "h200", 8, bf16, every_input(Exchange::tagged)},
      {"counter_sm89", "l20", 3, fp16, every_input(Exchange::counter)},
      {"counter_sm90a", "h200", 2, bf16, every_input(Exchange::counter)},
      {"barrier_sm89", "l20", 2, bf16, every_input(Exchange::barrier)},
      {"barrier_sm90a", "h200", 2, fp16, every_input(Exchange::barrier)},
      {"mixed_sm89", "l20", 2, bf16, mixed_inputs},
      {"mixed_sm90a", "h200", 3, fp16, mixed_inputs},
      {"norm_exchanged_sm90a", "h200", 2, bf16, norm_exchanged},
      {"four_splits_sm89", "l20", 2, bf16, kv_split(4)},
      {"fused_attention_sm89", "l20", 2, bf16, attention_fused},
      {"fused_attention_barrier_sm90a", "h200", 2, bf16, both(attention_fused, every_input(Exchange::barrier))},
      {"silu_apart_sm90a", "h200", 2, bf16, silu_apart},
      {"paced_sm89", "l20", 2, bf16, paced},
      {"loop_of_2_sm89", "l20", 2, bf16, inner_loop(2, 7, 2, 4)},          // a turn is left over; chunks that touch two rounds
      {"loop_of_1_sm90a", "h200", 2, fp16, inner_loop(1, 12, 1, 1)},
      {"fragments_of_3_sm90a", "h200", 2, bf16, inner_loop(2, 5, 0, 3)},
  };
  return all;
}

/// What is left of all combinations: long, and for the nights.
std::vector<Variant> every_combination() {
  std::vector<Variant> all;
  const std::vector<std::pair<std::string, std::function<void(Plan&)>>> inputs = {
      {"tagged", every_input(Exchange::tagged)}, {"counter", every_input(Exchange::counter)},
      {"barrier", every_input(Exchange::barrier)}, {"mixed", mixed_inputs}};
  const std::vector<std::pair<std::string, std::function<void(Plan&)>>> shapes = {
      {"plain", [](Plan&) {}}, {"norm", norm_exchanged}, {"splits", both(kv_split(3), norm_exchanged)}, {"fused", attention_fused},
      {"silu", silu_apart}, {"paced", paced}};
  int number = 0;
  for (const auto& [input, change_input] : inputs)
    for (const auto& [shape, change_shape] : shapes)
      for (const char* target : {"l20", "h200"})
        for (const WeightsFormat format : {WeightsFormat::bf16, WeightsFormat::fp16})
          all.push_back({fmt::format("{}_{}_{}_{}", input, shape, target, format == WeightsFormat::bf16 ? "bf16" : "fp16"), target,
                         2 + number++ % 4, format, both(change_shape, change_input)});
  return all;
}

/// A step over random KV, then a prompt of two tokens and three more: three launches of at most three steps, epoch after epoch.
void expect_reference_tokens(const Variant& variant, std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("{}, seed {}", variant.name, seed));
  const Subject& made = subject(variant);
  auto running = start(made, seed);
  ASSERT_TRUE(running) << running.error().message;
  VerifyOptions options;
  options.positions = {37};
  options.prompt = {'O', 'n'};
  options.greedy_tokens = 3;
  options.seed = seed;
  const auto report = verify_decoder(*running->decoder, made.deployment, *made.weights, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->passed()) << report->failure;
  EXPECT_EQ(report->greedy.compared, 4);
  EXPECT_EQ(report->greedy.equal, 4);   // no near tie either
  const EmulationSummary summary = running->device->summary();
  EXPECT_EQ(summary.races, 0u);
  EXPECT_EQ(summary.launches, 3u);
}

class Decode : public KernelTest, public ::testing::WithParamInterface<Variant> {};
TEST_P(Decode, GivesTheTokensOfTheReferenceWithoutARace) { expect_reference_tokens(GetParam(), 1); }

class DecodeNightly : public KernelTest, public ::testing::WithParamInterface<Variant> {};
TEST_P(DecodeNightly, GivesTheTokensOfTheReferenceWithoutARace) {
  for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) expect_reference_tokens(GetParam(), seed);
}

using Interleavings = KernelTest;
TEST_F(Interleavings, OtherSeedsGiveTheSameBits) {
  for (const Variant& variant : {variants()[0], variants()[7]}) {
    std::vector<std::vector<float>> logits;
    std::vector<std::uint64_t> instructions;
    for (const std::uint64_t seed : {1u, 2u, 3u, 1u}) {
      auto running = start(subject(variant), seed);
      ASSERT_TRUE(running) << running.error().message;
      const std::vector<int> prompt{'O'};
      const auto tokens = running->decoder->decode_with_logits(0, prompt, 2, &logits.emplace_back());
      ASSERT_TRUE(tokens) << tokens.error().message;
      instructions.push_back(running->device->summary().warp_instructions);
    }
    EXPECT_EQ(logits[0], logits[1]);   // sums are added in one order, whoever comes first
    EXPECT_EQ(logits[0], logits[2]);
    EXPECT_NE(instructions[0], instructions[1]);   // they did wait differently
    EXPECT_EQ(instructions[0], instructions[3]);   // a seed is a schedule
  }
}

std::string name_of(const ::testing::TestParamInfo<Variant>& each) { return each.param.name; }

INSTANTIATE_TEST_SUITE_P(Kernels, Decode, ::testing::ValuesIn(variants()), name_of);
INSTANTIATE_TEST_SUITE_P(Kernels, DecodeNightly, ::testing::ValuesIn(every_combination()), name_of);

}  // namespace
}  // namespace adamk::emulated
