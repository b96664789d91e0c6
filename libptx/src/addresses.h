// What an address points at, as far as arithmetic on registers tells: a variable or a kernel parameter, plus a constant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/ptx/instruction_dag.h"
#include "branch_census.h"

namespace adamk::ptx {

/// base + constant + terms that are not known (a multiple of a thread or slot number, say).
struct Place {
  int variable = -1;               // of shared memory; -1: none in it
  int parameter = -1;              // of KernelFacts::parameters
  std::int64_t constant = 0;
  bool exact = true;               // no unknown terms
};

class Addresses {
 public:
  Addresses(const PtxModule& module, const PtxBody& body, const KernelFacts& facts);
  Place place(const PtxOperand& address);
  /// Of a memory access: "ring", "partials", ... for shared memory by area, "shared" when no area is certain; the
  /// parameter's name for global memory, "global" otherwise.
  std::string memory_class(const PtxInstruction& instruction, const PtxOperand& address);
  /// False for what nobody writes.
  bool written(const PtxInstruction& instruction, const PtxOperand& address);

 private:
  Place of_register(int reg, int depth);
  Place of_operand(const PtxOperand& operand, int depth);
  Place of_definition(const PtxInstruction& instruction, int depth);

  const PtxModule& module_;
  const PtxBody& body_;
  const KernelFacts& facts_;
  std::vector<std::vector<int>> definitions_;      // by register
  std::vector<VariableAddress> variables_;
  std::vector<int> state_;                         // by register: 0 not seen, 1 under way, 2 known
  std::vector<Place> known_;
};

}  // namespace adamk::ptx
