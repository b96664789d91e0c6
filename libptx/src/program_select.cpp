#include "program_select.h"

namespace adamk::ptx {
namespace {

const LaneOps& ops() { return lane_ops(); }

tl::unexpected<Error> unsupported(const PtxInstruction& at) {
  return tl::unexpected(Error{Errc::bad_input, fmt::format("PTX line {}: '{}' is not supported by the emulator", at.line, at.opcode)});
}

Selected same(LaneFunction function, int operands, PtxType type) {
  return {function, operands, type, {type, type, type}};
}

/// By width and signedness: 16, 32 (u, s), 64 (u, s), f32, f64; null where there is none.
struct ByType {
  LaneFunction w16, u32, s32, u64, s64, f32, f64;
  LaneFunction of(PtxType type) const {
    if (type == PtxType::f32) return f32;
    if (type == PtxType::f64) return f64;
    if (is_float(type)) return nullptr;
    switch (bytes_of(type)) {
      case 2: return w16;
      case 4: return is_signed(type) ? s32 : u32;
      case 8: return is_signed(type) ? s64 : u64;
      default: return nullptr;
    }
  }
};

Result<Selected> typed(const PtxInstruction& at, const ByType& table, int operands) {
  const LaneFunction function = table.of(at.type);
  if (function == nullptr) return unsupported(at);
  // Flushing and saturation change values: what is not modelled is refused.
  if (is_float(at.type) && (at.has("sat") || at.has("rz") || at.has("rm") || at.has("rp"))) return unsupported(at);
  return same(function, operands, at.type);
}

Result<Selected> select_mul(const PtxInstruction& at) {
  if (is_float(at.type)) return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, ops().mulf, ops().muld}, 2);
  if (at.has("wide")) {
    Selected out = same(nullptr, 2, at.type);
    out.to = bytes_of(at.type) == 4 ? PtxType::u64 : PtxType::u32;
    switch (at.type) {
      case PtxType::u16: out.function = ops().mulwide_u16; break;
      case PtxType::s16: out.function = ops().mulwide_s16; break;
      case PtxType::u32: out.function = ops().mulwide_u32; break;
      case PtxType::s32: out.function = ops().mulwide_s32; break;
      default: return unsupported(at);
    }
    return out;
  }
  if (at.has("hi")) return typed(at, {nullptr, ops().mulhi_u32, ops().mulhi_s32, ops().mulhi_u64, ops().mulhi_s64, nullptr, nullptr}, 2);
  return typed(at, {ops().mullo16, ops().mullo32, ops().mullo32, ops().mullo64, ops().mullo64, nullptr, nullptr}, 2);
}

Result<Selected> select_mad(const PtxInstruction& at) {
  if (is_float(at.type)) return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, ops().fmaf_, ops().fmad}, 3);
  if (at.has("wide")) {
    if (bytes_of(at.type) != 4) return unsupported(at);
    Selected out = same(is_signed(at.type) ? ops().madwide_s32 : ops().madwide_u32, 3, at.type);
    out.to = out.from[2] = PtxType::u64;
    return out;
  }
  if (!at.has("lo")) return unsupported(at);
  return typed(at, {nullptr, ops().madlo32, ops().madlo32, ops().madlo64, ops().madlo64, nullptr, nullptr}, 3);
}

Selected cast(LaneFunction function, PtxType to, PtxType from) { return {function, 1, to, {from, from, from}}; }

Result<Selected> select_float_cvt(const PtxInstruction& at, PtxType to, PtxType from) {
  const auto is = [&](PtxType a, PtxType b) { return to == a && from == b; };
  if (is(PtxType::bf16x2, PtxType::f32) || is(PtxType::f16x2, PtxType::f32)) {
    if (!at.has("rn") || at.has("relu")) return unsupported(at);
    return Selected{to == PtxType::bf16x2 ? ops().pack_bf16x2 : ops().pack_f16x2, 2, PtxType::b32, {from, from, from}};
  }
  if (at.has("sat") || at.has("relu") || at.has("satfinite")) return unsupported(at);
  if (is(PtxType::bf16, PtxType::f32) && at.has("rn")) return cast(ops().f32_to_bf16, to, from);
  if (is(PtxType::f16, PtxType::f32) && at.has("rn")) return cast(ops().f32_to_f16, to, from);
  if (is(PtxType::f32, PtxType::bf16)) return cast(ops().bf16_to_f32, to, from);
  if (is(PtxType::f32, PtxType::f16)) return cast(ops().f16_to_f32, to, from);
  if (is(PtxType::f64, PtxType::f32)) return cast(ops().f32_to_f64, to, from);
  if (is(PtxType::f32, PtxType::f64) && at.has("rn")) return cast(ops().f64_to_f32, to, from);
  if (is(PtxType::f32, PtxType::f32)) {
    return cast(at.has("rni") ? ops().f32_rni : at.has("rzi") ? ops().f32_rzi : at.has("rmi") ? ops().f32_rmi
                : at.has("rpi") ? ops().f32_rpi : ops().mov32, to, from);
  }
  if (is(PtxType::s32, PtxType::f32) && at.has("rzi")) return cast(ops().f32_to_s32_rz, to, from);
  if (is(PtxType::u32, PtxType::f32) && at.has("rzi")) return cast(ops().f32_to_u32_rz, to, from);
  if (is(PtxType::s32, PtxType::f32) && at.has("rni")) return cast(ops().f32_to_s32_rn, to, from);
  if (to == PtxType::f32 && at.has("rn")) {
    switch (from) {
      case PtxType::s32: return cast(ops().s32_to_f32, to, from);
      case PtxType::u32: case PtxType::u16: case PtxType::u8: return cast(ops().u32_to_f32, to, from);   // held zero-extended
      case PtxType::s64: return cast(ops().s64_to_f32, to, from);
      case PtxType::u64: return cast(ops().u64_to_f32, to, from);
      default: break;
    }
  }
  return unsupported(at);
}

