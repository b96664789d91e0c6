// What of a memory has been written, one bit a byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace adamk::ptx {

/// Of `bytes` (at most 16, aligned to themselves): the bits in word offset / 64.
inline std::uint64_t written_bits(std::uint64_t offset, int bytes) { return ((std::uint64_t{1} << bytes) - 1) << (offset % 64); }

inline void mark_written(std::vector<std::uint64_t>& bits, std::uint64_t begin, std::uint64_t end) {
  for (; begin < end && begin % 64 != 0; ++begin) bits[begin / 64] |= std::uint64_t{1} << (begin % 64);
  for (; begin + 64 <= end; begin += 64) bits[begin / 64] = ~std::uint64_t{0};
  for (; begin < end; ++begin) bits[begin / 64] |= std::uint64_t{1} << (begin % 64);
}

inline bool all_written(const std::vector<std::uint64_t>& bits, std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const std::uint64_t next = std::min(end, (begin / 64 + 1) * 64), count = next - begin;
    const std::uint64_t wanted = (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << (begin % 64);
    if ((bits[begin / 64] & wanted) != wanted) return false;
    begin = next;
  }
  return true;
}

}  // namespace adamk::ptx
