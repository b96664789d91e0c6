// Waits: loops that do nothing but look at memory or the clock again.
#pragma once

#include <string>
#include <vector>

#include "flow.h"

namespace adamk::ptx {

enum class LoopKind { work, poll, pacing };

/// A read whose value another thread's progress decides: an mbarrier's phase, or an ordered access to global memory.
bool looks(const PtxInstruction& instruction);

bool is_watchdog(const PtxModule& module, const PtxInstruction& call, const std::string& watchdog);

/// By loop. A poll looks and has no other effect than calls of the watchdog; a pacing loop reads the clock and nothing else.
std::vector<LoopKind> find_waits(const PtxModule& module, const PtxBody& body, const Flow& flow, const std::string& watchdog);

}  // namespace adamk::ptx