/// Between integers: narrowing keeps the low bits, widening extends by the signedness of the source.
Result<Selected> select_cvt(const PtxInstruction& at) {
  const PtxType to = at.to_type == PtxType::none ? at.type : at.to_type, from = at.type;
  if (is_float(to) || is_float(from)) return select_float_cvt(at, to, from);
  if (at.has("sat")) return unsupported(at);
  const int wide = bytes_of(to), narrow = bytes_of(from);
  if (wide == 8) {
    if (narrow == 8) return cast(ops().mov64, to, from);
    if (narrow == 4) return cast(is_signed(from) ? ops().sext32_64 : ops().zext32_64, to, from);
    if (narrow == 2) return cast(is_signed(from) ? ops().sext16_64 : ops().zext32_64, to, from);
    return unsupported(at);
  }
  if (wide == 4) {
    if (narrow == 8) return cast(ops().trunc64_32, to, from);
    if (narrow == 4) return cast(ops().mov32, to, from);
    if (narrow == 2) return cast(is_signed(from) ? ops().sext16_32 : ops().zext16, to, from);
    return cast(is_signed(from) ? ops().sext8_32 : ops().zext8, to, from);
  }
  if (narrow == 8) return unsupported(at);
  if (wide == 2) {
    if (narrow >= 2) return cast(ops().zext16, to, from);
    return cast(is_signed(from) ? ops().sext8_16 : ops().zext8, to, from);
  }
  // An 8-bit value is held in a wider register, extended as its type says.
  return cast(is_signed(to) ? ops().sext8_32 : ops().zext8, PtxType::b32, from);
}

}  // namespace

