#include "adamk/dag/schedule.h"

#include <algorithm>

namespace adamk {
namespace {

constexpr std::int64_t kFragmentBytes = 512;   // one 16 x 16 A fragment: 32 lanes x 16 bytes
constexpr int kRoleWarps = 3;                  // loader, storer, controller with launcher

template <class Int>
constexpr Int ceil_div(Int a, Int b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t align_up(std::int64_t value, std::int64_t to) { return ceil_div(value, to) * to; }

struct Matrix {
  int rows, k;
};
Matrix matrix_of(const Model& model, StageKind kind) {
  switch (kind) {
    case StageKind::qkv: return {model.q_rows() + 2 * model.kv_rows(), model.hidden};
    case StageKind::output: return {model.hidden, model.q_rows()};
    case StageKind::gate_up: return {2 * model.ffn, model.hidden};
    case StageKind::down: return {model.hidden, model.ffn};
    case StageKind::head: return {model.vocab, model.hidden};
    case StageKind::attention: break;
  }
  return {0, 0};
}

GemvShape gemv_shape(const Model& model, const Plan& plan, const StagePlan& stage) {
  const Matrix matrix = matrix_of(model, stage.kind);
  GemvShape shape{.kind = stage.kind};
  shape.rows = matrix.rows;
  shape.k = matrix.k;
  shape.tile_rows = stage.tile_rows;
  if (stage.kind == StageKind::gate_up && stage.fused_silu) {
    shape.order = RowOrder::interleaved;
    shape.values_out = model.ffn;
    // ffn need not fill the last block of 8: padding rows follow, so tiles count blocks of 8 outputs.
    shape.tiles = ceil_div(model.ffn, stage.tile_rows / 2);
  } else {
    shape.values_out = matrix.rows;
    shape.tiles = ceil_div(matrix.rows, stage.tile_rows);
  }
  shape.steps = ceil_div(ceil_div(matrix.k, 16), plan.consumer_warps);
  shape.chunk_steps = std::min(stage.chunk_steps, shape.steps);
  shape.chunks = ceil_div(shape.steps, shape.chunk_steps);
  shape.tile_bytes = kFragmentBytes * (stage.tile_rows / 16) * plan.consumer_warps * shape.steps;
  return shape;
}

AttentionShape attention_shape(const Model& model, const Target& target, const Plan& plan) {
  AttentionShape shape;
  const StagePlan* stage = plan.find(StageKind::attention);
  shape.fused = stage == nullptr;
  shape.splits = stage != nullptr ? stage->kv_splits : 1;
  shape.items = model.kv_heads * shape.splits;
  // Accumulators, queries and maxima of one pass live in registers, about 14 a head: two heads where 16 warps leave a thread
  // 96 registers, four where fewer warps leave it more.
  shape.roomy = plan.consumer_warps <= 8 && target.sm >= 90;
  const int most_heads = plan.consumer_warps <= 8 ? 4 : 2;
  shape.heads_per_pass = std::clamp(256 / model.head_dim, 1, std::min(most_heads, model.group()));
  shape.passes = ceil_div(model.group(), shape.heads_per_pass);
  // Eight registers each for keys and values, and one a head. Before sm_90 every lane copies weights, and needs some for that.
  shape.positions_together = target.sm < 90 || plan.consumer_warps > 12 ? 1
                             : !shape.roomy || shape.heads_per_pass > 2 ? 2
                             : shape.passes > 1                         ? 3
                                                                        : 4;
  while (shape.lanes_per_position * 8 < model.head_dim) shape.lanes_per_position *= 2;
  return shape;
}

Result<void> check_plan(const Deployment& deployment, const Plan& plan) {
  const Target& target = deployment.target;
  if (plan.grid > target.sms)
    return fail(Errc::infeasible, "grid: {} blocks, but {} has {} SMs and all blocks must be resident", plan.grid,
                target.name, target.sms);
  if (plan.window > plan.ring_stages)
    return fail(Errc::infeasible, "window: {} ring stages in flight, but the ring has {}", plan.window, plan.ring_stages);
  const StagePlan& output = plan.stage(StageKind::output);
  const StagePlan& down = plan.stage(StageKind::down);
  if (output.tile_rows != down.tile_rows)
    return fail(Errc::infeasible,
                "down.tile_rows: {}, but output.tile_rows is {}; both must give an SM the same rows of the residual",
                down.tile_rows, output.tile_rows);
  if (plan.stage(StageKind::head).input != plan.stage(StageKind::qkv).input)
    return fail(Errc::infeasible, "head.input: {}, but qkv.input is {}; both read what `down` publishes",
                to_string(plan.stage(StageKind::head).input), to_string(plan.stage(StageKind::qkv).input));
  return {};
}

/// A warp that recomputes attention needs whole heads in its K slice.
Result<void> check_fused_attention(const Model& model, const GemvShape& output) {
  const int columns = output.steps * 16;
  if (columns % model.head_dim != 0)
    return fail(Errc::infeasible,
                "output.fused_attention: a consumer warp's K slice of {} columns holds no whole number of heads of {}",
                columns, model.head_dim);
  return {};
}

SharedMemory shared_memory(const Model& model, const Plan& plan, const Schedule& schedule) {
  SharedMemory smem;
  int tile_rows = 16;
  for (const GemvShape& gemv : schedule.gemvs) {
    tile_rows = std::max(tile_rows, gemv.tile_rows);
    smem.ring_stage = std::max(
        smem.ring_stage, kFragmentBytes * (gemv.tile_rows / 16) * plan.consumer_warps * gemv.chunk_steps);
  }
  // full and empty per ring stage; partials full/empty x 2; inputs ready; attention full/empty; token; 16 bytes of flags.
  smem.barriers = align_up(16 * plan.ring_stages + 8 * 8 + 16, 128);
  smem.partials = align_up(std::int64_t{2} * 4 * plan.consumer_warps * (tile_rows + 1), 128);
  const GemvShape& output = schedule.gemv(StageKind::output);
  smem.residual = align_up(std::int64_t{4} * output.max_tiles_per_sm(plan.grid) * output.tile_rows, 128);
  const AttentionShape& attention = schedule.attention;
  if (attention.fused) {
    smem.attention = align_up(std::int64_t{2} * plan.consumer_warps * output.steps * 16, 128);
  } else {
    const std::int64_t per_warp = std::int64_t{4} * attention.heads_per_pass * (model.head_dim + 2);
    smem.attention = align_up(plan.consumer_warps * (per_warp + 4 * attention.heads_per_pass), 128);
  }
  smem.ring = smem.ring_stage * plan.ring_stages;
  return smem;
}

Workspace make_workspace(const Model& model, const Plan& plan, const Schedule& schedule) {
  Workspace out;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t at = out.bytes;
    out.bytes += align_up(std::max<std::int64_t>(bytes, 1), 128);
    return at;
  };
  const auto edge = [&](std::int64_t values, std::int64_t sums, int producers) {
    Workspace::Edge e;
    e.values = take(values * 4);   // a packet is 8 bytes for two values; plain values need half of that
    e.sums = take(sums * 8);
    e.counter = take(4);
    e.producers = producers;
    return e;
  };
  const auto producers = [&](StageKind kind) { return std::min(schedule.gemv(kind).tiles, plan.grid); };
  const AttentionShape& attention = schedule.attention;
  out.qkv = edge(schedule.gemv(StageKind::qkv).values_out, 0, producers(StageKind::qkv));
  out.attention = edge(std::int64_t{attention.splits} * model.q_rows(), std::int64_t{attention.splits} * model.heads,
                       std::min(attention.items, plan.grid));
  out.output = edge(model.hidden, plan.grid, producers(StageKind::output));
  out.gate_up = edge(schedule.gemv(StageKind::gate_up).values_out, 0, producers(StageKind::gate_up));
  out.down = edge(model.hidden, plan.grid, producers(StageKind::down));
  out.argmax = take(std::int64_t{32} * plan.grid);
  out.abort_flag = take(4);
  return out;
}

SmallTensors small_tensors(const Model& model) {
  SmallTensors out;
  const auto take = [&](std::int64_t elements) {
    const std::int64_t at = out.bytes;
    out.bytes += align_up(2 * elements, 128);
    return at;
  };
  const std::int64_t layers = model.layers;
  out.attention_norm = take((layers + 1) * model.hidden);
  out.mlp_norm = take(layers * model.hidden);
  out.q_norm = model.qk_norm ? take(layers * model.head_dim) : -1;
  out.k_norm = model.qk_norm ? take(layers * model.head_dim) : -1;
  out.qkv_bias = model.qkv_bias ? take(layers * (model.q_rows() + 2 * model.kv_rows())) : -1;
  out.output_bias = model.output_bias ? take(layers * model.hidden) : -1;
  out.gate_up_bias = model.mlp_bias ? take(layers * 2 * model.ffn) : -1;
  out.down_bias = model.mlp_bias ? take(layers * model.hidden) : -1;
  return out;
}

Result<void> check_fit(const Deployment& deployment, const Schedule& schedule) {
  const Target& target = deployment.target;
  const SharedMemory& smem = schedule.smem;
  if (smem.total() > target.smem_per_block)
    return fail(Errc::infeasible,
                "shared memory: {} bytes needed ({} ring = {} stages x {}, {} partials, {} attention, {} residual, {} "
                "barriers), but a block on {} may have {}; fewer ring_stages or a smaller chunk_steps fit",
                smem.total(), smem.ring, schedule.plan.ring_stages, smem.ring_stage, smem.partials, smem.attention,
                smem.residual, smem.barriers, target.name, target.smem_per_block);
  if (schedule.threads > target.max_threads_per_block)
    return fail(Errc::infeasible, "consumer_warps: {} give {} threads, but a block on {} may have {}",
                schedule.plan.consumer_warps, schedule.threads, target.name, target.max_threads_per_block);
  const std::int64_t device = schedule.packed_bytes + schedule.kv_bytes + schedule.workspace.bytes;
  if (target.memory_bytes > 0 && device > target.memory_bytes)
    return fail(Errc::infeasible, "device memory: {} bytes of weights and KV, but {} has {}", device, target.name,
                target.memory_bytes);
  return {};
}

}  // namespace

const GemvShape& Schedule::gemv(StageKind kind) const {
  return *std::find_if(gemvs.begin(), gemvs.end(), [&](const GemvShape& shape) { return shape.kind == kind; });
}

Result<Schedule> make_schedule(const Deployment& deployment, const Plan& plan) {
  ADAMK_CHECK(check_plan(deployment, plan));
  const Model& model = deployment.model;
  Schedule schedule;
  schedule.plan = plan;
  schedule.threads = 32 * (plan.consumer_warps + kRoleWarps);
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind == StageKind::attention) continue;
    GemvShape shape = gemv_shape(model, plan, stage);
    if (stage.kind == StageKind::head) {
      schedule.head_offset = schedule.layer_bytes * model.layers;
      shape.offset = schedule.head_offset;
    } else {
      shape.offset = schedule.layer_bytes;
      schedule.layer_bytes += shape.bytes();
    }
    schedule.gemvs.push_back(shape);
  }
  schedule.packed_bytes = schedule.head_offset + schedule.gemv(StageKind::head).bytes();
  schedule.attention = attention_shape(model, deployment.target, plan);
  if (schedule.attention.fused) ADAMK_CHECK(check_fused_attention(model, schedule.gemv(StageKind::output)));
  schedule.smem = shared_memory(model, plan, schedule);
  schedule.workspace = make_workspace(model, plan, schedule);
  schedule.small = small_tensors(model);
  schedule.kv_bytes =
      std::int64_t{2} * 2 * model.layers * model.kv_heads * deployment.workload.context * model.head_dim;
  ADAMK_CHECK(check_fit(deployment, schedule));
  return schedule;
}

}  // namespace adamk
