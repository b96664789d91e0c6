#include "artifact_seal.h"

#include "adamk/base/hash.h"

namespace adamk {
namespace {

constexpr std::string_view end_of_object = "\n}";

std::string seal_of(std::string_view hash) { return fmt::format(",\n  \"{}\": \"{}\"\n}}\n", seal_key, hash); }

}  // namespace

std::string seal_text(std::string_view body) { return std::string(body) + seal_of(hash_hex(body)); }

std::string seal_manifest(const Json& manifest) {
  // Invalid UTF-8 can only come from a caller's bug; replacing it keeps dump() from throwing.
  std::string text = manifest.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - end_of_object.size());
  return seal_text(text);
}

Result<void> check_seal(std::string_view text, const std::string& file) {
  const std::size_t length = seal_of(std::string(32, '0')).size();
  const std::string_view body = text.substr(0, text.size() < length ? 0 : text.size() - length);
  if (text.substr(body.size()) == seal_of(hash_hex(body))) return {};
  return fail(Errc::bad_input, "{}: does not end in the hash of what it says: the file was changed; export again", file);
}

}  // namespace adamk
