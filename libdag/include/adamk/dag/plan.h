// Plan: one path through the Space and its knobs. Everything a kernel needs to be generated, nothing else; canonical JSON;
// identified by its hash.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"

namespace adamk {

/// What a stage computes. A layer is qkv, attention, output, gate_up, down; the head follows the last layer. When
/// attention is fused with its projection the path has no attention stage and `output` recomputes it (docs/space.md).
enum class StageKind { qkv, attention, output, gate_up, down, head };

/// How a stage's inputs reach it from the stage before.
enum class Exchange {
  tagged,     // 8-byte packets {two values, 32-bit tag}, relaxed, polled by the consumers themselves
  counter,    // plain data; every producing SM adds one with release, the controller polls with acquire
  barrier,    // plain data behind a barrier of the whole grid
};

/// Where the sum of squares of an RMSNorm comes from.
enum class NormMode {
  recompute,  // each SM adds up the squares of what it receives
  exchange,   // each producing SM publishes the sum of squares of its own rows
};

struct StagePlan {
  StageKind kind = StageKind::qkv;
  Exchange input = Exchange::tagged;       // for qkv: from the layer before (the first layer reads the embedding)
  NormMode norm = NormMode::recompute;     // qkv, gate_up, head
  int tile_rows = 16;                      // 16 or 32 weight rows per tile (GEMV stages)
  int chunk_steps = 4;                     // K steps of 16 columns per consumer warp in one ring stage: the K split
  int kv_splits = 1;                       // attention: SMs per KV head, 1 to 16
  bool fused_attention = false;            // output: attention recomputed by its readers
  bool fused_silu = true;                  // gate_up: SiLU(gate) x up in the storer; else `down` computes it as it reads

  bool operator==(const StagePlan&) const = default;
};

struct Plan {
  std::vector<StagePlan> stages;   // the layer's stages in order, then the head
  int grid = 0;                    // blocks = SMs used
  int consumer_warps = 16;
  int ring_stages = 6;
  int window = 2;                  // ring stages in flight per SM before the loader waits
  int pace = 0;                    // clocks between 8 KB copies; 0: as fast as the window allows
  int unroll = 0;                  // K steps of a consumer's loop over a ring stage in one turn; 0: all of them, no loop
  int fragments = 1;               // weight fragments (16 bytes a lane) a consumer has in flight ahead of their mma

  const StagePlan* find(StageKind kind) const;
  const StagePlan& stage(StageKind kind) const;   // must exist
  bool operator==(const Plan&) const = default;

  /// 32 hexadecimal digits over plan_to_json.
  std::string hash() const;
};

std::string_view to_string(StageKind kind);
std::string_view to_string(Exchange exchange);
std::string_view to_string(NormMode mode);

Json plan_to_json(const Plan& plan);
/// Structure and ranges; whether it fits a deployment is make_schedule's question.
Result<Plan> plan_from_json(const JsonView& root);

/// A sound plan for any deployment that has one: the starting point of a search, and what is used without one.
Result<Plan> default_plan(const Deployment& deployment);

}  // namespace adamk
