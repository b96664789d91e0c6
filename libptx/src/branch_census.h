// The branch census: on what every conditional branch of a kernel depends, and what it is therefore for.
#pragma once

#include <cstdint>
#include <vector>

#include "adamk/ptx/instruction_dag.h"

namespace adamk::ptx {

/// Conditional branches of all functions, in the order of the text.
std::vector<BranchNote> branch_census(const PtxModule& module, const KernelFacts& facts);

struct VariableAddress {
  int variable = -1;               // -1: none, or not known
  std::int64_t offset = 0;
};
/// By register of the body: those that hold the address of one variable for good.
std::vector<VariableAddress> variable_registers(const PtxBody& body);
VariableAddress variable_of(const PtxOperand& address, const std::vector<VariableAddress>& registers);

}  // namespace adamk::ptx
