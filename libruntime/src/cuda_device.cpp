// The Device that drives a GPU through the CUDA driver API.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "adamk/runtime/device.h"
#include "cuda_driver.h"
#include "cuda_upload.h"

namespace adamk {
namespace {

using Driver = std::shared_ptr<const CudaDriver>;

/// Makes a context current for one scope and puts back what the caller had.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context)
      : driver_(driver), code_(driver.cuCtxPushCurrent(context)) {}
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (code_ == CUDA_SUCCESS) driver_.cuCtxPopCurrent(&popped);
  }
  Result<void> ok() const { return driver_.check(code_, "making the CUDA context current"); }

 private:
  const CudaDriver& driver_;
  CUresult code_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(Driver driver) : driver_(std::move(driver)) {}
  ~CudaDevice() override;
  Result<void> open(int index, void* external_stream);

  const DeviceInfo& info() const override { return info_; }
  void* native_context() const override { return context_; }
  Result<DeviceAddress> allocate(std::int64_t bytes) override;
  void release(DeviceAddress address) override;
  Result<void*> allocate_mapped(std::int64_t bytes, DeviceAddress* device) override;
  void release_mapped(void* host) override;
  Result<void> upload(DeviceAddress to, std::span<const std::byte> from) override;
  Result<void> download(std::span<std::byte> to, DeviceAddress from) override;
  Result<void> fill(DeviceAddress to, std::uint8_t byte, std::int64_t bytes) override;
  Result<KernelHandle> load(std::span<const std::byte> image, const std::string& entry) override;
  void unload(KernelHandle kernel) override;
  Result<KernelAttributes> attributes(KernelHandle kernel) override;
  Result<int> resident_blocks(KernelHandle kernel, const LaunchShape& shape) override;
  Result<void> launch(KernelHandle kernel, const LaunchShape& shape, std::span<const std::byte> params) override;
  Result<void> synchronize() override;
  Result<double> time_us(const std::vector<std::pair<KernelHandle, std::span<const std::byte>>>& launches,
                         const LaunchShape& shape) override;

 private:
  Result<void> open_context(int index, void* external_stream);
  Result<void> read_info();
  Result<int> attribute(CUdevice_attribute which, const char* name) const;
  Result<int> prepare(KernelHandle kernel, const LaunchShape& shape);
  Result<void> queue(KernelHandle kernel, const LaunchShape& shape, std::span<const std::byte> params);

  Driver driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  bool owns_context_ = false, owns_stream_ = false;
  DeviceInfo info_;
  std::set<CUmodule> modules_;

  // The last shape prepared, so that repeated launches do not ask the driver again.
  struct Prepared {
    void* function = nullptr;
    int threads = 0;
    std::int64_t smem = -1;
    int blocks_per_sm = 0;
  } prepared_;
};

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    CurrentContext current(*driver_, context_);
    if (current.ok()) {
      driver_->cuStreamSynchronize(stream_);
      for (CUmodule module : modules_) driver_->cuModuleUnload(module);
      if (owns_stream_) driver_->cuStreamDestroy(stream_);
    }
  }
  if (owns_context_) driver_->cuDevicePrimaryCtxRelease(device_);
}

