// Deployments that several tests of the DAG share.
#pragma once

#include <string>
#include <utility>

#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"

namespace adamk::fixtures {

struct Shape {
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
};

inline Model make_model(const Shape& shape) {
  Model model;
  model.family = "llama";
  model.layers = shape.layers;
  model.hidden = shape.hidden;
  model.heads = shape.heads;
  model.kv_heads = shape.kv_heads;
  model.head_dim = shape.head_dim;
  model.ffn = shape.ffn;
  model.vocab = shape.vocab;
  model.max_positions = 4096;
  model.norm_eps = 1e-5;
  return model;
}

inline Model tiny_model() { return make_model({4, 128, 8, 4, 16, 384, 256}); }

/// Shapes that divide nothing: rows, K and vocabulary all end in the middle of a tile or a step.
inline Model ragged_model() { return make_model({5, 64, 8, 4, 8, 172, 509}); }

inline Model llama_1b() {
  Model model = make_model({16, 2048, 32, 8, 64, 8192, 128256});
  model.tied_head = true;
  return model;
}

inline Model qwen3_1_7b() {
  Model model = make_model({28, 2048, 16, 8, 128, 6144, 151936});
  model.family = "qwen3";
  model.qk_norm = true;
  model.tied_head = true;
  return model;
}

inline Model qwen2_1_5b() {
  Model model = make_model({28, 1536, 12, 2, 128, 8960, 151936});
  model.family = "qwen2";
  model.qkv_bias = true;
  model.tied_head = true;
  return model;
}

inline Model llama_70b() { return make_model({80, 8192, 64, 8, 128, 28672, 128256}); }

inline Deployment deploy(Model model, const std::string& target, std::int64_t context = 256) {
  Workload workload;
  workload.context = context;
  return make_deployment(std::move(model), WeightsFormat::bf16, load_target(target).value(), workload).value();
}

/// 4 SMs, 4 warps, tiles of 16 rows, one K step a chunk: small enough to work out by hand.
inline Plan small_plan(int kv_splits = 1) {
  Plan plan;
  plan.grid = 4;
  plan.consumer_warps = 4;
  plan.ring_stages = 4;
  plan.window = 2;
  for (const StageKind kind : {StageKind::qkv, StageKind::attention, StageKind::output, StageKind::gate_up,
                               StageKind::down, StageKind::head}) {
    StagePlan stage;
    stage.kind = kind;
    stage.chunk_steps = 1;
    if (kind == StageKind::attention) stage.kv_splits = kv_splits;
    plan.stages.push_back(stage);
  }
  return plan;
}

}  // namespace adamk::fixtures
