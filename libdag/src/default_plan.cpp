// A sound plan without a search.
#include <algorithm>

#include "adamk/dag/plan.h"
#include "adamk/dag/schedule.h"

namespace adamk {
namespace {

Plan plain_plan(const Deployment& deployment, int consumer_warps, int chunk_steps) {
  const Target& target = deployment.target;
  Plan plan;
  plan.grid = target.sms;
  plan.consumer_warps = consumer_warps;
  const auto stage = [&](StageKind kind) {
    StagePlan out;
    out.kind = kind;
    out.chunk_steps = chunk_steps;
    return out;
  };
  for (const StageKind kind : {StageKind::qkv, StageKind::attention, StageKind::output, StageKind::gate_up,
                               StageKind::down, StageKind::head})
    plan.stages.push_back(stage(kind));
  // Splitting costs every reader the other splits' outputs: 75 us of 1025 for four of them on Qwen3-1.7B at position 128
  // (docs/performance.md). From about 512 positions a split, reading the cache weighs more.
  StagePlan& attention = plan.stages[1];
  const std::int64_t useful = std::max<std::int64_t>(1, deployment.workload.context / 512);
  while (attention.kv_splits < 16 && attention.kv_splits * 2 <= useful &&
         attention.kv_splits * 2 * deployment.model.kv_heads <= target.sms)
    attention.kv_splits *= 2;
  return plan;
}

}  // namespace

Result<Plan> default_plan(const Deployment& deployment) {
  // The fewest padded bytes decides between warp counts, where they tie eight (967 us against 1025 with 16 on Qwen3-1.7B,
  // docs/performance.md); then the widest chunk that still leaves six ring stages, 64 KB of them in flight.
  const Plan* best = nullptr;
  Plan candidate, chosen;
  std::int64_t best_bytes = 0;
  tl::unexpected<Error> last = fail(Errc::infeasible, "no plan fits");
  for (const int warps : {8, 16, 4}) {
    for (const int steps : {4, 2, 1}) {
      candidate = plain_plan(deployment, warps, steps);
      const std::int64_t stage_bytes = std::int64_t{512} * warps * steps;
      for (int stages = 12; stages >= 2; --stages) {
        candidate.ring_stages = stages;
        candidate.window = static_cast<int>(std::clamp<std::int64_t>((64 << 10) / stage_bytes, 1, stages));
        const Result<Schedule> schedule = make_schedule(deployment, candidate);
        if (!schedule) {
          last = tl::unexpected(schedule.error());
          continue;
        }
        const bool deep = stages >= 6 || steps == 1;
        if (deep && (best == nullptr || schedule->packed_bytes < best_bytes)) {
          chosen = candidate;
          best = &chosen;
          best_bytes = schedule->packed_bytes;
        }
        break;
      }
      if (best != nullptr && best->consumer_warps == warps) break;
    }
  }
  if (best == nullptr) return last;
  return chosen;
}

}  // namespace adamk
