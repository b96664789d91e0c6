#include "adamk/dag/operator_graph.h"

#include <array>
#include <utility>

namespace adamk {
namespace {

constexpr int kHalfBytes = 2;   // bf16 and fp16 alike
constexpr int kFloatBytes = 4;

/// Adds operators in order and works out their bytes from the tensors they name.
class Builder {
 public:
  explicit Builder(const Deployment& deployment) : model_(deployment.model), batch_(deployment.workload.batch) {
    context_ = deployment.workload.context;
    graph_.layers = model_.layers;
  }

  OperatorGraph build() {
    declare_tensors();
    add_prologue();
    add_attention_block();
    add_mlp_block();
    add_epilogue();
    return std::move(graph_);
  }

 private:
  void tensor(std::string name, TensorRole role, std::vector<std::int64_t> shape, bool per_layer,
              int element_bytes = kHalfBytes) {
    graph_.tensors.push_back({std::move(name), role, std::move(shape), element_bytes, per_layer});
  }
  void activation(std::string name, std::int64_t width, bool per_layer, int element_bytes = kHalfBytes) {
    tensor(std::move(name), TensorRole::activation, {batch_, width}, per_layer, element_bytes);
  }
  void weight(std::string name, std::vector<std::int64_t> shape, bool per_layer) {
    tensor(std::move(name), TensorRole::weight, std::move(shape), per_layer);
  }

  void declare_tensors() {
    const std::int64_t hidden = model_.hidden, q = model_.q_rows(), kv = model_.kv_rows(), ffn = model_.ffn;
    tensor("token", TensorRole::token, {batch_}, false, 4);
    weight("embedding.weight", {model_.vocab, hidden}, false);
    activation("residual", hidden, true, kFloatBytes);        // entering the layer
    weight("layer.attn_norm.weight", {hidden}, true);
    activation("attn_norm", hidden, true);
    weight("layer.qkv.weight", {q + 2 * kv, hidden}, true);
    if (model_.qkv_bias) weight("layer.qkv.bias", {q + 2 * kv}, true);
    activation("qkv", q + 2 * kv, true);
    if (model_.qk_norm) {
      weight("layer.q_norm.weight", {model_.head_dim}, true);
      weight("layer.k_norm.weight", {model_.head_dim}, true);
      activation("qk_norm", q + kv, true);
    }
    activation("rope", q + kv, true);
    tensor("kv_cache", TensorRole::cache, {batch_, model_.kv_heads, 2, context_, model_.head_dim}, true);
    activation("attention", q, true);
    weight("layer.o_proj.weight", {hidden, q}, true);
    if (model_.output_bias) weight("layer.o_proj.bias", {hidden}, true);
    activation("o_proj", hidden, true);
    activation("residual_attn", hidden, true, kFloatBytes);
    weight("layer.mlp_norm.weight", {hidden}, true);
    activation("mlp_norm", hidden, true);
    weight("layer.gate_up.weight", {2 * ffn, hidden}, true);
    if (model_.mlp_bias) weight("layer.gate_up.bias", {2 * ffn}, true);
    activation("gate_up", 2 * ffn, true);
    activation("silu_mul", ffn, true);
    weight("layer.down.weight", {hidden, ffn}, true);
    if (model_.mlp_bias) weight("layer.down.bias", {hidden}, true);
    activation("down", hidden, true);
    activation("residual_mlp", hidden, true, kFloatBytes);    // the next layer's "residual"
    weight("final_norm.weight", {hidden}, false);
    activation("final_norm", hidden, false);
    if (!model_.tied_head) weight("head.weight", {model_.vocab, hidden}, false);
    activation("logits", model_.vocab, false, kFloatBytes);
    tensor("next_token", TensorRole::token, {batch_}, false, 4);
  }

  std::int64_t bytes_of(const std::string& name) const { return graph_.find(name)->bytes(); }

