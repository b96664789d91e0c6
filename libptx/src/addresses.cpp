#include "addresses.h"

#include <algorithm>

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

constexpr int kDeepest = 64;
const Place kUnknown{-1, -1, 0, false};

bool based(const Place& place) { return place.variable >= 0 || place.parameter >= 0; }

Place sum(const Place& a, const Place& b) {
  return {a.variable >= 0 ? a.variable : b.variable, a.parameter >= 0 ? a.parameter : b.parameter, a.constant + b.constant,
          a.exact && b.exact};
}

Place times(const Place& a, std::int64_t factor) {
  Place out = a;
  if (__builtin_mul_overflow(a.constant, factor, &out.constant)) return kUnknown;
  return out;
}

}  // namespace

Addresses::Addresses(const PtxModule& module, const PtxBody& body, const KernelFacts& facts)
    : module_(module), body_(body), facts_(facts), definitions_(body.registers.size()), variables_(variable_registers(body)),
      state_(body.registers.size(), 0), known_(body.registers.size()) {
  for (int i = 0; i < static_cast<int>(body.code.size()); ++i)
    for (const int r : registers_written(body.code[at(i)])) definitions_[at(r)].push_back(i);
}

Place Addresses::of_operand(const PtxOperand& operand, int depth) {
  if (operand.kind == PtxOperandKind::immediate) return {-1, -1, operand.value, true};
  if (operand.kind == PtxOperandKind::variable) return {operand.variable, -1, 0, true};
  if (operand.kind == PtxOperandKind::reg) return of_register(operand.reg, depth);
  return kUnknown;
}

Place Addresses::of_definition(const PtxInstruction& i, int depth) {
  const auto operand = [&](std::size_t n) { return n < i.operands.size() ? of_operand(i.operands[n], depth) : kUnknown; };
  switch (i.op) {
    case PtxOp::mov: case PtxOp::cvta: case PtxOp::cvt:
      return operand(1);
    case PtxOp::add: case PtxOp::or_:   // "or" only joins what has no bit in common
      return sum(operand(1), operand(2));
    case PtxOp::sub: {
      const Place right = operand(2);
      return sum(operand(1), right.variable < 0 && right.parameter < 0 ? times(right, -1) : kUnknown);
    }
    case PtxOp::shl: case PtxOp::mul: {
      const Place left = operand(1), right = operand(2);
      if (!right.exact || right.constant < 0 || right.constant > (1 << 24) || left.variable >= 0 || left.parameter >= 0)
        return kUnknown;
      return i.op == PtxOp::mul ? times(left, right.constant)
                                : right.constant < 32 ? times(left, std::int64_t{1} << right.constant) : kUnknown;
    }
    case PtxOp::mad: {
      const Place left = operand(1), right = operand(2), add = operand(3);
      if (!right.exact || right.variable >= 0 || left.variable >= 0 || left.parameter >= 0) return sum(kUnknown, add);
      return sum(times(left, right.constant), add);
    }
    case PtxOp::ld: {
      if (i.space != PtxSpace::param) return kUnknown;
      const PtxOperand& from = i.operands.back();
      const VariableAddress where = variable_of(from, variables_);
      if (std::count(body_.params.begin(), body_.params.end(), where.variable) == 0) return kUnknown;
      for (int p = 0; p < static_cast<int>(facts_.parameters.size()); ++p)
        if (facts_.parameters[at(p)].offset == where.offset) return {-1, p, 0, true};
      return kUnknown;
    }
    default: return kUnknown;
  }
}

Place Addresses::of_register(int reg, int depth) {
  if (reg < 0 || depth > kDeepest || state_[at(reg)] == 1) return kUnknown;
  if (state_[at(reg)] == 2) return known_[at(reg)];
  state_[at(reg)] = 1;
  // A pointer that a loop moves on: what it starts from, plus something.
  Place place = kUnknown;
  for (const int d : definitions_[at(reg)]) {
    const Place each = of_definition(body_.code[at(d)], depth + 1);
    if (!based(place)) {
      place = each;
    } else if (based(each)) {
      const bool same = each.variable == place.variable && each.parameter == place.parameter;
      place = same ? Place{place.variable, place.parameter, std::min(place.constant, each.constant), false} : kUnknown;
    }
  }
  if (definitions_[at(reg)].size() != 1) place.exact = false;
  state_[at(reg)] = 2;
  return known_[at(reg)] = place;
}

Place Addresses::place(const PtxOperand& address) {
  Place out;
  if (address.variable >= 0) out.variable = address.variable;
  else if (address.reg >= 0) out = of_register(address.reg, 0);
  out.constant += address.value;
  return out;
}

std::string Addresses::memory_class(const PtxInstruction& i, const PtxOperand& address) {
  const Place where = place(address);
  const bool in_shared = where.variable >= 0 && module_.variables[at(where.variable)].space == PtxSpace::shared;
  if (i.space == PtxSpace::shared || in_shared) {
    // Unknown terms are never negative in generated code: the constant is the lowest address there can be.
    if (where.variable >= 0)
      for (const KernelFacts::Area& area : facts_.shared)
        if (where.constant >= area.begin && where.constant < area.end) return area.name;
    return "shared";
  }
  if (where.parameter >= 0) return facts_.parameters[at(where.parameter)].name;
  return i.space == PtxSpace::local ? "local" : "global";
}

bool Addresses::written(const PtxInstruction& i, const PtxOperand& address) {
  if (i.space == PtxSpace::constant || i.has("nc")) return false;
  const Place where = place(address);
  return where.parameter < 0 || !facts_.parameters[at(where.parameter)].read_only;
}

}  // namespace adamk::ptx
