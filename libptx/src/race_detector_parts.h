// What the files of the race detector share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "race_detector.h"

namespace adamk::ptx {

constexpr std::size_t kPageCells = 256;   // 4 KB
constexpr unsigned kCellBytes = 16;
constexpr std::size_t kMostRaces = 100;

inline std::uint64_t shared_key(int block, std::uint64_t address) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(block) << 32 | address;
}
inline bool acquires(PtxOrder order) { return order == PtxOrder::acquire || order == PtxOrder::acq_rel || order == PtxOrder::sc; }
inline bool releases(PtxOrder order) { return order == PtxOrder::release || order == PtxOrder::acq_rel || order == PtxOrder::sc; }
inline PtxScope narrower(PtxScope a, PtxScope b) { return a == PtxScope::none ? b : b == PtxScope::none ? a : std::min(a, b); }
constexpr std::uint32_t bit(std::uint32_t lane) { return 1u << lane; }
inline std::size_t packet_of(std::uint64_t address) { return address / 8 % (kPageCells * kCellBytes / 8); }
inline std::uint32_t first_of(std::uint32_t mask) { return static_cast<std::uint32_t>(std::countr_zero(mask)); }

inline bool raise(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& from) {
  if (into.size() < from.size()) into.resize(from.size());
  std::uint32_t* to = into.data();
  std::uint32_t more = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    more |= from[i] > to[i] ? 1u : 0u;
    to[i] = std::max(to[i], from[i]);
  }
  return more != 0;
}

/// All of a cell that says who wrote it.
template <class Cell>
std::uint64_t writing_of(const Cell& cell) {
  std::uint64_t key = 0;
  std::memcpy(&key, &cell, 8);
  return key;
}

/// An access in progress.
struct RaceDetector::Now {
  Warp* lanes = nullptr;          // null: a copy
  const Clock* known = nullptr;   // by all of its lanes
  std::uint32_t warp = 0, mask = 0;
  std::uint32_t self = 0, synced = 0;   // what each lane did up to `self` it knows, and what all did up to `synced`
  Read noted;
  std::uint64_t address = 0;
  bool shared = false, constant = false;
  std::uint32_t lane = 0;            // the one that does not know
  std::uint64_t ordered_write = 0;   // the last write and read found ordered before
  Read ordered_read;
};
}  // namespace adamk::ptx
