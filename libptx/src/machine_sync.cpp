// How lanes, warps, blocks and copies wait for one another.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "machine.h"
#include "written.h"

namespace adamk::ptx {

/// Brings the lanes of `wanted` together, at the same instruction or (bar.warp.sync) at any such. False: `f` waits.
bool Machine::gather(Warp& warp, Fragment*& f, std::uint32_t wanted, bool same_instruction) {
  const Op& op = program_.code[static_cast<std::size_t>(f->pc)];
  if ((f->mask & ~wanted) != 0) {
    fault(warp, op, std::countr_zero(f->mask & ~wanted), fmt::format("takes part in a synchronisation of lanes {:#x} only", wanted));
    return false;
  }
  const std::uint32_t needed = wanted & warp.live;
  if (f->mask == needed) return true;
  std::uint32_t together = f->mask;
  for (const Fragment& other : warp.fragments) {
    if (&other == f || other.mask == 0 || other.state != State::warp_sync) continue;
    const bool joins = same_instruction ? other.pc == f->pc && other.stack == f->stack
                                        : program_.code[static_cast<std::size_t>(other.pc)].kind == Kind::warp_sync;
    if (joins) together |= other.mask;
  }
  if ((together & needed) != needed) {
    f->state = State::warp_sync;
    f->wanted = wanted;
    return false;
  }
  for (Fragment& other : warp.fragments) {
    if (&other == f || other.mask == 0 || other.state != State::warp_sync) continue;
    if (other.pc == f->pc && other.stack == f->stack) {
      f->mask |= other.mask;
      other.mask = 0;
    } else if (!same_instruction && program_.code[static_cast<std::size_t>(other.pc)].kind == Kind::warp_sync) {
      wake(warp, other);
      ++other.pc;
    }
  }
  f->acted = true;
  ++progress_;
  return true;
}

bool Machine::shuffle(Warp& warp, const Op& op, std::uint32_t mask) {
  std::uint32_t result[32];
  const Shuffled shuffled = lanes_.shuffle[op.mode](result, at<void>(warp, op.s[0]), at<void>(warp, op.s[1]), at<void>(warp, op.s[2]), mask);
  if (shuffled.bad != 0) {
    fault(warp, op, std::countr_zero(shuffled.bad),
          fmt::format("reads from a lane that does not take part ({:#x} do, {:#x} are live)", mask, warp.live));
    return false;
  }
  lanes_.mov32(at<void>(warp, op.d[0]), result, nullptr, nullptr, 0, mask);
  if (op.predicate_out >= 0) {
    std::uint32_t& p = warp.predicates[static_cast<std::size_t>(op.predicate_out)];
    p = (p & ~mask) | (shuffled.valid & mask);
  }
  return true;
}

bool Machine::vote(Warp& warp, const Op& op, std::uint32_t mask) {
  if (op.kind == Kind::vote) {
    std::uint32_t bits = warp.predicates[static_cast<std::size_t>(op.predicate_in)];
    if (op.combine_negated) bits = ~bits;
    bits &= mask;
    if (op.mode == 3) {
      for (std::size_t lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) at<std::uint32_t>(warp, op.d[0])[lane] = bits;
      return true;
    }
    const bool result = op.mode == 0 ? bits == mask : op.mode == 1 ? bits != 0 : bits == mask || bits == 0;
    std::uint32_t& p = warp.predicates[static_cast<std::size_t>(op.predicate_out)];
    p = result ? p | mask : p & ~mask;
    return true;
  }
  const auto* values = at<std::uint32_t>(warp, op.s[0]);
  std::uint32_t out[32] = {};
  for (std::size_t lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    std::uint32_t sum = 0;
    bool first = true;
    for (std::size_t other = 0; other < 32; ++other) {
      if (!(mask >> other & 1)) continue;
      const std::uint32_t v = values[other];
      if (op.kind == Kind::match) {
        sum |= v == values[lane] ? 1u << other : 0;
        continue;
      }
      const bool less = is_signed(op.type) ? static_cast<std::int32_t>(v) < static_cast<std::int32_t>(sum) : v < sum;
      if (first) sum = v;
      else if (op.mode == 0) sum += v;
      else if (op.mode == 1) sum = less ? v : sum;
      else if (op.mode == 2) sum = less ? sum : v;
      else if (op.mode == 3) sum &= v;
      else if (op.mode == 4) sum |= v;
      else sum ^= v;
      first = false;
    }
    out[lane] = sum;
  }
  lanes_.mov32(at<void>(warp, op.d[0]), out, nullptr, nullptr, 0, mask);
  return true;
}

// ---- barriers of a block ---------------------------------------------------------------------------------------------------

void Machine::release_named(NamedBarrier& barrier, int number) {
  const std::uint32_t at = RaceDetector::kNamedBarrier + static_cast<std::uint32_t>(number);
  if (races_ && !barrier.warps.empty())
    races_->barrier_complete(warps_[static_cast<std::size_t>(barrier.warps.front())].block, at);
  for (const int id : barrier.warps) {
    Warp& warp = warps_[static_cast<std::size_t>(id)];
    for (Fragment& f : warp.fragments) {
      if (f.mask == 0 || f.state != State::bar || f.barrier != number) continue;
      wake(warp, f);
      f.acted = true;
      if (races_) races_->barrier_wait(id, f.mask, 0, warp.block, at);
      ++f.pc;
    }
    queue(id);
  }
  barrier = NamedBarrier{};
  ++progress_;
}

bool Machine::named_barrier(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  Fragment* self = &f;
  if (!gather(warp, self, warp.live, true)) return false;   // the aligned form: a warp arrives as one
  const std::uint32_t number = uniform(warp, op.s[0], mask);
  if (number > 15) {
    fault(warp, op, std::countr_zero(mask), fmt::format("there is no barrier {}", number));
    return false;
  }
  NamedBarrier& barrier = blocks_[static_cast<std::size_t>(warp.block)].named[number];
  const std::uint32_t count = op.s[1] == kNoRef ? 0 : uniform(warp, op.s[1], mask);
  if (barrier.arrived > 0 && barrier.expected != count) {
    fault(warp, op, std::countr_zero(mask), fmt::format("barrier {} is used by {} threads and by {}", number, barrier.expected, count));
    return false;
  }
  barrier.expected = count;
  barrier.arrived += static_cast<std::uint32_t>(std::popcount(self->mask));
  barrier.warps.push_back(id);
  if (races_) {
    races_->step(id);
    races_->barrier_arrive(id, self->mask, op.line, warp.block, RaceDetector::kNamedBarrier + number);
  }
  if (op.kind == Kind::bar) {
    self->state = State::bar;
    self->barrier = static_cast<int>(number);
  } else {
    ++self->pc;
  }
  if (barrier.arrived >= (count == 0 ? blocks_[static_cast<std::size_t>(warp.block)].live_threads : count))
    release_named(barrier, static_cast<int>(number));
  return false;
}

// ---- mbarriers -------------------------------------------------------------------------------------------------------------

Mbarrier* Machine::barrier_at(Warp& warp, const Op& op, int lane, int block, std::uint32_t address) {
  auto& all = blocks_[static_cast<std::size_t>(block)].mbarriers;
  const auto found = all.find(address);
  if (found != all.end()) return &found->second;
  fault(warp, op, lane, fmt::format("there is no initialised mbarrier at shared {:#x}", address));
  return nullptr;
}

void Machine::complete(int block, std::uint32_t address, Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  if (races_) races_->barrier_complete(block, address);
  for (const int id : barrier.waiting) {
    Warp& warp = warps_[static_cast<std::size_t>(id)];
    for (Fragment& f : warp.fragments)
      if (f.state == State::mbarrier && f.barrier == static_cast<int>(address) && f.block == block) wake(warp, f);
    queue(id);
  }
  barrier.waiting.clear();
  ++progress_;
}

/// Each lane waits for the barrier it names. Those whose barrier has not turned sleep until it does, and run the instruction again.
bool Machine::mbarrier_wait(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  struct Group {
    std::uint32_t lanes = 0, passed = 0, address = 0;
    int block = 0;
    Mbarrier* barrier = nullptr;
  } groups[32];
  std::size_t count = 0;
  std::uint32_t passed = 0;
  std::uint64_t addresses[32];
  (op.wide_address ? lanes_.address64 : lanes_.address32)(addresses, at<void>(warp, op.address), static_cast<std::uint64_t>(op.offset), mask);
  for (std::uint32_t rest = mask; rest != 0; rest &= ~groups[count++].lanes) {
    Group& group = groups[count];
    const int lane = std::countr_zero(rest);
    std::uint32_t same = 0, turned = 0;
    for (std::size_t i = 0; i < 32; ++i) same |= static_cast<std::uint32_t>(addresses[i] == addresses[lane]) << i;
    group.lanes = same & rest;
    if (!shared_address(warp, op, lane, addresses[lane], &group.block, &group.address)) return false;
    group.barrier = barrier_at(warp, op, lane, group.block, group.address);
    if (group.barrier == nullptr) return false;
    const std::uint32_t phase = group.barrier->phase;
    if (op.mode == 1) {
      const auto* parity = at<std::uint32_t>(warp, op.s[0]);
      for (std::size_t i = 0; i < 32; ++i) turned |= ((phase ^ parity[i]) & 1u) << i;
    } else {
      const auto* state = at<std::uint64_t>(warp, op.s[0]);
      for (std::size_t i = 0; i < 32; ++i) turned |= static_cast<std::uint32_t>(phase != state[i]) << i;
    }
    group.passed = turned & group.lanes;
    passed |= group.passed;
  }
  if (passed != mask && !forced_) {
    for (const Group& group : std::span(groups, count)) {
      const std::uint32_t late = group.lanes & ~group.passed;
      if (late == 0) continue;
      Fragment& waiting = late == f.mask ? f : split(warp, f, late);
      waiting.state = State::mbarrier;
      waiting.barrier = static_cast<int>(group.address);
      waiting.block = group.block;
      group.barrier->waiting.push_back(id);
    }
    return false;
  }
  std::uint32_t& p = warp.predicates[static_cast<std::size_t>(op.predicate_out)];
  p = (p & ~mask) | passed;
  if (races_ && passed != 0) {
    races_->step(id);
    for (const Group& group : std::span(groups, count))
      if (group.passed != 0) races_->barrier_wait(id, group.passed, op.line, group.block, group.address);
  }
  return true;
}

bool Machine::mbarrier(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  if (races_) races_->step(id);
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto i = static_cast<std::size_t>(lane);
    int block = 0;
    std::uint32_t address = 0;
    if (!shared_address(warp, op, lane, address_of(warp, op.address, op.offset, op.wide_address, lane), &block, &address)) return false;
    if (op.kind == Kind::mbarrier_init) {
      const Block& owner = blocks_[static_cast<std::size_t>(block)];
      const std::uint32_t count = at<std::uint32_t>(warp, op.s[0])[i];
      if (address % 8 != 0 || address < kSharedBase || address - kSharedBase + 8 > owner.shared.size() || count < 1 || count >= (1u << 20)) {
        fault(warp, op, lane, fmt::format("an mbarrier of {} arrivals at shared {:#x}", count, address));
        return false;
      }
      blocks_[static_cast<std::size_t>(block)].mbarriers[address] = Mbarrier{count, count, 0, 0, {}};
      if (races_) races_->barrier_init(id, lane, op.line, block, address);
      continue;
    }
    Mbarrier* barrier = barrier_at(warp, op, lane, block, address);
    if (barrier == nullptr) return false;
    switch (op.kind) {
      case Kind::mbarrier_inval: blocks_[static_cast<std::size_t>(block)].mbarriers.erase(address); break;
      case Kind::mbarrier_expect: barrier->bytes += at<std::uint32_t>(warp, op.s[0])[i]; break;
      default: {
        std::uint32_t count = 1;
        if (op.mode == 1) barrier->bytes += at<std::uint32_t>(warp, op.s[0])[i];
        else if (op.s[0] != kNoRef) count = at<std::uint32_t>(warp, op.s[0])[i];
        if (count < 1 || count > barrier->pending) {
          fault(warp, op, lane, fmt::format("{} arrivals at the mbarrier at shared {:#x}, which expects {} more in phase {}", count, address,
                                            barrier->pending, barrier->phase));
          return false;
        }
        if (op.d[0] != kNoRef) at<std::uint64_t>(warp, op.d[0])[i] = barrier->phase;
        barrier->pending -= count;
        if (races_) races_->barrier_arrive(id, 1u << lane, op.line, block, address);
        complete(block, address, *barrier);
      }
    }
  }
  f.acted = true;
  ++progress_;
  return true;
}

