// Stateless search with dynamic partial-order reduction: source sets (Abdulla, Aronis, Jonsson, Sagonas, POPL 2014) and sleep
// sets. One execution is run with vector clocks of the dependencies between its steps; where a step could have come before an
// earlier one that it depends on, the search goes back there. Two vector clocks are kept apart: `order` says which steps of
// an execution depend on which, `known` what happens before what in the memory model.
#include "explorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace adamk::explorer {
namespace {

using Count = std::uint32_t;
using Mask = std::uint64_t;
using Clock = std::vector<Count>;

Mask bit(int thread) { return Mask{1} << thread; }
std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// The finalizer of SplitMix64.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void join(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool touches_memory(OpKind kind) {
  return kind == OpKind::load || kind == OpKind::store || kind == OpKind::publish || kind == OpKind::poll;
}
bool at_barrier(OpKind kind) {
  return kind == OpKind::wait || kind == OpKind::arrive || kind == OpKind::expect || kind == OpKind::copy;
}
bool at_counter(OpKind kind) { return kind == OpKind::add || kind == OpKind::await; }
int barrier_of(const Op& op) { return op.kind == OpKind::copy ? op.argument : op.object; }

/// Steps of their own: what other threads' steps can depend on. Plain accesses cannot: where one is not ordered, that is found
/// in any order. Starting a copy is not one either; its completion is a step of the engine.
bool visible(OpKind kind) { return touches_memory(kind) || at_barrier(kind) || at_counter(kind); }

struct Step {      // one step of an execution
  int thread = 0;
  Count number = 0;   // among the steps of its thread
  const Op* op = nullptr;
};

struct Race {
  int step = 0;      // could have come after
  int thread = 0;    // the next step of this one
};

struct BarrierState {
  int pending = 0, transactions = 0, phase = 0;
  Clock order, order_now, known, known_now;   // of completed phases, of the current one
  std::vector<int> earlier, before, now;      // arrivals of the last phase but one, of the last and of the current one, as steps
  struct Waited {
    int step = 0;
    bool covered = false;   // an arrival that this phase needs comes after it anyway
  };
  std::vector<Waited> waited;                 // since the last completion
};

struct CounterState {
  int value = 0;
  struct Added {
    int step = 0;
    Clock order, known;          // of this add and those before it
  };
  std::vector<Added> adds;
  struct Awaited {
    int step = 0;
    std::vector<int> needed;     // adds that it passed by, and that its thread did not know before
  };
  std::vector<Awaited> awaited;
};

struct CellState {
  std::uint64_t value = 0;
  int tag = 0, previous_tag = 0;
  struct Access {
    int agent = -1;
    Count at = 0;
    bool plain = true;
  };
  Access writes[2];                           // the last write, by lane 0 and by the others
  bool plain_write = false;
  int message = -1;                           // what a fence released with it
  std::vector<Access> reads;                  // since the last write, the latest of each agent
  int last_write = -1;
  std::vector<int> taken;                     // loads and polls since the last write, as steps
};

struct StartedCopy {
  const Op* op = nullptr;
  int by = 0;
  Clock order, known;
};

class Machine {
 public:
  explicit Machine(const System& system)
      : system_(system), threads_(static_cast<int>(system.threads.size())), actors_(threads_ + system.engines),
        agents_(2 * threads_ + system.engines) {}

  void reset();
  Mask enabled() const;
  bool finished() const;
  /// The next visible op of a thread or engine, null at its end (or while nothing is started).
  const Op* next(int actor) const;
  /// Runs the next visible step of `actor` and all that follows up to its next one. False when a defect was found.
  bool run(int actor);
  bool independent(int a, int b) const;

  int actors() const { return actors_; }
  const std::vector<Step>& steps() const { return steps_; }
  const Clock& clock_of(int step) const { return clocks_[index(step)]; }
  const std::vector<Race>& races() const { return races_; }      // of the last step
  const Clock& clock_before() const { return before_; }          // of its thread
  Defect defect() const { return defect_; }
  const std::string& what() const { return what_; }
  const Outputs& outputs() const { return outputs_; }
  std::string name(int actor) const;
  std::string describe(const Op& op) const;
  std::string stuck() const;

