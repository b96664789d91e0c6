// Cycles per tile: what the instruction DAG of a kernel's PTX says, and what a stamped build of the same kernel takes on a GPU
// when memory does not hold it back (docs/instruction-dag.md).
#pragma once

#include <cstdint>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/codegen/kernel.h"
#include "adamk/dag/schedule.h"
#include "adamk/ptx/instruction_dag.h"
#include "adamk/runtime/device.h"

namespace adamk {

struct TileOptions {
  std::int64_t position = 0;   // of the first token of every launch: how far attention walks
  int steps = 4;               // tokens a launch
  int launches = 4;
  std::uint64_t seed = 1;      // of random weights, embedding and KV cache
};

/// One stage's consumer tile, or in attention one time through the loop over positions, with all consumer warps at it. Clocks
/// of the SM, waiting for data and for the storer left out.
struct TileClocks {
  StageKind stage = StageKind::qkv;
  int samples = 0;
  double clocks = 0, p10 = 0, p90 = 0;   // median and percentiles over SMs, warps, tiles and launches
  double waited = 0;                     // mean, left out of `clocks`
};

/// `stamped`: compiled from emit_source with Instrument::tiles. Only stages of which some SM has two tiles or more: the first tile of each is
/// left out, and where there are four or more the last. Fails as a Decoder does.
Result<std::vector<TileClocks>> measure_tiles(Device& device, const Deployment& deployment, const Schedule& schedule,
                                              const Kernel& stamped, const TileOptions& options = {});

/// The piece of `dag` that measure_tiles times in a stage: the loop over tiles, or attention's over positions. Null where the
/// compiler left no loop.
const InstructionPiece* timed_piece(const InstructionDag& dag, StageKind stage);

/// Spearman's rank correlation; ties share their rank. 0 below two pairs or when either side is constant.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace adamk
