#include <cstring>

#include "adamk/ptx/emulator.h"
#include "written.h"

namespace adamk {
namespace {

constexpr std::uint8_t kPoison = 0xA5;

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
  return static_cast<std::uint64_t>(allocations_.size()) << slot_shift;
}

std::uint64_t EmulatedMemory::map(void* host, std::int64_t bytes) {
  Allocation fresh;
  fresh.bytes = bytes;
  fresh.data = static_cast<std::uint8_t*>(host);
  allocations_.push_back(std::move(fresh));
  return static_cast<std::uint64_t>(allocations_.size()) << slot_shift;
}

EmulatedMemory::Allocation* EmulatedMemory::at(std::uint64_t address) {
  const std::uint64_t slot = address >> slot_shift;
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
  const std::uint64_t begin = offset(to);
  if (found == nullptr || !found->holds(begin, from.size()))
    return fail(Errc::bad_input, "a copy of {} bytes to {:#x} does not fit an allocation of the emulated device", from.size(), to);
  if (!from.empty()) std::memcpy(found->data + begin, from.data(), from.size());
  if (!found->written.empty()) ptx::mark_written(found->written, begin, begin + from.size());
  return {};
}

Result<void> EmulatedMemory::read(std::span<std::byte> to, std::uint64_t from) const {
  const Allocation* found = at(from);
  const std::uint64_t begin = offset(from);
  if (found == nullptr || !found->holds(begin, to.size()))
    return fail(Errc::bad_input, "a copy of {} bytes from {:#x} does not fit an allocation of the emulated device", to.size(), from);
  if (!to.empty()) std::memcpy(to.data(), found->data + begin, to.size());
  return {};
}

Result<void> EmulatedMemory::fill(std::uint64_t to, std::uint8_t byte, std::int64_t bytes) {
  Allocation* found = at(to);
  const std::uint64_t begin = offset(to);
  if (found == nullptr || bytes < 0 || !found->holds(begin, static_cast<std::uint64_t>(bytes)))
    return fail(Errc::bad_input, "a fill of {} bytes at {:#x} does not fit an allocation of the emulated device", bytes, to);
  std::memset(found->data + begin, byte, static_cast<std::size_t>(bytes));
  if (!found->written.empty()) ptx::mark_written(found->written, begin, begin + static_cast<std::uint64_t>(bytes));
  return {};
}

}  // namespace adamk
