#include "adamk/dag/tile_dag.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <set>

#include "adamk/dag/dag_file.h"
#include "adamk/dag/operator_graph.h"
#include "adamk/dag/validator.h"
#include "dag_fixtures.h"

namespace adamk {
namespace {

using fixtures::deploy;

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

const EdgeSet& find_edge(const TileDag& dag, std::string_view from, std::string_view to, std::string_view tensor,
                         Hazard hazard) {
  for (const EdgeSet& edge : dag.edges) {
    if (edge.from == dag.find_stage(from) && edge.to == dag.find_stage(to) && edge.tensor == dag.find_tensor(tensor) &&
        edge.hazard == hazard)
      return edge;
  }
  throw std::runtime_error("no such edge");
}

int count_edges(const TileDag& dag, const EdgeSet& edge) {
  int count = 0;
  for_each_task_edge(dag, edge, [&](const TaskId&, const TaskId&) { ++count; });
  return count;
}

TEST(OperatorGraphTest, BytesAndFlopsOfTheTinyModelAreThoseWorkedOutByHand) {
  const OperatorGraph graph = make_operator_graph(deploy(fixtures::tiny_model(), "l20"));
  ASSERT_EQ(graph.layer.size(), 12u);   // no QK-norm
  // Elements of a layer: qkv 256 x 128, o 128 x 128, gate and up 768 x 128, down 128 x 384, two norms of 128.
  const std::int64_t layer = 32768 + 16384 + 98304 + 49152 + 256;
  // Once: one embedding row of 128, the final norm of 128, the head 256 x 128.
  EXPECT_EQ(graph.weight_bytes(), 2 * (4 * layer + 128 + 128 + 32768));
  for (const Operator& op : graph.layer) {
    if (op.kind == OperatorKind::attention) {
      EXPECT_EQ(op.flops, 4.0 * 128 * 256);
    }
    if (op.kind == OperatorKind::down) {
      EXPECT_EQ(op.flops, 2.0 * 128 * 384);
    }
  }
}

TEST(OperatorGraphTest, EveryOperatorReadsAndWritesDeclaredTensors) {
  for (const Model& model : {fixtures::tiny_model(), fixtures::qwen3_1_7b(), fixtures::qwen2_1_5b()}) {
    const OperatorGraph graph = make_operator_graph(deploy(model, "h200"));
    EXPECT_EQ(graph.find("qk_norm") != nullptr, model.qk_norm);
    EXPECT_EQ(graph.find("layer.qkv.bias") != nullptr, model.qkv_bias);
    for (const auto* section : {&graph.prologue, &graph.layer, &graph.epilogue}) {
      for (const Operator& op : *section) {
        for (const auto* names : {&op.reads, &op.writes})
          for (const std::string& name : *names) EXPECT_NE(graph.find(name), nullptr) << name;
      }
    }
  }
}

TEST(TileDagTest, TilesAndSlicesOfTheTinyModelAreThoseWorkedOutByHand) {
  const TileDag dag = make_tile_dag(deploy(fixtures::tiny_model(), "l20"), fixtures::small_plan()).value();
  const DagStage& qkv = dag.stages[static_cast<std::size_t>(dag.find_stage("qkv"))];
  // 256 rows: 16 tiles, 4 for each of 4 SMs. K = 128: 8 steps, 2 (32 columns) for each of 4 warps, one a chunk.
  ASSERT_EQ(qkv.ranges.size(), 4u * 3);
  EXPECT_EQ(qkv.ranges[0].count, 4);
  EXPECT_EQ(qkv.ranges[0].bytes, 16 * 128 * 2);
  EXPECT_EQ(qkv.slices, (std::vector<KSlice>{{0, 32}, {32, 64}, {64, 96}, {96, 128}}));
  EXPECT_EQ(qkv.parts, 2);
  // Gate and up interleaved: tile 5 makes values 40 to 48 from gate rows 40 to 48 and up rows 384 + 40 to 384 + 48.
  const DagStage& gate_up = dag.stages[static_cast<std::size_t>(dag.find_stage("gate_up"))];
  const TaskRange& load = gate_up.ranges[0];
  EXPECT_EQ(load.reads[0].at(5).begin, 40 * 128);
  EXPECT_EQ(load.reads[1].at(5).begin, (384 + 40) * 128);
  EXPECT_EQ(load.reads[1].at(5).end, (384 + 48) * 128);
}

TEST(TileDagTest, TaskEdgesJoinATileToTheHeadsThatReadIt) {
  const TileDag dag = make_tile_dag(deploy(fixtures::tiny_model(), "l20"), fixtures::small_plan()).value();
  // A KV head reads two heads of q (32 rows, two tiles), 16 rows of k and 16 of v: four tiles, for each of four heads.
  EXPECT_EQ(count_edges(dag, find_edge(dag, "qkv", "attention", "qkv", Hazard::raw)), 16);
  // All 8 output tiles read all four items.
  EXPECT_EQ(count_edges(dag, find_edge(dag, "attention", "output", "attention", Hazard::raw)), 4 * 8);
  // Rows of the residual stay with their owner.
  EXPECT_EQ(count_edges(dag, find_edge(dag, "output", "down", "residual", Hazard::raw)), 8);
}

TEST(TileDagTest, SplitsReadDisjointPositions) {
  const TileDag dag = make_tile_dag(deploy(fixtures::tiny_model(), "l20"), fixtures::small_plan(4)).value();
  const DagStage& attention = dag.stages[static_cast<std::size_t>(dag.find_stage("attention"))];
  std::set<std::pair<std::int64_t, int>> seen;
  for (const TaskRange& range : attention.ranges) {
    for (const Access& read : range.reads) {
      if (read.region.tensor != dag.find_tensor("kv_cache")) continue;
      EXPECT_EQ(read.region.parts, 4);
      EXPECT_TRUE(seen.insert({read.region.begin, read.region.part}).second);
    }
  }
  EXPECT_EQ(seen.size(), 16u);
}

TEST(TileDagTest, WeightBytesAreThePackedBytesOfTheSchedule) {
  for (const Model& model : {fixtures::tiny_model(), fixtures::ragged_model()}) {
    const Deployment deployment = deploy(model, "l20");
    const Plan plan = default_plan(deployment).value();
    const Schedule schedule = make_schedule(deployment, plan).value();
    const TileDag dag = make_tile_dag(deployment, schedule);
    // Every SM looks its row up, and the owners of the residual theirs.
    const std::int64_t embedding = std::int64_t{2} * model.hidden * (plan.grid + 1);
    EXPECT_EQ(dag.bytes(), schedule.packed_bytes + schedule.kv_bytes + embedding);
  }
}

TEST(TileDagTest, EightyLayersBuildInTwoSecondsAndHalfAGigabyte) {
  const Deployment deployment = deploy(fixtures::llama_70b(), "b200", 4096);
  const Plan plan = default_plan(deployment).value();
  const long before = peak_kib();
  const auto start = std::chrono::steady_clock::now();
  const TileDag dag = make_tile_dag(deployment, plan).value();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 2.0);
  EXPECT_LT(peak_kib() - before, 500 * 1024);
  // qkv 640, output 512, gate_up 3584, down 512 tiles a layer, the head 8016, each loaded, multiplied and stored.
  EXPECT_GT(dag.tasks(), 3 * (80 * (640 + 512 + 3584 + 512) + 8016));
}

TEST(DagFileTest, EverythingWrittenIsReadBack) {
  DagFile file;
  file.deployment = deploy(fixtures::ragged_model(), "l4");
  file.model_path = "models/ragged";
  file.random_weights = 7;
  file.plan = default_plan(file.deployment).value();
  file.tiles = make_tile_dag(file.deployment, *file.plan).value();
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "adamk_dag_file_test.json";
  ASSERT_TRUE(write_dag(path, file));
  const Result<DagFile> back = read_dag(path);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->deployment.key(), file.deployment.key());
  EXPECT_EQ(*back->plan, *file.plan);
  EXPECT_EQ(back->random_weights, file.random_weights);
  EXPECT_EQ(dag_to_json(*back).dump(), dag_to_json(file).dump());
  EXPECT_TRUE(validate(*back->tiles, back->deployment).ok);
  EXPECT_EQ(*read_plan(path), *file.plan);
  std::filesystem::remove(path);
}

