#include "adamk/dag/tile_dag.h"

#include <algorithm>
#include <utility>

#include "protocol_of_kernel.h"

namespace adamk {
namespace {

Via via_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::tagged: return Via::tagged;
    case Exchange::counter: return Via::counter;
    case Exchange::barrier: return Via::barrier;
  }
  return Via::barrier;
}

Access whole(int tensor, std::int64_t elements) { return {{tensor, 0, elements}, 0}; }

/// What differs between the GEMV stages.
struct GemvTensors {
  int input = -1, split_sums = -1, first_input = -1, gain = -1, bias = -1;
  int norm_sums = -1;   // read by the storer, which scales
  int output = -1, sums_out = -1, residual = -1;
};

class Builder {
 public:
  Builder(const Deployment& deployment, const Schedule& schedule)
      : model_(deployment.model), schedule_(schedule), plan_(schedule.plan), context_(deployment.workload.context),
        target_sm_(deployment.target.sm) {
    dag_.plan_hash = plan_.hash();
    dag_.layers = model_.layers;
    const Target& target = deployment.target;
    DagResources& use = dag_.resources;
    use.grid = plan_.grid;
    use.threads = schedule.threads;
    use.consumer_warps = plan_.consumer_warps;
    use.smem_bytes = schedule.smem.total();
    use.ring_stage_bytes = schedule.smem.ring_stage;
    use.ring_stages = plan_.ring_stages;
    use.window = plan_.window;
    // Registers are handed out in multiples of 8, at most 255 a thread.
    use.registers_per_thread = std::min(255, target.registers_per_sm / std::max(1, schedule.threads) / 8 * 8);
  }

  TileDag build() {
    declare_tensors();
    for (const StagePlan& stage : plan_.stages) {
      if (dag_.stages.empty()) add_embedding();
      if (stage.kind == StageKind::attention) {
        add_attention();
      } else {
        add_gemv(stage);
      }
    }
    add_argmax();
    add_exchange_edges();
    add_residual_edges();
    add_step_edges();
    add_protocol(model_, schedule_, target_sm_, dag_);
    return std::move(dag_);
  }

 private:
  const StagePlan& plan_of(StageKind kind) const { return plan_.stage(kind); }
  bool fused() const { return schedule_.attention.fused; }
  /// SMs that recompute attention: those with a tile of its projection.
  std::int64_t scratch_sms() const { return std::min(schedule_.gemv(StageKind::output).tiles, plan_.grid); }

  int tensor(std::string name, std::int64_t elements, int element_bytes, Placement placement, bool per_layer = false) {
    dag_.tensors.push_back({std::move(name), elements, element_bytes, placement, per_layer});
    return static_cast<int>(dag_.tensors.size()) - 1;
  }
  int id(std::string_view name) const { return dag_.find_tensor(name); }

  void declare_tensors() {
    const std::int64_t hidden = model_.hidden, q = model_.q_rows(), kv = model_.kv_rows();
    tensor("embedding.weight", model_.vocab * hidden, 2, Placement::memory);
    tensor("token", plan_.grid, 4, Placement::split);
    tensor("embedding_row", hidden, 2, Placement::copy);
    tensor("residual", hidden, 4, Placement::split);
    tensor("hidden", hidden, 2, Placement::memory);
    tensor("qkv", q + 2 * kv, 2, Placement::memory);
    dag_.tensors[static_cast<std::size_t>(tensor("kv_cache", 2 * kv * context_, 2, Placement::memory, true))].appended = true;
    if (!fused()) {
      tensor("attention", schedule_.attention.splits * q, 2, Placement::memory);
      if (schedule_.attention.splits > 1)
        tensor("attention_sums", std::int64_t{schedule_.attention.splits} * model_.heads, 4, Placement::memory);
      tensor("attention.partials", schedule_.attention.items * attention_partials(), 4, Placement::split);
    }
    if (fused()) tensor("attention.scratch", scratch_sms() * q, 2, Placement::split);
    tensor("hidden_mid", hidden, 2, Placement::memory);
    tensor("ffn", schedule_.gemv(StageKind::gate_up).values_out, 2, Placement::memory);
    tensor("logits", model_.vocab, 4, Placement::split);
    tensor("argmax", plan_.grid, 16, Placement::memory);
    tensor("next_token", plan_.grid, 4, Placement::split);
    tensor("attn_norm.gain", hidden, 2, Placement::memory, true);
    tensor("mlp_norm.gain", hidden, 2, Placement::memory, true);
    tensor("final_norm.gain", hidden, 2, Placement::memory);
    if (plan_of(StageKind::qkv).norm == NormMode::exchange || plan_of(StageKind::head).norm == NormMode::exchange)
      tensor("hidden.sums", schedule_.workspace.down.producers, 4, Placement::memory);
    if (plan_of(StageKind::gate_up).norm == NormMode::exchange)
      tensor("hidden_mid.sums", schedule_.workspace.output.producers, 4, Placement::memory);
    if (model_.qkv_bias) tensor("qkv.bias", q + 2 * kv, 2, Placement::memory, true);
    if (model_.output_bias) tensor("output.bias", hidden, 2, Placement::memory, true);
    if (model_.mlp_bias) {
      tensor("gate_up.bias", 2 * model_.ffn, 2, Placement::memory, true);
      tensor("down.bias", hidden, 2, Placement::memory, true);
    }
  }

