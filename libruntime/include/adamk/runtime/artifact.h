// Artifact: the folder a user deploys. manifest.json, kernel.cu, kernel.cubin or kernel.ptx, weights.packed, small.packed,
// embedding.bin. Format: docs/artifact.md, schemas/artifact.schema.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/file.h"
#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/runtime/decoder.h"
#include "adamk/runtime/recipe.h"

namespace adamk {

/// What goes into an artifact. Spans are borrowed for the call.
struct ArtifactContents {
  Recipe recipe;
  std::string tool_version;
  std::string weights_origin;        // "random 1" for generated weights of that seed, "checkpoint" otherwise
  Json deployment, plan;             // as they were, for tools that explain or rebuild
  Json build = Json::object();       // how the kernel was compiled: strings by name
  Json certificate;                  // the validator's, of this plan: without one that says yes nothing is written or opened
  std::optional<Json> measured;      // the search's result for this plan, if it was measured
  std::string source;                // kernel.cu
  std::span<const std::byte> image;  // cubin, or PTX ending in a zero byte, as recipe.arch says
  std::span<const std::byte> packed, small_tensors, embedding;
};

/// Writes all files to a temporary folder beside `folder` and renames it. A folder that holds an artifact (and nothing
/// else) is replaced, an empty one is used; any other is refused (bad_input).
Result<void> write_artifact(const std::filesystem::path& folder, const ArtifactContents& contents);

enum class ArtifactChecks {
  all,           // sizes and hashes of every file, the manifest's own included
  skip_weights,  // weights.packed and embedding.bin by size only: hashing gigabytes takes seconds
};

struct ArtifactFile {
  std::int64_t bytes = 0;
  std::string hash;
};

/// An opened artifact; the weights are mapped, not read. Moves, does not copy.
struct Artifact {
  std::filesystem::path folder;
  Recipe recipe;
  std::string tool_version, weights_origin;
  Json manifest;                             // the whole of it; deployment, plan, build and measured are members
  std::map<std::string, ArtifactFile> files;
  std::vector<std::byte> image;              // as Device::load wants it
  MappedFile packed, small_tensors, embedding;

  /// Views into this artifact, for Decoder::create.
  DecoderInputs inputs() const { return {image, packed.bytes(), small_tensors.bytes(), embedding.bytes()}; }
  std::filesystem::path manifest_path() const { return folder / "manifest.json"; }
};

/// Fails (bad_input) naming the file whose size or hash is not what the manifest says, or the manifest's bad key.
Result<Artifact> open_artifact(const std::filesystem::path& folder, ArtifactChecks checks = ArtifactChecks::all);

/// Hashes every file but the manifest again.
Result<void> verify_files(const Artifact& artifact);

}  // namespace adamk
