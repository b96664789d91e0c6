#include "cuda_upload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

namespace adamk {
namespace {

constexpr std::size_t staging_bytes = 32u << 20;       // large enough to hide a copy's start-up, small to pin quickly
constexpr std::size_t staged_from = 4 * staging_bytes;  // below this, pinning costs more than it saves

struct Staging {
  const CudaDriver& driver;
  std::array<void*, 2> buffers{};
  std::array<CUevent, 2> drained{};   // recorded behind the copy out of the buffer
  ~Staging() {
    for (CUevent event : drained) {
      if (event != nullptr) driver.cuEventDestroy(event);
    }
    for (void* buffer : buffers) {
      if (buffer != nullptr) driver.cuMemFreeHost(buffer);
    }
  }
};

/// memcpy split over a few threads: one thread faulting in a mapped file does not keep up with PCIe.
void copy_in_parallel(std::byte* to, std::span<const std::byte> from, std::size_t threads) {
  const std::size_t share = (from.size() / threads + 4095) & ~std::size_t{4095};
  std::vector<std::thread> helpers;
  for (std::size_t begin = share; begin < from.size(); begin += share) {
    const std::size_t count = std::min(share, from.size() - begin);
    helpers.emplace_back([=] { std::memcpy(to + begin, from.data() + begin, count); });
  }
  std::memcpy(to, from.data(), std::min(share, from.size()));
  for (std::thread& helper : helpers) helper.join();
}

Result<void> upload_staged(const CudaDriver& driver, CUstream stream, CUdeviceptr to, std::span<const std::byte> from,
                           Staging& staging) {
  for (int i = 0; i < 2; ++i) {
    ADAMK_CHECK(driver.check(driver.cuMemHostAlloc(&staging.buffers[i], staging_bytes, 0), "pinning an upload buffer"));
    ADAMK_CHECK(driver.check(driver.cuEventCreate(&staging.drained[i], CU_EVENT_DISABLE_TIMING), "creating an event"));
  }
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, 8);
  std::size_t piece = 0;
  for (std::size_t begin = 0; begin < from.size(); begin += staging_bytes, ++piece) {
    const auto part = from.subspan(begin, std::min(staging_bytes, from.size() - begin));
    const std::size_t turn = piece % 2;
    if (piece >= 2) ADAMK_CHECK(driver.check(driver.cuEventSynchronize(staging.drained[turn]), "uploading to the GPU"));
    copy_in_parallel(static_cast<std::byte*>(staging.buffers[turn]), part, threads);
    ADAMK_CHECK(driver.check(driver.cuMemcpyHtoDAsync(to + begin, staging.buffers[turn], part.size(), stream),
                             "uploading {} bytes to the GPU", from.size()));
    ADAMK_CHECK(driver.check(driver.cuEventRecord(staging.drained[turn], stream), "recording an event"));
  }
  return {};
}

}  // namespace

Result<void> upload_bytes(const CudaDriver& driver, CUstream stream, CUdeviceptr to, std::span<const std::byte> from) {
  Result<void> copied;
  Staging staging{driver};
  if (from.size() >= staged_from) {
    copied = upload_staged(driver, stream, to, from, staging);
  } else {
    copied = driver.check(driver.cuMemcpyHtoDAsync(to, from.data(), from.size(), stream), "uploading {} bytes to the GPU",
                          from.size());
  }
  // Waits on failure too: copies already queued read the staging buffers.
  auto finished = driver.check(driver.cuStreamSynchronize(stream), "uploading {} bytes to the GPU", from.size());
  return copied ? finished : copied;
}

}  // namespace adamk