  /// The launcher hands the step's token over. The consumers keep its embedding row for their first qkv, the storer the rows of the
  /// residual that its output tiles own.
  void add_embedding() {
    DagStage stage{"embedding", Section::prologue, {}, 1, {}};
    const GemvShape& owner = schedule_.gemv(StageKind::output);
    const Access table = whole(id("embedding.weight"), std::int64_t{model_.vocab} * model_.hidden);
    for (int sm = 0; sm < plan_.grid; ++sm) {
      const Access token{{id("token"), sm, sm + 1}, 0};
      const auto add = [&](WarpRole role, std::vector<Access> reads, std::vector<Access> writes, std::int64_t bytes) {
        stage.ranges.push_back({role, sm, sm, 1, std::move(reads), std::move(writes), bytes, 0});
      };
      add(WarpRole::launcher, {{{id("next_token"), sm, sm + 1}, 0}}, {token}, 0);
      add(WarpRole::consumer, {token, table}, {whole(id("embedding_row"), model_.hidden)}, std::int64_t{2} * model_.hidden);
      const std::int64_t begin = std::int64_t{owner.first_tile(sm, plan_.grid)} * owner.tile_rows;
      const std::int64_t end =
          std::min<std::int64_t>(owner.rows, begin + std::int64_t{owner.tile_count(sm, plan_.grid)} * owner.tile_rows);
      std::vector<Access> kept;
      if (begin < end) kept.push_back({{id("residual"), begin, end}, 0});
      add(WarpRole::storer, {token, table}, std::move(kept), 2 * std::max<std::int64_t>(0, end - begin));
    }
    dag_.stages.push_back(std::move(stage));
  }

  /// Of one item: every consumer warp's accumulators, maximum and total for each head of the group.
  std::int64_t attention_partials() const {
    return std::int64_t{plan_.consumer_warps} * model_.group() * (model_.head_dim + 2);
  }

  /// One item for each (kv head, split): QK-norm, rope, append and the softmax over the positions of its split by the
  /// consumers, merged and published by the storer.
  void add_attention() {
    const AttentionShape& shape = schedule_.attention;
    DagStage stage{"attention", Section::layer, {}, shape.passes, {}};
    const std::int64_t per_head = std::int64_t{2} * context_ * model_.head_dim, partials = attention_partials();
    const int group = model_.group();
    for (int item = 0; item < shape.items; ++item) {
      const int head = item / shape.splits, split = item % shape.splits;
      const Region cache{id("kv_cache"), head * per_head, (head + 1) * per_head, split, shape.splits};
      const Access sums_of_warps{{id("attention.partials"), item * partials, (item + 1) * partials}, 0};
      TaskRange attend{WarpRole::consumer, item % plan_.grid, item, 1, {}, {}, 2 * per_head / shape.splits, 0};
      attend.flops = 4.0 * group * model_.head_dim * static_cast<double>(context_) / shape.splits;
      attend.reads = qkv_of_head(head);
      attend.reads.push_back({cache, 0});
      attend.writes = {sums_of_warps, {cache, 0}};

      TaskRange merge{WarpRole::storer, item % plan_.grid, item, 1, {sums_of_warps}, {}, 0, 0};
      const std::int64_t width = std::int64_t{group} * model_.head_dim;
      const std::int64_t at = split * std::int64_t{model_.q_rows()} + head * width;
      const std::int64_t sums = std::int64_t{split} * model_.heads + std::int64_t{head} * group;
      merge.writes = {{{id("attention"), at, at + width}, 0}};
      if (shape.splits > 1) merge.writes.push_back({{id("attention_sums"), sums, sums + group}, 0});
      stage.ranges.push_back(std::move(attend));
      stage.ranges.push_back(std::move(merge));
    }
    dag_.stages.push_back(std::move(stage));
  }

