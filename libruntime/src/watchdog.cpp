#include "adamk/runtime/watchdog.h"

#include <fmt/format.h>

#include <array>

namespace adamk {
namespace {

template <std::size_t N>
std::string name_of(const std::array<const char*, N>& names, std::uint32_t index) {
  return index < N ? names[index] : fmt::format("{}", index);
}

}  // namespace

std::string describe_report(std::span<const std::uint32_t> words) {
  constexpr std::array roles{"loader", "consumer", "storer", "controller", "launcher"};
  constexpr std::array stages{"qkv", "attention", "output", "gate_up", "down", "head"};
  constexpr std::array waits{"nothing", "tag", "count", "mbarrier phase", "token tag"};
  return fmt::format("watchdog: SM {}, role {}, stage {}, layer {}, step {}: waited for {} {}, saw {}", words[1],
                     name_of(roles, words[2]), name_of(stages, words[3]), words[4], words[5], name_of(waits, words[0]),
                     words[6], words[7]);
}

}  // namespace adamk
