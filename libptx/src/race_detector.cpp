#include "race_detector.h"

#include <algorithm>
#include <bit>

namespace adamk::ptx {
namespace {

constexpr std::size_t kPageCells = 1024;   // 4 KB
constexpr std::size_t kMostRaces = 100;

std::uint64_t shared_key(int block, std::uint64_t address) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(block) << 32 | address;
}
bool strong(PtxOrder order) { return order != PtxOrder::weak; }
bool acquires(PtxOrder order) { return order == PtxOrder::acquire || order == PtxOrder::acq_rel || order == PtxOrder::sc; }
bool releases(PtxOrder order) { return order == PtxOrder::release || order == PtxOrder::acq_rel || order == PtxOrder::sc; }

}  // namespace

RaceDetector::RaceDetector(int blocks, int warps_per_block)
    : warps_per_block_(warps_per_block), warp_count_(static_cast<std::uint32_t>(blocks * warps_per_block)), warps_(warp_count_) {
  for (Warp& warp : warps_) {
    warp.known.order.resize(warp_count_);
    warp.known.dependency.resize(warp_count_);
  }
}

// ---- clocks ------------------------------------------------------------------------------------------------------------------

/// Keeps the most that fits one entry; what does not fit is forgotten, which can only make the detector stricter.
void RaceDetector::join(Entry& into, const Entry& from) {
  into.all = std::max(into.all, from.all);
  if (from.mask != 0 && from.part > into.all) {
    if (into.mask != 0 && from.part == into.part) into.mask |= from.mask;
    else if (into.mask == 0 || into.part <= into.all || from.part > into.part) into.part = from.part, into.mask = from.mask;
  }
  if (into.mask == ~0u) into.all = std::max(into.all, into.part);
  if (into.part <= into.all) into.mask = 0;
}

void RaceDetector::join(Clock& into, const Clock& from) {
  if (into.order.size() < from.order.size()) into.order.resize(from.order.size());
  if (into.dependency.size() < from.dependency.size()) into.dependency.resize(from.dependency.size());
  for (std::size_t i = 0; i < from.order.size(); ++i) {
    if (from.order[i].mask == 0) {
      if (from.order[i].all > into.order[i].all) join(into.order[i], from.order[i]);
    } else {
      join(into.order[i], from.order[i]);
    }
  }
  for (std::size_t i = 0; i < from.dependency.size(); ++i) into.dependency[i] = std::max(into.dependency[i], from.dependency[i]);
}

bool RaceDetector::covers(const Clock& clock, std::uint32_t warp, int lane, std::uint32_t time) {
  if (warp >= clock.order.size()) return false;
  const Entry& entry = clock.order[warp];
  return time <= entry.all || (time <= entry.part && (entry.mask >> lane & 1));
}

bool RaceDetector::knows(int warp, int lane, std::uint32_t of, int of_lane, std::uint32_t time) const {
  if (static_cast<std::uint32_t>(warp) == of && lane == of_lane) return true;
  const Warp& reader = warps_[static_cast<std::size_t>(warp)];
  if (covers(reader.known, of, of_lane, time)) return true;
  const auto& own = reader.own[static_cast<std::size_t>(lane)];
  return own != nullptr && covers(*own, of, of_lane, time);
}

bool RaceDetector::depends(const Clock& clock, std::uint32_t warp, std::uint32_t time) const {
  return warp < clock.dependency.size() && time <= clock.dependency[warp];
}

/// What these lanes hand on: what they know, and their own accesses up to now.
RaceDetector::Clock RaceDetector::released(int id, std::uint32_t mask) const {
  const Warp& warp = warps_[static_cast<std::size_t>(id)];
  Clock clock = warp.known;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
    if (const auto& own = warp.own[static_cast<std::size_t>(std::countr_zero(rest))]) join(clock, *own);
  join(clock.order[static_cast<std::size_t>(id)], {0, warp.time, mask});
  clock.dependency[static_cast<std::size_t>(id)] = warp.time;
  return clock;
}

void RaceDetector::acquire(int id, std::uint32_t mask, const Clock& clock) {
  Warp& warp = warps_[static_cast<std::size_t>(id)];
  warp.snapshot.reset();
  if (mask == ~0u) {
    join(warp.known, clock);
    return;
  }
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    auto& own = warp.own[static_cast<std::size_t>(std::countr_zero(rest))];
    if (own == nullptr) own = std::make_unique<Clock>();
    join(*own, clock);
  }
  // Dependencies are kept for the warp: its lanes act on one another's values through shuffles and predicates.
  Clock only;
  only.dependency = clock.dependency;
  join(warp.known, only);
}

