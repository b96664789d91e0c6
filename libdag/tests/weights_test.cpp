#include "adamk/dag/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "adamk/base/half.h"
#include "adamk/base/safetensors.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

Model small_model() {
  Model m;
  m.family = "qwen3";
  m.layers = 2;
  m.hidden = 12;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 20;
  m.vocab = 11;
  m.max_positions = 64;
  m.norm_eps = 1e-5;
  m.qkv_bias = true;
  m.qk_norm = true;
  return m;
}

/// A checkpoint in memory that tests spoil and write.
struct Checkpoint {
  struct Entry {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::uint8_t> bytes;
  };
  std::map<std::string, Entry> entries;

  /// Value i of a tensor is ((i + length of the name) mod 61 - 30) / 16: exact in every format.
  static float value(const std::string& name, std::size_t i) {
    return (static_cast<float>((i + name.size()) % 61) - 30) / 16;
  }

  void add(const std::string& name, std::vector<std::int64_t> shape, const std::string& dtype) {
    std::size_t count = 1;
    for (const auto extent : shape) count *= static_cast<std::size_t>(extent);
    Entry entry{dtype, std::move(shape), {}};
    for (std::size_t i = 0; i < count; ++i) {
      const float v = value(name, i);
      const Half half = dtype == "F16" ? float_to_fp16(v) : float_to_bf16(v);
      const auto* from = dtype == "F32" ? reinterpret_cast<const std::uint8_t*>(&v)
                                        : reinterpret_cast<const std::uint8_t*>(&half);
      entry.bytes.insert(entry.bytes.end(), from, from + (dtype == "F32" ? 4 : 2));
    }
    entries[name] = std::move(entry);
  }

  explicit Checkpoint(const Model& m, const std::string& dtype = "BF16") {
    add("model.embed_tokens.weight", {m.vocab, m.hidden}, dtype);
    for (int i = 0; i < m.layers; ++i) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      add(at + "input_layernorm.weight", {m.hidden}, dtype);
      add(at + "post_attention_layernorm.weight", {m.hidden}, dtype);
      for (const char* p : {"q", "k", "v"}) {
        const std::int64_t rows = *p == 'q' ? m.heads * m.head_dim : m.kv_heads * m.head_dim;
        add(at + "self_attn." + p + "_proj.weight", {rows, m.hidden}, dtype);
        if (m.qkv_bias) add(at + "self_attn." + p + "_proj.bias", {rows}, dtype);
        if (m.qk_norm && *p != 'v') add(at + "self_attn." + p + "_norm.weight", {m.head_dim}, dtype);
      }
      add(at + "self_attn.o_proj.weight", {m.hidden, m.heads * m.head_dim}, dtype);
      add(at + "mlp.gate_proj.weight", {m.ffn, m.hidden}, dtype);
      add(at + "mlp.up_proj.weight", {m.ffn, m.hidden}, dtype);
      add(at + "mlp.down_proj.weight", {m.hidden, m.ffn}, dtype);
    }
    add("model.norm.weight", {m.hidden}, dtype);
    if (!m.tied_head) add("lm_head.weight", {m.vocab, m.hidden}, dtype);
  }

  void write(const fs::path& file, bool (*wanted)(const std::string&) = nullptr) const {
    std::vector<TensorToWrite> list;
    for (const auto& [name, e] : entries) {
      if (!wanted || wanted(name)) list.push_back({name, e.dtype, e.shape, std::as_bytes(std::span(e.bytes))});
    }
    const auto written = write_safetensors(file, list);
    ASSERT_TRUE(written) << written.error().message;
  }
};

class WeightsFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("adamk_weights_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<Weights> load(const Model& model, const Checkpoint& checkpoint, WeightsFormat format = WeightsFormat::bf16) {
    checkpoint.write(folder_ / "model.safetensors");
    return Weights::load(model, folder_, format);
  }
  void expect_refused(const Model& model, const Checkpoint& checkpoint, const std::vector<std::string>& words) {
    const auto weights = load(model, checkpoint);
    ASSERT_FALSE(weights);
    for (const auto& word : words) EXPECT_NE(weights.error().message.find(word), std::string::npos) << weights.error().message;
  }

  fs::path folder_;
};

TEST_F(WeightsFolder, EveryTensorLandsInItsPlace) {
  const Model m = small_model();
  const auto weights = load(m, Checkpoint(m));
  ASSERT_TRUE(weights) << weights.error().message;
  const auto expect = [&](std::span<const Half> got, const std::string& name, std::size_t size) {
    ASSERT_EQ(got.size(), size) << name;
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bf16_to_float(got[i]), Checkpoint::value(name, i)) << name << i;
  };
  expect(weights->embedding(), "model.embed_tokens.weight", 132);
  expect(weights->head(), "lm_head.weight", 132);
  expect(weights->final_norm(), "model.norm.weight", 12);
  ASSERT_EQ(weights->layers().size(), 2u);
  const LayerWeights& w = weights->layers()[1];
  expect(w.attention_norm, "model.layers.1.input_layernorm.weight", 12);
  expect(w.mlp_norm, "model.layers.1.post_attention_layernorm.weight", 12);
  expect(w.q, "model.layers.1.self_attn.q_proj.weight", 192);
  expect(w.k, "model.layers.1.self_attn.k_proj.weight", 96);
  expect(w.v, "model.layers.1.self_attn.v_proj.weight", 96);
  expect(w.q_bias, "model.layers.1.self_attn.q_proj.bias", 16);
  expect(w.k_bias, "model.layers.1.self_attn.k_proj.bias", 8);
  expect(w.v_bias, "model.layers.1.self_attn.v_proj.bias", 8);
  expect(w.q_norm, "model.layers.1.self_attn.q_norm.weight", 4);
  expect(w.k_norm, "model.layers.1.self_attn.k_norm.weight", 4);
  expect(w.output, "model.layers.1.self_attn.o_proj.weight", 192);
  expect(w.gate, "model.layers.1.mlp.gate_proj.weight", 240);
  expect(w.up, "model.layers.1.mlp.up_proj.weight", 240);
  expect(w.down, "model.layers.1.mlp.down_proj.weight", 240);
  EXPECT_TRUE(w.output_bias.empty() && w.gate_bias.empty() && w.up_bias.empty() && w.down_bias.empty());
}

TEST_F(WeightsFolder, OtherStoredDtypesAreConvertedToTheSameValues) {
  const Model m = small_model();
  const auto reference = load(m, Checkpoint(m), WeightsFormat::fp16);
  ASSERT_TRUE(reference) << reference.error().message;
  const std::string hash = reference->hash();
  for (const char* dtype : {"F16", "F32"}) {
    const auto weights = load(m, Checkpoint(m, dtype), WeightsFormat::fp16);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(weights->hash(), hash) << dtype;
  }
}

TEST_F(WeightsFolder, ConversionRoundsToNearestEven) {
  const Model m = small_model();
  Checkpoint checkpoint(m, "F32");
  // 1 + 2^-8 lies between the bf16 neighbours 1 and 1 + 2^-7: even is 1. 1 + 3 x 2^-8: even is 1 + 2^-6.
  const float values[] = {1.00390625f, 1.01171875f, -1.00390625f, 1.005f};
  std::memcpy(checkpoint.entries["model.norm.weight"].bytes.data(), values, sizeof values);
  const auto weights = load(m, checkpoint);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->final_norm()[0], 0x3f80);
  EXPECT_EQ(weights->final_norm()[1], 0x3f82);
  EXPECT_EQ(weights->final_norm()[2], 0xbf80);
  EXPECT_EQ(weights->final_norm()[3], 0x3f81);
}

