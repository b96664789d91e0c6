// Weights: every tensor of a model as 16-bit patterns of one WeightsFormat, row-major as checkpoints hold them. The oracle
// and the packer read the same object, so both see the same rounding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/model.h"

namespace adamk {

using Half = std::uint16_t;  // bf16 or fp16 bits, as the Weights' format says

struct LayerWeights {
  std::span<const Half> attention_norm, mlp_norm;           // [hidden]
  std::span<const Half> q, k, v;                            // [q_rows, hidden], [kv_rows, hidden] x 2
  std::span<const Half> q_bias, k_bias, v_bias;             // empty without qkv_bias
  std::span<const Half> q_norm, k_norm;                     // [head_dim], empty without qk_norm
  std::span<const Half> output, output_bias;                // [hidden, q_rows]
  std::span<const Half> gate, up, gate_bias, up_bias;       // [ffn, hidden]
  std::span<const Half> down, down_bias;                    // [hidden, ffn]
};

class Weights {
 public:
  /// From a Hugging Face folder. A missing tensor, a wrong shape or dtype, or a tensor that no part of the model uses
  /// (rotary inv_freq buffers and a tied head's copy aside) is an error that names it. Tensors already in `format` are
  /// used in place from the mapping; others are rounded once to nearest even.
  static Result<Weights> load(const Model& model, const std::filesystem::path& folder, WeightsFormat format);

  /// Reproducible random weights: value i of tensor t is a pure function of (seed, t, i), so any number of threads gives
  /// the same bits. Uniform, scaled so that activations and logits keep unit order (docs/random-weights.md).
  static Result<Weights> random(const Model& model, WeightsFormat format, std::uint64_t seed);

  WeightsFormat format() const { return format_; }
  std::span<const Half> embedding() const { return embedding_; }   // [vocab, hidden]
  std::span<const Half> head() const { return head_; }             // [vocab, hidden]; the embedding when tied
  std::span<const Half> final_norm() const { return final_norm_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }

  /// Hash over all tensors in a fixed order: what a manifest records as the weights' identity.
  std::string hash() const;

 private:
  struct Storage;                       // mappings and converted tensors
  std::shared_ptr<Storage> storage_;
  WeightsFormat format_ = WeightsFormat::bf16;
  std::span<const Half> embedding_, head_, final_norm_;
  std::vector<LayerWeights> layers_;
};

/// Pure function of its arguments, in [-1, 1): the generator behind random weights, KV fill and test inputs.
float random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

float to_float(WeightsFormat format, Half bits);
Half from_float(WeightsFormat format, float value);

}  // namespace adamk
