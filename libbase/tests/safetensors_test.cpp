#include "adamk/base/safetensors.h"

#include <cstring>

#include "temporary_folder.h"

namespace adamk {
namespace {

/// A safetensors file put together by hand: length, header, data.
std::string file_of(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  bytes += data;
  return bytes;
}

class SafetensorsTest : public TemporaryFolder {
 protected:
  /// The message of opening such a file.
  std::string verdict(std::string_view header, std::string_view data) const {
    const auto opened = SafeTensors::open(write("t.safetensors", file_of(header, data)));
    return opened ? "accepted" : opened.error().message;
  }
};

#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

TEST_F(SafetensorsTest, ReadsTensorsInPlace) {
  const auto opened = SafeTensors::open(
      write("t.safetensors",
            file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[6,10]},)"
                    R"("a":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]},)"
                    R"("e":{"dtype":"I8","shape":[0],"data_offsets":[6,6]}}   )",
                    "abcdefghij")));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), 3u);
  const Tensor* a = opened->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, "BF16");
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{3, 1}));
  ASSERT_EQ(a->data.size(), 6u);
  EXPECT_EQ(static_cast<char>(a->data[5]), 'f');
  EXPECT_EQ(opened->find("b")->data.size(), 4u);
  EXPECT_EQ(opened->find("c"), nullptr);
}

TEST_F(SafetensorsTest, HeaderMustFitTheFileAndTheFormat) {
  EXPECT_SAYS(SafeTensors::open(write("t", "1234567")).error().message, "too few");
  std::string cut = file_of(R"({"a":)", "");
  cut[0] = 100;
  EXPECT_SAYS(SafeTensors::open(write("t", cut)).error().message, "cut short");
  std::string absurd = file_of("{}", "");
  absurd[7] = 0x7f;
  EXPECT_SAYS(SafeTensors::open(write("t", absurd)).error().message, "more than the format's");
  EXPECT_SAYS(verdict("[]", ""), "object");
  EXPECT_SAYS(verdict("{", ""), "not JSON");
  EXPECT_EQ(verdict("{}", ""), "accepted");
}

TEST_F(SafetensorsTest, SizesMustAgreeWithTheShape) {
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"F16","shape":[3],"data_offsets":[0,4]}})", "abcd"), "needs 6");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"F16","shape":[-2],"data_offsets":[0,4]}})", "abcd"), "a.shape[0]");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "a"), "unknown type 'F4'");
}

TEST_F(SafetensorsTest, ShapeProductsThatOverflowAreRefused) {
  // 2^32 x 2^32 x 2 bytes wraps to 0 in 64 bits.
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""), "2^63");
}

TEST_F(SafetensorsTest, OffsetsMustLieInsideInOrderAndNotOverlap) {
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[5],"data_offsets":[0,5]}})", "abcd"), "not inside the 4 bytes");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[4,2]}})", "abcd"), "not inside");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0]}})", "a"), "two numbers");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},)"
                      R"("b":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})",
                      "abcd"),
              "b: overlaps a");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                      R"("b":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})",
                      "abcd"),
              "bytes 1 to 2");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})", "abcd"), "bytes 3 to 4");
}

TEST_F(SafetensorsTest, DuplicateNamesAndUnknownKeysAreRefused) {
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                      "ab"),
              "duplicate key 'a'");
  EXPECT_SAYS(verdict(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":0}})", "a"), "unknown key 'x'");
}

class ShardedTest : public SafetensorsTest {
 protected:
  ShardedTest() {
    write("m1.safetensors", file_of(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x"));
    write("m2.safetensors", file_of(R"({"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "yz"));
  }
  std::string index_verdict(std::string_view weight_map) const {
    write("model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": " + std::string(weight_map) + "}");
    const auto opened = SafeTensors::open(folder_);
    return opened ? "accepted" : opened.error().message;
  }
};

TEST_F(ShardedTest, GathersTheTensorsOfAllShards) {
  EXPECT_EQ(index_verdict(R"({"a": "m1.safetensors", "b": "m2.safetensors"})"), "accepted");
  const auto opened = SafeTensors::open(folder_);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->tensors().size(), 2u);
  EXPECT_EQ(static_cast<char>(opened->find("b")->data[1]), 'z');
}

TEST_F(ShardedTest, TheIndexDecidesOverASingleFile) {
  write("model.safetensors", "broken");
  EXPECT_EQ(index_verdict(R"({"a": "m1.safetensors"})"), "accepted");
}

TEST_F(ShardedTest, IndexAndShardsMustAgree) {
  EXPECT_SAYS(index_verdict(R"({"a": "m1.safetensors", "b": "m1.safetensors"})"), "'b' is missing");
  EXPECT_SAYS(index_verdict(R"({"b": "m1.safetensors"})"), "'a'");
  EXPECT_SAYS(index_verdict(R"({"a": "m3.safetensors"})"), "m3.safetensors");
  EXPECT_SAYS(index_verdict("{}"), "weight_map");
  EXPECT_SAYS(index_verdict(R"({"a": 1})"), "weight_map.a");
}

TEST_F(ShardedTest, ShardNamesCannotLeaveTheFolder) {
  for (const std::string name : {"../m1.safetensors", "/etc/passwd", "..", "", "sub/m1.safetensors"}) {
    EXPECT_SAYS(index_verdict("{\"a\": \"" + name + "\"}"), "not a file name in this folder");
  }
}

TEST_F(SafetensorsTest, AFolderWithoutTensorsSaysWhatIsExpected) {
  EXPECT_SAYS(SafeTensors::open(folder_).error().message, "model.safetensors");
}

TEST_F(SafetensorsTest, WrittenFilesReadBackAlignedAndChecked) {
  const std::uint16_t halves[3] = {1, 2, 3};
  const float single = 4;
  const TensorToWrite tensors[] = {{"h", "BF16", {3}, std::as_bytes(std::span(halves))},
                                   {"f", "F32", {}, std::as_bytes(std::span(&single, 1))}};
  const auto path = folder_ / "out.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors));
  const auto opened = SafeTensors::open(path);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(std::memcmp(opened->find("h")->data.data(), halves, 6), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(opened->find("f")->data.data()) % alignof(float), 0u);

  const TensorToWrite wrong[] = {{"h", "BF16", {2}, std::as_bytes(std::span(halves))}};
  EXPECT_SAYS(write_safetensors(path, wrong).error().message, "h: 6 bytes do not fill shape [2]");
  const TensorToWrite twice[] = {tensors[0], tensors[0]};
  EXPECT_SAYS(write_safetensors(path, twice).error().message, "'h' is taken");
}

}  // namespace
}  // namespace adamk
