#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "adamk/base/hash.h"
#include "adamk/runtime/artifact.h"
#include "artifact_certificate.h"
#include "artifact_format.h"
#include "artifact_seal.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;
namespace names = artifact_format;

using NamedBytes = std::pair<const char*, std::span<const std::byte>>;

/// A folder that is removed with all it holds unless it was renamed away.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> beside(const fs::path& folder) {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      fs::path path = folder;
      path += fmt::format(".tmp-{}-{}", ::getpid(), attempt);
      std::error_code code;
      if (fs::create_directory(path, code)) return TemporaryFolder(std::move(path));
      if (code) return fail(Errc::io, "cannot create the folder {}: {}", path.string(), code.message());
    }
    return fail(Errc::io, "cannot create a temporary folder beside {}", folder.string());
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, fs::path())) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void renamed() { path_.clear(); }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

Result<void> write_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  ADAMK_TRY(AtomicFile file, AtomicFile::create(path));
  ADAMK_CHECK(file.write(bytes));
  return file.commit();
}

bool holds_artifact(const fs::path& folder) {
  auto text = read_document(folder / names::manifest);
  return text && text->is_object() && text->value("format", Json()) == Json(names::format);
}

/// Whether the folder may be replaced: absent, empty, or an artifact without anything of the user's in it.
Result<void> check_replaceable(const fs::path& folder) {
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (!fs::exists(status)) return {};
  if (!fs::is_directory(status)) return fail(Errc::bad_input, "{}: exists and is not a folder", folder.string());
  fs::directory_iterator entries(folder, code);
  if (code) return fail(Errc::io, "cannot read the folder {}: {}", folder.string(), code.message());
  bool empty = true;
  for (const fs::directory_entry& entry : entries) {
    empty = false;
    const std::string name = entry.path().filename().string();
    if (std::find(names::all.begin(), names::all.end(), name) == names::all.end()) {
      return fail(Errc::bad_input, "{}: holds {}, which is no part of an artifact; choose an empty or a new folder",
                  folder.string(), name);
    }
  }
  if (!empty && !holds_artifact(folder)) {
    return fail(Errc::bad_input, "{}: is not empty and holds no artifact; choose an empty or a new folder", folder.string());
  }
  return {};
}

Result<void> put_in_place(TemporaryFolder& temporary, const fs::path& folder) {
  // rename(2) replaces nothing or an empty folder; a folder with content has to change places with the new one.
  if (::rename(temporary.path().c_str(), folder.c_str()) == 0) {
    temporary.renamed();
    return {};
  }
  if (::renameat2(AT_FDCWD, temporary.path().c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return {};
  // A file system that cannot exchange: there is a moment without an artifact, but never half of one.
  fs::path old = temporary.path();
  old += ".old";
  std::error_code code;
  fs::rename(folder, old, code);
  if (!code) fs::rename(temporary.path(), folder, code);
  if (code) return fail(Errc::io, "cannot put {} in place: {}", folder.string(), code.message());
  temporary.renamed();
  fs::remove_all(old, code);
  return {};
}

Result<void> check_sizes(const ArtifactContents& contents) {
  const Recipe& recipe = contents.recipe;
  const std::pair<NamedBytes, std::int64_t> expected[] = {{{names::packed, contents.packed}, recipe.packed_bytes},
                                                          {{names::small_tensors, contents.small_tensors}, recipe.small_bytes},
                                                          {{names::embedding, contents.embedding}, recipe.embedding_bytes}};
  for (const auto& [file, bytes] : expected) {
    if (static_cast<std::int64_t>(file.second.size()) != bytes) {
      return fail(Errc::bad_input, "{}: {} bytes to write, the recipe says {}", file.first, file.second.size(), bytes);
    }
  }
  if (contents.image.empty()) return fail(Errc::bad_input, "{}: nothing to write", names::image(recipe.arch));
  return {};
}

Json make_manifest(const ArtifactContents& contents, std::span<const NamedBytes> files) {
  Json listed = Json::object();
  for (const auto& [name, bytes] : files) listed[name] = {{"bytes", bytes.size()}, {"hash", hash_hex(bytes)}};
  return Json{
      {"format", names::format},
      {"version", names::version},
      {"tool", contents.tool_version},
      {"weights", contents.weights_origin},
      {"files", listed},
      {"build", contents.build},
      {"certificate", contents.certificate},
      {"measured", contents.measured.value_or(Json())},
      {"recipe", recipe_to_json(contents.recipe)},
      {"plan", contents.plan},
      {"deployment", contents.deployment},
  };
}

}  // namespace

Result<void> write_artifact(const fs::path& where, const ArtifactContents& contents) {
  ADAMK_CHECK(check_certificate(JsonView(contents.certificate, "certificate"), contents.recipe));
  ADAMK_CHECK(check_sizes(contents));
  std::error_code code;
  // Absolute first: weakly_canonical leaves a path relative whose first name does not exist, and "out" has no parent.
  fs::path folder = where.empty() ? where : fs::absolute(where, code);
  if (!code) folder = fs::weakly_canonical(folder, code);
  if (code) return fail(Errc::io, "{}: {}", where.string(), code.message());
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/"
  if (folder.empty() || folder == folder.root_path()) return fail(Errc::bad_input, "'{}' names no folder", where.string());
  ADAMK_CHECK(check_replaceable(folder));
  fs::create_directories(folder.parent_path(), code);
  if (code) return fail(Errc::io, "cannot create the folder {}: {}", folder.parent_path().string(), code.message());

  std::span<const std::byte> image = contents.image;
  // On disk PTX is a text file; the terminating zero comes back when it is read.
  if (names::is_ptx(contents.recipe.arch) && image.back() == std::byte{0}) image = image.first(image.size() - 1);
  const NamedBytes files[] = {{names::source, std::as_bytes(std::span(contents.source))},
                              {names::image(contents.recipe.arch), image},
                              {names::packed, contents.packed},
                              {names::small_tensors, contents.small_tensors},
                              {names::embedding, contents.embedding}};
  ADAMK_TRY(TemporaryFolder temporary, TemporaryFolder::beside(folder));
  for (const auto& [name, bytes] : files) ADAMK_CHECK(write_bytes(temporary.path() / name, bytes));
  ADAMK_CHECK(write_file_atomic(temporary.path() / names::manifest, seal_manifest(make_manifest(contents, files))));
  return put_in_place(temporary, folder);
}

}  // namespace adamk
