#include "adamk/dag/space.h"

#include <gtest/gtest.h>

#include <set>

#include "dag_fixtures.h"

namespace adamk {
namespace {

using fixtures::deploy;

const SpaceEdge& edge_named(const Space& space, std::string_view name) {
  for (const SpaceEdge& edge : space.edges)
    if (edge.name == name) return edge;
  throw std::runtime_error("no such edge");
}

TEST(SpaceTest, EveryPathCoversEveryOperatorOnce) {
  const Space space = make_space(deploy(fixtures::qwen3_1_7b(), "h200")).value();
  ASSERT_EQ(space.paths.size(), 4u);   // attention apart or fused x SiLU with gate_up or with down
  for (const std::vector<int>& path : space.paths) {
    std::vector<OperatorKind> covered;
    int at = 0;
    for (const int id : path) {
      const SpaceEdge& edge = space.edges[static_cast<std::size_t>(id)];
      EXPECT_EQ(edge.from, at);
      at = edge.to;
      covered.insert(covered.end(), edge.operators.begin(), edge.operators.end());
    }
    EXPECT_EQ(at + 1, static_cast<int>(space.nodes.size()));
    EXPECT_EQ(covered.size(), 13u + 3u);
    EXPECT_EQ(std::set<OperatorKind>(covered.begin(), covered.end()).size(), covered.size());
  }
}

TEST(SpaceTest, ClosedEdgesAndVariantsSayWhy) {
  const Space space = make_space(deploy(fixtures::llama_1b(), "l4")).value();
  int closed = 0;
  for (const SpaceEdge& edge : space.edges) {
    EXPECT_LT(edge.from, edge.to);
    if (edge.open()) {
      EXPECT_FALSE(edge.variants.empty()) << edge.name;
    } else {
      ++closed;
      const bool says = edge.reason.starts_with("infeasible: ") || edge.reason.starts_with("dominated: ");
      EXPECT_TRUE(says) << edge.reason;
    }
  }
  EXPECT_GE(closed, 10);
  // 2048 columns: no warp's slice has 64 steps of 16 with 4, 8 or 16 warps and a chunk stays useful up to the slice.
  EXPECT_EQ(edge_named(space, "down").open_variants().size(), 3u * 2 * 4);
}

TEST(SpaceTest, FusedAttentionNeedsWholeHeadsInASlice) {
  // 14 heads of 64: 896 columns, 56 steps; 16 warps take 4 steps (64 columns), 8 take 7 (112), 4 take 14 (224).
  Model model = fixtures::make_model({2, 896, 14, 2, 64, 4864, 1000});
  const Deployment deployment = deploy(model, "h200");
  Plan plan = default_plan(deployment).value();
  std::erase_if(plan.stages, [](const StagePlan& stage) { return stage.kind == StageKind::attention; });
  for (StagePlan& stage : plan.stages) stage.fused_attention = stage.kind == StageKind::output;
  plan.ring_stages = 2;
  plan.window = 1;
  for (StagePlan& stage : plan.stages) stage.chunk_steps = 1;
  plan.consumer_warps = 16;
  EXPECT_TRUE(make_schedule(deployment, plan));
  plan.consumer_warps = 8;
  const Result<Schedule> refused = make_schedule(deployment, plan);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("112"), std::string::npos) << refused.error().message;
}

TEST(SpaceTest, MemoryTableShowsThatSplittingKLetsALargeModelFitASmallTarget) {
  const Space space = make_space(deploy(fixtures::make_model({4, 4096, 32, 32, 128, 11008, 32000}), "l20")).value();
  const auto row = [&](int warps, int tile_rows, int chunk_steps) {
    for (const MemoryRow& r : space.memory)
      if (r.consumer_warps == warps && r.tile_rows == tile_rows && r.chunk_steps == chunk_steps) return r;
    return MemoryRow{};
  };
  // Whole K of the down projection: 11008 / 16 = 688 steps, 43 for each of 16 warps, 512 bytes a step.
  EXPECT_EQ(row(16, 16, 0).smem.ring_stage, 512 * 16 * 43);
  EXPECT_EQ(row(16, 16, 0).stages, 0);
  EXPECT_EQ(row(16, 16, 4).smem.ring_stage, 32768);
  EXPECT_EQ(row(16, 16, 4).limit, 99 * 1024);
  EXPECT_GE(row(16, 16, 1).stages, 8);
  for (const MemoryRow& r : space.memory) {
    if (r.stages >= 2) {
      EXPECT_LE(r.smem.total(), r.limit);
      // One more stage would not fit.
      EXPECT_TRUE(r.stages == 256 || r.smem.total() + r.smem.ring_stage + 128 > r.limit);
    }
  }
}

TEST(SpaceTest, CandidatesAreTheProductOfChoices) {
  const Space space = make_space(deploy(fixtures::tiny_model(), "l20")).value();
  std::uint64_t total = 0;
  for (const std::vector<int>& path : space.paths) {
    std::uint64_t product = 1;
    for (const int id : path) {
      std::uint64_t open = 0;
      for (const Variant& variant : space.edges[static_cast<std::size_t>(id)].variants) open += variant.open() ? 1 : 0;
      product *= open;
    }
    total += product;
  }
  const Knobs& k = space.knobs;
  total *= k.consumer_warps.size() * k.ring_fractions.size() * k.window_bytes.size() * k.paces.size() * k.grids.size() *
           k.unrolls.size() * k.fragments.size();
  EXPECT_EQ(space.candidates(), total);
  EXPECT_FALSE(plan_at(space, total));
}

TEST(SpaceTest, KnobsOfTheInnerLoopAreOfferedWhereTheyChangeTheKernel) {
  const Space space = make_space(deploy(fixtures::tiny_model(), "l20")).value();
  Plan plan = default_plan(space.deployment).value();
  plan.ring_stages = 2;
  plan.window = 1;
  // {unroll, fragments} of the neighbours that differ in nothing else, for a chunk of so many steps in every stage.
  const auto offered = [&](int chunk_steps, int rows) {
    for (StagePlan& stage : plan.stages) {
      if (stage.kind == StageKind::attention) continue;
      stage.chunk_steps = chunk_steps;
      stage.tile_rows = rows;
    }
    std::set<std::pair<int, int>> found;
    for (Plan other : neighbours(space, plan)) {
      const std::pair<int, int> knobs{other.unroll, other.fragments};
      other.unroll = plan.unroll;
      other.fragments = plan.fragments;
      if (other == plan) found.insert(knobs);
    }
    return found;
  };
  using Found = std::set<std::pair<int, int>>;
  plan.consumer_warps = 4;
  EXPECT_EQ(offered(1, 16), (Found{}));                                          // one fragment is all there is
  EXPECT_EQ(offered(1, 32), (Found{{0, 2}}));                                    // two blocks of 16 rows
  EXPECT_EQ(offered(2, 16), (Found{{0, 2}, {1, 1}}));
  plan.unroll = 1;
  EXPECT_EQ(offered(2, 16), (Found{{0, 1}}));                                    // a turn has one fragment
}

TEST(SpaceTest, EnumerationYieldsDistinctFeasiblePlansInTheSameOrder) {
  const Space space = make_space(deploy(fixtures::tiny_model(), "l20")).value();
  std::set<std::string> hashes;
  std::uint64_t before = 0;
  for_each_plan(space, 0, 20000, [&](std::uint64_t index, const Plan& plan) {
    EXPECT_TRUE(hashes.empty() || index > before);
    before = index;
    EXPECT_TRUE(make_schedule(space.deployment, plan));
    EXPECT_TRUE(hashes.insert(plan.hash()).second) << index;
    const Result<Plan> again = plan_at(space, index);
    EXPECT_TRUE(again && *again == plan);
    return hashes.size() < 300;
  });
  EXPECT_GE(hashes.size(), 100u);
}

TEST(SpaceTest, SamplesArePureFunctionsOfSeedAndIndexAndReachEveryPath) {
  const Space space = make_space(deploy(fixtures::qwen3_1_7b(), "h200")).value();
  std::set<std::string> hashes;
  std::set<std::pair<bool, bool>> paths;
  std::set<Exchange> exchanges;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const Plan plan = sample(space, 5, i);
    EXPECT_EQ(plan, sample(space, 5, i));
    EXPECT_TRUE(make_schedule(space.deployment, plan));
    EXPECT_TRUE(plan_from_json(JsonView(plan_to_json(plan), "plan")));
    hashes.insert(plan.hash());
    paths.insert({plan.stage(StageKind::output).fused_attention, plan.stage(StageKind::gate_up).fused_silu});
    exchanges.insert(plan.stage(StageKind::down).input);
  }
  EXPECT_GE(hashes.size(), 58u);
  EXPECT_EQ(paths.size(), 4u);
  EXPECT_EQ(exchanges.size(), 3u);
  EXPECT_NE(sample(space, 6, 0), sample(space, 5, 0));
}

