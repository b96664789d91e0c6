// Where registers live: one interval of the layout for each, from its first to its last live position, and a first fit over them.
#include <algorithm>
#include <bit>
#include <map>

#include "program.h"

namespace adamk::ptx {
namespace {

struct Block {
  int begin = 0, end = 0;
  std::vector<int> next;
};

std::vector<Block> blocks_of(const PtxBody& function) {
  std::vector<char> leader(function.code.size() + 1, 0);
  leader[0] = 1;
  for (std::size_t i = 0; i < function.code.size(); ++i) {
    const PtxInstruction& instruction = function.code[i];
    if (instruction.op == PtxOp::bra) leader[static_cast<std::size_t>(instruction.target)] = 1;
    if (instruction.op == PtxOp::bra || instruction.op == PtxOp::ret || instruction.op == PtxOp::exit || instruction.op == PtxOp::trap)
      leader[i + 1] = 1;
  }
  std::vector<Block> blocks;
  std::vector<int> block_at(function.code.size() + 1, -1);
  for (std::size_t i = 0; i < function.code.size(); ++i) {
    if (leader[i]) {
      if (!blocks.empty()) blocks.back().end = static_cast<int>(i);
      blocks.push_back({static_cast<int>(i), 0, {}});
      block_at[i] = static_cast<int>(blocks.size()) - 1;
    }
  }
  if (!blocks.empty()) blocks.back().end = static_cast<int>(function.code.size());
  for (Block& block : blocks) {
    const PtxInstruction& last = function.code[static_cast<std::size_t>(block.end - 1)];
    const bool leaves = last.op == PtxOp::bra || last.op == PtxOp::ret || last.op == PtxOp::exit || last.op == PtxOp::trap;
    if (last.op == PtxOp::bra) block.next.push_back(block_at[static_cast<std::size_t>(last.target)]);
    if ((!leaves || last.guard >= 0) && block_at[static_cast<std::size_t>(block.end)] >= 0)
      block.next.push_back(block_at[static_cast<std::size_t>(block.end)]);
  }
  return blocks;
}

using Bits = std::vector<std::uint64_t>;
void set(Bits& bits, int i) { bits[static_cast<std::size_t>(i) / 64] |= std::uint64_t{1} << (i % 64); }
void reset(Bits& bits, int i) { bits[static_cast<std::size_t>(i) / 64] &= ~(std::uint64_t{1} << (i % 64)); }

struct Interval {
  int begin = -1, end = -1;
  void cover(int at) {
    begin = begin < 0 ? at : std::min(begin, at);
    end = std::max(end, at);
  }
};

/// A guarded write leaves the old value in some lanes, so it ends no life.
void step_back(const PtxInstruction& instruction, Bits& live) {
  if (instruction.guard < 0)
    for (const int reg : registers_written(instruction)) reset(live, reg);
  for (const int reg : registers_read(instruction)) set(live, reg);
}

void cover_all(const Bits& live, int at, std::vector<Interval>& intervals) {
  for (std::size_t word = 0; word < live.size(); ++word)
    for (std::uint64_t rest = live[word]; rest != 0; rest &= rest - 1)
      intervals[word * 64 + static_cast<std::size_t>(std::countr_zero(rest))].cover(at);
}

std::vector<Interval> intervals_of(const PtxBody& function) {
  const std::vector<Block> blocks = blocks_of(function);
  const std::size_t words = (function.registers.size() + 63) / 64;
  std::vector<Bits> in(blocks.size(), Bits(words, 0)), out(blocks.size(), Bits(words, 0));
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t b = blocks.size(); b-- > 0;) {
      Bits live(words, 0);
      for (const int next : blocks[b].next)
        for (std::size_t w = 0; w < words; ++w) live[w] |= in[static_cast<std::size_t>(next)][w];
      out[b] = live;
      for (int i = blocks[b].end - 1; i >= blocks[b].begin; --i) step_back(function.code[static_cast<std::size_t>(i)], live);
      if (live != in[b]) {
        in[b] = std::move(live);
        changed = true;
      }
    }
  }
  std::vector<Interval> intervals(function.registers.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    cover_all(in[b], blocks[b].begin, intervals);
    cover_all(out[b], blocks[b].end, intervals);
    for (int i = blocks[b].begin; i < blocks[b].end; ++i) {
      for (const int reg : registers_read(function.code[static_cast<std::size_t>(i)])) intervals[static_cast<std::size_t>(reg)].cover(i);
      // A result lives from its own instruction on, beside the operands, so that no lane function reads what it has overwritten.
      for (const int reg : registers_written(function.code[static_cast<std::size_t>(i)])) {
        intervals[static_cast<std::size_t>(reg)].cover(i);
        intervals[static_cast<std::size_t>(reg)].cover(i + 1);
      }
    }
  }
  return intervals;
}

}  // namespace

Places place_registers(const PtxBody& function) {
  const std::vector<Interval> intervals = intervals_of(function);
  std::vector<int> order;
  for (std::size_t i = 0; i < intervals.size(); ++i)
    if (intervals[i].begin >= 0) order.push_back(static_cast<int>(i));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return intervals[static_cast<std::size_t>(a)].begin < intervals[static_cast<std::size_t>(b)].begin;
  });
  Places places;
  places.of.assign(function.registers.size(), -1);
  struct Pool {
    std::multimap<int, int> busy;   // end -> place
    std::vector<int> free;
    int size = 0;
  };
  Pool singles, doubles, predicates;
  for (const int reg : order) {
    const Interval& interval = intervals[static_cast<std::size_t>(reg)];
    const PtxType type = function.registers[static_cast<std::size_t>(reg)].type;
    Pool& pool = type == PtxType::pred ? predicates : bytes_of(type) == 8 ? doubles : singles;
    while (!pool.busy.empty() && pool.busy.begin()->first < interval.begin) {
      pool.free.push_back(pool.busy.begin()->second);
      pool.busy.erase(pool.busy.begin());
    }
    int place = pool.size;
    if (pool.free.empty()) {
      ++pool.size;
    } else {
      place = pool.free.back();
      pool.free.pop_back();
    }
    pool.busy.emplace(interval.end, place);
    places.of[static_cast<std::size_t>(reg)] = place;
  }
  for (std::size_t reg = 0; reg < places.of.size(); ++reg) {
    if (places.of[reg] < 0) continue;
    const PtxType type = function.registers[reg].type;
    if (type == PtxType::pred) continue;
    places.of[reg] = bytes_of(type) == 8 ? 2 * places.of[reg] : 2 * doubles.size + places.of[reg];
  }
  places.units = 2 * doubles.size + singles.size;
  places.predicates = predicates.size;
  return places;
}

}  // namespace adamk::ptx
