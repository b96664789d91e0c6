// Live registers of a function.
#pragma once

#include <vector>

#include "flow.h"

namespace adamk::ptx {

/// By instruction: 32-bit registers that hold something needed later, just behind it. 0 where control never comes.
std::vector<int> live_registers(const PtxBody& body, const Flow& flow);

}  // namespace adamk::ptx
