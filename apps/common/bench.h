// `adamk-run bench`: the times of an artifact's decode steps at several positions and launch lengths.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <vector>

#include "adamk/base/result.h"
#include "common/artifact_flags.h"
#include "common/command.h"

namespace adamk {

struct BenchFlags {
  ArtifactFlags artifact;
  std::vector<std::int64_t> positions = {0};
  std::vector<int> steps = {0};
  int repeat = 100;
  std::uint64_t seed = 1;
  bool unverified = false, no_cupti = false;
};

void add_bench_flags(CLI::App& app, BenchFlags& flags);

/// Verifies at every position, then times every position with every number of steps, one after the other, and the read
/// ceiling of the device in the same process. Fails where a launch does not fit the context, before anything is timed.
Result<void> run_bench(const BenchFlags& flags, const CommonOptions& options);

}  // namespace adamk
