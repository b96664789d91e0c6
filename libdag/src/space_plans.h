// What the parts of Space share about single plans.
#pragma once

#include "adamk/dag/space.h"

namespace adamk::plans {

/// Choices that must agree across stages follow the one just made: qkv and head read the same published values, output and
/// down own the same rows of the residual.
void tie(Plan& plan, const StagePlan& changed);

/// The plan, when make_schedule accepts it and no smaller chunk_steps gives the same kernel; else why not.
Result<Plan> check(const Deployment& deployment, const Plan& plan);

/// Distinct numbers of ring stages for the plan, largest first; empty when it does not fit at all.
std::vector<int> ring_choices(const Deployment& deployment, const Plan& plan, const Knobs& knobs);
/// Distinct windows for the plan's ring.
std::vector<int> window_choices(const Deployment& deployment, const Plan& plan, const Knobs& knobs);
/// An SM's share of the bandwidth grows as the grid shrinks, and the clocks between its copies shrink with it.
int scaled_pace(int pace, int grid, int sms);

/// The schedule a plan would have on a target with no end of shared memory: what it asks for, whether it fits or not.
Result<Schedule> unbounded_schedule(const Deployment& deployment, const Plan& plan);

std::vector<MemoryRow> memory_table(const Deployment& deployment, const Knobs& knobs);

}  // namespace adamk::plans
