// Listing: what stands at a line of a PTX text and whose code it is, for messages.
#pragma once

#include <map>
#include <string>

#include "adamk/ptx/module.h"

namespace adamk {

struct PtxLine {
  std::string opcode;        // "ld.relaxed.gpu.global.v2.u64"; where a line holds several instructions, of the last
  std::string role, stage;   // by the kernel's markers, "consumer" and "qkv"; "entry" and "" before the first
};

/// By line, from 1.
std::map<int, PtxLine> list_lines(const PtxModule& module);

}  // namespace adamk
