#include "cupti_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "adamk/profile/cupti.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::error_code ignored;
  return cupti_folders(variable, ADAMK_CUDA_FOUND_HOME, fs::read_symlink("/proc/self/exe", ignored));
}

/// CUPTI loads libnvperf_host by name when it is first asked for counters; outside the loader's path that only works when
/// the library of the same folder is already in the process.
void* open_in(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / "libcupti.so.13", ignored)) return nullptr;
  for (const char* helper : {"libnvperf_host.so", "libnvperf_target.so"}) {
    dlopen((folder / helper).c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  return dlopen((folder / "libcupti.so.13").c_str(), RTLD_NOW | RTLD_GLOBAL);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::shared_ptr<const CuptiLibrary>> CuptiLibrary::open() {
  auto cupti = std::make_shared<CuptiLibrary>();
  void* library = nullptr;
  std::string tried;
  for (const fs::path& folder : folders()) {
    library = open_in(folder);
    if (library != nullptr) {
      cupti->path = (folder / "libcupti.so.13").string();
      break;
    }
    tried += fmt::format("{}{}", tried.empty() ? "" : ", ", folder.string());
  }
  if (library == nullptr) {
    library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
    cupti->path = "libcupti.so.13";
  }
  if (library == nullptr) {
    return fail(Errc::machine,
                "CUPTI (libcupti.so.13) was not found in {} or on the loader's path. Install the CUDA 13 toolkit or run "
                "scripts/setup, or set ADAMK_CUDA_HOME; see docs/warnings/no-cupti.md", tried);
  }
#define ADAMK_FIND_FUNCTION(name)                                                                              \
  if (!find(library, #name, cupti->name)) {                                                                    \
    return fail(Errc::machine, "{} has no {}: CUPTI of CUDA 13.0 or later is needed", cupti->path, #name);     \
  }
  ADAMK_CUPTI_FUNCTIONS(ADAMK_FIND_FUNCTION)
#undef ADAMK_FIND_FUNCTION
  ADAMK_CHECK(cupti->check(cupti->cuptiGetVersion(&cupti->version), "asking CUPTI's version"));
  return cupti;
}

Error CuptiLibrary::failure(CUptiResult code, const std::string& doing) const {
  const char* text = nullptr;
  if (cuptiGetResultString(code, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown error";
  return cupti_error(static_cast<int>(code), text, doing);
}

Result<std::string> cupti_library() {
  ADAMK_TRY(const auto cupti, CuptiLibrary::open());
  return fmt::format("{} ({})", cupti->path, cupti->version);
}

}  // namespace adamk