 private:
  bool runs(int actor) const;
  bool knows(int actor, int step) const {
    const Step& s = steps_[index(step)];
    return order_[index(actor)][index(s.thread)] >= s.number;
  }
  void race(int step, int actor) { races_.push_back({step, actor}); }
  bool fail(Defect defect, std::string what) {
    defect_ = defect;
    what_ = std::move(what);
    return false;
  }
  template <class Visit>
  void for_agents(int thread, Lanes lanes, Visit visit) {
    if (static_cast<int>(lanes) & 1) visit(2 * thread);
    if (static_cast<int>(lanes) & 2) visit(2 * thread + 1);
  }

  /// What the op leaves in its cells.
  std::uint64_t written(int actor, const Op& op) {
    if (!system_.computes) return static_cast<std::uint64_t>(op.value);
    const std::uint64_t taken = read_[index(actor)] + (op.position ? 0 : positions_[index(actor)]);
    const std::uint64_t value = mix(taken + mix(static_cast<std::uint64_t>(op.value)));
    // To write the same again puts out nothing.
    if (op.output && (op.count == 0 || cells_[index(op.object)].value != value)) outputs_[index(actor)].push_back(value);
    return value;
  }
  bool took(int actor, const Op& op, int cell, std::uint64_t value) {
    if (system_.computes) {
      const std::uint64_t key = system_.cell_keys.empty() ? static_cast<std::uint64_t>(cell) : system_.cell_keys[index(cell)];
      const std::uint64_t found = mix(value + mix(key + mix(static_cast<std::uint64_t>(op.value))));
      std::uint64_t& last = last_read_[index(actor) * cells_.size() + index(cell)];
      if (last != found) (op.position ? positions_ : read_)[index(actor)] += found;
      last = found;
      return true;
    }
    if (value == static_cast<std::uint64_t>(op.value)) return true;
    return fail(Defect::wrong_value,
                fmt::format("{}: {} finds value {} where it needs {}", describe(op), name(actor), value, op.value));
  }

  void note_read(CellState& cell, int agent, bool plain) {
    const CellState::Access read{agent, known_[index(agent)][index(agent)], plain};
    const auto same = std::find_if(cell.reads.begin(), cell.reads.end(),
                                   [&](const auto& r) { return r.agent == agent && r.plain == plain; });
    if (same == cell.reads.end())
      cell.reads.push_back(read);
    else
      *same = read;
  }

  bool wait(int actor, const Op& op);
  bool arrive(int actor, const Op& op, int barrier, const Clock* known);
  bool memory(int actor, const Op& op);
  bool add(int actor, const Op& op);
  bool await(int actor, const Op& op);
  bool plain(int actor, const Op& op, const std::vector<int>& by);
  bool landed(int first, int count) const;
  bool invisible(int actor);   // until the next visible op

  const System& system_;
  int threads_, actors_, agents_;

  std::vector<std::size_t> at_;                  // of each thread
  std::vector<std::vector<StartedCopy>> copies_;   // of each engine
  std::vector<std::size_t> copied_;
  std::vector<Clock> order_, known_;
  std::vector<int> fenced_;                      // message of each agent's last fence
  std::vector<Clock> seen_;                      // by relaxed loads, until the next fence
  std::vector<Clock> messages_;
  std::vector<BarrierState> barriers_;
  std::vector<CounterState> counters_;
  std::vector<CellState> cells_;
  std::vector<std::uint64_t> read_, positions_;  // what each actor has read, in one sum; of positions
  std::vector<std::uint64_t> last_read_;         // what last, of each cell
  std::vector<int> ended_;                       // threads of a group that have come to their end, by the first of them
  Outputs outputs_;
  std::vector<int> needed_;                      // phase of the last wait, by thread and barrier
  std::vector<Step> steps_;
  std::vector<Clock> clocks_;
  std::vector<Race> races_;
  Clock before_;
  Defect defect_ = Defect::none;
  std::string what_;
};

