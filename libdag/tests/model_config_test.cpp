#include <gtest/gtest.h>

#include "adamk/dag/model.h"

namespace adamk {
namespace {

Json parsed(std::string_view text) { return parse_json(text, "config.json").value(); }

/// A small llama config with `changes` merged over it; null members are kept as null.
Json llama(std::string_view changes = "{}") {
  Json config = parsed(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512,
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
    "intermediate_size": 172, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": false})");
  config.update(parsed(changes));
  return config;
}

Json of_family(const std::string& family, std::string_view changes = "{}") {
  Json config = llama(changes);
  config["model_type"] = family;
  config.erase("architectures");
  return config;
}

Result<Model> import(const Json& config) { return model_from_config(JsonView(config, "config.json")); }

/// The message of a refusal, or "accepted".
std::string verdict(const Json& config) {
  const Result<Model> model = import(config);
  return model ? "accepted" : model.error().message;
}

bool has_note(const Model& model, std::string_view words) {
  for (const std::string& note : model.notes) {
    if (note.find(words) != std::string::npos) return true;
  }
  return false;
}

#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

TEST(ModelConfigTest, ReadsTheSizesOfALlama) {
  const Result<Model> model = import(llama());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->family, "llama");
  EXPECT_EQ(model->layers, 2);
  EXPECT_EQ(model->head_dim, 8);
  EXPECT_EQ(model->group(), 2);
  EXPECT_EQ(model->ffn, 172);
  EXPECT_FALSE(model->qkv_bias || model->output_bias || model->mlp_bias || model->qk_norm || model->tied_head);
  EXPECT_TRUE(model->notes.empty()) << model->notes.front();
}

TEST(ModelConfigTest, AbsentKeysTakeTheClassDefaultsOfTransformersAndAreNoted) {
  const Result<Model> llama_model = import(parsed(R"({"model_type": "llama"})"));
  ASSERT_TRUE(llama_model) << llama_model.error().message;
  EXPECT_EQ(llama_model->hidden, 4096);
  EXPECT_EQ(llama_model->ffn, 11008);
  EXPECT_EQ(llama_model->kv_heads, 32);
  EXPECT_EQ(llama_model->max_positions, 2048);
  EXPECT_EQ(llama_model->norm_eps, 1e-6);
  EXPECT_EQ(llama_model->rope.theta, 10000.0);
  EXPECT_FALSE(llama_model->tied_head);
  EXPECT_TRUE(has_note(*llama_model, "intermediate_size is absent: 11008"));
  EXPECT_TRUE(has_note(*llama_model, "rope_theta is absent: 10000"));

  const Result<Model> mistral = import(parsed(R"({"model_type": "mistral"})"));
  EXPECT_EQ(mistral->kv_heads, 8);
  EXPECT_EQ(mistral->ffn, 14336);
  EXPECT_EQ(mistral->max_positions, 131072);
  EXPECT_EQ(mistral->sliding_window, 4096);
  EXPECT_TRUE(has_note(*mistral, "sliding_window is absent: 4096"));

  const Result<Model> qwen3 = import(parsed(R"({"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16,
    "num_key_value_heads": 8})"));
  EXPECT_EQ(qwen3->head_dim, 128);  // not 1024 / 16
  EXPECT_EQ(qwen3->q_rows(), 2048);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_FALSE(qwen3->qkv_bias);
}

TEST(ModelConfigTest, NullIsNotAbsent) {
  EXPECT_EQ(import(of_family("mistral", R"({"sliding_window": null})"))->sliding_window, std::nullopt);
  EXPECT_EQ(import(of_family("mistral", R"({"num_key_value_heads": null})"))->kv_heads, 8);
  EXPECT_EQ(import(llama(R"({"head_dim": null})"))->head_dim, 8);
  EXPECT_SAYS(verdict(llama(R"({"hidden_size": null})")), "hidden_size: must be an integer, is null");
  EXPECT_SAYS(verdict(of_family("qwen3", R"({"head_dim": null})")), "head_dim");
}

TEST(ModelConfigTest, QwenBiasesAndNormsFollowTheFamily) {
  const Result<Model> qwen2 = import(of_family("qwen2"));
  ASSERT_TRUE(qwen2) << qwen2.error().message;
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias);
  EXPECT_FALSE(qwen2->sliding_window);
  EXPECT_TRUE(import(of_family("qwen2", R"({"attention_bias": false})"))->qkv_bias);

