// The instruction DAG of what the emitter really emits: every role and stage is found, no plan's kernel decides anything at
// run time, and the markers that make this possible change no machine code.
#include "adamk/ptx/instruction_dag.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "adamk/codegen/facts.h"
#include "adamk/codegen/kernel.h"
#include "codegen_fixture.h"

namespace adamk {
namespace {

struct Case {
  std::string name, target, arch;
  std::function<void(Plan&)> edit;
};

void fuse_attention(Plan& plan) {
  std::erase_if(plan.stages, [](const StagePlan& stage) { return stage.kind == StageKind::attention; });
  for (StagePlan& stage : plan.stages) stage.fused_attention = stage.kind == StageKind::output;
}

class EmittedDagTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

TEST_P(EmittedDagTest, StagesAreFoundAndNothingIsDecided) {
  const Deployment deployment = codegen::deploy(codegen::ragged_model(), GetParam().target);
  auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  GetParam().edit(*plan);
  const auto schedule = make_schedule(deployment, *plan);
  ASSERT_TRUE(schedule) << schedule.error().message;
  const auto source = emit_source(deployment, *schedule);
  ASSERT_TRUE(source);
  const auto kernel = compile(*source, GetParam().arch);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto module = parse_ptx(kernel->ptx);
  ASSERT_TRUE(module) << module.error().message;
  const auto dag = make_instruction_dag(*module, kernel_facts(*schedule));
  ASSERT_TRUE(dag) << dag.error().message;

  for (const BranchNote& note : dag->branches)
    EXPECT_NE(note.branch, BranchClass::other) << "line " << note.line << ": " << note.depends_on;
  for (const GemvShape& shape : schedule->gemvs) {
    const InstructionPiece* tile = dag->tile("consumer", to_string(shape.kind));
    ASSERT_NE(tile, nullptr) << to_string(shape.kind);
    const auto products = std::count_if(tile->nodes.begin(), tile->nodes.end(),
                                        [](const InstructionNode& node) { return node.kind == CostKind::mma; });
    EXPECT_EQ(products, static_cast<std::ptrdiff_t>(shape.steps) * (shape.tile_rows / 16)) << to_string(shape.kind);
    EXPECT_GT(tile->memory.count("ring"), 0u) << to_string(shape.kind);
    for (const char* role : {"loader", "storer"}) EXPECT_NE(dag->tile(role, to_string(shape.kind)), nullptr) << role;
  }

  // Without the markers: the same machine code, byte for byte.
  std::string bare = *source;
  const std::string marker = "asm volatile(\"// adamk: ";
  for (std::size_t at = bare.find(marker); at != std::string::npos; at = bare.find(marker)) {
    const std::size_t begin = bare.rfind('\n', at) + 1;
    bare.erase(begin, bare.find('\n', at) + 1 - begin);
  }
  const auto unmarked = compile(bare, GetParam().arch);
  ASSERT_TRUE(unmarked) << unmarked.error().message;
  EXPECT_EQ(unmarked->ptx.find("adamk: "), std::string::npos);
  EXPECT_TRUE(unmarked->cubin == kernel->cubin);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmittedDagTest,
    ::testing::Values(Case{"tagged", "h200", "sm_90a", [](Plan&) {}},
                      Case{"barrier", "l20", "sm_89",
                           [](Plan& plan) {
                             for (StagePlan& stage : plan.stages) stage.input = Exchange::barrier;
                           }},
                      Case{"loop_of_one", "h200", "sm_90a", [](Plan& plan) { plan.unroll = 1; }},   // its products are counted as often as it turns
                      Case{"loop_of_two", "l20", "sm_89",
                           [](Plan& plan) {
                             plan.consumer_warps = 2;
                             for (StagePlan& stage : plan.stages)
                               if (stage.kind != StageKind::attention) stage.chunk_steps = 5;
                             plan.ring_stages = 3;
                             plan.window = 2;
                             plan.unroll = 2;
                             plan.fragments = 3;
                           }},
                      Case{"fused_paced", "l20", "sm_89",
                           [](Plan& plan) {
                             fuse_attention(plan);
                             plan.pace = 390;
                           }}),
    [](const ::testing::TestParamInfo<Case>& each) { return each.param.name; });

}  // namespace
}  // namespace adamk
