#include "common/artifact_flags.h"

#include "adamk/profile/verify.h"

namespace adamk {

void add_artifact_flags(CLI::App& app, ArtifactFlags& flags) {
  app.add_option("artifact", flags.folder, "Folder that adamk-export wrote")->required();
  add_weights_flags(app, flags.weights);
  add_device_flag(app, flags.device);
  app.add_flag("--skip-weight-hashes", flags.skip_weight_hashes, "Check the large files by their size only");
}

Result<Deployment> deployment_of(const Artifact& artifact) {
  const JsonView view(artifact.manifest.at("deployment"), artifact.manifest_path().string(), "deployment");
  ADAMK_TRY(Deployment deployment, deployment_from_json(view));
  if (deployment.key() != artifact.recipe.deployment_key) {
    return tl::unexpected<Error>(view.error(Errc::bad_input, "is not the deployment that the recipe names"));
  }
  return deployment;
}

WeightsFlags weights_flags(const ArtifactFlags& flags, const Artifact& artifact) {
  return flags.weights.given() ? flags.weights : flags_of_origin(artifact.weights_origin);
}

WeightsOrigin weights_origin(const WeightsFlags& weights) {
  return weights.seed ? WeightsOrigin::random : WeightsOrigin::trained;
}

Result<Weights> weights_of(const ArtifactFlags& flags, const Artifact& artifact, const Deployment& deployment) {
  const WeightsFlags source = weights_flags(flags, artifact);
  if (!source.given()) {
    return fail(Errc::bad_input, "{}: was made from a checkpoint; the reference needs it: --model FOLDER", flags.folder);
  }
  ADAMK_TRY(Weights weights, load_weights(deployment, source));
  if (weights.hash() != artifact.recipe.weights_hash) {
    return fail(Errc::bad_input, "{}: was packed from other weights than {}", flags.folder,
                source.seed ? source.origin() : source.folder);
  }
  return weights;
}

Result<std::string> check_before_timing(const ArtifactFlags& flags, const Artifact& artifact, Decoder& decoder,
                                        const CheckBeforeTiming& check, const CommonOptions& options) {
  if (check.unverified) return "no (--unverified)";
  const WeightsFlags source = weights_flags(flags, artifact);
  if (!source.given()) {
    return fail(Errc::bad_input, "{}: a time is shown of a verified kernel only, which needs the checkpoint: --model FOLDER, "
                "or --unverified to see it all the same", flags.folder);
  }
  note(options, "verifying against the reference first (--unverified skips it)");
  ADAMK_TRY(const Deployment deployment, deployment_of(artifact));
  ADAMK_TRY(const Weights weights, weights_of(flags, artifact, deployment));
  VerifyOptions wanted;
  wanted.positions = check.positions;
  wanted.greedy_tokens = 2;
  wanted.seed = check.seed;
  wanted.origin = weights_origin(source);
  ADAMK_TRY(const VerifyReport report, verify_decoder(decoder, deployment, weights, wanted));
  if (!report.passed()) return fail(Errc::check_failed, "{}: not verified: {}", flags.folder, report.failure);
  return "yes, against the reference";
}

void note_timing(const Timing& timing, const CommonOptions& options) {
  if (!timing.note.empty()) {
    note(options, timing.method == Method::events ? "timed by CUDA events: " + timing.note : timing.note);
  }
  if (timing.launches.discarded > 0) {
    note(options, fmt::format("{} launches were discarded because the SM clock was low; see docs/warnings/throttled.md",
                              timing.launches.discarded));
  }
}

}  // namespace adamk
