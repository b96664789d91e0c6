// Race detector: which accesses of a launch are ordered by synchronisation, and which met by luck of the interleaving.
//
// Happens-before is kept in vector clocks over warps, with the lanes of a warp told apart where they must be: lane 0 that
// arrives at an mbarrier without a bar.warp.sync before it hands on its own accesses only. A second clock, "dependency", also
// follows tagged packets: who reads a packet depends on whoever wrote it. It orders a read before a later overwrite (no value
// can come out of thin air), never a write before a read. Rules for every byte:
//   packet   relaxed 64-bit accesses of global memory on both sides: never a race, orders nothing but itself
//   flag     two strong accesses of one width, at least one of them an atomic, acquire, release or (in global memory)
//            volatile: never a race
//   read     what was written must happen before it; relaxed 32-bit data behind a counter included
//   write    what was written must happen before it (a packet over a packet: or be depended on)
//            whoever read must have done so before it, or be depended on
// Asynchronous copies are agents of their own, known to others through the mbarrier or group they complete on only. What is
// not certain is taken for unordered, but for this: it is the whole warp that depends on a packet and that a packet depends
// on, as lanes exchange values by shuffles.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "adamk/ptx/module.h"

namespace adamk::ptx {

enum class AccessKind : std::uint8_t { read, write, atomic };

struct Race {
  std::string kind;           // "read after write", ...
  std::uint64_t address = 0;  // device address, or offset in the block's shared memory
  bool shared = false;
  int first_block = 0, first_warp = 0, first_lane = 0, first_line = 0;  // warps are numbered over the grid
  int second_block = 0, second_warp = 0, second_lane = 0, second_line = 0;
  bool first_async = false, second_async = false;
};

/// A launch. Warps are numbered over the grid, block by block.
class RaceDetector {
 public:
  RaceDetector(int blocks, int warps_per_block, int blocks_per_cluster = 1);
  ~RaceDetector();

  /// A warp's time: once for every instruction that touches memory or synchronises, before what it does is noted.
  void step(int warp) { ++warps_[static_cast<std::size_t>(warp)].time; }
  /// `width`: bytes of one element, `bytes`: of a lane's whole access. `constant`: nobody is to write there (.nc).
  void access(int warp, std::uint32_t mask, int line, bool shared, int block, const std::uint64_t* addresses, int width,
              int bytes, AccessKind kind, PtxOrder order, bool constant = false, PtxScope scope = PtxScope::none);

  void warp_sync(int warp, std::uint32_t mask);
  void lanes_left(int warp, std::uint32_t mask);  // the kernel
  void fence(int warp, std::uint32_t mask, PtxScope scope = PtxScope::none);
  void fence_proxy(int warp, std::uint32_t mask = ~0u);

  /// Barriers go by block and shared offset; bar and barrier.cluster (of the cluster's first block) by these, without init.
  /// To arrive hands on into the phase in progress; to pass a wait learns what the last completed phase was handed.
  static constexpr std::uint32_t kNamedBarrier = 0xf0000000u, kClusterBarrier = 0xe0000000u;
  void barrier_init(int warp, int lane, int line, int block, std::uint32_t at);
  void fence_init(int warp, std::uint32_t mask);   // fence.mbarrier_init
  void barrier_arrive(int warp, std::uint32_t mask, int line, int block, std::uint32_t at);
  void barrier_complete(int block, std::uint32_t at);
  void barrier_wait(int warp, std::uint32_t mask, int line, int block, std::uint32_t at);

  /// A copy of `lane`, into the shared memory of `block`; bulk ones complete on the mbarrier at `barrier`.
  int async_begin(int warp, int lane, int line, bool bulk, int block, std::uint32_t barrier);
  void async_move(int copy, std::uint64_t global, std::uint32_t shared, int bytes);  // lands now
  /// Bulk: this copy; else all copies of the lane before this handle was made. Into the barrier's phase in progress.
  void async_complete(int copy, int block, std::uint32_t barrier);
  void async_commit(int warp, std::uint32_t mask);
  void async_wait(int warp, std::uint32_t mask, int groups_left);  // -1: wait_all
  void async_end(int copy);

