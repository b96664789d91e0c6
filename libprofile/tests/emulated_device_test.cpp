#include "adamk/profile/emulated_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "adamk/runtime/decoder.h"

namespace adamk {
namespace {

Target small_target() {
  Target target;
  target.name = "test";
  target.sm = 90;
  target.sms = 2;
  target.smem_per_block = 100 << 10;
  target.smem_per_sm = 128 << 10;
  target.smem_reserved = 1024;
  target.memory_bytes = 1'000'000'000;
  target.l2_bytes = 1'000'000;
  return target;
}

/// A kernel `k(u64 out)` with the pointer in %rd1, the thread in %r1 and the block in %r2.
std::string kernel(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 buffer[];\n.visible .entry k(.param .u64 out)\n{\n"
         ".reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<16>;\nld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n" +
         body + "\nret;\n}\n";
}

class EmulatedDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<EmulatedDevice> device_ = EmulatedDevice::make(small_target());

  static std::vector<std::byte> image(const std::string& text, bool terminated = true) {
    const auto bytes = std::as_bytes(std::span(text.c_str(), text.size() + (terminated ? 1 : 0)));
    return {bytes.begin(), bytes.end()};
  }

  /// Launches and waits; what the wait said.
  Result<void> run(const std::string& body, DeviceAddress out, LaunchShape shape = {1, 32, 1024}) {
    ADAMK_TRY(const KernelHandle kernel_handle, device_->load(image(kernel(body)), "k"));
    ADAMK_CHECK(device_->launch(kernel_handle, shape, std::as_bytes(std::span(&out, 1))));
    return device_->synchronize();
  }
};

TEST_F(EmulatedDeviceTest, IsTheTargetWithAnotherName) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.name, "emulated test");
  EXPECT_EQ(info.sm, 90);
  EXPECT_EQ(info.sms, 2);
  EXPECT_EQ(ptx_arch(small_target()), "compute_90a");
  Target ada = small_target();
  ada.sm = 89;
  EXPECT_EQ(ptx_arch(ada), "compute_89");
}

TEST_F(EmulatedDeviceTest, CopiesStayInsideAnAllocation) {
  const auto address = device_->allocate(16);
  ASSERT_TRUE(address);
  std::array<std::byte, 17> bytes{};
  EXPECT_TRUE(device_->upload(*address, std::span(bytes).first(16)));
  EXPECT_FALSE(device_->upload(*address, bytes));
  EXPECT_FALSE(device_->download(bytes, *address));
  EXPECT_FALSE(device_->fill(*address + 1, 0, 16));
  EXPECT_FALSE(device_->allocate(-1));
  device_->release(*address);
  EXPECT_FALSE(device_->upload(*address, std::span(bytes).first(1)));   // nor a released one
}

TEST_F(EmulatedDeviceTest, RunsPtxAndNothingElse) {
  const std::string good = kernel("");
  EXPECT_TRUE(device_->load(image(good), "k"));
  EXPECT_TRUE(device_->load(image(good, false), "k"));   // with or without the zero at its end
  const auto other = device_->load(image(good), "other");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("other"), std::string::npos) << other.error().message;
  const auto cubin = device_->load(image("\x7f" "ELF..."), "k");
  ASSERT_FALSE(cubin);
  EXPECT_NE(cubin.error().message.find("compile it for compute_90a"), std::string::npos) << cubin.error().message;
}

TEST_F(EmulatedDeviceTest, WhatALaunchDidWrongIsSaidByTheWaitAndEndsTheDevice) {
  const auto out = device_->allocate(128);
  ASSERT_TRUE(out);
  EXPECT_TRUE(run("mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r1;", *out));
  std::array<std::uint32_t, 32> words{};
  ASSERT_TRUE(device_->download(std::as_writable_bytes(std::span(words)), *out));
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(words[i], i);
  const auto stray = run("st.global.u32 [%rd1+128], %r1;", *out);
  ASSERT_FALSE(stray);
  EXPECT_EQ(stray.error().code, Errc::machine);
  EXPECT_NE(stray.error().message.find("offset 128 of an allocation of 128"), std::string::npos) << stray.error().message;
  const auto after = run("", *out);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().message, stray.error().message);   // as a GPU's context stays broken
  EXPECT_EQ(device_->summary().launches, 2u);
}

