// Statistics of a PTX module: entry functions, declared registers and instruction counts. They are stored beside a kernel,
// so that two plans can be compared by what the compiler was given, without a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

enum class PtxClass {
  load_shared,     // ld.shared, ldmatrix
  load_global,     // ld.global, also with .nc or .relaxed
  load_other,      // ld.param, ld.local, ld.const, generic ld
  store_shared,    // st.shared, st.async, stmatrix
  store_global,
  store_other,
  bulk_copy,       // cp.async.bulk
  async_copy,      // cp.async
  mma,             // mma, wgmma.mma_async, tcgen05.mma
  atomic,          // atom, red
  barrier,         // bar, barrier, mbarrier, fence, membar; waits and commits of copies and of wgmma
  branch,          // bra, brx, call, ret, exit
  other,
};

std::string_view to_string(PtxClass kind);
/// Class of an opcode with its modifiers, e.g. "ld.relaxed.gpu.global.v2.b64".
PtxClass ptx_class(std::string_view opcode);

/// One function with a body, as the module's text states it: instructions are counted once, however often they run.
struct PtxFunction {
  std::string name;
  bool entry = false;                             // .entry (a kernel) or .func
  std::map<std::string, std::int64_t> registers;  // by type (".b32"): virtual registers declared, inline assembly included
  std::map<PtxClass, std::int64_t> classes;       // only classes that occur
  std::map<std::string, std::int64_t> opcodes;    // by opcode with modifiers
  std::int64_t instructions = 0;
  std::int64_t labels = 0;
};

struct PtxStatistics {
  std::string version;     // "9.0"
  std::string target;      // "sm_90a"
  std::vector<PtxFunction> functions;   // in the order of the text

  const PtxFunction* find(std::string_view name) const;
};

/// Fails (bad_input) naming the line of whatever is not PTX as NVRTC writes it. A terminating zero is accepted.
Result<PtxStatistics> ptx_statistics(std::string_view ptx);

Json ptx_statistics_to_json(const PtxStatistics& statistics);

}  // namespace adamk
