// The CUDA driver API as a table of functions, opened with dlopen so that binaries start on machines without a driver.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <utility>

#include "adamk/base/result.h"

namespace adamk {

// cuda.h renames functions to their current version (cuMemAlloc -> cuMemAlloc_v2); the list is expanded before it is used,
// so the members and the symbols looked up carry the versioned names and calls read as usual: driver.cuMemAlloc(...).
#define ADAMK_CUDA_FUNCTIONS(F)                                                                                     \
  F(cuInit) F(cuDriverGetVersion) F(cuGetErrorName) F(cuGetErrorString)                                             \
  F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName) F(cuDeviceGetAttribute) F(cuDeviceTotalMem)                 \
  F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease)                                                          \
  F(cuCtxPushCurrent) F(cuCtxPopCurrent) F(cuCtxGetDevice)                                                          \
  F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamSynchronize) F(cuStreamGetCtx)                                     \
  F(cuEventCreate) F(cuEventDestroy) F(cuEventRecord) F(cuEventSynchronize) F(cuEventElapsedTime)                   \
  F(cuMemAlloc) F(cuMemFree) F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemHostGetDevicePointer)                        \
  F(cuMemcpyHtoDAsync) F(cuMemcpyDtoHAsync) F(cuMemsetD8Async)                                                      \
  F(cuModuleLoadDataEx) F(cuModuleUnload) F(cuModuleGetFunction)                                                    \
  F(cuFuncGetAttribute) F(cuFuncSetAttribute) F(cuOccupancyMaxActiveBlocksPerMultiprocessor)                        \
  F(cuLaunchKernel) F(cuLaunchCooperativeKernel)

struct CudaDriver {
#define ADAMK_DECLARE_FUNCTION(name) decltype(&::name) name = nullptr;
  ADAMK_CUDA_FUNCTIONS(ADAMK_DECLARE_FUNCTION)
#undef ADAMK_DECLARE_FUNCTION

  /// Opens libcuda.so.1, finds every function and initialises the driver. Fails (machine) with what is missing.
  static Result<std::shared_ptr<const CudaDriver>> open();

  /// Turns a return code into an Error (machine) that says what was being done; the text is only made on failure.
  template <class... Args>
  Result<void> check(CUresult code, fmt::format_string<Args...> doing, Args&&... args) const {
    if (code == CUDA_SUCCESS) return {};
    return tl::unexpected<Error>(failure(code, fmt::format(doing, std::forward<Args>(args)...)));
  }
  Error failure(CUresult code, const std::string& doing) const;
};

}  // namespace adamk