TEST_F(EmulatedDeviceTest, ARaceIsAnErrorAndCounted) {
  const auto out = device_->allocate(128);
  ASSERT_TRUE(out);
  const auto race = run("st.global.u32 [%rd1], %r2;", *out, {2, 32, 0});   // two blocks, one word
  ASSERT_FALSE(race);
  EXPECT_EQ(race.error().message.rfind("data race: write after write", 0), 0u) << race.error().message;
  EXPECT_EQ(device_->summary().races, 1u);
}

TEST_F(EmulatedDeviceTest, GridsThatCannotBeResidentAreRefused) {
  const auto out = device_->allocate(128);
  ASSERT_TRUE(out);
  EXPECT_TRUE(run("", *out, {4, 1024, 40 << 10}));                    // two such blocks an SM
  EXPECT_FALSE(run("", *out, {5, 1024, 40 << 10}));
  EXPECT_FALSE(run("", *out, {1, 32, (100 << 10) + 1}));
  EXPECT_FALSE(device_->time_us({}, {1, 32, 0}));                     // it has no time
}

TEST_F(EmulatedDeviceTest, SeedsChooseInterleavingsAndRepeatThem) {
  // Thread 0 of each block adds to a counter until it reads what both have added: how often depends on who is ahead.
  const std::string body = "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $end;\n$again:\natom.relaxed.gpu.global.add.u32 %r3, [%rd1], 1;\n"
                           "setp.lt.u32 %p2, %r3, 50;\n@%p2 bra $again;\nmul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3+4], %r3;\n$end:";
  const auto seen = [&](std::uint64_t seed) {
    device_ = EmulatedDevice::make(small_target(), {.seed = seed});
    const auto out = device_->allocate(16);
    EXPECT_TRUE(device_->fill(*out, 0, 16));
    EXPECT_TRUE(run(body, *out, {2, 32, 0}));
    std::array<std::uint32_t, 3> words{};
    EXPECT_TRUE(device_->download(std::as_writable_bytes(std::span(words)), *out));
    return words;
  };
  const auto first = seen(1);
  EXPECT_EQ(first[0], 52u);   // each ends with the first value of 50 or more that it gets
  EXPECT_EQ(first, seen(1));
  bool differs = false;
  for (std::uint64_t seed = 2; seed < 12; ++seed) differs = differs || seen(seed) != first;
  EXPECT_TRUE(differs);
}

TEST(DescribeEmulation, SaysWhichStageOfWhichSmAWaitBelongsTo) {
  EmulatorReport report;
  EmulatorWait wait;
  wait.block = 3;
  wait.warp = 2;
  wait.line = 77;
  wait.what = "mbarrier.try_wait on shared 0x8";
  report.deadlock.push_back(wait);
  EXPECT_EQ(describe_emulation(report), "deadlock: 1 waits can never end\n  SM 3, warp 2, PTX line 77: mbarrier.try_wait on shared 0x8");
  // give_up(params: 2 words, since, kind, {role, stage, layer, step}, expected, seen)
  report.deadlock[0].arguments = {0, 0, 9, 3, 1, 2, 5, 6, 0x8, 1};
  const std::string named = describe_emulation(report);
  EXPECT_NE(named.find("SM 3, role consumer, stage output, layer 5, step 6: waited for mbarrier phase 8, saw 1"), std::string::npos) << named;
  report.deadlock.assign(20, wait);
  const std::string many = describe_emulation(report);
  EXPECT_NE(many.find("deadlock: 20 waits can never end"), std::string::npos);
  EXPECT_NE(many.find("and 8 more"), std::string::npos) << many;
  report.error = "out of bounds";   // the first fault goes before what followed from it
  EXPECT_EQ(describe_emulation(report), "out of bounds");
}

}  // namespace
}  // namespace adamk
