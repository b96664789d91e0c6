#include "machine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace adamk::ptx {
namespace {

constexpr std::uint64_t kStuck = 40'000'000;   // warp instructions without any change of memory: nothing moves any more
// One warp of a launch, of one block or of all, runs far behind whatever can run without it: then a first look at a flag finds it
// set, and what is not prevented from coming too early does.
constexpr std::uint64_t kLag = 32;
constexpr std::uint64_t kFirstClock = 1 << 20;

}  // namespace

Machine::Machine(const Program& program, EmulatedMemory& memory, const EmulatorLaunch& launch, const EmulatorOptions& options,
                 std::uint64_t globals)
    : program_(program), memory_(memory), launch_(launch), options_(options), constants_(program.constants),
      state_(mixed(options.seed, 0x5851f42d4c957f2dull) | 1), warps_per_block_(launch.threads / 32) {
  for (const auto& [ref, offset] : program.global_addresses) {
    const std::uint64_t address = globals + static_cast<std::uint64_t>(offset);
    for (std::size_t lane = 0; lane < 32; ++lane) std::memcpy(constants_.data() + (ref & ~kConstant) + 8 * lane, &address, 8);
  }
  const std::size_t shared = static_cast<std::size_t>(program.dynamic_shared - kSharedBase + launch.shared_bytes);
  blocks_.resize(static_cast<std::size_t>(launch.blocks));
  for (Block& block : blocks_) {
    block.shared.assign(shared, 0xA5);
    block.written.assign((shared + 63) / 64 + 1, 0);
    block.live_threads = static_cast<std::uint32_t>(launch.threads);
  }
  const auto clusters = static_cast<std::size_t>((launch.blocks + launch.cluster - 1) / launch.cluster);
  cluster_arrived_.assign(clusters, 0);
  cluster_phase_.assign(clusters, 0);
  warps_.resize(blocks_.size() * static_cast<std::size_t>(warps_per_block_));
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    warps_[i].block = static_cast<int>(i) / warps_per_block_;
    warps_[i].index = static_cast<int>(i) % warps_per_block_;
    start_warp(warps_[i]);
    queue(static_cast<int>(i));
  }
  const int lags = static_cast<int>(random(static_cast<std::uint64_t>(warps_per_block_)));
  const int where = random(2) == 0 ? -1 : static_cast<int>(random(blocks_.size()));
  for (Warp& warp : warps_) warp.laggard = warp.index == lags && (where < 0 || warp.block == where);
  if (options.detect_races) races_ = std::make_unique<RaceDetector>(launch.blocks, warps_per_block_, launch.cluster);
}

void Machine::start_warp(Warp& warp) {
  warp.registers.assign(program_.register_bytes, 0);
  warp.predicates.assign(static_cast<std::size_t>(program_.predicates), 0);
  warp.predicates[1] = ~0u;
  warp.local.assign(static_cast<std::size_t>(program_.local_bytes) * 32, 0xA5);
  warp.fragments.reserve(96);
  warp.fragments.emplace_back();
  warp.fragments[0].mask = ~0u;
  warp.fragments[0].pc = program_.entry;
  const auto block = static_cast<std::uint32_t>(warp.block), cluster = static_cast<std::uint32_t>(launch_.cluster);
  const auto blocks = static_cast<std::uint32_t>(launch_.blocks);
  for (const auto& [unit, name] : program_.specials) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      std::uint32_t v = 0;
      if (name == "%tid.x") v = static_cast<std::uint32_t>(warp.index) * 32 + lane;
      else if (name == "%ntid.x") v = static_cast<std::uint32_t>(launch_.threads);
      else if (name == "%ctaid.x" || name == "%smid") v = block;
      else if (name == "%nctaid.x" || name == "%nsmid") v = blocks;
      else if (name.ends_with(".y") || name.ends_with(".z")) v = name[1] == 'n' ? 1 : 0;
      else if (name == "%laneid") v = lane;
      else if (name == "%warpid") v = static_cast<std::uint32_t>(warp.index);
      else if (name == "%nwarpid") v = static_cast<std::uint32_t>(warps_per_block_);
      else if (name == "%lanemask_eq") v = 1u << lane;
      else if (name == "%lanemask_lt") v = (1u << lane) - 1;
      else if (name == "%lanemask_le") v = (2u << lane) - 1;
      else if (name == "%lanemask_gt") v = ~((2u << lane) - 1);
      else if (name == "%lanemask_ge") v = ~((1u << lane) - 1);
      else if (name == "%cluster_ctaid.x" || name == "%cluster_ctarank") v = block % cluster;
      else if (name == "%cluster_nctaid.x" || name == "%cluster_nctarank") v = cluster;
      else if (name == "%clusterid.x") v = block / cluster;
      else if (name == "%nclusterid.x") v = blocks / cluster;
      else if (name == "%dynamic_smem_size") v = static_cast<std::uint32_t>(launch_.shared_bytes);
      else if (name == "%total_smem_size") v = static_cast<std::uint32_t>(launch_.shared_bytes + program_.static_shared);
      std::memcpy(warp.registers.data() + std::size_t{unit} * 128 + 4 * lane, &v, 4);
    }
  }
}

