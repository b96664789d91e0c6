// Kernel durations by CUPTI activity records.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "adamk/profile/cupti.h"
#include "cupti_library.h"

namespace adamk {
namespace {

constexpr std::size_t buffer_bytes = 1u << 20;
constexpr std::size_t buffer_alignment = 8;   // ACTIVITY_RECORD_ALIGNMENT

/// What the callbacks write to. CUPTI's callbacks carry no user pointer, so this one object of the process is the only
/// place they can reach; ActivityTrace guards it.
struct Sink {
  std::mutex mutex;
  std::shared_ptr<const CuptiLibrary> cupti;   // set while a trace runs
  std::vector<KernelTime> kernels;
  std::string problem;
};

Sink& sink() {
  static Sink instance;
  return instance;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
  *size = *buffer == nullptr ? 0 : buffer_bytes;
  *records = 0;   // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  Sink& to = sink();
  const std::lock_guard lock(to.mutex);
  if (to.cupti) {
    CUpti_Activity* record = nullptr;
    while (to.cupti->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && record->kind != CUPTI_ACTIVITY_KIND_KERNEL) continue;
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      // Both zero: CUPTI could not take the time of this kernel.
      if (kernel->end < kernel->start || kernel->end == 0) to.problem = "CUPTI reported a kernel without times";
      else to.kernels.push_back({kernel->name == nullptr ? "" : kernel->name, kernel->start, kernel->end - kernel->start});
    }
    std::size_t dropped = 0;
    if (to.cupti->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0) {
      to.problem = fmt::format("CUPTI dropped {} activity records", dropped);
    }
  }
  std::free(buffer);
}

}  // namespace

Result<ActivityTrace> ActivityTrace::start() {
  Sink& to = sink();
  ADAMK_TRY(std::shared_ptr<const CuptiLibrary> cupti, CuptiLibrary::open());
  {
    const std::lock_guard lock(to.mutex);
    if (to.cupti) return fail(Errc::machine, "an activity trace is already running in this process");
    to.kernels.clear();
    to.problem.clear();
    to.cupti = cupti;
  }
  ActivityTrace trace;
  trace.running_ = true;   // from here on the destructor cleans up
  ADAMK_CHECK(cupti->check(cupti->cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "registering CUPTI's buffers"));
  ADAMK_CHECK(cupti->check(cupti->cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "tracing kernels"));
  return trace;
}

Result<std::vector<KernelTime>> ActivityTrace::stop() {
  if (!running_) return fail(Errc::machine, "this activity trace is not running");
  Sink& to = sink();
  const std::shared_ptr<const CuptiLibrary> cupti = to.cupti;
  // The callbacks take the mutex, so it is not held across the flush.
  const CUptiResult flushed = cupti->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  cupti->cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  running_ = false;
  const std::lock_guard lock(to.mutex);
  to.cupti.reset();
  std::vector<KernelTime> kernels = std::move(to.kernels);
  to.kernels.clear();
  ADAMK_CHECK(cupti->check(flushed, "reading kernel times"));
  if (!to.problem.empty()) return fail(Errc::machine, "{}; the durations are not used", to.problem);
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.start_ns < b.start_ns; });
  return kernels;
}

ActivityTrace::~ActivityTrace() {
  if (running_) static_cast<void>(stop());
}

}  // namespace adamk
