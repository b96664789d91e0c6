#include "program.h"

#include <algorithm>
#include <map>

#include "program_select.h"

namespace adamk::ptx {
namespace {

constexpr std::uint32_t kUnit = 128;   // 32 lanes x 4 bytes

std::int64_t align_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

class Decoder {
 public:
  Decoder(const PtxModule& module) : module_(module) {}

  Result<Program> run(const std::string& entry) {
    const PtxBody* kernel = module_.find(entry);
    if (kernel == nullptr || !kernel->entry) return fail(Errc::bad_input, "the PTX has no entry '{}'", entry);
    place_variables(*kernel);
    program_.predicates = 2;
    for (std::size_t f = 0; f < module_.functions.size(); ++f) prepare(static_cast<int>(f));
    for (std::size_t f = 0; f < module_.functions.size(); ++f) {
      function_ = static_cast<int>(f);
      program_.functions[f].begin = static_cast<int>(program_.code.size());
      if (&module_.functions[f] == kernel) program_.entry = program_.functions[f].begin;
      for (const PtxInstruction& instruction : module_.functions[f].code) {
        ADAMK_CHECK(add(instruction));
      }
    }
    program_.register_bytes = units_ * kUnit;
    return std::move(program_);
  }

 private:
  tl::unexpected<Error> error(const PtxInstruction& at, std::string_view what) const {
    return tl::unexpected(Error{Errc::bad_input, fmt::format("PTX line {}: '{}': {}", at.line, at.opcode, what)});
  }

  void place_variables(const PtxBody& kernel) {
    std::int64_t shared = kSharedBase, param = 0;
    where_.assign(module_.variables.size(), -1);
    for (const int id : kernel.params) {
      const PtxVariable& variable = module_.variables[static_cast<std::size_t>(id)];
      param = align_up(param, variable.align);
      where_[static_cast<std::size_t>(id)] = param;
      param += variable.bytes;
    }
    program_.param_bytes = param;
    for (std::size_t id = 0; id < module_.variables.size(); ++id) {
      const PtxVariable& variable = module_.variables[id];
      if (variable.space == PtxSpace::shared && variable.bytes > 0) {
        shared = align_up(shared, variable.align);
        where_[id] = shared;
        shared += variable.bytes;
      } else if (variable.space == PtxSpace::local) {
        program_.local_bytes = align_up(program_.local_bytes, variable.align);
        where_[id] = program_.local_bytes;
        program_.local_bytes += variable.bytes;
      } else if (variable.space == PtxSpace::global || variable.space == PtxSpace::constant) {
        program_.global_bytes = align_up(program_.global_bytes, std::max(variable.align, 8));
        where_[id] = program_.global_bytes;
        program_.globals.emplace_back(program_.global_bytes,
                                      variable.initial.empty() ? std::vector<std::uint8_t>(static_cast<std::size_t>(variable.bytes), 0)
                                                               : variable.initial);
        program_.global_bytes += variable.bytes;
      }
    }
    program_.static_shared = shared - kSharedBase;
    shared = align_up(shared, 128);
    program_.dynamic_shared = static_cast<std::uint32_t>(shared);
    for (std::size_t id = 0; id < module_.variables.size(); ++id)
      if (module_.variables[id].space == PtxSpace::shared && module_.variables[id].bytes == 0) where_[id] = shared;
  }

  /// Registers, predicates and parameter words of a function, behind those of the functions before it.
  void prepare(int f) {
    const PtxBody& body = module_.functions[static_cast<std::size_t>(f)];
    Base base;
    base.places = place_registers(body);
    base.unit = units_;
    base.predicate = program_.predicates;
    units_ += static_cast<std::uint32_t>(base.places.units);
    program_.predicates += base.places.predicates;
    for (std::size_t id = 0; id < module_.variables.size(); ++id) {
      const PtxVariable& variable = module_.variables[id];
      if (variable.function != f || variable.space != PtxSpace::param) continue;
      if (body.entry && std::find(body.params.begin(), body.params.end(), static_cast<int>(id)) != body.params.end()) continue;
      words_[static_cast<int>(id)] = units_;
      units_ += static_cast<std::uint32_t>((variable.bytes + 3) / 4);
    }
    bases_.push_back(std::move(base));
    FunctionInfo info{body.name, 0, {}, {}};
    if (!body.entry) {
      for (const int id : body.params) append_words(id, info.param_words);
      for (const int id : body.returns) append_words(id, info.return_words);
    }
    program_.functions.push_back(std::move(info));
  }
  void append_words(int variable, std::vector<Ref>& out) const {
    const std::int64_t words = (module_.variables[static_cast<std::size_t>(variable)].bytes + 3) / 4;
    for (std::int64_t i = 0; i < words; ++i) out.push_back((words_.at(variable) + static_cast<std::uint32_t>(i)) * kUnit);
  }

