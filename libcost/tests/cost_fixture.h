// Deployments made by hand, so that expected figures can be worked out on paper.
#pragma once

#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"

namespace adamk::testing_cost {

inline Model llama_1b() {
  Model model;
  model.family = "llama";
  model.layers = 16;
  model.hidden = 2048;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 64;
  model.ffn = 8192;
  model.vocab = 128256;
  model.max_positions = 131072;
  model.norm_eps = 1e-5;
  model.tied_head = true;
  return model;
}

inline Model qwen3_1_7b() {
  Model model = llama_1b();
  model.family = "qwen3";
  model.layers = 28;
  model.heads = 16;
  model.head_dim = 128;
  model.ffn = 6144;
  model.vocab = 151936;
  model.qk_norm = true;
  return model;
}

inline Target h200() {
  Target target;
  target.name = "h200";
  target.product = "NVIDIA H200";
  target.sm = 90;
  target.sms = 132;
  target.smem_per_block = 232448;
  target.smem_per_sm = 233472;
  target.smem_reserved = 1024;
  target.l2_bytes = 60 << 20;
  target.memory_bytes = std::int64_t{141} << 30;
  target.read_gbps = 4690;
  target.hop_us = 1.16;
  target.clock_mhz = 1830;
  return target;
}

inline Deployment deployment(Model model, Target target, std::int64_t context = 256) {
  Deployment result;
  result.model = std::move(model);
  result.target = std::move(target);
  result.workload.context = context;
  return result;
}

/// 16 warps, chunks of 4 steps (32 KB), ring of 6, 2 in flight; everything tagged.
inline Plan plain_plan(const Deployment& deployment) {
  Plan plan;
  plan.grid = deployment.target.sms;
  for (const StageKind kind : {StageKind::qkv, StageKind::attention, StageKind::output, StageKind::gate_up,
                               StageKind::down, StageKind::head}) {
    StagePlan stage;
    stage.kind = kind;
    plan.stages.push_back(stage);
  }
  return plan;
}

}  // namespace adamk::testing_cost
