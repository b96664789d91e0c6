// Defects seeded in the PTX of real kernels: each must be found, as a race, a deadlock, a fault or a wrong result.
#include <map>

#include "defects.h"
#include "kernel_fixture.h"

namespace adamk::emulated {
namespace {

struct Outcome {
  std::string found;   // "race", "deadlock", "fault", "wrong"; empty: nothing
  std::string words;
};

struct Logits {
  std::vector<float> first, second;
  bool operator==(const Logits&) const = default;
};

/// Two launches of two steps each from an empty cache.
Result<Logits> decode(Running& running) {
  Logits logits;
  const std::vector<int> prompt{'O', 'n'};
  ADAMK_TRY(const std::vector<int> first, running.decoder->decode_with_logits(0, prompt, 2, &logits.first));
  ADAMK_CHECK(running.decoder->decode_with_logits(2, std::span(first).last(1), 2, &logits.second));
  return logits;
}

/// What the kernel does when nothing is wrong with it: how much, and which bits.
struct Sound {
  Logits logits;
  std::uint64_t warp_instructions = 0;
};
const Sound& sound(const Variant& variant) {
  static std::map<std::string, Sound> known;
  const auto found = known.find(variant.name);
  if (found != known.end()) return found->second;
  auto running = start(subject(variant), 1);
  EXPECT_TRUE(running) << running.error().message;
  auto logits = decode(*running);
  EXPECT_TRUE(logits) << logits.error().message;
  return known.emplace(variant.name, Sound{logits.value_or(Logits{}), running->device->summary().warp_instructions}).first->second;
}

/// The first thing that shows under any of so many seeds.
Outcome run_defect(const Variant& variant, const std::string& ptx, int seeds) {
  const Sound& expected = sound(variant);
  for (int seed = 1; seed <= seeds; ++seed) {
    auto running = start(subject(variant), static_cast<std::uint64_t>(seed), ptx,
                         [&](EmulatedDeviceOptions& options) { options.most_instructions = 20 * expected.warp_instructions; });
    if (!running) return {"refused", running.error().message};
    const auto logits = decode(*running);
    if (logits && *logits == expected.logits) continue;
    if (logits) return {"wrong", "logits differ"};
    const std::string& words = logits.error().message;
    if (words.starts_with("data race")) return {"race", words};
    if (words.starts_with("deadlock") || words.starts_with("watchdog")) return {"deadlock", words};
    return {"fault", words};
  }
  return {};
}

std::vector<Variant> swept() {
  const auto bf16 = WeightsFormat::bf16;
  return {{"counter_sm90a", "h200", 2, bf16, every_input(Exchange::counter)},
          {"barrier_sm89", "l20", 2, bf16, every_input(Exchange::barrier)},
          {"tagged_sm89", "l20", 2, bf16, every_input(Exchange::tagged)},
          {"fused_attention_sm89", "l20", 2, bf16, attention_fused}};
}

class SweepNightly : public KernelTest, public ::testing::WithParamInterface<Variant> {};

TEST_P(SweepNightly, EverySiteOfEveryKindIsFound) {
  const Variant& variant = GetParam();
  for (const std::string& kind : defect_kinds()) {
    std::map<std::string, int> counts;
    for (const Defect& defect : defects_of(subject(variant).kernel.ptx, kind)) {
      const Outcome outcome = run_defect(variant, defect.ptx, 3);
      ++counts[outcome.found];
      if (outcome.found.empty()) fmt::print("MISSED {}: line {}: {}\n", kind, defect.line, defect.instruction);
    }
    for (const auto& [found, count] : counts) fmt::print("{} | {} | {} | {}\n", variant.name, kind, found, count);
    std::fflush(stdout);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SweepNightly, ::testing::ValuesIn(swept()),
                         [](const ::testing::TestParamInfo<Variant>& each) { return each.param.name; });

}  // namespace
}  // namespace adamk::emulated
