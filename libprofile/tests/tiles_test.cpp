// A stamped kernel on an emulated device: it ends, and leaves its clocks where they belong and nowhere else.
#include "adamk/profile/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "adamk/codegen/facts.h"
#include "adamk/profile/emulated_device.h"
#include "adamk/ptx/module.h"
#include "small_deployment.h"

namespace adamk {
namespace {

TEST(Tiles, a_stamped_kernel_leaves_a_clock_for_every_tile_but_first_and_last) {
  if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  const Deployment deployment = small_deployment();
  auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  plan->grid = 2;
  plan->consumer_warps = 4;
  const auto schedule = make_schedule(deployment, *plan);
  ASSERT_TRUE(schedule) << schedule.error().message;
  const auto source = emit_source(deployment, *schedule, Instrument::tiles);
  ASSERT_TRUE(source);
  auto stamped = compile(*source, deployment.target.arch());
  ASSERT_TRUE(stamped) << stamped.error().message;
  stamped->cubin.clear();   // the emulator runs the PTX
  const auto device = EmulatedDevice::make(deployment.target);
  TileOptions options;
  options.position = 136;
  options.steps = 2;
  options.launches = 1;
  const auto clocks = measure_tiles(*device, deployment, *schedule, *stamped, options);
  ASSERT_TRUE(clocks) << clocks.error().message;

  // Two SMs of four warps. qkv: 256 rows, 8 tiles an SM, of which 6 count; output, down: 128 rows, 4, 2; gate_up: 384 rows,
  // 12, 10; head: 320 rows, 10, 8. Attention: one walk for each warp of the SMs that have a KV head, when it goes round twice:
  // 137 positions, 8 at a time for each of 4 warps and 4 of those a turn, are two turns for two warps of each SM.
  std::map<StageKind, int> samples;
  for (const TileClocks& each : *clocks) {
    samples[each.stage] = each.samples;
    EXPECT_GT(each.clocks, 0) << to_string(each.stage);
    EXPECT_LE(each.p10, each.clocks);
    EXPECT_LE(each.clocks, each.p90);
  }
  EXPECT_EQ(samples[StageKind::qkv], 2 * 4 * 6);
  EXPECT_EQ(samples[StageKind::output], 2 * 4 * 2);
  EXPECT_EQ(samples[StageKind::gate_up], 2 * 4 * 10);
  EXPECT_EQ(samples[StageKind::down], 2 * 4 * 2);
  EXPECT_EQ(samples[StageKind::head], 2 * 4 * 8);
  EXPECT_EQ(samples[StageKind::attention], 2 * 2);
}

TEST(Tiles, the_timed_piece_of_every_stage_is_a_loop_with_its_products_or_its_scores) {
  if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  const Deployment deployment = small_deployment();
  auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  plan->grid = 2;
  const auto schedule = make_schedule(deployment, *plan);
  ASSERT_TRUE(schedule) << schedule.error().message;
  const auto kernel = compile(emit_source(deployment, *schedule).value(), "sm_90a");
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->source.find("//@"), std::string::npos);
  EXPECT_EQ(kernel->source.find("Stamp"), std::string::npos);
  const auto module = parse_ptx(kernel->ptx);
  ASSERT_TRUE(module);
  const auto dag = make_instruction_dag(*module, kernel_facts(*schedule));
  ASSERT_TRUE(dag);
  for (const StagePlan& stage : plan->stages) {
    const InstructionPiece* piece = timed_piece(*dag, stage.kind);
    ASSERT_NE(piece, nullptr) << to_string(stage.kind);
    EXPECT_NE(piece->name, "once");
    const CostKind kind = stage.kind == StageKind::attention ? CostKind::special : CostKind::mma;
    EXPECT_TRUE(std::any_of(piece->nodes.begin(), piece->nodes.end(), [&](const auto& node) { return node.kind == kind; }));
    EXPECT_GE(interleaved_clocks(*piece, plan->consumer_warps), interleaved_clocks(*piece, 1));
  }
}

TEST(RankCorrelation, is_spearmans) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {10, 20, 90}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {9, 8, 7}), -1);
  // Ranks 1 2 3 4 against 1 3 2 4: 1 - 6 x 2 / (4 x 15).
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {5, 7, 6, 8}), 0.8);
  // Ranks 1.5 1.5 3 against 1 2 3: 1.5 / sqrt(1.5 x 2).
  EXPECT_NEAR(rank_correlation({4, 4, 5}, {1, 2, 3}), 0.8660254, 1e-7);
  EXPECT_EQ(rank_correlation({1, 1}, {1, 2}), 0);
}

}  // namespace
}  // namespace adamk
