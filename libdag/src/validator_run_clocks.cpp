// What warps know, and how they learn it.
#include "validator_run_state.h"

namespace adamk::validation {

Stamp ProtocolRun::stamp(const Warp& w, const SyncOp& op) const {
  return {w.local, component(w.local, kFirst), component(w.local, op.lanes == LaneSet::first ? kFirst : kOthers), w.now};
}

/// Joins are remembered: the warps of all SMs learn much the same, and share it.
Shared ProtocolRun::joined(const Shared& a, const Shared& b) {
  if (a == b) return a;
  const auto key = a.get() < b.get() ? std::pair(a.get(), b.get()) : std::pair(b.get(), a.get());
  std::array<Shared, 3>& known = joins_[key];
  if (known[2]) return known[2];
  known[0] = a;
  known[1] = b;
  if (covers(*a, *b)) return known[2] = a;
  if (covers(*b, *a)) return known[2] = b;
  auto both = std::make_shared<Ticks>(*a);
  join(*both, *b);
  return known[2] = both;
}

/// What a clock of an SM implies about the others: what each of its warps had heard by then.
Outside ProtocolRun::outside_of(int sm, const Clock& known) {
  Cache& cache = cache_[index(sm)];
  key_.clear();
  const auto heard_until = [](const std::vector<Heard>& heard, Tick at) {
    std::size_t n = heard.size();
    while (n > 0 && heard[n - 1].at > at) --n;
    return n;
  };
  for (int k = 0; k < per_sm_; ++k) {
    const Warp& other = all_[index(sm * per_sm_ + k)];
    for (const int lane : {kFirst, kOthers}) {
      const std::size_t at = index(component(other.local, lane));
      key_.push_back(heard_until(other.order_heard[index(lane)], known.order[at]));
      key_.push_back(heard_until(other.memory_heard[index(lane)], known.memory[at]));
    }
  }
  if (cache.outside.order && cache.key == key_) return cache.outside;
  Outside all = base_;
  std::size_t i = 0;
  for (int k = 0; k < per_sm_; ++k) {
    const Warp& other = all_[index(sm * per_sm_ + k)];
    for (const int lane : {kFirst, kOthers}) {
      if (const std::size_t n = key_[i++]; n > 0) all.order = joined(all.order, other.order_heard[index(lane)][n - 1].ticks);
      if (const std::size_t n = key_[i++]; n > 0) all.memory = joined(all.memory, other.memory_heard[index(lane)][n - 1].ticks);
    }
  }
  cache = {key_, all};
  return all;
}

std::shared_ptr<const Knowledge> ProtocolRun::knowledge(const Warp& w, LaneSet lanes) {
  Clock inside = w.lanes[kFirst];
  if (lanes == LaneSet::all) {
    const auto lesser = [](Ticks& a, const Ticks& b) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::min(a[i], b[i]);
    };
    lesser(inside.order, w.lanes[kOthers].order);
    lesser(inside.memory, w.lanes[kOthers].memory);
  }
  const Outside outside = outside_of(w.sm, inside);
  return std::make_shared<const Knowledge>(Knowledge{w.sm, std::move(inside), outside});
}

void ProtocolRun::add_knowledge(Ticks& into, const Knowledge& from, bool memory) const {
  join(into, memory ? *from.outside.memory : *from.outside.order);
  const Ticks& inside = memory ? from.inside.memory : from.inside.order;
  Tick* own = into.data() + outside_index(from.sm, 0);
  for (int c = 0; c < 2 * warps_; ++c) own[c] = std::max(own[c], inside[index(c)]);
}

void ProtocolRun::learn(Warp& w, int lane, const Shared& ticks, bool memory) {
  Ticks& known = memory ? w.lanes[index(lane)].memory : w.lanes[index(lane)].order;
  const Tick* own = ticks->data() + outside_index(w.sm, 0);
  for (int c = 0; c < 2 * warps_; ++c) known[index(c)] = std::max(known[index(c)], own[c]);
  std::vector<Heard>& heard = (memory ? w.memory_heard : w.order_heard)[index(lane)];
  heard.push_back({w.now, heard.empty() ? ticks : joined(heard.back().ticks, ticks)});
}

bool ProtocolRun::follows(const Outside& outside, const Clock& inside, int sm, int of_sm, const Stamp& what, bool memory) const {
  const Ticks& far = memory ? *outside.memory : *outside.order;
  const Ticks& near = memory ? inside.memory : inside.order;
  const auto known = [&](int component) {
    return far[outside_index(of_sm, component)] >= what.at || (sm == of_sm && near[index(component)] >= what.at);
  };
  return known(what.first) && known(what.second);
}

bool ProtocolRun::sync(Warp& w, const SyncOp& op) {
  Clock& first = w.lanes[kFirst];
  Clock& others = w.lanes[kOthers];
  join(first.order, others.order);
  others.order = first.order;
  if (!op.relaxed) {
    join(first.memory, others.memory);
    others.memory = first.memory;
  }
  // What one kind of lanes heard, the other now knows through the components of the clock.
  for (const Shared& order : w.polled) {
    learn(w, kFirst, order, false);
    learn(w, kOthers, order, false);
  }
  w.polled.clear();
  if (op.relaxed) return true;
  for (const Shared& memory : w.acquired) {
    learn(w, kFirst, memory, true);
    learn(w, kOthers, memory, true);
  }
  w.acquired.clear();
  return true;
}

bool ProtocolRun::fence(Warp& w) {
  w.fenced = knowledge(w, LaneSet::all);
  w.acquired.insert(w.acquired.end(), w.acquirable.begin(), w.acquirable.end());
  w.acquirable.clear();
  return true;
}

}  // namespace adamk::validation