  const std::vector<Race>& races() const { return races_; }  // the first 100, one for each pair of lines

 private:
  struct Part {  // of one warp: these lanes' accesses up to `time`
    std::uint32_t warp = 0, time = 0, mask = 0;
  };
  struct Clock {
    std::vector<std::uint32_t> all;         // by warp or agent: every lane's accesses up to then
    std::vector<Part> parts;                // of some lanes, beyond that; by warp
    std::vector<std::uint32_t> dependency;  // by warp
  };
  /// What is handed on: a clock, and what `mask` of `warp` did up to `time`, all its lanes up to `synced`.
  struct Message {
    std::shared_ptr<const Clock> clock;
    std::uint32_t warp = 0, mask = 0, time = 0, synced = 0;
    PtxScope scope = PtxScope::sys;
  };
  struct Pending {  // read by relaxed loads of these lanes, not yet fenced
    Message from;
    std::uint32_t lanes = 0;
  };
  struct Own {
    Clock clock;
    std::shared_ptr<const Clock> snapshot;  // with the warp's
  };
  struct Warp {
    std::uint32_t time = 1, accessed = 0, gone = 0, owners = 0;  // owners: lanes with `own`
    Clock known;
    std::array<std::unique_ptr<Own>, 32> own;  // beyond `known`, of single lanes
    std::shared_ptr<const Clock> snapshot;     // of `known`
    std::vector<Message> fenced;               // what the lanes' last fences hand on, by mask
    std::vector<Pending> pending;
    std::vector<std::uint32_t> proxy_times;  // of its proxy fences
    Message proxied;                         // what it knew at the last one
    std::uint32_t agent = 0;                 // of its cp.async
    std::unique_ptr<std::array<std::vector<std::uint32_t>, 32>> commits;
    std::unique_ptr<std::array<std::uint32_t, 32>> awaited;
  };
  /// The earlier, the more it asks of others.
  enum How : std::uint8_t { nothing, weak, relaxed, packet, synchronising };
  struct Read {
    std::uint32_t warp : 24 = 0, how : 4 = 0, width : 4 = 0;
    std::uint32_t time = 0, mask = 0;  // time 0: none
    int line = 0;
  };
  struct Cell {
    std::uint32_t warp : 20 = 0, lane : 5 = 0, how : 3 = nothing, width : 2 = 0;  // width: its log2
    std::uint32_t located : 1 = 0, split : 1 = 0;  // has an entry in locations_; has parts
    std::uint32_t time = 0;
    int line = 0;
    std::uint32_t more = 0;  // reads by others, in reads_; of a split cell: its four parts, in parts_
    Read read;
  };
  struct Page {
    std::vector<Cell> cells;                            // 16 bytes each; empty while only read-only accesses came
    std::vector<std::shared_ptr<const Clock>> packets;  // 8 bytes each: the clock of the writer
    std::unordered_map<std::uint32_t, Read> early;      // read-only ones before all else, by warp
    std::uint32_t near_id = 0;                          // the one of these asked for last
    Read* near_early = nullptr;
  };
  struct Barrier {
    Clock current, done;
    std::uint32_t warp = ~0u, time = 0;           // of the last arrival
    std::uint32_t owner = 0, lane = 0, init = 0;  // who set it up, and when; 0: nobody has to
    std::uint32_t fenced = 0;                     // when it became visible to the asynchronous proxy; 0: not yet
    int line = 0;
  };
  struct Agent {
    int block = 0, warp = 0;
    std::uint32_t time = 0;
    std::vector<std::uint32_t> under_way;
  };
  struct Copy {
    int warp = 0, lane = 0, line = 0, block = 0;
    bool bulk = false;
    std::uint32_t id = 0, time = 0;
    Message known, proxied;
  };
  struct Now;  // an access in progress

