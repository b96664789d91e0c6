#include "adamk/base/hash.h"

#include "temporary_folder.h"

namespace adamk {
namespace {

using HashTest = TemporaryFolder;

// The published XXH3 128-bit digest of nothing.
constexpr std::string_view empty_digest = "99aa06d3014798d86001c324468d497f";

TEST_F(HashTest, EmptyInputHasThePublishedDigest) {
  EXPECT_EQ(hash_hex(std::string_view()), empty_digest);
  EXPECT_EQ(Hasher().hex(), empty_digest);
}

TEST_F(HashTest, PiecesGiveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i);
  Hasher hasher;
  for (std::size_t start = 0; start < text.size(); start += 97) {
    const std::string_view piece = std::string_view(text).substr(start, 97);
    hasher.update(std::as_bytes(std::span(piece.data(), piece.size())));
  }
  EXPECT_EQ(hasher.hex(), hash_hex(text));
  EXPECT_EQ(hash_file(write("text", text)).value(), hash_hex(text));
  EXPECT_EQ(hasher.hex().size(), 32u);
}

TEST_F(HashTest, OneBitChangesTheDigest) {
  EXPECT_NE(hash_hex(std::string_view("a")), hash_hex(std::string_view("c")));
}

}  // namespace
}  // namespace adamk
