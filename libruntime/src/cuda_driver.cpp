#include "cuda_driver.h"

#include <dlfcn.h>

namespace adamk {
namespace {

template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Error CudaDriver::failure(CUresult code, const std::string& doing) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  if (cuGetErrorString(code, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
  return Error{Errc::machine, fmt::format("{}: {} ({}: {})", doing, text, name, static_cast<int>(code))};
}

Result<std::shared_ptr<const CudaDriver>> CudaDriver::open() {
  // Never closed: the driver registers process-wide state and threads that must not be unmapped.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(Errc::machine, "no NVIDIA driver on this machine: libcuda.so.1 could not be opened ({}); install the "
                "driver or run on a machine with an NVIDIA GPU", dlerror());
  }
  auto driver = std::make_shared<CudaDriver>();
  const char* missing = nullptr;
#define ADAMK_FIND_NAME(name) #name
#define ADAMK_FIND_FUNCTION(name) \
  if (!find_symbol(library, ADAMK_FIND_NAME(name), driver->name)) missing = ADAMK_FIND_NAME(name);
  ADAMK_CUDA_FUNCTIONS(ADAMK_FIND_FUNCTION)
#undef ADAMK_FIND_FUNCTION
#undef ADAMK_FIND_NAME
  if (missing != nullptr) {
    return fail(Errc::machine, "the NVIDIA driver is too old: libcuda.so.1 has no {}; a driver for CUDA 13 is needed",
                missing);
  }
  const CUresult initialised = driver->cuInit(0);
  if (initialised == CUDA_ERROR_NO_DEVICE) return fail(Errc::machine, "no CUDA-capable GPU is visible to this process");
  ADAMK_CHECK(driver->check(initialised, "initialising the CUDA driver"));
  return driver;
}

}  // namespace adamk
