// Terminals and signals.
#pragma once

#include <atomic>
#include <cstdio>

namespace adamk {

bool is_terminal(std::FILE* stream);
/// Colours go to terminals only, and not when NO_COLOR is set (https://no-color.org) or TERM is "dumb".
bool use_colour(std::FILE* stream);

/// From now on the first SIGINT or SIGTERM sets the flag returned here; a second one kills the process. Work that
/// watches the flag keeps what it finished and ends with Errc::interrupted.
const std::atomic<bool>& catch_interrupts();

}  // namespace adamk
