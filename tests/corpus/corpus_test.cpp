// Every published config.json of the corpus, against the verdict that SOURCES.tsv asks for.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "adamk/base/file.h"
#include "adamk/dag/model.h"
#include "corpus_folder.h"

namespace adamk {
namespace {

struct Row {
  std::string name, expected, detail, facts;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (std::istringstream stream(text); std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Result<std::vector<Row>> read_rows() {
  ADAMK_TRY(const std::string text, read_file(corpus_folder() / "configs" / "SOURCES.tsv", 1 << 20));
  std::vector<Row> rows;
  for (const std::string& line : split(text, '\n')) {
    std::vector<std::string> columns = split(line, '\t');
    columns.resize(10);
    if (columns[0] == "name" || columns[0].empty()) continue;
    rows.push_back({columns[0], columns[6], columns[7], columns[9]});
  }
  return rows;
}

/// What a refusal must mention, worked out from the row's expected_detail.
const std::map<std::string, std::string> refusals = {
    {"e5-mistral-embed", "MistralModel"},
    {"eagle3-llama3-8b", "LlamaForCausalLMEagle3"},
    {"qwen2-vl-2b", "multimodal, with rope type mrope"},
    {"qwen3-8b-fp8", "'fp8'"},
    {"deepseek-v3", "latent attention (MLA)"},
    {"gpt-oss-20b", "mixture of experts with attention sinks"},
    {"qwen35-27b-nested", "linear-attention"},
    {"llava15-7b-nested-defaults", "multimodal"},
    {"jamba-tiny", "Mamba"},
    {"nemotron-h-56b-infinity", "Mamba"},
    {"falcon-7b-mq", "parallel attention and LayerNorm"},
    {"tiny-random-phi", "LayerNorm"},
    {"gemma-7b", "1 + w"},
    {"stablelm-3b-hd80", "partial rotary"},
    {"chatglm3-6b", "'chatglm'"},
    {"minicpm3-4b", "latent attention (MLA)"},
    {"command-r-sparse", "parallel block, LayerNorm and scaled logits"},
    {"olmo31-32b-yarn", "norms come after each block"},
    {"xverse-7b", "'xverse'"},
    {"gpt-neox-tabs", "parallel residual"},
    {"gptj", "interleaved rotary"},
    {"opt", "learned positions"},
    {"gpt2", "learned positions"},
    {"qwen1-7b", "twice the real width"},
    {"llama2c-params", "no model_type"},
    {"raspi-bare", "no model_type"},
    {"genz-70b-gptq-3b-g-1", "3 bits"},
    {"phi2-gptq", "parallel block"},
    {"tinyllama-bnb-nf4", "'bitsandbytes'"},
    {"orpheus-3b-bnb", "'bitsandbytes'"},
    {"llama31-405b-fbgemm", "'fbgemm_fp8'"},
    {"qc-wizvic-PYTHON-True", ":5:"},  // the line of the bare True
    {"edge-bad-json", "not JSON"},
    {"edge-root-array", "root must be an object"},
    {"edge-no-model-type", "no model_type"},
    {"edge-hidden-string", "hidden_size: must be an integer, is a string"},
    {"edge-vocab-negative", "vocab_size: -32000"},
    {"edge-eps-string", "rms_norm_eps: must be a number, is a string"},
    // Rows where SOURCES.tsv leaves the choice, and ours is to refuse.
    {"qwen3-30b-a3b", "mixture of experts"},
    {"mixtral-8x7b", "mixture of experts"},
    {"phi3-mini-longrope", "fused (qkv_proj, gate_up_proj)"},
    {"phi3-mini-4k-dtype", "fused (qkv_proj, gate_up_proj)"},
    {"internlm2-7b", "wqkv"},
    {"med42-70b-dynamic", "rope type 'dynamic'"},
};

/// Rows with a choice that we import: docs/model-description.md says so.
const std::set<std::string> accepted_choices = {
    "paged-infer-hd24",  // imports; the deployment decides whether a kernel serves the head_dim
    "mistral-7b-swa",    // contexts beyond the window are refused
    "qwen3-embed-8b",    // odd vocabulary
    "wizvic-30b-gptq-g-1-act", "wizvic-30b-gptq-g32-act", "wizvic-30b-gptq-8b-g128", "mythomax-13b-gptq-g128-act",
    "qc-wizvic-g-1",           "qc-mythomax-g64-act",     "edge-rope-linear-alias",  "edge-200-layers",
    "edge-llama-minimal",      "edge-maxpos-5e9"};  // "refuse or keep in 64 bits, never wrap": kept

/// Bare quantisation configs go through the reader that serves quantization_config.
bool is_bare_quantization(const std::string& name) { return name.starts_with("qc-"); }

Result<void> import_row(const std::string& name, Model& model) {
  const std::filesystem::path path = corpus_folder() / "configs" / (name + ".json");
  if (!is_bare_quantization(name)) {
    ADAMK_TRY(model, load_model(path));
    return {};
  }
  ADAMK_TRY(const Json document, read_document(path));
  ADAMK_TRY(model.quantization, quantization_from_config(JsonView(document, path.string())));
  return {};
}

std::map<std::string, std::string> parse_facts(const std::string& text) {
  std::map<std::string, std::string> facts;
  for (const std::string& fact : split(text, ' ')) {
    const std::size_t equals = fact.find('=');
    if (equals == std::string::npos) continue;
    const std::string value = fact.substr(equals + 1);
    if (value != "None" && value != "?") facts[fact.substr(0, equals)] = value;  // None: the class default
  }
  return facts;
}

std::string quantization_fact(const std::optional<Quantization>& quantization) {
  if (!quantization) return "none";
  return fmt::format("quant_method={},bits={},group_size={},desc_act={},sym={}", quantization->method,
                     quantization->bits, quantization->group_size, quantization->act_order ? "True" : "False",
                     quantization->symmetric ? "True" : "False");
}

void expect_facts(const Row& row, const Model& model) {
  if (is_bare_quantization(row.name)) return;
  constexpr std::string_view kinds[] = {"default", "linear", "llama3"};
  const std::map<std::string, std::int64_t> integers = {
      {"L", model.layers},    {"h", model.hidden}, {"q", model.heads}, {"kv", model.kv_heads},
      {"hd", model.head_dim}, {"ffn", model.ffn},  {"V", model.vocab}, {"maxpos", model.max_positions}};
  int checked = 0;
  for (const auto& [fact, value] : parse_facts(row.facts)) {
    ++checked;
    if (const auto integer = integers.find(fact); integer != integers.end()) {
      EXPECT_EQ(std::to_string(integer->second), value) << row.name << " " << fact;
    } else if (fact == "eps") {
      EXPECT_EQ(model.norm_eps, std::stod(value)) << row.name;
    } else if (fact == "theta") {
      EXPECT_EQ(model.rope.theta, std::stod(value)) << row.name;
    } else if (fact == "rope") {
      EXPECT_EQ(kinds[static_cast<std::size_t>(model.rope.kind)], value) << row.name;
    } else if (fact == "tied") {
      EXPECT_EQ(model.tied_head, value == "True") << row.name;
    } else if (fact == "quant") {
      EXPECT_EQ(quantization_fact(model.quantization), value) << row.name;
    } else {
      EXPECT_EQ(fact, "act") << row.name << ": a fact that this test does not check";
    }
  }
  EXPECT_GE(checked, 10) << row.name;
}

TEST(Corpus, EveryConfigGetsTheVerdictThatItsRowAsksFor) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  const Result<std::vector<Row>> rows = read_rows();
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_GE(rows->size(), 60u);
  for (const Row& row : *rows) {
    const auto refusal = refusals.find(row.name);
    const bool choice = accepted_choices.contains(row.name);
    const bool refuse = refusal != refusals.end();
    // A row without an entry here has not been thought about, unless it simply must import.
    ASSERT_TRUE(row.expected == "supported" || choice || refuse) << row.name << " is in neither table";
    ASSERT_FALSE(row.expected == "supported" && refuse) << row.name;

    Model model;
    const Result<void> imported = import_row(row.name, model);
    if (refuse) {
      ASSERT_FALSE(imported) << row.name << " must be refused: " << row.detail;
      EXPECT_NE(imported.error().message.find(refusal->second), std::string::npos)
          << row.name << ": " << imported.error().message;
      EXPECT_NE(imported.error().message.find(row.name + ".json"), std::string::npos) << imported.error().message;
      continue;
    }
    ASSERT_TRUE(imported) << row.name << ": " << imported.error().message;
    expect_facts(row, model);
  }
}

TEST(Corpus, EveryTruncationOfAConfigIsRefusedAsBrokenJson) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  const Result<std::string> text = read_file(corpus_folder() / "configs" / "llama31-8b.json", 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  const std::size_t end = text->rfind('}');
  for (std::size_t length = 0; length <= end; ++length) {
    const Result<Json> parsed = parse_json(std::string_view(*text).substr(0, length), "cut.json");
    ASSERT_FALSE(parsed) << length;
    EXPECT_NE(parsed.error().message.find("not JSON"), std::string::npos) << parsed.error().message;
  }
}

Model imported(const std::string& name) {
  Model model;
  const Result<void> result = import_row(name, model);
  EXPECT_TRUE(result) << result.error().message;
  return model;
}

// What makes a row special where its facts do not say it.
TEST(Corpus, SpecialTraitsAreAppliedNotIgnored) {
  ADAMK_SKIP_WITHOUT_CORPUS();
  EXPECT_EQ(imported("llama31-8b").rope.factor, 8.0);
  EXPECT_EQ(imported("llama32-1b").rope.factor, 32.0);
  EXPECT_EQ(imported("edge-rope-linear-alias").rope.factor, 2.0);
  EXPECT_EQ(imported("mistral-7b-swa").sliding_window, 4096);
  EXPECT_EQ(imported("mistral-7b-instruct-swa-null").sliding_window, std::nullopt);
  for (const char* name : {"qwen25-0.5b", "qwen25-7b"}) {
    EXPECT_TRUE(imported(name).qkv_bias) << name;
    EXPECT_FALSE(imported(name).sliding_window) << name;
  }
  for (const char* name : {"qwen3-0.6b", "qwen3-4b-tfm5"}) EXPECT_TRUE(imported(name).qk_norm) << name;
  EXPECT_EQ(imported("qwen3-0.6b").q_rows(), 2048);
  EXPECT_EQ(imported("qwen3-4b-tfm5").stored_dtype, "float16");
  EXPECT_EQ(imported("llama2-13b-gptq-g128").quantization->zeros_version, 1);
  EXPECT_EQ(imported("llama-ipex-1layer-2023").max_positions, 2048);
  EXPECT_EQ(imported("edge-llama-minimal").ffn, 11008);
  EXPECT_EQ(imported("qc-phi2-optimum").quantization->group_size, 128);
  EXPECT_EQ(imported("qc-mythomax-g64-act").quantization->group_size, 64);
  EXPECT_TRUE(imported("qc-wizvic-g-1").quantization->act_order);
}

}  // namespace
}  // namespace adamk
