#include "adamk/base/file.h"

#include "temporary_folder.h"

namespace adamk {
namespace {

using FileTest = TemporaryFolder;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_F(FileTest, ReadsExactlyUpToTheBound) {
  const auto path = write("five", std::string("a\0b\nc", 5));
  const auto text = read_file(path, 5);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, std::string("a\0b\nc", 5));
  const auto refused = read_file(path, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::bad_input);
  EXPECT_NE(refused.error().message.find("five"), std::string::npos);
}

TEST_F(FileTest, MissingFileIsNamedWithTheReason) {
  const auto text = read_file(folder_ / "absent", 10);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::io);
  EXPECT_NE(text.error().message.find("absent: No such file"), std::string::npos) << text.error().message;
}

TEST_F(FileTest, FoldersAreNeitherReadNorMappedNorOverwritten) {
  EXPECT_FALSE(read_file(folder_, 10));
  EXPECT_FALSE(MappedFile::open(folder_));
  EXPECT_FALSE(write_file_atomic(folder_, "x"));
}

TEST_F(FileTest, MapsContentAndAnEmptyFileAsAnEmptySpan) {
  auto file = MappedFile::open(write("three", "abc"));
  ASSERT_TRUE(file);
  MappedFile moved = std::move(*file);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[2]), 'c');
  const auto empty = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->bytes().empty());
}

TEST_F(FileTest, AtomicFileReplacesOnlyOnCommit) {
  const auto path = write("target", "old");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write(bytes_of("new ")));
  ASSERT_TRUE(file->write(bytes_of("text")));
  EXPECT_EQ(read_file(path, 100).value(), "old");
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(read_file(path, 100).value(), "new text");
  EXPECT_FALSE(file->write(bytes_of("late")));
}

TEST_F(FileTest, AtomicFileLeavesNothingBehindWithoutCommit) {
  {
    auto first = AtomicFile::create(folder_ / "target");
    auto second = AtomicFile::create(folder_ / "target");  // its own temporary name
    ASSERT_TRUE(first && second);
    ASSERT_TRUE(first->write(bytes_of("x")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileTest, WritingIntoAMissingFolderNamesTheFile) {
  const auto written = write_file_atomic(folder_ / "no" / "file", "x");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::io);
  EXPECT_NE(written.error().message.find("no/file"), std::string::npos);
}

}  // namespace
}  // namespace adamk