  /// `names` may hold "" for a tensor that this model lacks.
  void add(std::vector<Operator>& section, OperatorKind kind, std::vector<std::string> reads,
           std::vector<std::string> writes, std::int64_t rows, std::int64_t k, double flops) {
    Operator op{kind, {}, std::move(writes), rows, k, flops * static_cast<double>(batch_), 0, 0};
    for (std::string& name : reads) {
      if (name.empty()) continue;
      const bool is_weight = graph_.find(name)->role == TensorRole::weight;
      (is_weight ? op.weight_bytes : op.activation_bytes) += bytes_of(name);
      op.reads.push_back(std::move(name));
    }
    for (const std::string& name : op.writes) op.activation_bytes += bytes_of(name);
    section.push_back(std::move(op));
  }

  std::string if_has(bool has, const char* name) const { return has ? name : ""; }

  void add_prologue() {
    add(graph_.prologue, OperatorKind::embedding, {"token", "embedding.weight"}, {"residual"}, model_.hidden, 1, 0);
    graph_.prologue.back().weight_bytes = batch_ * model_.hidden * kHalfBytes;   // one row of the table each
  }

  void add_norm(std::vector<Operator>& section, OperatorKind kind, const char* from, const char* gain, const char* to) {
    add(section, kind, {from, gain}, {to}, model_.hidden, 1, 4.0 * model_.hidden);  // square, add, scale, gain
  }

  void add_gemv(std::vector<Operator>& section, OperatorKind kind, std::vector<std::string> reads, const char* to,
                std::int64_t rows, std::int64_t k) {
    add(section, kind, std::move(reads), {to}, rows, k, 2.0 * static_cast<double>(rows) * static_cast<double>(k));
  }

  void add_attention_block() {
    const std::int64_t hidden = model_.hidden, q = model_.q_rows(), kv = model_.kv_rows();
    auto& layer = graph_.layer;
    add_norm(layer, OperatorKind::attn_norm, "residual", "layer.attn_norm.weight", "attn_norm");
    add_gemv(layer, OperatorKind::qkv,
             {"attn_norm", "layer.qkv.weight", if_has(model_.qkv_bias, "layer.qkv.bias")}, "qkv", q + 2 * kv, hidden);
    if (model_.qk_norm) {
      add(layer, OperatorKind::qk_norm, {"qkv", "layer.q_norm.weight", "layer.k_norm.weight"}, {"qk_norm"}, q + kv, 1,
          4.0 * static_cast<double>(q + kv));
    }
    add(layer, OperatorKind::rope, {model_.qk_norm ? "qk_norm" : "qkv"}, {"rope"}, q + kv, 1,
        3.0 * static_cast<double>(q + kv));
    // The cache is written in place: one position, not the whole tensor.
    add(layer, OperatorKind::kv_append, {"rope", "qkv"}, {}, 2 * kv, 1, 0);
    layer.back().writes = {"kv_cache"};
    layer.back().activation_bytes = 4 * batch_ * kv * kHalfBytes;
    add(layer, OperatorKind::attention, {"rope", "kv_cache"}, {"attention"}, q, context_,
        4.0 * static_cast<double>(q) * static_cast<double>(context_));
    add_gemv(layer, OperatorKind::o_proj,
             {"attention", "layer.o_proj.weight", if_has(model_.output_bias, "layer.o_proj.bias")}, "o_proj", hidden, q);
    add(layer, OperatorKind::residual_attn, {"residual", "o_proj"}, {"residual_attn"}, hidden, 1, 1.0 * model_.hidden);
  }

  void add_mlp_block() {
    const std::int64_t hidden = model_.hidden, ffn = model_.ffn;
    auto& layer = graph_.layer;
    add_norm(layer, OperatorKind::mlp_norm, "residual_attn", "layer.mlp_norm.weight", "mlp_norm");
    add_gemv(layer, OperatorKind::gate_up,
             {"mlp_norm", "layer.gate_up.weight", if_has(model_.mlp_bias, "layer.gate_up.bias")}, "gate_up", 2 * ffn,
             hidden);
    add(layer, OperatorKind::silu_mul, {"gate_up"}, {"silu_mul"}, ffn, 1, 4.0 * model_.ffn);
    add_gemv(layer, OperatorKind::down,
             {"silu_mul", "layer.down.weight", if_has(model_.mlp_bias, "layer.down.bias")}, "down", hidden, ffn);
    add(layer, OperatorKind::residual_mlp, {"residual_attn", "down"}, {"residual_mlp"}, hidden, 1, 1.0 * model_.hidden);
  }

