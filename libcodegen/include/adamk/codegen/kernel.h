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

/// What a kernel does besides decoding: nothing; or it takes the clocks of its consumers' tiles, and then decodes nothing; or it
/// records where its time goes, and decodes the same tokens a little later.
enum class Instrument { none, tiles, timeline };

/// A self-contained translation unit: it includes nothing and compiles with NVRTC or nvcc for any sm_80 or later. Pure
/// function of its arguments, byte for byte.
///
/// Instrument::tiles: a clock read at the end of every consumer tile. The loader fills the ring once, from the first
/// `schedule.smem.ring` bytes of the weights, and that is what every tile is multiplied with: results are meaningless, and nothing
/// waits for memory. Attention fused with its projection is not timed. Entries: StampLayout.
/// Instrument::timeline: the end of every stage of every warp, and its waits by what was waited for. Records: TimelineLayout.
Result<std::string> emit_source(const Deployment& deployment, const Schedule& schedule,
                                Instrument instrument = Instrument::none);

/// Where a stamped kernel leaves its clocks: 8 bytes {clocks, of them waited} at `offset` of a workspace of `bytes`,
/// [stage (StageKind)][SM][consumer warp][tile, the first `tiles`]. Attention: one entry a walk over positions, {clocks, times
/// through its loop}, at tile 0. Zeros where there was no tile.
struct StampLayout {
  static constexpr int stages = 6, tiles = 64;
  std::int64_t offset = 0, bytes = 0;
};
StampLayout stamp_layout(const Schedule& schedule);

/// Where Instrument::timeline leaves its records, 12 words of 32 bits at `records` of a workspace of `bytes`:
/// [step, the first `steps` of a launch][layer, and one behind the last][stage][SM][warp: consumers, loader, storer, launcher][word].
/// Word 0: the SM's clock at the stage's end, 0 where the warp had no part in it; then clocks waited, by cause (WaitedFor in
/// primitives.cuh), added to what was there. At `anchors` for each SM {global timer in ns, 64 bits; clock, 64 bits} at begin and end.
/// The head is stage `head` of the layer behind the last, its inputs are waited for as stage `qkv` there.
struct TimelineLayout {
  static constexpr int stages = 6, steps = 4, words = 12;
  int layers = 0, sms = 0, warps = 0;   // layers: one more than the model's
  std::int64_t anchors = 0, records = 0, bytes = 0;
};
TimelineLayout timeline_layout(const Model& model, const Schedule& schedule);

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
