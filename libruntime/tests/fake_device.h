// A Device in host memory: counts what is live, fails on request, runs a function in place of a kernel.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "adamk/runtime/device.h"
#include "adamk/runtime/kernel_params.h"

namespace adamk::testing {

class FakeDevice : public Device {
 public:
  FakeDevice() {
    info_.name = "Fake GPU";
    info_.sm = 90;
    info_.sms = 4;
    info_.memory_bytes = 1 << 30;
    info_.clock_khz = 1000000;
  }

  /// What a launch does, at once.
  std::function<void(const AdamkKernelParams&)> kernel = [](const AdamkKernelParams&) {};
  int blocks_per_sm = 1;
  /// The call that fails, counting from 0 every call that can; negative: none.
  int failing_call = -1;
  int calls = 0;
  std::vector<AdamkKernelParams> launches;
  LaunchShape last_shape;

  DeviceInfo& mutable_info() { return info_; }
  int live() const { return static_cast<int>(buffers_.size() + mapped_.size()) + modules_; }

  const DeviceInfo& info() const override { return info_; }

  Result<DeviceAddress> allocate(std::int64_t bytes) override {
    ADAMK_CHECK(next("allocate"));
    auto buffer = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes) + 1);
    std::memset(buffer.get(), 0xA5, static_cast<std::size_t>(bytes) + 1);
    const auto address = reinterpret_cast<DeviceAddress>(buffer.get());
    buffers_[address] = std::move(buffer);
    return address;
  }
  void release(DeviceAddress address) override { buffers_.erase(address); }
  Result<void*> allocate_mapped(std::int64_t bytes, DeviceAddress* device) override {
    ADAMK_CHECK(next("allocate_mapped"));
    auto buffer = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));
    void* host = buffer.get();
    *device = reinterpret_cast<DeviceAddress>(host);
    mapped_[host] = std::move(buffer);
    return host;
  }
  void release_mapped(void* host) override { mapped_.erase(host); }

  Result<void> upload(DeviceAddress to, std::span<const std::byte> from) override {
    ADAMK_CHECK(next("upload"));
    if (!from.empty()) std::memcpy(reinterpret_cast<void*>(to), from.data(), from.size());
    return {};
  }
  Result<void> download(std::span<std::byte> to, DeviceAddress from) override {
    ADAMK_CHECK(next("download"));
    if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<const void*>(from), to.size());
    return {};
  }
  Result<void> fill(DeviceAddress to, std::uint8_t byte, std::int64_t bytes) override {
    ADAMK_CHECK(next("fill"));
    std::memset(reinterpret_cast<void*>(to), byte, static_cast<std::size_t>(bytes));
    return {};
  }

  Result<KernelHandle> load(std::span<const std::byte>, const std::string&) override {
    ADAMK_CHECK(next("load"));
    ++modules_;
    return KernelHandle{this, this};
  }
  void unload(KernelHandle) override { --modules_; }
  Result<KernelAttributes> attributes(KernelHandle) override { return KernelAttributes{}; }
  Result<int> resident_blocks(KernelHandle, const LaunchShape&) override {
    ADAMK_CHECK(next("resident_blocks"));
    return blocks_per_sm;
  }

  Result<void> launch(KernelHandle, const LaunchShape& shape, std::span<const std::byte> params) override {
    ADAMK_CHECK(next("launch"));
    run(shape, params);
    return {};
  }
  Result<void> synchronize() override { return next("synchronize"); }
  Result<double> time_us(const std::vector<std::pair<KernelHandle, std::span<const std::byte>>>& work,
                         const LaunchShape& shape) override {
    ADAMK_CHECK(next("time_us"));
    for (const auto& [handle, params] : work) run(shape, params);
    return 10.0 * static_cast<double>(work.size());
  }

 private:
  Result<void> next(const char* what) {
    if (calls++ == failing_call) return fail(Errc::machine, "fake failure of {}", what);
    return {};
  }
  void run(const LaunchShape& shape, std::span<const std::byte> params) {
    AdamkKernelParams arguments;
    std::memcpy(&arguments, params.data(), sizeof arguments);
    last_shape = shape;
    launches.push_back(arguments);
    kernel(arguments);
  }

  DeviceInfo info_;
  std::map<DeviceAddress, std::unique_ptr<std::byte[]>> buffers_;
  std::map<void*, std::unique_ptr<std::byte[]>> mapped_;
  int modules_ = 0;
};

}  // namespace adamk::testing