TEST(DagFileTest, AnEditedFileIsRefusedByName) {
  DagFile file;
  file.deployment = deploy(fixtures::tiny_model(), "l20");
  const Json good = dag_to_json(file);
  const auto says = [](const Json& document) {
    const Result<DagFile> read = dag_from_json(JsonView(document, "x.dag.json"));
    return read ? std::string("accepted") : read.error().message;
  };
  EXPECT_EQ(says(good), "accepted");
  Json other_model = good;
  other_model["deployment"]["workload"]["context"] = 128;
  EXPECT_NE(says(other_model).find("deployment_key"), std::string::npos) << says(other_model);
  Json other_operators = good;
  other_operators["operators"]["layers"] = 5;
  EXPECT_NE(says(other_operators).find("operators"), std::string::npos) << says(other_operators);
  Json newer = good;
  newer["version"] = 3;
  EXPECT_NE(says(newer).find("version"), std::string::npos) << says(newer);
  Json stray = good;
  stray["plan_"] = 1;
  EXPECT_NE(says(stray).find("plan_"), std::string::npos) << says(stray);

  file.plan = default_plan(file.deployment).value();
  file.tiles = make_tile_dag(file.deployment, *file.plan).value();
  Json wrong_plan = dag_to_json(file);
  wrong_plan["plan"]["window"] = 1;
  EXPECT_NE(says(wrong_plan).find("tile_dag"), std::string::npos) << says(wrong_plan);
  Json wrong_tensor = dag_to_json(file);
  wrong_tensor["tile_dag"]["stages"][1]["ranges"][0]["reads"][0][0] = 1000;
  EXPECT_NE(says(wrong_tensor).find("tile_dag.stages[1].ranges[0].reads[0][0]"), std::string::npos) << says(wrong_tensor);
}

}  // namespace
}  // namespace adamk
