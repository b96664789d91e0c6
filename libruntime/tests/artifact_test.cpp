#include "adamk/runtime/artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>

#include "sample_artifact.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using adamk::testing::ArtifactFolder;
using adamk::testing::sample_contents;
using adamk::testing::SampleInputs;

class ArtifactTest : public ArtifactFolder {
 protected:
  SampleInputs inputs;
  fs::path folder = root / "out";
  void change(const char* name, std::string_view bytes, std::ios::openmode mode) {
    std::ofstream(folder / name, std::ios::binary | mode) << bytes;
  }
  std::string refusal(ArtifactChecks checks = ArtifactChecks::all) {
    auto opened = open_artifact(folder, checks);
    if (opened) return "opened";
    EXPECT_EQ(exit_status(opened.error().code), 2) << opened.error().message;
    return opened.error().message;
  }
};

TEST_F(ArtifactTest, OpensWhatWasWritten) {
  auto written = write_artifact(folder, sample_contents(inputs));
  ASSERT_TRUE(written.has_value()) << written.error().message;
  auto artifact = open_artifact(folder);
  ASSERT_TRUE(artifact.has_value()) << artifact.error().message;
  EXPECT_EQ(artifact->recipe.plan_hash, testing::sample_recipe().plan_hash);
  EXPECT_EQ(artifact->weights_origin, "random 1");
  EXPECT_EQ(artifact->manifest["plan"]["grid"], 4);
  EXPECT_EQ(artifact->image, inputs.image);
  EXPECT_TRUE(std::ranges::equal(artifact->inputs().packed, inputs.packed));
  EXPECT_TRUE(std::ranges::equal(artifact->inputs().embedding, inputs.embedding));
  EXPECT_TRUE(verify_files(*artifact).has_value());
  EXPECT_EQ(std::distance(fs::directory_iterator(root), {}), 1) << "no temporary folder is left";
}

TEST_F(ArtifactTest, PtxIsATextFileOnDiskAndEndsInZeroInMemory) {
  ArtifactContents contents = sample_contents(inputs);
  contents.recipe.arch = "compute_89";
  inputs.image = {std::byte{'p'}, std::byte{'t'}, std::byte{'x'}, std::byte{0}};
  contents.image = inputs.image;
  ASSERT_TRUE(write_artifact(folder, contents).has_value());
  EXPECT_EQ(fs::file_size(folder / "kernel.ptx"), 3u);
  EXPECT_FALSE(fs::exists(folder / "kernel.cubin"));
  auto artifact = open_artifact(folder);
  ASSERT_TRUE(artifact.has_value()) << artifact.error().message;
  EXPECT_EQ(artifact->image, inputs.image);
}

TEST_F(ArtifactTest, ChangedShortenedOrMissingFilesAreRefusedByName) {
  ASSERT_TRUE(write_artifact(folder, sample_contents(inputs)).has_value());
  for (const char* name : {"kernel.cu", "kernel.cubin", "weights.packed", "small.packed", "embedding.bin"}) {
    const std::string before = *read_file(folder / name, 1 << 20);
    std::string changed = before;
    changed[5] = static_cast<char>(changed[5] + 1);
    change(name, changed, std::ios::trunc);
    EXPECT_THAT(refusal(), HasSubstr(std::string(name) + ": hash")) << name;
    change(name, before + "x", std::ios::trunc);
    EXPECT_THAT(refusal(ArtifactChecks::skip_weights), HasSubstr(std::string(name) + ": ")) << name;
    change(name, before, std::ios::trunc);
  }
  EXPECT_EQ(refusal(), "opened");
  fs::remove(folder / "small.packed");
  auto opened = open_artifact(folder);
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("small.packed"));
}

TEST_F(ArtifactTest, AFlippedBitAnywhereIsRefusedNamingTheFile) {
  for (const char* arch : {"sm_90a", "compute_89"}) {
    ArtifactContents contents = sample_contents(inputs);
    contents.recipe.arch = arch;
    contents.measured = Json{{"device", "NVIDIA H200"}};
    ASSERT_TRUE(write_artifact(folder, contents).has_value());
    int files = 0;
    std::mt19937 random(20);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string(), whole = *read_file(entry.path(), 1 << 20);
      ++files;
      // The manifest at every byte: its hash is over text, so blanks and its own digits count too.
      std::vector<std::size_t> offsets = {0, whole.size() / 2, whole.size() - 1};
      for (int i = 0; i < 20; ++i) offsets.push_back(random() % whole.size());
      if (name == "manifest.json") {
        offsets.resize(whole.size());
        std::iota(offsets.begin(), offsets.end(), std::size_t{0});
      }
      for (const std::size_t offset : offsets) {
        std::string changed = whole;
        changed[offset] = static_cast<char>(changed[offset] ^ (1 << random() % 8));
        change(name.c_str(), changed, std::ios::trunc);
        ASSERT_THAT(refusal(), HasSubstr(name)) << "byte " << offset << " of " << whole.size();
      }
      change(name.c_str(), whole, std::ios::trunc);
    }
    EXPECT_EQ(files, 6) << arch;
    EXPECT_EQ(refusal(), "opened");
  }
}

