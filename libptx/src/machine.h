// Machine: one launch of a decoded program: blocks, warps, lanes, shared memory, mbarriers and copies on their way.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "adamk/ptx/emulator.h"
#include "program.h"
#include "race_detector.h"

namespace adamk::ptx {

enum class State : std::uint8_t { ready, warp_sync, bar, mbarrier, poll, copies, cluster, done };

/// Lanes of a warp that are at the same instruction with the same callers.
struct Fragment {
  std::uint32_t mask = 0;
  int pc = 0;
  State state = State::ready;
  std::vector<int> stack;                 // return addresses
  std::uint32_t wanted = 0;               // warp_sync: the lanes it waits for
  int barrier = 0;                        // bar: its number; mbarrier: shared address
  int block = 0;                          // mbarrier: of which block
  // Of the loop being run, to find a wait that makes no headway: a hash over what it loaded, and whether it changed anything.
  std::uint64_t loads = 0, last_loads = 0, seen_writes = 0;
  bool polled = false, acted = true;
  std::vector<std::uint64_t> watched;     // 128-byte lines loaded in this turn of the loop
};

struct Mbarrier {
  std::uint32_t expected = 0, pending = 0;
  std::int64_t bytes = 0;                 // still to arrive by copies
  std::uint32_t phase = 0;
  std::vector<int> waiting;               // warps
};

struct NamedBarrier {
  std::uint32_t arrived = 0, expected = 0;
  std::vector<int> warps;
};

/// A copy on its way, or an arrival that waits for a lane's copies.
struct Copy {
  std::uint64_t due = 0;
  int warp = 0, block = 0;
  std::uint32_t mask = 0;                 // cp.async: lanes
  std::array<std::uint32_t, 32> to{};
  std::array<std::uint64_t, 32> from{};
  std::array<std::uint32_t, 32> group{};
  std::uint32_t bytes = 0;
  std::uint32_t barrier = 0;              // bulk and arrivals: shared address
  bool bulk = false, arrival = false;
  bool run = false;                       // of all lanes, each from and to where the one before it ends
  int line = 0;
  int handle = -1;
  std::array<int, 32> handles{};
};

struct Warp {
  int block = 0, index = 0;               // index in the block
  std::uint32_t live = ~0u;               // lanes that have not left the kernel
  std::vector<Fragment> fragments;
  int next_pc = 0;                        // where the fragment that runs meets the next that could run
  bool changed = false;                   // fragments came, or became ready, since one was chosen
  std::vector<std::uint8_t> registers;
  std::vector<std::uint32_t> predicates;
  bool queued = false;
  bool laggard = false;                   // takes its turn rarely: what others only do ahead of it is done
  std::array<std::uint32_t, 32> committed{};   // cp.async groups closed by a lane
  std::deque<Copy> copies;                // cp.async and the arrivals behind them: they land in order
  std::vector<std::uint32_t> watchdog;    // arguments of its last call
  std::uint32_t watchdog_lanes = 0;
  std::vector<std::uint8_t> local;        // lane by lane
};

struct Block {
  std::vector<std::uint8_t> shared;       // from kSharedBase on
  std::vector<std::uint64_t> written;     // one bit a byte
  std::unordered_map<std::uint32_t, Mbarrier> mbarriers;
  std::array<NamedBarrier, 16> named{};
  std::uint32_t live_threads = 0;
};

class Machine {
 public:
  Machine(const Program& program, EmulatedMemory& memory, const EmulatorLaunch& launch, const EmulatorOptions& options,
          std::uint64_t globals);
  EmulatorReport run();

