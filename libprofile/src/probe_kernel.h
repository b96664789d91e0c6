// Small kernels of our own (libprofile/device), compiled by NVRTC when first needed.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/runtime/device.h"

namespace adamk {

/// Device memory for one scope.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> allocate(Device& device, std::int64_t bytes) {
    ADAMK_TRY(const DeviceAddress address, device.allocate(bytes));
    return DeviceBuffer(device, address, bytes);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_), address_(std::exchange(other.address_, 0)), bytes_(other.bytes_) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (address_ != 0) device_->release(address_);
  }
  DeviceAddress address() const { return address_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  DeviceBuffer(Device& device, DeviceAddress address, std::int64_t bytes)
      : device_(&device), address_(address), bytes_(bytes) {}
  Device* device_;
  DeviceAddress address_;
  std::int64_t bytes_;
};

/// One entry of a compiled file, loaded for one scope.
class ProbeKernel {
 public:
  static Result<ProbeKernel> load(Device& device, std::span<const std::byte> image, const std::string& entry) {
    ADAMK_TRY(const KernelHandle handle, device.load(image, entry));
    return ProbeKernel(device, handle);
  }
  ProbeKernel(ProbeKernel&& other) noexcept : device_(std::exchange(other.device_, nullptr)), handle_(other.handle_) {}
  ProbeKernel& operator=(ProbeKernel&&) = delete;
  ~ProbeKernel() {
    if (device_ != nullptr) device_->unload(handle_);
  }

  template <class Params>
  Result<void> launch(const LaunchShape& shape, const Params& params) const {
    return device_->launch(handle_, shape, bytes(params));
  }
  template <class Params>
  Result<double> time_us(const LaunchShape& shape, const Params& params) const {
    return device_->time_us({{handle_, bytes(params)}}, shape);
  }

 private:
  ProbeKernel(Device& device, KernelHandle handle) : device_(&device), handle_(handle) {}
  template <class Params>
  static std::span<const std::byte> bytes(const Params& params) {
    return std::as_bytes(std::span<const Params, 1>(&params, 1));
  }
  Device* device_;
  KernelHandle handle_;
};

/// The image (cubin) of an embedded file for this device.
Result<std::vector<std::byte>> compile_probe(std::string_view source, const DeviceInfo& info);

}  // namespace adamk
