// The tensors of a model in their fixed order: the one list that loading, generating and hashing walk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/safetensors.h"
#include "adamk/dag/weights.h"

namespace adamk {

/// What a tensor is for; its number enters the random generator's stream, so the order here is fixed for good.
enum class TensorRole : int {
  embedding, head, final_norm,
  attention_norm, mlp_norm, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm,
  output, output_bias, gate, up, gate_bias, up_bias, down, down_bias,
};

/// One tensor: where its values belong, and what the checkpoint calls it.
struct TensorSlot {
  std::string name;                  // "model.layers.3.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;   // [n] or [rows, columns]
  TensorRole role;
  int layer = -1;                    // -1 outside the layers
  std::span<const Half>* target = nullptr;

  std::int64_t elements() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};

/// The spans of a Weights that slots point at.
struct WeightsTargets {
  std::span<const Half>*embedding, *head, *final_norm;
  std::vector<LayerWeights>* layers;   // resized to the model's
};

/// Every tensor the model has, absent biases and norms left out; no slot for a tied head.
std::vector<TensorSlot> tensor_slots(const Model& model, WeightsTargets targets);

struct Weights::Storage {
  std::unique_ptr<SafeTensors> checkpoint;          // mappings that tensors are used from in place
  std::vector<std::unique_ptr<Half[]>> converted;   // tensors generated here, or stored in another format
};

}  // namespace adamk
