// Inputs for readers of large documents. One that is an array is a JSON Patch (RFC 6902) to a sound document, so that few bytes
// reach what lies deep in it; any other is the document itself.
#pragma once

#include "adamk/base/json.h"
#include "fuzz.h"

namespace adamk::fuzz {

inline Result<Json> patched(std::string_view text, const std::string& source, const Json& sound) {
  ADAMK_TRY(Json input, parse_json(text, source));
  if (!input.is_array()) return input;
  constexpr std::size_t kMostOperations = 8;
  if (input.size() > kMostOperations) return fail(Errc::bad_input, "more operations than one input needs");
  for (const Json& operation : input) {   // copy and move would let a document double at each
    const bool known = operation.is_object() && operation.contains("op") &&
                       (operation["op"] == "add" || operation["op"] == "replace" || operation["op"] == "remove");
    if (!known) return fail(Errc::bad_input, "an operation that this reader leaves out");
  }
  try {
    return sound.patch(input);
  } catch (const Json::exception& e) {
    return fail(Errc::bad_input, "{}", e.what());
  }
}

}  // namespace adamk::fuzz
