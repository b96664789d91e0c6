// Loads, stores and atomics of the machine: bounds, alignment, what was never written, and the order of accesses.
#include <algorithm>
#include <bit>
#include <cstring>

#include "machine.h"
#include "written.h"

namespace adamk::ptx {
namespace {

bool strong(PtxOrder order) { return order != PtxOrder::weak; }

template <class T>
T combined(AtomicOp op, T old, T a, T b) {
  switch (op) {
    case AtomicOp::add: return static_cast<T>(old + a);
    case AtomicOp::inc: return old >= a ? T{0} : static_cast<T>(old + 1);
    case AtomicOp::dec: return old == 0 || old > a ? a : static_cast<T>(old - 1);
    case AtomicOp::min: return std::min(old, a);
    case AtomicOp::max: return std::max(old, a);
    case AtomicOp::and_: return old & a;
    case AtomicOp::or_: return old | a;
    case AtomicOp::xor_: return old ^ a;
    case AtomicOp::exch: return a;
    case AtomicOp::cas: return old == a ? b : old;
    case AtomicOp::add_f32: break;
  }
  return old;
}

template <class T>
T updated(const Op& op, T old, T a, T b) {
  if (op.atomic == AtomicOp::add_f32) return static_cast<T>(std::bit_cast<std::uint32_t>(std::bit_cast<float>(static_cast<std::uint32_t>(old)) + std::bit_cast<float>(static_cast<std::uint32_t>(a))));
  using S = std::make_signed_t<T>;
  if (is_signed(op.type) && (op.atomic == AtomicOp::min || op.atomic == AtomicOp::max))
    return static_cast<T>(combined<S>(op.atomic, static_cast<S>(old), static_cast<S>(a), static_cast<S>(b)));
  return combined<T>(op.atomic, old, a, b);
}

}  // namespace

bool Machine::shared_address(Warp& warp, const Op& op, int lane, std::uint64_t address, int* block, std::uint32_t* offset) {
  if (address >= kSharedWindow && address < kParamWindow) address -= kSharedWindow;
  const std::uint64_t rank = address >> kRankShift;
  *block = warp.block;
  if (rank != 0) {
    if (rank > static_cast<std::uint64_t>(launch_.cluster)) {
      fault(warp, op, lane, fmt::format("{:#x} is no shared address of its cluster", address));
      return false;
    }
    *block = warp.block - warp.block % launch_.cluster + static_cast<int>(rank) - 1;
  }
  *offset = static_cast<std::uint32_t>(address & ((std::uint64_t{1} << kRankShift) - 1));
  return true;
}

bool Machine::in_shared(Warp& warp, const Op& op, int lane, const Block& block, std::uint32_t offset, std::uint64_t bytes, const char* verb) {
  if (offset >= kSharedBase && offset - kSharedBase + bytes <= block.shared.size()) return true;
  fault(warp, op, lane, fmt::format("{} {} bytes at shared {:#x}; the block has [{:#x}, {:#x})", verb, bytes, offset, kSharedBase,
                                    kSharedBase + block.shared.size()));
  return false;
}

bool Machine::find(Warp& warp, const Op& op, int lane, PtxSpace space, std::uint64_t address, int bytes, bool write, Place* place) {
  const char* verb = write ? "writes" : "reads";
  if (address % static_cast<std::uint64_t>(bytes) != 0) {
    fault(warp, op, lane, fmt::format("{} {} bytes at {:#x}, which is not aligned to them", verb, bytes, address));
    return false;
  }
  if (space == PtxSpace::shared || (space == PtxSpace::generic && address >= kSharedWindow && address < kParamWindow)) {
    std::uint32_t offset = 0;
    if (!shared_address(warp, op, lane, address, &place->block, &offset)) return false;
    Block& block = blocks_[static_cast<std::size_t>(place->block)];
    if (!in_shared(warp, op, lane, block, offset, static_cast<std::uint64_t>(bytes), verb)) return false;
    place->offset = offset - kSharedBase;
    place->data = block.shared.data() + place->offset;
    place->written = &block.written;
    place->shared = true;
    place->address = offset;
  } else if (space == PtxSpace::local || (space == PtxSpace::generic && address >= kLocalWindow && address < kFirstGlobal)) {
    const std::uint64_t offset = address >= kLocalWindow ? address - kLocalWindow : address;
    if (offset + static_cast<std::uint64_t>(bytes) > static_cast<std::uint64_t>(program_.local_bytes)) {
      fault(warp, op, lane, fmt::format("{} {} bytes at local {:#x}; a thread has {}", verb, bytes, offset, program_.local_bytes));
      return false;
    }
    *place = {warp.local.data() + static_cast<std::size_t>(program_.local_bytes) * static_cast<std::size_t>(lane) + offset, nullptr, 0, false, -1, 0};
    return true;
  } else if (space == PtxSpace::param || (space == PtxSpace::generic && address >= kParamWindow && address < kLocalWindow)) {
    const std::uint64_t offset = address >= kParamWindow ? address - kParamWindow : address;
    if (write || offset + static_cast<std::uint64_t>(bytes) > launch_.params.size()) {
      fault(warp, op, lane, fmt::format("{} {} bytes at parameter offset {}; the kernel has {} bytes, read-only", verb, bytes, offset, launch_.params.size()));
      return false;
    }
    *place = {const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(launch_.params.data())) + offset, nullptr, 0, false, -1, 0};
    return true;
  } else {
    EmulatedMemory::Allocation* allocation = memory_.at(address);
    const std::uint64_t offset = EmulatedMemory::offset(address);
    if (allocation == nullptr || !allocation->holds(offset, static_cast<std::uint64_t>(bytes))) {
      fault(warp, op, lane, allocation == nullptr
                                ? fmt::format("{} {} bytes at {:#x}, where nothing is allocated", verb, bytes, address)
                                : fmt::format("{} {} bytes at offset {} of an allocation of {}", verb, bytes, offset, allocation->bytes));
      return false;
    }
    place->offset = offset;
    place->data = allocation->data + offset;
    place->written = allocation->written.empty() ? nullptr : &allocation->written;
    place->shared = false;
    place->block = -1;
    place->address = address;
  }
  if (place->written != nullptr) {
    std::uint64_t& word = (*place->written)[place->offset / 64];
    const std::uint64_t bits = written_bits(place->offset, bytes);
    if (write) {
      word |= bits;
    } else if ((word & bits) != bits) {
      fault(warp, op, lane, fmt::format("reads {} bytes at {} {:#x} that were never written", bytes, place->shared ? "shared" : "global", place->address));
      return false;
    }
  }
  return true;
}

