// CUPTI, opened at run time: kernel durations by activity records, and hardware counters by the range profiler of CUDA 13.
// Never both at once: a kernel under the range profiler is serialised and slower. Every function fails (machine) with what
// is missing where CUPTI cannot be opened or is not permitted; callers degrade to events (docs/warnings/).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/result.h"

namespace adamk {

/// Path and version of the CUPTI in use, "/usr/local/cuda/lib64/libcupti.so.13 (130000)".
Result<std::string> cupti_library();

struct KernelTime {
  std::string name;
  std::uint64_t start_ns = 0;      // CUPTI's clock; only differences mean something
  std::uint64_t duration_ns = 0;
};

/// Records every kernel of this process between start() and stop(). CUPTI has one set of buffers per process: a second
/// trace while one runs fails (machine). Not thread-safe.
class ActivityTrace {
 public:
  static Result<ActivityTrace> start();
  /// Ends recording. The caller has synchronised the device. Kernels in the order they started.
  Result<std::vector<KernelTime>> stop();

  ActivityTrace(ActivityTrace&& other) noexcept : running_(other.running_) { other.running_ = false; }
  ActivityTrace& operator=(ActivityTrace&&) = delete;
  ~ActivityTrace();

 private:
  ActivityTrace() = default;
  bool running_ = false;
};

struct Counters {
  std::map<std::string, double> values;   // by the metric's name as asked
  int passes = 0;                         // times the work ran
};

/// Values of `metrics` (names as Nsight Compute spells them, "dram__bytes_read.sum") summed over everything that `work`
/// launches on `context` (a CUcontext, Device::native_context()). `work` launches and waits; it runs once per pass, and
/// `reset_between_passes` restores what it changed before each pass after the first. A metric the chip does not have is
/// an error (bad_input) that names it; missing permission is (machine) and names the setting to change.
Result<Counters> collect_counters(void* context, std::span<const std::string> metrics,
                                  const std::function<Result<void>()>& work,
                                  const std::function<Result<void>()>& reset_between_passes);

}  // namespace adamk