  // ---- operands --------------------------------------------------------------------------------------------------------

  PtxType type_of(int reg) const {
    return module_.functions[static_cast<std::size_t>(function_)].registers[static_cast<std::size_t>(reg)].type;
  }
  Ref register_ref(int reg) const {
    const Base& base = bases_[static_cast<std::size_t>(function_)];
    return (base.unit + static_cast<std::uint32_t>(base.places.of[static_cast<std::size_t>(reg)])) * kUnit;
  }
  int predicate(int reg) const {
    const Base& base = bases_[static_cast<std::size_t>(function_)];
    return base.predicate + base.places.of[static_cast<std::size_t>(reg)];
  }

  Ref constant(std::uint64_t value, int bytes, bool global = false) {
    const auto [at, fresh] = constants_.emplace(std::tuple(value, bytes, global), static_cast<Ref>(program_.constants.size()) | kConstant);
    if (!fresh) return at->second;
    for (int lane = 0; lane < 32; ++lane)
      for (int byte = 0; byte < bytes; ++byte) program_.constants.push_back(static_cast<std::uint8_t>(value >> (8 * byte)));
    if (global) program_.global_addresses.emplace_back(at->second, static_cast<std::int64_t>(value));
    return at->second;
  }

  Ref special(const std::string& name) {
    for (const auto& [at, known] : program_.specials)
      if (known == name) return at * kUnit;
    program_.specials.emplace_back(units_, name);
    units_ += 1;
    return (units_ - 1) * kUnit;
  }

  /// Address of a variable as a number; `global` when it must be moved to where the module's memory lies.
  Result<std::uint64_t> variable_address(const PtxInstruction& at, int id, bool* global) const {
    const PtxVariable& variable = module_.variables[static_cast<std::size_t>(id)];
    const std::int64_t where = where_[static_cast<std::size_t>(id)];
    *global = variable.space == PtxSpace::global || variable.space == PtxSpace::constant;
    if (where < 0) return error(at, fmt::format("the address of '{}' is not supported", variable.name));
    if (variable.space == PtxSpace::param) return kParamWindow + static_cast<std::uint64_t>(where);
    return static_cast<std::uint64_t>(where);
  }

  /// `bytes`: 4 (for 16-bit types too) or 8.
  Result<Ref> value(const PtxInstruction& at, const PtxOperand& operand, PtxType type) {
    const int bytes = bytes_of(type) == 8 ? 8 : 4;
    switch (operand.kind) {
      case PtxOperandKind::reg:
        if (type_of(operand.reg) == PtxType::pred) return error(at, "a predicate where a value belongs");
        if ((bytes_of(type_of(operand.reg)) == 8) != (bytes == 8)) return error(at, "a register of another width");
        return register_ref(operand.reg);
      case PtxOperandKind::immediate: {
        std::uint64_t bits = static_cast<std::uint64_t>(operand.value);
        if (bytes_of(type) < 4) bits &= bytes_of(type) == 2 ? 0xffffu : 0xffu;
        if (bytes == 4) bits &= 0xffffffffu;
        return constant(bits, bytes);
      }
      case PtxOperandKind::special:
        if (bytes != 4) return error(at, "a special register of another width");
        return special(operand.special);
      case PtxOperandKind::variable: {
        bool global = false;
        ADAMK_TRY(const std::uint64_t address, variable_address(at, operand.variable, &global));
        return constant(address, bytes, global);
      }
      default: return error(at, "an operand of a kind that is not supported here");
    }
  }
  Result<int> predicate_value(const PtxInstruction& at, const PtxOperand& operand) const {
    if (operand.kind == PtxOperandKind::immediate) return operand.value != 0 ? 1 : 0;
    if (operand.kind != PtxOperandKind::reg || type_of(operand.reg) != PtxType::pred) return error(at, "no predicate where one belongs");
    return predicate(operand.reg);
  }

  Result<void> address(const PtxInstruction& at, const PtxOperand& operand, Ref* base, std::int64_t* offset, bool* wide) {
    if (operand.kind != PtxOperandKind::address) return error(at, "no address where one belongs");
    *offset = operand.value;
    if (operand.reg >= 0) {
      *wide = bytes_of(type_of(operand.reg)) == 8;
      *base = register_ref(operand.reg);
    } else if (operand.variable >= 0) {
      bool global = false;
      ADAMK_TRY(const std::uint64_t where, variable_address(at, operand.variable, &global));
      *wide = true;
      *base = constant(where, 8, global);
    } else {
      *wide = true;
      *base = constant(0, 8);
    }
    return {};
  }

  // ---- instructions ----------------------------------------------------------------------------------------------------

  const PtxOperand& operand(const PtxInstruction& at, std::size_t i) const { return at.operands[i]; }

