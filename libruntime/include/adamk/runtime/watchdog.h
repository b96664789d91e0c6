// The words a kernel leaves in host-mapped memory when one of its waits times out.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace adamk {

/// "watchdog: SM 12, role consumer, stage gate_up, layer 3, step 0: waited for tag 7, saw 6". `words` holds
/// ADAMK_REPORT_WORDS words in the order kernel_params.h gives.
std::string describe_report(std::span<const std::uint32_t> words);

}  // namespace adamk