// ---- asynchronous copies ---------------------------------------------------------------------------------------------------

/// cp.async and the arrivals behind it: in order of issue within a warp.
bool Machine::start_copy(Warp& warp, int id, const Op& op, std::uint32_t mask) {
  Copy copy;
  copy.warp = id;
  copy.block = warp.block;
  copy.mask = mask;
  copy.line = op.line;
  copy.arrival = op.kind == Kind::cp_mbarrier_arrive;
  copy.bytes = copy.arrival ? 0 : static_cast<std::uint32_t>(op.offset3);
  copy.due = report_.warp_instructions + random(2000);
  if (races_) races_->step(id);
  Touched from;
  if (!copy.arrival && !locate(warp, op, PtxSpace::global, op.address2, op.offset2, true, mask, static_cast<int>(copy.bytes), false, &from)) return false;
  std::uint64_t to[32];
  (op.wide_address ? lanes_.address64 : lanes_.address32)(to, at<void>(warp, op.address), static_cast<std::uint64_t>(op.offset), mask);
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto i = static_cast<std::size_t>(lane);
    int block = 0;
    if (!shared_address(warp, op, lane, to[i], &block, &copy.to[i])) return false;
    if (block != warp.block) {
      fault(warp, op, lane, "copies into another block");
      return false;
    }
    if (copy.arrival) {
      Mbarrier* barrier = barrier_at(warp, op, lane, block, copy.to[i]);
      if (barrier == nullptr) return false;
      if (op.mode == 0) ++barrier->pending;   // without .noinc the arrival is one more
    } else {
      copy.from[i] = from.addresses[i];
      if (copy.to[i] % copy.bytes != 0) {
        fault(warp, op, lane, fmt::format("writes {} bytes at shared {:#x}, which is not aligned to them", copy.bytes, copy.to[i]));
        return false;
      }
      if (!in_shared(warp, op, lane, blocks_[static_cast<std::size_t>(block)], copy.to[i], copy.bytes, "writes")) return false;
    }
    copy.group[i] = warp.committed[i];
    if (races_) copy.handles[i] = races_->async_begin(id, lane, op.line, false, warp.block, copy.to[i]);
  }
  copy.run = !copy.arrival && from.run && lanes_.spread(to, to[0], 32 * copy.bytes, copy.bytes).run;
  if (warp.copies.empty()) {
    copying_.push_back(id);
    next_due_ = std::min(next_due_, copy.due);
  }
  warp.copies.push_back(copy);
  ++progress_;
  return true;
}