std::uint64_t Machine::random(std::uint64_t below) {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return (state_ >> 11) % below;
}

void Machine::queue(int warp) {
  Warp& w = warps_[static_cast<std::size_t>(warp)];
  if (w.queued) return;
  w.queued = true;
  ready_.push_back(warp);
}

void Machine::fault(const Warp& warp, const Op& op, int lane, std::string what) {
  if (failed_) return;
  failed_ = true;
  if (forced_) return;   // on the way out of a deadlock: lanes that gave up leave others alone
  const auto index = static_cast<std::size_t>(&op - program_.code.data());
  report_.error = fmt::format("PTX line {}: '{}' in block {}, warp {}, lane {}: {}", op.line, program_.text[index], warp.block,
                              warp.index, lane, what);
}

EmulatorReport Machine::run() {
  std::uint64_t last_progress = 0, last_change = 0;
  while (!failed_) {
    finish_copies(false);
    if (ready_.empty() && copying()) {
      finish_copies(true);
      continue;
    }
    if (ready_.empty()) break;
    if (progress_ != last_progress) {
      last_progress = progress_;
      last_change = report_.warp_instructions;
    }
    if (report_.warp_instructions - last_change > kStuck) break;
    if (options_.most_instructions > 0 && report_.warp_instructions > options_.most_instructions) {
      report_.error = fmt::format("given up after {} warp instructions", report_.warp_instructions);
      failed_ = true;
      break;
    }
    const std::size_t pick = random(ready_.size());
    const int warp = ready_[pick];
    if (warps_[static_cast<std::size_t>(warp)].laggard && (ready_.size() > 1 || copying()) && random(kLag) != 0) {
      if (ready_.size() == 1) finish_copies(true);   // others wait for those only
      continue;
    }
    ready_[pick] = ready_.back();
    ready_.pop_back();
    warps_[static_cast<std::size_t>(warp)].queued = false;
    ++report_.switches;
    const bool lags = warps_[static_cast<std::size_t>(warp)].laggard;
    step_warp(warp, lags ? std::uint64_t{1} << random(6) : std::uint64_t{32} << (2 * random(4)));
  }
  const bool all_done = std::all_of(warps_.begin(), warps_.end(), [](const Warp& w) { return w.live == 0; });
  if (!failed_ && !all_done) find_deadlock();
  report_.completed = !failed_ && all_done;
  if (races_) {
    for (const Race& race : races_->races()) {
      report_.races.push_back({race.kind, race.address, race.shared,
                               {race.first_block, race.first_warp % warps_per_block_, race.first_lane, race.first_line, race.first_async},
                               {race.second_block, race.second_warp % warps_per_block_, race.second_lane, race.second_line, race.second_async}});
    }
  }
  return std::move(report_);
}

/// The ready fragment that lies first: lanes that have fallen behind catch up, and meet the others where paths join. It may run
/// until it comes to `next_pc` or the warp has `changed`.
Fragment* Machine::choose(Warp& warp) {
  warp.changed = false;
  warp.next_pc = std::numeric_limits<int>::max();
  std::erase_if(warp.fragments, [](const Fragment& f) { return f.mask == 0; });
  Fragment* best = nullptr;
  for (Fragment& f : warp.fragments)
    if (f.state == State::ready && (best == nullptr || f.pc < best->pc)) best = &f;
  if (best == nullptr) return nullptr;
  for (Fragment& f : warp.fragments) {
    if (&f == best || f.state != State::ready) continue;
    if (f.pc != best->pc || f.stack != best->stack) {
      warp.next_pc = std::min(warp.next_pc, f.pc);
      continue;
    }
    best->mask |= f.mask;
    best->acted = true;
    f.mask = 0;
  }
  return best;
}

