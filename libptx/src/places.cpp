// Where registers live: one interval of the layout for each, from its first to its last live position, and a first fit over them.
#include <algorithm>
#include <bit>
#include <map>

#include "liveness.h"
#include "program.h"

namespace adamk::ptx {
namespace {

struct Interval {
  int begin = -1, end = -1;
  void cover(int at) {
    begin = begin < 0 ? at : std::min(begin, at);
    end = std::max(end, at);
  }
};

void cover_all(const RegisterSet& live, int at, std::vector<Interval>& intervals) {
  for (std::size_t word = 0; word < live.size(); ++word)
    for (std::uint64_t rest = live[word]; rest != 0; rest &= rest - 1)
      intervals[word * 64 + static_cast<std::size_t>(std::countr_zero(rest))].cover(at);
}

std::vector<Interval> intervals_of(const PtxBody& function) {
  const Flow flow = make_flow(function);
  const LiveBlocks live = live_blocks(function, flow);
  std::vector<Interval> intervals(function.registers.size());
  for (std::size_t b = 0; b < flow.blocks.size(); ++b) {
    cover_all(live.entering[b], flow.blocks[b].begin, intervals);
    cover_all(live.leaving[b], flow.blocks[b].end, intervals);
  }
  for (int i = 0; i < static_cast<int>(function.code.size()); ++i) {
    const PtxInstruction& instruction = function.code[static_cast<std::size_t>(i)];
    for (const int reg : registers_read(instruction)) intervals[static_cast<std::size_t>(reg)].cover(i);
    // A result lives from its own instruction on, beside the operands, so that no lane function reads what it has overwritten.
    for (const int reg : registers_written(instruction)) {
      intervals[static_cast<std::size_t>(reg)].cover(i);
      intervals[static_cast<std::size_t>(reg)].cover(i + 1);
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
