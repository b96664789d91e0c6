// A target as the YAML file that --target takes.
#pragma once

#include <string>

#include "adamk/base/result.h"
#include "adamk/dag/target.h"

namespace adamk {

/// `comment`, one line, goes first. Reads the text back before it is returned: what load_target would refuse is an Error.
Result<std::string> target_to_yaml(const Target& target, const std::string& comment);

}  // namespace adamk