void Machine::step_warp(int id, std::uint64_t instructions) {
  Warp& warp = warps_[static_cast<std::size_t>(id)];
  const std::uint64_t end = report_.warp_instructions + instructions;
  Fragment* f = choose(warp);
  const Op* code = program_.code.data();
  while (f != nullptr && report_.warp_instructions < end) {
    const Op& op = code[f->pc];
    std::uint32_t mask = f->mask;
    if (op.guard >= 0) {
      const std::uint32_t guard = warp.predicates[static_cast<std::size_t>(op.guard)];
      mask &= op.guard_negated ? ~guard : guard;
    }
    ++report_.warp_instructions;
    if (mask == 0) {
      ++f->pc;
    } else if (op.kind == Kind::lanes) {
      op.lanes(at<void>(warp, op.d[0]), at<void>(warp, op.s[0]), at<void>(warp, op.s[1]), at<void>(warp, op.s[2]),
               op.predicate_in >= 0 ? warp.predicates[static_cast<std::size_t>(op.predicate_in)] : 0, mask);
      ++f->pc;
    } else if (!execute(warp, id, *f, op, mask)) {
      if (failed_) return;
      f = choose(warp);
      continue;
    }
    if (warp.changed || f->pc >= warp.next_pc) f = choose(warp);
  }
  for (const Fragment& each : warp.fragments)
    if (each.mask != 0 && each.state == State::ready) queue(id);
}

Fragment& Machine::split(Warp& warp, Fragment& f, std::uint32_t mask) {
  Fragment fresh = f;
  fresh.mask = mask;
  f.mask &= ~mask;
  warp.fragments.push_back(std::move(fresh));
  warp.changed = true;
  return warp.fragments.back();
}

