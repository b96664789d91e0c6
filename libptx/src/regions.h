// Whose code an instruction is: the marker that reaches it along every path.
#pragma once

#include <string>
#include <vector>

#include "flow.h"

namespace adamk::ptx {

struct Regions {
  struct Name {
    std::string role, stage;
  };
  std::vector<Name> names;         // [0]: before any marker, {"entry", ""}
  std::vector<int> of;             // by instruction, index into `names`
};

/// The last marker on the way down the dominator tree: where paths of two stages meet, what both had before they parted.
Regions find_regions(const PtxBody& body, const Flow& flow);

}  // namespace adamk::ptx
