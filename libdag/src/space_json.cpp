// The space as JSON, for `adamk-dag space --json`.
#include <utility>

#include "adamk/dag/space.h"

namespace adamk {
namespace {

Json variant_to_json(const Variant& variant) {
  const StagePlan& stage = variant.stage;
  Json out;
  out["input"] = to_string(stage.input);
  if (stage.kind == StageKind::attention) {
    out["kv_splits"] = stage.kv_splits;
  } else {
    if (stage.kind == StageKind::qkv || stage.kind == StageKind::gate_up || stage.kind == StageKind::head)
      out["norm"] = to_string(stage.norm);
    out["tile_rows"] = stage.tile_rows;
    out["chunk_steps"] = stage.chunk_steps;
  }
  if (!variant.open()) out["reason"] = variant.reason;
  return out;
}

Json edge_to_json(const SpaceEdge& edge) {
  Json out;
  out["name"] = edge.name;
  out["from"] = edge.from;
  out["to"] = edge.to;
  out["operators"] = Json::array();
  for (const OperatorKind kind : edge.operators) out["operators"].push_back(to_string(kind));
  out["open"] = edge.open();
  if (!edge.open()) {
    out["reason"] = edge.reason;
    return out;
  }
  out["stage"] = to_string(edge.variants.front().stage.kind);
  out["open_variants"] = edge.open_variants().size();
  out["variants"] = Json::array();
  for (const Variant& variant : edge.variants) out["variants"].push_back(variant_to_json(variant));
  return out;
}

Json memory_to_json(const MemoryRow& row) {
  Json out;
  out["consumer_warps"] = row.consumer_warps;
  out["tile_rows"] = row.tile_rows;
  out["chunk_steps"] = row.chunk_steps == 0 ? Json() : Json(row.chunk_steps);
  out["ring_stage_bytes"] = row.smem.ring_stage;
  out["stages_that_fit"] = row.stages;
  out["ring_bytes"] = row.smem.ring;
  out["partials_bytes"] = row.smem.partials;
  out["attention_bytes"] = row.smem.attention;
  out["residual_bytes"] = row.smem.residual;
  out["barriers_bytes"] = row.smem.barriers;
  out["total_bytes"] = row.smem.total();
  out["limit_bytes"] = row.limit;
  out["fits"] = row.stages >= 2;
  return out;
}

}  // namespace

Json space_to_json(const Space& space) {
  Json root;
  root["format"] = "adamk.space";
  root["version"] = 1;
  root["deployment_key"] = space.deployment.key();
  root["candidates"] = space.candidates();
  root["nodes"] = Json::array();
  for (const SpaceNode& node : space.nodes) root["nodes"].push_back({{"cut", node.cut}, {"name", node.name}});
  root["edges"] = Json::array();
  for (const SpaceEdge& edge : space.edges) root["edges"].push_back(edge_to_json(edge));
  root["paths"] = Json::array();
  for (std::size_t i = 0; i < space.paths.size(); ++i) {
    Json path;
    path["edges"] = space.paths[i];
    path["candidates"] = space.path_candidates(i);
    root["paths"].push_back(std::move(path));
  }
  Json& knobs = root["knobs"];
  knobs["consumer_warps"] = space.knobs.consumer_warps;
  knobs["ring_fractions"] = space.knobs.ring_fractions;
  knobs["window_bytes"] = space.knobs.window_bytes;
  knobs["paces"] = space.knobs.paces;
  knobs["grids"] = space.knobs.grids;
  knobs["unrolls"] = space.knobs.unrolls;
  knobs["fragments"] = space.knobs.fragments;
  root["fair_share_clocks"] = space.fair_share_clocks;
  root["shared_memory"] = Json::array();
  for (const MemoryRow& row : space.memory) root["shared_memory"].push_back(memory_to_json(row));
  return root;
}

}  // namespace adamk
