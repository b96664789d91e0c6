// The keys of config.json that the importer does not read itself: harmless, refused unless neutral, or unknown.
#include <algorithm>
#include <cmath>
#include <span>

#include "model_import.h"

namespace adamk {
namespace {

// Read by model_config.cpp, model_rope.cpp and model_quantization.cpp.
// clang-format off
constexpr std::string_view consumed[] = {
    "model_type", "architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "tie_word_embeddings", "hidden_act", "attention_bias", "mlp_bias",
    "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "torch_dtype", "dtype",
    "quantization_config", "quantization", "pretraining_tp"};
// clang-format on

// Training, generation, bookkeeping and the choice of implementation: none changes a greedy step's logits.
// clang-format off
constexpr std::string_view harmless[] = {
    "_name_or_path", "name_or_path", "transformers_version", "transformers.js_config", "auto_map", "use_cache",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "unk_token_id", "mask_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens",
    "begin_suppress_tokens", "tokenizer_class", "initializer_range", "attention_dropout", "hidden_dropout", "dropout",
    "classifier_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "gradient_checkpointing", "torchscript",
    "return_dict", "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate",
    "chunk_size_feed_forward", "is_decoder", "tie_encoder_decoder", "cross_attention_hidden_size", "finetuning_task",
    "task_specific_params", "problem_type", "prefix", "id2label", "label2id", "num_labels", "tf_legacy_loss",
    "use_bfloat16", "_attn_implementation", "attn_implementation", "_flash_attn_2_enabled",
    "_attn_implementation_autoset", "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences",
    "exponential_decay_length_penalty", "remove_invalid_values", "unsloth_fixed", "unsloth_version"};
// clang-format on

/// What a key must say for the model to be the plain decoder that adamk computes.
enum class Neutral { off, one, empty };  // off: false, null, 0 or "none"; one: 1, 1.0 or null; empty: null, [] or {}

struct Guard {
  std::string_view key;
  Neutral neutral;
  std::string_view meaning;
};

constexpr Guard guards[] = {
    {"partial_rotary_factor", Neutral::one, "rotary embedding of a part of each head"},
    {"rotary_pct", Neutral::one, "rotary embedding of a part of each head"},
    {"rotary_dim", Neutral::off, "rotary embedding of a part of each head"},
    {"rope_interleaved", Neutral::off, "interleaved rotary pairs"},
    {"no_rope_layers", Neutral::empty, "layers without rotary embedding"},
    {"no_rope_layer_interval", Neutral::off, "layers without rotary embedding"},
    {"use_mrope", Neutral::off, "multimodal rotary embedding"},
    {"mrope_section", Neutral::empty, "multimodal rotary embedding"},
    {"use_dynamic_ntk", Neutral::off, "dynamic NTK rotary scaling"},
    {"use_logn_attn", Neutral::off, "log-n scaled attention"},
    {"alibi", Neutral::off, "ALiBi position biases"},
    {"dual_chunk_attention_config", Neutral::empty, "dual chunk attention"},
    {"attention_chunk_size", Neutral::off, "chunked attention"},
    {"attention_sinks", Neutral::off, "attention sinks"},
    {"attention_multiplier", Neutral::off, "a scale of its own for attention scores"},
    {"query_pre_attn_scalar", Neutral::off, "a scale of its own for attention scores"},
    {"attn_logit_softcapping", Neutral::off, "soft-capped attention scores"},
    {"final_logit_softcapping", Neutral::off, "soft-capped logits"},
    {"logit_scale", Neutral::one, "scaled logits"},
    {"logits_scaling", Neutral::one, "scaled logits"},
    {"embedding_multiplier", Neutral::one, "scaled embeddings"},
    {"scale_emb", Neutral::one, "scaled embeddings"},
    {"scale_depth", Neutral::off, "scaled residuals"},
    {"dim_model_base", Neutral::off, "scaled logits"},
    {"residual_multiplier", Neutral::one, "scaled residuals"},
    {"use_qk_norm", Neutral::off, "a norm on queries and keys"},
    {"qk_layernorm", Neutral::off, "a norm on queries and keys"},
    {"clip_qkv", Neutral::off, "clipped queries, keys and values"},
    {"bias", Neutral::off, "biases on the projections"},
    {"qkv_bias", Neutral::off, "biases on the projections under another name"},
    {"use_bias", Neutral::off, "biases on the projections"},
    {"parallel_attn", Neutral::off, "attention and MLP side by side"},
    {"use_parallel_residual", Neutral::off, "attention and MLP side by side"},
    {"num_local_experts", Neutral::off, "a mixture of experts"},
    {"num_experts", Neutral::off, "a mixture of experts"},
    {"n_routed_experts", Neutral::off, "a mixture of experts"},
    {"kv_lora_rank", Neutral::off, "multi-head latent attention"},
    {"q_lora_rank", Neutral::off, "multi-head latent attention"},
    {"compression_config", Neutral::empty, "compressed tensors"},
    {"pruned_heads", Neutral::empty, "pruned heads"},
    {"is_encoder_decoder", Neutral::off, "an encoder and a decoder"},
    {"add_cross_attention", Neutral::off, "cross-attention"},
    {"draft_vocab_size", Neutral::off, "a draft head for speculative decoding, not a decoder that stands alone"},
    {"eagle_config", Neutral::empty, "a draft head for speculative decoding, not a decoder that stands alone"},
    {"text_config", Neutral::empty, "a multimodal model"},
    {"vision_config", Neutral::empty, "a multimodal model"},
    {"audio_config", Neutral::empty, "a multimodal model"},
};

bool is_neutral(const Json& value, Neutral neutral) {
  if (value.is_null()) return true;
  switch (neutral) {
    case Neutral::off:
      return (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value.get<double>() == 0);
    case Neutral::one:
      return value.is_number() && value.get<double>() == 1;
    case Neutral::empty:
      return value.is_structured() && value.empty();
  }
  return false;
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t most = 60;
  if (text.size() > most) text = text.substr(0, most) + "...";
  return text;
}

struct Refusal {
  std::string_view model_type, reason;
};

// So that the refusal says what stands in the way, not only a name.
constexpr Refusal refusals[] = {
    {"qwen2_moe", "it is a mixture of experts"},
    {"qwen3_moe", "it is a mixture of experts"},
    {"qwen3_next", "it has linear-attention layers and is a mixture of experts"},
    {"qwen3_5", "it is multimodal and has linear-attention layers"},
    {"qwen2_vl", "it is multimodal, with rope type mrope"},
    {"qwen2_5_vl", "it is multimodal, with rope type mrope"},
    {"qwen3_vl", "it is multimodal, with rope type mrope"},
    {"qwen", "version 1 of Qwen has other tensor names, an intermediate_size of twice the real width and dynamic NTK"},
    {"mixtral", "it is a mixture of experts"},
    {"deepseek_v2", "it has multi-head latent attention (MLA) and is a mixture of experts"},
    {"deepseek_v3", "it has multi-head latent attention (MLA) and is a mixture of experts"},
    {"gpt_oss", "it is a mixture of experts with attention sinks"},
    {"llama4", "it is a multimodal mixture of experts with chunked attention"},
    {"mllama", "it is multimodal, with cross-attention"},
    {"llava", "it is multimodal"},
    {"mistral3", "it is multimodal"},
    {"jamba", "it has Mamba layers and is a mixture of experts"},
    {"mamba", "it is a state-space model (Mamba)"},
    {"mamba2", "it is a state-space model (Mamba)"},
    {"nemotron_h", "it has Mamba layers"},
    {"nemotron", "it has LayerNorm with 1 + w and squared ReLU"},
    {"falcon", "it has parallel attention and LayerNorm"},
    {"phi", "it has a parallel block, LayerNorm and partial rotary embedding"},
    {"phi3", "its projections are fused (qkv_proj, gate_up_proj)"},
    {"gemma", "its RMSNorm multiplies by 1 + w, its embeddings are scaled and its activation is GELU"},
    {"gemma2", "its RMSNorm multiplies by 1 + w, its logits are soft-capped and its activation is GELU"},
    {"gemma3", "its RMSNorm multiplies by 1 + w, its layers mix sliding windows and its activation is GELU"},
    {"gemma3_text", "its RMSNorm multiplies by 1 + w, its layers mix sliding windows and its activation is GELU"},
    {"stablelm", "it has LayerNorm and partial rotary embedding"},
    {"internlm2", "its query, key and value weights are fused and interleaved (wqkv)"},
    {"chatglm", "it has fused projections, interleaved rotary pairs and keys of its own"},
    {"glm4", "it has extra norms after each block and partial rotary embedding"},
    {"minicpm", "it has scaled embeddings, residuals and logits"},
    {"minicpm3", "it has multi-head latent attention (MLA), scaled embeddings and longrope"},
    {"cohere", "it has a parallel block, LayerNorm and scaled logits"},
    {"cohere2", "it has a parallel block, LayerNorm, scaled logits and mixed sliding windows"},
    {"granite", "it has scaled embeddings, attention, residuals and logits"},
    {"olmo", "it has LayerNorm without weights"},
    {"olmo2", "its norms come after each block"},
    {"olmo3", "its norms come after each block and its layers mix sliding windows"},
    {"smollm3", "some of its layers have no rotary embedding"},
    {"gpt_neox", "it has a parallel residual, LayerNorm and partial rotary embedding"},
    {"gptj", "it has a parallel residual, LayerNorm and interleaved rotary pairs"},
    {"gpt_neo", "it has learned positions and LayerNorm"},
    {"opt", "it has learned positions, ReLU and LayerNorm"},
    {"gpt2", "it has learned positions, LayerNorm and Conv1D weights"},
    {"bloom", "it has ALiBi positions and LayerNorm"},
    {"mpt", "it has ALiBi positions and LayerNorm"},
};

bool contains(std::span<const std::string_view> list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

}  // namespace

Result<void> check_other_keys(ConfigReader& reader) {
  for (const auto& [key, value] : reader.config().value().items()) {
    const auto* guard =
        std::find_if(std::begin(guards), std::end(guards), [&](const Guard& g) { return g.key == key; });
    if (guard != std::end(guards)) {
      if (is_neutral(value, guard->neutral)) continue;
      const JsonView view(value, reader.config().file(), key);
      return tl::unexpected(view.error(
          Errc::unsupported, fmt::format("{} means {}, which is not supported", shown(value), guard->meaning)));
    }
    if (contains(consumed, key) || contains(harmless, key)) continue;
    reader.note(fmt::format("the key '{}' is not known and was not used", key));
  }
  return {};
}

std::string_view reason_against(std::string_view model_type) {
  const auto* refusal = std::find_if(std::begin(refusals), std::end(refusals),
                                     [&](const Refusal& r) { return r.model_type == model_type; });
  return refusal == std::end(refusals) ? std::string_view() : refusal->reason;
}

}  // namespace adamk
