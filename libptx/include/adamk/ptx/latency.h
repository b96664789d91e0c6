// What an instruction costs on a GPU: clocks until its result can be used, and clocks it keeps its pipe busy. One table for
// each sm; every row names where it comes from. PTX is not machine code: a row speaks of what ptxas usually makes of it.
#pragma once

#include <array>
#include <string_view>

#include "adamk/ptx/module.h"

namespace adamk {

/// Of each of an SM's four sub-partitions; `memory` (shared and global accesses, shuffles) and `sync` (mbarriers) are one for
/// the whole SM.
enum class PtxPipe { none, alu, fma, special, tensor, memory, sync, control };
inline constexpr int ptx_pipes = 8;
inline bool is_shared(PtxPipe pipe) { return pipe == PtxPipe::memory || pipe == PtxPipe::sync; }
std::string_view to_string(PtxPipe pipe);

/// Rows of the table. `free`: usually no machine instruction at all (moves, kernel parameters, address casts).
enum class CostKind {
  free, integer, multiply, float_add, convert, special, divide, shuffle, vote, mma, load_shared, store_shared, load_matrix,
  load_global, store_global, load_constant, atomic_shared, atomic_global, barrier_test, barrier_arrive, warp_barrier,
  block_barrier, fence, async_copy, bulk_copy, branch, call, clock
};
inline constexpr int cost_kinds = 28;
std::string_view to_string(CostKind kind);

struct CostRow {
  PtxPipe pipe = PtxPipe::none;
  double latency = 0;             // clocks from issue until a dependent instruction can issue
  double busy = 0;                // clocks of its pipe that a warp instruction of 32-bit operands takes
  std::string_view source;
};

struct LatencyTable {
  int sm = 0;                     // 80, 86, 89, 90, 100, 120
  bool exact = true;              // false: the sm asked for has no table, this is the nearest
  std::array<CostRow, cost_kinds> rows{};
  const CostRow& row(CostKind kind) const { return rows[static_cast<std::size_t>(kind)]; }
};

/// `sm`: 90 for "sm_90a". Never fails: the nearest table not above, else the lowest.
LatencyTable latency_table(int sm);

CostKind cost_kind(const PtxInstruction& instruction);

struct InstructionCost {
  PtxPipe pipe = PtxPipe::none;
  double latency = 0, busy = 0;
  double issue = 0;               // issue slots: machine instructions it becomes
  bool alu_or_fma = false;        // 32-bit sums and left shifts, which ptxas spreads over both pipes (IADD3 and IMAD)
};
/// The row, scaled to the instruction's own width (64-bit arithmetic, vectors).
InstructionCost instruction_cost(const PtxInstruction& instruction, const LatencyTable& table);

}  // namespace adamk
