// Beam search over plans, one generation at a time.
#include <algorithm>
#include <map>
#include <set>

#include "adamk/base/hash.h"
#include "adamk/cost/model.h"
#include "adamk/search/strategy.h"

namespace adamk {

namespace {

constexpr std::size_t kGeneration = 8;

bool same_input(const Plan& plan) {
  return std::all_of(plan.stages.begin(), plan.stages.end(),
                     [&](const StagePlan& stage) { return stage.input == plan.stages.front().input; });
}

/// In which respect `plan` differs from `base`; plans of one respect are alternatives to each other, and the first
/// generation takes one of each. Empty: nothing that matters there.
std::string respect(const Plan& base, const Plan& plan) {
  if (plan.stages.size() != base.stages.size()) return "5 attention";
  if (plan.consumer_warps != base.consumer_warps) return fmt::format("1 warps {}", plan.consumer_warps);
  if (plan.grid != base.grid) return "6 grid";
  bool input = false, tile = false, chunk = false, norm = false, splits = false, silu = false;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan &a = base.stages[i], &b = plan.stages[i];
    input |= a.input != b.input;
    tile |= a.tile_rows != b.tile_rows;
    chunk |= a.chunk_steps != b.chunk_steps;
    norm |= a.norm != b.norm;
    splits |= a.kv_splits != b.kv_splits;
    silu |= a.fused_silu != b.fused_silu;
  }
  if (input) return same_input(plan) ? fmt::format("0 all {}", to_string(plan.stages.front().input)) : "9 one exchange";
  if (tile) return "2 tile";
  if (chunk) return "3 chunk";
  if (norm) return "7 norm";
  if (splits) return "5 splits";
  if (silu) return "8 silu";
  if (plan.pace != base.pace) return "4 pace";
  if (plan.unroll != base.unroll) return "6 unroll";
  if (plan.fragments != base.fragments) return "6 fragments";
  if (plan.ring_stages != base.ring_stages) return "3 ring";
  if (plan.window != base.window) return "2 window";
  return {};
}

double predicted_us(const Deployment& deployment, const Plan& plan) {
  const Result<Schedule> schedule = make_schedule(deployment, plan);
  return schedule ? predict(deployment, *schedule).us_per_token : 1e30;
}

class Beam final : public Strategy {
 public:
  Beam(const Space& space, std::uint64_t seed, int width)
      : space_(space), seed_(seed), width_(static_cast<std::size_t>(std::clamp(width, 4, 8))) {}

  std::vector<Plan> propose(const std::vector<Tried>& tried) override {
    ++generation_;
    std::vector<Plan> plans = generation_ == 1 ? first_generation() : next_generation(best_of(tried));
    for (const Plan& plan : plans) proposed_.insert(plan.hash());
    return plans;
  }
  std::string_view ending() const override { return "converged"; }

 private:
  std::vector<Plan> first_generation() {
    std::vector<Plan> plans;
    const Result<Plan> base = default_plan(space_.deployment);
    if (!base) return plans;
    plans.push_back(*base);
    std::map<std::string, Plan> one_of_each;   // ordered: exchanges first, should the budget be small
    for (const Plan& plan : neighbours(space_, *base))
      if (const std::string name = respect(*base, plan); !name.empty()) one_of_each.emplace(name, plan);
    for (const auto& [name, plan] : one_of_each) plans.push_back(plan);
    return plans;
  }

  std::vector<Plan> best_of(std::vector<Tried> tried) const {
    std::erase_if(tried, [](const Tried& each) { return each.status != Status::ok; });
    std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) { return a.us < b.us; });
    if (tried.size() > width_) tried.erase(tried.begin() + static_cast<std::ptrdiff_t>(width_), tried.end());
    std::vector<Plan> plans;
    for (Tried& each : tried) plans.push_back(std::move(each.plan));
    return plans;
  }

  /// New neighbours of one plan: by turns the most promising by prediction and one drawn by the seed.
  std::vector<Plan> ranked_neighbours(const Plan& centre) const {
    struct Entry {
      Plan plan;
      double us;
      std::string draw;   // pseudo-random, and the same whatever else was tried
    };
    std::vector<Entry> entries;
    for (Plan& plan : neighbours(space_, centre)) {
      const std::string hash = plan.hash();
      if (proposed_.contains(hash)) continue;
      const double us = predicted_us(space_.deployment, plan);
      entries.push_back({std::move(plan), us, hash_hex(fmt::format("{} {}", seed_, hash))});
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.us < b.us; });
    std::vector<std::size_t> by_draw(entries.size());
    for (std::size_t i = 0; i < by_draw.size(); ++i) by_draw[i] = i;
    std::sort(by_draw.begin(), by_draw.end(), [&](std::size_t a, std::size_t b) { return entries[a].draw < entries[b].draw; });
    std::vector<Plan> plans;
    std::vector<bool> taken(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i)
      for (const std::size_t pick : {i, by_draw[i]})
        if (!taken[pick]) {
          taken[pick] = true;
          plans.push_back(entries[pick].plan);
        }
    return plans;
  }

  std::vector<Plan> next_generation(const std::vector<Plan>& beam) {
    std::vector<Plan> plans;
    std::set<std::string> chosen;
    const auto add = [&](const Plan& plan) {
      const std::string hash = plan.hash();
      if (!proposed_.contains(hash) && chosen.insert(hash).second) plans.push_back(plan);
    };
    std::vector<std::vector<Plan>> lists;
    std::size_t longest = 0;
    for (const Plan& centre : beam) {
      lists.push_back(ranked_neighbours(centre));
      longest = std::max(longest, lists.back().size());
    }
    for (std::size_t i = 0; i < longest && plans.size() + 1 < kGeneration; ++i)
      for (const auto& list : lists)
        if (i < list.size() && plans.size() + 1 < kGeneration) add(list[i]);
    const bool converged = plans.empty() && !beam.empty();
    // One plan from anywhere; without a single sound plan so far, nothing but such.
    const std::size_t draws = converged ? 0 : beam.empty() ? kGeneration : 1;
    for (std::size_t i = 0; i < draws; ++i) add(sample(space_, seed_, draw_++));
    return plans;
  }

  const Space& space_;
  std::uint64_t seed_;
  std::size_t width_;
  int generation_ = 0;
  std::uint64_t draw_ = 0;
  std::set<std::string> proposed_;
};

}  // namespace

std::unique_ptr<Strategy> make_beam(const Space& space, std::uint64_t seed, int width) {
  return std::make_unique<Beam>(space, seed, width);
}

}  // namespace adamk
