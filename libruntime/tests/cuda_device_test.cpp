// The CUDA device: without a GPU it must say what is missing; with one, a PTX kernel written by hand runs through it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstring>

#include "adamk/runtime/device.h"
#include "adamk/runtime/kernel_params.h"
#include "sample_recipe.h"

namespace adamk {
namespace {

using ::testing::HasSubstr;

// tokens[0] = given[0] + steps + block count, by thread 0 of block 0. Offsets are those of AdamkKernelParams, asserted below.
constexpr char ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry adamk_decode(.param .align 8 .b8 p[112]) {
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  .reg .pred %q<2>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  or.b32 %r1, %r1, %r2;
  setp.ne.u32 %q1, %r1, 0;
  @%q1 bra done;
  ld.param.u64 %d1, [p+48];
  ld.param.u64 %d2, [p+56];
  ld.param.u32 %r3, [p+104];
  ld.global.u32 %r4, [%d1];
  mov.u32 %r5, %nctaid.x;
  add.u32 %r4, %r4, %r3;
  add.u32 %r4, %r4, %r5;
  st.global.u32 [%d2], %r4;
done:
  ret;
}
)";
static_assert(offsetof(AdamkKernelParams, given) == 48);
static_assert(offsetof(AdamkKernelParams, tokens) == 56);
static_assert(offsetof(AdamkKernelParams, steps) == 104);
static_assert(sizeof(AdamkKernelParams) == 112);

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_cuda_device();
    if (!opened) GTEST_SKIP() << opened.error().message;
    device = std::move(*opened);
  }
  Result<KernelHandle> load() { return device->load(std::as_bytes(std::span(ptx)), "adamk_decode"); }
  std::unique_ptr<Device> device;
};

TEST(CudaDevice, MissingDriverOrGpuIsAMachineErrorThatSaysSo) {
  auto opened = open_cuda_device(1000);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::machine);
  EXPECT_THAT(opened.error().message, ::testing::AnyOf(HasSubstr("driver"), HasSubstr("GPU")));
}

TEST_F(CudaDeviceTest, DescribesTheGpu) {
  const DeviceInfo& info = device->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.sm, 50);
  EXPECT_GT(info.sms, 0);
  EXPECT_GT(info.smem_per_block, 48 << 10);
  EXPECT_GE(info.smem_per_sm, info.smem_per_block + info.smem_reserved);
  EXPECT_GT(info.l2_bytes, 0);
  EXPECT_GT(info.clock_khz, 0);
  EXPECT_GE(info.registers_per_sm, 32768);
}

TEST_F(CudaDeviceTest, RunsAKernelWithItsStructByValue) {
  auto kernel = load();
  ASSERT_TRUE(kernel.has_value()) << kernel.error().message;
  auto given = device->allocate(4), tokens = device->allocate(4);
  ASSERT_TRUE(given.has_value() && tokens.has_value());
  const int seven = 7;
  ASSERT_TRUE(device->upload(*given, std::as_bytes(std::span(&seven, 1))).has_value());
  AdamkKernelParams params{};
  params.given = reinterpret_cast<const int*>(*given);
  params.tokens = reinterpret_cast<int*>(*tokens);
  params.steps = 5;
  const LaunchShape shape{device->info().sms, 64, 60000, true};
  const auto bytes = std::as_bytes(std::span(&params, 1));
  auto launched = device->launch(*kernel, shape, bytes);
  ASSERT_TRUE(launched.has_value()) << launched.error().message;
  int token = 0;
  ASSERT_TRUE(device->download(std::as_writable_bytes(std::span(&token, 1)), *tokens).has_value());
  EXPECT_EQ(token, 7 + 5 + device->info().sms);
  auto time = device->time_us({{*kernel, bytes}, {*kernel, bytes}}, shape);
  ASSERT_TRUE(time.has_value()) << time.error().message;
  EXPECT_GT(*time, 0.5);
  EXPECT_LT(*time, 100000);
  device->release(*given);
  device->release(*tokens);
}

TEST_F(CudaDeviceTest, RefusesWhatCannotBeResidentOrAsksTooMuchSharedMemory) {
  auto kernel = load();
  ASSERT_TRUE(kernel.has_value());
  const AdamkKernelParams params{};
  const auto bytes = std::as_bytes(std::span(&params, 1));
  const auto most = device->info().smem_per_block;
  auto grid = device->launch(*kernel, {device->info().sms + 1, 64, most, true}, bytes);
  ASSERT_FALSE(grid.has_value());
  EXPECT_THAT(grid.error().message, HasSubstr("cannot be resident"));
  auto smem = device->resident_blocks(*kernel, {1, 64, most + 1, true});
  ASSERT_FALSE(smem.has_value());
  EXPECT_EQ(smem.error().code, Errc::infeasible);
}

TEST_F(CudaDeviceTest, ABadImageIsRefusedWithTheCompilersWords) {
  const std::string broken = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f() { nonsense; }\n";
  auto kernel = device->load(std::as_bytes(std::span(broken.c_str(), broken.size() + 1)), "f");
  ASSERT_FALSE(kernel.has_value());
  EXPECT_EQ(kernel.error().code, Errc::bad_input);
  EXPECT_THAT(kernel.error().message, HasSubstr("nonsense"));
}

TEST_F(CudaDeviceTest, LargeUploadsArriveWhole) {
  constexpr std::size_t count = (300u << 20) / 4 + 3;  // staged, with a last piece that is not full
  std::vector<std::uint32_t> sent(count), back(count);
  for (std::size_t i = 0; i < count; ++i) sent[i] = static_cast<std::uint32_t>(i * 2654435761u);
  auto address = device->allocate(static_cast<std::int64_t>(count * 4));
  ASSERT_TRUE(address.has_value());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(device->upload(*address, std::as_bytes(std::span(sent))).has_value());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(device->download(std::as_writable_bytes(std::span(back)), *address).has_value());
  EXPECT_EQ(std::memcmp(sent.data(), back.data(), count * 4), 0);
  RecordProperty("upload_gb_per_s", std::to_string(static_cast<double>(count) * 4e-9 / took.count()));
  device->release(*address);
}

TEST_F(CudaDeviceTest, MappedMemoryIsZeroAndVisibleToTheDevice) {
  DeviceAddress mapped = 0;
  auto host = device->allocate_mapped(32, &mapped);
  ASSERT_TRUE(host.has_value()) << host.error().message;
  auto* words = static_cast<std::uint32_t*>(*host);
  EXPECT_EQ(words[7], 0u);
  ASSERT_TRUE(device->fill(mapped, 0x11, 32).has_value());
  ASSERT_TRUE(device->synchronize().has_value());
  EXPECT_EQ(words[7], 0x11111111u);
  device->release_mapped(*host);
}

}  // namespace
}  // namespace adamk
