// InstructionDag: a kernel's PTX as DAGs of instructions, one for each piece of work of each warp role and stage, with what
// they cost on one sm; and the branch census, the proof that a kernel decides nothing at run time (docs/instruction-dag.md).
// PTX order and live registers are hints: ptxas reorders.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/ptx/latency.h"
#include "adamk/ptx/module.h"

namespace adamk {

/// What the text does not say of a kernel.
struct KernelFacts {
  struct Area {                    // bytes [begin, end) of dynamic shared memory
    std::string name;
    std::int64_t begin = 0, end = 0;
  };
  struct Parameter {               // a member of the entry's parameter
    std::string name;
    std::int64_t offset = 0, bytes = 8;
    bool steers = false;           // counts and flags of the caller that branches may depend on
    bool read_only = false;        // a pointer to what no thread writes during a launch
  };
  std::string entry;
  std::string watchdog;            // the function that a wait asks whether to give up; part of its name
  std::vector<Area> shared;
  std::vector<Parameter> parameters;
  std::map<std::string, int> warps;   // of a block, by role; 1 when absent
};

enum class InstructionHazard { raw, war, waw, barrier, async, control };
std::string_view to_string(InstructionHazard hazard);

/// `to` comes `clocks` after `from` at the earliest. Nodes are numbered within their piece.
struct InstructionEdge {
  int from = 0, to = 0;
  InstructionHazard hazard = InstructionHazard::raw;
  int over = 0;                    // index into InstructionPiece::over: "register", "ring", "exchange", ...
  double clocks = 0;
};

struct InstructionNode {
  int line = 0;                    // of the PTX
  std::string opcode;
  CostKind kind = CostKind::free;
  double start = 0;                // clocks, the earliest, when only edges hold it back
  InstructionCost cost;
  bool ends_stretch = false;       // a branch that stays one, a barrier: what follows is not issued before all up to here
};

/// One time through a loop body, or through what a stage does outside of its loops. Waits count as satisfied at the first
/// look; the watchdog's code and the insides of waits are left out; inner loops are pieces of their own.
struct InstructionPiece {
  std::string role, stage;         // from the kernel's markers; "entry" and "" before the first
  std::string name;                // "once", "loop 1", "loop 1.1"
  bool tile = false;               // the stage's unit of work: one tile, or one item of attention
  std::vector<InstructionNode> nodes;
  std::vector<InstructionEdge> edges;
  std::vector<InstructionEdge> carried;          // of a loop: from one time through to the next; raw, registers
  std::vector<std::string> over;

  double critical_clocks = 0;
  std::array<double, ptx_pipes> pipe_clocks{};   // of one warp
  double issue_slots = 0;                        // of one warp
  int warps = 1;                                 // of the block that run this
  double clocks = 0;               // max of the critical path and of what its warps ask of one sub-partition or the SM
  std::string bound;               // "latency", "issue" or a pipe
  int live_registers = 0;          // the most at once, 32-bit
  std::int64_t bytes_in_flight = 0;              // the most that one warp's loads have outstanding; -1: not known
  std::map<std::string, int> memory;             // accesses by address class
};

/// Clocks of one time through when `warps` warps of one SM each run it `times` (at least 2) times in a row, interleaved: the
/// mean over warps and all times but the first. Simulated; costs about a microsecond of host time for each of their clocks.
double interleaved_clocks(const InstructionPiece& piece, int warps, int times = 5);

enum class BranchClass { poll, loop, bounds, watchdog, role, pacing, select, other };
inline constexpr int branch_classes = 8;
std::string_view to_string(BranchClass branch);

struct BranchNote {
  int line = 0;
  std::string function, role, stage;
  BranchClass branch = BranchClass::other;
  std::string depends_on;          // "thread, parameter steps"
};

struct InstructionDag {
  int sm = 0;
  LatencyTable table;
  std::vector<InstructionPiece> pieces;          // by role and stage in the order of the text
  std::vector<BranchNote> branches;              // conditional ones of every function
  /// True when no branch is `other`.
  bool decides_nothing() const;
  std::array<int, branch_classes> census() const;
  /// The piece that is the unit of work of a role in a stage, or null.
  const InstructionPiece* tile(std::string_view role, std::string_view stage) const;
};

/// Fails (bad_input) when the entry is not there or its target has no number.
Result<InstructionDag> make_instruction_dag(const PtxModule& module, const KernelFacts& facts);

/// `lists`: nodes and edges too, not only the figures.
Json instruction_dag_to_json(const InstructionDag& dag, bool lists);

}  // namespace adamk
