#include <cstring>

#include "adamk/ptx/emulator.h"

namespace adamk {
namespace {

constexpr int kSlotShift = 36;
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kSlotShift) - 1;
constexpr std::uint8_t kPoison = 0xA5;

void set_bits(std::vector<std::uint64_t>& bits, std::uint64_t begin, std::uint64_t end) {
  for (; begin < end && begin % 64 != 0; ++begin) bits[begin / 64] |= std::uint64_t{1} << (begin % 64);
  for (; begin + 64 <= end; begin += 64) bits[begin / 64] = ~std::uint64_t{0};
  for (; begin < end; ++begin) bits[begin / 64] |= std::uint64_t{1} << (begin % 64);
}

}  // namespace

EmulatedMemory::EmulatedMemory() = default;
EmulatedMemory::~EmulatedMemory() = default;

std::uint64_t EmulatedMemory::allocate(std::int64_t bytes) {
  Allocation fresh;
  fresh.bytes = bytes;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  fresh.own = std::make_unique_for_overwrite<std::uint8_t[]>(size);
  std::memset(fresh.own.get(), kPoison, size);
  fresh.data = fresh.own.get();
  fresh.written.assign((size + 63) / 64, 0);
  allocations_.push_back(std::move(fresh));
  return static_cast<std::uint64_t>(allocations_.size()) << kSlotShift;
}

std::uint64_t EmulatedMemory::map(void* host, std::int64_t bytes) {
  Allocation fresh;
  fresh.bytes = bytes;
  fresh.data = static_cast<std::uint8_t*>(host);
  allocations_.push_back(std::move(fresh));
  return static_cast<std::uint64_t>(allocations_.size()) << kSlotShift;
}

EmulatedMemory::Allocation* EmulatedMemory::at(std::uint64_t address) {
  const std::uint64_t slot = address >> kSlotShift;
  if (slot == 0 || slot > allocations_.size()) return nullptr;
  Allocation& found = allocations_[slot - 1];
  return found.data == nullptr ? nullptr : &found;
}
const EmulatedMemory::Allocation* EmulatedMemory::at(std::uint64_t address) const {
  return const_cast<EmulatedMemory*>(this)->at(address);
}

void EmulatedMemory::release(std::uint64_t address) {
  if (Allocation* found = at(address)) *found = Allocation{};
}

Result<void> EmulatedMemory::write(std::uint64_t to, std::span<const std::byte> from) {
  Allocation* found = at(to);
  const std::uint64_t offset = to & kOffsetMask;
  if (found == nullptr || offset + from.size() > static_cast<std::uint64_t>(found->bytes))
    return fail(Errc::bad_input, "a copy of {} bytes to {:#x} does not fit an allocation of the emulated device", from.size(), to);
  if (!from.empty()) std::memcpy(found->data + offset, from.data(), from.size());
  if (!found->written.empty()) set_bits(found->written, offset, offset + from.size());
  return {};
}

Result<void> EmulatedMemory::read(std::span<std::byte> to, std::uint64_t from) const {
  const Allocation* found = at(from);
  const std::uint64_t offset = from & kOffsetMask;
  if (found == nullptr || offset + to.size() > static_cast<std::uint64_t>(found->bytes))
    return fail(Errc::bad_input, "a copy of {} bytes from {:#x} does not fit an allocation of the emulated device", to.size(), from);
  if (!to.empty()) std::memcpy(to.data(), found->data + offset, to.size());
  return {};
}

Result<void> EmulatedMemory::fill(std::uint64_t to, std::uint8_t byte, std::int64_t bytes) {
  Allocation* found = at(to);
  const std::uint64_t offset = to & kOffsetMask;
  if (found == nullptr || bytes < 0 || offset + static_cast<std::uint64_t>(bytes) > static_cast<std::uint64_t>(found->bytes))
    return fail(Errc::bad_input, "a fill of {} bytes at {:#x} does not fit an allocation of the emulated device", bytes, to);
  std::memset(found->data + offset, byte, static_cast<std::size_t>(bytes));
  if (!found->written.empty()) set_bits(found->written, offset, offset + static_cast<std::uint64_t>(bytes));
  return {};
}

}  // namespace adamk
