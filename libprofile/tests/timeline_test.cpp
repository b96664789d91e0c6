// The timeline of kernels on an emulated device: the instrumented kernel decodes what the plain one does, and its records add up.
#include "adamk/profile/timeline.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "adamk/profile/emulated_device.h"
#include "adamk/profile/random_decoder.h"
#include "small_deployment.h"

namespace adamk {
namespace {

struct Case {
  const char* name;
  Exchange exchange;
  int kv_splits;
  NormMode norm;
  bool fused;
};

class TimelineTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
    const Case& c = GetParam();
    auto plan = default_plan(deployment_);
    ASSERT_TRUE(plan) << plan.error().message;
    plan->grid = 2;
    plan->consumer_warps = 2;
    plan->pace = 300;
    for (StagePlan& stage : plan->stages) {
      stage.input = c.exchange;
      if (stage.kind == StageKind::qkv || stage.kind == StageKind::gate_up || stage.kind == StageKind::head) stage.norm = c.norm;
      if (stage.kind == StageKind::attention) stage.kv_splits = c.kv_splits;
      if (stage.kind == StageKind::output) stage.fused_attention = c.fused;
    }
    if (c.fused) std::erase_if(plan->stages, [](const StagePlan& stage) { return stage.kind == StageKind::attention; });
    auto schedule = make_schedule(deployment_, *plan);
    ASSERT_TRUE(schedule) << schedule.error().message;
    schedule_ = *schedule;
    device_ = EmulatedDevice::make(deployment_.target);
  }

  Result<Decoder> decoder(Instrument instrument) {
    ADAMK_TRY(const std::string source, emit_source(deployment_, schedule_, instrument));
    ADAMK_TRY(Kernel kernel, compile(source, deployment_.target.arch()));
    kernel.cubin.clear();   // the emulator runs the PTX
    const Recipe recipe = instrument == Instrument::none ? make_recipe(deployment_, schedule_, kernel)
                                                         : timeline_recipe(deployment_, schedule_, kernel);
    return random_decoder(*device_, recipe, kernel, deployment_.weights, 1);
  }

  Deployment deployment_ = small_deployment();
  Schedule schedule_;
  std::shared_ptr<EmulatedDevice> device_;
};

TEST_P(TimelineTest, AnInstrumentedKernelDecodesTheSameAndItsRecordsAddUp) {
  auto plain = decoder(Instrument::none);
  ASSERT_TRUE(plain) << plain.error().message;
  auto instrumented = decoder(Instrument::timeline);
  ASSERT_TRUE(instrumented) << instrumented.error().message;
  const std::array given{1};
  const auto expected = plain->decode(40, given, 3);
  ASSERT_TRUE(expected) << expected.error().message;
  const auto tokens = instrumented->decode(40, given, 3);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(*tokens, *expected);

  TimelineOptions options;
  options.steps = TimelineLayout::steps + 1;
  EXPECT_FALSE(record_timeline(*instrumented, deployment_.model, schedule_, options));
  options.position = 40;
  options.steps = 3;
  options.warmup_launches = 1;
  const auto timeline = record_timeline(*instrumented, deployment_.model, schedule_, options);
  ASSERT_TRUE(timeline) << timeline.error().message;

  // Each role takes part in what it has work in, and in nothing else.
  const Timeline& t = *timeline;
  for (int step = 0; step < 3; ++step)
    for (int layer = 0; layer < 2; ++layer)
      for (const StagePlan& stage : schedule_.plan.stages)
        for (int sm = 0; sm < 2; ++sm) {
          if (stage.kind == StageKind::head) continue;
          const bool works = stage.kind == StageKind::attention ? sm < schedule_.attention.items
                                                                : schedule_.gemv(stage.kind).tile_count(sm, 2) > 0;
          EXPECT_EQ(t.at(step, layer, stage.kind, sm, 0).took_part, works) << to_string(stage.kind);
          EXPECT_TRUE(t.at(step, layer, stage.kind, sm, t.storer()).took_part) << to_string(stage.kind);
          EXPECT_EQ(t.at(step, layer, stage.kind, sm, t.loader()).took_part, stage.kind != StageKind::attention);
        }
  for (int sm = 0; sm < 2; ++sm)
    for (int warp = 0; warp < t.warps; ++warp) {
      double last = -1e9;
      for (int step = 0; step < 3; ++step) {
        EXPECT_TRUE(t.at(step, 2, StageKind::head, sm, warp).took_part) << warp;
        for (int layer = 0; layer < t.layers; ++layer)
          for (int stage = 0; stage < 6; ++stage) {
            const WarpStage& part = t.at(step, layer, static_cast<StageKind>(stage), sm, warp);
            if (!part.took_part) continue;
            if (last > -1e9) { EXPECT_NEAR(part.begin_us, last, 1e-6); }
            EXPECT_GE(part.end_us, part.begin_us);
            EXPECT_GE(part.worked_us(), -1e-6);
            last = part.end_us;
          }
      }
    }
  // Who waits for whom.
  const auto waited = [](const WarpStage& part, WaitCause cause) { return part.waited_us[static_cast<std::size_t>(cause)]; };
  EXPECT_GT(waited(t.at(1, 0, StageKind::output, 0, 0), WaitCause::input), 0);
  EXPECT_GT(waited(t.at(1, 1, StageKind::gate_up, 1, 1), WaitCause::weights), 0);
  EXPECT_GT(waited(t.at(1, 1, StageKind::gate_up, 1, t.loader()), WaitCause::turn), 0);
  EXPECT_GT(waited(t.at(1, 1, StageKind::down, 0, t.storer()), WaitCause::tiles), 0);
  EXPECT_GT(waited(t.at(1, 0, StageKind::qkv, 0, 0), WaitCause::token), 0);
  EXPECT_EQ(waited(t.at(1, 1, StageKind::qkv, 0, 0), WaitCause::token), 0);

  const TimelineSummary summary = summarise_timeline(t, schedule_);
  EXPECT_EQ(summary.steps, 2);
  double stages = 0;
  for (const StageTime& stage : summary.stages) {
    EXPECT_GT(stage.us, 0) << stage.name;
    stages += stage.us;
  }
  EXPECT_NEAR(stages, summary.step_us, 1e-6 * summary.step_us);
  EXPECT_EQ(summary.stages.size(), schedule_.plan.stages.size() + 1);
  for (const RoleTime& role : summary.roles) {
    const double all = std::accumulate(role.waited_us.begin(), role.waited_us.end(), role.worked_us);
    EXPECT_NEAR(all, summary.step_us, 0.2 * summary.step_us) << role.name;   // the loader runs ahead by up to a ring
  }

  const auto trace = timeline_trace(t, {0, 1});
  ASSERT_TRUE(trace) << trace.error().message;
  std::size_t slices = 0, parts = 0;
  for (const Json& event : trace->at("traceEvents")) slices += event.at("ph") == "X" ? 1 : 0;
  for (const WarpStage& part : t.records) parts += part.took_part ? 1 : 0;
  EXPECT_EQ(slices, parts);
  EXPECT_FALSE(timeline_trace(t, {2}));
}

INSTANTIATE_TEST_SUITE_P(Plans, TimelineTest,
                         testing::Values(Case{"tagged", Exchange::tagged, 1, NormMode::recompute, false},
                                         Case{"tagged_splits_norms", Exchange::tagged, 2, NormMode::exchange, false},
                                         Case{"counter", Exchange::counter, 1, NormMode::recompute, false},
                                         Case{"barrier_fused", Exchange::barrier, 1, NormMode::recompute, true}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace adamk
