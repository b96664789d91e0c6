#include "common/dag_views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace adamk::views {
namespace {

Cell bytes_cell(std::int64_t bytes) {
  Cell cell(bytes);
  cell.text = bytes_text(static_cast<double>(bytes));
  return cell;
}

Cell flops_cell(double flops) {
  Cell cell(flops, 0);
  cell.text = flops >= 1e9 ? fmt::format("{:.2f} G", flops / 1e9) : fmt::format("{:.3f} M", flops / 1e6);
  return cell;
}

void add_operators(Table& table, const char* times, const std::vector<Operator>& section) {
  for (const Operator& op : section) {
    table.rows.push_back({times, to_string(op.kind), op.rows, op.k, flops_cell(op.flops), bytes_cell(op.weight_bytes),
                          bytes_cell(op.activation_bytes), joined(op.reads), joined(op.writes)});
  }
}

std::string node_name(const TileDag& dag, int stage, WarpRole role) {
  return dag.stages[static_cast<std::size_t>(stage)].name + " " + std::string(to_string(role));
}

Table stages_table(const TileDag& dag, int layer) {
  Table table{{{"stage"}, {"role"}, {"tasks", true}, {"SMs", true}, {"bytes", true}, {"FLOP", true}, {"reads"}, {"writes"}}, {}};
  for (const DagStage& stage : dag.stages) {
    if (layer >= 0 && stage.section != Section::layer) continue;
    for (const WarpRole role : {WarpRole::loader, WarpRole::consumer, WarpRole::storer, WarpRole::launcher}) {
      std::int64_t tasks = 0, bytes = 0;
      double flops = 0;
      std::set<int> sms, reads, writes;
      for (const TaskRange& range : stage.ranges) {
        if (range.role != role) continue;
        tasks += range.count, bytes += range.bytes * range.count, flops += range.flops * range.count;
        sms.insert(range.sm);
        for (const Access& access : range.reads) reads.insert(access.region.tensor);
        for (const Access& access : range.writes) writes.insert(access.region.tensor);
      }
      if (tasks == 0) continue;
      const auto names = [&](const std::set<int>& ids) {
        std::vector<std::string> found;
        for (const int id : ids) found.push_back(dag.tensors[static_cast<std::size_t>(id)].name);
        return joined(found);
      };
      table.rows.push_back({stage.name, to_string(role), tasks, sms.size(), bytes_cell(bytes), flops_cell(flops), names(reads),
                            names(writes)});
    }
  }
  return table;
}

Table edges_table(const TileDag& dag, int layer) {
  Table table{{{"from"}, {"to"}, {"tensor"}, {"hazard"}, {"by"}, {"task edges", true}, {"layers", true}, {"steps", true}}, {}};
  for (const EdgeSet& edge : dag.edges) {
    const auto outside = [&](int stage) { return dag.stages[static_cast<std::size_t>(stage)].section != Section::layer; };
    if (layer >= 0 && (outside(edge.from) || outside(edge.to))) continue;
    std::int64_t count = 0;
    for_each_task_edge(dag, edge, [&](const TaskId&, const TaskId&) { ++count; });
    table.rows.push_back({node_name(dag, edge.from, edge.from_role), node_name(dag, edge.to, edge.to_role),
                          dag.tensors[static_cast<std::size_t>(edge.tensor)].name, to_string(edge.hazard),
                          to_string(edge.via), count, edge.layer_distance, edge.step_distance});
  }
  return table;
}

template <class T>
std::vector<std::string> distinct(const SpaceEdge& edge, T member) {
  std::vector<std::string> found;
  for (const Variant& variant : edge.variants) {
    if (!variant.open()) continue;
    std::string text;
    if constexpr (std::is_same_v<decltype(variant.stage.*member), const int&>) {
      text = std::to_string(variant.stage.*member);
    } else {
      text = std::string(to_string(variant.stage.*member));
    }
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(std::move(text));
  }
  return found;
}

Table open_edges(const Space& space) {
  Table table{{{"stage"}, {"from"}, {"to"}, {"variants", true}, {"input"}, {"norm"}, {"rows"}, {"K steps"}, {"splits"}}, {}};
  for (const SpaceEdge& edge : space.edges) {
    if (!edge.open()) continue;
    const StageKind kind = edge.variants.front().stage.kind;
    const bool attention = kind == StageKind::attention;
    const bool norm = kind == StageKind::qkv || kind == StageKind::gate_up || kind == StageKind::head;
    const auto words = [&](bool applies, auto member) { return applies ? Cell(joined(distinct(edge, member))) : Cell(); };
    table.rows.push_back({edge.name, space.nodes[static_cast<std::size_t>(edge.from)].name,
                          space.nodes[static_cast<std::size_t>(edge.to)].name, edge.open_variants().size(),
                          words(true, &StagePlan::input), words(norm, &StagePlan::norm),
                          words(!attention, &StagePlan::tile_rows), words(!attention, &StagePlan::chunk_steps),
                          words(attention, &StagePlan::kv_splits)});
  }
  return table;
}

Table memory_table(const Space& space) {
  Table table{{{"warps", true}, {"rows", true}, {"K steps", true}, {"ring stage", true}, {"stages", true}, {"ring", true},
               {"partials", true}, {"attention", true}, {"residual", true}, {"barriers", true}, {"total", true}, {"limit", true}},
              {}};
  for (const MemoryRow& row : space.memory) {
    Cell stages(row.stages);
    if (row.stages < 2) stages.text = "too large";
    table.rows.push_back({row.consumer_warps, row.tile_rows, row.chunk_steps == 0 ? Cell("all of K") : Cell(row.chunk_steps),
                          row.smem.ring_stage, stages, row.smem.ring, row.smem.partials, row.smem.attention,
                          row.smem.residual, row.smem.barriers, row.smem.total(), row.limit});
  }
  return table;
}

/// Variants with the same reason are one line.
std::string ruled_out(const Space& space) {
  std::string text;
  for (const SpaceEdge& edge : space.edges) {
    if (!edge.open()) {
      text += fmt::format("  {}: {}\n", edge.name, edge.reason);
      continue;
    }
    std::vector<std::pair<std::string, int>> reasons;
    for (const Variant& variant : edge.variants) {
      if (variant.open()) continue;
      const auto same = std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == variant.reason; });
      if (same != reasons.end()) {
        ++same->second;
      } else {
        reasons.emplace_back(variant.reason, 1);
      }
    }
    for (const auto& [reason, count] : reasons) text += fmt::format("  {}: {} variants: {}\n", edge.name, count, reason);
  }
  return text;
}

}  // namespace

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.2f} MB", bytes / 1e6);
  if (bytes >= 1e4) return fmt::format("{:.1f} KB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string deployment_text(const Deployment& deployment) {
  const Model& m = deployment.model;
  const Target& t = deployment.target;
  const OperatorGraph graph = make_operator_graph(deployment);
  const double bytes = static_cast<double>(graph.weight_bytes());
  return fmt::format(
      "deployment  {}\n"
      "model       {}: {} layers, hidden {}, {} heads ({} KV) of {}, ffn {}, vocabulary {}, {:.1f} M parameters\n"
      "weights     {}, {} a step\n"
      "target      {} ({}, sm_{}, {} SMs, {:.0f} GB/s, {})\n"
      "workload    batch {}, context {}, {} steps a launch, {}\n"
      "floor       {:.1f} us a token, for the weights alone at the target's read bandwidth\n",
      deployment.key(), m.family, m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn, m.vocab,
      static_cast<double>(m.parameters()) / 1e6, to_string(deployment.weights), bytes_text(bytes), t.name, t.product, t.sm,
      t.sms, t.read_gbps, t.measured ? "measured" : "from data sheets", deployment.workload.batch,
      deployment.workload.context, deployment.workload.steps_per_launch, deployment.workload.sampling,
      t.read_gbps > 0 ? bytes / t.read_gbps / 1e3 : 0.0);
}