std::uint32_t RaceDetector::agent(std::uint64_t key) {
  const auto [at, fresh] = agents_.emplace(key, warp_count_ + static_cast<std::uint32_t>(agent_blocks_.size()));
  if (fresh) {
    agent_blocks_.push_back(static_cast<int>(key >> 32 & 0x7fffffff));
    agent_times_.push_back(0);
  }
  return at->second;
}

int RaceDetector::block_of(std::uint32_t warp) const {
  return warp < warp_count_ ? static_cast<int>(warp) / warps_per_block_ : agent_blocks_[warp - warp_count_];
}

// ---- synchronisation ---------------------------------------------------------------------------------------------------------

void RaceDetector::warp_sync(int id, std::uint32_t mask) {
  Warp& warp = warps_[static_cast<std::size_t>(id)];
  join(warp.known.order[static_cast<std::size_t>(id)], {0, warp.time, mask});
  Clock together;
  bool any = false;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    auto& own = warp.own[static_cast<std::size_t>(std::countr_zero(rest))];
    if (own == nullptr) continue;
    join(together, *own);
    any = true;
    if (mask == ~0u) own.reset();
  }
  if (any) acquire(id, mask, together);
}

void RaceDetector::block_sync(const std::vector<int>& warps) {
  Clock together;
  for (const int id : warps) join(together, released(id, ~0u));
  for (const int id : warps) {
    acquire(id, ~0u, together);
    for (auto& own : warps_[static_cast<std::size_t>(id)].own) own.reset();
  }
}

void RaceDetector::fence(int id, std::uint32_t mask) {
  Warp& warp = warps_[static_cast<std::size_t>(id)];
  for (auto& [key, seen] : warp.pending) {
    if ((seen.second & mask) == 0) continue;
    acquire(id, seen.second & mask, *seen.first);
    seen.second &= ~mask;
  }
  std::erase_if(warp.pending, [](const auto& each) { return each.second.second == 0; });
  warp.fenced = std::make_shared<const Clock>(released(id, mask));
  warp.fenced_lanes = mask;
}

void RaceDetector::fence_proxy(int id) {
  Warp& warp = warps_[static_cast<std::size_t>(id)];
  warp.proxy_time = warp.time;
}

void RaceDetector::barrier_init(int block, std::uint32_t at) { barriers_[shared_key(block, at)] = Barrier{}; }

void RaceDetector::barrier_arrive(int warp, int lane, int block, std::uint32_t at) {
  Warp& from = warps_[static_cast<std::size_t>(warp)];
  Clock& into = barriers_[shared_key(block, at)].current;
  join(into, from.known);
  if (const auto& own = from.own[static_cast<std::size_t>(lane)]) join(into, *own);
  join(into.order[static_cast<std::size_t>(warp)], {0, from.time, 1u << lane});
  into.dependency[static_cast<std::size_t>(warp)] = from.time;
}

void RaceDetector::barrier_complete(int block, std::uint32_t at) {
  Barrier& barrier = barriers_[shared_key(block, at)];
  barrier.done = barrier.current;   // arrivals of a phase come after the phase before: its knowledge stays
}

void RaceDetector::barrier_wait(int warp, std::uint32_t mask, int block, std::uint32_t at) {
  acquire(warp, mask, barriers_[shared_key(block, at)].done);
}

// ---- asynchronous copies -----------------------------------------------------------------------------------------------------

int RaceDetector::async_begin(int warp, int lane, int line, bool bulk, int block, std::uint32_t barrier) {
  int index = static_cast<int>(copies_.size());
  if (free_copies_.empty()) {
    copies_.emplace_back();
  } else {
    index = free_copies_.back();
    free_copies_.pop_back();
  }
  Agent& copy = copies_[static_cast<std::size_t>(index)];
  // One agent for each mbarrier: its phases follow one another. One for each warp's cp.async, its lanes told apart.
  const std::uint64_t key = bulk ? shared_key(block, barrier) : shared_key(block, 0x80000000u | static_cast<std::uint32_t>(warp));
  copy = {warp, lane, line, block, bulk, agent(key), 0, nullptr};
  std::uint32_t& time = agent_times_[copy.id - warp_count_];
  copy.time = bulk ? ++time : warps_[static_cast<std::size_t>(warp)].time;
  copy.known = std::make_shared<const Clock>(released(warp, 1u << lane));
  return index;
}

