#include "cupti_search.h"

#include <algorithm>

namespace adamk {
namespace {

namespace fs = std::filesystem;

// Values of CUptiResult (cupti_result.h), stable since they are part of the ABI.
constexpr int insufficient_privileges = 35;
constexpr int virtualized_insufficient_privileges = 40;

/// Every nvidia/*/lib of a site-packages folder: the wheels moved from nvidia/cuda_cupti/lib to nvidia/cu13/lib.
void add_wheels(std::vector<fs::path>& folders, const fs::path& site_packages) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(site_packages / "nvidia", ignored)) {
    if (fs::is_directory(entry.path() / "lib", ignored)) found.push_back(entry.path() / "lib");
  }
  std::sort(found.begin(), found.end());   // the order of a folder's entries is not defined
  folders.insert(folders.end(), found.begin(), found.end());
}

void add_home(std::vector<fs::path>& folders, const fs::path& home) {
  if (home.empty()) return;
  for (const char* below : {"lib64", "extras/CUPTI/lib64", "lib"}) folders.push_back(home / below);
  add_wheels(folders, home);
}

void add_environment(std::vector<fs::path>& folders, const fs::path& prefix) {
  std::error_code ignored;
  std::vector<fs::path> pythons;
  for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", ignored)) {
    if (entry.path().filename().string().starts_with("python3")) pythons.push_back(entry.path() / "site-packages");
  }
  std::sort(pythons.begin(), pythons.end());
  for (const fs::path& site_packages : pythons) add_wheels(folders, site_packages);
}

}  // namespace

std::vector<fs::path> cupti_folders(const std::function<std::string(const char*)>& variable, const fs::path& found_home,
                                    const fs::path& executable) {
  std::vector<fs::path> folders;
  add_home(folders, variable("ADAMK_CUDA_HOME"));
  add_home(folders, variable("CUDA_HOME"));
  add_home(folders, "/usr/local/cuda");
  add_home(folders, found_home);
  // build/<preset>/bin/adamk-x beside build/cuda, which set-up fills; an installed bin/ beside lib/.
  const fs::path bin = executable.parent_path();
  if (!bin.empty()) {
    add_home(folders, (bin / ".." / ".." / "cuda").lexically_normal());
    add_home(folders, (bin / ".." / "cuda").lexically_normal());
  }
  if (const std::string environment = variable("VIRTUAL_ENV"); !environment.empty()) add_environment(folders, environment);
  return folders;
}

Error cupti_error(int code, const std::string& text, const std::string& doing) {
  if (code == insufficient_privileges || code == virtualized_insufficient_privileges) {
    return {Errc::machine,
            fmt::format("{}: not permitted (CUPTI {}, {}). Give the process CAP_SYS_ADMIN, or load the driver with "
                        "NVreg_RestrictProfilingToAdminUsers=0; see docs/warnings/counters-not-permitted.md",
                        doing, code, text)};
  }
  return {Errc::machine, fmt::format("{}: CUPTI {}, {}", doing, code, text)};
}

}  // namespace adamk
