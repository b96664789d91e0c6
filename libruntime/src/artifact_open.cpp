#include <algorithm>

#include "adamk/base/hash.h"
#include "adamk/runtime/artifact.h"
#include "artifact_certificate.h"
#include "artifact_format.h"
#include "artifact_seal.h"

namespace adamk {
namespace {

namespace names = artifact_format;

constexpr std::int64_t max_file_bytes = std::int64_t{1} << 40;
constexpr std::uint64_t max_manifest_bytes = 64u << 20;
constexpr std::uint64_t max_text_bytes = 256u << 20;  // of kernel.cu and the kernel's image

Result<std::string> text_at(const JsonView& object, std::string_view key) {
  ADAMK_TRY(const JsonView value, object.at(key));
  return value.text();
}

Result<std::map<std::string, ArtifactFile>> read_files(const JsonView& view, const std::string& image_name) {
  ADAMK_CHECK(view.only_keys({names::source, image_name, names::packed, names::small_tensors, names::embedding}));
  std::map<std::string, ArtifactFile> files;
  for (const std::string& name : {std::string(names::source), image_name, std::string(names::packed),
                                  std::string(names::small_tensors), std::string(names::embedding)}) {
    ADAMK_TRY(const JsonView entry, view.at(name));
    ADAMK_CHECK(entry.only_keys({"bytes", "hash"}));
    ArtifactFile file;
    ADAMK_TRY(const JsonView bytes, entry.at("bytes"));
    ADAMK_TRY(file.bytes, bytes.integer(0, max_file_bytes));
    ADAMK_TRY(file.hash, text_at(entry, "hash"));
    files.emplace(name, std::move(file));
  }
  return files;
}

/// The manifest's files against what the recipe says a kernel will read.
Result<void> check_against_recipe(const JsonView& root, const Recipe& recipe,
                                  const std::map<std::string, ArtifactFile>& files) {
  const std::pair<const char*, std::int64_t> expected[] = {{names::packed, recipe.packed_bytes},
                                                           {names::small_tensors, recipe.small_bytes},
                                                           {names::embedding, recipe.embedding_bytes}};
  for (const auto& [name, bytes] : expected) {
    const std::int64_t listed = files.at(name).bytes;
    if (listed != bytes) {
      return tl::unexpected<Error>(root.error(
          Errc::bad_input, fmt::format("files.{}.bytes: {}, recipe.bytes says {}", name, listed, bytes)));
    }
  }
  return {};
}

Result<void> check_bytes(const Artifact& artifact, const std::string& name, std::span<const std::byte> bytes,
                         bool with_hash) {
  const ArtifactFile& listed = artifact.files.at(name);
  const std::string path = (artifact.folder / name).string();
  if (static_cast<std::int64_t>(bytes.size()) != listed.bytes) {
    return fail(Errc::bad_input, "{}: {} bytes, the manifest says {}: the file is not whole; export again", path,
                bytes.size(), listed.bytes);
  }
  if (!with_hash) return {};
  const std::string hash = hash_hex(bytes);
  if (hash == listed.hash) return {};
  return fail(Errc::bad_input, "{}: hash {}, the manifest says {}: the file was changed; export again", path, hash,
              listed.hash);
}

Result<void> check_mapped(const Artifact& artifact, bool hash_weights) {
  ADAMK_CHECK(check_bytes(artifact, names::packed, artifact.packed.bytes(), hash_weights));
  ADAMK_CHECK(check_bytes(artifact, names::small_tensors, artifact.small_tensors.bytes(), true));
  return check_bytes(artifact, names::embedding, artifact.embedding.bytes(), hash_weights);
}

/// kernel.cu is checked though only the image is run: a source that does not belong to the image misleads whoever reads it.
Result<void> check_source(const Artifact& artifact) {
  ADAMK_TRY(const std::string source, read_file(artifact.folder / names::source, max_text_bytes));
  return check_bytes(artifact, names::source, std::as_bytes(std::span(source)), true);
}

Result<std::vector<std::byte>> read_image(const Artifact& artifact) {
  const std::string name = names::image(artifact.recipe.arch);
  ADAMK_TRY(const std::string text, read_file(artifact.folder / name, max_text_bytes));
  const auto bytes = std::as_bytes(std::span(text));
  ADAMK_CHECK(check_bytes(artifact, name, bytes, true));
  std::vector<std::byte> image(bytes.begin(), bytes.end());
  if (names::is_ptx(artifact.recipe.arch)) image.push_back(std::byte{0});
  return image;
}

}  // namespace

Result<Artifact> open_artifact(const std::filesystem::path& folder, ArtifactChecks checks) {
  const std::filesystem::path manifest_path = folder / names::manifest;
  std::error_code code;
  if (!std::filesystem::exists(manifest_path, code)) {
    return fail(Errc::bad_input, "{}: holds no manifest.json, so it is no artifact; adamk-export makes one", folder.string());
  }
  ADAMK_TRY(const std::string manifest_text, read_file(manifest_path, max_manifest_bytes));
  ADAMK_TRY(Json manifest, parse_json(manifest_text, manifest_path.string()));
  const JsonView root(manifest, manifest_path.string());
  ADAMK_CHECK(expect_format(root, names::format, names::version));
  ADAMK_CHECK(root.only_keys({"format", "version", "tool", "weights", "files", "build", "certificate", "measured", "recipe", "plan",
                              "deployment", seal_key}));
  ADAMK_TRY(const JsonView recipe_view, root.at("recipe"));
  ADAMK_TRY(Recipe recipe, recipe_from_json(recipe_view));
  ADAMK_TRY(std::string tool, text_at(root, "tool"));
  ADAMK_TRY(std::string origin, text_at(root, "weights"));
  ADAMK_CHECK(root.at("plan"));
  ADAMK_CHECK(root.at("deployment"));
  ADAMK_TRY(const JsonView certificate, root.at("certificate"));
  ADAMK_CHECK(check_certificate(certificate, recipe));
  ADAMK_TRY(const JsonView files_view, root.at("files"));
  ADAMK_TRY(auto files, read_files(files_view, names::image(recipe.arch)));
  ADAMK_CHECK(check_against_recipe(root, recipe, files));
  // Last of what the manifest alone can tell: whoever edits one learns first what a key may be.
  ADAMK_CHECK(check_seal(manifest_text, manifest_path.string()));
  ADAMK_TRY(MappedFile packed, MappedFile::open(folder / names::packed));
  ADAMK_TRY(MappedFile small_tensors, MappedFile::open(folder / names::small_tensors));
  ADAMK_TRY(MappedFile embedding, MappedFile::open(folder / names::embedding));
  Artifact artifact{folder,           std::move(recipe), std::move(tool),          std::move(origin),   Json(),
                    std::move(files), {},                std::move(packed), std::move(small_tensors), std::move(embedding)};
  ADAMK_CHECK(check_source(artifact));
  ADAMK_TRY(artifact.image, read_image(artifact));
  ADAMK_CHECK(check_mapped(artifact, checks == ArtifactChecks::all));
  artifact.manifest = std::move(manifest);
  return artifact;
}

Result<void> verify_files(const Artifact& artifact) {
  ADAMK_CHECK(check_source(artifact));
  ADAMK_CHECK(read_image(artifact));
  return check_mapped(artifact, true);
}

}  // namespace adamk