TEST_F(WeightsFolder, AValueBeyondFp16IsRefusedNotMadeInfinite) {
  const Model m = small_model();
  Checkpoint checkpoint(m, "F32");
  const float large = 70000.0f;
  std::memcpy(checkpoint.entries["model.layers.1.mlp.up_proj.weight"].bytes.data(), &large, 4);
  const auto weights = load(m, checkpoint, WeightsFormat::fp16);
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("model.layers.1.mlp.up_proj.weight"), std::string::npos);
}

TEST_F(WeightsFolder, MissingTensorIsNamed) {
  const Model m = small_model();
  Checkpoint checkpoint(m);
  checkpoint.entries.erase("model.layers.1.self_attn.k_norm.weight");
  expect_refused(m, checkpoint, {"model.layers.1.self_attn.k_norm.weight", "missing"});
}

TEST_F(WeightsFolder, UnusedTensorIsNamed) {
  const Model m = small_model();
  Checkpoint checkpoint(m);
  checkpoint.add("model.layers.0.mlp.gate_proj.bias", {20}, "BF16");
  expect_refused(m, checkpoint, {"model.layers.0.mlp.gate_proj.bias", "no part of the model"});
}

TEST_F(WeightsFolder, WrongShapeAndDtypeAreNamed) {
  const Model m = small_model();
  Checkpoint transposed(m);
  transposed.entries["model.layers.0.mlp.down_proj.weight"].shape = {20, 12};
  expect_refused(m, transposed, {"model.layers.0.mlp.down_proj.weight", "[20, 12]", "[12, 20]"});
  Checkpoint integers(m, "F32");
  integers.entries["model.norm.weight"].dtype = "I32";
  expect_refused(m, integers, {"model.norm.weight", "I32"});
}

TEST_F(WeightsFolder, RotaryBuffersAreTheOnlyOnesPassedOver) {
  const Model m = small_model();
  Checkpoint checkpoint(m);
  checkpoint.add("model.layers.0.self_attn.rotary_emb.inv_freq", {2}, "F32");
  const auto weights = load(m, checkpoint);
  EXPECT_TRUE(weights) << weights.error().message;
}

TEST_F(WeightsFolder, ATiedHeadsCopyMustEqualTheEmbedding) {
  Model m = small_model();
  m.tied_head = true;
  Checkpoint checkpoint(m);
  checkpoint.entries["lm_head.weight"] = checkpoint.entries["model.embed_tokens.weight"];
  {
    const auto weights = load(m, checkpoint);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(weights->head().data(), weights->embedding().data());
  }
  checkpoint.entries["lm_head.weight"].bytes[0] ^= 1;
  expect_refused(m, checkpoint, {"lm_head.weight", "tie_word_embeddings"});
}

TEST_F(WeightsFolder, AShardedFolderLoadsAsTheSingleFile) {
  const Model m = small_model();
  const Checkpoint checkpoint(m);
  std::string hash;
  {
    const auto single = load(m, checkpoint);
    ASSERT_TRUE(single) << single.error().message;
    hash = single->hash();
  }
  fs::remove(folder_ / "model.safetensors");
  checkpoint.write(folder_ / "model-00001-of-00002.safetensors", [](const std::string& n) { return n.size() % 2 == 0; });
  checkpoint.write(folder_ / "model-00002-of-00002.safetensors", [](const std::string& n) { return n.size() % 2 == 1; });
  {
    std::ofstream index(folder_ / "model.safetensors.index.json");
    index << R"({"metadata": {"total_size": 0}, "weight_map": {)";
    const char* separator = "";
    for (const auto& [name, entry] : checkpoint.entries) {
      index << separator << '"' << name << R"(": "model-0000)" << (name.size() % 2 == 0 ? 1 : 2)
            << R"(-of-00002.safetensors")";
      separator = ", ";
    }
    index << "}}";
  }
  const auto sharded = Weights::load(m, folder_, WeightsFormat::bf16);
  ASSERT_TRUE(sharded) << sharded.error().message;
  EXPECT_EQ(sharded->hash(), hash);
}

