// Accesses of the race detector: what each granule of memory remembers, and what it is compared with.
#include "race_detector_parts.h"

namespace adamk::ptx {

// ---- granules --------------------------------------------------------------------------------------------------------------

RaceDetector::Page& RaceDetector::page(bool shared, int block, std::uint64_t address) {
  const std::uint64_t key = shared ? shared_key(block, address / 4096) : address / 4096;
  auto& [near_key, near] = near_pages_[(key ^ key >> 29) % near_pages_.size()];
  if (near == nullptr || near_key != key) {
    near = &pages_[key];
    near_key = key;
  }
  return *near;
}

RaceDetector::Read& RaceDetector::early_of(Page& page, std::uint32_t id) {
  if (page.near_early == nullptr || page.near_id != id) page.near_early = &page.early[id], page.near_id = id;
  return *page.near_early;
}

RaceDetector::Cell* RaceDetector::cells_of(Page& page) {
  if (!page.cells.empty()) return page.cells.data();
  page.cells.resize(kPageCells);
  for (const auto& [warp, read] : page.early)
    for (Cell& cell : page.cells) note_read(cell, read, nullptr);
  page.early.clear();
  return page.cells.data();
}

/// What is accessed in smaller pieces is told apart from then on, until it is written as a whole.
void RaceDetector::split(Cell& cell) {
  std::uint32_t place = static_cast<std::uint32_t>(parts_.size());
  if (free_parts_.empty()) {
    parts_.emplace_back();
  } else {
    place = free_parts_.back();
    free_parts_.pop_back();
  }
  std::array<Cell, 4>& parts = parts_[place];
  parts.fill(cell);
  for (std::size_t i = 1; i < 4 && cell.more != 0; ++i) {
    parts[i].more = 0;
    for (const Read& read : std::vector<Read>(reads_[cell.more])) keep_read(parts[i], read);
  }
  cell.split = 1;
  cell.more = place;
}

/// All parts were written alike, and nobody has read since.
void RaceDetector::merge(Cell& cell) {
  const std::uint32_t place = cell.more;
  for (std::size_t i = 1; i < 4; ++i)
    if (parts_[place][i].more != 0) free_reads_.push_back(parts_[place][i].more);
  cell = parts_[place][0];
  cell.located = 0;
  free_parts_.push_back(place);
}

/// `each` for what `bytes` from `address` on touch of a cell of `size` bytes.
template <bool writes, class Each>
void RaceDetector::over(Now& now, Cell& cell, unsigned size, std::uint64_t address, unsigned bytes, Each each) {
  now.address = address;
  if (cell.split == 0 && bytes == size) return each(cell);
  if (cell.split == 0) split(cell);
  const unsigned part = size / 4, begin = static_cast<unsigned>(address % size), end = begin + bytes;
  for (unsigned i = begin / part; i * part < end; ++i) {
    const unsigned from = std::max(begin, i * part), to = std::min(end, (i + 1) * part);
    over<writes>(now, parts_[cell.more][i], part, address + (from - begin), to - from, each);
  }
  if (writes && bytes == size) merge(cell);
}

bool RaceDetector::knows(Now& now, std::uint32_t of, std::uint32_t lane, std::uint32_t time) const {
  const Clock& known = *now.known;
  if (of < known.all.size() && time <= known.all[of]) return true;
  if (of == now.warp && time <= now.synced) return true;
  for (std::uint32_t rest = now.mask; rest != 0; rest &= rest - 1) {
    now.lane = first_of(rest);
    if (now.lane == lane && of == now.warp && time <= now.self) continue;
    if (!known.parts.empty() && covers(known, of, lane, time)) continue;
    if (now.lanes != nullptr) {
      const auto& own = now.lanes->own[now.lane];
      if (own != nullptr && covers(own->clock, of, lane, time)) continue;
      if (now.lane == lane && of == now.lanes->agent && now.lanes->awaited != nullptr && time <= (*now.lanes->awaited)[lane])
        continue;
    }
    return false;
  }
  return true;
}

bool RaceDetector::depends(const Now& now, std::uint32_t warp, std::uint32_t time) {
  if (covers_dependency(*now.known, warp, time)) return true;
  if (now.lanes == nullptr) return false;
  const auto& own = now.lanes->own[first_of(now.mask)];   // whoever writes is one lane
  return own != nullptr && covers_dependency(own->clock, warp, time);
}

/// Flags: strong accesses of one width, one of which at least synchronises.
bool RaceDetector::exempt(const Now& now, std::uint32_t how, std::uint32_t width) {
  return how >= relaxed && now.noted.how >= relaxed && width == now.noted.width &&
         (how == synchronising || now.noted.how == synchronising);
}

RaceDetector::Now RaceDetector::now_of(std::uint32_t id, std::uint32_t mask, int line) {
  Now now;
  now.lanes = &warps_[id];
  now.known = &now.lanes->known;
  now.warp = id;
  now.mask = mask;
  now.self = ~0u;
  now.noted.warp = id & 0xffffffu;
  now.noted.time = now.lanes->time;
  now.noted.mask = mask;
  now.noted.line = line;
  return now;
}

void RaceDetector::report(const char* kind, const Now& now, std::uint32_t first, std::uint32_t first_lane, int first_line) {
  if (races_.size() >= kMostRaces || !seen_.emplace(first_line, now.noted.line).second) return;
  Race race;
  race.kind = kind;
  race.address = now.address;
  race.shared = now.shared;
  race.first_async = first >= warp_count_;
  race.first_warp = race.first_async ? agents_[first - warp_count_].warp : static_cast<int>(first);
  race.first_block = race.first_warp / warps_per_block_;
  race.first_lane = static_cast<int>(first_lane);
  race.first_line = first_line;
  race.second_async = now.lanes == nullptr;
  race.second_warp = static_cast<int>(now.warp);
  race.second_block = race.second_warp / warps_per_block_;
  race.second_lane = static_cast<int>(now.lane);
  race.second_line = now.noted.line;
  races_.push_back(std::move(race));
}

/// Reads that the last one neither follows nor repeats lie apart.
void RaceDetector::keep_read(Cell& cell, const Read& read) {
  if (cell.more == 0 && free_reads_.empty()) {
    cell.more = static_cast<std::uint32_t>(reads_.size());
    reads_.emplace_back();
  } else if (cell.more == 0) {
    cell.more = free_reads_.back();
    free_reads_.pop_back();
  }
  reads_[cell.more].push_back(read);
}

void RaceDetector::note_read(Cell& cell, const Read& read, const Clock* known) {
  Read& last = cell.read;
  if (last.time == 0) {
    last = read;
    return;
  }
  // Whoever comes after this read comes after what it follows: by the same lanes, or by lanes it has synchronised with.
  const auto follows = [&](const Read& earlier) {
    if (read.how > earlier.how || (read.how != weak && read.width != earlier.width)) return false;
    if (earlier.warp == read.warp && (earlier.mask & ~read.mask) == 0) return true;
    return known != nullptr && earlier.warp < known->all.size() && earlier.time <= known->all[earlier.warp];
  };
  if (last.warp == read.warp && last.time == read.time) {
    last.mask |= read.mask;
  } else if (follows(last)) {
    last = read;
  } else {
    keep_read(cell, last);
    last = read;
  }
  if (cell.more == 0) return;
  std::vector<Read>& more = reads_[cell.more];
  std::erase_if(more, [&](const Read& earlier) {
    return earlier.how >= last.how && (last.how == weak || earlier.width == last.width) &&
           ((earlier.warp == last.warp && (earlier.mask & ~last.mask) == 0) ||
            (known != nullptr && earlier.warp < known->all.size() && earlier.time <= known->all[earlier.warp]));
  });
}

void RaceDetector::check_read(Now& now, const Read& read) {
  if (std::memcmp(&read, &now.ordered_read, sizeof(Read)) == 0) return;
  if ((read.warp < now.known->all.size() && read.time <= now.known->all[read.warp]) ||
      covers_dependency(*now.known, read.warp, read.time)) {
    now.ordered_read = read;
    return;
  }
  if (exempt(now, read.how, read.width) || (read.how == packet && now.noted.how == packet)) return;
  if (depends(now, read.warp, read.time)) return;
  for (std::uint32_t rest = read.mask; rest != 0; rest &= rest - 1) {
    if (knows(now, read.warp, first_of(rest), read.time)) continue;
    report("write after read", now, read.warp, first_of(rest), read.line);
    return;
  }
}

inline void RaceDetector::read(Now& now, Page& in, Cell& cell) {
  // Mostly it is the warp that read last, of what was written as the cell before was.
  if (now.noted.how == weak && cell.more == 0 &&
      (cell.how == nothing || (writing_of(cell) == now.ordered_write && !now.constant)) &&
      (cell.read.time == 0 || (cell.read.warp == now.noted.warp && (cell.read.mask & ~now.noted.mask) == 0))) {
    cell.read = now.noted;
    return;
  }
  read_slowly(now, in, cell);
}

void RaceDetector::read_slowly(Now& now, Page& in, Cell& cell) {
  if (cell.how == nothing) {
    if (now.noted.how == packet) return;
  } else if (now.constant) {   // not even what is ordered may be read so
    now.lane = first_of(now.mask);
    report("read-only load after write", now, cell.warp, cell.lane, cell.line);
  } else if (now.noted.how == packet && cell.how == packet) {
    Clock& known = now.lanes->known;
    if (covers_dependency(known, cell.warp, cell.time)) return;
    raise(known.dependency, in.packets[packet_of(now.address)]->dependency);
    known.dependency[cell.warp] = std::max(known.dependency[cell.warp], cell.time);
    changed(*now.lanes);
    return;
  } else if (const std::uint64_t key = writing_of(cell); key != now.ordered_write) {
    if (cell.warp < now.known->all.size() && cell.time <= now.known->all[cell.warp]) now.ordered_write = key;
    else if (!exempt(now, cell.how, cell.width) && !knows(now, cell.warp, cell.lane, cell.time))
      report("read after write", now, cell.warp, cell.lane, cell.line);
  }
  note_read(cell, now.noted, now.known);
}

void RaceDetector::write(Now& now, Page& in, Cell& cell) {
  if (cell.how != nothing) {
    if (const std::uint64_t key = writing_of(cell); key != now.ordered_write) {
      if (cell.warp < now.known->all.size() && cell.time <= now.known->all[cell.warp]) now.ordered_write = key;
      else if (!exempt(now, cell.how, cell.width) && !knows(now, cell.warp, cell.lane, cell.time) &&
               !(cell.how == packet && now.noted.how == packet && depends(now, cell.warp, cell.time)))
        report("write after write", now, cell.warp, cell.lane, cell.line);
    }
  }
  if (cell.read.time != 0) {
    check_read(now, cell.read);
    cell.read.time = 0;
    if (cell.more != 0) {
      for (const Read& other : reads_[cell.more]) check_read(now, other);
      reads_[cell.more].clear();
    }
  }
  cell.warp = now.noted.warp & 0xfffffu;
  cell.lane = first_of(now.noted.mask) & 31u;
  cell.how = now.noted.how & 7u;
  cell.width = now.noted.width & 3u;
  cell.time = now.noted.time;
  cell.line = now.noted.line;
  if (now.noted.how != packet) return;
  if (in.packets.empty()) in.packets.resize(kPageCells * kCellBytes / 8);
  in.packets[packet_of(now.address)] = now.lanes->owners & now.mask ? message(now.warp, now.mask).clock : snapshot(*now.lanes);
}

// ---- accesses --------------------------------------------------------------------------------------------------------------

void RaceDetector::receive(std::uint32_t id, std::uint32_t mask, std::uint64_t key, PtxOrder order, PtxScope scope) {
  const Message& from = locations_[key];
  if (!reaches(from.scope, from.warp, id) || !reaches(scope, from.warp, id)) return;
  if (acquires(order)) return acquire(id, mask, *from.clock, &from);
  std::vector<Pending>& pending = warps_[id].pending;
  auto same = std::find_if(pending.rbegin(), pending.rend(), [&](const Pending& seen) {
    return seen.from.clock == from.clock && seen.from.mask == from.mask && seen.from.warp == from.warp &&
           seen.from.time == from.time;
  });
  if (same == pending.rend()) {
    pending.push_back({from, mask});
    same = pending.rbegin();
  } else {
    if ((same->lanes & mask) == mask) return;
    same->lanes |= mask;
  }
  const Pending last = *same;   // a later message of the same lanes says all that an earlier one said
  std::erase_if(pending, [&](const Pending& seen) {
    return seen.from.warp == last.from.warp && seen.from.time < last.from.time && (seen.from.mask & ~last.from.mask) == 0 &&
           (seen.lanes & ~last.lanes) == 0;
  });
}

void RaceDetector::publish(std::uint32_t id, std::uint32_t lane, std::uint64_t key, Cell& cell, AccessKind kind,
                           PtxOrder order, PtxScope scope) {
  Warp& warp = warps_[id];
  Message out;
  if (releases(order)) {
    out = message(id, bit(lane));
    out.scope = scope;
  } else if (order != PtxOrder::weak || kind == AccessKind::atomic) {
    const auto fenced = std::find_if(warp.fenced.begin(), warp.fenced.end(),
                                     [&](const Message& each) { return (each.mask & bit(lane)) != 0; });
    if (fenced != warp.fenced.end()) {
      out = *fenced;
      out.mask = bit(lane);
      out.scope = narrower(out.scope, scope);
    }
  }
  if (kind == AccessKind::atomic && cell.located != 0) {   // goes on with the sequence it reads from
    if (out.clock == nullptr) return;
    const Message& before = locations_[key];
    auto both = std::make_shared<Clock>(*before.clock);
    join_self(*both, before);
    join(*both, *out.clock);
    out.clock = std::move(both);
    out.scope = narrower(out.scope, before.scope);
  }
  if (out.clock == nullptr && cell.located != 0) locations_.erase(key);
  cell.located = out.clock != nullptr;
  if (out.clock != nullptr) locations_[key] = std::move(out);
}

void RaceDetector::access(int warp_id, std::uint32_t mask, int line, bool shared, int block, const std::uint64_t* addresses,
                          int width, int bytes, AccessKind kind, PtxOrder order, bool constant, PtxScope scope) {
  const auto id = static_cast<std::uint32_t>(warp_id);
  Now now = now_of(id, mask, line);
  Warp& self = *now.lanes;
  self.accessed = self.time;
  const bool strong = order != PtxOrder::weak || kind == AccessKind::atomic;
  now.shared = shared;
  now.constant = constant;
  now.noted.width = static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(width))) & 3u;
  now.noted.how = !strong                                                    ? weak
                  : kind == AccessKind::atomic                               ? synchronising
                  : order == PtxOrder::is_volatile && shared                 ? relaxed   // behind an mbarrier, mostly
                  : order != PtxOrder::relaxed                               ? synchronising
                  : width == 8 && !shared                                    ? packet
                                                                             : relaxed;
  const bool hands_on = kind != AccessKind::read && strong && (releases(order) || !self.fenced.empty());
  const auto reach = static_cast<unsigned>(bytes), piece = now.noted.how == packet ? 8u : reach;   // within a cell
  for (std::uint32_t rest = mask; rest != 0;) {
    const std::uint32_t lane = first_of(rest);
    const std::uint64_t first = addresses[lane];
    std::uint32_t together = bit(lane);   // lanes that read the same
    if (kind == AccessKind::read)
      for (std::uint32_t next = lane + 1; next < 32 && (rest >> next & 1) != 0 && addresses[next] == first; ++next)
        together |= bit(next);
    rest &= ~together;
    now.mask = now.noted.mask = together;
    now.address = first;
    Page& in = page(shared, block, first);
    if (in.cells.empty() && constant) {
      Read& early = early_of(in, id);
      now.noted.mask |= early.mask;
      early = now.noted;
      continue;
    }
    Cell* cells = cells_of(in);
    Cell& touched = cells[first / kCellBytes % kPageCells];
    for (unsigned at = 0; at < reach; at += piece) {
      const std::uint64_t begin = first + at;
      if (kind == AccessKind::read)
        over<false>(now, touched, kCellBytes, begin, piece, [&](Cell& each) { read(now, in, each); });
      else
        over<true>(now, touched, kCellBytes, begin, piece, [&](Cell& each) { write(now, in, each); });
    }
    if (!strong && touched.split == 0) continue;
    for (unsigned at = 0; at < reach; at += static_cast<unsigned>(width)) {
      const std::uint64_t address = first + at;
      if (touched.split == 0 && !hands_on) continue;
      if (touched.split == 0) split(touched);
      Cell& cell = parts_[touched.more][address / 4 % 4];
      if (cell.located == 0 && !hands_on) continue;
      const std::uint64_t key = shared ? shared_key(block, address) : address;
      if (kind != AccessKind::write && cell.located != 0 && strong) receive(id, together, key, order, scope);
      if (kind != AccessKind::read) publish(id, lane, key, cell, kind, order, scope);
    }
  }
}