bool Machine::start_bulk(Warp& warp, int id, const Op& op, std::uint32_t mask) {
  if (races_) races_->step(id);
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Copy copy;
    copy.bulk = true;
    copy.warp = id;
    copy.mask = 1u << lane;
    copy.line = op.line;
    copy.bytes = at<std::uint32_t>(warp, op.s[0])[lane];
    copy.from[0] = address_of(warp, op.address2, op.offset2, true, lane);
    int barrier_block = 0;
    if (!shared_address(warp, op, lane, address_of(warp, op.address, op.offset, op.wide_address, lane), &copy.block, &copy.to[0]) ||
        !shared_address(warp, op, lane, address_of(warp, op.address3, op.offset3, op.mode == 1, lane), &barrier_block, &copy.barrier))
      return false;
    const EmulatedMemory::Allocation* source = memory_.at(copy.from[0]);
    const std::uint64_t offset = EmulatedMemory::offset(copy.from[0]);
    if (copy.bytes == 0 || copy.bytes % 16 != 0 || copy.to[0] % 16 != 0 || copy.from[0] % 16 != 0) {
      fault(warp, op, lane, fmt::format("a bulk copy of {} bytes from {:#x} to shared {:#x}; all three must be multiples of 16", copy.bytes, copy.from[0], copy.to[0]));
      return false;
    }
    if (!in_shared(warp, op, lane, blocks_[static_cast<std::size_t>(copy.block)], copy.to[0], copy.bytes, "writes")) return false;
    if (source == nullptr || !source->holds(offset, copy.bytes)) {
      fault(warp, op, lane, source == nullptr ? fmt::format("reads {} bytes at {:#x}, where nothing is allocated", copy.bytes, copy.from[0])
                                              : fmt::format("reads {} bytes at offset {} of an allocation of {}", copy.bytes, offset, source->bytes));
      return false;
    }
    if (!source->written.empty() && !all_written(source->written, offset, offset + copy.bytes)) {
      fault(warp, op, lane, fmt::format("copies {} bytes at global {:#x}, some of which were never written", copy.bytes, copy.from[0]));
      return false;
    }
    if (barrier_at(warp, op, lane, barrier_block, copy.barrier) == nullptr) return false;
    if (barrier_block != copy.block) {
      fault(warp, op, lane, "completes on an mbarrier of another block than it writes to");
      return false;
    }
    copy.due = report_.warp_instructions + random(4000);
    if (races_) copy.handle = races_->async_begin(id, lane, op.line, true, copy.block, copy.barrier);
    next_due_ = std::min(next_due_, copy.due);
    bulk_copies_.push_back(copy);
  }
  ++progress_;
  return true;
}