  Result<void> add(const PtxInstruction& at) {
    Op op;
    op.op = at.op;
    op.type = at.type;
    op.space = at.space;
    op.order = at.order;
    op.scope = at.scope;
    op.line = at.line;
    op.width = static_cast<std::uint8_t>(std::max(1, bytes_of(at.type)));
    op.vector = static_cast<std::uint8_t>(at.vector);
    if (at.guard >= 0) {
      if (type_of(at.guard) != PtxType::pred) return error(at, "guarded by a register that is no predicate");
      op.guard = predicate(at.guard);
      op.guard_negated = at.guard_negated;
    }
    ADAMK_CHECK(fill(at, op));
    program_.code.push_back(op);
    program_.text.push_back(at.opcode);
    return {};
  }

  Result<void> expect(const PtxInstruction& at, std::size_t least, std::size_t most) const {
    if (at.operands.size() >= least && at.operands.size() <= most) return {};
    return error(at, fmt::format("{} operands", at.operands.size()));
  }

  Result<void> result(const PtxInstruction& at, std::size_t i, Ref* out, int bytes) {
    const PtxOperand& operand = at.operands[i];
    if (operand.kind == PtxOperandKind::sink) {
      *out = kNoRef;
      return {};
    }
    if (operand.kind != PtxOperandKind::reg) return error(at, "a result that is no register");
    const int have = bytes_of(type_of(operand.reg)) == 8 ? 8 : 4;
    if (type_of(operand.reg) == PtxType::pred || have != bytes) return error(at, "a result register of another width");
    *out = register_ref(operand.reg);
    return {};
  }

  Result<void> fill(const PtxInstruction& at, Op& op) {
    switch (at.op) {
      case PtxOp::mov: return fill_mov(at, op);
      case PtxOp::setp: return fill_setp(at, op);
      case PtxOp::selp: return fill_selp(at, op);
      case PtxOp::ld: case PtxOp::st: return fill_memory(at, op);
      case PtxOp::atom: case PtxOp::red: return fill_atomic(at, op);
      case PtxOp::ldmatrix: case PtxOp::stmatrix: return fill_matrix(at, op);
      case PtxOp::mma: return fill_mma(at, op);
      case PtxOp::shfl: return fill_shfl(at, op);
      case PtxOp::vote: case PtxOp::match: case PtxOp::redux: case PtxOp::activemask: return fill_vote(at, op);
      case PtxOp::cvta: return fill_cvta(at, op);
      case PtxOp::mapa: {
        ADAMK_CHECK(expect(at, 3, 3));
        op.kind = Kind::address_of_rank;
        ADAMK_CHECK(result(at, 0, &op.d[0], bytes_of(at.type)));
        ADAMK_TRY(op.s[0], value(at, operand(at, 1), at.type));
        ADAMK_TRY(op.s[1], value(at, operand(at, 2), PtxType::u32));
        return {};
      }
      case PtxOp::bfi: return fill_bfi(at, op);
      case PtxOp::bra: op.kind = Kind::branch; op.target = program_.functions[static_cast<std::size_t>(function_)].begin + at.target; return {};
      case PtxOp::ret: op.kind = module_.functions[static_cast<std::size_t>(function_)].entry ? Kind::exit : Kind::ret; return {};
      case PtxOp::exit: op.kind = Kind::exit; return {};
      case PtxOp::trap: op.kind = Kind::trap; return {};
      case PtxOp::call: return fill_call(at, op);
      case PtxOp::createpolicy: op.kind = Kind::lanes; op.lanes = lane_ops().mov64; op.s[0] = constant(0, 8); return result(at, 0, &op.d[0], 8);
      case PtxOp::griddepcontrol: case PtxOp::nanosleep: op.kind = Kind::nothing; return {};
      case PtxOp::fence_mbarrier_init: op.kind = Kind::fence_init; return {};
      case PtxOp::fence: case PtxOp::membar: op.kind = Kind::fence; return {};
      case PtxOp::fence_proxy: op.kind = Kind::fence_proxy; return {};
      case PtxOp::bar_sync: case PtxOp::bar_arrive: case PtxOp::bar_warp_sync: case PtxOp::cluster_arrive: case PtxOp::cluster_wait:
        return fill_barrier(at, op);
      case PtxOp::mbarrier_init: case PtxOp::mbarrier_inval: case PtxOp::mbarrier_arrive: case PtxOp::mbarrier_expect_tx:
      case PtxOp::mbarrier_test_wait: case PtxOp::mbarrier_try_wait: return fill_mbarrier(at, op);
      case PtxOp::cp_async: case PtxOp::cp_async_commit: case PtxOp::cp_async_wait_group: case PtxOp::cp_async_wait_all:
      case PtxOp::cp_async_mbarrier_arrive: case PtxOp::cp_async_bulk: return fill_copy(at, op);
      default: return fill_lanes(at, op);
    }
  }