Table operators_table(const OperatorGraph& graph, int layer) {
  Table table{{{"times"}, {"operator"}, {"rows", true}, {"k", true}, {"FLOP", true}, {"weights", true}, {"activations", true},
               {"reads"}, {"writes"}},
              {}};
  const std::string count = layer < 0 ? std::to_string(graph.layers) : "1";
  if (layer < 0) add_operators(table, "1", graph.prologue);
  add_operators(table, count.c_str(), graph.layer);
  if (layer < 0) add_operators(table, "1", graph.epilogue);
  return table;
}

std::string operators_dot(const OperatorGraph& graph) {
  std::string text = "digraph operators {\n  rankdir=LR;\n  node [shape=box];\n";
  std::map<std::string, std::string> written_by;
  const auto add = [&](const std::vector<Operator>& section) {
    for (const Operator& op : section) {
      const std::string name(to_string(op.kind));
      text += fmt::format("  {} [label=\"{}\\n{}\"];\n", name, name, bytes_text(static_cast<double>(op.weight_bytes)));
      for (const std::string& read : op.reads) {
        const auto writer = written_by.find(read);
        if (writer != written_by.end()) text += fmt::format("  {} -> {} [label=\"{}\"];\n", writer->second, name, read);
      }
      for (const std::string& write : op.writes) written_by[write] = name;
    }
  };
  add(graph.prologue);
  text += fmt::format("  subgraph cluster_layer {{\n  label=\"layer, {} times\";\n", graph.layers);
  add(graph.layer);
  text += "  }\n";
  add(graph.epilogue);
  return text + fmt::format("  residual_mlp -> attn_norm [label=\"next layer\", style=dashed];\n}}\n");
}

