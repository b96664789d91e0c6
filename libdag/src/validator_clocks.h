// What a warp knows of the others, as vector clocks.
//
// Two orders are followed. `order`: what must have come before in every interleaving; it decides deadlocks, turns of mbarriers and
// whether storage may be written again. `memory`: what happens before in the sense of the memory model; it decides what plain and
// relaxed accesses may read. A tagged packet orders its readers behind its writer, and no other memory.
//
// Within an SM a clock has a component for each of two kinds of lanes of each warp (the lane that acts for the warp, and the others)
// and for each engine that completes copies; between SMs those of the warps of all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace adamk::validation {

/// Signed: what every machine can compare four at a time.
using Tick = std::int32_t;
using Ticks = std::vector<Tick>;

inline void join(Ticks& into, const Ticks& from) {
  Tick* to = into.data();
  const Tick* of = from.data();
  for (std::size_t i = 0, n = into.size(); i < n; ++i) to[i] = of[i] > to[i] ? of[i] : to[i];
}
inline bool covers(const Ticks& a, const Ticks& b) {
  int missing = 0;
  for (std::size_t i = 0, n = a.size(); i < n; ++i) missing |= a[i] < b[i] ? 1 : 0;
  return missing == 0;
}

struct Clock {
  Ticks order, memory;
  void join_with(const Clock& other) {
    join(order, other.order);
    join(memory, other.memory);
  }
};

/// Of the warps of all SMs; shared, and never changed.
using Shared = std::shared_ptr<const Ticks>;
struct Outside {
  Shared order, memory;
};

/// What a release makes known: of the own SM and of the others.
struct Knowledge {
  int sm = 0;
  Clock inside;
  Outside outside;
};

}  // namespace adamk::validation
