// The text of a PTX module, as statistics and as data.
#include "adamk/ptx/module.h"
#include "adamk/ptx/statistics.h"
#include "fuzz.h"

using namespace adamk;

namespace {

template <class Items>
bool indexes(const Items& items, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < items.size();
}

void check_operand(const PtxModule& module, const PtxBody& body, const PtxOperand& operand) {
  fuzz::require(operand.reg == -1 || indexes(body.registers, operand.reg), "an operand's register is declared");
  fuzz::require(operand.variable == -1 || indexes(module.variables, operand.variable), "an operand's variable is declared");
  for (const PtxOperand& part : operand.parts) check_operand(module, body, part);
}

void check_instruction(const PtxModule& module, const PtxBody& body, const PtxInstruction& instruction) {
  fuzz::require(instruction.results >= 0 && static_cast<std::size_t>(instruction.results) <= instruction.operands.size(),
                "results are operands");
  fuzz::require(instruction.guard == -1 || indexes(body.registers, instruction.guard), "a guard is declared");
  for (const PtxOperand& operand : instruction.operands) check_operand(module, body, operand);
  for (const int reg : registers_read(instruction)) fuzz::require(indexes(body.registers, reg), "what is read is declared");
  for (const int reg : registers_written(instruction)) {
    fuzz::require(indexes(body.registers, reg), "what is written is declared");
  }
  const int target = instruction.target;
  if (instruction.op == PtxOp::bra) fuzz::require(indexes(body.code, target), "a branch leads to an instruction");
  if (instruction.op == PtxOp::call) fuzz::require(indexes(module.functions, target), "a call leads to a function");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  if (const auto statistics = ptx_statistics(text)) {
    for (const PtxFunction& function : statistics->functions) {
      std::int64_t counted = 0;
      for (const auto& [kind, count] : function.classes) counted += count;
      fuzz::require(counted == function.instructions, "every instruction is in one class");
    }
  } else {
    fuzz::require(!statistics.error().message.empty(), "a refusal says why");
  }
  const auto module = parse_ptx(text);
  if (!module) {
    fuzz::require(!module.error().message.empty(), "a refusal says why");
    return 0;
  }
  for (const PtxBody& body : module->functions) {
    for (const auto& [index, name] : body.labels) {
      fuzz::require(index >= 0 && static_cast<std::size_t>(index) <= body.code.size(), "a label is inside its function");
    }
    for (const PtxInstruction& instruction : body.code) check_instruction(*module, body, instruction);
  }
  return 0;
}
