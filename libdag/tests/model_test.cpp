#include "adamk/dag/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace adamk {
namespace {

constexpr std::string_view small_description = R"(
format: adamk.model
version: 1
family: qwen3
layers: 2
hidden: 64
heads: 4
kv_heads: 2
head_dim: 16
ffn: 128
vocab: 256
max_positions: 512
)";

Result<Model> describe(const std::string& text) {
  const Result<Json> document = parse_yaml(text, "m.yaml");
  if (!document) return tl::unexpected(document.error());
  return model_from_description(JsonView(*document, "m.yaml"));
}

std::string verdict(const std::string& text) {
  const Result<Model> model = describe(text);
  return model ? "accepted" : model.error().message;
}

TEST(ModelTest, DescriptionsFillInTheFamilysDefaults) {
  const Result<Model> model = describe(std::string(small_description));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->qk_norm);
  EXPECT_FALSE(model->qkv_bias);
  EXPECT_EQ(model->rope.theta, 10000.0);
  EXPECT_FALSE(model->notes.empty());
}

TEST(ModelTest, DescriptionsRefuseWhatTheyDoNotKnow) {
  const std::string base(small_description);
  EXPECT_NE(verdict(base + "colour: red\n").find("unknown key 'colour'"), std::string::npos);
  EXPECT_NE(verdict(base + "rope: {kind: yarn}\n").find("rope.kind: 'yarn'"), std::string::npos);
  EXPECT_NE(verdict(base + "rope: {kind: default, factor: 2}\n").find("'factor' means nothing"), std::string::npos);
  EXPECT_NE(verdict(base + "rope: {kind: linear}\n").find("'factor' is missing"), std::string::npos);
  EXPECT_NE(verdict(base + "quantization: {method: awq, bits: 4}\n").find("awq"), std::string::npos);
  EXPECT_NE(verdict("format: adamk.model\nversion: 1\nfamily: llama\nlayers: 2\nhidden: 65536\nheads: 32\nffn: 64\nvocab: 8\n"
                    "max_positions: 8\n").find("head_dim 2048 is more than 1024"),
            std::string::npos);
  EXPECT_NE(verdict("format: adamk.plan\nversion: 1\n").find("adamk.plan"), std::string::npos);
}

TEST(ModelTest, JsonRoundTripKeepsEveryField) {
  Model model = describe(std::string(small_description)).value();
  model.rope = {RopeKind::llama3, 500000.0, 8.0, 1.0, 4.0, 8192};
  model.qkv_bias = model.output_bias = model.mlp_bias = model.tied_head = true;
  model.sliding_window = 8;
  model.quantization = Quantization{"gptq", 8, -1, false, true, 2, true};
  model.stored_dtype = "float16";
  const Json json = model_to_json(model);
  const Result<Model> back = model_from_description(JsonView(json, "m.json"));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(model_to_json(*back), json);
  EXPECT_TRUE(back->notes.empty());
  EXPECT_EQ(back->rope.original_max_positions, 8192);
  EXPECT_EQ(back->quantization->zeros_version, 2);
}

TEST(ModelTest, ParametersMatchThePublishedCounts) {
  // Model cards: Llama 2 7B has 6,738,415,616 parameters; Llama 3.2 1B 1,235,814,400; Qwen2.5 1.5B 1,543,714,304;
  // Qwen3 1.7B (tied) 1,720,574,976.
  const std::filesystem::path models = std::filesystem::path(ADAMK_SOURCE_DIR) / "examples" / "models";
  EXPECT_EQ(load_model(models / "llama-2-7b.yaml").value().parameters(), 6738415616);
  EXPECT_EQ(load_model(models / "llama-3.2-1b.yaml").value().parameters(), 1235814400);
  EXPECT_EQ(load_model(models / "qwen2.5-1.5b.yaml").value().parameters(), 1543714304);
  EXPECT_EQ(load_model(models / "qwen3-1.7b.yaml").value().parameters(), 1720574976);
}

TEST(ModelTest, PlainFrequenciesArePowersOfTheta) {
  Model model;
  model.head_dim = 8;
  // 10000^(-2j/8) for j = 0 .. 3.
  const std::vector<double> expected = {1.0, 0.1, 0.01, 0.001};
  const std::vector<double> frequencies = rope_inverse_frequencies(model);
  ASSERT_EQ(frequencies.size(), 4u);
  for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(frequencies[j], expected[j], 1e-15);

  model.rope.kind = RopeKind::linear;
  model.rope.factor = 4.0;
  EXPECT_NEAR(rope_inverse_frequencies(model)[1], 0.025, 1e-15);
}

// Worked out in Python with the wavelength form of the published formula, for Llama 3.2 1B.
TEST(ModelTest, Llama3FrequenciesKeepShortStretchLongAndBlendBetween) {
  Model model;
  model.head_dim = 64;
  model.rope = {RopeKind::llama3, 500000.0, 32.0, 1.0, 4.0, 8192};
  const std::vector<double> frequencies = rope_inverse_frequencies(model);
  ASSERT_EQ(frequencies.size(), 32u);
  const std::pair<std::size_t, double> expected[] = {{0, 1.0},
                                                     {1, 0.6636012376960885},
                                                     {14, 0.0032114459947525913},
                                                     {15, 0.001290547928209264},
                                                     {16, 0.00042955679655936815},
                                                     {17, 9.70828780262767e-05},
                                                     {18, 1.9461638184831125e-05},
                                                     {31, 9.418306725434909e-08}};
  for (const auto& [j, value] : expected) EXPECT_NEAR(frequencies[j], value, 1e-12 * value) << j;
}

TEST(ModelTest, FoldersFilesAndDescriptionsLoad) {
  const auto folder = std::filesystem::temp_directory_path() / ("adamk-model-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  EXPECT_NE(load_model(folder).error().message.find("config.json"), std::string::npos);
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "num_hidden_layers": 3})";
  EXPECT_EQ(load_model(folder).value().layers, 3);
  EXPECT_EQ(load_model(folder / "config.json").value().layers, 3);
  std::ofstream(folder / "m.yaml") << small_description;
  EXPECT_EQ(load_model(folder / "m.yaml").value().family, "qwen3");
  std::ofstream(folder / "m.json") << model_to_json(load_model(folder / "m.yaml").value());
  EXPECT_EQ(load_model(folder / "m.json").value().family, "qwen3");
  // A GPTQ folder of the kind that says so only beside config.json.
  std::ofstream(folder / "quantize_config.json") << R"({"bits": 4, "group_size": 128, "desc_act": false})";
  ASSERT_TRUE(load_model(folder).value().quantization);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace adamk
