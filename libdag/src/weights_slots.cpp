#include "weights_slots.h"

#include <fmt/format.h>

namespace adamk {
namespace {

struct SlotList {
  std::vector<TensorSlot> slots;

  void add(std::string name, std::vector<std::int64_t> shape, TensorRole role, int layer,
           std::span<const Half>* target) {
    slots.push_back({std::move(name), std::move(shape), role, layer, target});
  }
};

void add_attention(SlotList& list, const Model& model, int layer, LayerWeights& w) {
  const std::string at = fmt::format("model.layers.{}.self_attn.", layer);
  const std::int64_t hidden = model.hidden, q_rows = model.q_rows(), kv_rows = model.kv_rows();
  list.add(at + "q_proj.weight", {q_rows, hidden}, TensorRole::q, layer, &w.q);
  list.add(at + "k_proj.weight", {kv_rows, hidden}, TensorRole::k, layer, &w.k);
  list.add(at + "v_proj.weight", {kv_rows, hidden}, TensorRole::v, layer, &w.v);
  if (model.qkv_bias) {
    list.add(at + "q_proj.bias", {q_rows}, TensorRole::q_bias, layer, &w.q_bias);
    list.add(at + "k_proj.bias", {kv_rows}, TensorRole::k_bias, layer, &w.k_bias);
    list.add(at + "v_proj.bias", {kv_rows}, TensorRole::v_bias, layer, &w.v_bias);
  }
  if (model.qk_norm) {
    list.add(at + "q_norm.weight", {model.head_dim}, TensorRole::q_norm, layer, &w.q_norm);
    list.add(at + "k_norm.weight", {model.head_dim}, TensorRole::k_norm, layer, &w.k_norm);
  }
  list.add(at + "o_proj.weight", {hidden, q_rows}, TensorRole::output, layer, &w.output);
  if (model.output_bias) list.add(at + "o_proj.bias", {hidden}, TensorRole::output_bias, layer, &w.output_bias);
}

void add_mlp(SlotList& list, const Model& model, int layer, LayerWeights& w) {
  const std::string at = fmt::format("model.layers.{}.mlp.", layer);
  const std::int64_t hidden = model.hidden, ffn = model.ffn;
  list.add(at + "gate_proj.weight", {ffn, hidden}, TensorRole::gate, layer, &w.gate);
  list.add(at + "up_proj.weight", {ffn, hidden}, TensorRole::up, layer, &w.up);
  list.add(at + "down_proj.weight", {hidden, ffn}, TensorRole::down, layer, &w.down);
  if (model.mlp_bias) {
    list.add(at + "gate_proj.bias", {ffn}, TensorRole::gate_bias, layer, &w.gate_bias);
    list.add(at + "up_proj.bias", {ffn}, TensorRole::up_bias, layer, &w.up_bias);
    list.add(at + "down_proj.bias", {hidden}, TensorRole::down_bias, layer, &w.down_bias);
  }
}

}  // namespace

std::vector<TensorSlot> tensor_slots(const Model& model, WeightsTargets targets) {
  SlotList list;
  const std::int64_t hidden = model.hidden, vocab = model.vocab;
  list.add("model.embed_tokens.weight", {vocab, hidden}, TensorRole::embedding, -1, targets.embedding);
  targets.layers->resize(static_cast<std::size_t>(model.layers));
  for (int layer = 0; layer < model.layers; ++layer) {
    LayerWeights& w = (*targets.layers)[static_cast<std::size_t>(layer)];
    const std::string at = fmt::format("model.layers.{}.", layer);
    list.add(at + "input_layernorm.weight", {hidden}, TensorRole::attention_norm, layer, &w.attention_norm);
    add_attention(list, model, layer, w);
    list.add(at + "post_attention_layernorm.weight", {hidden}, TensorRole::mlp_norm, layer, &w.mlp_norm);
    add_mlp(list, model, layer, w);
  }
  list.add("model.norm.weight", {hidden}, TensorRole::final_norm, -1, targets.final_norm);
  if (!model.tied_head) list.add("lm_head.weight", {vocab, hidden}, TensorRole::head, -1, targets.head);
  return std::move(list.slots);
}

}  // namespace adamk
