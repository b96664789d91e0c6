// JSON and YAML documents read with errors that name the file and the path of the value ("plan.json: stages[3].kind: ...").
// YAML is read into the same tree, so a schema is checked once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"

namespace adamk {

/// Keys keep the order they were written in, so that a file is the same bytes every time.
using Json = nlohmann::ordered_json;

/// One value of a document together with its file name and path. Cheap to copy; the document must outlive it.
class JsonView {
 public:
  JsonView(const Json& value, std::string file, std::string path = {});

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return file_; }

  /// An Error (code, "file: path: message").
  Error error(Errc code, std::string_view message) const;

  Result<JsonView> at(std::string_view key) const;             // object member, must be there
  std::optional<JsonView> find(std::string_view key) const;    // object member, absent or null -> nullopt
  bool has(std::string_view key) const;                        // present, null included
  Result<std::vector<JsonView>> items() const;                 // array elements
  Result<void> only_keys(std::initializer_list<std::string_view> allowed) const;  // an unknown key is an error

  /// Integers may be written 5 or 5.0 (never "5"); out of range is an error that states the range.
  Result<std::int64_t> integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                               std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  Result<double> number(double low = -std::numeric_limits<double>::max(),
                        double high = std::numeric_limits<double>::max()) const;
  Result<std::string> text() const;
  Result<bool> boolean() const;

 private:
  const Json* value_;
  std::string file_, path_;
};

/// `file` is only used in messages, which give line and column. Accepts the non-standard literals NaN, Infinity and
/// -Infinity (they appear in published config.json files) as non-finite numbers, which integer() and number() refuse.
/// Nesting deeper than 64 and duplicate keys are refused.
Result<Json> parse_json(std::string_view text, const std::string& file);
/// Plain scalars are typed by the core schema of YAML 1.2; quoted ones stay strings. Refuses anchors, aliases, tags, more
/// than one document, duplicate keys and nesting deeper than 64.
Result<Json> parse_yaml(std::string_view text, const std::string& file);

/// By extension: .yaml and .yml are YAML, everything else JSON. At most 64 MiB unless said otherwise.
Result<Json> read_document(const std::filesystem::path& path, std::uint64_t max_bytes = 64u << 20);

/// Checks the `format` and `version` members that every file of ours carries; an older or newer version is named.
Result<void> expect_format(const JsonView& root, std::string_view format, int version);

/// Two-space indent, a final newline, written atomically.
Result<void> write_json(const std::filesystem::path& path, const Json& document);

}  // namespace adamk
