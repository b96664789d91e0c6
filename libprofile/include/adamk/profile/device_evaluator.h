// DeviceEvaluator: tries plans on a GPU, or checks them on an emulated one. This process never opens the GPU: candidates are compiled by a few worker processes
// ahead of time and run, one after the other, by one worker that owns the GPU and the weights. A worker that crashes, hangs or
// leaves the GPU unusable is killed and started again; that costs one candidate. Workers can write to a scratch folder of their
// own and little else (docs/isolation.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/target.h"
#include "adamk/profile/timing.h"
#include "adamk/runtime/device.h"
#include "adamk/search/evaluator.h"

namespace adamk {

/// Where the worker takes the weights from.
struct WeightsSource {
  std::filesystem::path folder;               // a Hugging Face folder; not looked at when `random_seed` is set
  std::optional<std::uint64_t> random_seed;
};

/// Seconds each step of a candidate may take before its worker is killed.
struct Deadlines {
  double open = 1200;       // opening the GPU, making or loading the weights, once per worker
  double reference = 1800;  // the reference's logits, once per worker
  double compile = 180;
  double load = 180;        // packing, when the layout is new, and uploading
  double verify = 180;
  double emulate = 7200;    // verifying on an emulated device
  double time = 60;
};

/// An emulated device instead of a GPU: candidates are compiled to PTX and checked (results, races, deadlocks), not timed.
struct Emulation {
  Target target;
  std::uint64_t seed = 1;                               // of the interleavings
};

struct DeviceEvaluatorOptions {
  int device = 0;
  std::optional<Emulation> emulation;                   // set: `device` is not looked at
  WeightsSource weights;
  std::vector<std::int64_t> positions = {0, 64, 255};   // whose logits are compared; those outside the context are left out
  std::uint64_t input_seed = 1;                         // of tokens and KV fill
  TimingOptions timing{.position = -1};                 // position -1: the middle of the context, at most 128
  Deadlines deadlines;
  int compile_workers = 0;                              // 0: half of the cores, 1 to 8
  int spill_limit = 64;                                 // bytes a thread may spill (stores and loads): a few cost nothing
  bool run_spilling = false;                            // false: a kernel beyond the limit is reported as `spills`, not run
  std::function<void(std::string_view doing)> progress;   // told what a long step outside of candidates does; may be empty
  bool isolate = true;                                  // false: workers may do whatever this process may
  std::vector<std::string> worker_command;              // empty: this executable with worker_argument (tests use others);
                                                        // a worker's scratch folder is added as the last argument
};

class DeviceEvaluator final : public Evaluator {
 public:
  /// Starts the worker and asks it for the device and its ceilings. Fails (machine) without a GPU, driver or NVRTC.
  static Result<std::unique_ptr<DeviceEvaluator>> create(DeviceEvaluatorOptions options);
  ~DeviceEvaluator() override;

  const DeviceIdentity& device() const override;
  Method method() const override;
  std::string isolation() const override;
  Result<void> evaluate(const Deployment& deployment, std::span<const Plan> plans, const Finished& finished,
                        const Stop& stop) override;

  /// Times the worker was started again because of a candidate.
  int restarts() const;

 private:
  struct State;
  explicit DeviceEvaluator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Who a GPU is in the records, without the measured figures. Fails (machine) where NVRTC cannot be opened: its version is
/// part of the identity.
Result<DeviceIdentity> device_identity(const DeviceInfo& info);

inline constexpr const char* worker_argument = "--adamk-worker";        // then the scratch folder
inline constexpr const char* unconfined_argument = "--no-isolation";   // last, where nothing is to be given up

/// main() of every executable that evaluates calls this first: when it was started as a worker, it gives up what a worker does
/// not need, serves until its parent is gone and returns the exit status.
std::optional<int> run_worker_if_asked(int argc, const char* const* argv);

}  // namespace adamk
