#include "adamk/ptx/module.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <optional>

#include "instruction_table.h"
#include "scanner.h"

namespace adamk {
namespace {

using ptx::Statement;
using ptx::StatementKind;

constexpr std::int64_t kMostVariableBytes = 1 << 24;
constexpr std::int64_t kMostInitialBytes = 1 << 26;      // of a module

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Splits at commas outside brackets of any kind.
std::vector<std::string_view> split_operands(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[' || text[i] == '(') ++depth;
    if (text[i] == '}' || text[i] == ']' || text[i] == ')') --depth;
    if (text[i] != ',' || depth != 0) continue;
    parts.push_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (const std::string_view last = trim(text.substr(begin)); !last.empty() || !parts.empty()) parts.push_back(last);
  return parts;
}

bool is_identifier(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%' || c == '.';
  });
}

/// Decimal, hexadecimal, 0f and 0d constants, and "1.0" (a double); the bits of the value.
std::optional<std::int64_t> immediate(std::string_view text) {
  if (text.find('.') != std::string_view::npos && text.find_first_not_of("-0123456789.") == std::string_view::npos) {
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return std::bit_cast<std::int64_t>(value);
  }
  bool negative = false;
  if (!text.empty() && text[0] == '-') negative = true, text.remove_prefix(1);
  if (text.ends_with('U')) text.remove_suffix(1);
  int base = 10;
  if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D") ||
      text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return static_cast<std::int64_t>(negative ? 0 - value : value);
}

bool is_special(std::string_view name) {
  constexpr std::string_view names[] = {
      "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x",
      "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%clock", "%clock64", "%globaltimer",
      "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%cluster_ctaid.x",
      "%cluster_nctaid.x", "%cluster_ctarank", "%cluster_nctarank", "%clusterid.x", "%nclusterid.x", "%dynamic_smem_size",
      "%total_smem_size"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class Parser {
 public:
  Result<PtxModule> parse(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) {
      if (auto done = take(statement); !done) return tl::unexpected(std::move(done).error());
    }
    ADAMK_CHECK(link_calls());
    return std::move(module_);
  }

 private:
  struct Scope {
    std::map<std::string, int, std::less<>> registers, variables;
  };
  struct Jump {
    std::size_t instruction;
    std::string label;
    int line;
  };
  struct Call {
    std::size_t function, instruction;
    std::string name;
    int line;
  };

  template <class... Args>
  tl::unexpected<Error> error(int line, fmt::format_string<Args...> format, Args&&... args) const {
    return tl::unexpected(Error{Errc::bad_input, fmt::format("PTX line {}: {}", line, fmt::format(format, std::forward<Args>(args)...))});
  }
  PtxBody& body() { return module_.functions.back(); }

  Result<void> take(const Statement& s) {
    switch (s.kind) {
      case StatementKind::line: return line(s);
      case StatementKind::header: return header(s);
      case StatementKind::open:
        if (!in_header_ && !in_function_) return error(s.line, "a block outside of a function");
        if (in_header_) in_header_ = false, in_function_ = true;
        else scopes_.emplace_back();
        return {};
      case StatementKind::close:
        if (scopes_.size() > 2) return scopes_.pop_back(), Result<void>{};
        return end_function(s);
      case StatementKind::label:
        if (!in_function_) return error(s.line, "a label outside of a function");
        if (!labels_.emplace(s.text, static_cast<int>(body().code.size())).second)
          return error(s.line, "label '{}' exists already", s.text);
        body().labels.emplace_back(static_cast<int>(body().code.size()), s.text);
        return {};
      case StatementKind::marker:
        if (in_function_) mark(s.text);
        return {};
      case StatementKind::plain: return plain(s);
    }
    return {};
  }

  void mark(const std::string& text) {
    const int at = static_cast<int>(body().code.size());
    const bool labelled = !body().labels.empty() && body().labels.back().first == at;
    body().markers.push_back({at, labelled, text});
  }

  Result<void> line(const Statement& s) {
    const std::size_t blank = s.text.find(' ');
    const std::string_view word = std::string_view(s.text).substr(0, blank);
    const std::string_view rest = blank == std::string::npos ? "" : std::string_view(s.text).substr(blank + 1);
    if (word == ".version") module_.version = std::string(rest);
    if (word == ".target") module_.target = std::string(trim(rest.substr(0, rest.find(','))));
    if (word == ".address_size" && rest != "64") return error(s.line, "addresses of {} bits; only 64 are supported", rest);
    return {};
  }

  // ---- functions -----------------------------------------------------------------------------------------------------

  Result<void> parameters(const Statement& s, std::string_view list, std::vector<int>* out) {
    for (const std::string_view each : split_operands(list)) {
      if (each.empty()) continue;
      ADAMK_TRY(const int id, declare(s.line, std::string(each), static_cast<int>(module_.functions.size()) - 1));
      out->push_back(id);
    }
    return {};
  }

  Result<void> header(const Statement& s) {
    if (in_function_ || in_header_) return error(s.line, "a function inside a function");
    PtxBody function;
    function.line = s.line;
    std::string_view text(s.text);
    std::size_t at = text.find(".entry ");
    function.entry = at != std::string_view::npos;
    if (!function.entry) at = text.find(".func ");
    if (at == std::string_view::npos) return error(s.line, "a function without a name");
    text = trim(text.substr(text.find(' ', at)));
    std::string_view returns;
    if (text.starts_with('(')) {
      const std::size_t close = text.find(')');
      if (close == std::string_view::npos) return error(s.line, "not a function header");
      returns = text.substr(1, close - 1);
      text = trim(text.substr(close + 1));
    }
    const std::size_t open = text.find('(');
    function.name = std::string(trim(text.substr(0, std::min(open, text.find(' ')))));
    if (!is_identifier(function.name)) return error(s.line, "a function without a name");
    std::string_view rest = open == std::string_view::npos ? text.substr(function.name.size()) : text.substr(open);
    std::string_view list;
    if (open != std::string_view::npos) {
      const std::size_t close = rest.find(')');
      if (close == std::string_view::npos) return error(s.line, "not a function header");
      list = rest.substr(1, close - 1);
      rest = rest.substr(close + 1);
    }
    if (const std::size_t word = rest.find(".maxntid"); word != std::string_view::npos) {
      std::int64_t product = 1;
      for (const std::string_view each : split_operands(rest.substr(word + 8, rest.find('.', word + 1) - word - 8))) {
        const auto n = immediate(each);
        if (!n || *n < 1 || *n > 1024) return error(s.line, ".maxntid is not between 1 and 1024");
        product = std::min<std::int64_t>(product * *n, 1024);
      }
      function.max_threads = static_cast<int>(product);
    }
    if (module_.find(function.name) != nullptr) return error(s.line, "function '{}' exists already", function.name);
    module_.functions.push_back(std::move(function));
    scopes_.emplace_back();
    std::vector<int> results, params;
    ADAMK_CHECK(parameters(s, returns, &results));
    ADAMK_CHECK(parameters(s, list, &params));
    body().returns = std::move(results);
    body().params = std::move(params);
    in_header_ = true;
    return {};
  }

  /// A label behind the last instruction, or a last instruction that some lanes go on from.
  bool runs_off_the_end() {
    const std::vector<PtxInstruction>& code = body().code;
    if (code.empty() || (!body().labels.empty() && body().labels.back().first == static_cast<int>(code.size()))) return true;
    const PtxOp last = code.back().op;
    const bool leaves = last == PtxOp::ret || last == PtxOp::exit || last == PtxOp::trap || last == PtxOp::bra;
    return !leaves || code.back().guard >= 0;
  }

  Result<void> end_function(const Statement& s) {
    if (!in_function_) return error(s.line, "'}}' closes nothing");
    for (const Jump& jump : jumps_) {
      const auto found = labels_.find(jump.label);
      if (found == labels_.end()) return error(jump.line, "there is no label '{}'", jump.label);
      body().code[jump.instruction].target = found->second;
    }
    if (runs_off_the_end()) {
      PtxInstruction end;   // "ret" is implied at the end of a body
      end.op = PtxOp::ret;
      end.opcode = "ret";
      end.line = s.line;
      body().code.push_back(std::move(end));
    }
    jumps_.clear();
    labels_.clear();
    scopes_.resize(1);
    in_function_ = false;
    return {};
  }

  Result<void> link_calls() {
    if (in_function_ || in_header_) return error(body().line, "function '{}' has no end", body().name);
    for (const Call& call : calls_) {
      const auto found = std::find_if(module_.functions.begin(), module_.functions.end(),
                                      [&](const PtxBody& f) { return f.name == call.name; });
      if (found == module_.functions.end()) return error(call.line, "there is no function '{}'", call.name);
      module_.functions[call.function].code[call.instruction].target = static_cast<int>(found - module_.functions.begin());
    }
    return {};
  }

  // ---- declarations ----------------------------------------------------------------------------------------------------

  /// ".align 4 .b8 name[16]", with the space in front; registers it in the innermost scope.
  Result<int> declare(int line, std::string text, int function) {
    PtxVariable variable;
    variable.function = function;
    std::string_view initial;
    std::string_view rest = trim(text);
    if (const std::size_t equals = rest.find('='); equals != std::string_view::npos) {
      initial = trim(rest.substr(equals + 1));
      rest = trim(rest.substr(0, equals));
    }
    PtxType type = PtxType::none;
    bool is_extern = false;
    std::int64_t count = 1;
    while (rest.starts_with('.')) {
      const std::size_t blank = rest.find(' ');
      if (blank == std::string_view::npos) return error(line, "a declaration without a name");
      const std::string_view word = rest.substr(1, blank - 1);
      rest = trim(rest.substr(blank));
      if (word == "align") {
        const std::size_t end = rest.find(' ');
        const auto n = immediate(rest.substr(0, end));
        if (!n || *n < 1 || *n > 4096) return error(line, ".align is not between 1 and 4096");
        variable.align = static_cast<int>(*n);
        rest = end == std::string_view::npos ? std::string_view{} : trim(rest.substr(end));
      } else if (word == "extern") {
        is_extern = true;
      } else if (word == "v2" || word == "v4") {
        count = word[1] - '0';
      } else if (word == "visible" || word == "weak" || word == "common" || word == "ptr") {
        continue;
      } else if (PtxSpace space{}; ptx::space_named(word, &space)) {
        variable.space = space;
      } else if (const PtxType named = ptx::type_named(word); named != PtxType::none && named != PtxType::pred) {
        type = named;
      } else {
        return error(line, "unknown word '.{}' in a declaration", word);
      }
    }
    if (type == PtxType::none) return error(line, "a declaration without a type");
    bool sized = true;
    if (const std::size_t open = rest.find('['); open != std::string_view::npos) {
      const std::size_t close = rest.find(']', open);
      if (close == std::string_view::npos || trim(rest.substr(close + 1)) != "") return error(line, "not an array of one dimension");
      const std::string_view size = trim(rest.substr(open + 1, close - open - 1));
      if (size.empty()) {
        sized = false;
      } else {
        const auto n = immediate(size);
        if (!n || *n < 0 || *n > kMostVariableBytes) return error(line, "an array of '{}' elements", size);
        count *= *n;
      }
      rest = trim(rest.substr(0, open));
    }
    if (!is_identifier(rest)) return error(line, "'{}' is no name", rest);
    if (!sized && !is_extern) return error(line, "'{}' has no size", rest);
    variable.name = std::string(rest);
    variable.bytes = sized ? count * bytes_of(type) : 0;
    variable.align = std::max(variable.align, bytes_of(type));
    if (!initial.empty()) ADAMK_CHECK(initialise(line, variable, type, initial));
    const int id = static_cast<int>(module_.variables.size());
    if (!scopes_.back().variables.emplace(variable.name, id).second) return error(line, "'{}' exists already", rest);
    module_.variables.push_back(std::move(variable));
    return id;
  }

  Result<void> initialise(int line, PtxVariable& variable, PtxType type, std::string_view text) {
    if (text.starts_with('{') && text.ends_with('}')) text = text.substr(1, text.size() - 2);
    const auto width = static_cast<std::size_t>(bytes_of(type));
    for (const std::string_view each : split_operands(text)) {
      const auto value = immediate(each);
      if (!value) return error(line, "'{}' is no constant", each);
      for (std::size_t byte = 0; byte < width; ++byte)
        variable.initial.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(*value) >> (8 * byte)));
    }
    if (static_cast<std::int64_t>(variable.initial.size()) > variable.bytes) return error(line, "more values than '{}' holds", variable.name);
    initial_bytes_ += variable.bytes;
    if (initial_bytes_ > kMostInitialBytes) return error(line, "more than {} bytes of initial values", kMostInitialBytes);
    variable.initial.resize(static_cast<std::size_t>(variable.bytes));
    return {};
  }

