#include "instruction_table.h"

#include <algorithm>
#include <array>
#include <span>

namespace adamk {
namespace {

struct TypeRow {
  std::string_view name;
  int bytes;
  bool is_float, is_signed;
};
constexpr std::array<TypeRow, 20> types = {{{"", 0, false, false},       {"pred", 0, false, false},  {"b8", 1, false, false},
                                            {"u8", 1, false, false},     {"s8", 1, false, true},     {"b16", 2, false, false},
                                            {"u16", 2, false, false},    {"s16", 2, false, true},    {"f16", 2, true, true},
                                            {"bf16", 2, true, true},     {"b32", 4, false, false},   {"u32", 4, false, false},
                                            {"s32", 4, false, true},     {"f32", 4, true, true},     {"f16x2", 4, true, true},
                                            {"bf16x2", 4, true, true},   {"b64", 8, false, false},   {"u64", 8, false, false},
                                            {"s64", 8, false, true},     {"f64", 8, true, true}}};

/// Longest prefix first where one is the beginning of another. `parts` are the words of the opcode that make the operation.
struct OpRow {
  std::string_view prefix;
  PtxOp op;
  int results;
};
constexpr OpRow ops[] = {
    {"mov", PtxOp::mov, 1}, {"add", PtxOp::add, 1}, {"sub", PtxOp::sub, 1}, {"mul", PtxOp::mul, 1}, {"mad", PtxOp::mad, 1},
    {"fma", PtxOp::fma, 1}, {"div", PtxOp::div, 1}, {"rem", PtxOp::rem, 1}, {"rcp", PtxOp::rcp, 1},
    {"rsqrt", PtxOp::rsqrt, 1}, {"sqrt", PtxOp::sqrt, 1}, {"ex2", PtxOp::ex2, 1}, {"lg2", PtxOp::lg2, 1},
    {"sin", PtxOp::sin, 1}, {"cos", PtxOp::cos, 1}, {"tanh", PtxOp::tanh, 1}, {"neg", PtxOp::neg, 1}, {"abs", PtxOp::abs, 1},
    {"min", PtxOp::min, 1}, {"max", PtxOp::max, 1}, {"and", PtxOp::and_, 1}, {"or", PtxOp::or_, 1}, {"xor", PtxOp::xor_, 1},
    {"not", PtxOp::not_, 1}, {"shl", PtxOp::shl, 1}, {"shr", PtxOp::shr, 1}, {"shf", PtxOp::shf, 1}, {"bfe", PtxOp::bfe, 1},
    {"bfi", PtxOp::bfi, 1}, {"prmt", PtxOp::prmt, 1}, {"lop3", PtxOp::lop3, 1}, {"popc", PtxOp::popc, 1},
    {"clz", PtxOp::clz, 1}, {"brev", PtxOp::brev, 1}, {"setp", PtxOp::setp, 1}, {"selp", PtxOp::selp, 1},
    {"cvt", PtxOp::cvt, 1}, {"cvta", PtxOp::cvta, 1}, {"isspacep", PtxOp::isspacep, 1}, {"mapa", PtxOp::mapa, 1},
    {"ld", PtxOp::ld, 1}, {"st", PtxOp::st, 0}, {"atom", PtxOp::atom, 1}, {"red", PtxOp::red, 0},
    {"ldmatrix", PtxOp::ldmatrix, 1}, {"stmatrix", PtxOp::stmatrix, 0}, {"mma", PtxOp::mma, 1}, {"shfl", PtxOp::shfl, 1},
    {"vote", PtxOp::vote, 1}, {"match", PtxOp::match, 1}, {"activemask", PtxOp::activemask, 1}, {"redux", PtxOp::redux, 1},
    {"bar.warp.sync", PtxOp::bar_warp_sync, 0}, {"bar.sync", PtxOp::bar_sync, 0}, {"bar.arrive", PtxOp::bar_arrive, 0},
    {"barrier.sync", PtxOp::bar_sync, 0}, {"barrier.arrive", PtxOp::bar_arrive, 0},
    {"barrier.cluster.arrive", PtxOp::cluster_arrive, 0}, {"barrier.cluster.wait", PtxOp::cluster_wait, 0},
    {"fence.mbarrier_init", PtxOp::fence_mbarrier_init, 0}, {"fence.proxy", PtxOp::fence_proxy, 0},
    {"fence", PtxOp::fence, 0}, {"membar", PtxOp::membar, 0},
    {"mbarrier.init", PtxOp::mbarrier_init, 0}, {"mbarrier.inval", PtxOp::mbarrier_inval, 0},
    {"mbarrier.arrive", PtxOp::mbarrier_arrive, 1}, {"mbarrier.expect_tx", PtxOp::mbarrier_expect_tx, 0},
    {"mbarrier.test_wait", PtxOp::mbarrier_test_wait, 1}, {"mbarrier.try_wait", PtxOp::mbarrier_try_wait, 1},
    {"cp.async.bulk", PtxOp::cp_async_bulk, 0}, {"cp.async.mbarrier.arrive", PtxOp::cp_async_mbarrier_arrive, 0},
    {"cp.async.commit_group", PtxOp::cp_async_commit, 0}, {"cp.async.wait_group", PtxOp::cp_async_wait_group, 0},
    {"cp.async.wait_all", PtxOp::cp_async_wait_all, 0}, {"cp.async", PtxOp::cp_async, 0},
    {"createpolicy", PtxOp::createpolicy, 1}, {"griddepcontrol", PtxOp::griddepcontrol, 0},
    {"nanosleep", PtxOp::nanosleep, 0}, {"bra", PtxOp::bra, 0}, {"call", PtxOp::call, 0}, {"ret", PtxOp::ret, 0},
    {"exit", PtxOp::exit, 0}, {"trap", PtxOp::trap, 0}};

constexpr std::array<std::string_view, 80> other_modifiers = {
    "uni", "sync", "aligned", "lo", "hi", "wide", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "approx",
    "full", "relu", "satfinite", "eq", "ne", "lt", "le", "gt", "ge", "ltu", "leu", "gtu", "geu", "equ", "neu", "num", "nan",
    "ls", "hs", "and", "or", "xor", "add", "inc", "dec", "min", "max", "exch", "cas", "to", "nc", "ca", "cg", "cs", "cv", "wb", "wt", "lu",
    "up", "down", "bfly", "idx", "all", "any", "ballot", "parity", "noinc", "noComplete", "expect_tx", "row", "col", "m16n8k16", "m16n8k8",
    "m8n8", "x1", "x2", "x4", "trans", "l", "r", "wrap", "clamp", "fractional"};

bool known_modifier(std::string_view part) {
  if (std::find(other_modifiers.begin(), other_modifiers.end(), part) != other_modifiers.end()) return true;
  return part.starts_with("L1::") || part.starts_with("L2::") || part.starts_with("mbarrier::") || part == "read" ||
         part == "async" || part.starts_with("async::") || part == "alias" || part == "noftz";
}

bool order_named(std::string_view part, PtxOrder* order) {
  constexpr std::pair<std::string_view, PtxOrder> names[] = {
      {"weak", PtxOrder::weak},       {"relaxed", PtxOrder::relaxed}, {"acquire", PtxOrder::acquire},
      {"release", PtxOrder::release}, {"acq_rel", PtxOrder::acq_rel}, {"sc", PtxOrder::sc},
      {"volatile", PtxOrder::is_volatile}};
  for (const auto& [name, value] : names)
    if (part == name) return *order = value, true;
  return false;
}
bool scope_named(std::string_view part, PtxScope* scope) {
  constexpr std::pair<std::string_view, PtxScope> names[] = {
      {"cta", PtxScope::cta}, {"cluster", PtxScope::cluster}, {"gpu", PtxScope::gpu}, {"gl", PtxScope::gpu},
      {"sys", PtxScope::sys}};
  for (const auto& [name, value] : names)
    if (part == name) return *scope = value, true;
  return false;
}

/// "ld.global.u32" begins with the words of "ld", not of "l".
bool begins_with_words(std::string_view opcode, std::string_view prefix) {
  return opcode.starts_with(prefix) && (opcode.size() == prefix.size() || opcode[prefix.size()] == '.');
}

}  // namespace

int bytes_of(PtxType type) { return types[static_cast<std::size_t>(type)].bytes; }
bool is_float(PtxType type) { return types[static_cast<std::size_t>(type)].is_float; }
bool is_signed(PtxType type) { return types[static_cast<std::size_t>(type)].is_signed; }

std::string_view to_string(PtxOp op) {
  for (const OpRow& row : ops)
    if (row.op == op) return row.prefix;
  return "?";
}

bool PtxInstruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

namespace ptx {

PtxType type_named(std::string_view name) {
  for (std::size_t i = 1; i < types.size(); ++i)
    if (types[i].name == name) return static_cast<PtxType>(i);
  return PtxType::none;
}

bool space_named(std::string_view name, PtxSpace* space) {
  const std::string_view base = name.substr(0, name.find("::"));
  constexpr std::pair<std::string_view, PtxSpace> names[] = {{"param", PtxSpace::param},   {"local", PtxSpace::local},
                                                             {"shared", PtxSpace::shared}, {"global", PtxSpace::global},
                                                             {"const", PtxSpace::constant}};
  for (const auto& [spelling, value] : names)
    if (base == spelling) return *space = value, true;
  return false;
}

Result<PtxInstruction> read_opcode(std::string_view opcode) {
  const OpRow* found = nullptr;
  for (const OpRow& row : ops)
    if (begins_with_words(opcode, row.prefix) && (found == nullptr || row.prefix.size() > found->prefix.size())) found = &row;
  if (found == nullptr) return fail(Errc::bad_input, "unknown instruction '{}'", opcode);
  PtxInstruction out;
  out.op = found->op;
  out.results = found->results;
  out.opcode = std::string(opcode);
  std::string_view rest = opcode.substr(found->prefix.size());
  bool first_space = true;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = rest.find('.');
    const std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end);
    PtxSpace space{};
    if (const PtxType type = type_named(part); type != PtxType::none) {
      if (out.to_type == PtxType::none && out.type != PtxType::none) out.to_type = out.type;
      out.type = type;
    } else if (space_named(part, &space)) {
      // cp.async names destination, then source: the destination says what it is, the source is in `modifiers`.
      if (first_space) out.space = space;
      else out.modifiers.emplace_back(part);
      if (first_space && part.find("::") != std::string_view::npos) out.modifiers.emplace_back(part);
      first_space = false;
    } else if (order_named(part, &out.order) || scope_named(part, &out.scope)) {
      continue;
    } else if (part == "v2" || part == "v4" || part == "v8") {
      out.vector = part[1] - '0';
    } else if (known_modifier(part)) {
      out.modifiers.emplace_back(part);
    } else {
      return fail(Errc::bad_input, "unknown modifier '.{}' of '{}'", part, opcode);
    }
  }
  if (out.op == PtxOp::mbarrier_arrive && out.has("noComplete")) return fail(Errc::bad_input, "'{}' is not supported", opcode);
  return out;
}

}  // namespace ptx
}  // namespace adamk
