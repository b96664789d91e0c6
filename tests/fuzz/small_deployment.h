// A deployment as small as a kernel can be made for, on two SMs of an L20.
#pragma once

#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"
#include "fuzz.h"

namespace adamk::fuzz {

inline const Deployment& small_deployment() {
  static const Deployment made = [] {
    Model model;
    model.family = "llama";
    model.layers = 2;
    model.hidden = 64;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 16;
    model.ffn = 96;
    model.vocab = 128;
    model.max_positions = 64;
    model.norm_eps = 1e-5;
    Target target;
    target.name = "two";
    target.product = "two SMs of an L20";
    target.sm = 89;
    target.sms = 2;
    target.smem_per_block = 101376;
    target.smem_per_sm = 102400;
    target.smem_reserved = 1024;
    target.l2_bytes = 1 << 20;
    target.memory_bytes = std::int64_t{1} << 30;
    target.read_gbps = 10;
    target.hop_us = 1;
    target.clock_mhz = 1000;
    const Workload workload{.batch = 1, .context = 64, .steps_per_launch = 4};
    auto deployment = make_deployment(model, WeightsFormat::bf16, target, workload);
    if (!deployment) std::fprintf(stderr, "%s\n", deployment.error().message.c_str());
    require(deployment.has_value(), "the small deployment can be made");
    return *deployment;
  }();
  return made;
}

/// As few warps and ring stages as there can be: the validator walks them all, for every input.
inline Plan small_plan() {
  Plan plan = default_plan(small_deployment()).value();
  plan.consumer_warps = 1;
  plan.ring_stages = 2;
  plan.window = 1;
  return plan;
}

}  // namespace adamk::fuzz