  const Result<Model> llama_model = import(llama(R"({"attention_bias": true, "mlp_bias": true})"));
  EXPECT_TRUE(llama_model->qkv_bias && llama_model->output_bias && llama_model->mlp_bias);
  const Result<Model> qwen3 = import(of_family("qwen3", R"({"attention_bias": true, "head_dim": 16})"));
  EXPECT_TRUE(qwen3->qkv_bias && qwen3->output_bias && qwen3->qk_norm);
  EXPECT_SAYS(verdict(of_family("mistral", R"({"attention_bias": true})")), "attention_bias");
  EXPECT_SAYS(verdict(of_family("qwen3", R"({"mlp_bias": true})")), "mlp_bias");
}

TEST(ModelConfigTest, ArchitecturesMustBeTheCausalModelOfTheFamily) {
  EXPECT_SAYS(verdict(llama(R"({"architectures": ["LlamaForCausalLMEagle3"]})")), "LlamaForCausalLMEagle3");
  EXPECT_SAYS(verdict(llama(R"({"architectures": ["LlamaModel"]})")), "architectures[0]: 'LlamaModel'");
  EXPECT_SAYS(verdict(llama(R"({"architectures": "LlamaForCausalLM"})")), "must be a list");
  EXPECT_EQ(verdict(llama(R"({"architectures": null})")), "accepted");
}

TEST(ModelConfigTest, OtherModelTypesAreRefusedWithWhatStandsInTheWay) {
  EXPECT_SAYS(verdict(of_family("mixtral")), "mixture of experts");
  EXPECT_SAYS(verdict(of_family("gemma")), "1 + w");
  EXPECT_SAYS(verdict(of_family("xverse")), "'xverse' is not supported");
  Json nameless = llama();
  nameless.erase("model_type");
  EXPECT_SAYS(verdict(nameless), "no model_type");
  EXPECT_SAYS(verdict(parsed("[1, 2]")), "must be an object");
}

TEST(ModelConfigTest, NumbersMustBeNumbersWithinTheirRange) {
  EXPECT_SAYS(verdict(llama(R"({"hidden_size": "64"})")), "hidden_size: must be an integer, is a string");
  EXPECT_SAYS(verdict(llama(R"({"rms_norm_eps": "1e-6"})")), "rms_norm_eps: must be a number, is a string");
  EXPECT_SAYS(verdict(llama(R"({"rms_norm_eps": NaN})")), "finite");
  EXPECT_SAYS(verdict(llama(R"({"rms_norm_eps": 0})")), "epsilon");
  EXPECT_SAYS(verdict(llama(R"({"vocab_size": -512})")), "vocab_size: -512 is outside");
  EXPECT_SAYS(verdict(llama(R"({"num_hidden_layers": 0})")), "num_hidden_layers");
  EXPECT_SAYS(verdict(llama(R"({"num_attention_heads": 6, "head_dim": 8})")), "not a multiple of 4 key/value heads");
  EXPECT_SAYS(verdict(llama(R"({"num_attention_heads": 12})")), "state head_dim");
  EXPECT_SAYS(verdict(llama(R"({"head_dim": 9})")), "odd");
  EXPECT_SAYS(verdict(llama(R"({"hidden_size": 65536, "num_attention_heads": 32})")), "head_dim 2048 is more than 1024");
  EXPECT_EQ(import(llama(R"({"max_position_embeddings": 5000000000})"))->max_positions, 5000000000);
  EXPECT_EQ(verdict(llama(R"({"num_hidden_layers": 200})")), "accepted");
}

