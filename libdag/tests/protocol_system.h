// A TileDag with its Protocol as a System of the explorer: every warp's program written out, task by task and part by part, for a few
// launches and steps. It knows the data structures and what their comments say, and shares no code with the validator.
#pragma once

#include <vector>

#include "adamk/dag/tile_dag.h"
#include "explorer.h"

namespace adamk::explorer {

/// How far the lanes of a warp act apart. Which elements are whose is the kernel's business, so several ways stand for all.
enum class LaneModel {
  together,   // a warp is one thread of the explorer, whose lanes differ in what they know of memory only
  halves,     // the first lane and the others are two threads, which only __syncwarp brings together. Of what a warp takes, the first
              // lane takes the first half of the cells ...
  swapped,    // ... the last half ...
  shares,     // ... what first lanes wrote
  first,      // ... all of it, and writes all
  others,     // ... nothing, and writes nothing
};

struct ProtocolRuns {
  std::vector<int> steps = {2, 2};   // of each launch
  int positions_per_warp = 1;        // consecutive positions of a split that one warp appends
  LaneModel lanes = LaneModel::together;
};

System protocol_system(const TileDag& dag, const ProtocolRuns& runs = {});

}  // namespace adamk::explorer