/// True: go on with the same fragment. False: fragments have changed, choose again.
bool Machine::execute(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  // What waits, or changes the path, does so for its own lanes: the others go on behind it.
  const bool separate = op.kind == Kind::mbarrier_wait || op.kind == Kind::bar || op.kind == Kind::warp_sync || op.kind == Kind::call ||
                        op.kind == Kind::ret || op.kind == Kind::cp_wait || op.kind == Kind::cluster_wait || op.kind == Kind::shfl ||
                        op.kind == Kind::vote || op.kind == Kind::match || op.kind == Kind::redux || op.kind == Kind::mma;
  if (separate && mask != f.mask) {
    ++split(warp, f, f.mask & ~mask).pc;
    return false;   // `f` may have moved; it holds just `mask` now
  }
  Fragment* self = &f;
  std::vector<std::uint32_t>& p = warp.predicates;
  const auto set = [&](int which, std::uint32_t bits) {
    std::uint32_t& to = p[static_cast<std::size_t>(which)];
    to = (to & ~mask) | (bits & mask);
  };
  switch (op.kind) {
    case Kind::compare: {
      std::uint32_t bits = op.compare(at<void>(warp, op.s[0]), at<void>(warp, op.s[1])), other = ~bits;
      if (op.predicate_in >= 0) {
        std::uint32_t with = p[static_cast<std::size_t>(op.predicate_in)];
        if (op.combine_negated) with = ~with;
        const auto combined = [&](std::uint32_t v) {
          return op.predicate == PredicateOp::and_ ? v & with : op.predicate == PredicateOp::or_ ? v | with : v ^ with;
        };
        bits = combined(bits);
        other = combined(other);
      }
      set(op.predicate_out, bits);
      if (op.predicate_out2 >= 0) set(op.predicate_out2, other);
      break;
    }
    case Kind::predicate: {
      const std::uint32_t a = p[static_cast<std::size_t>(op.predicate_in)];
      const std::uint32_t b = op.predicate_in2 >= 0 ? p[static_cast<std::size_t>(op.predicate_in2)] : 0;
      switch (op.predicate) {
        case PredicateOp::copy: set(op.predicate_out, op.combine_negated ? ~a : a); break;
        case PredicateOp::not_: set(op.predicate_out, ~a); break;
        case PredicateOp::and_: set(op.predicate_out, a & b); break;
        case PredicateOp::or_: set(op.predicate_out, a | b); break;
        case PredicateOp::xor_: set(op.predicate_out, a ^ b); break;
      }
      break;
    }
    case Kind::clock: {
      const std::uint64_t now = kFirstClock + report_.warp_instructions / blocks_.size() + idle_time_;
      for (std::size_t lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        if (op.width == 8) at<std::uint64_t>(warp, op.d[0])[lane] = now;
        else at<std::uint32_t>(warp, op.d[0])[lane] = static_cast<std::uint32_t>(now);
      }
      break;
    }
    case Kind::pack:
    case Kind::unpack:
      for (std::size_t lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const bool wide = op.width * op.vector == 8;
        const unsigned bits = 8u * op.width;
        const std::uint64_t part_mask = (std::uint64_t{1} << bits) - 1;
        if (op.kind == Kind::unpack) {
          const std::uint64_t whole = wide ? at<std::uint64_t>(warp, op.s[0])[lane] : at<std::uint32_t>(warp, op.s[0])[lane];
          for (unsigned i = 0; i < op.vector; ++i)
            if (op.d[i] != kNoRef) at<std::uint32_t>(warp, op.d[i])[lane] = static_cast<std::uint32_t>(whole >> (bits * i) & part_mask);
        } else {
          std::uint64_t whole = 0;
          for (unsigned i = 0; i < op.vector; ++i) whole |= (at<std::uint32_t>(warp, op.s[i])[lane] & part_mask) << (bits * i);
          if (wide) at<std::uint64_t>(warp, op.d[0])[lane] = whole;
          else at<std::uint32_t>(warp, op.d[0])[lane] = static_cast<std::uint32_t>(whole);
        }
      }
      break;
    case Kind::mma: {
      if (!gather(warp, self, ~0u, true)) return false;
      if (self->mask != ~0u) {
        fault(warp, op, 0, "needs all 32 lanes, but some have left the kernel");
        return false;
      }
      void* d[4];
      const void *a[4] = {}, *b[2] = {}, *c[4];
      for (std::size_t i = 0; i < 4; ++i) d[i] = at<void>(warp, op.d[i]), c[i] = at<void>(warp, op.s[6 + i]);
      for (std::size_t i = 0; i < op.vector; ++i) a[i] = at<void>(warp, op.s[i]);
      for (std::size_t i = 0; i < op.vector / 2u; ++i) b[i] = at<void>(warp, op.s[4 + i]);
      op.mma(d, a, b, c);
      ++self->pc;
      return self == &f;
    }
    case Kind::shfl: {
      const std::uint32_t wanted = uniform(warp, op.s[3], mask);
      if (!gather(warp, self, wanted, true) || !shuffle(warp, op, self->mask)) return false;
      ++self->pc;
      return self == &f;
    }
    case Kind::vote:
    case Kind::match:
    case Kind::redux: {
      const std::uint32_t wanted = uniform(warp, op.s[3], mask);
      if (!gather(warp, self, wanted, true) || !vote(warp, op, self->mask)) return false;
      ++self->pc;
      return self == &f;
    }
    case Kind::activemask:
      for (std::size_t lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) at<std::uint32_t>(warp, op.d[0])[lane] = mask;
      break;
    case Kind::address_of_rank:
      for (std::size_t lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const std::uint64_t rank = at<std::uint32_t>(warp, op.s[1])[lane] + std::uint64_t{1};
        constexpr std::uint64_t kOffset = (std::uint64_t{1} << kRankShift) - 1;
        if (op.width == 8) at<std::uint64_t>(warp, op.d[0])[lane] = (at<std::uint64_t>(warp, op.s[0])[lane] & (kSharedWindow | kOffset)) | rank << kRankShift;
        else at<std::uint32_t>(warp, op.d[0])[lane] = static_cast<std::uint32_t>((at<std::uint32_t>(warp, op.s[0])[lane] & kOffset) | rank << kRankShift);
      }
      break;
    case Kind::load: if (!load(warp, id, f, op, mask)) return false; break;
    case Kind::store: if (!store(warp, id, f, op, mask)) return false; break;
    case Kind::atomic: if (!atomic(warp, id, f, op, mask)) return false; break;
    case Kind::ldmatrix:
    case Kind::stmatrix: if (!matrix(warp, id, op, mask)) return false; break;
    case Kind::param_load:
    case Kind::param_store:
      for (std::size_t lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        for (unsigned i = 0; i < op.vector; ++i) {
          const std::uint32_t step = op.width == 8 ? 256 : 128;
          std::uint32_t* low = &at<std::uint32_t>(warp, op.address + i * step)[lane];
          std::uint32_t* high = op.width == 8 ? &at<std::uint32_t>(warp, op.address + i * step + 128)[lane] : nullptr;
          const Ref ref = op.kind == Kind::param_load ? op.d[i] : op.s[i];
          if (ref == kNoRef) continue;
          if (op.kind == Kind::param_load) {
            if (high != nullptr) at<std::uint64_t>(warp, ref)[lane] = std::uint64_t{*high} << 32 | *low;
            else at<std::uint32_t>(warp, ref)[lane] = *low;
          } else if (high != nullptr) {
            const std::uint64_t v = at<std::uint64_t>(warp, ref)[lane];
            *low = static_cast<std::uint32_t>(v);
            *high = static_cast<std::uint32_t>(v >> 32);
          } else {
            *low = at<std::uint32_t>(warp, ref)[lane];
          }
        }
      }
      break;
    case Kind::warp_sync: {
      const std::uint32_t wanted = uniform(warp, op.s[3], mask);
      if (!gather(warp, self, wanted, false)) return false;
      if (races_) races_->step(id), races_->warp_sync(id, wanted);
      ++self->pc;
      return self == &f && warp.fragments.size() == 1;
    }
    case Kind::bar:
    case Kind::bar_arrive: return named_barrier(warp, id, f, op, mask);
    case Kind::cluster_arrive:
    case Kind::cluster_wait: return cluster(warp, id, f, op, mask);
    case Kind::fence:
      if (races_) races_->step(id), races_->fence(id, mask, op.scope);
      break;
    case Kind::fence_proxy:
      if (races_) races_->step(id), races_->fence_proxy(id, mask);
      break;
    case Kind::fence_init:
      if (races_) races_->step(id), races_->fence_init(id, mask);
      break;
    case Kind::nothing: break;
    case Kind::mbarrier_init:
    case Kind::mbarrier_inval:
    case Kind::mbarrier_arrive:
    case Kind::mbarrier_expect:
      if (!mbarrier(warp, id, f, op, mask)) return false;
      break;
    case Kind::cp_async:
    case Kind::cp_mbarrier_arrive:
      if (!start_copy(warp, id, op, mask)) return false;
      f.acted = true;
      break;
    case Kind::mbarrier_wait:
      if (!mbarrier_wait(warp, id, f, op, mask)) return false;
      break;
    case Kind::cp_bulk:
      if (!start_bulk(warp, id, op, mask)) return false;
      f.acted = true;
      break;
    case Kind::cp_commit:
      for (std::size_t lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) ++warp.committed[lane];
      if (races_) races_->async_commit(id, mask);
      break;
    case Kind::cp_wait: if (!wait_copies(warp, f, op, mask)) return false; break;
    case Kind::branch: {
      branch(warp, f, op, mask);
      if (f.state != State::ready) return false;
      return true;
    }
    case Kind::call: call(warp, f, op, mask); return true;
    case Kind::ret: {
      if (f.stack.empty()) {
        fault(warp, op, std::countr_zero(mask), "returns from nowhere");
        return false;
      }
      const int back = f.stack.back();
      f.stack.pop_back();
      const Call& from = program_.calls[static_cast<std::size_t>(program_.code[static_cast<std::size_t>(back - 1)].target)];
      const FunctionInfo& callee = program_.functions[static_cast<std::size_t>(from.function)];
      for (std::size_t i = 0; i < from.results.size(); ++i)
        lanes_.mov32(at<void>(warp, from.results[i]), at<void>(warp, callee.return_words[i]), nullptr, nullptr, 0, mask);
      f.pc = back;
      return true;
    }
    case Kind::exit: leave(warp, id, f, mask); return false;
    case Kind::trap: fault(warp, op, std::countr_zero(mask), "trap"); return false;
    case Kind::lanes: break;
  }
  ++f.pc;
  return true;
}

