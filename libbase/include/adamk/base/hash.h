// Content hashes: XXH3 (128 bit), as 32 lower-case hexadecimal digits. They identify and detect change; they are not a
// defence against an adversary who can choose the content.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "adamk/base/result.h"

namespace adamk {

std::string hash_hex(std::string_view bytes);
std::string hash_hex(std::span<const std::byte> bytes);
Result<std::string> hash_file(const std::filesystem::path& path);

/// The same digest over bytes that arrive in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void update(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace adamk
