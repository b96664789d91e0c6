#include "adamk/cost/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost_fixture.h"

namespace adamk {
namespace {

using namespace testing_cost;

Cost cost_of(const Deployment& deployment, const Plan& plan) {
  const auto schedule = make_schedule(deployment, plan);
  EXPECT_TRUE(schedule.has_value()) << schedule.error().message;
  return predict(deployment, *schedule);
}

const StageCost& stage(const Cost& cost, StageKind kind) {
  for (const StageCost& candidate : cost.stages)
    if (candidate.kind == kind) return candidate;
  return cost.stages.front();
}

TEST(CostModel, DownStageIsWhatPaperSays) {
  Model model = llama_1b();
  model.layers = 2;
  model.hidden = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.ffn = 128;
  model.vocab = 256;
  Target target = h200();
  target.sms = 4;
  target.read_gbps = 1000;   // 1e6 bytes a us
  target.hop_us = 1;
  target.clock_mhz = 1000;   // 1000 clocks a us
  const Deployment small = deployment(model, target, 64);
  Plan plan = plain_plan(small);
  plan.consumer_warps = 4;
  for (StagePlan& each : plan.stages) each.chunk_steps = 1;
  const auto schedule = make_schedule(small, plan);
  ASSERT_TRUE(schedule.has_value()) << schedule.error().message;
  CostConstants constants;
  constants.memory_latency_us = 1e-9;   // any window reaches the ceiling
  const StageCost down = stage(predict(small, *schedule, -1, constants), StageKind::down);

  // 64 x 128 weights: 4 tiles of 4096 bytes, one per SM, none padded: 16384 bytes.
  EXPECT_EQ(down.bytes, 16384);
  EXPECT_NEAR(down.read_us, 0.016384, 1e-9);
  EXPECT_EQ(down.padding_us, 0);
  EXPECT_EQ(down.imbalance_us, 0);
  // Latency 1.3 + 128 values x 4 bytes x 4 SMs / 1.4e6 + a queue of 4 x 4096 bytes; reading hides behind it; serial 0.25.
  EXPECT_NEAR(down.exchange_us, 1.3 + 0.001462857 + 0.016384 - 0.016384 + 0.25, 1e-6);
  // 2 chunks x 150 clocks + 4096 bytes at 64 bytes a clock.
  EXPECT_NEAR(down.compute_us, 0.364, 1e-9);
  // 108 + 4 x 12 clocks.
  EXPECT_NEAR(down.storer_us, 0.156, 1e-9);
  EXPECT_NEAR(down.total_us(), 2.087847, 1e-6);
}

TEST(CostModel, ClocksOfTilesThatAreKnownReplaceTheFormulasTerm) {
  const Deployment d = deployment(qwen3_1_7b(), h200(), 4096);
  const Plan plan = plain_plan(d);
  const auto schedule = make_schedule(d, plan);
  ASSERT_TRUE(schedule.has_value());
  const Cost formula = predict(d, *schedule);
  const int tiles = schedule->gemv(StageKind::gate_up).max_tiles_per_sm(plan.grid);
  ASSERT_GT(tiles, 1);
  const auto gate_up = [&](double clocks) {
    return stage(predict(d, *schedule, -1, {}, {{StageKind::gate_up, clocks}}), StageKind::gate_up).compute_us;
  };
  // Far beyond what reading hides, another 1000 clocks a tile are another 1000 clocks times the busiest SM's tiles.
  EXPECT_NEAR(gate_up(101000) - gate_up(100000), tiles * 1000 / d.target.clock_mhz, 1e-6);
  EXPECT_LE(gate_up(1), stage(formula, StageKind::gate_up).compute_us);
  EXPECT_EQ(stage(predict(d, *schedule, -1, {}, {{StageKind::gate_up, 1e5}}), StageKind::down).compute_us,
            stage(formula, StageKind::down).compute_us);
  // Attention: turns of the loop, once they outlast the reading of the cache.
  const auto attention = [&](double clocks) {
    return stage(predict(d, *schedule, -1, {}, {{StageKind::attention, clocks}}), StageKind::attention).attention_us;
  };
  const AttentionShape& shape = schedule->attention;
  const double at_once = plan.consumer_warps * (32.0 / shape.lanes_per_position) * shape.positions_together;
  const double turns = std::ceil(std::ceil(4096.0 / shape.splits) / at_once) * shape.passes;
  EXPECT_NEAR(attention(30000) - attention(20000), turns * 10000 / d.target.clock_mhz, 1e-6);
}

TEST(CostModel, StagesAddUpToTheToken) {
  const Deployment d = deployment(qwen3_1_7b(), h200());
  const Cost cost = cost_of(d, plain_plan(d));
  double layer = 0;
  for (std::size_t i = 0; i + 1 < cost.stages.size(); ++i) layer += cost.stages[i].total_us();
  EXPECT_NEAR(cost.us_per_token, 28 * layer + cost.stages.back().total_us(), 1e-6);
  EXPECT_EQ(cost.stages.back().times, 1);
}

TEST(CostModel, OrdinarySizesRankTaggedThenCounterThenBarrier) {
  for (const Model& model : {llama_1b(), qwen3_1_7b()}) {
    const Deployment d = deployment(model, h200());
    double last = 0;
    for (const Exchange exchange : {Exchange::tagged, Exchange::counter, Exchange::barrier}) {
      Plan plan = plain_plan(d);
      for (StagePlan& each : plan.stages) each.input = exchange;
      const double us = cost_of(d, plan).us_per_token;
      EXPECT_GT(us, last) << to_string(exchange);
      last = us;
    }
  }
}

TEST(CostModel, MoreLayersAndLongerContextsAreNeverFaster) {
  const Model small = llama_1b();
  Model deep = small;
  deep.layers = 17;
  const Deployment base = deployment(small, h200(), 256);
  const double us = cost_of(base, plain_plan(base)).us_per_token;
  const Deployment deeper = deployment(deep, h200(), 256), longer = deployment(small, h200(), 4096);
  EXPECT_GT(cost_of(deeper, plain_plan(deeper)).us_per_token, us);
  EXPECT_GT(cost_of(longer, plain_plan(longer)).us_per_token, us);
}

TEST(CostModel, NeverBelowTheRoofline) {
  const Deployment d = deployment(llama_1b(), h200());
  for (const int window : {1, 2, 4, 6})
    for (const int warps : {4, 8, 16}) {
      Plan plan = plain_plan(d);
      plan.window = window;
      plan.consumer_warps = warps;
      EXPECT_GT(cost_of(d, plan).us_per_token, necessary_bytes(d) / (d.target.read_gbps * 1e3));
    }
}

TEST(CostModel, PaddingIsTimeButNotUsefulBytes) {
  // 2048 columns are 128 steps: 16 warps take 8 each; 12 warps take 11 each, 132 in all, 4 of them padding.
  const Deployment d = deployment(llama_1b(), h200());
  Plan plan = plain_plan(d);
  EXPECT_EQ(stage(cost_of(d, plan), StageKind::gate_up).padding_us, 0);
  plan.consumer_warps = 12;
  const StageCost padded = stage(cost_of(d, plan), StageKind::gate_up);
  EXPECT_NEAR(padded.padding_us / padded.read_us, 4.0 / 128, 1e-9);
}

TEST(CostModel, WindowCurveFollowsTheMeasuredPoints) {
  // Bytes in flight per SM against GB/s as measured on an H200, 132 SMs; 5 % is what the curve claims.
  for (const auto& [kib, gbps] : {std::pair{16, 2990.0}, {32, 4340.0}, {48, 4690.0}})
    EXPECT_NEAR(window_gbps(h200(), 132, kib << 10), gbps, 0.05 * gbps) << kib;
  EXPECT_NEAR(window_gbps(h200(), 112, 1 << 20), 4250, 0.05 * 4250);
}

TEST(CostModel, SplittingAttentionPaysOnlyWhereContextsAreLong) {
  const auto attention_us = [](std::int64_t context, int splits) {
    const Deployment d = deployment(llama_1b(), h200(), context);
    Plan plan = plain_plan(d);
    plan.stages[1].kv_splits = splits;
    return cost_of(d, plan).us_per_token;
  };
  EXPECT_LT(attention_us(8192, 16), attention_us(8192, 1));
  EXPECT_GE(attention_us(64, 16), attention_us(64, 1));
}

TEST(CostModel, NecessaryBytesAreTheModelsOwn) {
  // Llama-3.2-1B: 16 x (2048 x 3072 + 2048 x 2048 + 3 x 2048 x 8192) + 2048 x 128256 elements, 2 bytes each;
  // KV of 256 positions: 16 x 2 x 512 x 256 elements.
  const Deployment d = deployment(llama_1b(), h200(), 256);
  EXPECT_EQ(necessary_bytes(d, 0), 2.0 * (16.0 * (6291456 + 4194304 + 50331648) + 262668288.0));
  EXPECT_EQ(necessary_bytes(d) - necessary_bytes(d, 0), 2.0 * 16 * 2 * 512 * 256);
}

TEST(CostModel, LandsWithinAQuarterOfTheMeasuredChains) {
  // Design measurements of the whole chain on an H200: 629 us (Llama-like) and 887 us (Qwen3-1.7B), without attention.
  for (const auto& [model, measured] : {std::pair{llama_1b(), 629.0}, {qwen3_1_7b(), 887.0}}) {
    const Deployment d = deployment(model, h200(), 64);
    const Cost cost = cost_of(d, plain_plan(d));
    const double without_attention = cost.us_per_token - model.layers * stage(cost, StageKind::attention).attention_us;
    EXPECT_NEAR(without_attention, measured, 0.25 * measured);
  }
}

}  // namespace
}  // namespace adamk
