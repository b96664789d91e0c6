// Race detector: which accesses of a launch are ordered by synchronisation, and which met by luck of the interleaving.
//
// Happens-before is kept in vector clocks over warps, with the lanes of a warp told apart where they must be: lane 0 that arrives
// at an mbarrier without a bar.warp.sync before it hands on its own accesses only. A second clock, "dependency", also follows
// tagged packets: who reads a packet depends on whoever wrote it. It orders a read before a later overwrite (no value can come out
// of thin air), never a write before a read. Rules for a 4-byte granule:
//   packet   a relaxed 64-bit access on both sides: never a race, orders nothing but itself
//   flag     a relaxed, volatile or acquire read of what an atomic wrote: a poll, never a race
//   read     what was written must happen before it; relaxed data behind a counter included
//   write    what was written must happen before it or be depended on; so must every read
// Asynchronous copies are agents of their own, known to others through the mbarrier or group they complete on only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "adamk/ptx/module.h"

namespace adamk::ptx {

enum class AccessKind : std::uint8_t { read, write, atomic };

struct Race {
  std::string kind;            // "read after write", ...
  std::uint64_t address = 0;   // device address, or offset in the block's shared memory
  bool shared = false;
  int first_block = 0, first_warp = 0, first_lane = 0, first_line = 0;      // warps are numbered over the grid
  int second_block = 0, second_warp = 0, second_lane = 0, second_line = 0;
  bool first_async = false, second_async = false;
};

class RaceDetector {
 public:
  RaceDetector(int blocks, int warps_per_block);

  /// A warp's time: once for every instruction that touches memory or synchronises, before what it does is noted.
  void step(int warp) { ++warps_[static_cast<std::size_t>(warp)].time; }
  /// `width`: bytes of one element, `bytes`: of a lane's whole access. `constant`: the compiler was told that nobody writes (.nc).
  void access(int warp, std::uint32_t mask, int line, bool shared, int block, const std::uint64_t* addresses, int width, int bytes,
              AccessKind kind, PtxOrder order, bool constant = false);

  void warp_sync(int warp, std::uint32_t mask);
  void block_sync(const std::vector<int>& warps);
  void fence(int warp, std::uint32_t mask);
  void fence_proxy(int warp);

  void barrier_init(int block, std::uint32_t at);
  void barrier_arrive(int warp, int lane, int block, std::uint32_t at);
  void barrier_complete(int block, std::uint32_t at);
  void barrier_wait(int warp, std::uint32_t mask, int block, std::uint32_t at);

  /// A copy of `lane`, into the shared memory of `block`; bulk ones complete on the mbarrier at `barrier`.
  int async_begin(int warp, int lane, int line, bool bulk, int block, std::uint32_t barrier);
  void async_move(int copy, std::uint64_t global, std::uint32_t shared, int bytes);   // lands now
  void async_complete(int copy, int block, std::uint32_t barrier);   // what the lane's agent has written, in the barrier's present phase
  void async_known(int warp, int lane);                              // wait_group: to this lane
  void async_end(int copy);

  const std::vector<Race>& races() const { return races_; }

 private:
  struct Entry {   // of one warp: all lanes up to `all`, lanes of `mask` up to `part`
    std::uint32_t all = 0, part = 0, mask = 0;
  };
  struct Clock {
    std::vector<Entry> order;
    std::vector<std::uint32_t> dependency;
  };
  struct Warp {
    std::uint32_t time = 1;
    Clock known;
    std::array<std::unique_ptr<Clock>, 32> own;            // beyond `known`, of single lanes
    std::shared_ptr<const Clock> fenced;                   // what its last fence hands on
    std::uint32_t fenced_lanes = 0, proxy_time = 0;
    std::map<const Clock*, std::pair<std::shared_ptr<const Clock>, std::uint32_t>> pending;   // read, not yet fenced; lanes
    std::shared_ptr<const std::vector<std::uint32_t>> snapshot;   // of its dependency clock
  };
  enum class Written : std::uint8_t { nothing, plain, packet, atomic };
  struct Read {
    std::uint32_t warp = 0, time = 0, mask = 0;
    int line = 0;
  };
  struct Cell {
    std::uint32_t warp = 0, time = 0;
    int line = 0;
    std::uint8_t lane = 0;
    Written written = Written::nothing;
    Read read;                            // time 0: none
    int more = -1;                        // reads by other warps, in reads_
  };
  struct Page {
    std::vector<Cell> cells;              // 4 bytes each; empty while only constant reads came
    std::vector<std::pair<std::shared_ptr<const std::vector<std::uint32_t>>, std::uint32_t>> packets;   // 8 bytes each
    std::map<std::uint32_t, Read> constant_reads;   // by warp
  };
  struct Barrier {
    Clock current, done;
  };
  struct Agent {
    int warp = 0, lane = 0, line = 0, block = 0;
    bool bulk = false;
    std::uint32_t id = 0, time = 0;
    std::shared_ptr<const Clock> known;
  };
  struct Who {
    std::uint32_t warp, time, mask;
    int lane, line;
  };

  static void join(Entry& into, const Entry& from);
  static void join(Clock& into, const Clock& from);
  static bool covers(const Clock& clock, std::uint32_t warp, int lane, std::uint32_t time);
  bool knows(int warp, int lane, std::uint32_t of, int of_lane, std::uint32_t time) const;
  bool depends(const Clock& clock, std::uint32_t warp, std::uint32_t time) const;
  Clock released(int warp, std::uint32_t mask) const;
  void acquire(int warp, std::uint32_t mask, const Clock& clock);
  Page& page(bool shared, int block, std::uint64_t address);
  void read(int warp, int lane, int line, Page& page, std::size_t cell, std::uint64_t address, bool shared, int block, bool packet, PtxOrder order);
  void write(int warp, int lane, int line, Page& page, std::size_t cell, std::uint64_t address, bool shared, int block, bool packet,
             AccessKind kind);
  void note_read(Cell& cell, const Read& read, const Clock* reader);
  template <class Known>
  void check_reads(const Cell& cell, Known known, const std::string& kind, const Race& second);
  void report(const char* kind, std::uint32_t first_warp, int first_lane, int first_line, Race second);
  void order_location(int warp, int lane, std::uint64_t key, AccessKind kind, PtxOrder order);
  std::uint32_t agent(std::uint64_t key);
  int block_of(std::uint32_t warp) const;

  int warps_per_block_;
  std::uint32_t warp_count_;
  std::vector<Warp> warps_;
  std::vector<int> agent_blocks_;
  std::vector<std::uint32_t> agent_times_;
  std::unordered_map<std::uint64_t, std::uint32_t> agents_;
  std::unordered_map<std::uint64_t, Page> pages_;
  std::uint64_t last_page_key_ = ~std::uint64_t{0};
  Page* last_page_ = nullptr;
  std::vector<std::vector<Read>> reads_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Clock>> locations_;   // what a strong write there hands on
  std::unordered_map<std::uint64_t, Barrier> barriers_;
  std::vector<Agent> copies_;
  std::vector<int> free_copies_;
  std::set<std::pair<int, int>> seen_;
  std::vector<Race> races_;
};

}  // namespace adamk::ptx
