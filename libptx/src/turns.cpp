#include "turns.h"

#include <algorithm>
#include <map>
#include <optional>

namespace adamk::ptx {
namespace {

constexpr int kMostTurns = 1024;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool is_small_integer(PtxType type) {
  return type == PtxType::b32 || type == PtxType::s32 || type == PtxType::u32 || type == PtxType::b16 || type == PtxType::s16 ||
         type == PtxType::u16;
}

/// Values of registers that are known.
class Values {
 public:
  Values(const PtxBody& body, const FlowBlock& block) : body_(body), block_(block) {}

  std::optional<std::int64_t> of(const PtxOperand& operand) {
    if (operand.kind == PtxOperandKind::immediate) return operand.value;
    if (operand.kind != PtxOperandKind::reg) return std::nullopt;
    const auto found = known_.find(operand.reg);
    return found != known_.end() ? found->second : (known_[operand.reg] = before(operand.reg, 8));
  }

  /// One turn. Whether it ends by going round again.
  std::optional<bool> turn() {
    for (int n = block_.begin; n < block_.end; ++n) {
      const PtxInstruction& i = body_.code[at(n)];
      if (n + 1 == block_.end) {
        if (i.op != PtxOp::bra || i.guard < 0) return std::nullopt;
        const auto guard = known_.find(i.guard);
        if (guard == known_.end() || !guard->second) return std::nullopt;
        return (*guard->second != 0) != i.guard_negated;
      }
      const std::optional<std::int64_t> result = i.guard < 0 ? value(i) : std::nullopt;
      for (const int r : registers_written(i)) known_[r] = result;
    }
    return std::nullopt;
  }

 private:
  /// What the loop finds in it: set once outside of it, by a constant.
  std::optional<std::int64_t> before(int reg, int depth) const {
    const PtxInstruction* writer = nullptr;
    for (int n = 0; n < static_cast<int>(body_.code.size()); ++n) {
      if (n >= block_.begin && n < block_.end) continue;
      const std::vector<int> written = registers_written(body_.code[at(n)]);
      if (std::find(written.begin(), written.end(), reg) == written.end()) continue;
      if (writer != nullptr) return std::nullopt;
      writer = &body_.code[at(n)];
    }
    if (writer == nullptr || writer->op != PtxOp::mov || writer->guard >= 0 || writer->operands.size() != 2) return std::nullopt;
    const PtxOperand& from = writer->operands[1];
    if (from.kind == PtxOperandKind::immediate) return from.value;
    return from.kind == PtxOperandKind::reg && depth > 0 ? before(from.reg, depth - 1) : std::nullopt;
  }

  std::optional<std::int64_t> value(const PtxInstruction& i) {
    if (!is_small_integer(i.type) || i.operands.size() < 2) return std::nullopt;
    const std::optional<std::int64_t> a = of(i.operands[1]);
    if (i.op == PtxOp::mov) return a;
    if (i.operands.size() != 3) return std::nullopt;
    const std::optional<std::int64_t> b = of(i.operands[2]);
    if (!a || !b) return std::nullopt;
    switch (i.op) {
      case PtxOp::add: return *a + *b;
      case PtxOp::sub: return *a - *b;
      case PtxOp::setp:
        if (i.has("ne")) return *a != *b;
        if (i.has("eq")) return *a == *b;
        if (i.has("lt") || i.has("lo")) return *a < *b;
        if (i.has("gt") || i.has("hi")) return *a > *b;
        if (i.has("le") || i.has("ls")) return *a <= *b;
        if (i.has("ge") || i.has("hs")) return *a >= *b;
        return std::nullopt;
      default: return std::nullopt;
    }
  }

  const PtxBody& body_;
  const FlowBlock& block_;
  std::map<int, std::optional<std::int64_t>> known_;
};

}  // namespace

int constant_turns(const PtxBody& body, const Flow& flow, int loop) {
  const FlowLoop& of = flow.loops[at(loop)];
  if (std::count(of.holds.begin(), of.holds.end(), true) != 1) return 0;
  Values values(body, flow.blocks[at(of.header)]);
  for (int turns = 1; turns <= kMostTurns; ++turns) {
    const std::optional<bool> again = values.turn();
    if (!again) return 0;
    if (!*again) return turns;
  }
  return 0;
}

}  // namespace adamk::ptx
