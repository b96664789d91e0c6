// Plan -> CUDA source -> NVRTC -> Kernel.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/schedule.h"
#include "adamk/runtime/recipe.h"

namespace adamk {

/// A self-contained translation unit: it includes nothing and compiles with NVRTC or nvcc for any sm_80 or later. Pure
/// function of its arguments, byte for byte.
Result<std::string> emit_source(const Deployment& deployment, const Schedule& schedule);

/// Where a stamped kernel leaves its clocks: 8 bytes {clocks, of them waited} at `offset` of a workspace of `bytes`,
/// [stage (StageKind)][SM][consumer warp][tile, the first `tiles`]. Attention: one entry a walk over positions, {clocks, times
/// through its loop}, at tile 0. Zeros where there was no tile.
struct StampLayout {
  static constexpr int stages = 6, tiles = 64;
  std::int64_t offset = 0, bytes = 0;
};
StampLayout stamp_layout(const Schedule& schedule);

/// The same kernel with a clock read at the end of every consumer tile, to be timed by itself: its loader fills the ring
/// once, from the first `schedule.smem.ring` bytes of the weights, and that is what every tile is multiplied with: results are
/// meaningless, and nothing waits for memory. Attention fused with its projection is not timed.
Result<std::string> emit_stamped_source(const Deployment& deployment, const Schedule& schedule);

struct Kernel {
  std::string source;
  std::string arch;                    // what it was compiled for: "sm_90a", "compute_89"
  std::string ptx;
  std::vector<std::byte> cubin;        // empty for a compute_ target: the driver compiles the PTX
  int registers = 0;
  int spill_bytes = 0;                 // stores + loads
  std::string log;

  /// The cubin, or the PTX with its terminating zero.
  std::vector<std::byte> image() const;
};

/// True from `cancelled` stops the compilation at NVRTC's next chance.
using Cancel = std::function<bool()>;

/// Fails (bad_input) with the compiler's log, (machine) when NVRTC cannot be opened, (interrupted) when cancelled.
Result<Kernel> compile(const std::string& source, const std::string& arch, const Cancel& cancelled = {});

/// Major and minor version of the NVRTC in use, e.g. "13.0"; the library's path with it.
Result<std::string> nvrtc_version();

Recipe make_recipe(const Deployment& deployment, const Schedule& schedule, const Kernel& kernel);

}  // namespace adamk
