#include "adamk/profile/oracle.h"

namespace adamk {

std::vector<int> bytes_to_tokens(std::string_view text) {
  std::vector<int> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string tokens_to_bytes(std::span<const int> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const int token : tokens) text += token >= 0 && token < 256 ? static_cast<char>(token) : '?';
  return text;
}

}  // namespace adamk