void Machine::reset() {
  const Clock order(index(actors_)), known(index(agents_));
  at_.assign(index(threads_), 0);
  copies_.assign(index(system_.engines), {});
  copied_.assign(index(system_.engines), 0);
  order_.assign(index(actors_), order);
  known_.assign(index(agents_), known);
  fenced_.assign(index(agents_), -1);
  seen_.assign(index(agents_), known);
  messages_.clear();
  barriers_.assign(system_.barriers.size(), {});
  for (std::size_t b = 0; b < barriers_.size(); ++b) {
    barriers_[b].pending = system_.barriers[b];
    barriers_[b].order = barriers_[b].order_now = order;
    barriers_[b].known = barriers_[b].known_now = known;
  }
  counters_.assign(system_.counters.size(), {});
  for (std::size_t c = 0; c < counters_.size(); ++c) counters_[c].value = system_.counters[c];
  cells_.assign(system_.cells.size(), {});
  for (std::size_t c = 0; c < cells_.size(); ++c) cells_[c].value = static_cast<std::uint64_t>(system_.cells[c]);
  read_.assign(index(actors_), 0);
  positions_.assign(index(actors_), 0);
  ended_.assign(index(threads_), 0);
  if (system_.computes) last_read_.assign(index(actors_) * cells_.size(), 0);
  outputs_.assign(index(actors_), {});
  needed_.assign(index(threads_) * barriers_.size(), -1);
  steps_.clear();
  clocks_.clear();
  races_.clear();
  defect_ = Defect::none;
  for (int t = 0; t < threads_; ++t) {
    if (!invisible(t)) return;
  }
}

const Op* Machine::next(int actor) const {
  if (actor < threads_) {
    const std::vector<Op>& ops = system_.threads[index(actor)].ops;
    return at_[index(actor)] < ops.size() ? &ops[at_[index(actor)]] : nullptr;
  }
  const std::size_t engine = index(actor - threads_);
  return copied_[engine] < copies_[engine].size() ? copies_[engine][copied_[engine]].op : nullptr;
}

bool Machine::runs(int actor) const {
  const Op* op = next(actor);
  if (op == nullptr) return false;
  switch (op->kind) {
    case OpKind::wait: return barriers_[index(op->object)].phase % 2 != op->argument;
    case OpKind::await: return counters_[index(op->object)].value >= op->argument;
    case OpKind::poll:
      for (int i = 0; i < op->count; ++i) {
        if (cells_[index(op->object + i)].tag != op->argument) return false;
      }
      return true;
    default: return true;
  }
}

Mask Machine::enabled() const {
  Mask mask = 0;
  for (int a = 0; a < actors_; ++a) {
    if (runs(a)) mask |= bit(a);
  }
  return mask;
}

bool Machine::finished() const {
  for (int a = 0; a < actors_; ++a) {
    if (next(a) != nullptr) return false;
  }
  return true;
}

bool Machine::independent(int a, int b) const {
  const Op *x = next(a), *y = next(b);
  if (x == nullptr || y == nullptr) return true;
  if (at_barrier(x->kind) && at_barrier(y->kind)) {
    if (barrier_of(*x) != barrier_of(*y)) return true;
    return x->kind == OpKind::wait && y->kind == OpKind::wait;
  }
  if (at_counter(x->kind) && at_counter(y->kind)) {
    return x->object != y->object || x->kind == y->kind;
  }
  if (touches_memory(x->kind) && touches_memory(y->kind)) {
    if (x->object + x->count <= y->object || y->object + y->count <= x->object) return true;
    const auto takes = [](const Op& op) { return op.kind == OpKind::load || op.kind == OpKind::poll; };
    return takes(*x) && takes(*y);
  }
  return true;
}

bool Machine::run(int actor) {
  races_.clear();
  before_ = order_[index(actor)];
  const Op& op = *next(actor);
  steps_.push_back({actor, ++order_[index(actor)][index(actor)], &op});
  bool good = true;
  if (actor >= threads_) {
    StartedCopy& copy = copies_[index(actor - threads_)][copied_[index(actor - threads_)]++];
    const int agent = 2 * threads_ + actor - threads_;
    join(order_[index(actor)], copy.order);
    // A copy knows what its issuer knew when it started it, and so perhaps not the engine's copies before, still in flight then.
    const Count number = known_[index(agent)][index(agent)] + 1, landed = copy.known[index(agent)];
    for (int i = 0; i < op.count && good; ++i) {
      for (const CellState::Access& w : cells_[index(op.object + i)].writes) {
        if (w.agent == agent && w.at > landed)
          good = fail(Defect::race, fmt::format("{}: a copy into cells where another one may not have landed", describe(op)));
      }
    }
    known_[index(agent)] = copy.known;
    known_[index(agent)][index(agent)] = number;
    Op write = op;
    write.kind = OpKind::write;
    good = good && plain(actor, write, {agent});
    good = good && arrive(actor, op, op.argument, &known_[index(agent)]);
    clocks_.push_back(order_[index(actor)]);
    return good;
  }
  for_agents(actor, Lanes::all, [&](int a) { ++known_[index(a)][index(a)]; });
  switch (op.kind) {
    case OpKind::wait: good = wait(actor, op); break;
    case OpKind::arrive:
    case OpKind::expect: good = arrive(actor, op, op.object, nullptr); break;
    case OpKind::add: good = add(actor, op); break;
    case OpKind::await: good = await(actor, op); break;
    default: good = memory(actor, op); break;
  }
  clocks_.push_back(order_[index(actor)]);
  ++at_[index(actor)];
  return good && invisible(actor);
}

