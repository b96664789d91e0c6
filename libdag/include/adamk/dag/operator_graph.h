// OperatorGraph: one decode step as operators on named tensors, before anything is decided about how it runs. Layers are
// kept as one template and a count. Sizes are for the deployment's batch and for the last position of its context, where a
// step moves most.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/dag/deployment.h"

namespace adamk {

enum class OperatorKind {
  embedding,
  attn_norm, qkv, qk_norm, rope, kv_append, attention, o_proj, residual_attn,
  mlp_norm, gate_up, silu_mul, down, residual_mlp,
  final_norm, head, argmax,
};

enum class TensorRole { activation, weight, cache, token };

/// A named tensor of the step. Those of a layer exist once per layer.
struct TensorInfo {
  std::string name;                   // "qkv", "layer.o_proj.weight"
  TensorRole role = TensorRole::activation;
  std::vector<std::int64_t> shape;    // row-major
  int element_bytes = 2;
  bool per_layer = false;

  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * element_bytes; }
};

struct Operator {
  OperatorKind kind = OperatorKind::embedding;
  std::vector<std::string> reads, writes;   // names of tensors, weights included
  std::int64_t rows = 0;                    // output elements per batch entry
  std::int64_t k = 0;                       // elements reduced into each output; 1 for element-wise operators
  double flops = 0;                         // multiply and add count as two
  std::int64_t weight_bytes = 0;
  std::int64_t activation_bytes = 0;        // activations and KV read and written
};

struct OperatorGraph {
  std::vector<TensorInfo> tensors;
  std::vector<Operator> prologue;   // embedding
  std::vector<Operator> layer;      // the template, in order
  std::vector<Operator> epilogue;   // final_norm, head, argmax
  int layers = 0;

  const TensorInfo* find(std::string_view name) const;
  /// Over the whole step: prologue + layers x layer + epilogue.
  double flops() const;
  std::int64_t weight_bytes() const;      // what a step reads of the weights (one row of the embedding)
  std::int64_t activation_bytes() const;
};

OperatorGraph make_operator_graph(const Deployment& deployment);

std::string_view to_string(OperatorKind kind);
std::string_view to_string(TensorRole role);
Json operator_graph_to_json(const OperatorGraph& graph);

}  // namespace adamk
