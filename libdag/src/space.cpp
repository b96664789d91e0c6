// Nodes, edges and variants of the search DAG.
#include "adamk/dag/space.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "space_plans.h"

namespace adamk {
namespace {

constexpr int kChunkSteps[] = {1, 2, 4, 8};
constexpr int kTileRows[] = {16, 32};
constexpr int kSplits[] = {1, 2, 4, 8, 16};
constexpr Exchange kExchanges[] = {Exchange::tagged, Exchange::counter, Exchange::barrier};
constexpr NormMode kNorms[] = {NormMode::recompute, NormMode::exchange};

std::vector<OperatorKind> operators_of(const OperatorGraph& graph) {
  std::vector<OperatorKind> kinds;
  for (const auto* section : {&graph.layer, &graph.epilogue})
    for (const Operator& op : *section) kinds.push_back(op.kind);
  return kinds;
}

/// Declares nodes and edges by the operators they lie between.
class DagBuilder {
 public:
  explicit DagBuilder(Space& space)
      : space_(space), model_(space.deployment.model), operators_(operators_of(make_operator_graph(space.deployment))) {}

  void build() {
    space_.nodes.push_back({0, "layer start"});
    for (std::size_t i = 0; i < operators_.size(); ++i) {
      const bool last_of_layer = operators_[i] == OperatorKind::residual_mlp;
      space_.nodes.push_back({static_cast<int>(i) + 1,
                              last_of_layer ? "layer end" : fmt::format("after {}", to_string(operators_[i]))});
    }
    add_open_edges();
    add_closed_edges();
  }

 private:
  int before(OperatorKind kind) const {
    return static_cast<int>(std::find(operators_.begin(), operators_.end(), kind) - operators_.begin());
  }

  SpaceEdge& edge(std::string name, OperatorKind first, OperatorKind last) {
    SpaceEdge edge;
    edge.from = before(first);
    edge.to = before(last) + 1;
    edge.name = std::move(name);
    edge.operators.assign(operators_.begin() + edge.from, operators_.begin() + edge.to);
    space_.edges.push_back(std::move(edge));
    return space_.edges.back();
  }

  void open(std::string name, OperatorKind first, OperatorKind last, StagePlan stage, bool has_norm) {
    SpaceEdge& added = edge(std::move(name), first, last);
    for (const Exchange input : kExchanges) {
      stage.input = input;
      if (stage.kind == StageKind::attention) {
        for (const int splits : kSplits) {
          stage.kv_splits = splits;
          added.variants.push_back({stage, {}});
        }
        continue;
      }
      for (const NormMode norm : kNorms) {
        if (norm == NormMode::exchange && !has_norm) continue;
        stage.norm = norm;
        for (const int rows : kTileRows) {
          stage.tile_rows = rows;
          for (const int steps : kChunkSteps) {
            stage.chunk_steps = steps;
            added.variants.push_back({stage, {}});
          }
        }
      }
    }
  }

  static StagePlan plain(StageKind kind) {
    StagePlan stage;
    stage.kind = kind;
    return stage;
  }

  void add_open_edges() {
    using enum OperatorKind;
    open("qkv", attn_norm, qkv, plain(StageKind::qkv), true);
    open("attention", model_.qk_norm ? qk_norm : rope, attention, plain(StageKind::attention), false);
    open("output", o_proj, residual_attn, plain(StageKind::output), false);
    StagePlan fused = plain(StageKind::output);
    fused.fused_attention = true;
    open("output with attention", model_.qk_norm ? qk_norm : rope, residual_attn, fused, false);
    open("gate_up with SiLU", mlp_norm, silu_mul, plain(StageKind::gate_up), true);
    StagePlan unfused = plain(StageKind::gate_up);
    unfused.fused_silu = false;
    open("gate_up", mlp_norm, gate_up, unfused, true);
    open("down", down, residual_mlp, plain(StageKind::down), false);
    open("SiLU with down", silu_mul, residual_mlp, plain(StageKind::down), false);
    open("head", final_norm, argmax, plain(StageKind::head), true);
  }

  void close(std::string name, OperatorKind first, OperatorKind last, std::string reason) {
    edge(std::move(name), first, last).reason = std::move(reason);
  }