bool Machine::wait(int actor, const Op& op) {
  BarrierState& b = barriers_[index(op.object)];
  int& needed = needed_[index(actor) * barriers_.size() + index(op.object)];
  // The phase that this wait is for: of the right parity, and no earlier than the one that was waited for last.
  if (op.turn != kAnyTurn)
    needed = op.turn;
  else if (needed < 0)
    needed = 1 - op.argument;
  else if (needed % 2 == op.argument)
    ++needed;
  if (b.phase != needed)
    return fail(Defect::missed_turn, fmt::format("{}: {} passes at phase {}, but it waited for phase {}", describe(op), name(actor),
                                                 b.phase, needed));
  // The same parity two phases ago would have let it pass.
  for (const int step : b.earlier) {
    if (!knows(actor, step)) race(step, actor);
  }
  join(order_[index(actor)], b.order);
  if (!op.relaxed) for_agents(actor, op.lanes, [&](int a) { join(known_[index(a)], b.known); });
  b.waited.push_back({static_cast<int>(steps_.size()) - 1, false});
  return true;
}

bool Machine::arrive(int actor, const Op& op, int barrier, const Clock* known) {
  BarrierState& b = barriers_[index(barrier)];
  Clock& order = order_[index(actor)];
  if (op.turn != kAnyTurn && b.phase + 1 != op.turn)
    return fail(Defect::missed_turn, fmt::format("{}: {} is for phase {}, but counts when {} are complete", describe(op), name(actor),
                                                 op.turn, b.phase));
  // Arrivals of one phase commute. One of the phase before that is not known here could have been in this phase instead.
  for (const int step : b.before) {
    if (!knows(actor, step)) race(step, actor);
  }
  join(order, b.order);
  for (BarrierState::Waited& w : b.waited) w.covered = w.covered || knows(actor, w.step);
  b.now.push_back(static_cast<int>(steps_.size()) - 1);
  if (op.kind == OpKind::copy && !op.arrives) {
    --b.transactions;
  } else {
    --b.pending;
    if (op.kind == OpKind::expect) b.transactions += op.argument;
  }
  if (known != nullptr) {
    join(b.known_now, *known);
  } else if (!op.relaxed) {
    for_agents(actor, op.lanes, [&](int a) { join(b.known_now, known_[index(a)]); });
  }
  if (b.pending != 0 || b.transactions != 0) {
    join(b.order_now, order);
    return true;
  }
  // A covered wait does not depend on this arrival: the phase would not have been complete without the one that covers it.
  for (const BarrierState::Waited& w : b.waited) {
    if (w.covered) continue;
    race(w.step, actor);
    join(order, clocks_[index(w.step)]);
  }
  join(b.order_now, order);
  ++b.phase;
  b.pending = system_.barriers[index(barrier)];
  join(b.order, b.order_now);
  join(b.known, b.known_now);
  std::fill(b.order_now.begin(), b.order_now.end(), 0);
  std::fill(b.known_now.begin(), b.known_now.end(), 0);
  b.earlier.swap(b.before);
  b.before.swap(b.now);
  b.now.clear();
  b.waited.clear();
  return true;
}