  Result<void> declare_registers(const Statement& s, std::string_view rest) {
    const std::size_t blank = rest.find(' ');
    if (!rest.starts_with('.') || blank == std::string_view::npos) return error(s.line, "not a register declaration");
    const PtxType type = ptx::type_named(rest.substr(1, blank - 1));
    if (type == PtxType::none) return error(s.line, "unknown register type '{}'", rest.substr(0, blank));
    for (const std::string_view each : split_operands(rest.substr(blank + 1))) {
      std::int64_t count = -1;
      std::string_view name = each;
      if (const std::size_t open = each.find('<'); open != std::string_view::npos) {
        const auto n = immediate(each.substr(open + 1, each.size() - open - 2));
        if (!each.ends_with('>') || !n || *n < 0) return error(s.line, "not a register range: '{}'", each);
        count = *n;
        name = each.substr(0, open);
      }
      if (!is_identifier(name)) return error(s.line, "'{}' is no register name", each);
      if (std::max<std::int64_t>(count, 1) > ptx::most_registers - static_cast<std::int64_t>(body().registers.size()))
        return error(s.line, "more than {} registers", ptx::most_registers);
      if (count < 0) {
        add_register(std::string(name), type);
      } else {
        for (std::int64_t i = 0; i < count; ++i) add_register(fmt::format("{}{}", name, i), type);
      }
    }
    return {};
  }
  void add_register(const std::string& name, PtxType type) {
    scopes_.back().registers[name] = static_cast<int>(body().registers.size());
    body().registers.push_back({name, type});
  }

