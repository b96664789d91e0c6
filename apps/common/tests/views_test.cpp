// Plans, records and targets as text.
#include <gtest/gtest.h>

#include <cmath>

#include "adamk/base/json.h"
#include "common/candidate_views.h"
#include "common/target_yaml.h"
#include "common/weights_flags.h"

namespace adamk {
namespace {

StagePlan stage(StageKind kind, Exchange input = Exchange::tagged) {
  StagePlan out;
  out.kind = kind;
  out.input = input;
  return out;
}

Plan sample_plan() {
  Plan plan;
  plan.stages = {stage(StageKind::qkv), stage(StageKind::attention), stage(StageKind::output, Exchange::counter),
                 stage(StageKind::gate_up, Exchange::counter), stage(StageKind::down), stage(StageKind::head)};
  plan.stages[1].kv_splits = 4;
  plan.stages[4].tile_rows = 32;
  plan.grid = 92;
  return plan;
}

CandidateRow sample_row() {
  CandidateRow row;
  row.id = 7;
  row.run = 2;
  row.plan = sample_plan();
  row.plan_hash = row.plan.hash();
  row.device.name = "NVIDIA L20";
  row.device.sm = 89;
  row.device.sms = 92;
  row.device.driver = "13.0";
  row.device.toolkit = "13.0";
  row.method = Method::cupti;
  row.median_us = 500;
  row.p10_us = 499;
  row.p90_us = 502;
  row.gbps = 400;
  row.ceiling_gbps = 800;
  row.verified = true;
  row.match = Match::same_sm;
  return row;
}

TEST(PlanText, ValuesThatDifferStandInTheOrderOfTheStages) {
  EXPECT_EQ(views::plan_text(sample_plan()),
            "tagged/counter/tagged, tiles of 16/32/16 x 64, 4 KV splits, 16 warps, ring 6, window 2, 92 blocks");
}

TEST(PlanText, WhatIsLeftOutOrMovedIsNamed) {
  Plan plan = sample_plan();
  plan.stages.erase(plan.stages.begin() + 1);
  for (StagePlan& each : plan.stages) each = stage(each.kind);
  plan.stages[1].fused_attention = true;
  plan.stages[2].fused_silu = false;
  plan.stages[4].norm = NormMode::exchange;
  plan.pace = 450;
  EXPECT_EQ(views::plan_text(plan), "tagged, tiles of 16 x 64, fused attention, norm exchanged, late SiLU, 16 warps, ring 6, "
                                    "window 2, pace 450, 92 blocks");
}

TEST(CandidateViews, EveryAnswerShowsTimeBandwidthShareOfTheCeilingAndMatch) {
  const std::string text = views::candidate_text(sample_row());
  EXPECT_NE(text.find("500.00 us per token (10th to 90th percentile 499.00 to 502.00)"), std::string::npos) << text;
  EXPECT_NE(text.find("400 GB/s, 50.0 % of the read ceiling (800 GB/s)"), std::string::npos) << text;
  EXPECT_NE(text.find("NVIDIA L20 (sm_89, 92 SMs, driver 13.0, NVRTC 13.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("match      same sm"), std::string::npos) << text;
  EXPECT_NE(text.find("cupti, verified against the reference"), std::string::npos) << text;
}

TEST(CandidateViews, JsonHasNullsWhereNothingIsKnown) {
  CandidateRow row = sample_row();
  row.status = Status::crashed;
  row.message = "signal 11\nand more";
  row.median_us = row.p10_us = row.p90_us = row.gbps = std::nan("");
  row.ceiling_gbps = 0;
  const Json json = views::candidate_to_json(row);
  for (const char* key : {"us", "p10_us", "p90_us", "gbps", "ceiling_gbps", "percent"})
    EXPECT_TRUE(json.at(key).is_null()) << key;
  EXPECT_EQ(json.at("match"), "same sm");
  EXPECT_EQ(json.at("plan_hash"), row.plan.hash());
}

TEST(CandidateViews, TheReasonHasAColumnWhereSomethingFailed) {
  CandidateRow failed = sample_row();
  failed.status = Status::spills;
  failed.message = "64 bytes\nper thread";
  EXPECT_EQ(views::candidates_table({sample_row()}).columns.back().name, "what");
  const Table table = views::candidates_table({sample_row(), failed});
  EXPECT_EQ(table.columns.back().name, "why not");
  EXPECT_EQ(table.rows[0].back().text, "-");
  EXPECT_EQ(table.rows[1].back().text, "64 bytes");
}

TEST(CandidateViews, CountsStartWithTheSoundOnes) {
  EXPECT_EQ(views::counts_text({{"crashed", 1}, {"ok", 12}, {"spills", 3}}), "12 ok, 1 crashed, 3 spills");
  EXPECT_EQ(views::counts_text({}), "none");
}

TEST(TargetYaml, ReadsBackAsTheSameTarget) {
  Target target;
  target.name = "l20: \"b\"";
  target.product = "NVIDIA L20 # not a comment";
  target.sm = 89;
  target.sms = 92;
  target.smem_per_block = 101376;
  target.smem_per_sm = 102400;
  target.smem_reserved = 1024;
  target.l2_bytes = 96 << 20;
  target.memory_bytes = std::int64_t{48} << 30;
  target.read_gbps = 781.25;
  target.hop_us = 1.2;
  target.clock_mhz = 2520;
  target.measured = true;
  const auto text = target_to_yaml(target, "Measured here.");
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_TRUE(text->starts_with("# Measured here.\nformat: \"adamk.target\"\n")) << *text;
  const Json read = parse_yaml(*text, "x.yaml").value();
  EXPECT_EQ(target_to_json(target_from_json(JsonView(read, "x.yaml")).value()), target_to_json(target));
}

TEST(TargetYaml, ATargetThatCouldNotBeReadIsNotWritten) {
  EXPECT_FALSE(target_to_yaml(Target{}, "Measured here.").has_value()) << "no name, no SMs";
}

TEST(WeightsSource, FlagsComeBeforeWhatTheDagSays) {
  DagFile dag;
  dag.random_weights = 7;
  WeightsFlags flags;
  EXPECT_EQ(weights_source(flags, dag, "x.dag.json")->seed, 7u);
  flags.folder = "elsewhere";
  EXPECT_EQ(weights_source(flags, dag, "x.dag.json")->folder, "elsewhere");
  EXPECT_FALSE(weights_source(flags, dag, "x.dag.json")->seed.has_value());
  dag.random_weights.reset();
  dag.model_path = "no-such-folder";
  const auto none = weights_source({}, dag, "x.dag.json");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Errc::bad_input);
  EXPECT_NE(none.error().message.find("x.dag.json"), std::string::npos);
}

}  // namespace
}  // namespace adamk