/// The common case: all lanes in the shared memory of their block, or in one allocation. False: lane by lane, which also words faults.
bool Machine::locate_together(Warp& warp, PtxSpace space, std::uint32_t mask, std::uint64_t bytes, bool write, Touched* touched) {
  const std::uint64_t* addresses = touched->addresses;
  const std::uint64_t first = addresses[std::countr_zero(mask)];
  std::uint8_t* data = nullptr;
  std::vector<std::uint64_t>* written = nullptr;
  std::uint64_t base = 0, size = 0;
  if (space == PtxSpace::shared) {
    Block& block = blocks_[static_cast<std::size_t>(warp.block)];
    data = block.shared.data();
    written = &block.written;
    base = kSharedBase;
    size = block.shared.size();
    touched->shared = mask;
  } else if ((space == PtxSpace::global || space == PtxSpace::generic) && first >= kFirstGlobal) {
    EmulatedMemory::Allocation* allocation = memory_.at(first);
    if (allocation == nullptr) return false;
    data = allocation->data;
    if (!allocation->written.empty()) written = &allocation->written;
    base = first - EmulatedMemory::offset(first);
    size = static_cast<std::uint64_t>(allocation->bytes);
    touched->global = mask;
  } else {
    return false;
  }
  const Spread spread = lanes_.spread(addresses, base, size, bytes);
  if (size < bytes || !spread.inside || !spread.aligned) return false;
  touched->together = true;
  touched->run = spread.run && mask == ~0u;
  if (written != nullptr) {
    const std::uint64_t begin = first - base;
    std::uint64_t missing = 0;
    if (touched->run) {
      if (write) mark_written(*written, begin, begin + 32 * bytes);
      else missing = all_written(*written, begin, begin + 32 * bytes) ? 0 : 1;
    } else {
      for (std::uint32_t rest = spread.same ? mask & -mask : mask; rest != 0; rest &= rest - 1) {
        const std::uint64_t at = addresses[std::countr_zero(rest)] - base, bits = written_bits(at, static_cast<int>(bytes));
        std::uint64_t& word = (*written)[at / 64];
        if (write) word |= bits;
        else missing |= bits & ~word;
      }
    }
    if (missing != 0) return false;
  }
  for (std::size_t i = 0; i < 32; ++i) touched->data[i] = data + (addresses[i] - base);
  return true;
}

