// How fast the emulator is: warp instructions a second of processor time, with and without the race detector. A figure for
// docs/trust.md, not a limit: machines differ.
#include <ctime>

#include "kernel_fixture.h"

namespace adamk::emulated {
namespace {

struct Measured {
  std::uint64_t warp_instructions = 0;
  double seconds = 0;   // the best of the repetitions
};

/// A launch of three steps: a prompt of two tokens, and two that follow.
Measured measure(const Variant& variant, bool detect_races, int repetitions) {
  Measured best;
  for (int i = 0; i < repetitions; ++i) {
    auto running = start(subject(variant), 1, {}, [&](EmulatedDeviceOptions& options) { options.detect_races = detect_races; });
    EXPECT_TRUE(running) << running.error().message;
    if (!running) return best;
    const std::vector<int> prompt{'O', 'n'};
    const std::clock_t begin = std::clock();
    const auto tokens = running->decoder->decode(0, prompt, 3);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_TRUE(tokens) << tokens.error().message;
    if (!tokens) return best;
    best.warp_instructions = running->device->summary().warp_instructions;
    best.seconds = i == 0 ? seconds : std::min(best.seconds, seconds);
  }
  return best;
}

using SpeedNightly = KernelTest;
TEST_F(SpeedNightly, OfTheEmulator) {
  const auto bf16 = WeightsFormat::bf16;
  const std::vector<Variant> kernels = {{"tagged_sm89", "l20", 2, bf16, every_input(Exchange::tagged)},
                                        {"tagged_sm90a", "h200", 8, bf16, every_input(Exchange::tagged)},
                                        {"counter_sm90a", "h200", 2, bf16, every_input(Exchange::counter)},
                                        {"barrier_sm89", "l20", 2, bf16, every_input(Exchange::barrier)},
                                        {"fused_attention_sm89", "l20", 2, bf16, attention_fused}};
  fmt::print("{:<22} {:>13} {:>9} {:>11}\n", "kernel", "instructions", "M/s", "M/s, races");
  for (const Variant& variant : kernels) {
    const Measured plain = measure(variant, false, 5), races = measure(variant, true, 5);
    EXPECT_EQ(plain.warp_instructions, races.warp_instructions);   // who looks on changes nothing
    const auto rate = [](const Measured& of) { return static_cast<double>(of.warp_instructions) / of.seconds * 1e-6; };
    fmt::print("{:<22} {:>13} {:>9.1f} {:>11.1f}\n", variant.name, plain.warp_instructions, rate(plain), rate(races));
  }
}

}  // namespace
}  // namespace adamk::emulated