TEST_F(ArtifactTest, AManifestIsTheBytesThatWereWritten) {
  ASSERT_TRUE(write_artifact(folder, sample_contents(inputs)).has_value());
  const std::string whole = *read_file(folder / "manifest.json", 1 << 20);
  ASSERT_TRUE(whole.ends_with("\"\n}\n"));
  for (const std::string& other : {whole + " ", whole + whole, whole.substr(0, whole.size() - 1), " " + whole,
                                   read_document(folder / "manifest.json")->dump()}) {
    change("manifest.json", other, std::ios::trunc);
    EXPECT_THAT(refusal(), HasSubstr("manifest.json"));
  }
}

TEST_F(ArtifactTest, SkippingTheHashOfWeightsIsExplicitAndLeavesItToVerifyFiles) {
  ASSERT_TRUE(write_artifact(folder, sample_contents(inputs)).has_value());
  change("weights.packed", std::string(64, 'x'), std::ios::trunc);
  auto artifact = open_artifact(folder, ArtifactChecks::skip_weights);
  ASSERT_TRUE(artifact.has_value()) << artifact.error().message;
  auto verified = verify_files(*artifact);
  ASSERT_FALSE(verified.has_value());
  EXPECT_THAT(verified.error().message, HasSubstr("weights.packed"));
}

TEST_F(ArtifactTest, ManifestsThatDisagreeWithTheirRecipeAreRefused) {
  ASSERT_TRUE(write_artifact(folder, sample_contents(inputs)).has_value());
  Json manifest = *read_document(folder / "manifest.json");
  const auto refuse = [&](const std::string& pointer, const Json& value, const char* names) {
    Json broken = manifest;
    broken[Json::json_pointer(pointer)] = value;
    ASSERT_TRUE(write_json(folder / "manifest.json", broken).has_value());
    EXPECT_THAT(refusal(), HasSubstr(names));
  };
  refuse("/recipe/bytes/packed", 128, "weights.packed");
  refuse("/files/..~1secret", Json{{"bytes", 1}, {"hash", ""}}, "files");
  refuse("/files/weights.packed/bytes", -1, "files.weights.packed.bytes");
  refuse("/version", 9, "version");
  refuse("/format", "adamk.dag", "adamk.dag");
  refuse("/unknown", 1, "unknown");
}

TEST_F(ArtifactTest, AnArtifactIsReplacedAndAnEmptyFolderUsed) {
  fs::create_directories(folder);
  ASSERT_TRUE(write_artifact(folder, sample_contents(inputs)).has_value());
  ArtifactContents second = sample_contents(inputs);
  second.source = "// another kernel\n";
  auto written = write_artifact(folder / "", second);  // "out/"
  ASSERT_TRUE(written.has_value()) << written.error().message;
  EXPECT_EQ(*read_file(folder / "kernel.cu", 1000), second.source);
  EXPECT_EQ(std::distance(fs::directory_iterator(root), {}), 1);
}

TEST_F(ArtifactTest, ARelativeFolderNeedNotExistNorItsParents) {
  const fs::path before = fs::current_path();
  fs::current_path(root);
  for (const char* name : {"new", "new/", "./dotted", "a/b/deep", "up/../beside"}) {
    auto written = write_artifact(name, sample_contents(inputs));
    EXPECT_TRUE(written.has_value()) << name << ": " << written.error().message;
    EXPECT_TRUE(open_artifact(root / fs::path(name).lexically_normal()).has_value()) << name;
  }
  for (const char* name : {"", "/"}) {
    auto written = write_artifact(name, sample_contents(inputs));
    ASSERT_FALSE(written.has_value()) << name;
    EXPECT_EQ(written.error().code, Errc::bad_input) << written.error().message;
  }
  auto written = write_artifact(".", sample_contents(inputs));   // the folder the process stands in: not empty here
  EXPECT_FALSE(written.has_value());
  fs::current_path(before);
}

TEST_F(ArtifactTest, FoldersWithAnythingElseAreLeftAlone) {
  fs::create_directories(folder);
  change("thesis.tex", "precious", std::ios::trunc);
  auto written = write_artifact(folder, sample_contents(inputs));
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().message, HasSubstr("thesis.tex"));
  fs::remove(folder / "thesis.tex");
  ASSERT_TRUE(write_artifact(folder, sample_contents(inputs)).has_value());
  change("thesis.tex", "precious", std::ios::trunc);
  EXPECT_FALSE(write_artifact(folder, sample_contents(inputs)).has_value()) << "an artifact with a stranger in it";
  EXPECT_EQ(*read_file(folder / "thesis.tex", 100), "precious");
}

TEST_F(ArtifactTest, AFolderThatIsNoArtifactSaysSo) {
  EXPECT_THAT(refusal(), HasSubstr("manifest.json"));
}

TEST_F(ArtifactTest, BytesOfAnotherSizeThanTheRecipeAreNotWritten) {
  inputs.embedding.pop_back();
  auto written = write_artifact(folder, sample_contents(inputs));
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().message, HasSubstr("embedding.bin"));
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace adamk