void RaceDetector::async_move(int index, std::uint64_t global, std::uint32_t shared, int bytes) {
  const Agent copy = copies_[static_cast<std::size_t>(index)];
  const int lane = copy.bulk ? 0 : copy.lane;
  Race second;
  second.second_block = copy.block;
  second.second_warp = copy.warp;
  second.second_lane = copy.lane;
  second.second_line = copy.line;
  second.second_async = true;
  for (int done = 0; done < bytes;) {
    const std::uint64_t address = global + static_cast<std::uint64_t>(done);
    const int here = std::min<int>(bytes - done, static_cast<int>(4096 - address % 4096));
    Page& from = page(false, 0, address);
    second.shared = false;
    if (from.cells.empty()) {
      Read& read = from.constant_reads[copy.id];
      read = {copy.id, copy.time, 1u << lane, copy.line};
    } else {
      for (int at = 0; at < here; at += 4) {
        Cell& cell = from.cells[(address + static_cast<std::uint64_t>(at)) / 4 % kPageCells];
        second.address = address + static_cast<std::uint64_t>(at);
        if (cell.written != Written::nothing) {
          // Written by this launch through the generic proxy: ordered, and a proxy fence between.
          const bool fenced = cell.warp < warp_count_ && warps_[cell.warp].proxy_time >= cell.time;
          const bool fenced_here = warps_[static_cast<std::size_t>(copy.warp)].proxy_time > 0 && cell.warp != static_cast<std::uint32_t>(copy.warp);
          if (!covers(*copy.known, cell.warp, cell.lane, cell.time)) report("read after write", cell.warp, cell.lane, cell.line, second);
          else if (copy.bulk && !fenced && !fenced_here) report("read after write without fence.proxy.async", cell.warp, cell.lane, cell.line, second);
        }
        note_read(cell, {copy.id, copy.time, 1u << lane, copy.line}, copy.known.get());
      }
    }
    done += here;
  }
  second.shared = true;
  for (int at = 0; at < bytes; at += 4) {
    const std::uint64_t address = shared + static_cast<std::uint64_t>(at);
    Page& to = page(true, copy.block, address);
    if (to.cells.empty()) to.cells.resize(kPageCells);
    Cell& cell = to.cells[address / 4 % kPageCells];
    second.address = address;
    const auto known = [&](std::uint32_t warp, int of_lane, std::uint32_t time) {
      return covers(*copy.known, warp, of_lane, time) || depends(*copy.known, warp, time) ||
             (warp == copy.id && time < copy.time);   // an earlier phase of the same mbarrier
    };
    if (cell.written != Written::nothing && !known(cell.warp, cell.lane, cell.time)) report("write after write", cell.warp, cell.lane, cell.line, second);
    check_reads(cell, known, "write after read", second);
    if (cell.more >= 0) reads_[static_cast<std::size_t>(cell.more)].clear();
    cell.read = {};
    cell.warp = copy.id;
    cell.time = copy.time;
    cell.lane = static_cast<std::uint8_t>(lane);
    cell.line = copy.line;
    cell.written = Written::plain;
  }
}

void RaceDetector::async_complete(int index, int block, std::uint32_t at) {
  const Agent& copy = copies_[static_cast<std::size_t>(index)];
  Clock& into = barriers_[shared_key(block, at)].current;
  join(into, *copy.known);
  if (into.order.size() <= copy.id) into.order.resize(copy.id + 1);
  join(into.order[copy.id], copy.bulk ? Entry{copy.time, 0, 0} : Entry{0, copy.time, 1u << copy.lane});
}

void RaceDetector::async_known(int warp, int lane) {
  const std::uint32_t id = agent(shared_key(static_cast<int>(warp) / warps_per_block_, 0x80000000u | static_cast<std::uint32_t>(warp)));
  Clock clock;
  clock.order.resize(id + 1);
  clock.order[id] = {0, warps_[static_cast<std::size_t>(warp)].time, 1u << lane};
  acquire(warp, 1u << lane, clock);
}

void RaceDetector::async_end(int index) {
  copies_[static_cast<std::size_t>(index)].known.reset();
  free_copies_.push_back(index);
}

// ---- accesses ----------------------------------------------------------------------------------------------------------------

