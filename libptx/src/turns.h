// How often a loop goes round, where that is written into the code.
#pragma once

#include "flow.h"

namespace adamk::ptx {

/// Turns of a loop of one block that counts with constants; 0: not such a loop, or more than 1024 turns.
int constant_turns(const PtxBody& body, const Flow& flow, int loop);

}  // namespace adamk::ptx
