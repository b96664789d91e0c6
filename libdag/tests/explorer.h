// Explorer: tries every interleaving of a small system of warps, as far as orders differ, and says whether any of them can go
// wrong. The independent oracle of the validator's tests: it shares no code with it.
//
// Interleavings are sequentially consistent, so the explorer also carries happens-before: plain memory must be ordered by it,
// and a relaxed load must have acquired what it reads, although no interleaving shows a wrong value. A tag orders its own packet
// and nothing else. Overwriting a packet or a relaxed value needs no happens-before: a store does not happen before the polls
// that its thread has passed, so the order of interleavings is what counts, and those are all tried.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adamk::explorer {

/// Lanes of a warp, as far as they act apart: lane 0 arrives, adds and publishes; the others read and write with it.
enum class Lanes : std::uint8_t { first = 1, others = 2, all = 3 };

enum class OpKind : std::uint8_t {
  wait,      // mbarrier `object`, until the phase of parity `argument` is complete
  arrive,    // at mbarrier `object`; releases what `lanes` know
  expect,    // the same, and `argument` transactions are expected in this phase
  copy,      // starts an asynchronous write of the cells that completes one transaction at mbarrier `argument`
  read, write,     // plain memory: cells `object` to `object` + `count` - 1
  load, store,     // the same with relaxed accesses, without tags
  publish, poll,   // the same with tag `argument`: a poll waits until every cell has it
  add,       // to counter `object`, one; releases what `lanes` know unless `relaxed`
  await,     // counter `object`, until it has reached `argument`; acquires unless `relaxed`
  sync,      // __syncwarp: lanes know what the others know
  end,       // of threads `object` to `object` + `count` - 1: when all are there, one of them knows that their copies have landed
  fence,     // releases with every relaxed store behind it, acquires from every relaxed load before it
};

/// A wait that does not say its turn is for the next of its parity.
inline constexpr int kAnyTurn = -1000000;

/// For reports.
struct Where {
  int step = -1, layer = -1, stage = -1, tile = -1;
};

struct Op {
  OpKind kind;
  int object = 0;
  int argument = 0;
  int count = 1;
  int value = 0;           // what a write leaves in its cells, what a read must find there (but see System::computes)
  bool position = false;   // of a tensor that is appended to: what is appended is not made of what was before
  Lanes lanes = Lanes::all;
  bool relaxed = false;    // wait, arrive, add, await: orders nothing
  bool output = false;     // of the system, where it computes
  int engine = 0;          // copy: copies of one engine complete in order
  bool arrives = false;    // copy: its completion is an arrival, not a transaction
  int turn = kAnyTurn;     // wait, arrive, expect, copy: the phases that must be complete when it passes; that it completes
  Where where = {};
};

struct Thread {
  std::string name;
  std::vector<Op> ops;
};

struct System {
  /// Values are worked out: what a thread writes is a hash of all that it has read so far, as what (the reads' values and the cells'
  /// keys), and of the op's value; no read is told what it must find. Reading the same again changes nothing. Two systems that leave
  /// the same outputs in every order compute the same from the same data.
  bool computes = false;
  std::vector<Thread> threads;
  int engines = 0;
  std::vector<int> barriers;    // arrivals of a phase
  std::vector<int> counters;    // at the start
  std::vector<int> cells;       // values at the start
  std::vector<std::uint64_t> cell_keys;   // by default the cells' numbers
  std::vector<std::string> stages, barrier_names, cell_names;   // for reports, may be empty
  int add_cells(int count) {
    cells.resize(cells.size() + static_cast<std::size_t>(count));
    return static_cast<int>(cells.size()) - count;
  }
  int add_barrier(int arrivals) {
    barriers.push_back(arrivals);
    return static_cast<int>(barriers.size()) - 1;
  }
  int add_counter() {
    counters.push_back(0);
    return static_cast<int>(counters.size()) - 1;
  }
};

/// Of each thread, in its order.
using Outputs = std::vector<std::vector<std::uint64_t>>;

enum class Defect {
  none,
  deadlock,       // some thread waits for ever
  race,           // two accesses that nothing orders, or a relaxed load of what was not acquired
  wrong_value,    // a read finds something else than it must, or an output is not the expected one
  missed_turn,    // a waiter passes an mbarrier that has gone round since
  undecided,      // more executions than allowed
};
std::string_view to_string(Defect defect);

struct Verdict {
  Defect defect = Defect::none;
  std::string what;                  // one sentence
  std::vector<std::string> trace;    // the last steps before it
  std::int64_t executions = 0, steps = 0;
  Outputs outputs;                   // of the last execution, where the system computes
};

struct Limits {
  std::int64_t executions = 20000;
  bool reduce = true;                // false: every interleaving, however alike; for tests of the explorer itself
};

/// With `expected`, every execution must end with these outputs.
Verdict explore(const System& system, const Limits& limits = {}, const Outputs* expected = nullptr);

}  // namespace adamk::explorer