std::string tiles_text(const TileDag& dag, int layer) {
  const DagResources& use = dag.resources;
  return fmt::format("plan {}: {} blocks of {} threads, {} bytes of shared memory, ring of {} x {} bytes with {} in flight\n"
                     "{} tasks a step, {} moved, {} layers of one template\n\n{}\n{}",
                     dag.plan_hash, use.grid, use.threads, use.smem_bytes, use.ring_stages, use.ring_stage_bytes, use.window,
                     dag.tasks(), bytes_text(static_cast<double>(dag.bytes())), dag.layers,
                     render(stages_table(dag, layer), TableFormat::text), render(edges_table(dag, layer), TableFormat::text));
}

std::string tiles_dot(const TileDag& dag) {
  std::string text = "digraph tiles {\n  rankdir=LR;\n  node [shape=box];\n";
  for (const EdgeSet& edge : dag.edges) {
    if (edge.via == Via::path) continue;   // no edge of its own
    const bool later = edge.layer_distance + edge.step_distance > 0;
    text += fmt::format("  \"{}\" -> \"{}\" [label=\"{} {} {}\"{}];\n", node_name(dag, edge.from, edge.from_role),
                        node_name(dag, edge.to, edge.to_role), to_string(edge.hazard),
                        dag.tensors[static_cast<std::size_t>(edge.tensor)].name, to_string(edge.via),
                        later ? ", style=dashed, constraint=false" : "");
  }
  return text + "}\n";
}

std::string space_text(const Space& space) {
  const Knobs& knobs = space.knobs;
  std::vector<std::string> windows;
  for (const std::int64_t bytes : knobs.window_bytes) windows.push_back(bytes == 0 ? "whole ring" : fmt::format("{} KB", bytes >> 10));
  std::string text = deployment_text(space.deployment);
  text += fmt::format("\n{} candidates on {} paths through {} nodes\n\n{}", space.candidates(), space.paths.size(),
                      space.nodes.size(), render(open_edges(space), TableFormat::text));
  text += fmt::format("\nFor the whole kernel\n  consumer warps  {}\n  ring stages     {} of what fits\n  in flight       {}\n"
                      "  pace            {} clocks per 8 KB (an SM's fair share: {:.0f})\n  grid            {}\n"
                      "  unroll          {} K steps of the inner loop; 0: all\n  fragments       {} in flight ahead of their mma\n",
                      fmt::join(knobs.consumer_warps, ", "), fmt::join(knobs.ring_fractions, ", "), joined(windows),
                      fmt::join(knobs.paces, ", "), space.fair_share_clocks, fmt::join(knobs.grids, ", "),
                      fmt::join(knobs.unrolls, ", "), fmt::join(knobs.fragments, ", "));
  text += fmt::format("\nShared memory, in bytes: as many ring stages as fit, K split into chunks or not\n\n{}",
                      render(memory_table(space), TableFormat::text));
  return text + "\nRuled out\n" + ruled_out(space);
}

}  // namespace adamk::views