// ---- copies ----------------------------------------------------------------------------------------------------------------

void RaceDetector::async_move(int index, std::uint64_t global, std::uint32_t shared, int bytes) {
  const Copy& copy = copies_[static_cast<std::size_t>(index)];
  const auto lane = static_cast<std::uint32_t>(copy.lane);
  Now now;
  now.known = copy.known.clock.get();
  now.warp = copy.known.warp;
  now.mask = bit(lane);
  now.self = copy.known.time;
  now.synced = copy.known.synced;
  now.noted.warp = copy.id & 0xffffffu;
  now.noted.how = weak;
  now.noted.time = copy.time;
  now.noted.mask = copy.bulk ? 1u : bit(lane);
  now.noted.line = copy.line;
  const unsigned piece = std::min(static_cast<unsigned>(bytes), kCellBytes);
  for (int done = 0; done < bytes;) {
    const std::uint64_t address = global + static_cast<std::uint64_t>(done);
    const int here = std::min<int>(bytes - done, static_cast<int>(4096 - address % 4096));
    done += here;
    Page& from = page(false, 0, address);
    if (from.cells.empty()) {   // nobody has written there
      Read& early = early_of(from, copy.id);
      now.noted.mask |= early.mask;
      early = now.noted;
      now.noted.mask = copy.bulk ? 1u : bit(lane);
      continue;
    }
    for (std::uint64_t at = address; at < address + static_cast<std::uint64_t>(here); at += piece) {
      over<false>(now, from.cells[at / kCellBytes % kPageCells], kCellBytes, at, piece, [&](Cell& cell) {
        if (copy.bulk) check_proxy(now, copy, cell);
        read(now, from, cell);
      });
    }
  }
  now.shared = true;
  for (std::uint64_t at = shared; at < shared + static_cast<std::uint64_t>(bytes); at += piece) {
    Page& to = page(true, copy.block, at);
    Cell& touched = cells_of(to)[at / kCellBytes % kPageCells];
    over<true>(now, touched, kCellBytes, at, piece, [&](Cell& cell) { write(now, to, cell); });
  }
}

/// What was written through the generic proxy: its writer, or whoever starts the copy, must have fenced since.
void RaceDetector::check_proxy(Now& now, const Copy& copy, const Cell& cell) {
  if (cell.how == nothing || cell.warp >= warp_count_ || !covers(copy.known, cell.warp, cell.lane, cell.time)) return;
  if (covers(copy.proxied, cell.warp, cell.lane, cell.time)) return;
  const auto& times = warps_[cell.warp].proxy_times;
  const auto fenced = std::lower_bound(times.begin(), times.end(), cell.time);
  if (fenced != times.end() && covers(copy.known, cell.warp, cell.lane, *fenced)) return;
  now.lane = static_cast<std::uint32_t>(copy.lane);
  report("read after write without fence.proxy.async", now, cell.warp, cell.lane, cell.line);
}

}  // namespace adamk::ptx
