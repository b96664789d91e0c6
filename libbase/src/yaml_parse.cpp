#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "adamk/base/json.h"
#include "tree_builder.h"

namespace adamk {
namespace {

bool one_of(std::string_view text, std::initializer_list<std::string_view> spellings) {
  return std::find(spellings.begin(), spellings.end(), text) != spellings.end();
}

bool all_digits(std::string_view text, int base) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    if (base == 16) return std::isxdigit(static_cast<unsigned char>(c)) != 0;
    return c >= '0' && c < '0' + base;
  });
}

/// The pattern of the core schema: [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?
bool is_core_float(std::string_view text) {
  const auto skip_digits = [&] {
    std::size_t count = 0;
    while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
    text.remove_prefix(count);
    return count;
  };
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const std::size_t whole = skip_digits();
  std::size_t fraction = 0;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = skip_digits();
  }
  if (whole + fraction == 0) return false;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    if (skip_digits() == 0) return false;
  }
  return text.empty();
}

template <class Number>
bool convert(std::string_view digits, int base, Json& out) {
  Number number{};
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (code != std::errc{} || end != digits.data() + digits.size()) return false;
  out = number;
  return true;
}

/// A plain scalar by the core schema of YAML 1.2 (section 10.3.2). False: a number that no 64-bit type holds.
bool plain_scalar(const std::string& text, Json& out) {
  if (text.empty() || one_of(text, {"~", "null", "Null", "NULL"})) return out = nullptr, true;
  if (one_of(text, {"true", "True", "TRUE"})) return out = true, true;
  if (one_of(text, {"false", "False", "FALSE"})) return out = false, true;

  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (one_of(text, {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"})) return out = infinity, true;
  if (one_of(text, {"-.inf", "-.Inf", "-.INF"})) return out = -infinity, true;
  if (one_of(text, {".nan", ".NaN", ".NAN"})) return out = std::numeric_limits<double>::quiet_NaN(), true;

  std::string_view digits = text;
  if (digits.starts_with("0x") && all_digits(digits.substr(2), 16))
    return convert<std::uint64_t>(digits.substr(2), 16, out);
  if (digits.starts_with("0o") && all_digits(digits.substr(2), 8))
    return convert<std::uint64_t>(digits.substr(2), 8, out);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const bool negative = digits.starts_with('-') && digits.size() == text.size();
  if (all_digits(negative ? digits.substr(1) : digits, 10)) {
    return negative ? convert<std::int64_t>(digits, 10, out) : convert<std::uint64_t>(digits, 10, out);
  }
  if (is_core_float(text)) {
    double number = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (code != std::errc{} || end != digits.data() + digits.size()) return false;
    return out = number, true;
  }
  return out = text, true;
}

/// Receives yaml-cpp's parse events. It cannot stop the parser, so it keeps the first error and ignores the rest.
class YamlHandler : public YAML::EventHandler {
 public:
  explicit YamlHandler(const std::string& file) : file_(file) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { scalar(mark, "?", anchor, ""); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases are not supported; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    scalar(mark, tag, anchor, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, Json::array());
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, Json::object());
  }
  void OnMapEnd() override { end(); }

  const std::optional<Error>& error() const { return error_; }
  Json& root() { return tree_.root(); }
  void refuse(const YAML::Mark& mark, std::string_view message) {
    if (error_) return;
    error_ = Error{Errc::bad_input, fmt::format("{}:{}:{}: {}", file_, mark.line + 1, mark.column + 1, message)};
  }

 private:
  bool acceptable(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors are not supported; write the value out");
    // yaml-cpp hands over "?" (plain) or "!" (quoted) when the document states no tag, and "" for some containers.
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, fmt::format("the tag {} is not supported", tag));
    return !error_;
  }
  void scalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) {
    if (!acceptable(mark, tag, anchor)) return;
    if (tree_.wants_key()) {
      const std::string message = tree_.key(text);
      if (!message.empty()) refuse(mark, message);
      return;
    }
    Json value = text;
    if (tag != "!" && !plain_scalar(text, value)) {
      return refuse(mark, fmt::format("the number {} does not fit 64 bits", text));
    }
    tree_.value(std::move(value));
  }
  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json container) {
    if (!acceptable(mark, tag, anchor)) return;
    if (tree_.wants_key()) return refuse(mark, "a key must be a plain word or a string");
    const std::string message = tree_.begin(std::move(container));
    if (!message.empty()) refuse(mark, message);
  }
  void end() {
    if (!error_) tree_.end();
  }

  std::string file_;
  TreeBuilder tree_;
  std::optional<Error> error_;
};

}  // namespace

Result<Json> parse_yaml(std::string_view text, const std::string& file) {
  YamlHandler handler(file);
  // yaml-cpp reports syntax errors, and nesting that would exhaust its stack, by exceptions.
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(handler);
    YamlHandler rest(file);
    if (!handler.error() && parser.HandleNextDocument(rest)) {
      return fail(Errc::bad_input, "{}: holds more than one YAML document", file);
    }
  } catch (const YAML::Exception& exception) {
    handler.refuse(exception.mark, fmt::format("not YAML: {}", exception.msg));
  }
  if (handler.error()) return tl::unexpected(*handler.error());
  return std::move(handler.root());
}

}  // namespace adamk
