// EmulatedDevice: a Device without a GPU. Kernels are PTX, run by the emulator (libptx) with its checks: what a launch does wrong
// (a race, a deadlock, an access out of bounds, a read of what was never written) is the error of its synchronize().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adamk/dag/target.h"
#include "adamk/ptx/emulator.h"
#include "adamk/ptx/listing.h"
#include "adamk/runtime/device.h"

namespace adamk {

struct EmulatedDeviceOptions {
  std::uint64_t seed = 1;       // of the interleavings; every launch takes another
  bool detect_races = true;
  std::uint64_t most_instructions = 0;   // warp instructions of a launch, which is then given up; 0: no limit
};

/// What an emulated device has run so far.
struct EmulationSummary {
  std::uint64_t launches = 0, warp_instructions = 0, races = 0;
  double seconds = 0;           // of the host
};

class EmulatedDevice : public Device {
 public:
  /// With the limits of `target`.
  static std::unique_ptr<EmulatedDevice> make(const Target& target, const EmulatedDeviceOptions& options = {});
  virtual EmulationSummary summary() const = 0;
  /// Of the latest launch.
  virtual const EmulatorReport& report() const = 0;
};

/// What NVRTC compiles for it: "compute_90a".
std::string ptx_arch(const Target& target);

/// What a message can say beyond numbers of blocks, lines and addresses.
struct EmulationNames {
  std::map<int, PtxLine> lines;                                // of the kernel's PTX
  std::vector<std::pair<std::string, DeviceAddress>> buffers;  // where each begins
};

/// A race, deadlock or fault in words: where, who, and for a wait the stage, SM and role its watchdog names. Empty when all is well.
std::string describe_emulation(const EmulatorReport& report, const EmulationNames& names = {});

}  // namespace adamk
