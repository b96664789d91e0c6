#include "instances.h"

#include <utility>

namespace adamk::explorer {

std::vector<Instance> instances(const std::string& target) {
  const Model even = fixtures::make_model({2, 32, 2, 1, 16, 32, 48}), ragged = fixtures::make_model({2, 48, 4, 2, 8, 40, 20});
  std::vector<Instance> all;
  const auto add = [&](std::string name, const Model& model, int grid, auto change) {
    Plan plan = fixtures::small_plan();
    plan.grid = grid;
    plan.consumer_warps = 2;
    plan.ring_stages = 2;
    change(plan);
    all.push_back({std::move(name), fixtures::deploy(model, target), plan});
  };
  const auto fuse = [](Plan& plan) {
    plan.stages.erase(plan.stages.begin() + 1);
    plan.stages[1].fused_attention = true;
  };
  const auto exchange = [](Plan& plan, Exchange kind) {
    for (StagePlan& stage : plan.stages) stage.input = kind;
  };
  for (const Exchange kind : {Exchange::tagged, Exchange::counter, Exchange::barrier}) {
    const std::string name(to_string(kind));
    for (const int grid : {2, 3}) {
      const std::string on = name + " on " + std::to_string(grid);
      add(on, even, grid, [&](Plan& plan) { exchange(plan, kind); });
      add(on + ", fused", even, grid, [&](Plan& plan) {
        exchange(plan, kind);
        fuse(plan);
      });
      add(on + ", ragged, splits, norms exchanged", ragged, grid, [&](Plan& plan) {
        exchange(plan, kind);
        plan.stages[1].kv_splits = 2;
        for (StagePlan& stage : plan.stages) stage.norm = NormMode::exchange;
        plan.stages[3].fused_silu = false;
      });
    }
  }
  add("a mixture", ragged, 3, [](Plan& plan) {
    plan.stages[1].input = Exchange::counter;
    plan.stages[2].input = Exchange::tagged;
    plan.stages[3].input = Exchange::barrier;
    plan.window = 1;
  });
  add("another mixture", even, 3, [](Plan& plan) {
    plan.stages[0].input = plan.stages[5].input = Exchange::counter;
    plan.stages[4].input = Exchange::barrier;
    plan.ring_stages = 3;
    plan.stages[0].tile_rows = 32;
  });
  add("one SM", even, 1, [](Plan&) {});
  add("one warp", even, 2, [](Plan& plan) { plan.consumer_warps = 1; });
  return all;
}

}  // namespace adamk::explorer
