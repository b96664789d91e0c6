// Finding a target by name: where the shipped files are, in a source tree and in an installed one.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "adamk/dag/target.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

/// Folders that may hold the shipped targets, most specific first.
std::vector<fs::path> target_folders(const fs::path& search_path) {
  if (!search_path.empty()) return {search_path};
  std::vector<fs::path> folders;
  if (const char* chosen = std::getenv("ADAMK_TARGETS"); chosen != nullptr && *chosen != '\0')
    folders.push_back(chosen);
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    const fs::path bin = executable.parent_path();
    folders.push_back(bin / "../share/adamk/targets");     // installed
    folders.push_back(bin / "../../../examples/targets");  // build/<preset>/bin of a source tree that was moved
  }
  folders.push_back(fs::path(ADAMK_EXAMPLES_DIR) / "targets");
  folders.push_back("examples/targets");
  return folders;
}

std::set<std::string> names_in(const std::vector<fs::path>& folders) {
  std::set<std::string> names;
  for (const fs::path& folder : folders) {
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
      if (entry->path().extension() == ".yaml") names.insert(entry->path().stem().string());
    }
  }
  return names;
}

Result<Target> read_target(const fs::path& path) {
  ADAMK_TRY(const Json document, read_document(path));
  return target_from_json(JsonView(document, path.string()));
}

}  // namespace

Result<Target> load_target(const std::string& name_or_path, const fs::path& search_path) {
  const bool is_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".yaml") ||
                       name_or_path.ends_with(".yml") || name_or_path.ends_with(".json");
  if (is_path) return read_target(name_or_path);

  const std::vector<fs::path> folders = target_folders(search_path);
  for (const fs::path& folder : folders) {
    const fs::path path = folder / (name_or_path + ".yaml");
    std::error_code failed;
    if (fs::is_regular_file(path, failed)) return read_target(path);
  }
  const std::set<std::string> known = names_in(folders);
  if (known.empty()) {
    return fail(Errc::bad_input,
                "target '{}': no target files found; set ADAMK_TARGETS to their folder or give the path of "
                "a .yaml file",
                name_or_path);
  }
  return fail(Errc::bad_input, "target '{}' is not known; known are {}, or give the path of a .yaml file", name_or_path,
              fmt::join(known, ", "));
}

}  // namespace adamk