bool Machine::wait_copies(Warp& warp, Fragment& f, const Op& op, std::uint32_t mask) {
  for (const Copy& copy : warp.copies) {
    if (copy.arrival) continue;
    for (std::uint32_t rest = mask & copy.mask; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
      // wait_group N: all but the N latest groups; wait_all: also what no group holds yet.
      if (op.mode == 0 || static_cast<std::int64_t>(copy.group[lane]) < static_cast<std::int64_t>(warp.committed[lane]) - op.offset) {
        f.state = State::copies;
        return false;
      }
    }
  }
  f.acted = true;
  if (races_) {
    const auto id = static_cast<int>(&warp - warps_.data());
    races_->step(id);
    races_->async_wait(id, mask, op.mode == 0 ? -1 : static_cast<int>(op.offset));
  }
  return true;
}

void Machine::finish(Copy& copy) {
  Warp& warp = warps_[static_cast<std::size_t>(copy.warp)];
  Block& block = blocks_[static_cast<std::size_t>(copy.block)];
  const auto move = [&](std::uint64_t from, std::uint32_t to, std::uint32_t bytes, int handle) {
    const std::uint32_t begin = to - kSharedBase;
    std::memcpy(block.shared.data() + begin, memory_.at(from)->data + EmulatedMemory::offset(from), bytes);
    mark_written(block.written, begin, begin + bytes);
    if (races_) races_->async_move(handle, from, to, static_cast<int>(bytes));
  };
  ++progress_;
  if (copy.bulk) {
    move(copy.from[0], copy.to[0], copy.bytes, copy.handle);
    const auto found = block.mbarriers.find(copy.barrier);
    if (found == block.mbarriers.end()) return;
    found->second.bytes -= copy.bytes;
    if (races_) races_->async_complete(copy.handle, copy.block, copy.barrier), races_->async_end(copy.handle);
    complete(copy.block, copy.barrier, found->second);
    return;
  }
  if (copy.run && !races_) {
    move(copy.from[0], copy.to[0], 32 * copy.bytes, -1);
    copy.mask = 0;
  }
  for (std::uint32_t rest = copy.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto i = static_cast<std::size_t>(lane);
    if (!copy.arrival) {
      move(copy.from[i], copy.to[i], copy.bytes, copy.handles[i]);
      if (races_) races_->async_end(copy.handles[i]);
      continue;
    }
    const auto found = block.mbarriers.find(copy.to[i]);
    if (found == block.mbarriers.end() || found->second.pending == 0) {
      if (!failed_) {
        failed_ = true;
        report_.error = fmt::format("PTX line {}: the arrival behind copies of block {}, warp {}, lane {} finds no mbarrier that expects it at shared {:#x}",
                                    copy.line, warp.block, warp.index, lane, copy.to[i]);
      }
      return;
    }
    --found->second.pending;
    if (races_) races_->async_complete(copy.handles[i], copy.block, copy.to[i]), races_->async_end(copy.handles[i]);
    complete(copy.block, copy.to[i], found->second);
  }
  for (Fragment& f : warp.fragments) {
    if (f.state != State::copies) continue;
    wake(warp, f);
    queue(copy.warp);
  }
}

