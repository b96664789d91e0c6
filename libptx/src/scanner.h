// PTX text as a list of statements with their lines; the first half of every reader of PTX.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"

namespace adamk::ptx {

constexpr std::int64_t most_registers = 1 << 20;   // of a function, so that counts from outside cost what they may

enum class StatementKind {
  line,      // .version, .target, .address_size, .file, .loc: ended by the line
  plain,     // ended by ';' (kept out of the text)
  header,    // .entry or .func up to its body
  open,      // {
  close,     // }
  label,     // name without ':'
  marker,    // a comment "// adamk: ..." on a line of its own, from there on
};

struct Statement {
  StatementKind kind;
  std::string text;    // blanks collapsed to one space, comments removed
  int line = 0;        // first line, from 1
};

/// Fails (bad_input) with a line number when a statement, a comment, a string or a block has no end.
Result<std::vector<Statement>> scan(std::string_view text);

}  // namespace adamk::ptx
