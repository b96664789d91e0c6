// The manifest's own hash. It is taken over bytes, not values, so that a changed blank is found too: the last member of the
// file is "manifest_hash", XXH3-128 of everything before the comma that it follows.
#pragma once

#include <string>
#include <string_view>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

inline constexpr std::string_view seal_key = "manifest_hash";

/// `manifest` as text with its seal.
std::string seal_manifest(const Json& manifest);
/// `body` is the text up to the seal, without the last brace.
std::string seal_text(std::string_view body);
/// Fails (bad_input) naming the file.
Result<void> check_seal(std::string_view text, const std::string& file);

}  // namespace adamk
