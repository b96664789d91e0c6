#include "liveness.h"

#include <bit>

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Predicates have a register file of their own.
int words(PtxType type) { return type == PtxType::pred ? 0 : bytes_of(type) > 4 ? 2 : 1; }

/// From what is live behind an instruction to what is live before it; `change(register, added)` is told of each change. A
/// guarded write leaves the old value in some lanes, so it ends no life.
template <class Change>
void step_back(const PtxInstruction& i, RegisterSet& live, Change change) {
  const auto put = [&](int reg, bool wanted) {
    std::uint64_t& word = live[at(reg) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (reg % 64);
    if (((word & bit) != 0) == wanted) return;
    word ^= bit;
    change(reg, wanted);
  };
  if (i.guard < 0)
    for (const int reg : registers_written(i)) put(reg, false);
  for (const int reg : registers_read(i)) put(reg, true);
}

}  // namespace

LiveBlocks live_blocks(const PtxBody& body, const Flow& flow) {
  const RegisterSet none((body.registers.size() + 63) / 64, 0);
  LiveBlocks live{std::vector<RegisterSet>(flow.blocks.size(), none), std::vector<RegisterSet>(flow.blocks.size(), none)};
  for (bool changed = true; changed;) {
    changed = false;
    for (auto block = flow.order.rbegin(); block != flow.order.rend(); ++block) {
      RegisterSet& leaving = live.leaving[at(*block)];
      for (const int to : flow.blocks[at(*block)].to)
        for (std::size_t w = 0; w < leaving.size(); ++w) leaving[w] |= live.entering[at(to)][w];
      RegisterSet entering = leaving;
      for (int i = flow.blocks[at(*block)].end - 1; i >= flow.blocks[at(*block)].begin; --i)
        step_back(body.code[at(i)], entering, [](int, bool) {});
      if (entering == live.entering[at(*block)]) continue;
      live.entering[at(*block)] = std::move(entering);
      changed = true;
    }
  }
  return live;
}

std::vector<int> live_registers(const PtxBody& body, const Flow& flow) {
  const LiveBlocks blocks = live_blocks(body, flow);
  std::vector<int> counts(body.code.size(), 0);
  for (const int block : flow.order) {
    RegisterSet live = blocks.leaving[at(block)];
    int size = 0;
    for (std::size_t word = 0; word < live.size(); ++word)
      for (std::uint64_t rest = live[word]; rest != 0; rest &= rest - 1)
        size += words(body.registers[word * 64 + static_cast<std::size_t>(std::countr_zero(rest))].type);
    for (int i = flow.blocks[at(block)].end - 1; i >= flow.blocks[at(block)].begin; --i) {
      counts[at(i)] = size;
      step_back(body.code[at(i)], live, [&](int reg, bool added) {
        size += (added ? 1 : -1) * words(body.registers[at(reg)].type);
      });
    }
  }
  return counts;
}

}  // namespace adamk::ptx
