#include "adamk/ptx/statistics.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "scanner.h"

namespace adamk {
namespace {

using ptx::Statement;
using ptx::StatementKind;

constexpr std::array<std::string_view, 13> class_names = {
    "load_shared", "load_global", "load_other", "store_shared", "store_global", "store_other", "bulk_copy",
    "async_copy",  "mma",         "atomic",     "barrier",      "branch",       "other"};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool has_part(const std::vector<std::string_view>& parts, std::string_view wanted) {
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

bool in_shared(const std::vector<std::string_view>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](auto part) { return part == "shared" || part.starts_with("shared::"); });
}

PtxClass copy_class(const std::vector<std::string_view>& parts) {
  for (std::string_view waits : {"commit_group", "wait_group", "wait_all", "mbarrier"}) {
    // cp.async.bulk names mbarrier::complete_tx::bytes as its completion, which is another part than "mbarrier".
    if (has_part(parts, waits)) return PtxClass::barrier;
  }
  return has_part(parts, "bulk") ? PtxClass::bulk_copy : PtxClass::async_copy;
}

bool is_opcode(std::string_view word) {
  if (word.empty() || word[0] < 'a' || word[0] > 'z') return false;
  return std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == ':';
  });
}

Error at_line(const Statement& statement, std::string_view what) {
  return {Errc::bad_input, fmt::format("PTX line {}: {}: '{}'", statement.line, what, statement.text.substr(0, 80))};
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

/// ".reg .b32 %r<10>" declares 10; ".reg .pred p, q" declares 2.
Result<void> add_registers(PtxFunction& function, const Statement& statement) {
  std::string_view rest(statement.text);
  rest.remove_prefix(std::min(rest.size(), std::string_view(".reg ").size()));
  if (rest.starts_with(".v2 ") || rest.starts_with(".v4 ")) rest.remove_prefix(4);
  const std::size_t blank = rest.find(' ');
  if (!rest.starts_with('.') || blank == std::string_view::npos) {
    return tl::unexpected(at_line(statement, "not a register declaration"));
  }
  const std::string type(rest.substr(0, blank));
  for (std::string_view name : split(rest.substr(blank + 1), ',')) {
    std::int64_t count = 1;
    if (const std::size_t open = name.find('<'); open != std::string_view::npos) {
      const char* begin = name.data() + open + 1;
      const auto [end, code] = std::from_chars(begin, name.data() + name.size(), count);
      if (code != std::errc() || end == name.data() + name.size() || *end != '>' || count < 0 ||
          count > ptx::most_registers) {
        return tl::unexpected(at_line(statement, "not a register range"));
      }
    }
    function.registers[type] += count;
  }
  return {};
}

Result<void> add_instruction(PtxFunction& function, const Statement& statement) {
  std::string_view text(statement.text);
  if (text.starts_with('@')) {   // the guarding predicate, "@%p1" or "@!%p1"
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return tl::unexpected(at_line(statement, "a predicate guards nothing"));
    text.remove_prefix(blank + 1);
  }
  const std::string_view opcode = first_word(text);
  if (!is_opcode(opcode)) return tl::unexpected(at_line(statement, "not an instruction"));
  ++function.instructions;
  ++function.classes[ptx_class(opcode)];
  ++function.opcodes[std::string(opcode)];
  return {};
}

Result<void> add_statement(PtxFunction& function, const Statement& statement) {
  if (!statement.text.starts_with('.')) return add_instruction(function, statement);
  const std::string_view directive = first_word(statement.text);
  if (directive == ".reg") return add_registers(function, statement);
  for (std::string_view known : {".param", ".local", ".shared", ".pragma", ".branchtargets", ".calltargets",
                                 ".callprototype", ".const", ".global"}) {
    if (directive == known) return {};
  }
  return tl::unexpected(at_line(statement, "unknown directive in a function"));
}

/// The name in ".visible .entry adamk_decode( .param ..." or ".func (.param .b32 r) f( ...".
Result<PtxFunction> begin_function(const Statement& statement) {
  std::string_view text(statement.text);
  PtxFunction function;
  std::size_t at = text.find(".entry ");
  function.entry = at != std::string_view::npos;
  if (!function.entry) at = text.find(".func ");
  text.remove_prefix(text.find(' ', at) + 1);
  if (text.starts_with('(')) {   // the return value
    const std::size_t close = text.find(')');
    if (close == std::string_view::npos) return tl::unexpected(at_line(statement, "not a function header"));
    text.remove_prefix(close + 1);
  }
  while (text.starts_with(' ')) text.remove_prefix(1);
  function.name = std::string(text.substr(0, text.find_first_of("( ")));
  if (function.name.empty() || function.name[0] == '.') return tl::unexpected(at_line(statement, "a function without a name"));
  return function;
}

Result<void> module_statement(PtxStatistics& statistics, const Statement& statement) {
  const std::string_view directive = first_word(statement.text);
  const std::string_view rest =
      directive.size() < statement.text.size() ? std::string_view(statement.text).substr(directive.size() + 1) : "";
  if (directive == ".version") statistics.version = std::string(rest);
  else if (directive == ".target") statistics.target = std::string(rest.substr(0, rest.find(',')));
  else {
    for (std::string_view known : {".address_size", ".file", ".loc", ".visible", ".extern", ".weak", ".common", ".global",
                                   ".const", ".shared", ".func", ".entry", ".pragma", ".alias"}) {
      if (directive == known) return {};
    }
    return tl::unexpected(at_line(statement, "unknown directive"));
  }
  return {};
}

}  // namespace

