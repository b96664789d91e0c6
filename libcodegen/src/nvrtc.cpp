// NVRTC, opened at run time. libnvrtc finds its companion libnvrtc-builtins by name only, so that one is opened first, by
// full path, from the same folder.
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <vector>

#include "adamk/codegen/kernel.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

struct Nvrtc {
  std::string path;
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_size = nullptr;
  decltype(&nvrtcGetPTX) ptx = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcSetFlowCallback) set_flow_callback = nullptr;
};

/// Where a toolkit or its Python wheels put libraries, most specific first. An empty path means the loader's own search.
std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& home) {
    for (const char* sub : {"lib64", "lib", "targets/x86_64-linux/lib"}) folders.push_back(home / sub);
  };
  for (const char* variable : {"ADAMK_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable); home != nullptr && *home != '\0') add(home);
  add(ADAMK_CUDA_FOUND_HOME);
  add("/usr/local/cuda");
  folders.emplace_back();
  return folders;
}

void* open_in(const fs::path& folder, std::string* path) {
  if (folder.empty()) {
    *path = "libnvrtc.so.13";
    return dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  std::error_code ignored;
  const fs::path library = folder / "libnvrtc.so.13";
  if (!fs::exists(library, ignored)) return nullptr;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().rfind("libnvrtc-builtins.so.13", 0) == 0)
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  *path = library.string();
  return dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
}

Result<Nvrtc> open_nvrtc() {
  Nvrtc api;
  void* library = nullptr;
  for (const fs::path& folder : library_folders())
    if ((library = open_in(folder, &api.path)) != nullptr) break;
  if (library == nullptr)
    return fail(Errc::machine,
                "NVRTC 13 (libnvrtc.so.13) was not found. Install the CUDA 13 toolkit, run scripts/setup, or set "
                "ADAMK_CUDA_HOME to a folder whose lib64 or lib holds it.");
  bool complete = true;
  const auto symbol = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
  symbol(api.version, "nvrtcVersion");
  symbol(api.error_string, "nvrtcGetErrorString");
  symbol(api.create, "nvrtcCreateProgram");
  symbol(api.destroy, "nvrtcDestroyProgram");
  symbol(api.compile, "nvrtcCompileProgram");
  symbol(api.log_size, "nvrtcGetProgramLogSize");
  symbol(api.log, "nvrtcGetProgramLog");
  symbol(api.ptx_size, "nvrtcGetPTXSize");
  symbol(api.ptx, "nvrtcGetPTX");
  symbol(api.cubin_size, "nvrtcGetCUBINSize");
  symbol(api.cubin, "nvrtcGetCUBIN");
  symbol(api.set_flow_callback, "nvrtcSetFlowCallback");
  if (!complete) return fail(Errc::machine, "{} lacks functions of NVRTC 13; is it a different library?", api.path);
  return api;
}

/// Destroys the program on every way out.
struct Program {
  const Nvrtc& api;
  nvrtcProgram handle = nullptr;
  ~Program() {
    if (handle != nullptr) api.destroy(&handle);
  }
};

int ask_cancel(void* payload, void*) { return (*static_cast<const Cancel*>(payload))() ? 1 : 0; }

std::string program_log(const Nvrtc& api, nvrtcProgram program) {
  std::size_t size = 0;
  if (api.log_size(program, &size) != NVRTC_SUCCESS || size <= 1) return {};
  std::string log(size, '\0');
  if (api.log(program, log.data()) != NVRTC_SUCCESS) return {};
  log.resize(size - 1);
  return log;
}

/// ptxas -v: "... Used 96 registers ...", "... 8 bytes spill stores, 12 bytes spill loads".
void read_resources(const std::string& log, Kernel* kernel) {
  std::smatch match;
  if (std::regex_search(log, match, std::regex("Used ([0-9]+) registers"))) kernel->registers = std::stoi(match[1]);
  if (std::regex_search(log, match, std::regex("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads")))
    kernel->spill_bytes = std::stoi(match[1]) + std::stoi(match[2]);
}

}  // namespace

std::vector<std::byte> Kernel::image() const {
  if (!cubin.empty()) return cubin;
  const auto* text = reinterpret_cast<const std::byte*>(ptx.data());
  std::vector<std::byte> out(text, text + ptx.size());
  out.push_back(std::byte{0});
  return out;
}

Result<std::string> nvrtc_version() {
  ADAMK_TRY(const Nvrtc api, open_nvrtc());
  int major = 0, minor = 0;
  if (api.version(&major, &minor) != NVRTC_SUCCESS) return fail(Errc::machine, "{} does not tell its version", api.path);
  return fmt::format("{}.{}", major, minor);
}

Result<Kernel> compile(const std::string& source, const std::string& arch, const Cancel& cancelled) {
  ADAMK_TRY(const Nvrtc api, open_nvrtc());
  Program program{api};
  if (const nvrtcResult r = api.create(&program.handle, source.c_str(), "kernel.cu", 0, nullptr, nullptr);
      r != NVRTC_SUCCESS)
    return fail(Errc::machine, "nvrtcCreateProgram: {}", api.error_string(r));
  if (cancelled) api.set_flow_callback(program.handle, ask_cancel, const_cast<Cancel*>(&cancelled));

  const std::string architecture = "--gpu-architecture=" + arch;
  const bool machine_code = arch.rfind("sm_", 0) == 0;
  std::vector<const char*> options{architecture.c_str(), "--std=c++17", "--extra-device-vectorization"};
  if (machine_code) options.push_back("--ptxas-options=-v");
  const nvrtcResult result = api.compile(program.handle, static_cast<int>(options.size()), options.data());
  Kernel kernel;
  kernel.source = source;
  kernel.arch = arch;
  kernel.log = program_log(api, program.handle);
  if (result == NVRTC_ERROR_CANCELLED) return fail(Errc::interrupted, "the compilation for {} was cancelled", arch);
  if (result != NVRTC_SUCCESS)
    return fail(Errc::bad_input, "NVRTC for {}: {}\n{}", arch, api.error_string(result), kernel.log);

  std::size_t size = 0;
  if (api.ptx_size(program.handle, &size) != NVRTC_SUCCESS || size == 0)
    return fail(Errc::machine, "NVRTC returned no PTX for {}", arch);
  kernel.ptx.resize(size);
  api.ptx(program.handle, kernel.ptx.data());
  kernel.ptx.resize(size - 1);   // the size counts the terminating zero
  if (machine_code) {
    if (api.cubin_size(program.handle, &size) != NVRTC_SUCCESS || size == 0)
      return fail(Errc::machine, "NVRTC returned no machine code for {}", arch);
    kernel.cubin.resize(size);
    api.cubin(program.handle, reinterpret_cast<char*>(kernel.cubin.data()));
    read_resources(kernel.log, &kernel);
  }
  return kernel;
}

}  // namespace adamk
