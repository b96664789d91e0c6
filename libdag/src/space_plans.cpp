#include "space_plans.h"

#include <algorithm>
#include <cmath>

namespace adamk {
namespace plans {
namespace {

StagePlan* find(Plan& plan, StageKind kind) {
  for (StagePlan& stage : plan.stages)
    if (stage.kind == kind) return &stage;
  return nullptr;
}

void append_new(std::vector<int>& values, int value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

std::int64_t ring_stage_bytes(const Deployment& deployment, const Plan& plan) {
  const Result<Schedule> schedule = unbounded_schedule(deployment, plan);
  return schedule ? schedule->smem.ring_stage : 1;
}

}  // namespace

void tie(Plan& plan, const StagePlan& changed) {
  const auto copy = [&](StageKind from, StageKind to, auto member) {
    StagePlan* other = find(plan, to);
    if (changed.kind == from && other != nullptr) other->*member = changed.*member;
  };
  copy(StageKind::qkv, StageKind::head, &StagePlan::input);
  copy(StageKind::head, StageKind::qkv, &StagePlan::input);
  copy(StageKind::output, StageKind::down, &StagePlan::tile_rows);
  copy(StageKind::down, StageKind::output, &StagePlan::tile_rows);
}

Result<Schedule> unbounded_schedule(const Deployment& deployment, const Plan& plan) {
  Deployment roomy = deployment;
  roomy.target.smem_per_block = std::int64_t{1} << 50;
  roomy.target.smem_per_sm = std::int64_t{1} << 50;
  return make_schedule(roomy, plan);
}

namespace {

/// A loop that has one turn in every stage is none, and more fragments in flight than a turn has are no more than all.
Result<void> check_inner_loop(const Schedule& schedule) {
  const Plan& plan = schedule.plan;
  int chunk = 0, turn = 0;
  for (const GemvShape& shape : schedule.gemvs) {
    chunk = std::max(chunk, shape.chunk_steps);
    turn = std::max(turn, (plan.unroll == 0 ? shape.chunk_steps : std::min(plan.unroll, shape.chunk_steps)) * shape.tile_rows / 16);
  }
  if (plan.unroll >= chunk)
    return fail(Errc::infeasible, "unroll: {}, but no ring stage holds more than {} steps: the same kernel as unroll 0", plan.unroll, chunk);
  if (plan.fragments / 2 >= turn)
    return fail(Errc::infeasible, "fragments: {}, but no turn of the inner loop has more than {}: the same kernel as fragments {}",
                plan.fragments, turn, plan.fragments / 2);
  return {};
}

}  // namespace

Result<Plan> check(const Deployment& deployment, const Plan& plan) {
  ADAMK_TRY(const Schedule schedule, make_schedule(deployment, plan));
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind == StageKind::attention) continue;
    const int steps = schedule.gemv(stage.kind).steps;
    if (stage.chunk_steps / 2 >= steps)
      return fail(Errc::infeasible, "{}.chunk_steps: {}, but a warp's K slice has {} steps: the same kernel as chunk_steps {}",
                  to_string(stage.kind), stage.chunk_steps, steps, stage.chunk_steps / 2);
  }
  ADAMK_CHECK(check_inner_loop(schedule));
  return plan;
}

std::vector<int> ring_choices(const Deployment& deployment, const Plan& plan, const Knobs& knobs) {
  const int most = most_ring_stages(deployment, plan);
  std::vector<int> values;
  if (most < 2) return values;
  for (const double fraction : knobs.ring_fractions) append_new(values, std::max(2, static_cast<int>(most * fraction)));
  return values;
}

std::vector<int> window_choices(const Deployment& deployment, const Plan& plan, const Knobs& knobs) {
  const std::int64_t stage = ring_stage_bytes(deployment, plan);
  std::vector<int> values;
  for (const std::int64_t bytes : knobs.window_bytes) {
    const std::int64_t stages = bytes == 0 ? plan.ring_stages : bytes / stage;
    append_new(values, static_cast<int>(std::clamp<std::int64_t>(stages, 1, plan.ring_stages)));
  }
  return values;
}

int scaled_pace(int pace, int grid, int sms) {
  return pace == 0 ? 0 : std::max(1, static_cast<int>(std::lround(static_cast<double>(pace) * grid / sms)));
}

std::vector<MemoryRow> memory_table(const Deployment& deployment, const Knobs& knobs) {
  constexpr int kWhole = 1 << 20;   // clamped to K by the schedule
  std::vector<MemoryRow> rows;
  const Result<Plan> base = default_plan(deployment);
  if (!base) return rows;
  for (const int warps : knobs.consumer_warps) {
    for (const int tile_rows : {16, 32}) {
      for (const int chunk_steps : {1, 2, 4, 8, kWhole}) {
        Plan plan = *base;
        plan.consumer_warps = warps;
        plan.window = 1;
        for (StagePlan& stage : plan.stages) {
          stage.tile_rows = tile_rows;
          stage.chunk_steps = chunk_steps;
        }
        MemoryRow row{warps, tile_rows, chunk_steps == kWhole ? 0 : chunk_steps, {}, 0, deployment.target.smem_per_block};
        row.stages = most_ring_stages(deployment, plan);
        plan.ring_stages = std::max(2, row.stages);
        if (const Result<Schedule> schedule = unbounded_schedule(deployment, plan)) row.smem = schedule->smem;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

}  // namespace plans

int most_ring_stages(const Deployment& deployment, Plan plan) {
  constexpr int kMost = 256;   // what a plan file may hold
  plan.ring_stages = 2;
  plan.window = 1;
  const Result<Schedule> two = make_schedule(deployment, plan);
  if (!two) return 0;
  // Every further stage costs its bytes and its barriers, which come in rounded steps: start from the bytes alone.
  const std::int64_t left = deployment.target.smem_per_block - (two->smem.total() - two->smem.ring);
  int stages = static_cast<int>(std::clamp<std::int64_t>(left / std::max<std::int64_t>(1, two->smem.ring_stage), 2, kMost));
  for (; stages > 2; --stages) {
    plan.ring_stages = stages;
    if (make_schedule(deployment, plan)) break;
  }
  return stages;
}

}  // namespace adamk
