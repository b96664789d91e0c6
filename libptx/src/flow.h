// The flow of control of a function: blocks, dominators, loops. Shared by the instruction DAG and the branch census.
#pragma once

#include <vector>

#include "adamk/ptx/module.h"

namespace adamk::ptx {

struct FlowBlock {
  int begin = 0, end = 0;          // instructions [begin, end)
  std::vector<int> to, from;       // blocks; the fall-through first
  int dominator = -1;              // immediate; -1: the entry, or never reached
  int rejoins = -1;                // where all ways out of this block meet again; -1: nowhere, they leave the function
  int loop = -1;                   // innermost
};

/// A natural loop; back edges to one header are one loop.
struct FlowLoop {
  int header = 0;
  int parent = -1;
  std::vector<bool> holds;         // by block
};

struct Flow {
  std::vector<FlowBlock> blocks;
  std::vector<int> block_of;       // by instruction
  std::vector<int> order;          // reachable blocks in reverse postorder, the entry first
  std::vector<FlowLoop> loops;     // outer before inner

  bool reached(int block) const { return block == 0 || blocks[static_cast<std::size_t>(block)].dominator >= 0; }
  bool dominates(int a, int b) const;
  bool in_loop(int block, int loop) const;
};

/// The body has at least one instruction.
Flow make_flow(const PtxBody& body);

}  // namespace adamk::ptx