void Machine::branch(Warp& warp, Fragment& f, const Op& op, std::uint32_t mask) {
  const bool back = op.target <= f.pc;
  if (mask == f.mask) {
    f.pc = op.target;
    if (back) loop_turn(f, static_cast<int>(&warp - warps_.data()));
    return;
  }
  Fragment& taken = split(warp, f, mask);
  ++f.pc;
  taken.pc = op.target;
  if (back) loop_turn(taken, static_cast<int>(&warp - warps_.data()));
}

/// At the end of a turn of a loop: one that loaded what the turn before it had loaded, and did nothing else, waits for memory
/// to change. It sleeps until something it looked at is written.
void Machine::loop_turn(Fragment& f, int warp) {
  // A write between its loads and now would wake nobody: then it looks once more.
  if (f.polled && !f.acted && f.loads == f.last_loads && f.seen_writes == global_writes_ && !forced_) {
    f.state = State::poll;
    for (const std::uint64_t line : f.watched) watchers_[line].push_back(warp);
    f.last_loads = 0;
  } else {
    f.last_loads = f.loads;
  }
  f.loads = 0;
  f.polled = f.acted = false;
  f.seen_writes = global_writes_;
  f.watched.clear();
}

void Machine::call(Warp& warp, Fragment& f, const Op& op, std::uint32_t mask) {
  const Call& call = program_.calls[static_cast<std::size_t>(op.target)];
  const FunctionInfo& callee = program_.functions[static_cast<std::size_t>(call.function)];
  for (std::size_t i = 0; i < call.arguments.size(); ++i)
    lanes_.mov32(at<void>(warp, callee.param_words[i]), at<void>(warp, call.arguments[i]), nullptr, nullptr, 0, mask);
  if (forced_ && !options_.watchdog.empty() && callee.name.find(options_.watchdog) != std::string::npos && warp.watchdog.empty()) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(mask));
    for (const Ref word : callee.param_words) warp.watchdog.push_back(at<std::uint32_t>(warp, word)[lane]);
    warp.watchdog_lanes = mask;
  }
  f.stack.push_back(f.pc + 1);
  f.pc = callee.begin;
}