  // ---- statements ------------------------------------------------------------------------------------------------------

  Result<void> plain(const Statement& s) {
    const std::string_view text(s.text);
    if (!text.starts_with('.')) {
      if (!in_function_) return error(s.line, "an instruction outside of a function");
      return instruction(s);
    }
    const std::string_view word = text.substr(0, text.find(' '));
    for (std::string_view ignored : {".pragma", ".loc", ".file", ".alias"})
      if (word == ignored) return {};
    if (word == ".reg") {
      if (!in_function_) return error(s.line, "a register outside of a function");
      return declare_registers(s, trim(text.substr(word.size())));
    }
    if (text.find(".func ") != std::string_view::npos) return {};   // a declaration without a body
    for (std::string_view known : {".param", ".local", ".shared", ".global", ".const", ".visible", ".extern", ".weak", ".common"}) {
      if (word != known) continue;
      ADAMK_TRY([[maybe_unused]] const int id,
                declare(s.line, s.text, in_function_ ? static_cast<int>(module_.functions.size()) - 1 : -1));
      return {};
    }
    return error(s.line, "unknown directive '{}'", word);
  }

  int find_register(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->registers.find(name); found != scope->registers.end()) return found->second;
    return -1;
  }
  int find_variable(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->variables.find(name); found != scope->variables.end()) return found->second;
    return -1;
  }

  Result<PtxOperand> address(int line, std::string_view text) {
    PtxOperand out;
    out.kind = PtxOperandKind::address;
    std::string_view base = trim(text), offset;
    if (const std::size_t plus = base.find('+'); plus != std::string_view::npos) {
      offset = trim(base.substr(plus + 1));
      base = trim(base.substr(0, plus));
    }
    out.reg = find_register(base);
    if (out.reg < 0) out.variable = find_variable(base);
    if (out.reg < 0 && out.variable < 0) {
      const auto absolute = immediate(base);
      if (!absolute) return error(line, "'{}' is neither a register nor a variable", base);
      out.value = *absolute;
    }
    if (!offset.empty()) {
      const auto value = immediate(offset);
      if (!value) return error(line, "'{}' is no offset", offset);
      if (__builtin_add_overflow(out.value, *value, &out.value)) return error(line, "'{}' is no offset", offset);
    }
    return out;
  }

  Result<PtxOperand> vector(int line, std::string_view text, char separator) {
    PtxOperand out;
    out.kind = PtxOperandKind::vector;
    if (separator == '|') {
      const std::size_t bar = text.find('|');
      for (const std::string_view part : {text.substr(0, bar), text.substr(bar + 1)}) {
        if (trim(part).starts_with('{')) return error(line, "a vector inside a pair");
        ADAMK_TRY(PtxOperand each, operand(line, trim(part)));
        out.parts.push_back(std::move(each));
      }
      return out;
    }
    for (const std::string_view part : split_operands(text)) {
      if (part.starts_with('{')) return error(line, "a vector inside a vector");   // before it is read: depth has no end
      ADAMK_TRY(PtxOperand each, operand(line, part));
      if (each.kind == PtxOperandKind::vector) return error(line, "a vector inside a vector");
      out.parts.push_back(std::move(each));
    }
    return out;
  }

  Result<PtxOperand> operand(int line, std::string_view text) {
    PtxOperand out;
    if (text == "_") {
      out.kind = PtxOperandKind::sink;
      return out;
    }
    if (text.starts_with('[') && text.ends_with(']')) return address(line, text.substr(1, text.size() - 2));
    if (text.starts_with('{') && text.ends_with('}')) return vector(line, text.substr(1, text.size() - 2), ',');
    if (text.find('|') != std::string_view::npos && text.find('|') == text.rfind('|')) return vector(line, text, '|');
    if (text.starts_with('!')) {
      out.negated = true;
      text = trim(text.substr(1));
    }
    if (out.reg = find_register(text); out.reg >= 0) {
      out.kind = PtxOperandKind::reg;
      return out;
    }
    if (is_special(text)) {
      out.kind = PtxOperandKind::special;
      out.special = std::string(text);
      return out;
    }
    if (out.variable = find_variable(text); out.variable >= 0) {
      out.kind = PtxOperandKind::variable;
      return out;
    }
    if (const auto value = immediate(text)) {
      out.kind = PtxOperandKind::immediate;
      out.value = *value;
      return out;
    }
    return error(line, "'{}' is no operand", text);
  }

  /// Names in parentheses, as one vector of variables or registers.
  Result<PtxOperand> call_list(int line, std::string_view text) {
    if (!text.starts_with('(') || !text.ends_with(')')) return error(line, "'{}' is no list of parameters", text);
    return vector(line, text.substr(1, text.size() - 2), ',');
  }

  Result<void> call(int line, PtxInstruction& out, const std::vector<std::string_view>& operands) {
    std::size_t at = 0;
    PtxOperand results, params;
    results.kind = params.kind = PtxOperandKind::vector;
    if (at < operands.size() && operands[at].starts_with('(')) {
      ADAMK_TRY(results, call_list(line, operands[at++]));
    }
    if (at >= operands.size() || !is_identifier(operands[at])) return error(line, "a call of nothing");
    calls_.push_back({module_.functions.size() - 1, body().code.size(), std::string(operands[at++]), line});
    if (at < operands.size()) {
      ADAMK_TRY(params, call_list(line, operands[at++]));
    }
    if (at != operands.size()) return error(line, "indirect calls are not supported");
    out.results = 1;
    out.operands = {std::move(results), std::move(params)};
    return {};
  }

  Result<void> instruction(const Statement& s) {
    std::string_view text(s.text);
    int guard = -1;
    bool negated = false;
    if (text.starts_with('@')) {
      text.remove_prefix(1);
      if (text.starts_with('!')) negated = true, text.remove_prefix(1);
      const std::size_t blank = text.find(' ');
      if (blank == std::string_view::npos) return error(s.line, "a predicate guards nothing");
      guard = find_register(text.substr(0, blank));
      if (guard < 0) return error(s.line, "there is no predicate '{}'", text.substr(0, blank));
      text = trim(text.substr(blank));
    }
    const std::size_t blank = text.find(' ');
    auto read = ptx::read_opcode(text.substr(0, blank));
    if (!read) return error(s.line, "{}", read.error().message);
    PtxInstruction out = std::move(*read);
    out.line = s.line;
    out.guard = guard;
    out.guard_negated = negated;
    const std::vector<std::string_view> operands =
        blank == std::string_view::npos ? std::vector<std::string_view>{} : split_operands(text.substr(blank + 1));
    if (out.op == PtxOp::call) {
      ADAMK_CHECK(call(s.line, out, operands));
    } else if (out.op == PtxOp::bra) {
      if (operands.size() != 1) return error(s.line, "a branch to nowhere");
      jumps_.push_back({body().code.size(), std::string(operands[0]), s.line});
    } else {
      for (const std::string_view each : operands) {
        ADAMK_TRY(PtxOperand value, operand(s.line, each));
        out.operands.push_back(std::move(value));
      }
      if (static_cast<int>(out.operands.size()) < out.results) return error(s.line, "'{}' has no result", out.opcode);
      ADAMK_CHECK(check_results(s.line, out));
    }
    body().code.push_back(std::move(out));
    return {};
  }

  Result<void> check_results(int line, const PtxInstruction& instruction) const {
    for (int i = 0; i < instruction.results; ++i) {
      const PtxOperand& result = instruction.operands[static_cast<std::size_t>(i)];
      const auto writable = [](const PtxOperand& o) { return o.kind == PtxOperandKind::reg || o.kind == PtxOperandKind::sink; };
      if (writable(result)) continue;
      if (result.kind == PtxOperandKind::vector && std::all_of(result.parts.begin(), result.parts.end(), writable)) continue;
      return error(line, "operand {} of '{}' is written but is no register", i + 1, instruction.opcode);
    }
    return {};
  }

  PtxModule module_;
  std::int64_t initial_bytes_ = 0;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  std::map<std::string, int, std::less<>> labels_;
  std::vector<Jump> jumps_;
  std::vector<Call> calls_;
  bool in_header_ = false, in_function_ = false;
};