Result<void> CudaDevice::open(int index, void* external_stream) {
  ADAMK_CHECK(open_context(index, external_stream));
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  if (external_stream == nullptr) {
    ADAMK_CHECK(driver_->check(driver_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating a CUDA stream"));
    owns_stream_ = true;
  }
  return read_info();
}

Result<void> CudaDevice::open_context(int index, void* external_stream) {
  if (external_stream != nullptr) {
    stream_ = static_cast<CUstream>(external_stream);
    ADAMK_CHECK(driver_->check(driver_->cuStreamGetCtx(stream_, &context_), "finding the context of the caller's stream"));
    CurrentContext current(*driver_, context_);
    ADAMK_CHECK(current.ok());
    return driver_->check(driver_->cuCtxGetDevice(&device_), "finding the device of the caller's stream");
  }
  int count = 0;
  ADAMK_CHECK(driver_->check(driver_->cuDeviceGetCount(&count), "counting GPUs"));
  if (count == 0) return fail(Errc::machine, "no CUDA-capable GPU is visible to this process");
  if (index < 0 || index >= count) {
    return fail(Errc::machine, "no GPU {}: this machine has GPUs 0 to {}", index, count - 1);
  }
  ADAMK_CHECK(driver_->check(driver_->cuDeviceGet(&device_, index), "opening GPU {}", index));
  ADAMK_CHECK(driver_->check(driver_->cuDevicePrimaryCtxRetain(&context_, device_),
                             "creating the CUDA context of GPU {}", index));
  owns_context_ = true;
  return {};
}

Result<int> CudaDevice::attribute(CUdevice_attribute which, const char* name) const {
  int value = 0;
  ADAMK_CHECK(driver_->check(driver_->cuDeviceGetAttribute(&value, which, device_), "reading the GPU's {}", name));
  return value;
}

Result<void> CudaDevice::read_info() {
  std::array<char, 256> name{};
  std::size_t memory = 0;
  ADAMK_CHECK(driver_->check(driver_->cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device_),
                             "reading the GPU's name"));
  ADAMK_CHECK(driver_->check(driver_->cuDeviceTotalMem(&memory, device_), "reading the GPU's memory size"));
  ADAMK_CHECK(driver_->check(driver_->cuDriverGetVersion(&info_.driver_version), "reading the driver's version"));
  info_.name = name.data();
  info_.memory_bytes = static_cast<std::int64_t>(memory);
  ADAMK_TRY(const int major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "compute capability"));
  ADAMK_TRY(const int minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "compute capability"));
  info_.sm = 10 * major + minor;
  ADAMK_TRY(info_.sms, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "SM count"));
  ADAMK_TRY(info_.l2_bytes, attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "L2 size"));
  ADAMK_TRY(info_.smem_per_block,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "shared memory per block"));
  ADAMK_TRY(info_.smem_per_sm,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, "shared memory per SM"));
  ADAMK_TRY(info_.smem_reserved,
            attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, "reserved shared memory"));
  ADAMK_TRY(info_.registers_per_sm,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, "registers per SM"));
  ADAMK_TRY(info_.clock_khz, attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, "clock"));
  return {};
}

// ---- memory

Result<DeviceAddress> CudaDevice::allocate(std::int64_t bytes) {
  if (bytes < 0) return fail(Errc::bad_input, "device allocation of {} bytes", bytes);
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  CUdeviceptr address = 0;
  // The driver refuses zero bytes; an empty buffer still needs an address of its own.
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 16));
  ADAMK_CHECK(driver_->check(driver_->cuMemAlloc(&address, size), "allocating {} bytes on {}", bytes, info_.name));
  return static_cast<DeviceAddress>(address);
}

void CudaDevice::release(DeviceAddress address) {
  if (address == 0) return;
  CurrentContext current(*driver_, context_);
  if (current.ok()) driver_->cuMemFree(static_cast<CUdeviceptr>(address));
}

Result<void*> CudaDevice::allocate_mapped(std::int64_t bytes, DeviceAddress* device) {
  if (bytes <= 0) return fail(Errc::bad_input, "host-mapped allocation of {} bytes", bytes);
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  void* host = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  const unsigned flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
  ADAMK_CHECK(driver_->check(driver_->cuMemHostAlloc(&host, size, flags), "allocating {} bytes of mapped host memory", bytes));
  std::memset(host, 0, size);
  CUdeviceptr address = 0;
  auto mapped = driver_->check(driver_->cuMemHostGetDevicePointer(&address, host, 0), "mapping host memory to the GPU");
  if (!mapped) {
    driver_->cuMemFreeHost(host);
    return tl::unexpected<Error>(std::move(mapped).error());
  }
  *device = static_cast<DeviceAddress>(address);
  return host;
}

void CudaDevice::release_mapped(void* host) {
  if (host == nullptr) return;
  CurrentContext current(*driver_, context_);
  if (current.ok()) driver_->cuMemFreeHost(host);
}

