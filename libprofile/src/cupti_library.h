// libcupti.so.13 as a table of functions.
#pragma once

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <memory>
#include <string>
#include <utility>

#include "adamk/base/result.h"
#include "cupti_search.h"

namespace adamk {

#define ADAMK_CUPTI_FUNCTIONS(F)                                                                              \
  F(cuptiGetVersion) F(cuptiGetResultString)                                                                  \
  F(cuptiActivityEnable) F(cuptiActivityDisable) F(cuptiActivityRegisterCallbacks) F(cuptiActivityFlushAll)   \
  F(cuptiActivityGetNextRecord) F(cuptiActivityGetNumDroppedRecords)                                          \
  F(cuptiProfilerInitialize) F(cuptiProfilerDeviceSupported) F(cuptiProfilerGetCounterAvailability)           \
  F(cuptiDeviceGetChipName)                                                                                   \
  F(cuptiProfilerHostInitialize) F(cuptiProfilerHostDeinitialize) F(cuptiProfilerHostConfigAddMetrics)        \
  F(cuptiProfilerHostGetConfigImageSize) F(cuptiProfilerHostGetConfigImage)                                   \
  F(cuptiProfilerHostGetNumOfPasses) F(cuptiProfilerHostEvaluateToGpuValues)                                  \
  F(cuptiRangeProfilerEnable) F(cuptiRangeProfilerDisable) F(cuptiRangeProfilerGetCounterDataSize)            \
  F(cuptiRangeProfilerCounterDataImageInitialize) F(cuptiRangeProfilerSetConfig) F(cuptiRangeProfilerStart)   \
  F(cuptiRangeProfilerStop) F(cuptiRangeProfilerPushRange) F(cuptiRangeProfilerPopRange)                      \
  F(cuptiRangeProfilerDecodeData)

struct CuptiLibrary {
#define ADAMK_DECLARE_FUNCTION(name) decltype(&::name) name = nullptr;
  ADAMK_CUPTI_FUNCTIONS(ADAMK_DECLARE_FUNCTION)
#undef ADAMK_DECLARE_FUNCTION
  std::string path;
  std::uint32_t version = 0;   // 130000

  /// Opens the first libcupti.so.13 that loads. The library stays open until the process ends: CUPTI's own threads may
  /// still run when the last user is gone. Fails (machine) with the folders that were tried.
  static Result<std::shared_ptr<const CuptiLibrary>> open();

  Error failure(CUptiResult code, const std::string& doing) const;
  Result<void> check(CUptiResult code, const char* doing) const {
    if (code == CUPTI_SUCCESS) return {};
    return tl::unexpected(failure(code, doing));
  }
};

/// A CUPTI parameter struct, zeroed but for its size.
#define ADAMK_CUPTI_PARAMS(type, name) \
  type name{};                         \
  name.structSize = type##_STRUCT_SIZE

}  // namespace adamk