bool Machine::memory(int actor, const Op& op) {
  Clock& order = order_[index(actor)];
  const int me = static_cast<int>(steps_.size()) - 1;
  const bool takes = op.kind == OpKind::load || op.kind == OpKind::poll;
  const bool tagged = op.kind == OpKind::publish || op.kind == OpKind::poll;
  const std::uint64_t value = takes ? 0 : written(actor, op);
  for (int i = op.object; i < op.object + op.count; ++i) {
    CellState& cell = cells_[index(i)];
    bool ordered = true;
    if (takes) {
      if (cell.last_write >= 0) {
        if (!knows(actor, cell.last_write) && (op.kind == OpKind::load || cell.previous_tag == op.argument))
          race(cell.last_write, actor);
        join(order, clocks_[index(cell.last_write)]);
      }
      // A tag brings its own packet; anything else must have been acquired.
      if (op.kind == OpKind::load || cell.plain_write) {
        for_agents(actor, op.lanes, [&](int a) {
          for (const CellState::Access& w : cell.writes) ordered = ordered && (w.agent < 0 || known_[index(a)][index(w.agent)] >= w.at);
        });
      }
      if (!ordered)
        return fail(Defect::race, fmt::format("{}: {} reads what it has not acquired", describe(op), name(actor)));
      if (!took(actor, op, i, cell.value)) return false;
      if (cell.message >= 0) for_agents(actor, op.lanes, [&](int a) { join(seen_[index(a)], messages_[index(cell.message)]); });
      cell.taken.push_back(me);
      for_agents(actor, op.lanes, [&](int a) { note_read(cell, a, false); });
      continue;
    }
    if (cell.last_write >= 0) {
      if (!knows(actor, cell.last_write)) race(cell.last_write, actor);
      join(order, clocks_[index(cell.last_write)]);
    }
    for (int step : cell.taken) {
      if (!knows(actor, step) && steps_[index(step)].thread != actor) race(step, actor);
      join(order, clocks_[index(step)]);
    }
    for_agents(actor, op.lanes, [&](int a) {
      for (const CellState::Access& r : cell.reads)
        ordered = ordered && (!r.plain || known_[index(a)][index(r.agent)] >= r.at);
      for (const CellState::Access& w : cell.writes)
        ordered = ordered && (!cell.plain_write || w.agent < 0 || known_[index(a)][index(w.agent)] >= w.at);
    });
    if (!ordered)
      return fail(Defect::race, fmt::format("{}: {} writes over plain accesses that nothing orders before it", describe(op), name(actor)));
    cell.value = value;
    cell.previous_tag = cell.tag;
    cell.tag = tagged ? op.argument : 0;
    cell.plain_write = false;
    cell.writes[0] = cell.writes[1] = {};
    cell.message = -1;
    for_agents(actor, op.lanes, [&](int a) {
      cell.writes[a % 2] = {a, known_[index(a)][index(a)]};
      if (fenced_[index(a)] >= 0) cell.message = fenced_[index(a)];
    });
    cell.reads.clear();
    cell.last_write = me;
    cell.taken.clear();
  }
  return true;
}

bool Machine::add(int actor, const Op& op) {
  CounterState& c = counters_[index(op.object)];
  // Adds commute. But an await that this add may precede could have passed by it, without one that it passed by here.
  for (const CounterState::Awaited& passed : c.awaited) {
    if (knows(actor, passed.step)) continue;
    for (const int needed : passed.needed) {
      if (!knows(actor, needed)) race(needed, actor);
    }
  }
  CounterState::Added added{static_cast<int>(steps_.size()) - 1, order_[index(actor)], Clock(index(agents_))};
  if (!op.relaxed) for_agents(actor, op.lanes, [&](int a) { join(added.known, known_[index(a)]); });
  if (!c.adds.empty()) {
    join(added.order, c.adds.back().order);
    join(added.known, c.adds.back().known);
  }
  c.adds.push_back(std::move(added));
  ++c.value;
  return true;
}

bool Machine::await(int actor, const Op& op) {
  CounterState& c = counters_[index(op.object)];
  // It passes by as many adds as it needs and knows of no others, since it could have come before those.
  const int started = system_.counters[index(op.object)];
  const std::size_t enough = std::min(c.adds.size(), index(std::max(0, op.argument - started)));
  CounterState::Awaited passed{static_cast<int>(steps_.size()) - 1, {}};
  for (std::size_t i = 0; i < enough; ++i) {
    if (!knows(actor, c.adds[i].step)) passed.needed.push_back(c.adds[i].step);
  }
  for (std::size_t i = enough; i < c.adds.size(); ++i) {
    const Step& other = steps_[index(c.adds[i].step)];
    const Clock& before_other = clocks_[index(c.adds[i].step)];
    for (const int needed : passed.needed) {
      const Step& s = steps_[index(needed)];
      if (other.thread != s.thread && before_other[index(s.thread)] < s.number) race(needed, actor);
    }
  }
  if (enough > 0) {
    join(order_[index(actor)], c.adds[enough - 1].order);
    if (!op.relaxed) for_agents(actor, op.lanes, [&](int a) { join(known_[index(a)], c.adds[enough - 1].known); });
  }
  c.awaited.push_back(std::move(passed));
  return true;
}