bool Machine::locate(Warp& warp, const Op& op, PtxSpace space, Ref base, std::int64_t offset, bool wide, std::uint32_t mask, int bytes,
                     bool write, Touched* touched) {
  (wide ? lanes_.address64 : lanes_.address32)(touched->addresses, at<void>(warp, base), static_cast<std::uint64_t>(offset), mask);
  if (locate_together(warp, space, mask, static_cast<std::uint64_t>(bytes), write, touched)) return true;
  touched->global = touched->shared = 0;
  touched->together = touched->run = false;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Place place;
    if (!find(warp, op, lane, space, touched->addresses[lane], bytes, write, &place)) return false;
    touched->addresses[lane] = place.address;
    touched->data[lane] = place.data;
    touched->blocks[lane] = place.block;
    if (place.address != 0) (place.shared ? touched->shared : touched->global) |= 1u << lane;
  }
  return true;
}

void Machine::note(Warp& warp, int id, const Op& op, int bytes, const Touched& touched, AccessKind kind) {
  if (!races_ || (touched.global | touched.shared) == 0) return;
  races_->step(id);
  const auto tell = [&](std::uint32_t lanes, bool shared, int block) {
    races_->access(id, lanes, op.line, shared, block, touched.addresses, op.width, bytes, kind, op.order, op.mode == 1, op.scope);
  };
  if (touched.global != 0) tell(touched.global, false, warp.block);
  for (std::uint32_t rest = touched.shared; rest != 0;) {
    std::uint32_t lanes = rest;
    int block = warp.block;
    if (!touched.together) {
      block = touched.blocks[std::countr_zero(rest)];
      for (std::uint32_t each = rest; each != 0; each &= each - 1)
        if (touched.blocks[std::countr_zero(each)] != block) lanes &= ~(each & -each);
    }
    tell(lanes, true, block);
    rest &= ~lanes;
  }
}

