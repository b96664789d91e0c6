// A small artifact and a folder of the test's own to write it to.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include "adamk/runtime/artifact.h"
#include "sample_recipe.h"

namespace adamk::testing {

inline ArtifactContents sample_contents(const SampleInputs& inputs) {
  ArtifactContents contents;
  contents.recipe = sample_recipe();
  contents.tool_version = "adamk 0.1.0";
  contents.weights_origin = "random 1";
  contents.plan = Json{{"grid", 4}};
  contents.deployment = Json{{"model", "sample"}};
  contents.certificate = Json{{"format", "adamk.certificate"}, {"version", 2}, {"ok", true}, {"validator_version", 2},
                              {"plan_hash", contents.recipe.plan_hash}, {"deployment_key", contents.recipe.deployment_key}};
  contents.build = Json{{"nvrtc", "13.0"}};
  contents.source = "extern \"C\" __global__ void adamk_decode() {}\n";
  contents.image = inputs.image;
  contents.packed = inputs.packed;
  contents.small_tensors = inputs.small;
  contents.embedding = inputs.embedding;
  return contents;
}

class ArtifactFolder : public ::testing::Test {
 protected:
  ArtifactFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "adamk-test-XXXXXX").string();
    root = ::mkdtemp(name.data());
  }
  ~ArtifactFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  std::filesystem::path root;
};

}  // namespace adamk::testing
