// Hardware counters by the range profiler of CUDA 13: user ranges, user replay. The order of calls follows the CUPTI
// documentation, "Range Profiling API".
#include <dlfcn.h>

#include <memory>

#include "adamk/profile/cupti.h"
#include "cupti_library.h"

namespace adamk {
namespace {

using Cupti = std::shared_ptr<const CuptiLibrary>;
using Bytes = std::vector<std::uint8_t>;

/// The device of a context, which is current as long as this lives.
class ContextScope {
 public:
  static Result<std::unique_ptr<ContextScope>> enter(void* context) {
    if (context == nullptr) return fail(Errc::machine, "counters need a CUDA device; this one has no CUDA context");
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return fail(Errc::machine, "libcuda.so.1 was not found: install the NVIDIA driver");
    std::unique_ptr<ContextScope> scope(new ContextScope);
    scope->push_ = reinterpret_cast<Push>(dlsym(library, "cuCtxPushCurrent_v2"));
    scope->pop_ = reinterpret_cast<Pop>(dlsym(library, "cuCtxPopCurrent_v2"));
    const auto get_device = reinterpret_cast<GetDevice>(dlsym(library, "cuCtxGetDevice"));
    if (scope->push_ == nullptr || scope->pop_ == nullptr || get_device == nullptr) {
      return fail(Errc::machine, "libcuda.so.1 lacks the functions of CUDA 13: update the NVIDIA driver");
    }
    if (scope->push_(static_cast<CUcontext>(context)) != CUDA_SUCCESS) {
      return fail(Errc::machine, "the CUDA context cannot be made current");
    }
    scope->entered_ = true;
    if (get_device(&scope->device) != CUDA_SUCCESS) return fail(Errc::machine, "the CUDA context has no device");
    return scope;
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (entered_) pop_(&popped);
  }

  CUdevice device = 0;

 private:
  using Push = CUresult (*)(CUcontext);
  using Pop = CUresult (*)(CUcontext*);
  using GetDevice = CUresult (*)(CUdevice*);
  ContextScope() = default;
  Push push_ = nullptr;
  Pop pop_ = nullptr;
  bool entered_ = false;
};

Result<void> check_supported(const CuptiLibrary& cupti, CUdevice device) {
  ADAMK_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, supported);
  supported.cuDevice = device;
  supported.api = CUPTI_PROFILER_RANGE_PROFILING;
  ADAMK_CHECK(cupti.check(cupti.cuptiProfilerDeviceSupported(&supported), "asking whether the device has counters"));
  if (supported.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return {};
  const auto lacks = [](CUpti_Profiler_Support_Level level) { return level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED; };
  const char* why = lacks(supported.architecture)          ? "its architecture"
                    : lacks(supported.sli)                 ? "SLI"
                    : lacks(supported.vGpu)                ? "vGPU (enable profiling in the vGPU's settings)"
                    : lacks(supported.confidentialCompute) ? "confidential computing"
                    : lacks(supported.cmp)                 ? "being a mining processor"
                    : lacks(supported.wsl)                 ? "WSL"
                                                           : "its configuration";
  return fail(Errc::machine, "CUPTI has no counters on this device because of {}; see docs/warnings/counters-not-permitted.md",
              why);
}

/// The host side: which metrics, how they are scheduled into passes, and their values.
class CounterHost {
 public:
  CounterHost(Cupti cupti, const std::vector<const char*>& names) : cupti_(std::move(cupti)), names_(names) {}
  CounterHost(const CounterHost&) = delete;
  CounterHost& operator=(const CounterHost&) = delete;
  ~CounterHost() {
    if (object_ == nullptr) return;
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, end);
    end.pHostObject = object_;
    cupti_->cuptiProfilerHostDeinitialize(&end);
  }