void Machine::leave(Warp& warp, int id, Fragment& f, std::uint32_t mask) {
  Block& block = blocks_[static_cast<std::size_t>(warp.block)];
  f.mask &= ~mask;
  ++f.pc;
  warp.live &= ~mask;
  block.live_threads -= static_cast<std::uint32_t>(std::popcount(mask));
  ++progress_;
  for (Fragment& other : warp.fragments)   // those that waited for the lanes that are gone look again
    if (other.state == State::warp_sync) wake(warp, other);
  for (std::size_t i = 0; i < block.named.size(); ++i) {
    NamedBarrier& barrier = block.named[i];
    if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived >= block.live_threads) release_named(barrier, static_cast<int>(i));
  }
  if (races_) races_->lanes_left(id, mask);
}

std::string Machine::describe(const Warp& warp, const Fragment& f) const {
  switch (f.state) {
    case State::mbarrier: {
      const Block& block = blocks_[static_cast<std::size_t>(f.block)];
      const auto found = block.mbarriers.find(static_cast<std::uint32_t>(f.barrier));
      if (found == block.mbarriers.end()) break;
      return fmt::format("waits for mbarrier at shared {:#x}{}: phase {}, {} of {} arrivals and {} bytes missing", f.barrier,
                         f.block != warp.block ? fmt::format(" of block {}", f.block) : "", found->second.phase, found->second.pending,
                         found->second.expected, found->second.bytes);
    }
    case State::bar: {
      const NamedBarrier& barrier = blocks_[static_cast<std::size_t>(warp.block)].named[static_cast<std::size_t>(f.barrier)];
      return fmt::format("waits at barrier {}: {} threads arrived", f.barrier, barrier.arrived);
    }
    case State::warp_sync: return fmt::format("waits for lanes {:#x} of its warp", f.wanted & ~f.mask & warp.live);
    case State::poll: return "polls global memory that nobody writes";
    case State::copies: return "waits for its asynchronous copies";
    case State::cluster: return "waits for the barrier of its cluster";
    default: break;
  }
  return fmt::format("is at '{}'", program_.text[static_cast<std::size_t>(f.pc)]);
}

