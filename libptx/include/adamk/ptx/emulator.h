// The emulator: runs the PTX of a kernel on the CPU, all blocks, warps and lanes of a grid at once, as the PTX ISA 9.0 says.
// Memory is sequentially consistent; what a GPU need not order is found by the race detector instead. Waits that can never
// end are found as soon as nothing moves any more, and named. Every interleaving follows from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/ptx/module.h"

namespace adamk {

/// Device memory. An access outside an allocation, or a read of what was never written, is an error that names both.
/// Addresses are never used twice.
class EmulatedMemory {
 public:
  EmulatedMemory();
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  std::uint64_t allocate(std::int64_t bytes);
  /// Memory that the caller owns and both sides see; it counts as written. Must outlive its release.
  std::uint64_t map(void* host, std::int64_t bytes);
  void release(std::uint64_t address);
  Result<void> write(std::uint64_t to, std::span<const std::byte> from);
  Result<void> read(std::span<std::byte> to, std::uint64_t from) const;   // what was never written reads as 0xA5
  Result<void> fill(std::uint64_t to, std::uint8_t byte, std::int64_t bytes);

  struct Allocation {
    std::uint8_t* data = nullptr;          // null: free
    std::int64_t bytes = 0;
    std::unique_ptr<std::uint8_t[]> own;
    std::vector<std::uint64_t> written;    // one bit a byte; empty: all of it
    bool holds(std::uint64_t offset, std::uint64_t size) const { return offset + size <= static_cast<std::uint64_t>(bytes); }
  };
  /// Address bits 36 and up number the allocation, those below are the offset in it.
  static constexpr int slot_shift = 36;
  static constexpr std::uint64_t offset(std::uint64_t address) { return address & ((std::uint64_t{1} << slot_shift) - 1); }
  /// Null when nothing lies there.
  Allocation* at(std::uint64_t address);
  const Allocation* at(std::uint64_t address) const;

 private:
  std::vector<Allocation> allocations_;
};

struct EmulatorLaunch {
  int blocks = 1, threads = 32;            // threads: a multiple of 32
  int cluster = 1;                         // blocks of a cluster
  std::int64_t shared_bytes = 0;           // dynamic
  std::vector<std::byte> params;           // of the entry, laid out as the kernel declares them
};

struct EmulatorOptions {
  std::uint64_t seed = 1;                  // of the interleaving
  bool detect_races = true;
  std::uint64_t most_instructions = 0;     // warp instructions after which a run is given up; 0: no limit
  /// When nothing moves any more, waits are answered "not yet" and calls of this function are recorded with their arguments
  /// (a kernel's own watchdog says where it waits); then time is let pass, so that the watchdog ends the launch.
  std::string watchdog;
};

/// A wait that never ends.
struct EmulatorWait {
  int block = 0, warp = 0;
  std::uint32_t lanes = 0;
  int line = 0;                            // of the PTX
  std::string what;                        // "mbarrier.try_wait on shared 0x408, phase 3, 7 of 8 arrivals missing"
  std::vector<std::uint32_t> arguments;    // of the watchdog, 4-byte words in order of its parameters; empty when it was not called
};

/// Two accesses to one address that nothing orders.
struct EmulatorRace {
  struct Access {
    int block = 0, warp = 0, lane = 0;     // the warp within its block
    int line = 0;                          // of the PTX
    bool async = false;                    // by a copy that the lane started there
  };
  std::string kind;                        // "read after write", ...
  std::uint64_t address = 0;               // of device memory, or an offset in the block's shared memory
  bool shared = false;
  Access first, second;                    // as they came
};

struct EmulatorReport {
  bool completed = false;                  // every thread left the kernel in good order
  std::string error;                       // the first fault: out of bounds, never written, misuse of an instruction
  std::vector<EmulatorWait> deadlock;      // who waits, when nothing moves
  std::vector<EmulatorRace> races;
  std::uint64_t warp_instructions = 0;
  std::uint64_t switches = 0;              // from one warp to another
};

/// A kernel made ready to run: decoded once, run many times.
class EmulatedKernel {
 public:
  /// Fails (bad_input) naming the line of an instruction or form that is not supported.
  static Result<EmulatedKernel> make(const PtxModule& module, const std::string& entry);
  EmulatedKernel(EmulatedKernel&&) noexcept;
  EmulatedKernel& operator=(EmulatedKernel&&) noexcept;
  ~EmulatedKernel();

  /// Fails (bad_input) when the launch itself cannot be: too many threads, parameters of another size.
  Result<EmulatorReport> run(EmulatedMemory& memory, const EmulatorLaunch& launch, const EmulatorOptions& options) const;

  int register_bytes() const;              // of a warp, after registers whose lives do not overlap share their place
  struct State;

 private:
  explicit EmulatedKernel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace adamk