  Result<void> open(CUcontext context, CUdevice device) {
    ADAMK_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, chip);
    chip.deviceIndex = static_cast<std::size_t>(device);
    ADAMK_CHECK(cupti_->check(cupti_->cuptiDeviceGetChipName(&chip), "asking the chip's name"));
    chip_ = chip.pChipName;
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, available);
    available.ctx = context;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerGetCounterAvailability(&available), "sizing the list of counters"));
    availability_.resize(available.counterAvailabilityImageSize);
    available.pCounterAvailabilityImage = availability_.data();
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerGetCounterAvailability(&available), "asking which counters are free"));
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, begin);
    begin.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    begin.pChipName = chip_.c_str();
    begin.pCounterAvailabilityImage = availability_.data();
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerHostInitialize(&begin), "preparing counters"));
    object_ = begin.pHostObject;
    return {};
  }

  /// One metric at a time, so that the one refused can be named.
  Result<void> add_metrics() {
    for (const char* name : names_) {
      const char* one[] = {name};
      ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
      add.pHostObject = object_;
      add.ppMetricNames = one;
      add.numMetrics = 1;
      const CUptiResult code = cupti_->cuptiProfilerHostConfigAddMetrics(&add);
      if (code == CUPTI_ERROR_INVALID_METRIC_NAME || code == CUPTI_ERROR_INVALID_PARAMETER) {
        return fail(Errc::bad_input, "chip {} has no metric '{}'; names are as `ncu --query-metrics` lists them, with .sum, "
                    ".avg, .min or .max", chip_, name);
      }
      ADAMK_CHECK(cupti_->check(code, "adding a metric"));
    }
    return {};
  }

  Result<Bytes> configuration() {
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = object_;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerHostGetConfigImageSize(&size), "sizing the counters' configuration"));
    Bytes image(size.configImageSize);
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, get);
    get.pHostObject = object_;
    get.pConfigImage = image.data();
    get.configImageSize = image.size();
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerHostGetConfigImage(&get), "configuring counters"));
    return image;
  }

  Result<int> passes(Bytes& configuration) {
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, count);
    count.pConfigImage = configuration.data();
    count.configImageSize = configuration.size();
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerHostGetNumOfPasses(&count), "counting passes"));
    return static_cast<int>(count.numOfPasses);
  }

  Result<std::vector<double>> values(const Bytes& data) {
    std::vector<double> values(names_.size());
    ADAMK_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, evaluate);
    evaluate.pHostObject = object_;
    evaluate.pCounterDataImage = data.data();
    evaluate.counterDataImageSize = data.size();
    evaluate.ppMetricNames = names_.data();
    evaluate.numMetrics = names_.size();
    evaluate.pMetricValues = values.data();
    ADAMK_CHECK(cupti_->check(cupti_->cuptiProfilerHostEvaluateToGpuValues(&evaluate), "evaluating counters"));
    return values;
  }

 private:
  Cupti cupti_;
  std::vector<const char*> names_;
  CUpti_Profiler_Host_Object* object_ = nullptr;
  std::string chip_;
  Bytes availability_;
};

