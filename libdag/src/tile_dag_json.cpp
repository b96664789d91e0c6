// The tile DAG as JSON. Accesses are short arrays, [tensor, begin, end, stride] or with [.., part, parts], since there are many.
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "adamk/dag/tile_dag.h"

namespace adamk {
namespace {

constexpr std::array<std::string_view, 4> kRoles = {"loader", "consumer", "storer", "launcher"};   // as in protocol_json.cpp
constexpr std::array<std::string_view, 3> kSections = {"prologue", "layer", "epilogue"};
constexpr std::array<std::string_view, 3> kPlacements = {"memory", "split", "copy"};
constexpr std::array<std::string_view, 3> kHazards = {"raw", "war", "waw"};
constexpr std::array<std::string_view, 5> kVias = {"tagged", "counter", "barrier", "local", "path"};

// Far above any model's sizes and far below overflow when two of them are added.
constexpr std::int64_t kMost = std::int64_t{1} << 60;
constexpr std::int64_t kMostInt = std::int64_t{1} << 30;

template <class Enum, std::size_t n>
Result<Enum> parse(const std::array<std::string_view, n>& names, const JsonView& view) {
  ADAMK_TRY(const std::string text, view.text());
  for (std::size_t i = 0; i < n; ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  return tl::unexpected(view.error(Errc::bad_input, fmt::format("unknown '{}'; one of {}", text, fmt::join(names, ", "))));
}

template <class Enum, std::size_t n>
Result<Enum> parse_member(const std::array<std::string_view, n>& names, const JsonView& object, std::string_view key) {
  ADAMK_TRY(const JsonView view, object.at(key));
  return parse<Enum>(names, view);
}

Result<std::int64_t> integer(const JsonView& object, std::string_view key, std::int64_t low, std::int64_t high) {
  ADAMK_TRY(const JsonView view, object.at(key));
  return view.integer(low, high);
}

Result<int> small(const JsonView& object, std::string_view key, std::int64_t low, std::int64_t high = kMostInt) {
  ADAMK_TRY(const std::int64_t value, integer(object, key, low, high));
  return static_cast<int>(value);
}

Json accesses_to_json(const std::vector<Access>& accesses) {
  Json list = Json::array();
  for (const Access& access : accesses) {
    const Region& region = access.region;
    Json entry = Json::array({region.tensor, region.begin, region.end, access.stride});
    if (region.parts != 1) {
      entry.push_back(region.part);
      entry.push_back(region.parts);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Result<std::vector<Access>> accesses_from_json(const JsonView& view, int tensors) {
  std::vector<Access> accesses;
  ADAMK_TRY(const std::vector<JsonView> entries, view.items());
  for (const JsonView& entry : entries) {
    ADAMK_TRY(const std::vector<JsonView> fields, entry.items());
    if (fields.size() != 4 && fields.size() != 6)
      return tl::unexpected(entry.error(Errc::bad_input, "an access is [tensor, begin, end, stride] or with part, parts"));
    Access access;
    ADAMK_TRY(const std::int64_t tensor, fields[0].integer(0, tensors - 1));
    access.region.tensor = static_cast<int>(tensor);
    ADAMK_TRY(access.region.begin, fields[1].integer(-kMost, kMost));
    ADAMK_TRY(access.region.end, fields[2].integer(-kMost, kMost));
    // |stride x count| stays below kMost: count is at most kMostInt.
    ADAMK_TRY(access.stride, fields[3].integer(-kMostInt, kMostInt));
    if (fields.size() == 6) {
      ADAMK_TRY(const std::int64_t parts, fields[5].integer(1, 1024));
      ADAMK_TRY(const std::int64_t part, fields[4].integer(0, parts - 1));
      access.region.part = static_cast<int>(part);
      access.region.parts = static_cast<int>(parts);
    }
    accesses.push_back(access);
  }
  return accesses;
}

Json stage_to_json(const DagStage& stage) {
  Json out;
  out["name"] = stage.name;
  out["section"] = to_string(stage.section);
  if (!stage.slices.empty()) {
    Json slices = Json::array();
    for (const KSlice& slice : stage.slices) slices.push_back({slice.begin, slice.end});
    out["k_slices"] = std::move(slices);
  }
  out["parts"] = stage.parts;
  Json ranges = Json::array();
  for (const TaskRange& range : stage.ranges) {
    Json entry;
    entry["role"] = to_string(range.role);
    entry["sm"] = range.sm;
    entry["first"] = range.first;
    entry["count"] = range.count;
    entry["reads"] = accesses_to_json(range.reads);
    entry["writes"] = accesses_to_json(range.writes);
    entry["bytes"] = range.bytes;
    entry["flops"] = range.flops;
    ranges.push_back(std::move(entry));
  }
  out["ranges"] = std::move(ranges);
  return out;
}

Result<TaskRange> range_from_json(const JsonView& view, int tensors) {
  ADAMK_CHECK(view.only_keys({"role", "sm", "first", "count", "reads", "writes", "bytes", "flops"}));
  TaskRange range;
  ADAMK_TRY(range.role, parse_member<WarpRole>(kRoles, view, "role"));
  ADAMK_TRY(range.sm, small(view, "sm", 0));
  ADAMK_TRY(range.first, small(view, "first", 0));
  // Bounds what expanding a hostile file costs.
  ADAMK_TRY(range.count, small(view, "count", 1, 1 << 20));
  ADAMK_TRY(const JsonView reads, view.at("reads"));
  ADAMK_TRY(range.reads, accesses_from_json(reads, tensors));
  ADAMK_TRY(const JsonView writes, view.at("writes"));
  ADAMK_TRY(range.writes, accesses_from_json(writes, tensors));
  ADAMK_TRY(range.bytes, integer(view, "bytes", 0, kMost));
  ADAMK_TRY(const JsonView flops, view.at("flops"));
  ADAMK_TRY(range.flops, flops.number(0));
  return range;
}

Result<DagStage> stage_from_json(const JsonView& view, int tensors) {
  ADAMK_CHECK(view.only_keys({"name", "section", "k_slices", "parts", "ranges"}));
  DagStage stage;
  ADAMK_TRY(const JsonView name, view.at("name"));
  ADAMK_TRY(stage.name, name.text());
  ADAMK_TRY(stage.section, parse_member<Section>(kSections, view, "section"));
  if (const auto slices = view.find("k_slices")) {
    ADAMK_TRY(const std::vector<JsonView> entries, slices->items());
    for (const JsonView& entry : entries) {
      ADAMK_TRY(const std::vector<JsonView> ends, entry.items());
      if (ends.size() != 2) return tl::unexpected(entry.error(Errc::bad_input, "a K slice is [begin, end]"));
      KSlice slice;
      ADAMK_TRY(slice.begin, ends[0].integer(0, kMost));
      ADAMK_TRY(slice.end, ends[1].integer(0, kMost));
      stage.slices.push_back(slice);
    }
  }
  ADAMK_TRY(stage.parts, small(view, "parts", 1, 1 << 20));
  ADAMK_TRY(const JsonView ranges, view.at("ranges"));
  ADAMK_TRY(const std::vector<JsonView> entries, ranges.items());
  for (const JsonView& entry : entries) {
    ADAMK_TRY(TaskRange range, range_from_json(entry, tensors));
    stage.ranges.push_back(std::move(range));
  }
  return stage;
}

Json edge_to_json(const EdgeSet& edge) {
  Json out;
  out["from"] = edge.from;
  out["from_role"] = to_string(edge.from_role);
  out["to"] = edge.to;
  out["to_role"] = to_string(edge.to_role);
  out["tensor"] = edge.tensor;
  out["hazard"] = to_string(edge.hazard);
  out["via"] = to_string(edge.via);
  out["layer_distance"] = edge.layer_distance;
  out["step_distance"] = edge.step_distance;
  return out;
}

Result<EdgeSet> edge_from_json(const JsonView& view, int tensors, int stages) {
  ADAMK_CHECK(view.only_keys(
      {"from", "from_role", "to", "to_role", "tensor", "hazard", "via", "layer_distance", "step_distance"}));
  EdgeSet edge;
  ADAMK_TRY(edge.from, small(view, "from", 0, stages - 1));
  ADAMK_TRY(edge.from_role, parse_member<WarpRole>(kRoles, view, "from_role"));
  ADAMK_TRY(edge.to, small(view, "to", 0, stages - 1));
  ADAMK_TRY(edge.to_role, parse_member<WarpRole>(kRoles, view, "to_role"));
  ADAMK_TRY(edge.tensor, small(view, "tensor", 0, tensors - 1));
  ADAMK_TRY(edge.hazard, parse_member<Hazard>(kHazards, view, "hazard"));
  ADAMK_TRY(edge.via, parse_member<Via>(kVias, view, "via"));
  ADAMK_TRY(edge.layer_distance, small(view, "layer_distance", 0));
  ADAMK_TRY(edge.step_distance, small(view, "step_distance", 0));
  return edge;
}

Json resources_to_json(const DagResources& use) {
  Json out;
  out["grid"] = use.grid;
  out["threads"] = use.threads;
  out["consumer_warps"] = use.consumer_warps;
  out["smem_bytes"] = use.smem_bytes;
  out["ring_stages"] = use.ring_stages;
  out["ring_stage_bytes"] = use.ring_stage_bytes;
  out["window"] = use.window;
  out["registers_per_thread"] = use.registers_per_thread;
  return out;
}

Result<DagResources> resources_from_json(const JsonView& view) {
  ADAMK_CHECK(view.only_keys({"grid", "threads", "consumer_warps", "smem_bytes", "ring_stages", "ring_stage_bytes", "window",
                              "registers_per_thread"}));
  DagResources use;
  ADAMK_TRY(use.grid, small(view, "grid", 0));
  ADAMK_TRY(use.threads, small(view, "threads", 0));
  ADAMK_TRY(use.consumer_warps, small(view, "consumer_warps", 0));
  ADAMK_TRY(use.smem_bytes, integer(view, "smem_bytes", 0, kMost));
  ADAMK_TRY(use.ring_stages, small(view, "ring_stages", 0));
  ADAMK_TRY(use.ring_stage_bytes, integer(view, "ring_stage_bytes", 0, kMost));
  ADAMK_TRY(use.window, small(view, "window", 0));
  ADAMK_TRY(use.registers_per_thread, small(view, "registers_per_thread", 0));
  return use;
}

Result<DagTensor> tensor_from_json(const JsonView& view, int storages) {
  ADAMK_CHECK(view.only_keys({"name", "elements", "element_bytes", "placement", "per_layer", "appended", "storage"}));
  DagTensor tensor;
  ADAMK_TRY(const JsonView name, view.at("name"));
  ADAMK_TRY(tensor.name, name.text());
  ADAMK_TRY(tensor.elements, integer(view, "elements", 0, kMost));
  ADAMK_TRY(tensor.element_bytes, small(view, "element_bytes", 1, 64));
  ADAMK_TRY(tensor.placement, parse_member<Placement>(kPlacements, view, "placement"));
  ADAMK_TRY(const JsonView per_layer, view.at("per_layer"));
  ADAMK_TRY(tensor.per_layer, per_layer.boolean());
  if (const auto appended = view.find("appended")) {
    ADAMK_TRY(tensor.appended, appended->boolean());
  }
  if (const auto storage = view.find("storage")) {
    ADAMK_TRY(const std::int64_t index, storage->integer(0, storages - 1));
    tensor.storage = static_cast<int>(index);
  }
  return tensor;
}

}  // namespace

std::string_view to_string(Section section) { return kSections[static_cast<std::size_t>(section)]; }
std::string_view to_string(Placement placement) { return kPlacements[static_cast<std::size_t>(placement)]; }
std::string_view to_string(Hazard hazard) { return kHazards[static_cast<std::size_t>(hazard)]; }
std::string_view to_string(Via via) { return kVias[static_cast<std::size_t>(via)]; }

Json tile_dag_to_json(const TileDag& dag) {
  Json root;
  root["plan_hash"] = dag.plan_hash;
  root["layers"] = dag.layers;
  root["resources"] = resources_to_json(dag.resources);
  root["tensors"] = Json::array();
  for (const DagTensor& tensor : dag.tensors) {
    Json entry;
    entry["name"] = tensor.name;
    entry["elements"] = tensor.elements;
    entry["element_bytes"] = tensor.element_bytes;
    entry["placement"] = to_string(tensor.placement);
    entry["per_layer"] = tensor.per_layer;
    if (tensor.appended) entry["appended"] = true;
    if (tensor.storage >= 0) entry["storage"] = tensor.storage;
    root["tensors"].push_back(std::move(entry));
  }
  root["stages"] = Json::array();
  for (const DagStage& stage : dag.stages) root["stages"].push_back(stage_to_json(stage));
  root["edges"] = Json::array();
  for (const EdgeSet& edge : dag.edges) root["edges"].push_back(edge_to_json(edge));
  root["protocol"] = protocol_to_json(dag.protocol);
  return root;
}

Result<TileDag> tile_dag_from_json(const JsonView& root) {
  ADAMK_CHECK(root.only_keys({"plan_hash", "layers", "resources", "tensors", "stages", "edges", "protocol"}));
  TileDag dag;
  ADAMK_TRY(const JsonView hash, root.at("plan_hash"));
  ADAMK_TRY(dag.plan_hash, hash.text());
  ADAMK_TRY(dag.layers, small(root, "layers", 1, 1 << 16));
  ADAMK_TRY(const JsonView resources, root.at("resources"));
  ADAMK_TRY(dag.resources, resources_from_json(resources));
  ADAMK_TRY(const JsonView tensors, root.at("tensors"));
  ADAMK_TRY(const std::vector<JsonView> tensor_entries, tensors.items());
  ADAMK_TRY(const JsonView stages, root.at("stages"));
  ADAMK_TRY(const std::vector<JsonView> stage_entries, stages.items());
  ADAMK_TRY(const JsonView protocol, root.at("protocol"));
  ADAMK_TRY(dag.protocol, protocol_from_json(protocol, static_cast<int>(tensor_entries.size()), static_cast<int>(stage_entries.size())));
  for (const JsonView& entry : tensor_entries) {
    ADAMK_TRY(DagTensor tensor, tensor_from_json(entry, static_cast<int>(dag.protocol.storages.size())));
    dag.tensors.push_back(std::move(tensor));
  }
  const int tensor_count = static_cast<int>(dag.tensors.size());
  for (const JsonView& entry : stage_entries) {
    ADAMK_TRY(DagStage stage, stage_from_json(entry, tensor_count));
    dag.stages.push_back(std::move(stage));
  }
  ADAMK_TRY(const JsonView edges, root.at("edges"));
  ADAMK_TRY(const std::vector<JsonView> edge_entries, edges.items());
  for (const JsonView& entry : edge_entries) {
    ADAMK_TRY(const EdgeSet edge, edge_from_json(entry, tensor_count, static_cast<int>(dag.stages.size())));
    dag.edges.push_back(edge);
  }
  return dag;
}

}  // namespace adamk
