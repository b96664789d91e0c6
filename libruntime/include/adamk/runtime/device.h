// Device: what a decode step needs of a GPU. CudaDevice drives the CUDA driver API, opened at run time; tests use a fake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/result.h"

namespace adamk {

using DeviceAddress = std::uint64_t;

struct DeviceInfo {
  std::string name;
  int sm = 0;                      // 90 for compute capability 9.0
  int sms = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t smem_per_block = 0;  // opt-in limit
  std::int64_t smem_per_sm = 0;
  std::int64_t smem_reserved = 0;
  int registers_per_sm = 0;
  int clock_khz = 0;
  int driver_version = 0;          // 13000 for CUDA 13.0
};

/// A loaded kernel; freed with the Device it came from.
struct KernelHandle {
  void* module = nullptr;
  void* function = nullptr;
};

struct KernelAttributes {
  int registers = 0;
  int spill_bytes = 0;             // local memory per thread
  int static_smem = 0;
};

struct LaunchShape {
  int grid = 0, threads = 0;
  std::int64_t smem = 0;
  bool cooperative = true;         // refused when the grid cannot be resident at once
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual Result<DeviceAddress> allocate(std::int64_t bytes) = 0;
  virtual void release(DeviceAddress address) = 0;
  /// Host memory that kernels can write (zeroed); the device sees it at the address returned in `device`.
  virtual Result<void*> allocate_mapped(std::int64_t bytes, DeviceAddress* device) = 0;
  virtual void release_mapped(void* host) = 0;

  virtual Result<void> upload(DeviceAddress to, std::span<const std::byte> from) = 0;
  virtual Result<void> download(std::span<std::byte> to, DeviceAddress from) = 0;
  virtual Result<void> fill(DeviceAddress to, std::uint8_t byte, std::int64_t bytes) = 0;

  /// `image` is a cubin, or PTX ending in a zero byte (then the driver compiles it).
  virtual Result<KernelHandle> load(std::span<const std::byte> image, const std::string& entry) = 0;
  virtual void unload(KernelHandle kernel) = 0;
  virtual Result<KernelAttributes> attributes(KernelHandle kernel) = 0;
  /// Blocks of this shape that fit one SM at once.
  virtual Result<int> resident_blocks(KernelHandle kernel, const LaunchShape& shape) = 0;

  /// Asynchronous on the device's stream. `params` is copied before the call returns.
  virtual Result<void> launch(KernelHandle kernel, const LaunchShape& shape, std::span<const std::byte> params) = 0;
  virtual Result<void> synchronize() = 0;
  /// The CUcontext behind this device, borrowed, for profilers; null where there is none (fakes). Devices with equal
  /// contexts can use what either allocated.
  virtual void* native_context() const { return nullptr; }
  /// Microseconds of device time of `work` (launches only), by events on the stream.
  virtual Result<double> time_us(const std::vector<std::pair<KernelHandle, std::span<const std::byte>>>& launches,
                                 const LaunchShape& shape) = 0;
};

/// Opens libcuda and device `index`. Fails (machine) with what is missing when there is no driver or no GPU.
/// `external_stream` (CUstream) is used when the caller owns the stream and context (then `index` is not looked at);
/// otherwise the device makes its own stream in the primary context. Calls may come from any thread, one at a time; they
/// leave the calling thread's current context as it was.
Result<std::unique_ptr<Device>> open_cuda_device(int index = 0, void* external_stream = nullptr);

}  // namespace adamk