/// The device side: ranges around the work.
class RangeProfiler {
 public:
  explicit RangeProfiler(Cupti cupti) : cupti_(std::move(cupti)) {}
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;
  ~RangeProfiler() {
    if (object_ == nullptr) return;
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, disable);
    disable.pRangeProfilerObject = object_;
    cupti_->cuptiRangeProfilerDisable(&disable);
  }

  Result<void> enable(CUcontext context) {
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, enable);
    enable.ctx = context;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiRangeProfilerEnable(&enable), "enabling counters"));
    object_ = enable.pRangeProfilerObject;
    return {};
  }

  Result<Bytes> configure(std::vector<const char*> names, const Bytes& configuration) {
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = object_;
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxNumOfRanges = 1;
    size.maxNumRangeTreeNodes = 1;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiRangeProfilerGetCounterDataSize(&size), "sizing the counters' data"));
    Bytes data(size.counterDataSize);
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, initialise);
    initialise.pRangeProfilerObject = object_;
    initialise.pCounterData = data.data();
    initialise.counterDataSize = data.size();
    ADAMK_CHECK(cupti_->check(cupti_->cuptiRangeProfilerCounterDataImageInitialize(&initialise), "preparing the counters' data"));
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
    set.pRangeProfilerObject = object_;
    set.configSize = configuration.size();
    set.pConfig = configuration.data();
    set.counterDataImageSize = data.size();
    set.pCounterDataImage = data.data();   // a moved vector keeps its buffer, so this stays valid for the caller
    set.range = CUPTI_UserRange;
    set.replayMode = CUPTI_UserReplay;
    set.maxRangesPerPass = 1;
    set.numNestingLevels = 1;
    set.minNestingLevel = 1;
    set.passIndex = 0;
    set.targetNestingLevel = 1;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiRangeProfilerSetConfig(&set), "setting the counters"));
    return data;
  }

  /// One pass. True when every pass has been made.
  Result<bool> pass(const std::function<Result<void>()>& work) {
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, start);
    start.pRangeProfilerObject = object_;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiRangeProfilerStart(&start), "starting a pass"));
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params, push);
    push.pRangeProfilerObject = object_;
    push.pRangeName = "work";
    const CUptiResult pushed = cupti_->cuptiRangeProfilerPushRange(&push);
    const Result<void> worked = pushed == CUPTI_SUCCESS ? work() : Result<void>{};
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params, pop);
    pop.pRangeProfilerObject = object_;
    const CUptiResult popped = pushed == CUPTI_SUCCESS ? cupti_->cuptiRangeProfilerPopRange(&pop) : CUPTI_SUCCESS;
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = object_;
    const CUptiResult stopped = cupti_->cuptiRangeProfilerStop(&stop);   // also when the work failed
    ADAMK_CHECK(worked);
    ADAMK_CHECK(cupti_->check(pushed, "opening a range"));
    ADAMK_CHECK(cupti_->check(popped, "closing a range"));
    ADAMK_CHECK(cupti_->check(stopped, "ending a pass"));
    return stop.isAllPassSubmitted != 0;
  }

  Result<void> decode() {
    ADAMK_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = object_;
    ADAMK_CHECK(cupti_->check(cupti_->cuptiRangeProfilerDecodeData(&decode), "decoding counters"));
    if (decode.numOfRangeDropped > 0) return fail(Errc::machine, "CUPTI dropped the range; its counters are incomplete");
    return {};
  }

 private:
  Cupti cupti_;
  CUpti_RangeProfiler_Object* object_ = nullptr;
};

Result<int> run_passes(RangeProfiler& profiler, int expected, const std::function<Result<void>()>& work,
                       const std::function<Result<void>()>& reset_between_passes) {
  // The bound guards against a profiler that never reports completion.
  for (int pass = 0; pass < expected + 1; ++pass) {
    if (pass > 0 && reset_between_passes) ADAMK_CHECK(reset_between_passes());
    ADAMK_TRY(const bool complete, profiler.pass(work));
    if (complete) return pass + 1;
  }
  return fail(Errc::machine, "CUPTI announced {} passes and did not finish in {}", expected, expected + 1);
}

}  // namespace

Result<Counters> collect_counters(void* context, std::span<const std::string> metrics,
                                  const std::function<Result<void>()>& work,
                                  const std::function<Result<void>()>& reset_between_passes) {
  if (metrics.empty()) return fail(Errc::bad_input, "no metrics to collect");
  ADAMK_TRY(const Cupti cupti, CuptiLibrary::open());
  ADAMK_TRY(const std::unique_ptr<ContextScope> scope, ContextScope::enter(context));
  ADAMK_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, initialise);
  ADAMK_CHECK(cupti->check(cupti->cuptiProfilerInitialize(&initialise), "opening the profiler"));
  ADAMK_CHECK(check_supported(*cupti, scope->device));

  std::vector<const char*> names;
  for (const std::string& metric : metrics) names.push_back(metric.c_str());
  const auto cuda_context = static_cast<CUcontext>(context);
  RangeProfiler profiler(cupti);
  ADAMK_CHECK(profiler.enable(cuda_context));   // the first call that needs permission
  CounterHost host(cupti, names);
  ADAMK_CHECK(host.open(cuda_context, scope->device));
  ADAMK_CHECK(host.add_metrics());
  ADAMK_TRY(Bytes configuration, host.configuration());
  ADAMK_TRY(const int expected, host.passes(configuration));
  ADAMK_TRY(Bytes data, profiler.configure(names, configuration));

  Counters counters;
  ADAMK_TRY(counters.passes, run_passes(profiler, expected, work, reset_between_passes));
  ADAMK_CHECK(profiler.decode());
  ADAMK_TRY(const std::vector<double> values, host.values(data));
  for (std::size_t i = 0; i < metrics.size(); ++i) counters.values[metrics[i]] = values[i];
  return counters;
}

}  // namespace adamk
