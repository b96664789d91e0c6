#include "adamk/cost/model.h"

#include <algorithm>
#include <cmath>

namespace adamk {
namespace {

constexpr std::int64_t kCopyBytes = 8192;   // what `pace` spaces out

/// What every stage of one schedule shares.
struct Context {
  const Deployment& deployment;
  const Schedule& schedule;
  const CostConstants& constants;
  const TileTerms& tiles;
  std::int64_t positions;
  double clocks_per_us;
  double bytes_per_us;      // of all SMs together
  double queue_us;          // an exchange's requests wait behind this much of the loader's traffic

  double us(double clocks) const { return clocks / clocks_per_us; }
};

double clocks_per_us(const Target& target) { return target.clock_mhz > 0 ? target.clock_mhz : 1500.0; }

double pace_gbps(const Target& target, const Plan& plan) {
  const double us_per_copy = plan.pace / clocks_per_us(target);
  return static_cast<double>(kCopyBytes) * plan.grid / us_per_copy / 1e3;
}

std::int64_t bytes_in_flight(const Schedule& schedule) {
  return schedule.smem.ring_stage * std::min(schedule.plan.window, schedule.plan.ring_stages);
}

Context make_context(const Deployment& deployment, const Schedule& schedule, std::int64_t position,
                     const CostConstants& constants, const TileTerms& tiles) {
  const Target& target = deployment.target;
  const Plan& plan = schedule.plan;
  const std::int64_t flight = bytes_in_flight(schedule);
  double gbps = window_gbps(target, plan.grid, flight, constants);
  // Beyond the bandwidth-delay product, bytes in flight only lengthen the queue (bufferbloat); pacing keeps it empty.
  const double drain_us = static_cast<double>(flight) * plan.grid / (target.read_gbps * 1e3);
  double queue_us = std::max(0.0, drain_us - constants.memory_latency_us);
  if (plan.pace > 0) {
    const double paced = pace_gbps(target, plan);
    if (paced <= gbps) queue_us = 0;
    gbps = std::min(gbps, paced);
  }
  return {deployment, schedule, constants, tiles,
          position < 0 ? deployment.workload.context : std::min(position, deployment.workload.context),
          clocks_per_us(target), gbps * 1e3, queue_us};
}

const ExchangeCost& exchange_cost(const CostConstants& constants, Exchange exchange) {
  switch (exchange) {
    case Exchange::tagged: return constants.tagged;
    case Exchange::counter: return constants.counter;
    case Exchange::barrier: return constants.barrier;
  }
  return constants.barrier;
}

struct Hop {
  double latency_us, serial_us;
};

/// Every SM reads all `values` inputs from L2: packets take 4 bytes a value, plain data 2.
Hop hop(const Context& context, Exchange exchange, double values) {
  const Target& target = context.deployment.target;
  const ExchangeCost& cost = exchange_cost(context.constants, exchange);
  const double bytes = values * (exchange == Exchange::tagged ? 4 : 2) * context.schedule.plan.grid;
  const double volume_us = bytes / (target.read_gbps * 1e3 * context.constants.l2_share);
  return {cost.latency * target.hop_us + volume_us + context.queue_us, cost.serial * target.hop_us};
}

/// Values that reach each SM at the start of a stage.
double inputs(const Context& context, const StagePlan& stage) {
  const Model& model = context.deployment.model;
  switch (stage.kind) {
    case StageKind::qkv:
    case StageKind::gate_up:
    case StageKind::head: return model.hidden;
    case StageKind::attention: return model.head_dim * (model.group() + 2);   // one KV head and its queries
    case StageKind::output:
      return stage.fused_attention ? model.q_rows() + 2 * model.kv_rows()
                                   : static_cast<double>(model.q_rows()) * context.schedule.attention.splits;
    case StageKind::down: return context.schedule.gemv(StageKind::gate_up).values_out;
  }
  return 0;
}

double norm_clocks(const Context& context, const StagePlan& stage) {
  const bool has_norm =
      stage.kind == StageKind::qkv || stage.kind == StageKind::gate_up || stage.kind == StageKind::head;
  if (!has_norm) return 0;
  const Plan& plan = context.schedule.plan;
  if (stage.norm == NormMode::exchange) return context.constants.norm_sum_clocks * plan.grid / plan.consumer_warps;
  return context.constants.norm_clocks;
}

double late_silu_clocks(const Context& context, const StagePlan& stage) {
  if (stage.kind != StageKind::down || context.schedule.gemv(StageKind::gate_up).order == RowOrder::interleaved) return 0;
  return context.constants.silu_clocks * context.deployment.model.ffn / (32.0 * context.schedule.plan.consumer_warps);
}

/// Consumer warps on one tile: what is known of this kernel, else every chunk has its fixed price, then shared memory or the
/// warps' issue limits.
double tile_clocks(const Context& context, const GemvShape& gemv) {
  if (const auto known = context.tiles.find(gemv.kind); known != context.tiles.end()) return known->second;
  const CostConstants& constants = context.constants;
  const double rate =
      std::min(constants.smem_bytes_per_clock, constants.warp_bytes_per_clock * context.schedule.plan.consumer_warps);
  return gemv.chunks * constants.chunk_clocks + static_cast<double>(gemv.tile_bytes) / rate;
}

double storer_clocks(const Context& context, const GemvShape& gemv) {
  const CostConstants& constants = context.constants;
  return (constants.storer_clocks + constants.storer_warp_clocks * context.schedule.plan.consumer_warps) *
         (gemv.tile_rows / 16);
}

/// Attention by the output stage's readers: every SM runs over the whole KV cache, which comes from L2 after the first.
double fused_attention_us(const Context& context) {
  const Model& model = context.deployment.model;
  const AttentionShape& shape = context.schedule.attention;
  const double kv_bytes = 4.0 * model.kv_rows() * static_cast<double>(context.positions);
  const double l2_us = kv_bytes * context.schedule.plan.grid /
                       (context.deployment.target.read_gbps * 1e3 * context.constants.l2_share);
  const double heads_per_warp = std::max(1.0, std::ceil(double(model.heads) / context.schedule.plan.consumer_warps));
  const double at_once = std::max(1, 32 / shape.lanes_per_position);
  const double serial = std::ceil(static_cast<double>(context.positions) / at_once) * context.constants.position_clocks;
  return std::max(l2_us, context.us(serial * heads_per_warp)) + context.us(context.constants.combine_clocks / 2);
}

StageCost attention_cost(const Context& context, const StagePlan& stage) {
  const Model& model = context.deployment.model;
  const AttentionShape& shape = context.schedule.attention;
  const Plan& plan = context.schedule.plan;
  const double items_per_sm = std::ceil(double(shape.items) / plan.grid);
  const double positions = std::ceil(static_cast<double>(context.positions) / shape.splits);   // per item
  const double fair = context.bytes_per_us / plan.grid;
  const double read_us = items_per_sm * positions * model.head_dim * 4 / (fair * context.constants.sm_share);
  const double at_once = plan.consumer_warps * std::max(1, 32 / shape.lanes_per_position);
  // A known turn takes several positions of each lane group; the formula prices them one by one.
  const auto known = context.tiles.find(stage.kind);
  const double serial = shape.passes * items_per_sm *
                        (known != context.tiles.end()
                             ? std::ceil(positions / (at_once * shape.positions_together)) * known->second
                             : std::ceil(positions / at_once) * shape.heads_per_pass * context.constants.position_clocks);
  const Hop exchange = hop(context, stage.input, inputs(context, stage));
  StageCost cost{.kind = stage.kind, .times = model.layers};
  cost.exchange_us = exchange.latency_us + exchange.serial_us;   // K and V are too little to prefetch behind it
  cost.attention_us = std::max(read_us, context.us(serial)) + context.us(context.constants.combine_clocks);
  cost.bytes = std::int64_t{4} * model.kv_rows() * context.positions;
  return cost;
}

void add_reading(const Context& context, const GemvShape& gemv, StageCost& cost) {
  const Plan& plan = context.schedule.plan;
  const double packed = static_cast<double>(gemv.bytes());
  const double own = std::min(packed, 2.0 * gemv.rows * gemv.k);
  cost.read_us = own / context.bytes_per_us;
  cost.padding_us = (packed - own) / context.bytes_per_us;
  // Where few SMs have work, one SM cannot draw much more than its fair share.
  const double most = static_cast<double>(gemv.max_tiles_per_sm(plan.grid)) * static_cast<double>(gemv.tile_bytes);
  const double slowest_us = most / (context.bytes_per_us / plan.grid * context.constants.sm_share);
  cost.imbalance_us = std::max(0.0, slowest_us - cost.read_us - cost.padding_us);
}

StageCost gemv_cost(const Context& context, const StagePlan& stage) {
  const Plan& plan = context.schedule.plan;
  const GemvShape& gemv = context.schedule.gemv(stage.kind);
  const bool head = stage.kind == StageKind::head;
  StageCost cost{.kind = stage.kind, .times = head ? 1 : context.deployment.model.layers};
  cost.bytes = gemv.bytes();
  add_reading(context, gemv, cost);
  const double reading_us = cost.read_us + cost.padding_us + cost.imbalance_us;

  // While inputs are awaited the loader fills the ring: that much reading is hidden behind the exchange, or it behind that.
  const Hop exchange = hop(context, stage.input, inputs(context, stage));
  const double ring_us = static_cast<double>(context.schedule.smem.ring) * plan.grid / context.bytes_per_us;
  const double hidden_us = std::min({exchange.latency_us, ring_us, reading_us});
  cost.exchange_us = exchange.latency_us - hidden_us + exchange.serial_us;
  if (head) {   // the argmax travels to every SM before the next token can start
    const Hop token = hop(context, Exchange::tagged, plan.grid);
    cost.exchange_us += token.latency_us + token.serial_us;
  }

  const int tiles = gemv.max_tiles_per_sm(plan.grid);
  const double tile_us = context.us(tile_clocks(context, gemv));
  // Consumers cannot start before the inputs are there; from then on they are bound by reading or by themselves.
  cost.compute_us = std::max(0.0, tiles * tile_us - (reading_us - hidden_us)) +
                    context.us(norm_clocks(context, stage) + late_silu_clocks(context, stage));
  const double storer_us = context.us(storer_clocks(context, gemv));
  const double per_tile_us = std::max(tile_us, reading_us / std::max(1, tiles));
  cost.storer_us = storer_us + (tiles - 1) * std::max(0.0, storer_us - per_tile_us);
  if (stage.kind == StageKind::output && stage.fused_attention) {
    cost.attention_us = fused_attention_us(context);
    cost.bytes += std::int64_t{4} * context.deployment.model.kv_rows() * context.positions;
  }
  return cost;
}

}  // namespace

std::string_view cost_model_version() { return "cost 1"; }

double window_gbps(const Target& target, int grid, std::int64_t bytes_in_flight, const CostConstants& constants) {
  // A grid smaller than the chip loses what its SMs cannot take over from the idle ones.
  const double reachable =
      target.read_gbps * std::min(1.0, constants.sm_share * grid / std::max(1, target.sms));
  const double little = static_cast<double>(bytes_in_flight) * grid / constants.memory_latency_us / 1e3;
  const double x = little / reachable;
  return reachable * x / std::pow(1 + x * x * x * x, 0.25);
}

Cost predict(const Deployment& deployment, const Schedule& schedule, std::int64_t position,
             const CostConstants& constants, const TileTerms& tiles) {
  const Context context = make_context(deployment, schedule, position, constants, tiles);
  Cost cost;
  for (const StagePlan& stage : schedule.plan.stages) {
    cost.stages.push_back(stage.kind == StageKind::attention ? attention_cost(context, stage)
                                                             : gemv_cost(context, stage));
    const StageCost& added = cost.stages.back();
    cost.us_per_token += added.times * added.total_us();
    cost.bytes_per_token += static_cast<double>(added.times) * static_cast<double>(added.bytes);
  }
  return cost;
}

double necessary_bytes(const Deployment& deployment, std::int64_t position) {
  const Model& model = deployment.model;
  const double hidden = model.hidden;
  const double layer = hidden * (model.q_rows() + 2.0 * model.kv_rows()) + hidden * model.q_rows() +
                       3.0 * hidden * model.ffn;
  const double positions = static_cast<double>(position < 0 ? deployment.workload.context
                                                            : std::min(position, deployment.workload.context));
  const double kv = 2.0 * model.kv_rows() * positions;
  return 2.0 * (model.layers * (layer + kv) + hidden * model.vocab);
}

}  // namespace adamk
