// Deployments that the tests of code generation share.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"
#include "adamk/dag/schedule.h"

namespace adamk::codegen {

inline Model small_model(int layers, int hidden, int heads, int kv_heads, int head_dim, int ffn, int vocab) {
  Model model;
  model.family = "llama";
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.ffn = ffn;
  model.vocab = vocab;
  model.max_positions = 4096;
  model.norm_eps = 1e-5;
  return model;
}

inline Model even_model() { return small_model(2, 128, 8, 4, 16, 256, 128); }
/// Rows, K and vocabulary all end in the middle of a tile or a step.
inline Model ragged_model() { return small_model(2, 72, 6, 2, 24, 172, 309); }

inline Deployment deploy(Model model, const std::string& target = "h200", WeightsFormat format = WeightsFormat::bf16) {
  Workload workload;
  workload.context = 256;
  return make_deployment(std::move(model), format, load_target(target).value(), workload).value();
}

}  // namespace adamk::codegen