std::string_view to_string(PtxClass kind) { return class_names[static_cast<std::size_t>(kind)]; }

PtxClass ptx_class(std::string_view opcode) {
  const std::vector<std::string_view> parts = split(opcode, '.');
  const std::string_view base = parts[0];
  if (base == "ldmatrix") return PtxClass::load_shared;
  if (base == "ld" || base == "ldu") {
    return in_shared(parts) ? PtxClass::load_shared : has_part(parts, "global") ? PtxClass::load_global : PtxClass::load_other;
  }
  if (base == "stmatrix") return PtxClass::store_shared;
  if (base == "st") {
    if (in_shared(parts) || has_part(parts, "async")) return PtxClass::store_shared;
    return has_part(parts, "global") ? PtxClass::store_global : PtxClass::store_other;
  }
  if (base == "cp") return copy_class(parts);
  if (base == "mma" || base == "wmma") return has_part(parts, "mma") ? PtxClass::mma : PtxClass::other;
  if (base == "wgmma") return has_part(parts, "mma_async") ? PtxClass::mma : PtxClass::barrier;
  if (base == "tcgen05") return has_part(parts, "mma") ? PtxClass::mma : PtxClass::other;
  if (base == "atom" || base == "red") return PtxClass::atomic;
  for (std::string_view name : {"bar", "barrier", "mbarrier", "fence", "membar"}) {
    if (base == name) return PtxClass::barrier;
  }
  for (std::string_view name : {"bra", "brx", "call", "ret", "exit"}) {
    if (base == name) return PtxClass::branch;
  }
  return PtxClass::other;
}

const PtxFunction* PtxStatistics::find(std::string_view name) const {
  for (const PtxFunction& function : functions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

Result<PtxStatistics> ptx_statistics(std::string_view text) {
  ADAMK_TRY(const std::vector<Statement> statements, ptx::scan(text));
  PtxStatistics statistics;
  int depth = 0;   // 1: a function's body; deeper: scopes inside it
  for (const Statement& statement : statements) {
    if (statement.kind == StatementKind::marker) continue;
    if (statement.kind == StatementKind::open) {
      if (depth == 0) return tl::unexpected(at_line(statement, "a block outside of a function"));
      // The first block after a header is the body itself.
      ++depth;
    } else if (statement.kind == StatementKind::close) {
      if (--depth == 1) depth = 0;
    } else if (statement.kind == StatementKind::header) {
      if (depth != 0) return tl::unexpected(at_line(statement, "a function inside a function"));
      ADAMK_TRY(PtxFunction function, begin_function(statement));
      statistics.functions.push_back(std::move(function));
      depth = 1;
    } else if (depth == 0) {
      if (statement.kind == StatementKind::label) return tl::unexpected(at_line(statement, "a label outside of a function"));
      ADAMK_CHECK(module_statement(statistics, statement));
    } else if (statement.kind == StatementKind::label) {
      ++statistics.functions.back().labels;
    } else if (statement.kind == StatementKind::plain) {
      ADAMK_CHECK(add_statement(statistics.functions.back(), statement));
    }
  }
  if (statistics.version.empty() || statistics.target.empty()) {
    return fail(Errc::bad_input, "PTX: no .version or no .target directive");
  }
  return statistics;
}

Json ptx_statistics_to_json(const PtxStatistics& statistics) {
  Json document = {{"version", statistics.version}, {"target", statistics.target}, {"functions", Json::array()}};
  for (const PtxFunction& function : statistics.functions) {
    Json classes = Json::object(), registers = Json::object(), opcodes = Json::object();
    for (const auto& [kind, count] : function.classes) classes[std::string(to_string(kind))] = count;
    for (const auto& [type, count] : function.registers) registers[type] = count;
    for (const auto& [opcode, count] : function.opcodes) opcodes[opcode] = count;
    document["functions"].push_back({{"name", function.name},
                                     {"entry", function.entry},
                                     {"instructions", function.instructions},
                                     {"labels", function.labels},
                                     {"classes", classes},
                                     {"registers", registers},
                                     {"opcodes", opcodes}});
  }
  return document;
}

}  // namespace adamk
