// Checkpoint folders of the corpus: which import, which open, which are refused and why.
#include <gtest/gtest.h>

#include "adamk/base/safetensors.h"
#include "adamk/dag/deployment.h"
#include "corpus_folder.h"

namespace adamk {
namespace {

std::filesystem::path fixtures() { return corpus_folder() / "checkpoints" / "fixtures"; }

std::string verdict(const std::filesystem::path& folder) {
  const Result<Model> model = load_model(folder);
  return model ? "accepted" : model.error().message;
}

TEST(Checkpoints, MlxQuantisedFoldersAreRefusedByTheirKey) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  for (const char* name : {"tiny_llama3_tied", "tiny_qwen3_sharded"}) {
    const std::string message = verdict(fixtures() / name);
    EXPECT_NE(message.find("quantization: MLX"), std::string::npos) << name << ": " << message;
  }
}

TEST(Checkpoints, MistralDecodesWithinItsWindowOnly) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  const Result<Model> model = load_model(fixtures() / "tiny_mistral");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->sliding_window, 8);
  const Target target = load_target("l20").value();
  Workload workload;
  workload.context = 8;
  EXPECT_TRUE(make_deployment(*model, WeightsFormat::bf16, target, workload));
  workload.context = 9;
  const auto beyond = make_deployment(*model, WeightsFormat::bf16, target, workload);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("sliding window of 8"), std::string::npos) << beyond.error().message;
}

TEST(Checkpoints, PlainFoldersImportAndCanBeDeployed) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  const std::filesystem::path root = corpus_folder() / "checkpoints";
  for (const auto& folder : {root / "stories260K-hf", root / "stories260K-hf-bf16", root / "stories260K-hf-f16",
                             fixtures() / "tiny_llama3", fixtures() / "tiny_qwen3"}) {
    const Result<Model> model = load_model(folder);
    ASSERT_TRUE(model) << model.error().message;
    Workload workload;
    workload.context = 256;
    const auto deployment = make_deployment(*model, WeightsFormat::bf16, load_target("l20").value(), workload);
    EXPECT_TRUE(deployment) << folder << ": " << deployment.error().message;

    const Result<SafeTensors> tensors = SafeTensors::open(folder);
    ASSERT_TRUE(tensors) << tensors.error().message;
    std::int64_t elements = 0;
    for (const auto& [name, tensor] : tensors->tensors()) {
      std::int64_t count = 1;
      for (const std::int64_t extent : tensor.shape) count *= extent;
      elements += count;
    }
    EXPECT_EQ(elements, model->parameters()) << folder;
  }
}

TEST(Checkpoints, ShardedFoldersOpen) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  const Result<SafeTensors> tensors = SafeTensors::open(fixtures() / "tiny_qwen3_sharded");
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_NE(tensors->find("lm_head.weight"), nullptr);
  EXPECT_EQ(tensors->find("lm_head.weight")->dtype, "U32");
}

TEST(Checkpoints, ARealGptqSliceOpens) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  const Result<SafeTensors> tensors = SafeTensors::open(corpus_folder() / "checkpoints" / "gptq_small.safetensors");
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->tensors().size(), 5u);
}

}  // namespace
}  // namespace adamk
