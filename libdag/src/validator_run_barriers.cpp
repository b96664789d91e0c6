// mbarriers and counters.
#include <fmt/format.h>

#include "validator_run_state.h"

namespace adamk::validation {
namespace {

constexpr int kLanesOfAWarp = 32;

}  // namespace

MBarrier& ProtocolRun::barrier(const Warp& w, const SyncOp& op, int use) {
  auto& buffers = mbarriers_[index(w.sm)][index(op.barrier)];
  return buffers[index(use) % buffers.size()];
}

std::string ProtocolRun::barrier_name(const Warp& w, const SyncOp& op, int use) const {
  const BarrierArray& array = p_.barriers[index(op.barrier)];
  if (array.buffers == 1) return fmt::format("{} of SM {}", array.name, w.sm);
  return fmt::format("{}[{}] of SM {}", array.name, use % array.buffers, w.sm);
}

bool ProtocolRun::wait(Warp& w, const SyncOp& op, int use) {
  MBarrier& b = barrier(w, op, use);
  const int turn = use / p_.barriers[index(op.barrier)].buffers + op.turn;
  if (turn < b.turn)
    return deadlock(fmt::format("{} waits for turn {} of {}, which has gone round to turn {} meanwhile: the parity it tests is that "
                                "of another turn",
                                here(w), turn, barrier_name(w, op, use), b.turn));
  // A parity tells a turn from its neighbours only: whoever waits for turn n must know that n - 1 is complete.
  const auto ahead = [&] {
    return deadlock(fmt::format("{} may wait for turn {} of {} before turn {} is complete, and the parity of turn {} would let it pass",
                                here(w), turn, barrier_name(w, op, use), turn - 1, turn - 2));
  };
  if (turn > b.turn + 1) return ahead();
  if (!w.waiting && turn >= 2) {
    for (const Stamp& arrival : turn == b.turn ? b.last_but_one : b.last) {
      for (const int lane : {kFirst, kOthers})
        if (takes_part(op, lane) && !knows(w.lanes[index(lane)].order, arrival)) return ahead();
    }
  }
  if (turn > b.turn) return false;
  for (const int lane : {kFirst, kOthers}) {
    if (!takes_part(op, lane)) continue;
    b.passed.emplace_back(component(w.local, lane), w.now);
    if (turn == 0) continue;
    join(w.lanes[index(lane)].order, b.complete.order);
    if (!op.relaxed) join(w.lanes[index(lane)].memory, b.complete.memory);
  }
  return true;
}

bool ProtocolRun::arrive(Warp& w, const SyncOp& op, int use) {
  MBarrier& b = barrier(w, op, use);
  const int turn = use / p_.barriers[index(op.barrier)].buffers + 1;
  const int times = op.lanes == LaneSet::all ? kLanesOfAWarp : 1;
  const auto early = [&] {
    return deadlock(fmt::format("{} arrives at {} for turn {}, but may do so while turn {} is not complete, and counts for that",
                                here(w), barrier_name(w, op, use), turn, turn - 1));
  };
  if (turn > b.turn + 1) return early();
  if (turn <= b.turn || b.arrivals + times > p_.barriers[index(op.barrier)].arrivals)
    return deadlock(fmt::format("{} arrives at {} for turn {}, which has its {} arrivals already", here(w), barrier_name(w, op, use),
                                turn, p_.barriers[index(op.barrier)].arrivals));
  for (const Stamp& arrival : b.last) {
    for (const int lane : {kFirst, kOthers})
      if (takes_part(op, lane) && !knows(w.lanes[index(lane)].order, arrival)) return early();
  }
  b.arrivals += times;
  b.expects = b.expects || op.kind == SyncKind::expect;
  for (const int lane : {kFirst, kOthers}) {
    if (!takes_part(op, lane)) continue;
    join(b.pending.order, w.lanes[index(lane)].order);
    if (!op.relaxed) join(b.pending.memory, w.lanes[index(lane)].memory);
  }
  b.arrived.push_back(stamp(w, op));
  return complete_if_full(b, w, op, use);
}

/// True unless somebody who went on at the turn before may not have done so yet.
bool ProtocolRun::complete_if_full(MBarrier& b, const Warp& w, const SyncOp& op, int use) {
  const BarrierArray& array = p_.barriers[index(op.barrier)];
  const bool all_copies = b.copies >= array.copies || (array.arrivals > 0 && !b.expects);
  if (b.arrivals < array.arrivals || !all_copies) return true;
  for (const auto& [passer, at] : b.passed) {
    if (b.pending.order[index(passer)] >= at) continue;
    return deadlock(fmt::format("{} may complete turn {} of {} while {} has not gone on at turn {} yet: it would meet a parity that "
                                "has gone round twice",
                                here(w), b.turn + 1, barrier_name(w, op, use), name_of(w.sm, passer / 2), b.turn));
  }
  b.passed.clear();
  ++b.turn;
  b.arrivals = 0;
  b.copies -= b.expects || array.arrivals == 0 ? array.copies : 0;
  b.expects = false;
  std::swap(b.complete, b.pending);
  b.pending.order.assign(index(components_), 0);
  b.pending.memory.assign(index(components_), 0);
  b.last_but_one = std::move(b.last);
  b.last = std::move(b.arrived);
  b.arrived.clear();
  return true;
}

/// An asynchronous copy by the lanes of `op`: it may land at any time, so only its barrier says that it has.
bool ProtocolRun::copy(Warp& w, const SyncOp& op, int use) {
  MBarrier& b = barrier(w, op, use);
  const int turn = use / p_.barriers[index(op.barrier)].buffers + 1, buffer = use % p_.barriers[index(op.barrier)].buffers;
  if (turn != b.turn + 1)
    return deadlock(fmt::format("{} starts a copy for turn {} of {}, of which {} are complete", here(w), turn, barrier_name(w, op, use),
                                b.turn));
  const int engine = engines_[index(op.barrier)] + 2 * buffer;
  const Stamp landing = {w.local, engine, op.lanes == LaneSet::first ? engine : engine + 1, static_cast<Tick>(turn)};
  if (!fill(w, op, use, landing)) return false;
  for (const int lane : {kFirst, kOthers}) {
    if (!takes_part(op, lane)) continue;
    join(b.pending.order, w.lanes[index(lane)].order);
    join(b.pending.memory, w.lanes[index(lane)].memory);
    const std::size_t at = index(engine + lane);
    b.pending.order[at] = b.pending.memory[at] = static_cast<Tick>(turn);
    ++b.copies;
  }
  if (b.copies > p_.barriers[index(op.barrier)].copies)
    return deadlock(fmt::format("{} starts a copy for turn {} of {}, which does not wait for more than {}", here(w), turn,
                                barrier_name(w, op, use), p_.barriers[index(op.barrier)].copies));
  b.arrived.push_back(landing);
  started_[static_cast<int>(&w - all_.data())].push_back(landing);
  return complete_if_full(b, w, op, use);
}

/// What the counter must read, in adds of this run: as far above or below what completes the phase as the DAG's own target is.
std::int64_t ProtocolRun::target(const Warp& w, const SyncOp& op) const {
  const int layer = w.walk.layer() + op.layer, of_model = layer < 0 ? layer : model_layer(layer);
  const std::int64_t arrivals = counters_[index(op.counter)].arrivals;
  const std::int64_t phase_of_model = std::int64_t{w.walk.step()} * dag_.layers + of_model + 1;
  const std::int64_t phase_here = std::int64_t{w.walk.step()} * size_.layers + layer + 1;
  return p_.counters[index(op.counter)].target.at(w.walk.step(), of_model) - arrivals * (phase_of_model - phase_here);
}

bool ProtocolRun::add(Warp& w, const SyncOp& op) {
  CounterState& counter = counters_[index(op.counter)];
  auto& mine = counter.added[index(w.sm)];
  const int times = op.lanes == LaneSet::all ? kLanesOfAWarp : 1;
  const auto phase = static_cast<std::int64_t>(mine.size()) / std::max<std::int64_t>(1, counter.adds_of[index(w.sm)]);
  const Clock& inside = w.lanes[kFirst];
  const Outside outside = outside_of(w.sm, inside);
  for (int sm = 0; phase > 0 && sm < grid_; ++sm) {
    const std::int64_t due = phase * counter.adds_of[index(sm)];
    const auto& adds = counter.added[index(sm)];
    if (due == 0) continue;
    const bool there = static_cast<std::int64_t>(adds.size()) >= due;
    if (there && follows(outside, inside, w.sm, sm, adds[index(due - 1)].stamp, false)) continue;
    return deadlock(fmt::format("{} may add to counter {} for its phase {} before SM {} has added for phase {}: the sum would let "
                                "its readers go on too early",
                                here(w), p_.counters[index(op.counter)].name, phase, sm, phase - 1));
  }
  const auto known = knowledge(w, op.lanes);
  for (int i = 0; i < times; ++i) mine.push_back({stamp(w, op), op.relaxed, known});
  counter.value += times;
  return true;
}

bool ProtocolRun::await(Warp& w, const SyncOp& op) {
  CounterState& counter = counters_[index(op.counter)];
  const std::int64_t wanted = target(w, op);
  if (counter.value < wanted) return false;
  // Adds of a phase come in any order, so only whole phases are sure to be there.
  const std::int64_t phases = counter.arrivals > 0 ? wanted / counter.arrivals : 0;
  if (phases <= 0) return true;
  auto [at, fresh] = counter.lessons.try_emplace(phases);
  if (fresh) {
    auto order = std::make_shared<Ticks>(*base_.order);
    auto memory = std::make_shared<Ticks>(*base_.memory);
    for (int sm = 0; sm < grid_; ++sm) {
      const std::int64_t due = phases * counter.adds_of[index(sm)];
      if (due == 0) continue;
      const CounterState::Add& last = counter.added[index(sm)][index(due - 1)];
      add_knowledge(*order, *last.known, false);
      if (!last.relaxed) add_knowledge(*memory, *last.known, true);
    }
    at->second = {std::move(order), std::move(memory)};
  }
  for (const int lane : {kFirst, kOthers}) {
    if (!takes_part(op, lane)) continue;
    learn(w, lane, at->second.order, false);
    if (!op.relaxed) learn(w, lane, at->second.memory, true);
  }
  return true;
}

}  // namespace adamk::validation