void collect(const PtxOperand& operand, bool addresses_only, std::vector<int>& out) {
  if (operand.kind == PtxOperandKind::vector) {
    for (const PtxOperand& part : operand.parts) collect(part, addresses_only, out);
  } else if (operand.reg >= 0 && (operand.kind == PtxOperandKind::address || !addresses_only)) {
    out.push_back(operand.reg);
  }
}

}  // namespace

const PtxBody* PtxModule::find(std::string_view function) const {
  for (const PtxBody& each : functions)
    if (each.name == function) return &each;
  return nullptr;
}

Result<PtxModule> parse_ptx(std::string_view text) {
  ADAMK_TRY(const std::vector<Statement> statements, ptx::scan(text));
  return Parser().parse(statements);
}

std::vector<int> registers_read(const PtxInstruction& instruction) {
  std::vector<int> out;
  if (instruction.guard >= 0) out.push_back(instruction.guard);
  for (std::size_t i = 0; i < instruction.operands.size(); ++i)
    collect(instruction.operands[i], static_cast<int>(i) < instruction.results, out);
  return out;
}

std::vector<int> registers_written(const PtxInstruction& instruction) {
  std::vector<int> out;
  for (int i = 0; i < instruction.results && i < static_cast<int>(instruction.operands.size()); ++i) {
    const PtxOperand& operand = instruction.operands[static_cast<std::size_t>(i)];
    if (operand.kind != PtxOperandKind::address) collect(operand, false, out);
  }
  return out;
}

}  // namespace adamk