Result<void> CudaDevice::upload(DeviceAddress to, std::span<const std::byte> from) {
  if (from.empty()) return {};
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  return upload_bytes(*driver_, stream_, static_cast<CUdeviceptr>(to), from);
}

Result<void> CudaDevice::download(std::span<std::byte> to, DeviceAddress from) {
  if (to.empty()) return {};
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  ADAMK_CHECK(driver_->check(driver_->cuMemcpyDtoHAsync(to.data(), static_cast<CUdeviceptr>(from), to.size(), stream_),
                             "copying {} bytes from the GPU", to.size()));
  return driver_->check(driver_->cuStreamSynchronize(stream_), "copying {} bytes from the GPU", to.size());
}

Result<void> CudaDevice::fill(DeviceAddress to, std::uint8_t byte, std::int64_t bytes) {
  if (bytes <= 0) return {};
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  return driver_->check(
      driver_->cuMemsetD8Async(static_cast<CUdeviceptr>(to), byte, static_cast<std::size_t>(bytes), stream_),
      "filling {} bytes on the GPU", bytes);
}

// ---- kernels

Result<KernelHandle> CudaDevice::load(std::span<const std::byte> image, const std::string& entry) {
  if (image.empty()) return fail(Errc::bad_input, "the kernel image of {} is empty", entry);
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  std::array<char, 8192> log{};
  std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // The driver takes the size in the pointer itself.
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule module = nullptr;
  const CUresult loaded = driver_->cuModuleLoadDataEx(&module, image.data(), options.size(), options.data(), values.data());
  if (loaded != CUDA_SUCCESS) {
    Error error = driver_->failure(loaded, fmt::format("loading the kernel {} on {}", entry, info_.name));
    if (log[0] != '\0') error.message += fmt::format("\n{}", log.data());
    if (loaded == CUDA_ERROR_INVALID_PTX || loaded == CUDA_ERROR_INVALID_IMAGE || loaded == CUDA_ERROR_NO_BINARY_FOR_GPU) {
      error.code = Errc::bad_input;
    }
    return tl::unexpected<Error>(std::move(error));
  }
  CUfunction function = nullptr;
  auto found = driver_->check(driver_->cuModuleGetFunction(&function, module, entry.c_str()),
                              "finding the entry {} in the kernel image", entry);
  if (!found) {
    driver_->cuModuleUnload(module);
    return tl::unexpected<Error>(std::move(found).error());
  }
  modules_.insert(module);
  return KernelHandle{module, function};
}

void CudaDevice::unload(KernelHandle kernel) {
  auto* module = static_cast<CUmodule>(kernel.module);
  if (modules_.erase(module) == 0) return;
  prepared_ = {};  // the next function may get the same address
  CurrentContext current(*driver_, context_);
  if (current.ok()) driver_->cuModuleUnload(module);
}

Result<KernelAttributes> CudaDevice::attributes(KernelHandle kernel) {
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  KernelAttributes result;
  const std::array<std::pair<CUfunction_attribute, int*>, 3> wanted{{
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &result.registers},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &result.spill_bytes},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &result.static_smem},
  }};
  for (const auto& [which, value] : wanted) {
    ADAMK_CHECK(driver_->check(driver_->cuFuncGetAttribute(value, which, static_cast<CUfunction>(kernel.function)),
                               "reading a kernel's attributes"));
  }
  return result;
}

/// Blocks of this shape that fit one SM, after the kernel was allowed its shared memory. The context must be current.
Result<int> CudaDevice::prepare(KernelHandle kernel, const LaunchShape& shape) {
  if (prepared_.function == kernel.function && prepared_.threads == shape.threads && prepared_.smem == shape.smem) {
    return prepared_.blocks_per_sm;
  }
  if (shape.smem < 0 || shape.smem > info_.smem_per_block) {
    return fail(Errc::infeasible, "the kernel asks for {} bytes of shared memory, a block of {} may have {}", shape.smem,
                info_.name, info_.smem_per_block);
  }
  auto* function = static_cast<CUfunction>(kernel.function);
  ADAMK_CHECK(driver_->check(driver_->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                         static_cast<int>(shape.smem)),
                             "allowing the kernel {} bytes of shared memory", shape.smem));
  int blocks = 0;
  ADAMK_CHECK(driver_->check(driver_->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                 &blocks, function, shape.threads, static_cast<std::size_t>(shape.smem)),
                             "asking how many blocks of {} threads and {} bytes fit an SM", shape.threads, shape.smem));
  prepared_ = {kernel.function, shape.threads, shape.smem, blocks};
  return blocks;
}

