// Names of enumerators, as files and messages spell them: a table of {value, name} pairs serves both directions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace adamk {

/// `names`: a range of pairs {value, name}. "?" for a value that is not in it.
template <class Names, class Enum>
std::string_view name_of(const Names& names, Enum value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  return "?";
}

/// Nothing for a name that is not in the table.
template <class Enum, class Names>
std::optional<Enum> value_of(const Names& names, std::string_view text) {
  for (const auto& [value, name] : names)
    if (text == name) return value;
  return std::nullopt;
}

/// "tagged, counter, barrier": what a message offers instead.
template <class Names>
std::string listed(const Names& names) {
  std::string known;
  for (const auto& [value, name] : names) known += (known.empty() ? "" : ", ") + std::string(name);
  return known;
}

}  // namespace adamk
