// Emission is a pure function, and what it emits compiles for every architecture adamk names.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "adamk/codegen/kernel.h"
#include "codegen_fixture.h"

namespace adamk {
namespace {

Result<std::string> source_of(const Deployment& deployment, const Plan& plan) {
  ADAMK_TRY(const Schedule schedule, make_schedule(deployment, plan));
  return emit_source(deployment, schedule);
}

TEST(EmitTest, EqualArgumentsGiveEqualBytes) {
  const Deployment deployment = codegen::deploy(codegen::ragged_model());
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  const auto first = source_of(deployment, *plan), second = source_of(deployment, *plan);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
}

TEST(EmitTest, EveryChoiceOfAPlanReachesTheSource) {
  const Deployment deployment = codegen::deploy(codegen::even_model());
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  std::set<std::string> sources;
  std::size_t tried = 0;
  const auto change = [&](const std::function<void(Plan&)>& edit) {
    Plan other = *plan;
    edit(other);
    const auto source = source_of(deployment, other);
    ASSERT_TRUE(source) << source.error().message;
    sources.insert(*source);
    ++tried;
  };
  change([](Plan&) {});
  change([](Plan& p) { p.grid = 5; });
  change([](Plan& p) { p.ring_stages = 3, p.window = 2; });
  change([](Plan& p) { p.window = 1; });
  change([](Plan& p) { p.pace = 100; });
  change([](Plan& p) { p.consumer_warps = 2; });
  change([](Plan& p) { p.unroll = 1; });
  change([](Plan& p) { p.fragments = 2; });
  for (std::size_t i = 0; i < plan->stages.size(); ++i) {
    if (plan->stages[i].kind == StageKind::head) continue;   // its input is the next layer's, so it has to change with qkv
    change([i](Plan& p) {
      p.stages[i].input = Exchange::counter;
      if (p.stages[i].kind == StageKind::qkv) p.stages.back().input = Exchange::counter;
    });
  }
  change([](Plan& p) { p.stages[0].norm = NormMode::exchange; });
  change([](Plan& p) { p.stages[0].tile_rows = 32; });
  change([](Plan& p) { p.stages[1].kv_splits = 2; });
  EXPECT_EQ(sources.size(), tried);
}

TEST(EmitTest, ASourceIncludesNothing) {
  const Deployment deployment = codegen::deploy(codegen::even_model());
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  const auto source = source_of(deployment, *plan);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->find("#include"), std::string::npos);
}

class CompileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

struct Arch {
  std::string target, arch;
};

class EveryArchTest : public CompileTest, public ::testing::WithParamInterface<Arch> {};

// The same model on every shipped target: bulk copies where the architecture has them, cp.async where not.
TEST_P(EveryArchTest, CompilesWithoutSpills) {
  const Deployment deployment = codegen::deploy(codegen::even_model(), GetParam().target);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto source = source_of(deployment, *plan);
  ASSERT_TRUE(source);
  const auto kernel = compile(*source, GetParam().arch);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_NE(kernel->ptx.find(".entry adamk_decode"), std::string::npos);
  const bool newer = deployment.target.sm >= 90;
  EXPECT_EQ(kernel->ptx.find("cp.async.bulk") != std::string::npos, newer);
  EXPECT_EQ(kernel->ptx.find("cp.async.cg.shared.global") != std::string::npos, !newer);
  if (GetParam().arch.starts_with("compute_")) {
    EXPECT_TRUE(kernel->cubin.empty());
  } else {
    EXPECT_FALSE(kernel->cubin.empty());
    EXPECT_GT(kernel->registers, 0);
    EXPECT_EQ(kernel->spill_bytes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, EveryArchTest,
                         ::testing::Values(Arch{"a100", "sm_80"}, Arch{"a10g", "sm_86"}, Arch{"l20", "sm_89"},
                                           Arch{"l20", "compute_89"}, Arch{"h200", "sm_90a"}, Arch{"b200", "sm_100"},
                                           Arch{"rtx5090", "sm_120"}),
                         [](const ::testing::TestParamInfo<Arch>& each) { return each.param.target + "_" + each.param.arch; });

/// Registers cannot be indexed at run time: a loop over steps whose activations lie in several of them must not put those into memory.
TEST_F(CompileTest, NoInnerLoopUsesLocalMemory) {
  const Deployment deployment = codegen::deploy(codegen::ragged_model(), "h200");
  auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  plan->consumer_warps = 1;
  plan->ring_stages = 3;
  plan->window = 2;
  for (const auto& [chunk_steps, unroll, fragments] : {std::array{12, 1, 1}, {12, 0, 4}, {20, 3, 2}, {7, 2, 4}}) {
    for (StagePlan& stage : plan->stages)
      if (stage.kind != StageKind::attention) stage.chunk_steps = chunk_steps;
    plan->unroll = unroll;
    plan->fragments = fragments;
    const auto source = source_of(deployment, *plan);
    ASSERT_TRUE(source) << source.error().message;
    const auto kernel = compile(*source, "compute_90a");
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ(kernel->ptx.find(".local"), std::string::npos) << "chunks of " << chunk_steps << ", unroll " << unroll;
  }
}

// What a source says about the target is numbers; how its copies are made, the architecture it is compiled for decides.
TEST_F(CompileTest, OneSourceServesEveryArchitecture) {
  const Deployment deployment = codegen::deploy(codegen::ragged_model(), "l20");
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto source = source_of(deployment, *plan);
  ASSERT_TRUE(source);
  for (const char* arch : {"compute_80", "compute_86", "compute_89", "compute_90a", "compute_100", "compute_120"}) {
    const auto kernel = compile(*source, arch);
    ASSERT_TRUE(kernel) << arch << ": " << kernel.error().message;
    EXPECT_NE(kernel->ptx.find(".entry adamk_decode"), std::string::npos) << arch;
  }
}

class ShippedModelTest : public CompileTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(ShippedModelTest, DefaultPlanDoesNotSpill) {
  const auto model = load_model(std::string(ADAMK_SOURCE_DIR) + "/examples/models/" + GetParam() + ".yaml");
  ASSERT_TRUE(model) << model.error().message;
  const Deployment deployment = codegen::deploy(*model);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto source = source_of(deployment, *plan);
  ASSERT_TRUE(source);
  const auto kernel = compile(*source, "sm_90a");
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->spill_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ShippedModelTest,
                         ::testing::Values("llama-2-7b", "llama-3.2-1b", "qwen2.5-1.5b", "qwen3-1.7b"),
                         [](const ::testing::TestParamInfo<std::string>& each) {
                           std::string name = each.param;
                           std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST_F(CompileTest, ErrorsNameTheLine) {
  const auto kernel = compile("extern \"C\" __global__ void adamk_decode() { undeclared(); }", "sm_90a");
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, Errc::bad_input);
  EXPECT_NE(kernel.error().message.find("undeclared"), std::string::npos);
}

TEST_F(CompileTest, UnknownArchitectureIsRefused) {
  const auto kernel = compile("extern \"C\" __global__ void adamk_decode() {}", "sm_12345");
  ASSERT_FALSE(kernel);
  EXPECT_NE(kernel.error().message.find("sm_12345"), std::string::npos);
}

TEST_F(CompileTest, CancelledCompilationSaysSo) {
  const auto kernel = compile("extern \"C\" __global__ void adamk_decode() {}", "sm_90a", [] { return true; });
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, Errc::interrupted);
}

}  // namespace
}  // namespace adamk