  /// What a reader of the design would look for and not find.
  void add_closed_edges() {
    using enum OperatorKind;
    const double hop = space_.deployment.target.hop_us;
    const auto one_more = [&](std::string_view what) {
      return fmt::format("dominated: {}; a stage of its own costs one more exchange ({:.2f} us) in every layer", what, hop);
    };
    const std::string norm = one_more(fmt::format("whoever reads the {} inputs can add up their squares", model_.hidden));
    close("attn_norm alone", attn_norm, attn_norm, norm);
    close("mlp_norm alone", mlp_norm, mlp_norm, norm);
    close("final_norm alone", final_norm, final_norm, norm);
    close("qkv with rope", attn_norm, rope,
          fmt::format("infeasible: QK-norm and rope need whole heads of {} rows where they are applied, but a tile holds 16 "
                      "or 32 rows of one SM; attention applies them as it reads",
                      model_.head_dim));
    close("qkv with attention", attn_norm, attention,
          fmt::format("infeasible: a KV head's attention needs {} rows of q, k and v, which lie in tiles on several SMs",
                      (model_.group() + 2) * model_.head_dim));
    const std::string residual = one_more(fmt::format("the storer of a tile holds the residual of its rows already"));
    close("o_proj without residual", o_proj, o_proj, residual);
    close("residual_attn alone", residual_attn, residual_attn, residual);
    close("SiLU alone", silu_mul, silu_mul, one_more("gate_up's storer or down's reader computes it in registers"));
    close("down without residual", down, down, residual);
    close("residual_mlp alone", residual_mlp, residual_mlp, residual);
    close("whole MLP", mlp_norm, residual_mlp,
          fmt::format("infeasible: every output of down needs all {} values of gate_up, so each SM would stream all {} bytes "
                      "of its weights",
                      model_.ffn, std::int64_t{4} * model_.ffn * model_.hidden));
    close("head without argmax", final_norm, head,
          fmt::format("dominated: the SMs would publish {} logits instead of one candidate each", model_.vocab));
    close("argmax alone", argmax, argmax, "dominated: follows from the head without argmax");
  }