TEST_F(WeightsFolder, UnalignedDataIsCopiedNotReadInPlace) {
  const Model m = small_model();
  std::string hash;
  {
    const auto weights = load(m, Checkpoint(m));
    ASSERT_TRUE(weights);
    hash = weights->hash();
  }
  // One more space of padding after the header moves every tensor to an odd address.
  std::ifstream in(folder_ / "model.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  in.close();
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  bytes.insert(8 + header, header % 2 == 0 ? " " : "  ");
  header += header % 2 == 0 ? 1 : 2;
  std::memcpy(bytes.data(), &header, 8);
  std::ofstream(folder_ / "model.safetensors", std::ios::binary) << bytes;
  const auto weights = Weights::load(m, folder_, WeightsFormat::bf16);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->hash(), hash);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weights->embedding().data()) % 2, 0u);
}

TEST_F(WeightsFolder, HashSeesEveryTensorAndTheFormat) {
  const Model m = small_model();
  Checkpoint checkpoint(m);
  const auto first = load(m, checkpoint);
  ASSERT_TRUE(first);
  const std::string hash = first->hash();
  EXPECT_EQ(hash.size(), 32u);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.layers.1.self_attn.v_proj.bias"}) {
    Checkpoint other(m);
    other.entries[name].bytes[2] ^= 1;
    const auto weights = load(m, other);
    ASSERT_TRUE(weights);
    EXPECT_NE(weights->hash(), hash) << name;
  }
}

TEST_F(WeightsFolder, WeightsOutliveTheResultTheyCameFrom) {
  const Model m = small_model();
  Weights copy = [&] { return load(m, Checkpoint(m)).value(); }();
  fs::remove_all(folder_);
  EXPECT_EQ(bf16_to_float(copy.final_norm()[0]), Checkpoint::value("model.norm.weight", 0));
}

// Expected values: libdag/tests/random_weights.py.
TEST(RandomWeights, GeneratorIsTheDocumentedOne) {
  EXPECT_EQ(random_unit(1, 2, 0), 0.09681665897369385f);
  EXPECT_EQ(random_unit(1, 2, 1), 0.987486720085144f);
  EXPECT_EQ(random_unit(1, 2, std::uint64_t{1} << 40), -0.2654510736465454f);
  EXPECT_EQ(random_unit(0, 0, 0), -0.32389509677886963f);
}

TEST(RandomWeights, ValuesAreTheDocumentedOnes) {
  const auto bf16 = Weights::random(small_model(), WeightsFormat::bf16, 7);
  ASSERT_TRUE(bf16);
  const Half embedding[] = {0x3e22, 0xbe28, 0x3e8d, 0x3ee6};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(bf16->embedding()[i], embedding[i]) << i;
  EXPECT_EQ(bf16->embedding()[131], 0xbebe);
  EXPECT_EQ(bf16->layers()[1].down[0], 0xbda7);
  EXPECT_EQ(bf16->layers()[1].down[5], 0xbe0c);
  EXPECT_EQ(bf16->layers()[1].down[239], 0x3d95);
  EXPECT_EQ(bf16->layers()[0].attention_norm[11], 0x3f84);
  const auto fp16 = Weights::random(small_model(), WeightsFormat::fp16, 7);
  ASSERT_TRUE(fp16);
  EXPECT_EQ(fp16->embedding()[131], 0xb5f0);
  EXPECT_EQ(fp16->layers()[1].down[239], 0x2ca5);
  EXPECT_EQ(fp16->layers()[0].attention_norm[0], 0x3bf0);
}