 private:
  // Scheduling (machine.cpp)
  void start_warp(Warp& warp);
  void queue(int warp);
  std::uint64_t random(std::uint64_t below);
  void step_warp(int warp, std::uint64_t instructions);   // at most so many, of whichever fragments are ready
  Fragment* choose(Warp& warp);
  bool execute(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  void branch(Warp& warp, Fragment& f, const Op& op, std::uint32_t mask);
  void loop_turn(Fragment& f, int warp_id);
  void call(Warp& warp, Fragment& f, const Op& op, std::uint32_t mask);
  void leave(Warp& warp, int warp_id, Fragment& f, std::uint32_t mask);
  void wake(Warp& warp, Fragment& f) { f.state = State::ready, warp.changed = true; }
  Fragment& split(Warp& warp, Fragment& f, std::uint32_t mask);   // lanes of `mask` become a fragment of their own
  void find_deadlock();
  std::string describe(const Warp& warp, const Fragment& f) const;
  void fault(const Warp& warp, const Op& op, int lane, std::string what);

  // Operands
  template <class T>
  T* at(Warp& warp, Ref ref) {
    return reinterpret_cast<T*>((ref & kConstant ? constants_.data() + (ref & ~kConstant) : warp.registers.data() + ref));
  }
  std::uint64_t address_of(Warp& warp, Ref base, std::int64_t offset, bool wide, int lane);
  std::uint32_t uniform(Warp& warp, Ref ref, std::uint32_t mask);

  // Memory (machine_memory.cpp)
  struct Place {
    std::uint8_t* data = nullptr;
    std::vector<std::uint64_t>* written = nullptr;   // null: all of it is
    std::uint64_t offset = 0;                        // into `written`
    bool shared = false;
    int block = 0;
    std::uint64_t address = 0;                       // as the race detector knows it
  };
  bool find(Warp& warp, const Op& op, int lane, PtxSpace space, std::uint64_t address, int bytes, bool write, Place* place);
  /// What the lanes of one instruction touch, `bytes` each.
  struct Touched {
    std::uint64_t addresses[32];                     // as the race detector knows them
    std::uint8_t* data[32];
    int blocks[32];                                  // of the lanes in `shared`, unless `together`
    std::uint32_t global = 0, shared = 0;            // lanes that touch what other threads may touch too
    bool together = false;                           // in one memory: of shared ones the own block's
    bool run = false;                                // all lanes, each where the one before it ends
  };
  bool locate(Warp& warp, const Op& op, PtxSpace space, Ref base, std::int64_t offset, bool wide, std::uint32_t mask, int bytes, bool write,
              Touched* touched);
  bool locate_together(Warp& warp, PtxSpace space, std::uint32_t mask, std::uint64_t bytes, bool write, Touched* touched);
  void note(Warp& warp, int warp_id, const Op& op, int bytes, const Touched& touched, AccessKind kind);
  bool in_shared(Warp& warp, const Op& op, int lane, const Block& block, std::uint32_t offset, std::uint64_t bytes, const char* verb);
  bool load(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  bool store(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  bool atomic(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  bool matrix(Warp& warp, int warp_id, const Op& op, std::uint32_t mask);
  void memory_changed(std::uint64_t address);

  // Synchronisation and copies (machine_sync.cpp)
  bool shuffle(Warp& warp, const Op& op, std::uint32_t mask);
  bool vote(Warp& warp, const Op& op, std::uint32_t mask);
  bool gather(Warp& warp, Fragment*& f, std::uint32_t wanted, bool same_instruction);
  bool named_barrier(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  void release_named(NamedBarrier& barrier, int number);
  bool mbarrier_wait(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  bool mbarrier(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);
  void complete(int block, std::uint32_t address, Mbarrier& barrier);
  Mbarrier* barrier_at(Warp& warp, const Op& op, int lane, int block, std::uint32_t address);
  bool shared_address(Warp& warp, const Op& op, int lane, std::uint64_t address, int* block, std::uint32_t* offset);
  bool start_copy(Warp& warp, int warp_id, const Op& op, std::uint32_t mask);
  bool start_bulk(Warp& warp, int warp_id, const Op& op, std::uint32_t mask);
  bool wait_copies(Warp& warp, Fragment& f, const Op& op, std::uint32_t mask);
  void finish_copies(bool all);
  void finish(Copy& copy);
  bool copying() const { return !bulk_copies_.empty() || !copying_.empty(); }
  bool cluster(Warp& warp, int warp_id, Fragment& f, const Op& op, std::uint32_t mask);

  const Program& program_;
  EmulatedMemory& memory_;
  const EmulatorLaunch& launch_;
  const EmulatorOptions& options_;
  const LaneOps& lanes_ = lane_ops();
  std::vector<std::uint8_t> constants_;
  std::vector<Warp> warps_;
  std::vector<Block> blocks_;
  std::vector<int> ready_;
  std::vector<std::uint32_t> cluster_arrived_, cluster_phase_;   // by cluster: threads in the phase in progress; phases completed
  std::vector<Copy> bulk_copies_;
  std::vector<int> copying_;              // warps with copies of their own
  std::uint64_t next_due_ = ~std::uint64_t{0};   // no copy lands before
  std::unordered_map<std::uint64_t, std::vector<int>> watchers_;   // 128-byte line -> warps
  std::unique_ptr<RaceDetector> races_;
  EmulatorReport report_;
  std::uint64_t state_ = 1, idle_time_ = 0;   // of the generator; clocks let pass while nothing moved
  bool failed_ = false, forced_ = false;   // forced: waits are answered "not yet" and nothing is parked
  std::uint64_t global_writes_ = 0;
  std::uint64_t progress_ = 0;            // counts what changes the state of the machine
  int warps_per_block_ = 1;
};

/// A hash of two words.
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2));
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9ull;
}

}  // namespace adamk::ptx
