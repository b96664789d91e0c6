// Where CUPTI may lie, and what its failures mean: the parts that need neither its headers nor a GPU.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "adamk/base/result.h"

namespace adamk {

/// Folders that may hold libcupti.so.13, best first; none need exist. `variable` reads an environment variable ("" when
/// unset). `found_home` is the toolkit the build found, `executable` the running program.
std::vector<std::filesystem::path> cupti_folders(const std::function<std::string(const char*)>& variable,
                                                 const std::filesystem::path& found_home,
                                                 const std::filesystem::path& executable);

/// A CUPTI result code as an Error. `text` is cuptiGetResultString's; `doing` what was being done.
Error cupti_error(int code, const std::string& text, const std::string& doing);

}  // namespace adamk