  /// q of the head's group, then its k and v rows.
  std::vector<Access> qkv_of_head(int head) const {
    const std::int64_t dim = model_.head_dim, q = std::int64_t{head} * model_.group() * dim;
    const std::int64_t k = model_.q_rows() + head * dim, v = k + model_.kv_rows();
    const int qkv = id("qkv");
    return {{{qkv, q, q + model_.group() * dim}, 0}, {{qkv, k, k + dim}, 0}, {{qkv, v, v + dim}, 0}};
  }

  GemvTensors tensors_of(StageKind kind) const {
    GemvTensors t;
    t.bias = id(std::string(to_string(kind)) + ".bias");
    switch (kind) {
      case StageKind::qkv:
        t.input = id("hidden"), t.first_input = id("embedding_row"), t.gain = id("attn_norm.gain"), t.output = id("qkv");
        if (plan_of(kind).norm == NormMode::exchange) t.norm_sums = id("hidden.sums");
        break;
      case StageKind::output:
        t.input = id("attention"), t.split_sums = id("attention_sums"), t.output = id("hidden_mid");
        t.residual = id("residual"), t.sums_out = id("hidden_mid.sums");
        break;
      case StageKind::gate_up:
        t.input = id("hidden_mid"), t.gain = id("mlp_norm.gain"), t.output = id("ffn");
        if (plan_of(kind).norm == NormMode::exchange) t.norm_sums = id("hidden_mid.sums");
        break;
      case StageKind::down:
        t.input = id("ffn"), t.output = id("hidden"), t.residual = id("residual"), t.sums_out = id("hidden.sums");
        break;
      case StageKind::head:
        t.input = id("hidden"), t.gain = id("final_norm.gain"), t.output = id("logits");
        if (plan_of(kind).norm == NormMode::exchange) t.norm_sums = id("hidden.sums");
        break;
      case StageKind::attention: break;
    }
    return t;
  }

  void add_gemv(const StagePlan& plan) {
    const GemvShape& shape = schedule_.gemv(plan.kind);
    const std::string name(to_string(plan.kind));
    DagStage stage{name, plan.kind == StageKind::head ? Section::epilogue : Section::layer, {}, shape.chunks, {}};
    for (int warp = 0; warp < plan_.consumer_warps; ++warp) {
      const std::int64_t begin = std::min<std::int64_t>(shape.k, std::int64_t{warp} * shape.steps * 16);
      stage.slices.push_back({begin, std::min<std::int64_t>(shape.k, begin + std::int64_t{shape.steps} * 16)});
    }
    const bool head = plan.kind == StageKind::head;
    const bool tied = head && model_.tied_head;   // packed apart all the same
    const int weights = tensor(name + ".weight" + (tied ? ".packed" : ""), std::int64_t{shape.rows} * shape.k, 2,
                               Placement::memory, !head);
    const int ring = tensor(name + ".ring", shape.bytes() / 2, 2, Placement::split);
    const int partials =
        tensor(name + ".partials", std::int64_t{shape.tiles} * shape.tile_rows * plan_.consumer_warps, 4, Placement::split);
    const GemvTensors t = tensors_of(plan.kind);
    for (int sm = 0; sm < plan_.grid; ++sm) {
      const int first = shape.first_tile(sm, plan_.grid), count = shape.tile_count(sm, plan_.grid);
      add_tiles(stage, shape, t, {weights, ring, partials}, sm, first, count);
    }
    dag_.stages.push_back(std::move(stage));
  }

  struct TileTensors {
    int weights, ring, partials;
  };

  static int values_per_tile(const GemvShape& shape) {
    return shape.order == RowOrder::interleaved ? shape.tile_rows / 2 : shape.tile_rows;
  }

  /// An SM's first tile is a range of its own where attention is recomputed with it, its last one where it has fewer rows
  /// (the end of the matrix) or the SM's sum of squares is published with it.
  void add_tiles(DagStage& stage, const GemvShape& shape, const GemvTensors& t, const TileTensors& local, int sm, int first,
                 int count) {
    const int values = values_per_tile(shape), rest = shape.values_out % values, end = first + count;
    const bool partial = rest != 0 && end == shape.tiles;
    const auto add = [&](int from, int to, int rows) {
      if (from < to) add_uniform_tiles(stage, shape, t, local, sm, from, to - from, rows);
    };
    if (count == 0) return;
    const int last = partial || t.sums_out >= 0 ? end - 1 : end;
    const int second = std::min(last, recomputes_attention(shape) ? first + 1 : first);
    add(first, second, values);
    add(second, last, values);
    add(last, end, partial ? rest : values);
  }

