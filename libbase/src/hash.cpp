#include "adamk/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

#include "adamk/base/file.h"

namespace adamk {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  // The canonical form is big-endian: the same digits on every machine, and those the xxh128sum command prints.
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(32);
  for (const unsigned char byte : canonical.digest) {
    hex.push_back(digits[byte >> 4]);
    hex.push_back(digits[byte & 15]);
  }
  return hex;
}

}  // namespace

std::string hash_hex(std::string_view bytes) { return to_hex(XXH3_128bits(bytes.data(), bytes.size())); }

std::string hash_hex(std::span<const std::byte> bytes) { return to_hex(XXH3_128bits(bytes.data(), bytes.size())); }

Result<std::string> hash_file(const std::filesystem::path& path) {
  ADAMK_TRY(const MappedFile file, MappedFile::open(path));
  return hash_hex(file.bytes());
}

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset(&state_->xxh);
}

Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) { XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()); }

std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace adamk
