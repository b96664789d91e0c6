// What `adamk-dag build` writes and every later command reads: one deployment, the summary of its operator graph, and
// optionally a plan with its tile DAG (docs/dag-file.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/operator_graph.h"
#include "adamk/dag/plan.h"
#include "adamk/dag/tile_dag.h"

namespace adamk {

struct DagFile {
  Deployment deployment;
  std::string model_path;                       // as given to build; where later commands look for weights by default
  std::optional<std::uint64_t> random_weights;  // seed, when the weights are to be made rather than loaded
  std::optional<Plan> plan;
  std::optional<TileDag> tiles;                 // of `plan`
  std::optional<Json> instructions;             // of `plan`: its instruction DAG, for other programs to read
};

Json dag_to_json(const DagFile& file);
/// Checks that the stored key is the deployment's, and the plan hash of tile and instruction DAG the plan's.
Result<DagFile> dag_from_json(const JsonView& root);

Result<DagFile> read_dag(const std::filesystem::path& path);
Result<void> write_dag(const std::filesystem::path& path, const DagFile& file);

/// A plan file, or the plan inside a DAG file.
Result<Plan> read_plan(const std::filesystem::path& path);

}  // namespace adamk