  static bool add(Clock& into, std::uint32_t warp, std::uint32_t time, std::uint32_t mask);
  static bool join(Clock& into, const Clock& from);
  static bool join_self(Clock& into, const Message& from);
  static bool covers(const Clock& clock, std::uint32_t warp, std::uint32_t lane, std::uint32_t time);
  static bool covers(const Message& message, std::uint32_t warp, std::uint32_t lane, std::uint32_t time);
  static bool covers_dependency(const Clock& clock, std::uint32_t warp, std::uint32_t time);
  static bool depends(const Now& now, std::uint32_t warp, std::uint32_t time);
  static bool exempt(const Now& now, std::uint32_t how, std::uint32_t width);
  bool knows(Now& now, std::uint32_t of, std::uint32_t lane, std::uint32_t time) const;
  bool full(const Warp& warp, std::uint32_t mask) const { return (mask | warp.gone) == ~0u; }
  bool reaches(PtxScope scope, std::uint32_t one, std::uint32_t other) const;
  void changed(Warp& warp);
  const std::shared_ptr<const Clock>& snapshot(Warp& warp);
  void hand_on(Clock& into, std::uint32_t id, std::uint32_t mask) const;
  Message message(std::uint32_t id, std::uint32_t mask);
  void acquire(std::uint32_t id, std::uint32_t mask, const Clock& clock, const Message* self);
  Now now_of(std::uint32_t id, std::uint32_t mask, int line);
  void check_init(const Barrier& barrier, std::uint32_t id, std::uint32_t mask, int line, std::uint32_t at);

  Page& page(bool shared, int block, std::uint64_t address);
  Read& early_of(Page& page, std::uint32_t id);
  Cell* cells_of(Page& page);
  void split(Cell& cell);
  void merge(Cell& cell);
  void read(Now& now, Page& page, Cell& cell);
  void read_slowly(Now& now, Page& page, Cell& cell);
  void write(Now& now, Page& page, Cell& cell);
  template <bool writes, class Each>
  void over(Now& now, Cell& cell, unsigned size, std::uint64_t address, unsigned bytes, Each each);
  void check_proxy(Now& now, const Copy& copy, const Cell& cell);
  void note_read(Cell& cell, const Read& read, const Clock* known);
  void keep_read(Cell& cell, const Read& read);
  void check_read(Now& now, const Read& read);
  void receive(std::uint32_t id, std::uint32_t mask, std::uint64_t key, PtxOrder order, PtxScope scope);
  void publish(std::uint32_t id, std::uint32_t lane, std::uint64_t key, Cell& cell, AccessKind kind, PtxOrder order,
               PtxScope scope);
  void report(const char* kind, const Now& now, std::uint32_t first, std::uint32_t first_lane, int first_line);
  std::uint32_t agent(std::uint64_t key, int block, int warp);

  int warps_per_block_, blocks_per_cluster_;
  std::uint32_t warp_count_;
  std::vector<Warp> warps_;
  std::vector<Agent> agents_;  // numbered behind the warps
  std::unordered_map<std::uint64_t, std::uint32_t> agent_ids_;
  std::unordered_map<std::uint64_t, Page> pages_;
  std::array<std::pair<std::uint64_t, Page*>, 64> near_pages_{};
  std::vector<std::vector<Read>> reads_;
  std::deque<std::array<Cell, 4>> parts_;
  std::vector<std::uint32_t> free_reads_, free_parts_;
  std::unordered_map<std::uint64_t, Message> locations_;  // what a strong write there hands on
  std::unordered_map<std::uint64_t, Barrier> barriers_;
  std::vector<Copy> copies_;
  std::vector<int> free_copies_;
  std::set<std::pair<int, int>> seen_;
  std::vector<Race> races_;
};

}  // namespace adamk::ptx
