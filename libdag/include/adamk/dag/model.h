// Model: the shapes and conventions of a dense decoder, from a Hugging Face config.json or a YAML description.
// Import refuses by key whatever would change the result beyond what is listed here; it never ignores such a key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

enum class RopeKind { plain, linear, llama3 };

/// Rotary embedding, half-split pairing (element j with j + head_dim / 2).
struct Rope {
  RopeKind kind = RopeKind::plain;
  double theta = 10000.0;
  double factor = 1.0;                       // linear, llama3
  double low_freq_factor = 1.0;              // llama3
  double high_freq_factor = 4.0;             // llama3
  std::int64_t original_max_positions = 0;   // llama3
};

/// How a quantised checkpoint stores its matrices.
struct Quantization {
  std::string method;         // "gptq"
  int bits = 4;               // 4 or 8
  int group_size = 128;       // columns of K per scale; -1: the whole of K
  bool symmetric = true;
  bool act_order = false;     // desc_act
  int zeros_version = 1;      // GPTQ v1 stores zero - 1, v2 stores zero
  bool quantized_head = false;
};

struct Model {
  std::string family;              // llama, mistral, qwen2, qwen3
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;                     // intermediate size
  int vocab = 0;
  std::int64_t max_positions = 0;
  double norm_eps = 0;
  Rope rope;
  bool qkv_bias = false;
  bool output_bias = false;        // o_proj
  bool mlp_bias = false;           // gate, up, down
  bool qk_norm = false;            // RMSNorm over each head of q and k
  bool tied_head = false;
  std::optional<std::int64_t> sliding_window;  // attention sees this many latest positions; contexts beyond it are refused
  std::optional<Quantization> quantization;
  std::string stored_dtype;        // what config.json states: "bfloat16", "float16", "float32" or "" when absent

  std::vector<std::string> notes;  // defaults that were filled in, for people; not part of identity

  int q_rows() const { return heads * head_dim; }
  int kv_rows() const { return kv_heads * head_dim; }
  int group() const { return heads / kv_heads; }        // query heads per KV head
  std::int64_t parameters() const;                      // elements of all tensors, a tied head counted once
};

/// A folder with config.json, a config.json, or a .yaml description (docs/model-description.md). bad_input: a key that is
/// missing or wrong; unsupported: a key whose value asks for what adamk does not do. Both name the file and the key.
Result<Model> load_model(const std::filesystem::path& path);
/// `config` is the root of a Hugging Face config.json.
Result<Model> model_from_config(const JsonView& config);
/// `description` is the root of a file of format adamk.model.
Result<Model> model_from_description(const JsonView& description);

/// A GPTQ quantisation config: `quantization_config` of a config.json, or the root of a quantize_config.json, where
/// AutoGPTQ leaves `quant_method` out.
Result<Quantization> quantization_from_config(const JsonView& config);

/// All fields but `notes`, canonical order; what Deployment hashes. model_from_description reads it back.
Json model_to_json(const Model& model);

/// Inverse frequencies, `head_dim / 2` values in double precision, with the rope's scaling applied.
std::vector<double> rope_inverse_frequencies(const Model& model);

}  // namespace adamk
