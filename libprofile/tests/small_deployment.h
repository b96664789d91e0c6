// A model of two layers on a target of two SMs, small enough to be emulated.
#pragma once

#include "adamk/dag/deployment.h"

namespace adamk {

inline Deployment small_deployment() {
  Deployment d;
  d.model.family = "llama";
  d.model.layers = 2;
  d.model.hidden = 128;
  d.model.heads = 4;
  d.model.kv_heads = 2;
  d.model.head_dim = 32;
  d.model.ffn = 192;
  d.model.vocab = 320;
  d.model.max_positions = 256;
  d.model.norm_eps = 1e-5;
  d.target.name = "small";
  d.target.product = "small";
  d.target.sm = 90;
  d.target.sms = 2;
  d.target.smem_per_block = 232448;
  d.target.smem_per_sm = 233472;
  d.target.smem_reserved = 1024;
  d.target.registers_per_sm = 65536;
  d.target.l2_bytes = 1 << 20;
  d.target.memory_bytes = std::int64_t{1} << 32;
  d.target.read_gbps = 1000;
  d.target.hop_us = 1;
  d.target.clock_mhz = 1500;
  d.workload.context = 256;
  d.workload.steps_per_launch = 4;
  return d;
}

}  // namespace adamk
