// PtxModule: a PTX text as data: functions with their registers, and instructions with resolved operands, types and modifiers.
// What the instruction DAG and the emulator read. Covers the PTX that NVRTC emits for generated kernels; anything else is an
// error that names the line, never a guess. Reference: NVIDIA, "Parallel Thread Execution ISA", version 9.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"

namespace adamk {

enum class PtxType : std::uint8_t {
  none, pred, b8, u8, s8, b16, u16, s16, f16, bf16, b32, u32, s32, f32, f16x2, bf16x2, b64, u64, s64, f64
};
int bytes_of(PtxType type);            // of one value; 0 for none and pred
bool is_float(PtxType type);
bool is_signed(PtxType type);

/// State spaces. `generic`: the address says which.
enum class PtxSpace : std::uint8_t { generic, param, local, shared, global, constant };

/// Base mnemonics. `mbarrier_*`, `cp_async_*` and the like are one operation each, as they share nothing but the prefix.
enum class PtxOp : std::uint8_t {
  mov, add, sub, mul, mad, fma, div, rem, rcp, rsqrt, sqrt, ex2, lg2, sin, cos, tanh, neg, abs, min, max,
  and_, or_, xor_, not_, shl, shr, shf, bfe, bfi, prmt, lop3, popc, clz, brev, setp, selp, cvt, cvta, isspacep, mapa,
  ld, st, atom, red, ldmatrix, stmatrix, mma, shfl, vote, match, activemask, redux,
  bar_sync, bar_arrive, bar_warp_sync, cluster_arrive, cluster_wait, fence, membar, fence_mbarrier_init, fence_proxy,
  mbarrier_init, mbarrier_inval, mbarrier_arrive, mbarrier_expect_tx, mbarrier_test_wait, mbarrier_try_wait,
  cp_async, cp_async_commit, cp_async_wait_group, cp_async_wait_all, cp_async_mbarrier_arrive, cp_async_bulk,
  createpolicy, griddepcontrol, nanosleep, bra, call, ret, exit, trap
};
std::string_view to_string(PtxOp op);

/// Memory order and scope as written; `weak` when nothing is.
enum class PtxOrder : std::uint8_t { weak, relaxed, acquire, release, acq_rel, sc, is_volatile };
enum class PtxScope : std::uint8_t { none, cta, cluster, gpu, sys };

enum class PtxOperandKind : std::uint8_t { reg, immediate, special, variable, address, vector, sink };

struct PtxOperand {
  PtxOperandKind kind = PtxOperandKind::immediate;
  int reg = -1;                        // index into PtxFunction::registers (reg; the base of an address, or -1)
  int variable = -1;                   // index into PtxModule::variables (variable; the base of an address, or -1)
  std::int64_t value = 0;              // bits of an immediate; offset of an address
  bool negated = false;                // "!%p1"
  std::string special;                 // "%tid.x"
  std::vector<PtxOperand> parts;       // of "{%r1, %r2}" and of "%r1|%p1"
};

struct PtxInstruction {
  PtxOp op = PtxOp::mov;
  int line = 0;
  std::string opcode;                  // as written, "ld.relaxed.gpu.global.v2.u64"
  std::vector<std::string> modifiers;  // the parts after the base, in order, without types, space, order and scope
  PtxType type = PtxType::none;        // the last (source) type; the only one of most instructions
  PtxType to_type = PtxType::none;     // the first of two types (cvt, mul.wide has one only)
  PtxSpace space = PtxSpace::generic;
  PtxOrder order = PtxOrder::weak;
  PtxScope scope = PtxScope::none;
  int vector = 1;
  int guard = -1;                      // predicate register, or -1
  bool guard_negated = false;
  int results = 0;                     // leading operands that are written
  std::vector<PtxOperand> operands;
  int target = -1;                     // bra: index of an instruction of the same function; call: index of a function
  bool has(std::string_view modifier) const;
};

struct PtxRegister {
  std::string name;                    // with its scope's number where inline assembly declares one of its own
  PtxType type = PtxType::b32;
};

/// A named piece of memory: module scope (global, constant, shared) or function scope (param, local, shared).
struct PtxVariable {
  std::string name;
  PtxSpace space = PtxSpace::global;
  std::int64_t bytes = 0;              // 0: extern, as large as the launch says
  int align = 1;
  int function = -1;                   // -1: module scope
  std::vector<std::uint8_t> initial;   // global, constant: initial bytes (zeros when none are given)
};

/// "// adamk: consumer qkv" in the text: from instruction `at` on, in the flow of control, this is what runs. Before a label
/// at the same instruction unless `labelled`.
struct PtxMarker {
  int at = 0;
  bool labelled = false;
  std::string text;                    // "consumer qkv"
};

struct PtxBody {
  std::string name;
  bool entry = false;
  int line = 0;
  int max_threads = 0;                 // .maxntid, product; 0: not stated
  std::vector<int> params, returns;    // variables
  std::vector<PtxRegister> registers;
  std::vector<PtxInstruction> code;
  std::vector<std::pair<int, std::string>> labels;   // instruction index, name; in order
  std::vector<PtxMarker> markers;                    // in order
};

struct PtxModule {
  std::string version, target;         // "9.0", "sm_90a"
  std::vector<PtxVariable> variables;
  std::vector<PtxBody> functions;

  const PtxBody* find(std::string_view function) const;
};

/// Fails (bad_input) naming the line. A terminating zero is accepted.
Result<PtxModule> parse_ptx(std::string_view text);

/// Registers an instruction reads (guard and address bases included) or writes, in operand order.
std::vector<int> registers_read(const PtxInstruction& instruction);
std::vector<int> registers_written(const PtxInstruction& instruction);

}  // namespace adamk
