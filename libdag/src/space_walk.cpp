// Plans of a space: by index, at random, and next to a given one.
#include <algorithm>
#include <set>
#include <utility>

#include "space_plans.h"

namespace adamk {
namespace {

/// Position of each choice in a candidate's index, least significant first.
struct Digits {
  std::uint64_t rest;
  std::size_t take(std::size_t base) {
    const std::uint64_t digit = rest % base;
    rest /= base;
    return static_cast<std::size_t>(digit);
  }
};

/// SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits, so streams of different seeds do not meet by construction.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t index) : state_(mix(seed ^ mix(index + 0x9e3779b97f4a7c15u))) {}
  std::size_t below(std::size_t bound) {
    state_ += 0x9e3779b97f4a7c15u;
    return static_cast<std::size_t>(mix(state_) % bound);   // bound is tiny: the bias is below 2^-50
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

/// Chooses one of n: by digit or at random.
using Choose = std::function<std::size_t(std::size_t)>;

/// Everything but ring and window, which need to know the rest.
Plan choose_structure(const Space& space, const std::vector<int>& path, const Choose& choose) {
  Plan plan;
  for (const int id : path) {
    const SpaceEdge& edge = space.edges[static_cast<std::size_t>(id)];
    const std::vector<int> open = edge.open_variants();
    plan.stages.push_back(edge.variants[static_cast<std::size_t>(open[choose(open.size())])].stage);
  }
  const Knobs& knobs = space.knobs;
  plan.consumer_warps = knobs.consumer_warps[choose(knobs.consumer_warps.size())];
  plan.grid = knobs.grids[choose(knobs.grids.size())];
  plan.pace = plans::scaled_pace(knobs.paces[choose(knobs.paces.size())], plan.grid, space.deployment.target.sms);
  plan.unroll = knobs.unrolls[choose(knobs.unrolls.size())];
  plan.fragments = knobs.fragments[choose(knobs.fragments.size())];
  plan.ring_stages = 2;
  plan.window = 1;
  return plan;
}

Result<Plan> choose_plan(const Space& space, std::uint64_t index) {
  std::size_t path = 0;
  for (; path < space.paths.size() && index >= space.path_candidates(path); ++path) index -= space.path_candidates(path);
  if (path == space.paths.size()) return fail(Errc::bad_input, "index: the space has {} candidates", space.candidates());
  Digits digits{index};
  const Choose by_digit = [&](std::size_t base) { return digits.take(base); };
  // Knobs of ring and window first, so that neighbouring indices share the expensive rest.
  const std::size_t ring = by_digit(space.knobs.ring_fractions.size()), window = by_digit(space.knobs.window_bytes.size());
  Plan plan = choose_structure(space, space.paths[path], by_digit);
  ADAMK_TRY(plan, plans::check(space.deployment, plan));
  const std::vector<int> rings = plans::ring_choices(space.deployment, plan, space.knobs);
  if (ring >= rings.size()) return fail(Errc::infeasible, "ring_stages: this fraction repeats a larger one");
  plan.ring_stages = rings[ring];
  const std::vector<int> windows = plans::window_choices(space.deployment, plan, space.knobs);
  if (window >= windows.size()) return fail(Errc::infeasible, "window: these bytes in flight repeat an earlier choice");
  plan.window = windows[window];
  return plans::check(space.deployment, plan);
}

/// The plans next to one, collected without repeats and in the order they were added.
class Neighbours {
 public:
  Neighbours(const Space& space, const Plan& centre) : space_(space), centre_(centre) {
    const Result<Schedule> schedule = plans::unbounded_schedule(space.deployment, centre);
    window_bytes_ = schedule ? schedule->smem.ring_stage * centre.window : 0;
    seen_.insert(centre.hash());
  }

  /// Keeps the bytes in flight and, as far as it fits, the depth of the ring.
  void add_refitted(Plan plan) {
    const int most = most_ring_stages(space_.deployment, plan);
    if (most < 2) return;
    const bool was_full = centre_.ring_stages >= most_ring_stages(space_.deployment, centre_);
    plan.ring_stages = was_full ? most : std::min(plan.ring_stages, most);
    const Result<Schedule> schedule = plans::unbounded_schedule(space_.deployment, plan);
    if (!schedule) return;
    plan.window = static_cast<int>(
        std::clamp<std::int64_t>(window_bytes_ / schedule->smem.ring_stage, 1, plan.ring_stages));
    add(plan);
  }
  void add(const Plan& plan) {
    if (plans::check(space_.deployment, plan) && seen_.insert(plan.hash()).second) found_.push_back(plan);
  }
  std::vector<Plan> take() { return std::move(found_); }

 private:
  const Space& space_;
  const Plan& centre_;
  std::int64_t window_bytes_ = 0;
  std::set<std::string> seen_;
  std::vector<Plan> found_;
};

/// How many of a stage's fields two variants differ in.
int differences(const StagePlan& a, const StagePlan& b) {
  return (a.input != b.input) + (a.norm != b.norm) + (a.tile_rows != b.tile_rows) + (a.chunk_steps != b.chunk_steps) +
         (a.kv_splits != b.kv_splits) + (a.fused_attention != b.fused_attention) + (a.fused_silu != b.fused_silu);
}

void add_stage_changes(const Space& space, const Plan& plan, Neighbours& out) {
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    for (const SpaceEdge& edge : space.edges) {
      for (const Variant& variant : edge.variants) {
        const StagePlan& stage = plan.stages[i];
        if (!variant.open() || variant.stage.kind != stage.kind || differences(variant.stage, stage) != 1) continue;
        if (variant.stage.fused_attention != stage.fused_attention) continue;   // another path: below
        Plan changed = plan;
        changed.stages[i] = variant.stage;
        plans::tie(changed, variant.stage);
        out.add_refitted(changed);
      }
    }
  }
}

/// The ring stage is as large as the largest chunk of any stage, so chunks and heights are worth changing together.
void add_joint_changes(const Plan& plan, Neighbours& out) {
  for (const int rows : {16, 32}) {
    Plan changed = plan;
    for (StagePlan& stage : changed.stages)
      if (stage.kind != StageKind::attention) stage.tile_rows = rows;
    out.add_refitted(changed);
  }
  for (const int steps : {1, 2, 4, 8}) {
    Plan changed = plan;
    for (StagePlan& stage : changed.stages)
      if (stage.kind != StageKind::attention) stage.chunk_steps = steps;
    out.add_refitted(changed);
  }
  for (const Exchange input : {Exchange::tagged, Exchange::counter, Exchange::barrier}) {
    Plan changed = plan;
    for (StagePlan& stage : changed.stages) stage.input = input;
    out.add_refitted(changed);
  }
}

void add_attention_change(const Plan& plan, Neighbours& out) {
  Plan changed = plan;
  const auto attention = std::find_if(changed.stages.begin(), changed.stages.end(),
                                      [](const StagePlan& stage) { return stage.kind == StageKind::attention; });
  const bool fuse = attention != changed.stages.end();
  if (fuse) {
    changed.stages.erase(attention);
  } else {
    StagePlan stage;
    stage.kind = StageKind::attention;
    stage.input = plan.stage(StageKind::output).input;
    const auto output = std::find_if(changed.stages.begin(), changed.stages.end(),
                                     [](const StagePlan& s) { return s.kind == StageKind::output; });
    changed.stages.insert(output, stage);
  }
  for (StagePlan& stage : changed.stages)
    if (stage.kind == StageKind::output) stage.fused_attention = fuse;
  out.add_refitted(changed);
}

void add_knob_changes(const Space& space, const Plan& plan, Neighbours& out) {
  const Knobs& knobs = space.knobs;
  const int sms = space.deployment.target.sms;
  Plan changed = plan;
  for (const int window : plans::window_choices(space.deployment, plan, knobs)) {
    changed.window = window;
    out.add(changed);
  }
  changed = plan;
  for (const int ring : plans::ring_choices(space.deployment, plan, knobs)) {
    changed.ring_stages = ring;
    changed.window = std::min(plan.window, ring);
    out.add(changed);
  }
  changed = plan;
  for (const int pace : knobs.paces) {
    changed.pace = plans::scaled_pace(pace, plan.grid, sms);
    out.add(changed);
  }
  changed = plan;
  for (const int unroll : knobs.unrolls) {
    changed.unroll = unroll;
    out.add(changed);
  }
  changed = plan;
  for (const int fragments : knobs.fragments) {
    changed.fragments = fragments;
    out.add(changed);
  }
  changed = plan;
  for (const int warps : knobs.consumer_warps) {
    changed.consumer_warps = warps;
    out.add_refitted(changed);
  }
  changed = plan;
  for (const int grid : knobs.grids) {
    changed.grid = grid;
    changed.pace = plans::scaled_pace(plan.pace, grid, plan.grid);
    out.add_refitted(changed);
  }
}

}  // namespace

Result<Plan> plan_at(const Space& space, std::uint64_t index) { return choose_plan(space, index); }

void for_each_plan(const Space& space, std::uint64_t begin, std::uint64_t end,
                   const std::function<bool(std::uint64_t, const Plan&)>& visit) {
  end = std::min(end, space.candidates());
  for (std::uint64_t index = begin; index < end; ++index) {
    if (const Result<Plan> plan = choose_plan(space, index); plan && !visit(index, *plan)) return;
  }
}

Plan sample(const Space& space, std::uint64_t seed, std::uint64_t index) {
  Random random(seed, index);
  const Choose choose = [&](std::size_t bound) { return random.below(bound); };
  constexpr int kDraws = 256;   // most draws fit at once; this many misses mean a space with hardly any plan
  for (int draw = 0; draw < kDraws; ++draw) {
    Plan plan = choose_structure(space, space.paths[choose(space.paths.size())], choose);
    plans::tie(plan, plan.stage(StageKind::qkv));
    plans::tie(plan, plan.stage(StageKind::output));
    if (!plans::check(space.deployment, plan)) continue;
    const std::vector<int> rings = plans::ring_choices(space.deployment, plan, space.knobs);
    plan.ring_stages = rings[choose(rings.size())];
    const std::vector<int> windows = plans::window_choices(space.deployment, plan, space.knobs);
    plan.window = windows[choose(windows.size())];
    if (plans::check(space.deployment, plan)) return plan;
  }
  return default_plan(space.deployment).value();   // make_space saw to it that there is one
}

std::vector<Plan> neighbours(const Space& space, const Plan& plan) {
  Neighbours out(space, plan);
  add_stage_changes(space, plan, out);
  add_joint_changes(plan, out);
  add_attention_change(plan, out);
  add_knob_changes(space, plan, out);
  return out.take();
}

}  // namespace adamk