/// Copies that are due; with `first`, the earliest one even if it is not (nothing else can move).
/// Lets land what is due; `first`: at least the next one.
void Machine::finish_copies(bool first) {
  if (!copying()) return;
  std::uint64_t now = report_.warp_instructions;
  if (first) now = std::max(now, next_due_);
  if (now < next_due_) return;
  next_due_ = ~std::uint64_t{0};
  for (std::size_t i = 0; i < bulk_copies_.size();) {
    if (bulk_copies_[i].due > now) {
      next_due_ = std::min(next_due_, bulk_copies_[i++].due);
      continue;
    }
    Copy due = bulk_copies_[i];
    bulk_copies_[i] = bulk_copies_.back();
    bulk_copies_.pop_back();
    finish(due);
  }
  for (std::size_t i = 0; i < copying_.size();) {
    Warp& warp = warps_[static_cast<std::size_t>(copying_[i])];
    while (!warp.copies.empty() && warp.copies.front().due <= now) {
      finish(warp.copies.front());
      warp.copies.pop_front();
    }
    if (warp.copies.empty()) {
      copying_[i] = copying_.back();
      copying_.pop_back();
    } else {
      next_due_ = std::min(next_due_, warp.copies.front().due);
      ++i;
    }
  }
}

// ---- clusters --------------------------------------------------------------------------------------------------------------

