#include "adamk/runtime/arch.h"

#include <gtest/gtest.h>

namespace adamk {
namespace {

bool runs(std::string_view arch, int sm) {
  DeviceInfo device;
  device.name = "GPU";
  device.sm = sm;
  auto result = check_arch(arch, device);
  if (!result) {
    EXPECT_EQ(result.error().code, Errc::machine) << arch;
  }
  return result.has_value();
}

// CUDA C++ Programming Guide, "Compute Capability" and "Binary Compatibility".
TEST(Arch, CubinRunsWithinItsMajorVersionFromItsMinorVersionOn) {
  EXPECT_TRUE(runs("sm_80", 80));
  EXPECT_TRUE(runs("sm_80", 86));
  EXPECT_TRUE(runs("sm_86", 89));
  EXPECT_FALSE(runs("sm_86", 80));
  EXPECT_FALSE(runs("sm_89", 90));
  EXPECT_FALSE(runs("sm_90", 89));
}

TEST(Arch, ArchitectureSpecificCodeRunsOnExactlyThatGpu) {
  EXPECT_TRUE(runs("sm_90a", 90));
  EXPECT_FALSE(runs("sm_90a", 100));
  EXPECT_FALSE(runs("sm_120a", 121));
  EXPECT_TRUE(runs("compute_90a", 90));
  EXPECT_FALSE(runs("compute_90a", 100));
}

TEST(Arch, FamilyCodeRunsWithinItsMajorVersion) {
  EXPECT_TRUE(runs("sm_100f", 103));
  EXPECT_FALSE(runs("sm_100f", 120));
  EXPECT_TRUE(runs("compute_100f", 103));
  EXPECT_FALSE(runs("compute_100f", 120));
}

TEST(Arch, PtxRunsOnThatGpuAndLaterOnes) {
  EXPECT_TRUE(runs("compute_80", 80));
  EXPECT_TRUE(runs("compute_80", 120));
  EXPECT_FALSE(runs("compute_89", 86));
}

TEST(Arch, AnythingElseIsNoArchitecture) {
  for (const char* text : {"", "sm_", "90a", "sm_90b", "sm_90aa", "compute_x", "sm_9"}) {
    auto result = check_arch(text, DeviceInfo{});
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code, Errc::bad_input) << text;
  }
}

}  // namespace
}  // namespace adamk