bool Machine::plain(int actor, const Op& op, const std::vector<int>& by) {
  const std::uint64_t value = op.kind == OpKind::read ? 0 : written(actor, op);
  for (int i = op.object; i < op.object + op.count; ++i) {
    CellState& cell = cells_[index(i)];
    for (int a : by) {
      for (const CellState::Access& w : cell.writes) {
        if (w.agent >= 0 && w.agent != a && known_[index(a)][index(w.agent)] < w.at)
          return fail(Defect::race, fmt::format("{}: {} {} what {} wrote, and nothing orders the two", describe(op), name(actor),
                                                op.kind == OpKind::read ? "reads" : "overwrites",
                                                name(w.agent < 2 * threads_ ? w.agent / 2 : w.agent - threads_)));
      }
      if (op.kind == OpKind::read) continue;
      for (const CellState::Access& r : cell.reads) {
        if (r.agent != a && known_[index(a)][index(r.agent)] < r.at)
          return fail(Defect::race, fmt::format("{}: {} overwrites what {} reads, and nothing orders the two", describe(op),
                                                name(actor), name(r.agent / 2)));
      }
    }
    if (op.kind == OpKind::read) {
      if (!took(actor, op, i, cell.value)) return false;
      for (int a : by) note_read(cell, a, true);
      continue;
    }
    cell.value = value;
    cell.tag = cell.previous_tag = 0;
    cell.plain_write = true;
    cell.message = -1;
    cell.writes[0] = cell.writes[1] = {};
    for (std::size_t k = 0; k < by.size(); ++k) cell.writes[k] = {by[k], known_[index(by[k])][index(by[k])]};
    cell.reads.clear();
    cell.last_write = -1;
    cell.taken.clear();
  }
  return true;
}

bool Machine::landed(int first, int count) const {
  for (std::size_t e = 0; e < copies_.size(); ++e) {
    for (std::size_t k = 0; k < copies_[e].size(); ++k) {
      if (copies_[e][k].by < first || copies_[e][k].by >= first + count) continue;
      bool known = false;
      for (int t = first; t < first + count; ++t) known = known || order_[index(t)][index(threads_) + e] > k;
      if (!known) return false;
    }
  }
  return true;
}

bool Machine::invisible(int actor) {
  const std::vector<Op>& ops = system_.threads[index(actor)].ops;
  std::size_t& at = at_[index(actor)];
  for (; at < ops.size() && (!visible(ops[at].kind) || ops[at].kind == OpKind::copy); ++at) {
    const Op& op = ops[at];
    for_agents(actor, Lanes::all, [&](int a) { ++known_[index(a)][index(a)]; });
    switch (op.kind) {
      case OpKind::copy: {
        StartedCopy copy{&op, actor, order_[index(actor)], Clock(index(agents_))};
        for_agents(actor, op.lanes, [&](int a) { join(copy.known, known_[index(a)]); });
        copies_[index(op.engine)].push_back(std::move(copy));
        break;
      }
      case OpKind::read:
      case OpKind::write: {
        std::vector<int> by;
        for_agents(actor, op.lanes, [&](int a) { by.push_back(a); });
        if (!plain(actor, op, by)) return false;
        break;
      }
      case OpKind::sync:
        join(known_[index(2 * actor)], known_[index(2 * actor + 1)]);
        join(known_[index(2 * actor + 1)], known_[index(2 * actor)]);
        break;
      case OpKind::end:
        if (++ended_[index(op.object)] % op.count == 0 && !landed(op.object, op.count))
          return fail(Defect::race, fmt::format("{} ends while a copy that it started may not have landed", name(actor)));
        break;
      default:   // fence
        for_agents(actor, op.lanes, [&](int a) {
          join(known_[index(a)], seen_[index(a)]);
          messages_.push_back(known_[index(a)]);
          fenced_[index(a)] = static_cast<int>(messages_.size()) - 1;
        });
        break;
    }
  }
  return true;
}