  Space& space_;
  const Model& model_;
  std::vector<OperatorKind> operators_;
};

/// The least demanding plan that holds `variant`: if this one does not fit, none with the variant does.
Plan lightest_plan(const Space& space, const StagePlan& variant, int warps) {
  Plan plan;
  plan.grid = space.deployment.target.sms;
  plan.consumer_warps = warps;
  plan.ring_stages = 2;
  plan.window = 1;
  for (const StageKind kind : {StageKind::qkv, StageKind::attention, StageKind::output, StageKind::gate_up,
                               StageKind::down, StageKind::head}) {
    StagePlan stage;
    stage.kind = kind;
    stage.chunk_steps = 1;
    if (kind == StageKind::attention && variant.fused_attention) continue;
    if (kind == variant.kind) stage = variant;
    plan.stages.push_back(stage);
  }
  plans::tie(plan, variant);
  return plan;
}

void rule_out_variants(Space& space) {
  for (SpaceEdge& edge : space.edges) {
    for (Variant& variant : edge.variants) {
      if (variant.stage.kind == StageKind::attention && variant.stage.kv_splits > space.deployment.workload.context) {
        variant.reason = fmt::format("kv_splits: {} over a context of {} positions", variant.stage.kv_splits,
                                     space.deployment.workload.context);
        continue;
      }
      for (const int warps : space.knobs.consumer_warps) {
        const Result<Plan> plan = plans::check(space.deployment, lightest_plan(space, variant.stage, warps));
        if (plan) {
          variant.reason.clear();
          break;
        }
        variant.reason = plan.error().message;
      }
    }
  }
}

/// A grid of all SMs; the largest one on which every SM owns equally many residual tiles; and, for models with fewer tiles
/// than SMs, the grids that leave no SM idle in some stage.
std::vector<int> grids(const Deployment& deployment) {
  const int sms = deployment.target.sms, tiles = (deployment.model.hidden + 15) / 16;
  std::vector<int> values = {sms};
  for (int grid = sms - 1; 10 * grid >= 9 * sms; --grid) {
    if (tiles % grid == 0 || grid % tiles == 0) {
      values.push_back(grid);
      break;
    }
  }
  const Model& model = deployment.model;
  for (const int rows : {2 * model.ffn, model.q_rows() + 2 * model.kv_rows(), model.hidden}) {
    const int grid = (rows + 15) / 16;
    if (grid < sms) values.push_back(grid);
  }
  for (int grid = std::min(sms, tiles) / 2; tiles < sms && grid >= 1; grid /= 2) values.push_back(grid);
  std::sort(values.begin(), values.end(), std::greater<>());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

double fair_share_clocks(const Target& target) {
  if (target.read_gbps <= 0) return 0;
  return 8192.0 * target.sms / (target.read_gbps * 1e9) * target.clock_mhz * 1e6;
}

Knobs make_knobs(const Space& space) {
  Knobs knobs;
  for (const int warps : {16, 8, 4})
    if (32 * (warps + 1) <= space.deployment.target.max_threads_per_block) knobs.consumer_warps.push_back(warps);
  knobs.ring_fractions = {1.0, 0.75, 0.5};
  knobs.window_bytes = {64 << 10, 48 << 10, 32 << 10, 96 << 10, 0};
  knobs.paces = {0};
  // Faster than the fair share is best (1.14 to 1.2 of it on an H200, docs/performance.md), too slow costs more than too fast.
  for (const double factor : {1.17, 1.10, 1.0}) {
    const int clocks = static_cast<int>(std::lround(space.fair_share_clocks / factor));
    if (clocks > 0 && clocks != knobs.paces.back()) knobs.paces.push_back(clocks);
  }
  knobs.grids = grids(space.deployment);
  knobs.unrolls = {0, 2, 1};
  knobs.fragments = {1, 2, 4};
  return knobs;
}

/// An edge whose every variant is ruled out is ruled out itself.
void close_edges_without_variants(Space& space) {
  for (SpaceEdge& edge : space.edges) {
    if (edge.open() && edge.open_variants().empty())
      edge.reason = edge.variants.empty() ? "no variant" : "no variant fits: " + edge.variants.front().reason;
  }
}

void extend_paths(Space& space, int at, std::vector<int>& path) {
  if (at + 1 == static_cast<int>(space.nodes.size())) {
    space.paths.push_back(path);
    return;
  }
  for (std::size_t i = 0; i < space.edges.size(); ++i) {
    if (!space.edges[i].open() || space.edges[i].from != at) continue;
    path.push_back(static_cast<int>(i));
    extend_paths(space, space.edges[i].to, path);
    path.pop_back();
  }
}

}  // namespace

std::vector<int> SpaceEdge::open_variants() const {
  std::vector<int> found;
  for (std::size_t i = 0; i < variants.size(); ++i)
    if (variants[i].open()) found.push_back(static_cast<int>(i));
  return found;
}

std::uint64_t Knobs::combinations() const {
  return consumer_warps.size() * ring_fractions.size() * window_bytes.size() * paces.size() * grids.size() *
         unrolls.size() * fragments.size();
}

std::uint64_t Space::path_candidates(std::size_t path) const {
  std::uint64_t product = knobs.combinations();
  for (const int edge : paths[path]) product *= edges[static_cast<std::size_t>(edge)].open_variants().size();
  return product;
}

std::uint64_t Space::candidates() const {
  std::uint64_t total = 0;
  for (std::size_t path = 0; path < paths.size(); ++path) total += path_candidates(path);
  return total;
}

Result<Space> make_space(const Deployment& deployment) {
  ADAMK_TRY(const Plan exists, default_plan(deployment));
  static_cast<void>(exists);
  Space space;
  space.deployment = deployment;
  DagBuilder(space).build();
  space.fair_share_clocks = fair_share_clocks(deployment.target);
  space.knobs = make_knobs(space);
  rule_out_variants(space);
  close_edges_without_variants(space);
  std::vector<int> path;
  extend_paths(space, 0, path);
  space.memory = plans::memory_table(deployment, space.knobs);
  return space;
}

}  // namespace adamk
