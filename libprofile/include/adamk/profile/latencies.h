// The rows of the latency table (libptx) that can be measured, measured again on the GPU at hand.
#pragma once

#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/ptx/latency.h"
#include "adamk/runtime/device.h"

namespace adamk {

struct MeasuredCost {
  CostKind kind = CostKind::free;
  std::string what;               // the instruction
  double latency = -1;            // clocks; -1: not to be had for this one
  double busy = -1;               // of a sub-partition's pipe, or of the SM's memory pipe, for one warp instruction
};

/// One row for each instruction probed, in the order of CostKind; a kind may have several. Latency: a chain of 128 dependent
/// ones in one warp. Busy: 32 warps of one SM, four chains each. Medians of five launches.
Result<std::vector<MeasuredCost>> measure_latencies(Device& device);

}  // namespace adamk