RaceDetector::Page& RaceDetector::page(bool shared, int block, std::uint64_t address) {
  const std::uint64_t key = shared ? shared_key(block, address / 4096) : address / 4096;
  if (key == last_page_key_) return *last_page_;
  last_page_key_ = key;
  last_page_ = &pages_[key];
  return *last_page_;
}

void RaceDetector::report(const char* kind, std::uint32_t warp, int lane, int line, Race second) {
  if (races_.size() >= kMostRaces || !seen_.emplace(line, second.second_line).second) return;
  second.kind = kind;
  second.first_block = block_of(warp);
  second.first_warp = static_cast<int>(warp < warp_count_ ? warp : 0);
  second.first_async = warp >= warp_count_;
  second.first_lane = lane;
  second.first_line = line;
  races_.push_back(std::move(second));
}

template <class Known>
void RaceDetector::check_reads(const Cell& cell, Known known, const std::string& kind, const Race& second) {
  const auto check = [&](const Read& read) {
    for (std::uint32_t rest = read.mask; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      if (known(read.warp, lane, read.time)) continue;
      report(kind.c_str(), read.warp, lane, read.line, second);
      return;
    }
  };
  if (cell.read.time != 0) check(cell.read);
  if (cell.more >= 0)
    for (const Read& read : reads_[static_cast<std::size_t>(cell.more)]) check(read);
}

/// One reader lies in the cell; others that it does not follow lie apart, the latest of each warp.
void RaceDetector::note_read(Cell& cell, const Read& read, const Clock* reader) {
  Read& last = cell.read;
  if (last.time == 0) {
    last = read;
  } else if (last.warp == read.warp) {
    if (last.time == read.time) last.mask |= read.mask;
    else last = read;
  } else if (reader != nullptr && covers(*reader, last.warp, std::countr_zero(last.mask), last.time) &&
             (last.mask & (last.mask - 1)) == 0) {
    last = read;
  } else {
    if (cell.more < 0) {
      cell.more = static_cast<int>(reads_.size());
      reads_.emplace_back();
    }
    std::vector<Read>& more = reads_[static_cast<std::size_t>(cell.more)];
    for (Read& other : more) {
      if (other.warp != last.warp) continue;
      other = last;
      last = read;
      return;
    }
    more.push_back(last);
    last = read;
  }
}

void RaceDetector::order_location(int warp, int lane, std::uint64_t key, AccessKind kind, PtxOrder order) {
  Warp& from = warps_[static_cast<std::size_t>(warp)];
  if (kind != AccessKind::write) {   // reads, and the reading half of an atomic
    const auto found = locations_.find(key);
    if (found != locations_.end() && strong(order)) {
      if (acquires(order)) {
        acquire(warp, 1u << lane, *found->second);
      } else {
        auto& seen = from.pending[found->second.get()];
        seen.first = found->second;
        seen.second |= 1u << lane;
      }
    }
  }
  if (kind == AccessKind::read) return;
  std::shared_ptr<const Clock> hands_on;
  if (releases(order)) hands_on = std::make_shared<const Clock>(released(warp, 1u << lane));
  else if ((strong(order) || kind == AccessKind::atomic) && from.fenced != nullptr && (from.fenced_lanes >> lane & 1)) hands_on = from.fenced;
  if (kind == AccessKind::atomic) {   // an atomic goes on with the sequence it reads from
    const auto found = locations_.find(key);
    if (found != locations_.end()) {
      if (hands_on == nullptr) return;
      auto both = std::make_shared<Clock>(*found->second);
      join(*both, *hands_on);
      hands_on = std::move(both);
    }
  }
  if (hands_on != nullptr) locations_[key] = std::move(hands_on);
  else locations_.erase(key);
}

void RaceDetector::read(int warp, int lane, int line, Page& in, std::size_t index, std::uint64_t address, bool shared, int block, bool packet,
                        PtxOrder order) {
  Cell& cell = in.cells[index];
  Warp& reader = warps_[static_cast<std::size_t>(warp)];
  if (packet && (cell.written == Written::packet || cell.written == Written::nothing)) {
    const auto& [snapshot, time] = in.packets.empty() ? std::pair<std::shared_ptr<const std::vector<std::uint32_t>>, std::uint32_t>{} : in.packets[index / 2];
    if (cell.written == Written::nothing || depends(reader.known, cell.warp, time)) return;
    for (std::size_t i = 0; i < snapshot->size(); ++i) reader.known.dependency[i] = std::max(reader.known.dependency[i], (*snapshot)[i]);
    reader.known.dependency[cell.warp] = std::max(reader.known.dependency[cell.warp], time);
    reader.snapshot.reset();
    return;
  }
  if ((cell.written == Written::atomic || cell.written == Written::nothing) && strong(order)) return;   // a poll
  if (cell.written != Written::nothing && !knows(warp, lane, cell.warp, cell.lane, cell.time)) {
    Race second;
    second.address = address;
    second.shared = shared;
    second.second_block = block_of(static_cast<std::uint32_t>(warp));
    second.second_warp = warp;
    second.second_lane = lane;
    second.second_line = line;
    report("read after write", cell.warp, cell.lane, cell.line, second);
  }
  static_cast<void>(block);
  note_read(cell, {static_cast<std::uint32_t>(warp), reader.time, 1u << lane, line}, &reader.known);
}

