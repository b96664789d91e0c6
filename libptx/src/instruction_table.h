// What is known of each instruction: how its opcode splits into operation, types, space, order and other modifiers.
#pragma once

#include <string_view>

#include "adamk/base/result.h"
#include "adamk/ptx/module.h"

namespace adamk::ptx {

/// Fills op, opcode, modifiers, types, space, order, scope, vector and results. Fails with what is not known, without a line.
Result<PtxInstruction> read_opcode(std::string_view opcode);

/// "b32" -> PtxType::b32; none when it is not a type.
PtxType type_named(std::string_view name);
/// "shared", "shared::cta" -> shared; false when it is not a space.
bool space_named(std::string_view name, PtxSpace* space);

}  // namespace adamk::ptx
