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

bool Machine::touch(Warp& warp, const Op& op, int lane, int bytes, bool write, Place* place, Touched* touched) {
  const std::uint64_t address = address_of(warp, op.address, op.offset, op.wide_address, lane);
  if (!find(warp, op, lane, op.space, address, bytes, write, place)) return false;
  touched->addresses[lane] = place->address;
  if (place->address != 0) touched->any = true, touched->shared = place->shared;
  if (place->shared) touched->block = place->block;
  return true;
}

void Machine::note(int id, std::uint32_t mask, const Op& op, int bytes, const Touched& touched, AccessKind kind) {
  if (!races_ || !touched.any) return;
  races_->step(id);
  races_->access(id, mask, op.line, touched.shared, touched.block, touched.addresses, op.width, bytes, kind, op.order, op.mode == 1, op.scope);
}

bool Machine::load(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  const int bytes = op.width * op.vector;
  Touched touched;
  touched.block = warp.block;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto i = static_cast<std::size_t>(lane);
    Place place;
    if (!touch(warp, op, lane, bytes, false, &place, &touched)) return false;
    for (unsigned e = 0; e < op.vector; ++e) {
      if (op.d[e] == kNoRef) continue;
      const std::uint8_t* from = place.data + e * op.width;
      switch (op.width) {
        case 8: std::memcpy(&at<std::uint64_t>(warp, op.d[e])[i], from, 8); break;
        case 4: std::memcpy(&at<std::uint32_t>(warp, op.d[e])[i], from, 4); break;
        case 2: {
          std::uint16_t v = 0;
          std::memcpy(&v, from, 2);
          at<std::uint32_t>(warp, op.d[e])[i] = is_signed(op.type) ? static_cast<std::uint32_t>(static_cast<std::int16_t>(v)) : v;
          break;
        }
        default: at<std::uint32_t>(warp, op.d[e])[i] = is_signed(op.type) ? static_cast<std::uint32_t>(static_cast<std::int8_t>(*from)) : *from;
      }
    }
    if (strong(op.order) && !place.shared) {   // what a wait in a loop would look at
      std::uint64_t value = 0;
      std::memcpy(&value, place.data, static_cast<std::size_t>(std::min(bytes, 8)));
      f.loads += mixed(place.address + static_cast<std::uint64_t>(op.line), value + 1);
      if (f.watched.empty() || f.watched.back() != place.address / 128) f.watched.push_back(place.address / 128);
    }
  }
  if (strong(op.order)) f.polled = true;
  note(id, mask, op, bytes, touched, AccessKind::read);
  return true;
}

bool Machine::store(Warp& warp, int id, Fragment& f, const Op& op, std::uint32_t mask) {
  const int bytes = op.width * op.vector;
  Touched touched;
  touched.block = warp.block;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto i = static_cast<std::size_t>(lane);
    Place place;
    if (!touch(warp, op, lane, bytes, true, &place, &touched)) return false;
    for (unsigned e = 0; e < op.vector; ++e) {
      if (op.s[e] == kNoRef) continue;
      const void* from = op.width == 8 ? static_cast<const void*>(&at<std::uint64_t>(warp, op.s[e])[i]) : &at<std::uint32_t>(warp, op.s[e])[i];
      std::memcpy(place.data + e * op.width, from, op.width);
    }
    if (!place.shared && place.address != 0) memory_changed(place.address);
  }
  f.acted = true;
  ++progress_;
  note(id, mask, op, bytes, touched, AccessKind::write);
  return true;
}

/// Whoever sleeps over this line looks again.
void Machine::memory_changed(std::uint64_t address) {
  ++global_writes_;
  if (watchers_.empty()) return;
  const auto found = watchers_.find(address / 128);
  if (found == watchers_.end()) return;
  for (const int warp : found->second) {
    for (Fragment& f : warps_[static_cast<std::size_t>(warp)].fragments)
      if (f.state == State::poll) f.state = State::ready, f.acted = true;
    queue(warp);
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