std::string Machine::name(int actor) const {
  return actor < threads_ ? system_.threads[index(actor)].name : fmt::format("copy engine {}", actor - threads_);
}

std::string Machine::describe(const Op& op) const {
  static constexpr std::string_view kinds[] = {"wait",    "arrive", "expect", "copy",  "read", "write", "load",
                                               "store", "publish", "poll",   "add",    "await", "sync", "end",   "fence"};
  const auto named = [](const std::vector<std::string>& names, int i) {
    return index(i) < names.size() ? names[index(i)] : std::to_string(i);
  };
  std::string text{kinds[static_cast<int>(op.kind)]};
  if (at_barrier(op.kind) && op.kind != OpKind::copy)
    text += fmt::format(" barrier {}", named(system_.barrier_names, op.object));
  else if (at_counter(op.kind))
    text += fmt::format(" counter {}", op.object);
  else if (op.kind != OpKind::sync && op.kind != OpKind::end && op.kind != OpKind::fence)
    text += fmt::format(" {}", named(system_.cell_names, op.object));
  if (op.kind == OpKind::wait) text += fmt::format(" parity {}", op.argument);
  if (op.kind == OpKind::poll || op.kind == OpKind::publish) text += fmt::format(" tag {}", op.argument);
  if (op.kind == OpKind::await) text += fmt::format(" target {}", op.argument);
  if (op.where.step >= 0) text += fmt::format(", step {}", op.where.step);
  if (op.where.layer >= 0) text += fmt::format(", layer {}", op.where.layer);
  if (op.where.stage >= 0) text += fmt::format(", stage {}", named(system_.stages, op.where.stage));
  if (op.where.tile >= 0) text += fmt::format(", tile {}", op.where.tile);
  return text;
}

std::string Machine::stuck() const {
  std::string text;
  for (int a = 0; a < actors_; ++a) {
    if (const Op* op = next(a); op != nullptr) text += fmt::format("{}{} in {}", text.empty() ? "" : "; ", name(a), describe(*op));
  }
  return text;
}

// ---- the search -----------------------------------------------------------------------------------------------------------

struct Node {
  Mask enabled = 0, backtrack = 0, sleep = 0;
  int chosen = 0;
};

class Search {
 public:
  Search(const System& system, const Limits& limits, const Outputs* expected)
      : system_(system), limits_(limits), expected_(expected) {}

  Verdict run() {
    Machine m(system_);
    for (;;) {
      ++verdict_.executions;
      if (!execute(m) || !turn_to_next()) return verdict_;
      if (verdict_.executions >= limits_.executions) {
        found(m, Defect::undecided, fmt::format("more than {} executions", limits_.executions));
        return verdict_;
      }
    }
  }

