// Which GPUs a compiled kernel runs on.
#pragma once

#include <string_view>

#include "adamk/base/result.h"
#include "adamk/runtime/device.h"

namespace adamk {

/// `arch` is what the kernel was compiled for. A cubin (sm_90) runs on its major version from its minor version on; an
/// architecture-specific one (sm_90a, compute_90a) on exactly that GPU; a family one (sm_100f, compute_100f) within its
/// major version; PTX (compute_89) on every GPU from 8.9 on. Fails (machine) naming both sides when `device` is not among
/// them, (bad_input) when `arch` is no such name.
Result<void> check_arch(std::string_view arch, const DeviceInfo& device);

}  // namespace adamk