TEST(ModelConfigTest, WindowsOfQwenDependOnTheirLayers) {
  EXPECT_FALSE(import(of_family("qwen2", R"({"use_sliding_window": false, "sliding_window": 16})"))->sliding_window);
  EXPECT_EQ(import(of_family("qwen2", R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 0})"))
                ->sliding_window,
            16);
  EXPECT_FALSE(import(of_family("qwen2", R"({"use_sliding_window": true, "sliding_window": 16})"))->sliding_window);
  EXPECT_SAYS(
      verdict(of_family("qwen2", R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1})")),
      "max_window_layers 1 of 2");
  EXPECT_EQ(import(llama(R"({"sliding_window": 16})"))->sliding_window, 16);
}

TEST(ModelConfigTest, LayerTypesMustAllBeFullAttention) {
  EXPECT_EQ(verdict(of_family("qwen2", R"({"layer_types": ["full_attention", "full_attention"]})")), "accepted");
  EXPECT_SAYS(verdict(of_family("qwen2", R"({"layer_types": ["full_attention", "sliding_attention"]})")),
              "layer_types[1]: layer type 'sliding_attention'");
  EXPECT_SAYS(verdict(of_family("qwen2", R"({"layer_types": ["full_attention"]})")), "1 entries for 2 layers");
}

TEST(ModelConfigTest, KeysThatChangeTheResultAreRefusedUnlessNeutral) {
  for (const char* refused :
       {R"({"partial_rotary_factor": 0.5})", R"({"logit_scale": 0.25})", R"({"embedding_multiplier": 12.0})",
        R"({"attention_multiplier": 0.1})", R"({"residual_multiplier": 0.22})", R"({"num_local_experts": 8})",
        R"({"num_experts": 64})", R"({"kv_lora_rank": 512})", R"({"attn_logit_softcapping": 50.0})",
        R"({"final_logit_softcapping": 30.0})", R"({"query_pre_attn_scalar": 256})", R"({"alibi": true})",
        R"({"no_rope_layers": [1, 0]})", R"({"vision_config": {"depth": 2}})", R"({"draft_vocab_size": 32000})",
        R"({"is_encoder_decoder": true})", R"({"pruned_heads": {"0": [1]}})", R"({"use_mrope": true})"}) {
    const Json change = parsed(refused);
    const std::string key = change.begin().key();
    EXPECT_SAYS(verdict(llama(refused)), key);
  }
  for (const char* neutral :
       {R"({"partial_rotary_factor": 1.0})", R"({"logit_scale": 1})", R"({"num_experts": 0})",
        R"({"attn_logit_softcapping": null})", R"({"no_rope_layers": []})", R"({"alibi": false})"}) {
    EXPECT_EQ(verdict(llama(neutral)), "accepted") << neutral;
  }
}

TEST(ModelConfigTest, UnknownKeysAreAcceptedAndListed) {
  const Result<Model> model = import(llama(R"({"internal_version": "7b", "bos_token_id": 1})"));
  ASSERT_TRUE(model);
  EXPECT_TRUE(has_note(*model, "'internal_version'"));
  EXPECT_FALSE(has_note(*model, "bos_token_id"));
}

TEST(ModelConfigTest, OnlySiluIsAccepted) {
  EXPECT_EQ(verdict(llama(R"({"hidden_act": "swish"})")), "accepted");
  EXPECT_SAYS(verdict(llama(R"({"hidden_act": "gelu"})")), "hidden_act: activation 'gelu'");
}

TEST(ModelConfigTest, StoredTypeIsReadInBothSpellings) {
  EXPECT_EQ(import(llama(R"({"torch_dtype": "bfloat16"})"))->stored_dtype, "bfloat16");
  EXPECT_EQ(import(llama(R"({"dtype": "float16"})"))->stored_dtype, "float16");
  EXPECT_SAYS(verdict(llama(R"({"torch_dtype": "float16", "dtype": "bfloat16"})")), "disagrees");
  EXPECT_SAYS(verdict(llama(R"({"torch_dtype": "float8_e4m3fn"})")), "float8_e4m3fn");
}

