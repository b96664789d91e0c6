// In-kernel timeline: where the time of a decode step goes, from a build of the plan's kernel that records it
// (Instrument::timeline). Never used for timing: it is a little slower than the plan's own kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/codegen/kernel.h"
#include "adamk/runtime/decoder.h"

namespace adamk {

/// What a warp waited for, as primitives.cuh numbers them.
enum class WaitCause { input, weights, slot, turn, tiles, buffer, token };
constexpr int wait_causes = 7;
std::string_view to_string(WaitCause cause);

/// One warp's part in one stage: from the end of its part in the one before.
struct WarpStage {
  bool took_part = false;
  double begin_us = 0, end_us = 0;                 // since the recorded launch began on its first SM
  std::array<double, wait_causes> waited_us = {};  // by WaitCause
  double us() const { return end_us - begin_us; }
  double worked_us() const;                        // what is no wait
};

/// One launch. Times of different SMs are comparable to a step of the device's global timer (32 ns on an H200).
struct Timeline {
  Plan plan;
  int steps = 0, layers = 0, sms = 0, warps = 0;   // layers: one behind the last too, which has the head; warps: of an SM
  double clock_mhz = 0;
  std::vector<WarpStage> records;                  // [step][layer][stage][SM][warp]

  std::size_t place(int step, int layer, StageKind stage, int sm, int warp) const;   // in `records`
  const WarpStage& at(int step, int layer, StageKind stage, int sm, int warp) const;
  int loader() const { return plan.consumer_warps; }
  int storer() const { return plan.consumer_warps + 1; }
  int launcher() const { return plan.consumer_warps + 2; }
};

struct TimelineOptions {
  std::int64_t position = 0;   // of the first token of every launch
  int steps = TimelineLayout::steps;
  int warmup_launches = 2;
};

/// The recipe of an instrumented kernel (Instrument::timeline): its workspace holds the records too.
Recipe timeline_recipe(const Deployment& deployment, const Schedule& schedule, const Kernel& instrumented);

/// Records one launch of `options.steps` steps, at most TimelineLayout::steps. `decoder`: of a timeline_recipe. Fails as a
/// Decoder does, and (machine) where records contradict each other.
Result<Timeline> record_timeline(Decoder& decoder, const Model& model, const Schedule& schedule, const TimelineOptions& options = {});

/// One stage of a step, over all layers. It ends when its last SM has published, and begins when the stage before has ended; so
/// all stages and `token` (the way from the best row to the next step) add up to the step.
struct StageTime {
  std::string_view name;
  double us = 0;               // of the step
  double us_each = 0;          // per layer
  double bytes_each = 0;       // of weights that it streams
  std::array<double, wait_causes> consumers_waited_us = {};   // each, mean over consumer warps that took part
  double consumers_us = 0, consumers_worked_us = 0;           // each, alike
};

/// What the warps of a role did in a step, in us of it, mean over all SMs and their warps of the role.
struct RoleTime {
  std::string_view name;
  std::array<double, wait_causes> waited_us = {};
  double worked_us = 0;
};

/// Of the recorded steps without the first, which begins cold; of the first where there is no other.
struct TimelineSummary {
  int steps = 0;
  double step_us = 0;
  std::vector<StageTime> stages;   // in the plan's order, `token` last
  std::vector<RoleTime> roles;
};
TimelineSummary summarise_timeline(const Timeline& timeline, const Schedule& schedule);
Json timeline_summary_to_json(const TimelineSummary& summary);

/// Chrome's trace format, which Perfetto opens: a process for each of `sms`, a thread for each warp, a slice for each stage with
/// its waits as arguments. SMs that do not exist are refused (bad_input).
Result<Json> timeline_trace(const Timeline& timeline, const std::vector<int>& sms);

}  // namespace adamk