Result<Selected> select_lanes(const PtxInstruction& at) {
  const LaneOps& o = ops();
  switch (at.op) {
    case PtxOp::add: return typed(at, {o.add16, o.add32, o.add32, o.add64, o.add64, o.addf, o.addd}, 2);
    case PtxOp::sub: return typed(at, {o.sub16, o.sub32, o.sub32, o.sub64, o.sub64, o.subf, o.subd}, 2);
    case PtxOp::mul: return select_mul(at);
    case PtxOp::mad: case PtxOp::fma: return select_mad(at);
    case PtxOp::div: return typed(at, {nullptr, o.div_u32, o.div_s32, o.div_u64, o.div_s64, o.divf, o.divd}, 2);
    case PtxOp::rem: return typed(at, {nullptr, o.rem_u32, o.rem_s32, o.rem_u64, o.rem_s64, nullptr, nullptr}, 2);
    case PtxOp::rcp: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.rcpf, nullptr}, 1);
    case PtxOp::rsqrt: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.rsqrtf_, nullptr}, 1);
    case PtxOp::sqrt: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.sqrtf_, nullptr}, 1);
    case PtxOp::ex2: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, at.has("ftz") ? o.ex2f_ftz : o.ex2f, nullptr}, 1);
    case PtxOp::lg2: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.lg2f, nullptr}, 1);
    case PtxOp::sin: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.sinf_, nullptr}, 1);
    case PtxOp::cos: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.cosf_, nullptr}, 1);
    case PtxOp::tanh: return typed(at, {nullptr, nullptr, nullptr, nullptr, nullptr, o.tanhf_, nullptr}, 1);
    case PtxOp::neg: return typed(at, {nullptr, o.neg32, o.neg32, o.neg64, o.neg64, o.negf, nullptr}, 1);
    case PtxOp::abs: return typed(at, {nullptr, nullptr, o.abs_s32, nullptr, nullptr, o.absf, nullptr}, 1);
    case PtxOp::min: return typed(at, {nullptr, o.min_u32, o.min_s32, o.min_u64, o.min_s64, o.minf, nullptr}, 2);
    case PtxOp::max: return typed(at, {nullptr, o.max_u32, o.max_s32, o.max_u64, o.max_s64, o.maxf, nullptr}, 2);
    case PtxOp::and_: return typed(at, {o.and32, o.and32, o.and32, o.and64, o.and64, nullptr, nullptr}, 2);
    case PtxOp::or_: return typed(at, {o.or32, o.or32, o.or32, o.or64, o.or64, nullptr, nullptr}, 2);
    case PtxOp::xor_: return typed(at, {o.xor32, o.xor32, o.xor32, o.xor64, o.xor64, nullptr, nullptr}, 2);
    case PtxOp::not_: return typed(at, {o.not16, o.not32, o.not32, o.not64, o.not64, nullptr, nullptr}, 1);
    case PtxOp::shl: case PtxOp::shr: {
      ByType table = at.op == PtxOp::shl ? ByType{o.shl16, o.shl32, o.shl32, o.shl64, o.shl64, nullptr, nullptr}
                                         : ByType{is_signed(at.type) ? o.shr_s16 : o.shr_u16, o.shr_u32, o.shr_s32, o.shr_u64, o.shr_s64, nullptr, nullptr};
      ADAMK_TRY(Selected out, typed(at, table, 2));
      out.from[1] = PtxType::u32;
      return out;
    }
    case PtxOp::shf:
      if (!at.has("wrap")) return unsupported(at);
      return same(at.has("l") ? o.shf_l_wrap : o.shf_r_wrap, 3, PtxType::b32);
    case PtxOp::popc: case PtxOp::clz: {
      const bool wide = bytes_of(at.type) == 8;
      const LaneFunction function = at.op == PtxOp::popc ? (wide ? o.popc64 : o.popc32) : wide ? o.clz64 : o.clz32;
      return cast(function, PtxType::u32, at.type);
    }
    case PtxOp::brev: return typed(at, {nullptr, o.brev32, nullptr, nullptr, nullptr, nullptr, nullptr}, 1);
    case PtxOp::bfe: return typed(at, {nullptr, o.bfe_u32, o.bfe_s32, nullptr, nullptr, nullptr, nullptr}, 3);
    case PtxOp::prmt:
      if (at.modifiers.size() > 0) return unsupported(at);
      return same(o.prmt32, 3, PtxType::b32);
    case PtxOp::cvt: return select_cvt(at);
    default: return unsupported(at);
  }
}

Result<CompareFunction> select_compare(const PtxInstruction& at) {
  const LaneOps& o = ops();
  struct Row {
    std::string_view name;
    CompareFunction u16, s16, u32, s32, u64, s64, f32, f64;
  };
  const Row rows[] = {{"eq", o.eq16, o.eq16, o.eq32, o.eq32, o.eq64, o.eq64, o.eqf, o.eqd},
                      {"ne", o.ne16, o.ne16, o.ne32, o.ne32, o.ne64, o.ne64, o.nef, o.ned},
                      {"lt", o.lt_u16, o.lt_s16, o.lt_u32, o.lt_s32, o.lt_u64, o.lt_s64, o.ltf, o.ltd},
                      {"le", o.le_u16, o.le_s16, o.le_u32, o.le_s32, o.le_u64, o.le_s64, o.lef, o.led},
                      {"gt", o.gt_u16, o.gt_s16, o.gt_u32, o.gt_s32, o.gt_u64, o.gt_s64, o.gtf, o.gtd},
                      {"ge", o.ge_u16, o.ge_s16, o.ge_u32, o.ge_s32, o.ge_u64, o.ge_s64, o.gef, o.ged},
                      {"equ", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.equf, nullptr},
                      {"neu", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.neuf, nullptr},
                      {"ltu", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.ltuf, nullptr},
                      {"leu", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.leuf, nullptr},
                      {"gtu", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.gtuf, nullptr},
                      {"geu", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.geuf, nullptr},
                      {"num", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.numf, nullptr},
                      {"nan", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, o.nanf_, nullptr}};
  for (const Row& row : rows) {
    if (!at.has(row.name)) continue;
    CompareFunction found = nullptr;
    if (at.type == PtxType::f32) found = row.f32;
    else if (at.type == PtxType::f64) found = row.f64;
    else if (!is_float(at.type) && bytes_of(at.type) == 2) found = is_signed(at.type) ? row.s16 : row.u16;
    else if (!is_float(at.type) && bytes_of(at.type) == 4) found = is_signed(at.type) ? row.s32 : row.u32;
    else if (!is_float(at.type) && bytes_of(at.type) == 8) found = is_signed(at.type) ? row.s64 : row.u64;
    if (found == nullptr) return unsupported(at);
    return found;
  }
  return unsupported(at);
}

}  // namespace adamk::ptx
