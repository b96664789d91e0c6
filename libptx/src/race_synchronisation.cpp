// What orders accesses for the race detector: warp barriers, fences, mbarriers, and the completion of copies.
#include "race_detector_parts.h"

namespace adamk::ptx {

void RaceDetector::warp_sync(int warp_id, std::uint32_t mask) {
  const auto id = static_cast<std::uint32_t>(warp_id);
  Warp& warp = warps_[id];
  if (full(warp, mask)) {
    if (warp.owners != 0) changed(warp);
    for (std::uint32_t rest = warp.owners; rest != 0; rest &= rest - 1) {
      auto& own = warp.own[first_of(rest)];
      join(warp.known, own->clock);
      own.reset();
    }
    warp.owners = 0;
    if (warp.awaited != nullptr) {
      for (std::uint32_t lane = 0; lane < 32; ++lane) add(warp.known, warp.agent, (*warp.awaited)[lane], bit(lane));
      changed(warp);
    }
    add(warp.known, id, warp.time, ~0u);   // a message carries it apart: the snapshot stays good
    warp.known.dependency[id] = warp.time;
    return;
  }
  Clock together;
  for (std::uint32_t rest = mask & warp.owners; rest != 0; rest &= rest - 1) join(together, warp.own[first_of(rest)]->clock);
  if (warp.awaited != nullptr)
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
      add(together, warp.agent, (*warp.awaited)[first_of(rest)], bit(first_of(rest)));
  add(together, id, warp.time, mask);
  acquire(id, mask, together, nullptr);
}

void RaceDetector::lanes_left(int warp, std::uint32_t mask) { warps_[static_cast<std::size_t>(warp)].gone |= mask; }

/// What relaxed loads before it have read is known now; what relaxed stores behind it write hands on what is known now.
void RaceDetector::fence(int warp_id, std::uint32_t mask, PtxScope scope) {
  const auto id = static_cast<std::uint32_t>(warp_id);
  Warp& warp = warps_[id];
  for (Pending& seen : warp.pending) {
    if ((seen.lanes & mask) == 0 || !reaches(scope, seen.from.warp, id)) continue;
    acquire(id, seen.lanes & mask, *seen.from.clock, &seen.from);
    seen.lanes &= ~mask;
  }
  std::erase_if(warp.pending, [](const Pending& seen) { return seen.lanes == 0; });
  for (Message& earlier : warp.fenced) earlier.mask &= ~mask;
  std::erase_if(warp.fenced, [](const Message& earlier) { return earlier.mask == 0; });
  const auto keep = [&](std::uint32_t lanes) {
    if (lanes == 0) return;
    warp.fenced.push_back(message(id, lanes));
    warp.fenced.back().scope = scope;
  };
  const std::uint32_t apart = warp.awaited != nullptr ? mask : mask & warp.owners;
  keep(mask & ~apart);
  for (std::uint32_t rest = apart; rest != 0; rest &= rest - 1) keep(bit(first_of(rest)));
}

void RaceDetector::fence_proxy(int warp_id, std::uint32_t mask) {
  Warp& warp = warps_[static_cast<std::size_t>(warp_id)];
  warp.accessed = warp.time;
  warp.proxy_times.push_back(warp.time);
  warp.proxied = message(static_cast<std::uint32_t>(warp_id), mask);
  fence_init(warp_id, mask);
}

/// Bulk copies complete their mbarrier in the asynchronous proxy, which sees an initialisation in the generic one behind
/// fence.mbarrier_init or fence.proxy.async of the lane that made it only (PTX ISA, "Async proxy").
void RaceDetector::fence_init(int warp_id, std::uint32_t mask) {
  Warp& warp = warps_[static_cast<std::size_t>(warp_id)];
  warp.accessed = warp.time;
  for (auto& [key, barrier] : barriers_)
    if (barrier.init != 0 && barrier.fenced == 0 && barrier.owner == static_cast<std::uint32_t>(warp_id) && (mask & bit(barrier.lane)) != 0)
      barrier.fenced = warp.time;
}


void RaceDetector::barrier_init(int warp_id, int lane, int line, int block, std::uint32_t at) {
  Warp& warp = warps_[static_cast<std::size_t>(warp_id)];
  warp.accessed = warp.time;
  Barrier fresh;
  fresh.owner = static_cast<std::uint32_t>(warp_id);
  fresh.lane = static_cast<std::uint32_t>(lane);
  fresh.init = warp.time;
  fresh.line = line;
  barriers_[shared_key(block, at)] = std::move(fresh);
}

void RaceDetector::check_init(const Barrier& barrier, std::uint32_t id, std::uint32_t mask, int line, std::uint32_t at) {
  if (barrier.init == 0 || barrier.init <= warps_[id].known.all[barrier.owner]) return;
  Now now = now_of(id, mask, line);
  now.address = at;
  now.shared = true;
  if (!knows(now, barrier.owner, barrier.lane, barrier.init))
    report("mbarrier used after its init", now, barrier.owner, barrier.lane, barrier.line);
}

void RaceDetector::barrier_arrive(int warp_id, std::uint32_t mask, int line, int block, std::uint32_t at) {
  const auto id = static_cast<std::uint32_t>(warp_id);
  const Warp& warp = warps_[id];
  Barrier& barrier = barriers_[shared_key(block, at)];
  check_init(barrier, id, mask, line, at);
  // The lanes of an instruction arrive one after the other, and mostly know the same.
  if (barrier.warp == id && barrier.time == warp.time && (warp.owners & mask) == 0 && warp.awaited == nullptr)
    add(barrier.current, id, warp.accessed, mask);
  else hand_on(barrier.current, id, mask);
  barrier.warp = id;
  barrier.time = warp.time;
}

/// Arrivals of a phase come after the phase before, in the order of the barrier itself: its knowledge stays.
void RaceDetector::barrier_complete(int block, std::uint32_t at) {
  Barrier& barrier = barriers_[shared_key(block, at)];
  barrier.done = barrier.current;
}

void RaceDetector::barrier_wait(int warp, std::uint32_t mask, int line, int block, std::uint32_t at) {
  const Barrier& barrier = barriers_[shared_key(block, at)];
  check_init(barrier, static_cast<std::uint32_t>(warp), mask, line, at);
  acquire(static_cast<std::uint32_t>(warp), mask, barrier.done, nullptr);
}

// ---- asynchronous copies ---------------------------------------------------------------------------------------------------

int RaceDetector::async_begin(int warp_id, int lane, int line, bool bulk, int block, std::uint32_t barrier) {
  int index = static_cast<int>(copies_.size());
  if (free_copies_.empty()) {
    copies_.emplace_back();
  } else {
    index = free_copies_.back();
    free_copies_.pop_back();
  }
  Copy& copy = copies_[static_cast<std::size_t>(index)];
  Warp& warp = warps_[static_cast<std::size_t>(warp_id)];
  const auto id = static_cast<std::uint32_t>(warp_id);
  copy.warp = warp_id;
  copy.lane = lane;
  copy.line = line;
  copy.block = block;
  copy.bulk = bulk;
  copy.known = message(id, bit(static_cast<std::uint32_t>(lane)));
  if (bulk) {   // one agent for each mbarrier
    const Barrier& completes = barriers_[shared_key(block, barrier)];
    check_init(completes, id, bit(static_cast<std::uint32_t>(lane)), line, barrier);
    if (completes.init != 0) {
      Now now = now_of(id, bit(static_cast<std::uint32_t>(lane)), line);
      now.address = barrier;
      now.shared = true;
      if (completes.fenced == 0 || !knows(now, completes.owner, completes.lane, completes.fenced))
        report("bulk copy completes an mbarrier whose init is not fenced", now, completes.owner, completes.lane, completes.line);
    }
    copy.id = agent(shared_key(block, barrier), block, warp_id);
    Agent& mine = agents_[copy.id - warp_count_];
    mine.warp = warp_id;
    copy.time = ++mine.time;
    mine.under_way.push_back(copy.time);
    copy.proxied = warp.proxied;
  } else {   // one for each warp, whose lanes are told apart
    if (warp.agent == 0)
      warp.agent = agent(shared_key(warp_id / warps_per_block_, 0x80000000u | id), warp_id / warps_per_block_, warp_id);
    copy.id = warp.agent;
    copy.time = warp.time;
  }
  return index;
}

void RaceDetector::async_complete(int index, int block, std::uint32_t at) {
  const Copy& copy = copies_[static_cast<std::size_t>(index)];
  Clock& into = barriers_[shared_key(block, at)].current;
  if (!copy.bulk) {
    add(into, copy.id, copy.time, bit(static_cast<std::uint32_t>(copy.lane)));
    return;
  }
  Agent& mine = agents_[copy.id - warp_count_];
  std::erase(mine.under_way, copy.time);
  const std::uint32_t landed =
      mine.under_way.empty() ? mine.time : *std::min_element(mine.under_way.begin(), mine.under_way.end()) - 1;
  if (landed != 0) add(into, copy.id, landed, ~0u);
}

void RaceDetector::async_commit(int warp_id, std::uint32_t mask) {
  Warp& warp = warps_[static_cast<std::size_t>(warp_id)];
  if (warp.commits == nullptr) warp.commits = std::make_unique<std::array<std::vector<std::uint32_t>, 32>>();
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) (*warp.commits)[first_of(rest)].push_back(warp.time);
}

void RaceDetector::async_wait(int warp_id, std::uint32_t mask, int left) {
  Warp& warp = warps_[static_cast<std::size_t>(warp_id)];
  if (warp.agent == 0) return;
  if (warp.awaited == nullptr) warp.awaited = std::make_unique<std::array<std::uint32_t, 32>>();
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = first_of(rest);
    std::uint32_t time = left < 0 ? warp.time : 0;
    if (left >= 0 && warp.commits != nullptr && (*warp.commits)[lane].size() > static_cast<std::size_t>(left))
      time = (*warp.commits)[lane].end()[-1 - left];
    (*warp.awaited)[lane] = std::max((*warp.awaited)[lane], time);
  }
}

void RaceDetector::async_end(int index) {
  copies_[static_cast<std::size_t>(index)].known.clock.reset();
  copies_[static_cast<std::size_t>(index)].proxied.clock.reset();
  free_copies_.push_back(index);
}

}  // namespace adamk::ptx