  bool recomputes_attention(const GemvShape& shape) const { return fused() && shape.kind == StageKind::output; }

  void add_uniform_tiles(DagStage& stage, const GemvShape& shape, const GemvTensors& t, const TileTensors& local, int sm,
                         int first, int count, int values) {
    const std::int64_t per_tile = values_per_tile(shape), row = first * per_tile;
    const bool pairs = shape.order == RowOrder::interleaved;
    const std::int64_t packed = shape.tile_bytes / 2;
    const auto rows_of = [&](int tensor_id, std::int64_t width, std::int64_t base) {
      return Access{{tensor_id, (base + row) * width, (base + row + values) * width}, per_tile * width};
    };

    TaskRange load{WarpRole::loader, sm, first, count, {}, {}, shape.tile_bytes, 0};
    load.reads.push_back(rows_of(local.weights, shape.k, 0));
    if (pairs) load.reads.push_back(rows_of(local.weights, shape.k, shape.values_out));
    const Access filled{{local.ring, first * packed, (first + 1) * packed}, packed};
    load.writes = {filled};

    TaskRange multiply{WarpRole::consumer, sm, first, count, {}, {}, 0, 0};
    multiply.flops = 2.0 * values * (pairs ? 2 : 1) * static_cast<double>(shape.k);
    multiply.reads = {filled};
    const std::int64_t sums = std::int64_t{shape.tile_rows} * plan_.consumer_warps;
    const Access summed{{local.partials, first * sums, (first + 1) * sums}, sums};
    multiply.writes = {summed};
    add_inputs(multiply, shape, t);

    TaskRange store{WarpRole::storer, sm, first, count, {}, {}, 0, 0};
    store.reads = {summed};
    if (t.bias >= 0) {
      store.reads.push_back(rows_of(t.bias, 1, 0));
      if (pairs) store.reads.push_back(rows_of(t.bias, 1, shape.values_out));
    }
    if (t.norm_sums >= 0) store.reads.push_back(whole(t.norm_sums, dag_.tensors[static_cast<std::size_t>(t.norm_sums)].elements));
    store.writes.push_back(rows_of(t.output, 1, 0));
    if (t.residual >= 0) {
      store.reads.push_back(rows_of(t.residual, 1, 0));
      store.writes.push_back(rows_of(t.residual, 1, 0));
    }
    const bool last = first + count == shape.first_tile(sm, plan_.grid) + shape.tile_count(sm, plan_.grid);
    if (t.sums_out >= 0 && last) store.writes.push_back({{t.sums_out, sm, sm + 1}, 0});
    stage.ranges.push_back(std::move(load));
    stage.ranges.push_back(std::move(multiply));
    stage.ranges.push_back(std::move(store));
  }

  void add_inputs(TaskRange& task, const GemvShape& shape, const GemvTensors& t) const {
    const auto read = [&](int tensor_id) {
      if (tensor_id >= 0) task.reads.push_back(whole(tensor_id, dag_.tensors[static_cast<std::size_t>(tensor_id)].elements));
    };
    if (recomputes_attention(shape)) {
      read(id("qkv"));
      read(id("kv_cache"));
      if (task.first == shape.first_tile(task.sm, plan_.grid)) recompute_attention(task);
      return;
    }
    read(t.input);
    read(t.first_input);
    read(t.split_sums);
    read(t.gain);
  }

  /// Fused attention: every SM with tiles recomputes all of it, once a layer; one SM per KV head appends.
  void recompute_attention(TaskRange& task) const {
    task.flops += 4.0 * model_.q_rows() * static_cast<double>(context_);
    task.bytes = std::int64_t{4} * model_.kv_rows() * context_;
    const std::int64_t per_head = std::int64_t{2} * context_ * model_.head_dim, q = model_.q_rows();
    const int readers = static_cast<int>(scratch_sms());
    const Access scratch{{id("attention.scratch"), task.sm * q, (task.sm + 1) * q}, 0};
    task.reads.push_back(scratch);
    task.writes.push_back(scratch);
    for (int head = task.sm; head < model_.kv_heads; head += readers)
      task.writes.push_back({{id("kv_cache"), head * per_head, (head + 1) * per_head}, 0});
  }

