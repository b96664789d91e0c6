// Program: a module decoded for the machine. All functions in one array, operands as offsets into a warp's register file or a
// pool of constants, registers whose lives do not overlap in one place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/ptx/emulator.h"
#include "lane_ops.h"

namespace adamk::ptx {

enum class Kind : std::uint8_t {
  lanes, compare, predicate, clock, pack, unpack, mma, shfl, vote, match, redux, activemask, address_of_rank,
  load, store, atomic, ldmatrix, stmatrix, param_load, param_store,
  bar, bar_arrive, warp_sync, cluster_arrive, cluster_wait, fence, fence_proxy, fence_init, nothing,
  mbarrier_init, mbarrier_inval, mbarrier_arrive, mbarrier_expect, mbarrier_wait,
  cp_async, cp_commit, cp_wait, cp_mbarrier_arrive, cp_bulk,
  branch, call, ret, exit, trap
};

enum class AtomicOp : std::uint8_t { add, inc, dec, min, max, and_, or_, xor_, exch, cas, add_f32 };
enum class PredicateOp : std::uint8_t { copy, not_, and_, or_, xor_ };

/// Byte offset into the register file, or into the constants when the highest bit is set.
using Ref = std::uint32_t;
constexpr Ref kConstant = 0x80000000u;
constexpr Ref kNoRef = 0x7fffffffu;

/// The first 64 bytes are what a lane operation needs.
struct alignas(64) Op {
  Kind kind = Kind::nothing;
  bool guard_negated = false;
  std::uint8_t width = 4;                // bytes of one element
  std::uint8_t vector = 1;
  std::uint8_t mode = 0;                 // of shfl, vote, test_wait's parity, ...
  bool wide_address = false;             // the address register is 64 bits wide
  bool combine_negated = false;
  PredicateOp predicate = PredicateOp::copy;
  int guard = -1, predicate_in = -1;
  LaneFunction lanes = nullptr;
  Ref d[4] = {kNoRef, kNoRef, kNoRef, kNoRef};
  Ref s[10] = {kNoRef, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef};
  Ref address = kNoRef, address2 = kNoRef, address3 = kNoRef;   // bases; kNoRef: none
  int predicate_out = -1, predicate_out2 = -1, predicate_in2 = -1;
  std::int64_t offset = 0, offset2 = 0, offset3 = 0;
  CompareFunction compare = nullptr;
  MmaFunction mma = nullptr;
  int line = 0;
  int target = -1;                       // branch, call: index into code
  PtxOp op = PtxOp::mov;
  PtxType type = PtxType::none;
  PtxSpace space = PtxSpace::generic;
  PtxOrder order = PtxOrder::weak;
  PtxScope scope = PtxScope::none;
  AtomicOp atomic = AtomicOp::add;
};

/// Words of a function's .param variables, one register of 32 lanes each.
struct FunctionInfo {
  std::string name;
  int begin = 0;                         // first instruction
  std::vector<Ref> param_words, return_words;
};

struct Call {
  int function = 0;
  std::vector<Ref> arguments, results;   // words, in order of the parameters
};

struct Program {
  std::vector<Op> code;
  std::vector<std::string> text;         // opcode of each instruction, for messages
  std::vector<FunctionInfo> functions;
  std::vector<Call> calls;               // Op::target of a call is an index here
  std::vector<std::uint8_t> constants;
  std::uint32_t register_bytes = 0;
  int predicates = 0;                    // 0 is false, 1 is true
  int entry = 0;                         // first instruction
  std::int64_t param_bytes = 0;          // of the entry
  std::int64_t static_shared = 0;
  std::uint32_t dynamic_shared = 0;      // shared address where the launch's dynamic part begins
  std::int64_t local_bytes = 0;          // of a lane
  std::vector<std::pair<std::uint32_t, std::string>> specials;   // registers to be set at the start of a warp, by name
  std::vector<std::pair<std::int64_t, std::vector<std::uint8_t>>> globals;   // offset in the module's memory, initial bytes
  std::int64_t global_bytes = 0;
  std::vector<std::pair<Ref, std::int64_t>> global_addresses;    // constants to be moved by where that memory lies
};

constexpr std::uint32_t kSharedBase = 1024;                      // as on sm_90: what lies below belongs to the system
constexpr std::uint64_t kSharedWindow = std::uint64_t{7} << 32;  // generic addresses of shared memory, of parameters, of local memory
constexpr std::uint64_t kParamWindow = std::uint64_t{8} << 32;
constexpr std::uint64_t kLocalWindow = std::uint64_t{9} << 32;
constexpr std::uint64_t kFirstGlobal = std::uint64_t{1} << EmulatedMemory::slot_shift;   // addresses below are windows
constexpr std::uint32_t kRankShift = 24;                         // shared::cluster addresses: (rank + 1) above it, 0 for the own block

Result<Program> decode(const PtxModule& module, const std::string& entry);

/// For each function, a place for every register: registers that are live at the same time never share one. Places of 1
/// (4 bytes a lane) and 2 units; predicates count apart. Exposed for its test.
struct Places {
  std::vector<int> of;                   // place of a register, in units from the function's beginning; predicates: their number
  int units = 0, predicates = 0;
};
Places place_registers(const PtxBody& function);

}  // namespace adamk::ptx