 private:
  /// The steps of `nodes_`, then others up to the end. False when that has a defect.
  bool execute(Machine& m) {
    m.reset();
    if (m.defect() != Defect::none) return found(m, m.defect(), m.what());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!step(m, nodes_[i].chosen, i + 1 == nodes_.size())) return found(m, m.defect(), m.what());
    }
    for (;;) {
      Node node;
      node.enabled = m.enabled();
      if (!nodes_.empty()) node.sleep = next_sleep_;
      if (node.enabled == 0) {
        if (!m.finished()) return found(m, Defect::deadlock, "all that is left waits: " + m.stuck());
        verdict_.outputs = m.outputs();
        return expected_ == nullptr || as_expected(m) || found(m, Defect::wrong_value, other_output(m));
      }
      const Mask choices = node.enabled & ~node.sleep;
      if (choices == 0) return true;   // all that could follow was seen elsewhere
      node.chosen = std::countr_zero(choices);
      node.backtrack = limits_.reduce ? bit(node.chosen) : node.enabled;
      nodes_.push_back(node);
      if (!step(m, node.chosen, true)) return found(m, m.defect(), m.what());
    }
  }

  /// Leaves in `nodes_` the next beginning to be tried. False when there is none.
  bool turn_to_next() {
    for (; !nodes_.empty(); nodes_.pop_back()) {
      Node& node = nodes_.back();
      node.sleep |= bit(node.chosen);
      const Mask left = node.backtrack & node.enabled & ~node.sleep;
      if (left == 0) continue;
      node.chosen = std::countr_zero(left);
      return true;
    }
    return false;
  }

  bool step(Machine& m, int chosen, bool fresh) {
    const Node& node = nodes_[m.steps().size()];
    if (fresh) {
      next_sleep_ = 0;
      if (limits_.reduce) {
        for (Mask left = node.sleep; left != 0; left &= left - 1) {
          const int q = std::countr_zero(left);
          if (m.independent(q, chosen)) next_sleep_ |= bit(q);
        }
      }
    }
    ++verdict_.steps;
    const bool good = m.run(chosen);
    if (good && fresh && limits_.reduce) {
      for (const Race& race : m.races()) turn_back(m, race);
    }
    return good;
  }

  /// The last step raced with step `race.step`: what came in between without depending on that one, and then the last step itself,
  /// must be tried before it. One of its initials, the threads that may go first, has to be in that node's backtrack set.
  void turn_back(const Machine& m, const Race& race) {
    Node& node = nodes_[index(race.step)];
    const Step& early = m.steps()[index(race.step)];
    Clock first(index(m.actors()));   // number of each thread's first step of the sequence
    Mask seen = 0, initials = 0;
    const auto leads = [&](int thread, const Clock& clock) {
      if (seen & bit(thread)) return false;
      for (Mask left = seen; left != 0; left &= left - 1) {
        const int q = std::countr_zero(left);
        if (clock[index(q)] >= first[index(q)]) return false;
      }
      return true;
    };
    const int last = static_cast<int>(m.steps().size()) - 1;
    for (int j = race.step + 1; j < last; ++j) {
      const Step& s = m.steps()[index(j)];
      const Clock& clock = m.clock_of(j);
      if (clock[index(early.thread)] >= early.number) continue;
      if (leads(s.thread, clock)) initials |= bit(s.thread);
      if (!(seen & bit(s.thread))) first[index(s.thread)] = s.number;
      seen |= bit(s.thread);
    }
    if (leads(race.thread, m.clock_before())) initials |= bit(race.thread);
    if (initials & node.backtrack) return;
    const Mask able = initials & node.enabled;
    if (able & bit(race.thread))
      node.backtrack |= bit(race.thread);
    else if (able != 0)
      node.backtrack |= bit(std::countr_zero(able));
    else
      node.backtrack |= node.enabled;
  }

  /// Threads without outputs do not count, nor copies, which have none.
  bool as_expected(const Machine& m) const {
    const std::size_t most = std::max(m.outputs().size(), expected_->size());
    static const std::vector<std::uint64_t> none;
    for (std::size_t t = 0; t < most; ++t) {
      if ((t < m.outputs().size() ? m.outputs()[t] : none) != (t < expected_->size() ? (*expected_)[t] : none)) return false;
    }
    return true;
  }

  std::string other_output(const Machine& m) const {
    for (std::size_t t = 0; t < expected_->size() && t < m.outputs().size(); ++t) {
      const std::vector<std::uint64_t>&is = m.outputs()[t], &should = (*expected_)[t];
      if (is.size() != should.size())
        return fmt::format("{} has {} outputs where {} are expected", m.name(static_cast<int>(t)), is.size(), should.size());
      for (std::size_t i = 0; i < is.size(); ++i) {
        if (is[i] != should[i]) return fmt::format("output {} of {} is not made of what it should be", i, m.name(static_cast<int>(t)));
      }
    }
    return "other threads have outputs";
  }

  bool found(const Machine& m, Defect defect, std::string what) {
    verdict_.defect = defect;
    verdict_.what = std::move(what);
    const std::size_t shown = 12, all = m.steps().size();
    for (std::size_t i = all - std::min(shown, all); i < all; ++i)
      verdict_.trace.push_back(m.name(m.steps()[i].thread) + ": " + m.describe(*m.steps()[i].op));
    return false;
  }

  const System& system_;
  Limits limits_;
  const Outputs* expected_;
  std::vector<Node> nodes_;
  Mask next_sleep_ = 0;
  Verdict verdict_;
};

}  // namespace

std::string_view to_string(Defect defect) {
  switch (defect) {
    case Defect::none: return "none";
    case Defect::deadlock: return "deadlock";
    case Defect::race: return "race";
    case Defect::wrong_value: return "wrong value";
    case Defect::missed_turn: return "missed turn";
    case Defect::undecided: return "undecided";
  }
  return "?";
}

Verdict explore(const System& system, const Limits& limits, const Outputs* expected) {
  return Search(system, limits, expected).run();
}

}  // namespace adamk::explorer
