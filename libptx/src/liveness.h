// Live registers of a function.
#pragma once

#include <cstdint>
#include <vector>

#include "flow.h"

namespace adamk::ptx {

/// One bit a register.
using RegisterSet = std::vector<std::uint64_t>;

/// By block: registers that hold something needed later. Empty where control never comes.
struct LiveBlocks {
  std::vector<RegisterSet> entering, leaving;
};
LiveBlocks live_blocks(const PtxBody& body, const Flow& flow);

/// By instruction: 32-bit registers that hold something needed later, just behind it. 0 where control never comes.
std::vector<int> live_registers(const PtxBody& body, const Flow& flow);

}  // namespace adamk::ptx