  Result<void> fill_mov(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 2, 2));
    const PtxOperand &to = operand(at, 0), &from = operand(at, 1);
    if (at.type == PtxType::pred) {
      op.kind = Kind::predicate;
      ADAMK_TRY(op.predicate_out, predicate_value(at, to));
      ADAMK_TRY(op.predicate_in, predicate_value(at, from));
      op.combine_negated = from.negated;
      return {};
    }
    const int bytes = bytes_of(at.type);
    if (to.kind == PtxOperandKind::vector || from.kind == PtxOperandKind::vector) return fill_parts(at, op, bytes);
    if (from.kind == PtxOperandKind::special && (from.special == "%clock64" || from.special == "%clock" || from.special == "%globaltimer")) {
      op.kind = Kind::clock;
      return result(at, 0, &op.d[0], bytes);
    }
    op.kind = Kind::lanes;
    op.lanes = bytes == 8 ? lane_ops().mov64 : lane_ops().mov32;
    ADAMK_CHECK(result(at, 0, &op.d[0], bytes == 8 ? 8 : 4));
    ADAMK_TRY(op.s[0], value(at, from, at.type));
    return {};
  }

  /// mov.b64 {a, b}, x and back, of 2 or 4 parts.
  Result<void> fill_parts(const PtxInstruction& at, Op& op, int bytes) {
    const bool unpack = operand(at, 0).kind == PtxOperandKind::vector;
    const PtxOperand& whole = operand(at, unpack ? 1 : 0);
    const PtxOperand& parts = operand(at, unpack ? 0 : 1);
    const int n = static_cast<int>(parts.parts.size());
    if (whole.kind == PtxOperandKind::vector || (n != 2 && n != 4) || bytes / n < 2) return error(at, "parts that do not fit");
    op.kind = unpack ? Kind::unpack : Kind::pack;
    op.vector = static_cast<std::uint8_t>(n);
    op.width = static_cast<std::uint8_t>(bytes / n);
    const PtxType part_type = bytes / n == 2 ? PtxType::b16 : PtxType::b32;
    for (int i = 0; i < n; ++i) {
      const PtxOperand& part = parts.parts[static_cast<std::size_t>(i)];
      Ref* ref = unpack ? &op.d[i] : &op.s[i];
      if (part.kind == PtxOperandKind::sink) continue;
      ADAMK_TRY(*ref, value(at, part, part_type));
    }
    Ref* ref = unpack ? &op.s[0] : &op.d[0];
    ADAMK_TRY(*ref, value(at, whole, at.type));
    return {};
  }

