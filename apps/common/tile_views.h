// Predicted and measured clocks of tiles, of several plans side by side.
#pragma once

#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/codegen/kernel.h"
#include "adamk/dag/dag_file.h"
#include "adamk/dag/schedule.h"
#include "adamk/profile/tiles.h"
#include "adamk/ptx/instruction_dag.h"
#include "common/command.h"

namespace adamk {

struct TileVariant {
  Deployment deployment;
  Schedule schedule;
  Kernel kernel, stamped;              // the plan's own, which the prediction is of, and the one that is timed
  InstructionDag dag;                  // of `kernel`
  std::vector<TileClocks> measured;    // empty: predictions alone
};

/// Compiles both kernels of every file's plan, on all cores.
Result<std::vector<TileVariant>> compile_tile_variants(const std::vector<DagFile>& files);

/// A row for each stage with a loop over tiles; with measurements also the median error and the rank correlation of
/// predictions, of all plans and of every second one. `names` as long as `variants`.
Result<void> print_tile_variants(const std::vector<TileVariant>& variants, const std::vector<std::string>& names,
                                 const CommonOptions& options);

}  // namespace adamk