bool Machine::cluster(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  const auto which = static_cast<std::size_t>(warp.block / launch_.cluster);
  const std::uint32_t threads = static_cast<std::uint32_t>(launch_.threads * launch_.cluster);
  if (op.kind == Kind::cluster_arrive) {
    const int first = static_cast<int>(which) * launch_.cluster;   // block
    if (races_) {
      races_->step(id);
      if (op.mode == 0) races_->barrier_arrive(id, mask, op.line, first, RaceDetector::kClusterBarrier);
    }
    std::uint32_t& arrived = cluster_arrived_[which];
    f.barrier = static_cast<int>(cluster_phase_[which]);   // the phase a wait of these lanes is for
    arrived += static_cast<std::uint32_t>(std::popcount(mask));
    ++f.pc;
    f.acted = true;
    ++progress_;
    if (arrived < threads) return true;
    arrived = 0;
    ++cluster_phase_[which];
    if (races_) races_->barrier_complete(first, RaceDetector::kClusterBarrier);
    for (int other = first * warps_per_block_; other < (first + launch_.cluster) * warps_per_block_; ++other) {
      for (Fragment& each : warps_[static_cast<std::size_t>(other)].fragments)
        if (each.state == State::cluster) wake(warps_[static_cast<std::size_t>(other)], each), queue(other);
    }
    return true;
  }
  if (f.barrier == static_cast<int>(cluster_phase_[which])) {
    f.state = State::cluster;
    return false;
  }
  if (races_ && op.mode == 0) {
    races_->step(id);
    races_->barrier_wait(id, mask, op.line, static_cast<int>(which) * launch_.cluster, RaceDetector::kClusterBarrier);
  }
  ++f.pc;
  return true;
}

}  // namespace adamk::ptx