TEST(RandomWeights, AreReproducibleAndDependOnTheSeed) {
  Model m = small_model();
  m.ffn = 70000;   // more than one piece per matrix, and a last piece that is not full
  m.hidden = 18;
  const auto once = Weights::random(m, WeightsFormat::bf16, 5), again = Weights::random(m, WeightsFormat::bf16, 5),
             other = Weights::random(m, WeightsFormat::bf16, 6);
  ASSERT_TRUE(once && again && other);
  EXPECT_EQ(once->hash(), again->hash());
  EXPECT_NE(once->hash(), other->hash());
}

TEST(RandomWeights, MatricesHaveTheStatedVariance) {
  Model m = small_model();
  m.hidden = 256;
  m.ffn = 1024;
  const auto weights = Weights::random(m, WeightsFormat::fp16, 3);
  ASSERT_TRUE(weights);
  const auto variance_times = [](std::span<const Half> tensor, double factor) {
    double sum = 0, squares = 0;
    for (const Half bits : tensor) {
      const double value = fp16_to_float(bits);
      sum += value;
      squares += value * value;
    }
    const double n = static_cast<double>(tensor.size());
    EXPECT_NEAR(sum / n * std::sqrt(factor), 0.0, 5 / std::sqrt(n));   // five standard errors
    return squares / n * factor;
  };
  EXPECT_NEAR(variance_times(weights->layers()[0].gate, 256), 1.0, 0.02);
  EXPECT_NEAR(variance_times(weights->layers()[1].down, 1024 * 2 * 2), 1.0, 0.02);
  EXPECT_NEAR(variance_times(weights->embedding(), 256), 1.0, 0.1);
}

TEST(RandomWeights, ATiedHeadSharesTheEmbedding) {
  Model m = small_model();
  m.tied_head = true;
  const auto weights = Weights::random(m, WeightsFormat::bf16, 1);
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->head().data(), weights->embedding().data());
}

fs::path corpus() {
  const char* named = std::getenv("ADAMK_CORPUS");
  return named ? fs::path(named) : fs::path(ADAMK_SOURCE_DIR) / ".." / "shared" / "corpus";
}

TEST(WeightsCorpus, FixturesLoad) {
  const fs::path checkpoints = corpus() / "checkpoints";
  if (!fs::exists(checkpoints)) GTEST_SKIP() << "no corpus at " << checkpoints << " (set ADAMK_CORPUS)";
  for (const char* name : {"fixtures/tiny_llama3", "fixtures/tiny_qwen3", "fixtures/tiny_mistral", "stories260K-hf",
                           "stories260K-hf-bf16", "stories260K-hf-f16"}) {
    const auto model = load_model(checkpoints / name);
    ASSERT_TRUE(model) << model.error().message;
    for (const auto format : {WeightsFormat::bf16, WeightsFormat::fp16}) {
      const auto weights = Weights::load(*model, checkpoints / name, format);
      ASSERT_TRUE(weights) << weights.error().message;
      EXPECT_EQ(static_cast<int>(weights->layers().size()), model->layers);
    }
  }
}

TEST(WeightsCorpus, RoundingTheFp32CheckpointGivesThePublished16BitOnes) {
  const fs::path checkpoints = corpus() / "checkpoints";
  if (!fs::exists(checkpoints)) GTEST_SKIP() << "no corpus at " << checkpoints << " (set ADAMK_CORPUS)";
  const auto model = load_model(checkpoints / "stories260K-hf");
  ASSERT_TRUE(model) << model.error().message;
  for (const auto& [folder, format] : {std::pair{"stories260K-hf-bf16", WeightsFormat::bf16},
                                       std::pair{"stories260K-hf-f16", WeightsFormat::fp16}}) {
    const auto rounded = Weights::load(*model, checkpoints / "stories260K-hf", format);
    const auto stored = Weights::load(*model, checkpoints / folder, format);
    ASSERT_TRUE(rounded && stored);
    EXPECT_EQ(rounded->hash(), stored->hash()) << folder;
  }
}

}  // namespace
}  // namespace adamk
