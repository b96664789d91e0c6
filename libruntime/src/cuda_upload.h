// Host to device copies of any size.
#pragma once

#include <cstddef>
#include <span>

#include "cuda_driver.h"

namespace adamk {

/// Copies `from` to the device on `stream` and waits. Large copies go through two pinned buffers filled by several threads,
/// so that page faults of a mapped file overlap the transfer. The context must be current.
Result<void> upload_bytes(const CudaDriver& driver, CUstream stream, CUdeviceptr to, std::span<const std::byte> from);

}  // namespace adamk
