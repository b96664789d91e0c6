#include "scanner.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace adamk::ptx {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }

/// What generated kernels say of themselves in comments; inline assembly carries them into PTX.
constexpr std::string_view kMarker = "// adamk: ";
constexpr char kMarks = '\1';

/// Comments replaced by blanks, so that offsets and lines stay what they were. Of a marker the text stays, behind kMarks.
Result<std::string> without_comments(std::string_view text) {
  std::string out(text);
  int line = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '\n') ++line;
    if (out[i] == '"') {
      const std::size_t end = out.find('"', i + 1);
      if (end == std::string::npos) return fail(Errc::bad_input, "PTX line {}: a string has no end", line);
      i = end;
    } else if (out.compare(i, kMarker.size(), kMarker) == 0) {
      for (std::size_t blank = 0; blank < kMarker.size(); ++blank) out[i + blank] = ' ';
      out[i] = kMarks;
      while (i + 1 < out.size() && out[i + 1] != '\n') ++i;
    } else if (out.compare(i, 2, "//") == 0) {
      while (i < out.size() && out[i] != '\n') out[i++] = ' ';
      if (i < out.size()) ++line;
    } else if (out.compare(i, 2, "/*") == 0) {
      const std::size_t end = out.find("*/", i + 2);
      if (end == std::string::npos) return fail(Errc::bad_input, "PTX line {}: a comment has no end", line);
      for (; i < end + 2; ++i) {
        if (out[i] == '\n') ++line;
        else out[i] = ' ';
      }
      --i;
    }
  }
  return out;
}

bool ends_with_line(std::string_view text) {
  for (std::string_view directive : {".version", ".target", ".address_size", ".file", ".loc"}) {
    if (text.starts_with(directive) && (text.size() == directive.size() || !is_name(text[directive.size()]))) return true;
  }
  return false;
}

bool is_function_header(std::string_view text) {
  for (std::string_view word : {".entry ", ".func "}) {
    const std::size_t at = text.find(word);
    if (at != std::string_view::npos && (at == 0 || is_space(text[at - 1]))) return true;
  }
  return false;
}

class Scanner {
 public:
  explicit Scanner(std::string text) : text_(std::move(text)) {}

  Result<std::vector<Statement>> run() {
    for (skip_spaces(); at_ < text_.size(); skip_spaces()) {
      if (text_[at_] == '{') {
        emit(StatementKind::open, "{");
        ++depth_;
        ++at_;
      } else if (text_[at_] == '}') {
        if (--depth_ < 0) return fail(Errc::bad_input, "PTX line {}: '}}' closes nothing", line_);
        emit(StatementKind::close, "}");
        ++at_;
      } else if (text_[at_] == kMarks) {
        std::string text = marker();
        while (!text.empty() && is_space(text.back())) text.pop_back();
        emit(StatementKind::marker, text.substr(std::min(text.size(), kMarker.size())));
      } else if (text_[at_] == ';') {   // an empty statement, as inline assembly leaves behind
        ++at_;
      } else {
        ADAMK_CHECK(statement());
      }
    }
    if (depth_ != 0) return fail(Errc::bad_input, "PTX line {}: {} block(s) not closed at the end", line_, depth_);
    return std::move(statements_);
  }

 private:
  void emit(StatementKind kind, std::string text) { statements_.push_back({kind, std::move(text), line_}); }

  void skip_spaces() {
    for (; at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '\0'); ++at_) {
      if (text_[at_] == '\n') ++line_;
    }
  }

  /// Up to the end of its line.
  std::string marker() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool label() {
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    if (end == at_ || end >= text_.size() || text_[end] != ':' || text_.compare(end, 2, "::") == 0) return false;
    emit(StatementKind::label, text_.substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }

  Result<void> statement() {
    if (label()) return {};
    std::string collected;
    const int first = line_;
    int braces = 0;   // of vector operands and initialisers
    const bool by_line = ends_with_line(std::string_view(text_).substr(at_));
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == kMarks) marker();   // a comment inside a statement marks nothing
      if (at_ == text_.size()) break;
      const char c = text_[at_];
      if (c == '\n' && by_line) return finish(StatementKind::line, collected, first);
      if (c == ';' && braces == 0) {
        ++at_;
        return finish(StatementKind::plain, collected, first);
      }
      if (c == '{' && braces == 0 && is_function_header(collected)) return finish(StatementKind::header, collected, first);
      if (c == '{') ++braces;
      if (c == '}' && --braces < 0) break;   // the block ends before the statement does
      if (c == '\n') ++line_;
      if (!is_space(c)) collected += c;
      else if (!collected.empty() && collected.back() != ' ') collected += ' ';
    }
    if (by_line) return finish(StatementKind::line, collected, first);
    return fail(Errc::bad_input, "PTX line {}: '{}' has no ';'", first, collected.substr(0, 60));
  }

  Result<void> finish(StatementKind kind, std::string& text, int line) {
    while (!text.empty() && text.back() == ' ') text.pop_back();
    statements_.push_back({kind, std::move(text), line});
    return {};
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  std::vector<Statement> statements_;
};

}  // namespace

Result<std::vector<Statement>> scan(std::string_view text) {
  ADAMK_TRY(std::string plain, without_comments(text));
  return Scanner(std::move(plain)).run();
}

}  // namespace adamk::ptx