namespace {

/// Between registers of R, one a lane, and memory of T, `n` of them behind each other for each lane.
template <class T, class R, int n, bool writes>
void move_lanes(void* const registers[], std::uint8_t* const data[32], std::uint32_t mask) {
  const auto lane = [&](std::size_t i) {
    for (std::size_t e = 0; e < n; ++e) {
      if (registers[e] == nullptr) continue;
      R* of = static_cast<R*>(registers[e]) + i;
      T v{};
      if constexpr (writes) {
        v = static_cast<T>(*of);
        std::memcpy(data[i] + e * sizeof(T), &v, sizeof(T));
      } else {
        std::memcpy(&v, data[i] + e * sizeof(T), sizeof(T));
        *of = static_cast<R>(v);
      }
    }
  };
  if (mask == ~0u) {
    for (std::size_t i = 0; i < 32; ++i) lane(i);
  } else {
    for (; mask != 0; mask &= mask - 1) lane(static_cast<std::size_t>(std::countr_zero(mask)));
  }
}

template <class T, class R, bool writes>
void move_lanes(unsigned n, void* const registers[], std::uint8_t* const data[32], std::uint32_t mask) {
  if (n == 1) move_lanes<T, R, 1, writes>(registers, data, mask);
  else if (n == 2) move_lanes<T, R, 2, writes>(registers, data, mask);
  else move_lanes<T, R, 4, writes>(registers, data, mask);
}

template <bool writes>
void move_lanes(const Op& op, void* const registers[], std::uint8_t* const data[32], std::uint32_t mask) {
  using u32 = std::uint32_t;
  const bool extends = !writes && is_signed(op.type);
  switch (op.width) {
    case 8: return move_lanes<std::uint64_t, std::uint64_t, writes>(op.vector, registers, data, mask);
    case 4: return move_lanes<u32, u32, writes>(op.vector, registers, data, mask);
    case 2:
      if (extends) return move_lanes<std::int16_t, u32, writes>(op.vector, registers, data, mask);
      return move_lanes<std::uint16_t, u32, writes>(op.vector, registers, data, mask);
    default:
      if (extends) return move_lanes<std::int8_t, u32, writes>(op.vector, registers, data, mask);
      return move_lanes<std::uint8_t, u32, writes>(op.vector, registers, data, mask);
  }
}

}  // namespace

bool Machine::load(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  const int bytes = op.width * op.vector;
  Touched touched;
  if (!locate(warp, op, op.space, op.address, op.offset, op.wide_address, mask, bytes, false, &touched)) return false;
  void* registers[4];
  for (unsigned e = 0; e < op.vector; ++e) registers[e] = op.d[e] == kNoRef ? nullptr : at<void>(warp, op.d[e]);
  if (touched.run && op.vector == 1 && op.width >= 4 && registers[0] != nullptr) std::memcpy(registers[0], touched.data[0], 32u * op.width);
  else move_lanes<false>(op, registers, touched.data, mask);
  if (strong(op.order)) {   // what a wait in a loop would look at
    f.polled = true;
    for (std::uint32_t rest = touched.global; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      const std::uint64_t address = touched.addresses[lane];
      std::uint64_t value = 0;
      std::memcpy(&value, touched.data[lane], static_cast<std::size_t>(std::min(bytes, 8)));
      f.loads += mixed(address + static_cast<std::uint64_t>(op.line), value + 1);
      if (f.watched.empty() || f.watched.back() != address / 128) f.watched.push_back(address / 128);
    }
  }
  note(warp, id, op, bytes, touched, AccessKind::read);
  return true;
}

bool Machine::store(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  const int bytes = op.width * op.vector;
  Touched touched;
  if (!locate(warp, op, op.space, op.address, op.offset, op.wide_address, mask, bytes, true, &touched)) return false;
  void* registers[4];
  for (unsigned e = 0; e < op.vector; ++e) registers[e] = op.s[e] == kNoRef ? nullptr : at<void>(warp, op.s[e]);
  move_lanes<true>(op, registers, touched.data, mask);
  for (std::uint32_t rest = touched.global; rest != 0; rest &= rest - 1) memory_changed(touched.addresses[std::countr_zero(rest)]);
  f.acted = true;
  ++progress_;
  note(warp, id, op, bytes, touched, AccessKind::write);
  return true;
}

/// Whoever sleeps over this line looks again.
void Machine::memory_changed(std::uint64_t address) {
  ++global_writes_;
  if (watchers_.empty()) return;
  const auto found = watchers_.find(address / 128);
  if (found == watchers_.end()) return;
  for (const int id : found->second) {
    Warp& warp = warps_[static_cast<std::size_t>(id)];
    for (Fragment& f : warp.fragments)
      if (f.state == State::poll) wake(warp, f), f.acted = true;
    queue(id);
  }
  watchers_.erase(found);
}