/// Nothing moves: note who waits, let every waiting warp run to its watchdog, then let time pass.
void Machine::find_deadlock() {
  std::vector<std::pair<std::size_t, std::size_t>> entries;   // warp, index in report
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    for (const Fragment& f : warps_[w].fragments) {
      if (f.mask == 0) continue;
      entries.emplace_back(w, report_.deadlock.size());
      report_.deadlock.push_back({warps_[w].block, warps_[w].index, f.mask, program_.code[static_cast<std::size_t>(f.pc)].line,
                                  describe(warps_[w], f), {}});
    }
  }
  if (options_.watchdog.empty()) return;
  forced_ = true;
  const auto wake_all = [&] {
    for (std::size_t w = 0; w < warps_.size(); ++w)
      for (Fragment& f : warps_[w].fragments)
        if (f.mask != 0 && (f.state == State::mbarrier || f.state == State::poll)) wake(warps_[w], f);
  };
  wake_all();
  for (std::size_t w = 0; w < warps_.size() && !failed_; ++w) {
    for (int turn = 0; turn < 64 && warps_[w].watchdog.empty() && warps_[w].live != 0 && !failed_; ++turn) step_warp(static_cast<int>(w), 1024);
  }
  for (const auto& [w, index] : entries)
    if ((report_.deadlock[index].lanes & warps_[w].watchdog_lanes) != 0) report_.deadlock[index].arguments = warps_[w].watchdog;
  idle_time_ = std::uint64_t{1} << 41;
  for (int turn = 0; turn < 4096 && !failed_; ++turn) {
    bool left = false;
    for (std::size_t w = 0; w < warps_.size() && !failed_; ++w) {
      if (warps_[w].live == 0) continue;
      left = true;
      step_warp(static_cast<int>(w), 1024);
    }
    finish_copies(true);
    if (!left) break;
  }
}

std::uint64_t Machine::address_of(Warp& warp, Ref base, std::int64_t offset, bool wide, int lane) {
  const auto i = static_cast<std::size_t>(lane);
  const std::uint64_t from = wide ? at<std::uint64_t>(warp, base)[i] : at<std::uint32_t>(warp, base)[i];
  const std::uint64_t sum = from + static_cast<std::uint64_t>(offset);
  return wide ? sum : sum & 0xffffffffu;
}

std::uint32_t Machine::uniform(Warp& warp, Ref ref, std::uint32_t mask) {
  return at<std::uint32_t>(warp, ref)[std::countr_zero(mask)];
}

}  // namespace adamk::ptx

namespace adamk {

struct EmulatedKernel::State {
  ptx::Program program;
};

EmulatedKernel::EmulatedKernel(std::unique_ptr<State> state) : state_(std::move(state)) {}
EmulatedKernel::EmulatedKernel(EmulatedKernel&&) noexcept = default;
EmulatedKernel& EmulatedKernel::operator=(EmulatedKernel&&) noexcept = default;
EmulatedKernel::~EmulatedKernel() = default;

Result<EmulatedKernel> EmulatedKernel::make(const PtxModule& module, const std::string& entry) {
  ADAMK_TRY(ptx::Program program, ptx::decode(module, entry));
  return EmulatedKernel(std::make_unique<State>(State{std::move(program)}));
}

int EmulatedKernel::register_bytes() const { return static_cast<int>(state_->program.register_bytes); }

Result<EmulatorReport> EmulatedKernel::run(EmulatedMemory& memory, const EmulatorLaunch& launch, const EmulatorOptions& options) const {
  const ptx::Program& program = state_->program;
  if (launch.blocks < 1 || launch.threads < 32 || launch.threads > 1024 || launch.threads % 32 != 0)
    return fail(Errc::bad_input, "a launch of {} blocks of {} threads; at least one block, of 32 to 1024 threads in whole warps",
                launch.blocks, launch.threads);
  if (launch.cluster < 1 || launch.cluster > 16 || launch.blocks % launch.cluster != 0)
    return fail(Errc::bad_input, "clusters of {} blocks do not divide a grid of {}", launch.cluster, launch.blocks);
  if (launch.shared_bytes < 0 || launch.shared_bytes > (1 << 20))
    return fail(Errc::bad_input, "{} bytes of shared memory", launch.shared_bytes);
  if (static_cast<std::int64_t>(launch.params.size()) != program.param_bytes)
    return fail(Errc::bad_input, "{} bytes of parameters, but the kernel declares {}", launch.params.size(), program.param_bytes);
  std::uint64_t globals = 0;
  if (program.global_bytes > 0) {
    globals = memory.allocate(program.global_bytes);
    for (const auto& [offset, bytes] : program.globals)
      ADAMK_CHECK(memory.write(globals + static_cast<std::uint64_t>(offset), std::as_bytes(std::span(bytes))));
  }
  ptx::Machine machine(program, memory, launch, options, globals);
  EmulatorReport report = machine.run();
  if (globals != 0) memory.release(globals);
  return report;
}

}  // namespace adamk