  /// Each SM's best row of the vocabulary, one entry per SM, "none" from an SM without rows; then, on every SM, the best of all.
  void add_argmax() {
    DagStage stage{"argmax", Section::epilogue, {}, 1, {}};
    const GemvShape& head = schedule_.gemv(StageKind::head);
    for (int sm = 0; sm < plan_.grid; ++sm) {
      TaskRange best{WarpRole::storer, sm, sm, 1, {}, {}, 0, 0};
      const std::int64_t begin = std::int64_t{head.first_tile(sm, plan_.grid)} * head.tile_rows;
      const std::int64_t end =
          std::min<std::int64_t>(head.rows, begin + std::int64_t{head.tile_count(sm, plan_.grid)} * head.tile_rows);
      if (begin < end) best.reads.push_back({{id("logits"), begin, end}, 0});
      best.writes.push_back({{id("argmax"), sm, sm + 1}, 0});
      stage.ranges.push_back(std::move(best));
      stage.ranges.push_back({WarpRole::launcher, sm, sm, 1, {whole(id("argmax"), plan_.grid)},
                              {{{id("next_token"), sm, sm + 1}, 0}}, 0, 0});
    }
    dag_.stages.push_back(std::move(stage));
  }

  void edge(std::string_view from, WarpRole from_role, std::string_view to, WarpRole to_role, std::string_view name,
            Hazard hazard, Via via, int layer_distance = 0, int step_distance = 0) {
    if (id(name) < 0) return;
    dag_.edges.push_back({dag_.find_stage(from), dag_.find_stage(to), from_role, to_role, id(name), hazard, via,
                          layer_distance, step_distance});
  }

  /// A tensor that crosses SMs: read after written, and neither overtaken by the next layer's write.
  void exchange(std::string_view from, WarpRole from_role, std::string_view to, std::string_view name, Exchange kind,
                int layer_distance = 0, WarpRole to_role = WarpRole::consumer) {
    edge(from, from_role, to, to_role, name, Hazard::raw, via_of(kind), layer_distance);
    edge(to, to_role, from, from_role, name, Hazard::war, Via::path, 1 - layer_distance);
  }

  void add_exchange_edges() {
    constexpr WarpRole load = WarpRole::loader, multiply = WarpRole::consumer, store = WarpRole::storer;
    for (const GemvShape& shape : schedule_.gemvs) {
      const std::string name(to_string(shape.kind));
      edge(name, load, name, multiply, name + ".ring", Hazard::raw, Via::local);
      edge(name, multiply, name, load, name + ".ring", Hazard::war, Via::local, 1);
      edge(name, multiply, name, store, name + ".partials", Hazard::raw, Via::local);
      edge(name, store, name, multiply, name + ".partials", Hazard::war, Via::local, 1);
    }
    const std::string_view attention = fused() ? "output" : "attention";
    exchange("qkv", store, attention, "qkv", plan_.find(fused() ? StageKind::output : StageKind::attention)->input);
    if (!fused()) {
      edge("attention", multiply, "attention", store, "attention.partials", Hazard::raw, Via::local);
      edge("attention", store, "attention", multiply, "attention.partials", Hazard::war, Via::local, 1);
      exchange("attention", store, "output", "attention", plan_of(StageKind::output).input);
      exchange("attention", store, "output", "attention_sums", Exchange::tagged);   // sums have tags whatever the values have
    }
    exchange("output", store, "gate_up", "hidden_mid", plan_of(StageKind::gate_up).input);
    if (plan_of(StageKind::gate_up).norm == NormMode::exchange)
      exchange("output", store, "gate_up", "hidden_mid.sums", Exchange::tagged, 0, store);
    exchange("gate_up", store, "down", "ffn", plan_of(StageKind::down).input);
    exchange("down", store, "qkv", "hidden", plan_of(StageKind::qkv).input, 1);
    edge("down", store, "head", multiply, "hidden", Hazard::raw, via_of(plan_of(StageKind::head).input));
    if (plan_of(StageKind::qkv).norm == NormMode::exchange)
      exchange("down", store, "qkv", "hidden.sums", Exchange::tagged, 1, store);
    if (plan_of(StageKind::head).norm == NormMode::exchange)
      edge("down", store, "head", store, "hidden.sums", Hazard::raw, Via::tagged);
    // The same task writes the same elements a layer later: program order of one SM.
    for (const std::string_view name : {"qkv", "hidden_mid", "ffn", "hidden"}) {
      const std::string_view writer = name == "qkv" ? "qkv" : name == "hidden_mid" ? "output" : name == "ffn" ? "gate_up" : "down";
      edge(writer, store, writer, store, name, Hazard::waw, Via::local, 1);
    }
    if (!fused()) edge("attention", store, "attention", store, "attention", Hazard::waw, Via::local, 1);
  }