  Result<void> fill_setp(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 3, 4));
    op.kind = Kind::compare;
    ADAMK_TRY(op.compare, select_compare(at));
    const PtxOperand& out = operand(at, 0);
    if (out.kind == PtxOperandKind::vector) {
      ADAMK_TRY(op.predicate_out, predicate_value(at, out.parts[0]));
      if (out.parts[1].kind != PtxOperandKind::sink) {
        ADAMK_TRY(op.predicate_out2, predicate_value(at, out.parts[1]));
      }
    } else {
      ADAMK_TRY(op.predicate_out, predicate_value(at, out));
    }
    ADAMK_TRY(op.s[0], value(at, operand(at, 1), at.type));
    ADAMK_TRY(op.s[1], value(at, operand(at, 2), at.type));
    if (at.operands.size() == 4) {
      ADAMK_TRY(op.predicate_in, predicate_value(at, operand(at, 3)));
      op.combine_negated = operand(at, 3).negated;
      op.predicate = at.has("and") ? PredicateOp::and_ : at.has("or") ? PredicateOp::or_ : PredicateOp::xor_;
    }
    return {};
  }

  Result<void> fill_selp(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 4, 4));
    op.kind = Kind::lanes;
    op.lanes = bytes_of(at.type) == 8 ? lane_ops().selp64 : lane_ops().selp32;
    ADAMK_CHECK(result(at, 0, &op.d[0], bytes_of(at.type) == 8 ? 8 : 4));
    ADAMK_TRY(op.s[0], value(at, operand(at, 1), at.type));
    ADAMK_TRY(op.s[1], value(at, operand(at, 2), at.type));
    ADAMK_TRY(op.predicate_in, predicate_value(at, operand(at, 3)));
    return {};
  }

  Result<void> fill_predicate(const PtxInstruction& at, Op& op) {
    op.kind = Kind::predicate;
    op.predicate = at.op == PtxOp::not_ ? PredicateOp::not_ : at.op == PtxOp::and_ ? PredicateOp::and_ : at.op == PtxOp::or_ ? PredicateOp::or_ : PredicateOp::xor_;
    ADAMK_TRY(op.predicate_out, predicate_value(at, operand(at, 0)));
    ADAMK_TRY(op.predicate_in, predicate_value(at, operand(at, 1)));
    if (at.operands.size() > 2) {
      ADAMK_TRY(op.predicate_in2, predicate_value(at, operand(at, 2)));
    }
    return {};
  }

  Result<void> fill_lanes(const PtxInstruction& at, Op& op) {
    if (at.type == PtxType::pred) return fill_predicate(at, op);
    ADAMK_TRY(const Selected chosen, select_lanes(at));
    op.kind = Kind::lanes;
    op.lanes = chosen.function;
    ADAMK_CHECK(expect(at, static_cast<std::size_t>(chosen.operands) + 1, static_cast<std::size_t>(chosen.operands) + 1));
    ADAMK_CHECK(result(at, 0, &op.d[0], bytes_of(chosen.to) == 8 ? 8 : 4));
    for (int i = 0; i < chosen.operands; ++i) {
      ADAMK_TRY(op.s[i], value(at, operand(at, static_cast<std::size_t>(i) + 1), chosen.from[i]));
    }
    return {};
  }

  Result<void> fill_bfi(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 5, 5));
    const PtxOperand &position = operand(at, 3), &length = operand(at, 4);
    if (position.kind != PtxOperandKind::immediate || length.kind != PtxOperandKind::immediate)
      return error(at, "position and length must be constants");
    op.kind = Kind::lanes;
    op.lanes = bytes_of(at.type) == 8 ? lane_ops().bfi64 : lane_ops().bfi32;
    ADAMK_CHECK(result(at, 0, &op.d[0], bytes_of(at.type)));
    ADAMK_TRY(op.s[0], value(at, operand(at, 1), at.type));
    ADAMK_TRY(op.s[1], value(at, operand(at, 2), at.type));
    op.s[2] = constant(static_cast<std::uint64_t>(length.value) << 32 | static_cast<std::uint32_t>(position.value), 8);
    return {};
  }

  Result<void> fill_cvta(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 2, 2));
    if (bytes_of(at.type) != 8) return error(at, "addresses of 32 bits");
    op.kind = Kind::lanes;
    ADAMK_CHECK(result(at, 0, &op.d[0], 8));
    ADAMK_TRY(op.s[0], value(at, operand(at, 1), at.type));
    const std::uint64_t window = at.space == PtxSpace::shared ? kSharedWindow : at.space == PtxSpace::local ? kLocalWindow : 0;
    op.lanes = window == 0 ? lane_ops().mov64 : at.has("to") ? lane_ops().sub64 : lane_ops().add64;
    op.s[1] = constant(window, 8);
    return {};
  }

  Result<void> vector_values(const PtxInstruction& at, const PtxOperand& operand, PtxType type, Ref* refs, std::size_t count) {
    if (operand.kind != PtxOperandKind::vector) {
      if (count != 1) return error(at, "a vector of another length");
      if (operand.kind == PtxOperandKind::sink) return {};
      ADAMK_TRY(refs[0], value(at, operand, type));
      return {};
    }
    if (operand.parts.size() != count) return error(at, "a vector of another length");
    for (std::size_t i = 0; i < count; ++i) {
      if (operand.parts[i].kind == PtxOperandKind::sink) continue;
      ADAMK_TRY(refs[i], value(at, operand.parts[i], type));
    }
    return {};
  }

  Result<void> fill_memory(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 2, 3));
    const bool load = at.op == PtxOp::ld;
    const PtxOperand& where = operand(at, load ? 1 : 0);
    const PtxOperand& what = operand(at, load ? 0 : 1);
    if (at.vector > 4) return error(at, "vectors of 8 are not supported");
    const auto count = static_cast<std::size_t>(at.vector);
    ADAMK_CHECK(vector_values(at, what, at.type, load ? op.d : op.s, count));
    if (where.variable >= 0 && words_.contains(where.variable)) return fill_param(at, op, where, load);
    op.kind = load ? Kind::load : Kind::store;
    op.mode = at.has("nc") ? 1 : 0;
    if (!load && at.space == PtxSpace::param) return error(at, "the parameters of a kernel are read-only");
    return address(at, where, &op.address, &op.offset, &op.wide_address);
  }

  /// Parameters of calls live in registers.
  Result<void> fill_param(const PtxInstruction& at, Op& op, const PtxOperand& where, bool load) {
    const std::int64_t bytes = module_.variables[static_cast<std::size_t>(where.variable)].bytes;
    const std::int64_t size = std::int64_t{op.vector} * op.width;
    if (where.value < 0 || where.value + size > bytes) return error(at, "outside of the parameter");
    if (op.width < 4 ? bytes > 4 || where.value != 0 : where.value % 4 != 0) return error(at, "a part of a parameter's word");
    op.kind = load ? Kind::param_load : Kind::param_store;
    const std::uint32_t first = words_[where.variable] + static_cast<std::uint32_t>(where.value / 4);
    op.address = first * kUnit;
    return {};
  }

  Result<void> fill_atomic(const PtxInstruction& at, Op& op) {
    const bool returns = at.op == PtxOp::atom;
    op.kind = Kind::atomic;
    constexpr std::pair<std::string_view, AtomicOp> names[] = {
        {"add", AtomicOp::add}, {"inc", AtomicOp::inc}, {"dec", AtomicOp::dec}, {"min", AtomicOp::min}, {"max", AtomicOp::max},
        {"and", AtomicOp::and_}, {"or", AtomicOp::or_}, {"xor", AtomicOp::xor_}, {"exch", AtomicOp::exch}, {"cas", AtomicOp::cas}};
    bool found = false;
    for (const auto& [name, atomic] : names)
      if (at.has(name)) op.atomic = atomic, found = true;
    if (at.vector != 1 || !found || bytes_of(at.type) < 4 || (is_float(at.type) && (at.type != PtxType::f32 || op.atomic != AtomicOp::add)))
      return error(at, "an atomic of a kind that is not supported");
    if (is_float(at.type)) op.atomic = AtomicOp::add_f32;
    const std::size_t first = returns ? 1 : 0;
    ADAMK_CHECK(expect(at, first + (op.atomic == AtomicOp::cas ? 3 : 2), first + 3));
    if (returns) {
      ADAMK_CHECK(result(at, 0, &op.d[0], bytes_of(at.type)));
    }
    ADAMK_CHECK(address(at, operand(at, first), &op.address, &op.offset, &op.wide_address));
    ADAMK_TRY(op.s[0], value(at, operand(at, first + 1), at.type));
    if (op.atomic == AtomicOp::cas) {
      ADAMK_TRY(op.s[1], value(at, operand(at, first + 2), at.type));
    }
    return {};
  }

  Result<void> fill_matrix(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 2, 2));
    const bool load = at.op == PtxOp::ldmatrix;
    op.kind = load ? Kind::ldmatrix : Kind::stmatrix;
    if (!at.has("m8n8") || bytes_of(at.type) != 2) return error(at, "only m8n8 of 16-bit elements is supported");
    op.vector = at.has("x4") ? 4 : at.has("x2") ? 2 : 1;
    op.mode = at.has("trans") ? 1 : 0;
    ADAMK_CHECK(vector_values(at, operand(at, load ? 0 : 1), PtxType::b32, load ? op.d : op.s, op.vector));
    return address(at, operand(at, load ? 1 : 0), &op.address, &op.offset, &op.wide_address);
  }

  Result<void> fill_mma(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 4, 4));
    op.kind = Kind::mma;
    const bool k16 = at.has("m16n8k16"), bf16 = at.opcode.find("f32.bf16.bf16.f32") != std::string::npos,
               f16 = at.opcode.find("f32.f16.f16.f32") != std::string::npos;
    if ((!k16 && !at.has("m16n8k8")) || (!bf16 && !f16)) return error(at, "a shape or type that is not supported");
    const LaneOps& ops = lane_ops();
    op.mma = k16 ? (bf16 ? ops.mma_bf16_k16 : ops.mma_f16_k16) : bf16 ? ops.mma_bf16_k8 : ops.mma_f16_k8;
    op.vector = k16 ? 4 : 2;
    ADAMK_CHECK(vector_values(at, operand(at, 0), PtxType::f32, op.d, 4));
    ADAMK_CHECK(vector_values(at, operand(at, 1), PtxType::b32, op.s, op.vector));
    ADAMK_CHECK(vector_values(at, operand(at, 2), PtxType::b32, op.s + 4, op.vector / 2u));
    return vector_values(at, operand(at, 3), PtxType::f32, op.s + 6, 4);
  }

  Result<void> fill_shfl(const PtxInstruction& at, Op& op) {
    ADAMK_CHECK(expect(at, 5, 5));
    op.kind = Kind::shfl;
    op.mode = at.has("up") ? 0 : at.has("down") ? 1 : at.has("bfly") ? 2 : 3;
    const PtxOperand& out = operand(at, 0);
    const PtxOperand& to = out.kind == PtxOperandKind::vector ? out.parts[0] : out;
    if (out.kind == PtxOperandKind::vector && out.parts[1].kind != PtxOperandKind::sink) {
      ADAMK_TRY(op.predicate_out, predicate_value(at, out.parts[1]));
    }
    ADAMK_TRY(op.d[0], value(at, to, PtxType::b32));
    for (std::size_t i = 0; i < 4; ++i) {
      ADAMK_TRY(op.s[i], value(at, operand(at, i + 1), PtxType::b32));
    }
    return {};
  }

  Result<void> fill_vote(const PtxInstruction& at, Op& op) {
    op.kind = at.op == PtxOp::vote ? Kind::vote : at.op == PtxOp::match ? Kind::match : at.op == PtxOp::redux ? Kind::redux : Kind::activemask;
    if (at.op == PtxOp::activemask) return result(at, 0, &op.d[0], 4);
    ADAMK_CHECK(expect(at, 3, 3));
    if (at.op == PtxOp::vote) {
      op.mode = at.has("all") ? 0 : at.has("any") ? 1 : at.has("uni") ? 2 : 3;
      if (op.mode == 3) {
        ADAMK_CHECK(result(at, 0, &op.d[0], 4));
      }
      else {
        ADAMK_TRY(op.predicate_out, predicate_value(at, operand(at, 0)));
      }
      ADAMK_TRY(op.predicate_in, predicate_value(at, operand(at, 1)));
      op.combine_negated = operand(at, 1).negated;
    } else {
      if (bytes_of(at.type) != 4 || (at.op == PtxOp::match && !at.has("any"))) return error(at, "a form that is not supported");
      constexpr std::string_view names[] = {"add", "min", "max", "and", "or", "xor"};
      for (std::uint8_t i = 0; i < 6; ++i)
        if (at.has(names[i])) op.mode = i;
      ADAMK_CHECK(result(at, 0, &op.d[0], 4));
      ADAMK_TRY(op.s[0], value(at, operand(at, 1), PtxType::b32));
    }
    ADAMK_TRY(op.s[3], value(at, operand(at, 2), PtxType::b32));
    return {};
  }

  Result<void> fill_barrier(const PtxInstruction& at, Op& op) {
    if (at.op == PtxOp::cluster_arrive || at.op == PtxOp::cluster_wait) {
      op.kind = at.op == PtxOp::cluster_arrive ? Kind::cluster_arrive : Kind::cluster_wait;
      op.mode = at.order == PtxOrder::relaxed ? 1 : 0;
      return {};
    }
    if (at.op == PtxOp::bar_warp_sync) {
      ADAMK_CHECK(expect(at, 1, 1));
      op.kind = Kind::warp_sync;
      ADAMK_TRY(op.s[3], value(at, operand(at, 0), PtxType::b32));
      return {};
    }
    ADAMK_CHECK(expect(at, at.op == PtxOp::bar_arrive ? 2 : 1, 2));
    op.kind = at.op == PtxOp::bar_sync ? Kind::bar : Kind::bar_arrive;
    ADAMK_TRY(op.s[0], value(at, operand(at, 0), PtxType::u32));
    if (at.operands.size() == 2) {
      ADAMK_TRY(op.s[1], value(at, operand(at, 1), PtxType::u32));
    }
    return {};
  }

  Result<void> fill_mbarrier(const PtxInstruction& at, Op& op) {
    const bool waits = at.op == PtxOp::mbarrier_test_wait || at.op == PtxOp::mbarrier_try_wait;
    const std::size_t first = at.op == PtxOp::mbarrier_arrive || waits ? 1 : 0;
    ADAMK_CHECK(expect(at, first + 1, first + 3));
    ADAMK_CHECK(address(at, operand(at, first), &op.address, &op.offset, &op.wide_address));
    if (at.op == PtxOp::mbarrier_init) {
      op.kind = Kind::mbarrier_init;
      ADAMK_CHECK(expect(at, 2, 2));
      ADAMK_TRY(op.s[0], value(at, operand(at, 1), PtxType::u32));
      return {};
    }
    if (at.op == PtxOp::mbarrier_inval) {
      op.kind = Kind::mbarrier_inval;
      return {};
    }
    if (waits) {
      op.kind = Kind::mbarrier_wait;
      op.mode = at.has("parity") ? 1 : 0;
      ADAMK_TRY(op.predicate_out, predicate_value(at, operand(at, 0)));
      ADAMK_CHECK(expect(at, 3, 4));
      ADAMK_TRY(op.s[0], value(at, operand(at, 2), op.mode == 1 ? PtxType::u32 : PtxType::b64));
      return {};
    }
    const bool expects = at.op == PtxOp::mbarrier_expect_tx || at.has("expect_tx");
    op.kind = at.op == PtxOp::mbarrier_expect_tx ? Kind::mbarrier_expect : Kind::mbarrier_arrive;
    op.mode = expects ? 1 : 0;
    if (first == 1 && operand(at, 0).kind != PtxOperandKind::sink) {
      ADAMK_CHECK(result(at, 0, &op.d[0], 8));
    }
    if (expects || at.operands.size() > first + 1) {
      ADAMK_CHECK(expect(at, first + 2, first + 2));
      ADAMK_TRY(op.s[0], value(at, operand(at, first + 1), PtxType::u32));
    }
    return {};
  }

  Result<void> fill_copy(const PtxInstruction& at, Op& op) {
    if (at.op == PtxOp::cp_async) return fill_async_copy(at, op);
    if (at.op == PtxOp::cp_async_bulk) return fill_bulk_copy(at, op);
    if (at.op == PtxOp::cp_async_commit) {
      op.kind = Kind::cp_commit;
    } else if (at.op == PtxOp::cp_async_mbarrier_arrive) {
      op.kind = Kind::cp_mbarrier_arrive;
      op.mode = at.has("noinc") ? 1 : 0;
      ADAMK_CHECK(expect(at, 1, 1));
      return address(at, operand(at, 0), &op.address, &op.offset, &op.wide_address);
    } else {   // wait_group N; wait_all
      op.kind = Kind::cp_wait;
      if (at.op == PtxOp::cp_async_wait_all) return {};
      ADAMK_CHECK(expect(at, 1, 1));
      if (operand(at, 0).kind != PtxOperandKind::immediate) return error(at, "a number of groups that is no constant");
      op.mode = 1;
      op.offset = operand(at, 0).value;
    }
    return {};
  }

  Result<void> fill_async_copy(const PtxInstruction& at, Op& op) {
    op.kind = Kind::cp_async;
    ADAMK_CHECK(expect(at, 3, 5));
    if (operand(at, 2).kind != PtxOperandKind::immediate) return error(at, "a size that is no constant");
    op.offset3 = operand(at, 2).value;
    if (op.offset3 != 4 && op.offset3 != 8 && op.offset3 != 16) return error(at, "4, 8 or 16 bytes can be copied");
    if (at.operands.size() > (at.has("L2::cache_hint") ? 4u : 3u)) return error(at, "zero-filling copies are not supported");
    bool wide = false;
    ADAMK_CHECK(address(at, operand(at, 0), &op.address, &op.offset, &op.wide_address));
    ADAMK_CHECK(address(at, operand(at, 1), &op.address2, &op.offset2, &wide));
    if (!wide) return error(at, "a source address of 32 bits");
    return {};
  }

  Result<void> fill_bulk_copy(const PtxInstruction& at, Op& op) {
    op.kind = Kind::cp_bulk;
    ADAMK_CHECK(expect(at, 4, 5));
    if (at.space != PtxSpace::shared || !at.has("global") || !at.has("mbarrier::complete_tx::bytes"))
      return error(at, "only copies from global to shared memory that complete on an mbarrier are supported");
    bool wide = false, wide_barrier = false;
    ADAMK_CHECK(address(at, operand(at, 0), &op.address, &op.offset, &op.wide_address));
    ADAMK_CHECK(address(at, operand(at, 1), &op.address2, &op.offset2, &wide));
    ADAMK_TRY(op.s[0], value(at, operand(at, 2), PtxType::u32));
    ADAMK_CHECK(address(at, operand(at, 3), &op.address3, &op.offset3, &wide_barrier));
    op.mode = wide_barrier ? 1 : 0;
    if (!wide) return error(at, "a source address of 32 bits");
    return {};
  }

  Result<void> fill_call(const PtxInstruction& at, Op& op) {
    op.kind = Kind::call;
    op.target = static_cast<int>(program_.calls.size());
    if (at.target >= function_) return error(at, "a function is called before its body, or calls itself");
    Call call{at.target, {}, {}};
    for (std::size_t list = 0; list < 2; ++list) {
      for (const PtxOperand& part : at.operands[list].parts) {
        if (part.kind != PtxOperandKind::variable || !words_.contains(part.variable)) return error(at, "a parameter that is no .param variable");
        append_words(part.variable, list == 0 ? call.results : call.arguments);
      }
    }
    const FunctionInfo& callee = program_.functions[static_cast<std::size_t>(at.target)];
    if (call.arguments.size() != callee.param_words.size() || call.results.size() != callee.return_words.size())
      return error(at, fmt::format("the parameters are not those of '{}'", callee.name));
    program_.calls.push_back(std::move(call));
    return {};
  }

  struct Base {
    Places places;
    std::uint32_t unit = 0;
    int predicate = 0;
  };
  const PtxModule& module_;
  Program program_;
  int function_ = 0;
  std::uint32_t units_ = 0;
  std::vector<Base> bases_;
  std::vector<std::int64_t> where_;            // of each variable: shared address, offset in params, locals or globals
  std::map<int, std::uint32_t> words_;         // of .param variables of functions and calls: first unit
  std::map<std::tuple<std::uint64_t, int, bool>, Ref> constants_;
};

}  // namespace

Result<Program> decode(const PtxModule& module, const std::string& entry) { return Decoder(module).run(entry); }

}  // namespace adamk::ptx
