// Which lane function computes an instruction.
#pragma once

#include "adamk/base/result.h"
#include "adamk/ptx/module.h"
#include "lane_ops.h"

namespace adamk::ptx {

struct Selected {
  LaneFunction function = nullptr;
  int operands = 0;
  PtxType to = PtxType::none;
  PtxType from[3] = {PtxType::none, PtxType::none, PtxType::none};
};

/// Fails (bad_input), naming line and opcode, for a type or rounding that is not supported.
Result<Selected> select_lanes(const PtxInstruction& at);
Result<CompareFunction> select_compare(const PtxInstruction& at);

}  // namespace adamk::ptx