bool Machine::atomic(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  if (races_) races_->step(id);
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto i = static_cast<std::size_t>(lane);
    Place place;
    const std::uint64_t address = address_of(warp, op.address, op.offset, op.wide_address, lane);
    if (!find(warp, op, lane, op.space, address, op.width, false, &place) || !find(warp, op, lane, op.space, address, op.width, true, &place)) return false;
    if (op.width == 8) {
      std::uint64_t old = 0;
      std::memcpy(&old, place.data, 8);
      const std::uint64_t b = op.s[1] == kNoRef ? 0 : at<std::uint64_t>(warp, op.s[1])[i];
      const std::uint64_t fresh = updated<std::uint64_t>(op, old, at<std::uint64_t>(warp, op.s[0])[i], b);
      std::memcpy(place.data, &fresh, 8);
      if (op.d[0] != kNoRef) at<std::uint64_t>(warp, op.d[0])[i] = old;
    } else {
      std::uint32_t old = 0;
      std::memcpy(&old, place.data, 4);
      const std::uint32_t b = op.s[1] == kNoRef ? 0 : at<std::uint32_t>(warp, op.s[1])[i];
      const std::uint32_t fresh = updated<std::uint32_t>(op, old, at<std::uint32_t>(warp, op.s[0])[i], b);
      std::memcpy(place.data, &fresh, 4);
      if (op.d[0] != kNoRef) at<std::uint32_t>(warp, op.d[0])[i] = old;
    }
    if (!place.shared) memory_changed(place.address);
    if (races_ && place.address != 0) {
      std::uint64_t addresses[32];
      addresses[i] = place.address;
      races_->access(id, 1u << lane, op.line, place.shared, place.shared ? place.block : warp.block, addresses, op.width, op.width,
                     AccessKind::atomic, op.order, false, op.scope);
    }
  }
  f.acted = true;
  ++progress_;
  return true;
}

/// Lanes 8 m to 8 m + 7 give the addresses of matrix m's rows; lane l holds elements 2 (l % 4) and + 1 of row l / 4, or of column
/// l / 4 when transposed (PTX ISA, "ldmatrix").
bool Machine::matrix(Warp& warp, int id, const Op& op, std::uint32_t mask) {
  if (mask != ~0u) {
    fault(warp, op, std::countr_zero(mask), "needs all 32 lanes");
    return false;
  }
  const bool load = op.kind == Kind::ldmatrix;
  std::uint64_t addresses[32];
  std::uint32_t readers = 0;
  if (races_) races_->step(id);
  for (unsigned m = 0; m < op.vector; ++m) {
    std::uint16_t rows[8][8];
    std::uint8_t* to[8];
    for (unsigned row = 0; row < 8; ++row) {
      const int lane = static_cast<int>(8 * m + row);
      Place place;
      if (!find(warp, op, lane, PtxSpace::shared, address_of(warp, op.address, op.offset, op.wide_address, lane), 16, !load, &place)) return false;
      std::memcpy(rows[row], place.data, 16);
      to[row] = place.data;
      addresses[lane] = place.address;
      readers |= 1u << lane;
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned g = lane / 4, k = 2 * (lane % 4);
      std::uint16_t* low = op.mode == 1 ? &rows[k][g] : &rows[g][k];
      std::uint16_t* high = op.mode == 1 ? &rows[k + 1][g] : &rows[g][k + 1];
      if (load) {
        at<std::uint32_t>(warp, op.d[m])[lane] = static_cast<std::uint32_t>(*high) << 16 | *low;
      } else {
        const std::uint32_t v = at<std::uint32_t>(warp, op.s[m])[lane];
        *low = static_cast<std::uint16_t>(v);
        *high = static_cast<std::uint16_t>(v >> 16);
      }
    }
    if (!load)
      for (unsigned row = 0; row < 8; ++row) std::memcpy(to[row], rows[row], 16);
  }
  if (races_)
    races_->access(id, readers, op.line, true, warp.block, addresses, 4, 16, load ? AccessKind::read : AccessKind::write, PtxOrder::weak);
  if (!load) ++progress_;
  return true;
}

}  // namespace adamk::ptx
