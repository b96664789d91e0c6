// Clocks of the race detector: what warps and lanes know of each other, and hand on.
#include "race_detector_parts.h"

namespace adamk::ptx {

RaceDetector::RaceDetector(int blocks, int warps_per_block, int blocks_per_cluster)
    : warps_per_block_(warps_per_block), blocks_per_cluster_(blocks_per_cluster),
      warp_count_(static_cast<std::uint32_t>(blocks * warps_per_block)), warps_(warp_count_), reads_(1) {
  for (Warp& warp : warps_) {
    warp.known.all.resize(warp_count_);
    warp.known.dependency.resize(warp_count_);
  }
}
RaceDetector::~RaceDetector() = default;

// ---- clocks ----------------------------------------------------------------------------------------------------------------

/// Keeps the most that fits one part; what does not fit is forgotten, which can only make the detector stricter.
bool RaceDetector::add(Clock& into, std::uint32_t warp, std::uint32_t time, std::uint32_t mask) {
  if (mask == 0 || (warp < into.all.size() && time <= into.all[warp])) return false;
  auto at = std::lower_bound(into.parts.begin(), into.parts.end(), warp,
                             [](const Part& part, std::uint32_t w) { return part.warp < w; });
  const bool found = at != into.parts.end() && at->warp == warp;
  std::uint32_t all = 0;   // what is complete
  if (mask == ~0u) {
    all = time;
  } else if (!found) {
    into.parts.insert(at, {warp, time, mask});
    return true;
  } else if ((at->mask & mask) == mask && at->time >= time) {
    return false;
  } else if (at->time == time || (at->mask | mask) == ~0u) {
    if ((at->mask | mask) == ~0u) all = std::min(at->time, time);
    if (at->time == time) at->mask |= mask;
    else if (time > at->time) *at = {warp, time, mask};
  } else if (time > at->time) {
    *at = {warp, time, mask};
  } else {
    return false;
  }
  if (all == 0) return true;
  if (into.all.size() <= warp) into.all.resize(warp + 1);
  into.all[warp] = all;
  if (found && at->time <= all) into.parts.erase(at);
  return true;
}

bool RaceDetector::join(Clock& into, const Clock& from) {
  bool more = raise(into.all, from.all);
  for (const Part& part : from.parts) more |= add(into, part.warp, part.time, part.mask);
  if (more)
    std::erase_if(into.parts,
                  [&](const Part& part) { return part.warp < into.all.size() && part.time <= into.all[part.warp]; });
  return raise(into.dependency, from.dependency) || more;
}

bool RaceDetector::join_self(Clock& into, const Message& from) {
  bool more = add(into, from.warp, from.synced, ~0u);
  more |= add(into, from.warp, from.time, from.mask);
  if (into.dependency.size() <= from.warp) into.dependency.resize(from.warp + 1);
  if (into.dependency[from.warp] >= from.synced) return more;
  into.dependency[from.warp] = from.synced;
  return true;
}

bool RaceDetector::covers(const Clock& clock, std::uint32_t warp, std::uint32_t lane, std::uint32_t time) {
  if (warp < clock.all.size() && time <= clock.all[warp]) return true;
  const auto at = std::lower_bound(clock.parts.begin(), clock.parts.end(), warp,
                                   [](const Part& part, std::uint32_t w) { return part.warp < w; });
  return at != clock.parts.end() && at->warp == warp && time <= at->time && (at->mask & bit(lane)) != 0;
}

bool RaceDetector::covers(const Message& message, std::uint32_t warp, std::uint32_t lane, std::uint32_t time) {
  if (message.clock == nullptr) return false;
  if (warp == message.warp && (time <= message.synced || (time <= message.time && (message.mask & bit(lane)) != 0)))
    return true;
  return covers(*message.clock, warp, lane, time);
}

bool RaceDetector::covers_dependency(const Clock& clock, std::uint32_t warp, std::uint32_t time) {
  return warp < clock.dependency.size() && time <= clock.dependency[warp];
}

void RaceDetector::changed(Warp& warp) {
  warp.snapshot.reset();
  for (std::uint32_t rest = warp.owners; rest != 0; rest &= rest - 1) warp.own[first_of(rest)]->snapshot.reset();
}

const std::shared_ptr<const RaceDetector::Clock>& RaceDetector::snapshot(Warp& warp) {
  if (warp.snapshot == nullptr) warp.snapshot = std::make_shared<const Clock>(warp.known);
  return warp.snapshot;
}

/// What these lanes know, and their own accesses up to now.
void RaceDetector::hand_on(Clock& into, std::uint32_t id, std::uint32_t mask) const {
  const Warp& warp = warps_[id];
  join(into, warp.known);
  for (std::uint32_t rest = mask & warp.owners; rest != 0; rest &= rest - 1) join(into, warp.own[first_of(rest)]->clock);
  if (warp.awaited != nullptr)
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
      add(into, warp.agent, (*warp.awaited)[first_of(rest)], bit(first_of(rest)));
  add(into, id, warp.accessed, mask);
}

RaceDetector::Message RaceDetector::message(std::uint32_t id, std::uint32_t mask) {
  Warp& warp = warps_[id];
  Message out{nullptr, id, mask, warp.accessed, warp.known.all[id], PtxScope::sys};
  if ((mask & warp.owners) == 0 && warp.awaited == nullptr) {
    out.clock = snapshot(warp);
  } else if (std::popcount(mask) == 1 && warp.awaited == nullptr) {
    auto& own = *warp.own[first_of(mask)];
    if (own.snapshot == nullptr) {
      auto clock = std::make_shared<Clock>(warp.known);
      join(*clock, own.clock);
      own.snapshot = std::move(clock);
    }
    out.clock = own.snapshot;
  } else {
    auto clock = std::make_shared<Clock>();
    hand_on(*clock, id, mask);
    out.clock = std::move(clock);
  }
  return out;
}

void RaceDetector::acquire(std::uint32_t id, std::uint32_t mask, const Clock& clock, const Message* self) {
  Warp& warp = warps_[id];
  bool more = false;
  if (full(warp, mask)) {
    more = join(warp.known, clock);
    if (self != nullptr) more |= join_self(warp.known, *self);
  } else {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      auto& own = warp.own[first_of(rest)];
      if (own == nullptr) own = std::make_unique<Own>();
      join(own->clock, clock);
      if (self != nullptr) join_self(own->clock, *self);
    }
    warp.owners |= mask;
    more = true;
  }
  if (more) changed(warp);
}

std::uint32_t RaceDetector::agent(std::uint64_t key, int block, int warp) {
  const auto [at, fresh] = agent_ids_.emplace(key, warp_count_ + static_cast<std::uint32_t>(agents_.size()));
  if (fresh) agents_.push_back({block, warp, 0, {}});
  return at->second;
}

bool RaceDetector::reaches(PtxScope scope, std::uint32_t one, std::uint32_t other) const {
  const auto per_block = static_cast<std::uint32_t>(warps_per_block_);
  if (scope == PtxScope::cta) return one / per_block == other / per_block;
  const std::uint32_t per_cluster = per_block * static_cast<std::uint32_t>(blocks_per_cluster_);
  return scope != PtxScope::cluster || one / per_cluster == other / per_cluster;
}

}  // namespace adamk::ptx
