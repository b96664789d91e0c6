// What the tests on a GPU share: the device, the deployment for it, a decoder for a plan, and the verdict of the gate.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adamk/codegen/kernel.h"
#include "adamk/codegen/packer.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"
#include "adamk/dag/weights.h"
#include "adamk/profile/probe.h"
#include "adamk/profile/verify.h"
#include "adamk/runtime/decoder.h"
#include "adamk/runtime/device.h"

namespace adamk::gpu {

/// The checkout: $ADAMK_SOURCE_DIR where the program was carried elsewhere, else where it was built.
inline std::filesystem::path source_folder() {
  const char* chosen = std::getenv("ADAMK_SOURCE_DIR");
  return chosen != nullptr && *chosen != '\0' ? chosen : ADAMK_SOURCE_DIR;
}

/// The GPU and what it was probed to be; opened once for all tests. Empty without one.
struct Gpu {
  std::unique_ptr<Device> device;
  Target target;
  std::string missing;   // why there is no device
};

inline Gpu& gpu() {
  static Gpu shared = [] {
    Gpu opened;
    auto device = open_cuda_device(0);
    if (!device) {
      opened.missing = device.error().message;
      return opened;
    }
    opened.device = std::move(*device);
    auto target = probe_target(*opened.device);
    if (target) {
      opened.target = *target;
    } else {
      opened.missing = target.error().message;
      opened.device.reset();
    }
    return opened;
  }();
  return shared;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu().device == nullptr) GTEST_SKIP() << "no usable GPU: " << gpu().missing;
  }

  static Device& device() { return *gpu().device; }

  /// `context` positions of `model` on this GPU.
  static Deployment deploy(const Model& model, std::int64_t context, WeightsFormat format = WeightsFormat::bf16) {
    Workload workload;
    workload.context = context;
    auto made = make_deployment(model, format, gpu().target, workload);
    if (!made) ADD_FAILURE() << made.error().message;
    return made.value();
  }

  /// Generated, compiled for `arch` (empty: the GPU's own), loaded.
  static Result<Decoder> make_decoder(const Deployment& deployment, const Plan& plan, const Weights& weights,
                                      const std::string& arch = {}) {
    ADAMK_TRY(const Schedule schedule, make_schedule(deployment, plan));
    ADAMK_TRY(const std::string source, emit_source(deployment, schedule));
    ADAMK_TRY(const Kernel kernel, compile(source, arch.empty() ? device_arch(device().info()) : arch));
    const std::vector<std::byte> image = kernel.image(), packed = pack_weights(deployment, schedule, weights),
                                 small = pack_small_tensors(deployment, schedule, weights);
    DecoderInputs inputs;
    inputs.image = image;
    inputs.packed = packed;
    inputs.small_tensors = small;
    inputs.embedding = std::as_bytes(weights.embedding());
    return Decoder::create(device(), make_recipe(deployment, schedule, kernel), inputs);
  }

  /// Passes the gate; says which plan did not.
  static void expect_correct(const Deployment& deployment, const Plan& plan, const Weights& weights,
                             const VerifyOptions& options, const std::string& arch = {}) {
    SCOPED_TRACE(plan_to_json(plan).dump());
    auto decoder = make_decoder(deployment, plan, weights, arch);
    ASSERT_TRUE(decoder) << decoder.error().message;
    const auto report = verify_decoder(*decoder, deployment, weights, options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->passed()) << report->failure;
    EXPECT_EQ(report->positions.size(), options.positions.size());
    EXPECT_EQ(report->greedy.compared, options.greedy_tokens > 0
                                           ? static_cast<std::int64_t>(std::max<std::size_t>(1, options.prompt.size())) +
                                                 options.greedy_tokens - 1
                                           : 0);
  }
};

}  // namespace adamk::gpu
