// --model DIR and --random-weights SEED: where weights come from.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "adamk/base/result.h"
#include "adamk/dag/dag_file.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/weights.h"

namespace adamk {

struct WeightsFlags {
  std::string folder;                    // --model
  std::optional<std::uint64_t> seed;     // --random-weights; excludes --model

  bool given() const { return !folder.empty() || seed.has_value(); }
  /// "random 7" or "checkpoint": what a manifest and a run's key record.
  std::string origin() const;
};

void add_weights_flags(CLI::App& app, WeightsFlags& flags);
/// The flags that stand for an origin: "random 7" -> seed 7; a checkpoint's folder is not recorded -> nothing given.
WeightsFlags flags_of_origin(const std::string& origin);

/// --model or --random-weights, else what the DAG was built with. `dag_path` is named where neither says anything.
Result<WeightsFlags> weights_source(const WeightsFlags& flags, const DagFile& dag, const std::string& dag_path);

/// Needs flags.given(). A --model folder that describes another model than the deployment's is refused (bad_input).
Result<Weights> load_weights(const Deployment& deployment, const WeightsFlags& flags);

}  // namespace adamk