TEST(SpaceTest, NeighboursAreFeasibleDistinctAndOneChoiceAway) {
  const Space space = make_space(deploy(fixtures::llama_1b(), "h200")).value();
  const Plan centre = default_plan(space.deployment).value();
  const std::vector<Plan> plans = neighbours(space, centre);
  EXPECT_GE(plans.size(), 30u);
  std::set<std::string> hashes = {centre.hash()};
  bool fuses = false, splits = false, paces = false, warps = false;
  for (const Plan& plan : plans) {
    EXPECT_TRUE(make_schedule(space.deployment, plan));
    EXPECT_TRUE(hashes.insert(plan.hash()).second);
    fuses |= plan.find(StageKind::attention) == nullptr;
    splits |= plan.find(StageKind::attention) != nullptr &&
              plan.stage(StageKind::attention).kv_splits != centre.stage(StageKind::attention).kv_splits;
    paces |= plan.pace != centre.pace;
    warps |= plan.consumer_warps != centre.consumer_warps;
  }
  EXPECT_TRUE(fuses && splits && paces && warps);
}

TEST(SpaceTest, FairShareOnTheH200IsTheOneMeasured) {
  const Space space = make_space(deploy(fixtures::qwen3_1_7b(), "h200")).value();
  // 8192 bytes x 132 SMs / 4690 GB/s = 230.6 ns, at 1980 MHz 456.5 clocks.
  EXPECT_NEAR(space.fair_share_clocks, 456.5, 0.1);
}

// A fused attention needs whole heads in a warp's K slice; with 3 heads of 80 no warp count gives that.
TEST(SpaceTest, AnEdgeWithoutAVariantIsOnNoPath) {
  const Deployment deployment = deploy(fixtures::make_model({2, 256, 3, 3, 80, 320, 400}), "h200");
  const auto space = make_space(deployment);
  ASSERT_TRUE(space) << space.error().message;
  for (const SpaceEdge& edge : space->edges) EXPECT_EQ(edge.open(), !edge.open_variants().empty()) << edge.name;
  ASSERT_FALSE(space->paths.empty());
  for (const std::vector<int>& path : space->paths)
    for (const int edge : path) EXPECT_TRUE(space->edges[static_cast<std::size_t>(edge)].open());
  for (std::uint64_t i = 0; i < 200; ++i) EXPECT_TRUE(make_schedule(deployment, sample(*space, 11, i)));
}

}  // namespace
}  // namespace adamk
