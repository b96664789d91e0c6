#include "adamk/dag/deployment.h"

#include <gtest/gtest.h>

namespace adamk {
namespace {

Model small_model() {
  Model model;
  model.family = "llama";
  model.layers = 5;
  model.hidden = 64;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn = 172;
  model.vocab = 512;
  model.max_positions = 512;
  model.norm_eps = 1e-5;
  return model;
}

Workload workload(std::int64_t context = 256) {
  Workload work;
  work.context = context;
  return work;
}

Target l20() { return load_target("l20").value(); }

std::string verdict(Model model, Workload work) {
  const auto deployment = make_deployment(std::move(model), WeightsFormat::bf16, l20(), std::move(work));
  return deployment ? "accepted" : deployment.error().message;
}

#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

TEST(DeploymentTest, ContextIsBoundedByPositionsAndWindow) {
  EXPECT_EQ(verdict(small_model(), workload(512)), "accepted");
  EXPECT_SAYS(verdict(small_model(), workload(513)),
              "context 513 is beyond the model's max_position_embeddings of 512");
  EXPECT_SAYS(verdict(small_model(), workload(0)), "context 0");
  Model windowed = small_model();
  windowed.sliding_window = 8;
  EXPECT_EQ(verdict(windowed, workload(8)), "accepted");
  EXPECT_SAYS(verdict(windowed, workload(9)), "context 9 is beyond the model's sliding window of 8");
}

TEST(DeploymentTest, WhatHasNoKernelIsRefusedByName) {
  Workload work = workload();
  work.batch = 2;
  EXPECT_SAYS(verdict(small_model(), work), "batch 2");
  work = workload();
  work.steps_per_launch = 4097;
  EXPECT_SAYS(verdict(small_model(), work), "4097 is outside 1 to 4096");
  work.steps_per_launch = 0;
  EXPECT_SAYS(verdict(small_model(), work), "outside 1 to 4096");
  work = workload();
  work.sampling = "top_p";
  EXPECT_SAYS(verdict(small_model(), work), "top_p");
  Model quantized = small_model();
  quantized.quantization = Quantization{"gptq"};
  EXPECT_SAYS(verdict(quantized, workload()), "GPTQ weights can be imported but no kernel for them exists yet");
}

TEST(DeploymentTest, SizesThatNoKernelServesAreRefusedByName) {
  Model model = small_model();
  model.head_dim = 20;
  EXPECT_SAYS(verdict(model, workload()), "head_dim 20");
  model.head_dim = 264;
  EXPECT_SAYS(verdict(model, workload()), "head_dim 264");
  model = small_model();
  model.ffn = 174;
  EXPECT_SAYS(verdict(model, workload()), "intermediate size 174");
  model = small_model();
  model.hidden = 66;
  EXPECT_SAYS(verdict(model, workload()), "hidden size 66");
  Target old = l20();
  old.sm = 75;
  EXPECT_SAYS(make_deployment(small_model(), WeightsFormat::bf16, old, workload()).error().message, "sm_75");
}

TEST(DeploymentTest, KeyChangesWithEverythingThatChangesAResult) {
  const Deployment base = make_deployment(small_model(), WeightsFormat::bf16, l20(), workload()).value();
  EXPECT_EQ(base.key().size(), 32u);
  const auto differs = [&](auto change) {
    Deployment other = base;
    change(other);
    return other.key() != base.key();
  };
  EXPECT_TRUE(differs([](Deployment& d) { d.weights = WeightsFormat::fp16; }));
  EXPECT_TRUE(differs([](Deployment& d) { d.model.norm_eps = 1e-6; }));
  EXPECT_TRUE(differs([](Deployment& d) { d.model.sliding_window = 4096; }));
  EXPECT_TRUE(differs([](Deployment& d) { d.target.sms = 91; }));
  EXPECT_TRUE(differs([](Deployment& d) { d.target.smem_per_block = 1 << 16; }));
  EXPECT_TRUE(differs([](Deployment& d) { d.workload.context = 255; }));
  EXPECT_TRUE(differs([](Deployment& d) { d.workload.steps_per_launch = 1; }));
  EXPECT_FALSE(differs([](Deployment& d) { d.model.notes.push_back("a default"); }));
  EXPECT_FALSE(differs([](Deployment& d) { d.target.read_gbps = 800; }));
}

TEST(DeploymentTest, JsonRoundTripKeepsTheKey) {
  const Deployment base = make_deployment(small_model(), WeightsFormat::fp16, l20(), workload()).value();
  const Json json = deployment_to_json(base);
  const auto back = deployment_from_json(JsonView(json, "d.json"));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->key(), base.key());
  EXPECT_EQ(deployment_to_json(*back), json);

  Json wrong = json;
  wrong["workload"]["batch"] = 2;
  EXPECT_SAYS(deployment_from_json(JsonView(wrong, "d.json")).error().message, "d.json: batch 2");
  wrong = json;
  wrong["weights"] = "int4";
  EXPECT_SAYS(deployment_from_json(JsonView(wrong, "d.json")).error().message, "d.json: weights: ");
}

}  // namespace
}  // namespace adamk
