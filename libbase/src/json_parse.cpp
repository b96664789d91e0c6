#include <algorithm>
#include <cmath>

#include "adamk/base/file.h"
#include "adamk/base/json.h"
#include "tree_builder.h"

namespace adamk {
namespace {

/// "file:line:column", both from 1, of the byte at `offset`.
std::string location(std::string_view text, const std::string& file, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return fmt::format("{}:{}:{}", file, line, column);
}

/// A bare NaN, Infinity or -Infinity outside strings: which string token its substitute becomes, and its value.
struct NonFinite {
  std::size_t token;
  double value;
};

/// JSON has no such literals, but Python writes them. Each is replaced by a string of the same length, so that
/// positions in messages stay right; the parser turns the string with that ordinal back into the number.
std::vector<NonFinite> replace_non_finite(std::string& text) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  struct Literal {
    std::string_view spelling;
    double value;
  };
  constexpr Literal literals[] = {
      {"-Infinity", -infinity}, {"Infinity", infinity}, {"NaN", std::numeric_limits<double>::quiet_NaN()}};

  std::vector<NonFinite> found;
  std::size_t token = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
      ++i;
      ++token;
      continue;
    }
    const auto* literal = std::find_if(std::begin(literals), std::end(literals), [&](const Literal& candidate) {
      return std::string_view(text).substr(i, candidate.spelling.size()) == candidate.spelling;
    });
    if (literal == std::end(literals)) {
      ++i;
      continue;
    }
    const std::size_t length = literal->spelling.size();
    std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(i), length, ' ');
    text[i] = text[i + length - 1] = '"';
    found.push_back({token++, literal->value});
    i += length;
  }
  return found;
}

/// Receives nlohmann's parse events; the first thing wrong stops the parser.
class SaxHandler {
 public:
  explicit SaxHandler(std::vector<NonFinite> non_finite) : non_finite_(std::move(non_finite)) {}

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(std::int64_t value) { return scalar(value); }
  bool number_unsigned(std::uint64_t value) { return scalar(value); }
  bool number_float(double value, const std::string&) { return scalar(value); }
  bool string(std::string& value) {
    const std::size_t token = token_++;
    if (next_ < non_finite_.size() && non_finite_[next_].token == token) return scalar(non_finite_[next_++].value);
    return scalar(std::move(value));
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return check(tree_.begin(Json::object())); }
  bool end_object() { return end(); }
  bool start_array(std::size_t) { return check(tree_.begin(Json::array())); }
  bool end_array() { return end(); }
  bool key(std::string& value) {
    const std::size_t token = token_++;
    if (next_ < non_finite_.size() && non_finite_[next_].token == token) return check("a key must be a string");
    return check(tree_.key(std::move(value)));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    position_ = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...": the position is said better
    // by the caller.
    message_ = error.what();
    const std::size_t column = message_.find("column ");
    const std::size_t start = message_.find(": ", column == std::string::npos ? 0 : column);
    if (start != std::string::npos) message_.erase(0, start + 2);
    if (const std::size_t bracket = message_.find("] "); message_.starts_with('[') && bracket != std::string::npos) {
      message_.erase(0, bracket + 2);
    }
    return false;
  }

  Json& root() { return tree_.root(); }
  const std::string& message() const { return message_; }
  const std::optional<std::size_t>& position() const { return position_; }
  std::string path() const { return tree_.path(); }

 private:
  bool scalar(Json value) {
    tree_.value(std::move(value));
    return true;
  }
  bool end() {
    tree_.end();
    return true;
  }
  bool check(std::string message) {
    message_ = std::move(message);
    return message_.empty();
  }

  TreeBuilder tree_;
  std::vector<NonFinite> non_finite_;
  std::size_t next_ = 0, token_ = 0;
  std::string message_;
  std::optional<std::size_t> position_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& file) {
  std::string standard(text);
  SaxHandler handler(replace_non_finite(standard));
  // NUL bytes end nlohmann's C-string overloads; the iterator pair does not care.
  if (Json::sax_parse(standard.begin(), standard.end(), &handler)) return std::move(handler.root());
  if (handler.position()) {
    const std::size_t offset = *handler.position() == 0 ? 0 : *handler.position() - 1;
    return fail(Errc::bad_input, "{}: not JSON: {}", location(text, file, offset), handler.message());
  }
  const std::string path = handler.path();
  return fail(Errc::bad_input, "{}: {}{}{}", file, path, path.empty() ? "" : ": ", handler.message());
}

Result<Json> read_document(const std::filesystem::path& path, std::uint64_t max_bytes) {
  ADAMK_TRY(const std::string text, read_file(path, max_bytes));
  const std::string extension = path.extension().string();
  if (extension == ".yaml" || extension == ".yml") return parse_yaml(text, path.string());
  return parse_json(text, path.string());
}

Result<void> write_json(const std::filesystem::path& path, const Json& document) {
  // Invalid UTF-8 can only come from a caller's bug; replacing it keeps dump() from throwing.
  return write_file_atomic(path, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace adamk
