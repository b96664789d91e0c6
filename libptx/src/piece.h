// One piece of the instruction DAG: instructions in an order that respects the flow of control, and what holds each back.
#pragma once

#include <vector>

#include "adamk/ptx/instruction_dag.h"
#include "addresses.h"
#include "flow.h"

namespace adamk::ptx {

/// Fills nodes, edges and figures of `piece`, whose role, stage, name and warps are set. `code`: instructions of the body.
void fill_piece(const PtxBody& body, const Flow& flow, Addresses& addresses, const LatencyTable& table,
                const std::vector<int>& live, const std::vector<int>& code, InstructionPiece& piece);

}  // namespace adamk::ptx