TEST(ModelConfigTest, RopeSpellingsOfTransformers4And5Agree) {
  const Rope old = import(llama(R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})"))->rope;
  EXPECT_EQ(old.kind, RopeKind::linear);
  EXPECT_EQ(old.factor, 2.0);
  Json config = llama(R"({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 500000}})");
  config.erase("rope_theta");
  const Rope now = import(config)->rope;
  EXPECT_EQ(now.kind, RopeKind::linear);
  EXPECT_EQ(now.theta, old.theta);
  EXPECT_EQ(verdict(llama(R"({"rope_scaling": {}})")), "accepted");
  EXPECT_EQ(import(llama(R"({"rope_scaling": {"rope_type": "default"}})"))->rope.kind, RopeKind::plain);
}

TEST(ModelConfigTest, RopeDictsAreNeverGuessedAt) {
  for (const char* kind : {"dynamic", "yarn", "longrope", "mrope", "su", "proportional"}) {
    EXPECT_SAYS(verdict(llama(fmt::format(R"({{"rope_scaling": {{"rope_type": "{}", "factor": 2.0}}}})", kind))), kind);
  }
  EXPECT_SAYS(verdict(llama(R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "beta_fast": 32}})")),
              "'beta_fast'");
  EXPECT_SAYS(verdict(llama(R"({"rope_scaling": {"factor": 2}})")), "'rope_type' is missing");
  EXPECT_SAYS(verdict(llama(R"({"rope_scaling": {"rope_type": "linear"}})")), "'factor' is missing");
  EXPECT_SAYS(verdict(llama(R"({"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2}})")),
              "disagree");
  EXPECT_SAYS(verdict(llama(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})")), "differs");
  EXPECT_SAYS(verdict(llama(R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})")),
              "'full_attention'");
  EXPECT_SAYS(verdict(llama(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
    "high_freq_factor": 4, "original_max_position_embeddings": 8192}})")),
              "low_freq_factor");
  EXPECT_SAYS(verdict(llama(R"({"rope_theta": "10000"})")), "rope_theta: must be a number");
}

std::string with_quantization(std::string_view body) {
  return verdict(llama(fmt::format(R"({{"quantization_config": {}}})", body)));
}

TEST(ModelConfigTest, GptqConfigsAreRead) {
  const Result<Model> model =
      import(llama(R"({"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1,
    "desc_act": true, "sym": false, "checkpoint_format": "gptq_v2", "lm_head": true, "damp_percent": 0.01}})"));
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(model->quantization);
  EXPECT_EQ(model->quantization->bits, 8);
  EXPECT_EQ(model->quantization->group_size, -1);
  EXPECT_TRUE(model->quantization->act_order);
  EXPECT_FALSE(model->quantization->symmetric);
  EXPECT_EQ(model->quantization->zeros_version, 2);
  EXPECT_TRUE(model->quantization->quantized_head);
  EXPECT_EQ(
      import(llama(R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})"))->quantization->zeros_version, 1);
}

TEST(ModelConfigTest, OtherQuantisationIsRefusedByName) {
  for (const char* method : {"awq", "bitsandbytes", "fp8", "fbgemm_fp8", "compressed-tensors", "mxfp4"}) {
    EXPECT_SAYS(with_quantization(fmt::format(R"({{"quant_method": "{}"}})", method)), method);
  }
  EXPECT_SAYS(with_quantization(R"({"quant_method": "gptq", "bits": 3})"), "3 bits");
  EXPECT_SAYS(with_quantization(R"({"quant_method": "gptq", "bits": 2})"), "2 bits");
  EXPECT_SAYS(with_quantization(R"({"quant_method": "gptq", "bits": 4, "group_size": 256})"), "group size 256");
  EXPECT_SAYS(with_quantization(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:lm_head": {}}})"), "dynamic");
  EXPECT_SAYS(with_quantization(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})"), "marlin");
  EXPECT_SAYS(with_quantization(R"({"quant_method": "gptq", "bits": 4, "surprise": 1})"), "unknown key 'surprise'");
  EXPECT_SAYS(with_quantization(R"({"bits": 4})"), "quant_method");
  EXPECT_EQ(with_quantization(R"({"quant_method": "gptq", "bits": 4, "dynamic": {}})"), "accepted");
  EXPECT_EQ(with_quantization("null"), "accepted");
  EXPECT_SAYS(verdict(llama(R"({"quantization": {"bits": 4, "group_size": 32}})")), "quantization: MLX");
}

}  // namespace
}  // namespace adamk