Result<int> CudaDevice::resident_blocks(KernelHandle kernel, const LaunchShape& shape) {
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  return prepare(kernel, shape);
}

/// Queues one launch; the context must be current.
Result<void> CudaDevice::queue(KernelHandle kernel, const LaunchShape& shape, std::span<const std::byte> params) {
  ADAMK_TRY(const int per_sm, prepare(kernel, shape));
  if (shape.cooperative && shape.grid > per_sm * info_.sms) {
    return fail(Errc::infeasible, "a grid of {} blocks cannot be resident at once on {}: {} per SM on {} SMs", shape.grid,
                info_.name, per_sm, info_.sms);
  }
  auto* function = static_cast<CUfunction>(kernel.function);
  const auto grid = static_cast<unsigned>(shape.grid);
  const auto threads = static_cast<unsigned>(shape.threads);
  const auto smem = static_cast<unsigned>(shape.smem);
  void* arguments[] = {const_cast<std::byte*>(params.data())};  // the driver only reads it
  const CUresult code =
      shape.cooperative
          ? driver_->cuLaunchCooperativeKernel(function, grid, 1, 1, threads, 1, 1, smem, stream_, arguments)
          : driver_->cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, smem, stream_, arguments, nullptr);
  return driver_->check(code, "launching {} blocks of {} threads with {} bytes of shared memory", shape.grid,
                        shape.threads, shape.smem);
}

Result<void> CudaDevice::launch(KernelHandle kernel, const LaunchShape& shape, std::span<const std::byte> params) {
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  return queue(kernel, shape, params);
}

Result<void> CudaDevice::synchronize() {
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  return driver_->check(driver_->cuStreamSynchronize(stream_), "waiting for the GPU");
}

Result<double> CudaDevice::time_us(const std::vector<std::pair<KernelHandle, std::span<const std::byte>>>& launches,
                                   const LaunchShape& shape) {
  CurrentContext current(*driver_, context_);
  ADAMK_CHECK(current.ok());
  struct Events {
    const CudaDriver& driver;
    CUevent begin = nullptr, end = nullptr;
    ~Events() {
      if (begin != nullptr) driver.cuEventDestroy(begin);
      if (end != nullptr) driver.cuEventDestroy(end);
    }
  } events{*driver_};
  ADAMK_CHECK(driver_->check(driver_->cuEventCreate(&events.begin, CU_EVENT_DEFAULT), "creating an event"));
  ADAMK_CHECK(driver_->check(driver_->cuEventCreate(&events.end, CU_EVENT_DEFAULT), "creating an event"));
  ADAMK_CHECK(driver_->check(driver_->cuEventRecord(events.begin, stream_), "recording an event"));
  for (const auto& [kernel, params] : launches) ADAMK_CHECK(queue(kernel, shape, params));
  ADAMK_CHECK(driver_->check(driver_->cuEventRecord(events.end, stream_), "recording an event"));
  ADAMK_CHECK(driver_->check(driver_->cuEventSynchronize(events.end), "waiting for the timed launches"));
  float milliseconds = 0;
  ADAMK_CHECK(driver_->check(driver_->cuEventElapsedTime(&milliseconds, events.begin, events.end), "reading the time"));
  return 1000.0 * static_cast<double>(milliseconds);
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(int index, void* external_stream) {
  ADAMK_TRY(Driver driver, CudaDriver::open());
  auto device = std::make_unique<CudaDevice>(std::move(driver));
  ADAMK_CHECK(device->open(index, external_stream));
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace adamk