  void add_epilogue() {
    auto& end = graph_.epilogue;
    add_norm(end, OperatorKind::final_norm, "residual_mlp", "final_norm.weight", "final_norm");
    add_gemv(end, OperatorKind::head, {"final_norm", model_.tied_head ? "embedding.weight" : "head.weight"}, "logits",
             model_.vocab, model_.hidden);
    add(end, OperatorKind::argmax, {"logits"}, {"next_token"}, 1, model_.vocab, 1.0 * model_.vocab);
  }

  const Model& model_;
  std::int64_t batch_ = 1, context_ = 0;
  OperatorGraph graph_;
};

template <class Member>
auto total(const OperatorGraph& graph, Member member) {
  auto sum = [&](const std::vector<Operator>& section) {
    std::decay_t<decltype(section[0].*member)> result = 0;
    for (const Operator& op : section) result += op.*member;
    return result;
  };
  return sum(graph.prologue) + sum(graph.layer) * graph.layers + sum(graph.epilogue);
}

Json operators_to_json(const std::vector<Operator>& section) {
  Json list = Json::array();
  for (const Operator& op : section) {
    Json entry;
    entry["kind"] = to_string(op.kind);
    entry["reads"] = op.reads;
    entry["writes"] = op.writes;
    entry["rows"] = op.rows;
    entry["k"] = op.k;
    entry["flops"] = op.flops;
    entry["weight_bytes"] = op.weight_bytes;
    entry["activation_bytes"] = op.activation_bytes;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

std::int64_t TensorInfo::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

const TensorInfo* OperatorGraph::find(std::string_view name) const {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

double OperatorGraph::flops() const { return total(*this, &Operator::flops); }
std::int64_t OperatorGraph::weight_bytes() const { return total(*this, &Operator::weight_bytes); }
std::int64_t OperatorGraph::activation_bytes() const { return total(*this, &Operator::activation_bytes); }

OperatorGraph make_operator_graph(const Deployment& deployment) { return Builder(deployment).build(); }

std::string_view to_string(OperatorKind kind) {
  constexpr std::array<std::string_view, 17> names = {
      "embedding", "attn_norm", "qkv",     "qk_norm",  "rope", "kv_append",    "attention",  "o_proj", "residual_attn",
      "mlp_norm",  "gate_up",   "silu_mul", "down",    "residual_mlp", "final_norm", "head", "argmax"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view to_string(TensorRole role) {
  constexpr std::array<std::string_view, 4> names = {"activation", "weight", "cache", "token"};
  return names[static_cast<std::size_t>(role)];
}

Json operator_graph_to_json(const OperatorGraph& graph) {
  Json root;
  root["layers"] = graph.layers;
  root["flops"] = graph.flops();
  root["weight_bytes"] = graph.weight_bytes();
  root["activation_bytes"] = graph.activation_bytes();
  Json tensors = Json::array();
  for (const TensorInfo& tensor : graph.tensors) {
    Json entry;
    entry["name"] = tensor.name;
    entry["role"] = to_string(tensor.role);
    entry["shape"] = tensor.shape;
    entry["element_bytes"] = tensor.element_bytes;
    entry["per_layer"] = tensor.per_layer;
    tensors.push_back(std::move(entry));
  }
  root["tensors"] = std::move(tensors);
  root["prologue"] = operators_to_json(graph.prologue);
  root["layer"] = operators_to_json(graph.layer);
  root["epilogue"] = operators_to_json(graph.epilogue);
  return root;
}

}  // namespace adamk
