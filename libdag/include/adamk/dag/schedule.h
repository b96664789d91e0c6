// Schedule: a Plan expanded to numbers for one Deployment: tiles, K slices, which SM owns what, where every byte lies in the
// packed weights, in shared memory and in the exchange workspace. The packer, the emitter, the TileDag, the
// shared-memory model and the cost model all read it, so none can disagree with another.
//
// Geometry of a GEMV stage (weights [rows, k], row-major in the checkpoint):
//   a tile is `tile_rows` rows and the whole of K; SM s owns tiles [first_tile(s), first_tile(s) + tile_count(s));
//   K is cut into steps of 16 columns; consumer warp w owns steps [w * steps, (w + 1) * steps), zero-padded past K;
//   a chunk (one fill of a ring stage) holds, for every warp, its next `chunk_steps` steps; the last chunk may hold fewer.
// Packed order: tile, chunk, warp, step, 16-row block, lane, 16 bytes (the A fragment of mma.m16n8k16, docs/kernel.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"

namespace adamk {

/// How a packed row block maps to rows of the checkpoint's matrices.
enum class RowOrder {
  plain,        // concatenated matrices in order (q, k, v) or one matrix
  interleaved,  // gate_up with SiLU fused: per 16 rows, 8 of gate then the matching 8 of up
};

struct GemvShape {
  StageKind kind;
  RowOrder order = RowOrder::plain;
  int rows = 0;              // real output rows (gate_up: 2 x ffn)
  int k = 0;                 // real columns
  int tile_rows = 16;
  int tiles = 0;             // ceil(rows / tile_rows)
  int steps = 0;             // K steps of 16 per consumer warp
  int chunk_steps = 0;
  int chunks = 0;            // fills of the ring per tile
  std::int64_t tile_bytes = 0;
  std::int64_t offset = 0;   // bytes from the start of a layer's weights (head: from the start of the packed weights)
  std::int64_t bytes() const { return tile_bytes * tiles; }

  int values_out = 0;        // values published per step: rows, or ffn when SiLU is fused
  int tile_count(int sm, int grid) const { return tiles / grid + (sm < tiles % grid ? 1 : 0); }
  int first_tile(int sm, int grid) const { return sm * (tiles / grid) + (sm < tiles % grid ? sm : tiles % grid); }
  int max_tiles_per_sm(int grid) const { return (tiles + grid - 1) / grid; }
  int steps_in_chunk(int chunk) const { return chunk + 1 < chunks ? chunk_steps : steps - chunk_steps * (chunks - 1); }
};

struct AttentionShape {
  bool fused = false;        // computed by the output stage's warps
  int splits = 1;
  int items = 0;             // kv_heads x splits; item i runs on SM i % grid
  int heads_per_pass = 1;    // query heads whose accumulators are live at once
  int passes = 1;            // ceil(group / heads_per_pass)
  int lanes_per_position = 1;  // lanes that share one position, power of two >= head_dim / 8
  bool roomy = false;          // registers for more loads on their way at once: queries, key and value together
  int positions_together = 1;  // cached positions that a lane group takes in one turn
};

/// Bytes of shared memory by purpose; the sum is what the kernel asks for.
struct SharedMemory {
  std::int64_t barriers = 0;
  std::int64_t partials = 0;        // consumer warps' sums for the storer, double-buffered
  std::int64_t residual = 0;        // fp32 rows this SM owns
  std::int64_t attention = 0;       // per-warp accumulators for the combine, or scratch of the fused variant
  std::int64_t ring_stage = 0;      // bytes of one ring stage
  std::int64_t ring = 0;
  std::int64_t total() const { return barriers + partials + residual + attention + ring; }
};

/// Offsets in bytes of the exchange workspace, zeroed once by the host before the first launch.
struct Workspace {
  struct Edge {
    std::int64_t values = 0;     // packets or plain values
    std::int64_t sums = 0;       // one {sum of squares, tag} per producing SM (NormMode::exchange), or split-KV log-sums
    std::int64_t counter = 0;    // its own 128 bytes
    int producers = 0;           // SMs with work in the producing stage
  };
  Edge qkv, attention, output, gate_up, down;   // named by the producing stage
  std::int64_t argmax = 0;       // one 16-byte entry per SM, double-buffered by step
  std::int64_t abort_flag = 0;
  std::int64_t bytes = 0;
};

/// Offsets in bytes of the small tensors (norm gains, biases), all in the weights format; per layer unless said otherwise.
struct SmallTensors {
  std::int64_t attention_norm = 0;   // [layers + 1, hidden]: entry `layers` is the final norm
  std::int64_t mlp_norm = 0;         // [layers, hidden]
  std::int64_t q_norm = 0, k_norm = 0;       // [layers, head_dim], or -1
  std::int64_t qkv_bias = 0;                 // [layers, q_rows + 2 kv_rows], or -1
  std::int64_t output_bias = 0;              // [layers, hidden], or -1
  std::int64_t gate_up_bias = 0;             // [layers, 2 ffn] gate then up, or -1
  std::int64_t down_bias = 0;                // [layers, hidden], or -1
  std::int64_t bytes = 0;
};

struct Schedule {
  Plan plan;
  std::vector<GemvShape> gemvs;      // in stage order, head last
  AttentionShape attention;
  SharedMemory smem;
  Workspace workspace;
  SmallTensors small;
  int threads = 0;                   // per block
  std::int64_t layer_bytes = 0;      // packed weights of one layer
  std::int64_t head_offset = 0;      // layers x layer_bytes
  std::int64_t packed_bytes = 0;     // layers and head
  std::int64_t kv_bytes = 0;         // [layers, kv_heads, 2, context, head_dim]
  const GemvShape& gemv(StageKind kind) const;   // must exist
};

/// Infeasible plans are an Error (infeasible) that names the constraint and both sides of it.
Result<Schedule> make_schedule(const Deployment& deployment, const Plan& plan);

}  // namespace adamk
