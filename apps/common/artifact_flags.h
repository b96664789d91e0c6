// What the commands over an exported artifact share: where it is, the weights it was made from, and the check before any time
// is shown.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/weights.h"
#include "adamk/profile/compare.h"
#include "adamk/profile/timing.h"
#include "adamk/runtime/artifact.h"
#include "adamk/runtime/decoder.h"
#include "common/command.h"
#include "common/device_choice.h"
#include "common/weights_flags.h"

namespace adamk {

struct ArtifactFlags {
  std::string folder;
  WeightsFlags weights;
  DeviceChoice device;
  bool skip_weight_hashes = false;

  ArtifactChecks checks() const { return skip_weight_hashes ? ArtifactChecks::skip_weights : ArtifactChecks::all; }
};

void add_artifact_flags(CLI::App& app, ArtifactFlags& flags);

/// The manifest's deployment, which must be the one the recipe names.
Result<Deployment> deployment_of(const Artifact& artifact);

/// --model or --random-weights, else the seed the artifact itself was made from.
WeightsFlags weights_flags(const ArtifactFlags& flags, const Artifact& artifact);
WeightsOrigin weights_origin(const WeightsFlags& weights);

/// The weights the artifact was packed from, as the reference reads them.
Result<Weights> weights_of(const ArtifactFlags& flags, const Artifact& artifact, const Deployment& deployment);

struct CheckBeforeTiming {
  std::vector<std::int64_t> positions;   // where logits are compared
  std::uint64_t seed = 1;
  bool unverified = false;   // --unverified: the user wants to see it all the same
};
/// No time is shown of a kernel that was not found correct. Says what stands behind the figures.
Result<std::string> check_before_timing(const ArtifactFlags& flags, const Artifact& artifact, Decoder& decoder,
                                        const CheckBeforeTiming& check, const CommonOptions& options);

/// What a reader of the figures should know: why CUPTI was not used, launches discarded at a low clock.
void note_timing(const Timing& timing, const CommonOptions& options);

}  // namespace adamk