void RaceDetector::write(int warp, int lane, int line, Page& in, std::size_t index, std::uint64_t address, bool shared, int block, bool packet,
                         AccessKind kind) {
  Cell& cell = in.cells[index];
  Warp& writer = warps_[static_cast<std::size_t>(warp)];
  const bool sync = kind == AccessKind::atomic && cell.written == Written::atomic;
  if (!sync && (cell.written != Written::nothing || cell.read.time != 0)) {
    Race second;
    second.address = address;
    second.shared = shared;
    second.second_block = block_of(static_cast<std::uint32_t>(warp));
    second.second_warp = warp;
    second.second_lane = lane;
    second.second_line = line;
    const auto known = [&](std::uint32_t of, int of_lane, std::uint32_t time) {
      return knows(warp, lane, of, of_lane, time) || depends(writer.known, of, time);
    };
    if (cell.written != Written::nothing && !known(cell.warp, cell.lane, cell.time)) report("write after write", cell.warp, cell.lane, cell.line, second);
    check_reads(cell, known, "write after read", second);
    if (cell.more >= 0) reads_[static_cast<std::size_t>(cell.more)].clear();
    cell.read = {};
  }
  static_cast<void>(block);
  cell.warp = static_cast<std::uint32_t>(warp);
  cell.time = writer.time;
  cell.line = line;
  cell.lane = static_cast<std::uint8_t>(lane);
  cell.written = kind == AccessKind::atomic ? Written::atomic : packet ? Written::packet : Written::plain;
  if (!packet) return;
  if (in.packets.empty()) in.packets.resize(kPageCells / 2);
  if (writer.snapshot == nullptr) writer.snapshot = std::make_shared<const std::vector<std::uint32_t>>(writer.known.dependency);
  in.packets[index / 2] = {writer.snapshot, writer.time};
}

void RaceDetector::access(int warp, std::uint32_t mask, int line, bool shared, int block, const std::uint64_t* addresses, int width, int bytes,
                          AccessKind kind, PtxOrder order, bool constant) {
  const bool packet = width == 8 && order == PtxOrder::relaxed && kind != AccessKind::atomic && !shared;
  const int granules = std::max(1, bytes / 4);
  const Warp& self = warps_[static_cast<std::size_t>(warp)];
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t first = addresses[lane];
    Page& in = page(shared, block, first);
    if (in.cells.empty()) {
      if (constant) {
        Read& read = in.constant_reads[static_cast<std::uint32_t>(warp)];
        read = {static_cast<std::uint32_t>(warp), self.time, 1u << lane, line};
        continue;
      }
      in.cells.resize(kPageCells);
      for (Cell& cell : in.cells)
        for (const auto& [reader, read] : in.constant_reads) note_read(cell, read, nullptr);
      in.constant_reads.clear();
    }
    for (int g = 0; g < granules; ++g) {
      const std::size_t index = (first / 4 + static_cast<std::uint64_t>(g)) % kPageCells;
      if (kind == AccessKind::read) read(warp, lane, line, in, index, first + 4u * static_cast<unsigned>(g), shared, block, packet, order);
      else write(warp, lane, line, in, index, first + 4u * static_cast<unsigned>(g), shared, block, packet, kind);
    }
    if (strong(order) || kind == AccessKind::atomic || !locations_.empty()) {
      for (int at = 0; at < bytes; at += width) {
        const std::uint64_t address = first + static_cast<std::uint64_t>(at);
        const std::uint64_t key = shared ? shared_key(block, address) : address;
        if (kind == AccessKind::read && (locations_.empty() || !strong(order))) continue;
        order_location(warp, lane, key, kind, order);
      }
    }
  }
}

}  // namespace adamk::ptx
