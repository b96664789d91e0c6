// What the tests on the emulator share: kernels of the tiny model, compiled to PTX once, and devices to run them on.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "adamk/codegen/kernel.h"
#include "adamk/codegen/packer.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"
#include "adamk/dag/weights.h"
#include "adamk/profile/emulated_device.h"
#include "adamk/profile/verify.h"
#include "adamk/runtime/decoder.h"

namespace adamk::emulated {

/// A plan of the tiny model: the default plan for so many SMs, and what is changed in it.
struct Variant {
  std::string name;
  std::string target = "l20";      // l20: sm_89, h200: sm_90a
  int sms = 2;
  WeightsFormat format = WeightsFormat::bf16;
  std::function<void(Plan&)> change = [](Plan&) {};
};

inline void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

// Changes, by what they are.
std::function<void(Plan&)> every_input(Exchange kind);
void mixed_inputs(Plan& plan);       // tagged, counter and barrier edges in one kernel
void norm_exchanged(Plan& plan);
void attention_fused(Plan& plan);
void silu_apart(Plan& plan);
void paced(Plan& plan);
/// K steps of a ring stage, of them in one turn of the consumers' loop, and weight fragments ahead of their mma.
std::function<void(Plan&)> inner_loop(int warps, int chunk_steps, int unroll, int fragments);
std::function<void(Plan&)> kv_split(int splits);
std::function<void(Plan&)> both(std::function<void(Plan&)> one, std::function<void(Plan&)> other);

/// Made ready to run.
struct Subject {
  Deployment deployment;
  Schedule schedule;
  Kernel kernel;                   // PTX for the target
  Recipe recipe;
  std::vector<std::byte> packed, small_tensors;
  const Weights* weights = nullptr;
};

/// Compiled at the first call for a name. Launches decode at most 3 tokens, the context holds 64. Fails the test otherwise.
const Subject& subject(const Variant& variant);

/// The tiny model's weights, loaded once.
const Weights& tiny_weights(WeightsFormat format);

/// A device of its own and a decoder on it, of the subject's kernel or of other PTX in its place.
struct Running {
  std::unique_ptr<EmulatedDevice> device;
  std::optional<Decoder> decoder;
};
Result<Running> start(const Subject& subject, std::uint64_t seed, const std::string& ptx = {},
                      const std::function<void(EmulatedDeviceOptions&)>& change = {});

/// Skips where there is no NVRTC.
class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace adamk::emulated