  /// Rows of the residual never leave the SM that owns them.
  void add_residual_edges() {
    constexpr WarpRole store = WarpRole::storer;
    edge("embedding", store, "output", store, "residual", Hazard::raw, Via::local);
    edge("output", store, "down", store, "residual", Hazard::raw, Via::local);
    edge("output", store, "down", store, "residual", Hazard::waw, Via::local);
    edge("down", store, "output", store, "residual", Hazard::raw, Via::local, 1);
    edge("down", store, "output", store, "residual", Hazard::waw, Via::local, 1);
  }

  void add_step_edges() {
    constexpr WarpRole launch = WarpRole::launcher, multiply = WarpRole::consumer, store = WarpRole::storer;
    edge("embedding", launch, "embedding", multiply, "token", Hazard::raw, Via::local);
    edge("embedding", launch, "embedding", store, "token", Hazard::raw, Via::local);
    edge("embedding", multiply, "embedding", launch, "token", Hazard::war, Via::local, 0, 1);
    edge("embedding", store, "embedding", launch, "token", Hazard::war, Via::local, 0, 1);
    edge("embedding", multiply, "qkv", multiply, "embedding_row", Hazard::raw, Via::local);
    edge("head", store, "argmax", store, "logits", Hazard::raw, Via::local);
    // Each SM's entry carries the step it belongs to, whatever the stages exchange by; two of them take turns.
    edge("argmax", store, "argmax", launch, "argmax", Hazard::raw, Via::tagged);
    edge("argmax", launch, "argmax", store, "argmax", Hazard::war, Via::path, 0, 2);
    edge("argmax", launch, "embedding", launch, "next_token", Hazard::raw, Via::local, 0, 1);
    if (fused()) {
      edge("output", multiply, "output", multiply, "kv_cache", Hazard::raw, Via::path, 0, 1);
    } else {
      // A position stays in one split, so the SM that appended it is the SM that reads it.
      edge("attention", multiply, "attention", multiply, "kv_cache", Hazard::raw, Via::local, 0, 1);
    }
  }

  const Model& model_;
  const Schedule& schedule_;
  const Plan& plan_;
  std::int64_t context_;
  int target_sm_;
  TileDag dag_;
};

template <class Value, class Get>
Value sum_tasks(const TileDag& dag, Get get) {
  Value total = 0;
  for (const DagStage& stage : dag.stages) {
    Value of_stage = 0;
    for (const TaskRange& range : stage.ranges) of_stage += get(range) * range.count;
    total += stage.section == Section::layer ? of_stage * dag.layers : of_stage;
  }
  return total;
}

}  // namespace

bool overlap(const Region& a, const Region& b) {
  if (a.tensor != b.tensor || a.begin >= b.end || b.begin >= a.end) return false;
  return a.parts != b.parts || a.part == b.part;
}

Region Access::at(int i) const {
  Region moved = region;
  moved.begin += stride * i;
  moved.end += stride * i;
  return moved;
}

int TileDag::find_tensor(std::string_view name) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name) return static_cast<int>(i);
  return -1;
}

int TileDag::find_stage(std::string_view name) const {
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (stages[i].name == name) return static_cast<int>(i);
  return -1;
}

std::int64_t TileDag::tasks() const {
  return sum_tasks<std::int64_t>(*this, [](const TaskRange&) { return std::int64_t{1}; });
}
std::int64_t TileDag::bytes() const {
  return sum_tasks<std::int64_t>(*this, [](const TaskRange& range) { return range.bytes; });
}
double TileDag::flops() const {
  return sum_tasks<double>(*this, [](const TaskRange& range) { return range.flops; });
}

Result<TileDag> make_tile_dag(const Deployment& deployment, const Plan& plan) {
  ADAMK_TRY(const Schedule schedule, make_schedule(deployment, plan));
  return make_tile_dag(deployment, schedule);
}

TileDag make_tile_dag(const Deployment& deployment, const Schedule& schedule) {
  return Builder(deployment, schedule).build();
}

}  // namespace adamk
