#include "adamk/dag/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "adamk/base/hash.h"
#include "adamk/base/names.h"

namespace adamk {
namespace {

constexpr std::array kStageNames{std::pair{StageKind::qkv, "qkv"},         std::pair{StageKind::attention, "attention"},
                                 std::pair{StageKind::output, "output"},   std::pair{StageKind::gate_up, "gate_up"},
                                 std::pair{StageKind::down, "down"},       std::pair{StageKind::head, "head"}};
constexpr std::array kExchangeNames{std::pair{Exchange::tagged, "tagged"}, std::pair{Exchange::counter, "counter"},
                                    std::pair{Exchange::barrier, "barrier"}};
constexpr std::array kNormNames{std::pair{NormMode::recompute, "recompute"}, std::pair{NormMode::exchange, "exchange"}};

template <class Enum, class Names>
Result<Enum> parse_name(const Names& names, const JsonView& view) {
  ADAMK_TRY(const std::string text, view.text());
  if (const auto value = value_of<Enum>(names, text)) return *value;
  return tl::unexpected(view.error(Errc::bad_input, fmt::format("unknown '{}'; one of {}", text, listed(names))));
}

bool has_norm(StageKind kind) {
  return kind == StageKind::qkv || kind == StageKind::gate_up || kind == StageKind::head;
}

Json stage_to_json(const StagePlan& stage) {
  Json out;
  out["kind"] = to_string(stage.kind);
  out["input"] = to_string(stage.input);
  if (has_norm(stage.kind)) out["norm"] = to_string(stage.norm);
  if (stage.kind == StageKind::attention) {
    out["kv_splits"] = stage.kv_splits;
    return out;
  }
  out["tile_rows"] = stage.tile_rows;
  out["chunk_steps"] = stage.chunk_steps;
  if (stage.kind == StageKind::output) out["fused_attention"] = stage.fused_attention;
  if (stage.kind == StageKind::gate_up) out["fused_silu"] = stage.fused_silu;
  return out;
}

Result<int> bounded(const JsonView& object, std::string_view key, int low, int high) {
  ADAMK_TRY(const JsonView view, object.at(key));
  ADAMK_TRY(const std::int64_t value, view.integer(low, high));
  return static_cast<int>(value);
}

Result<StagePlan> stage_from_json(const JsonView& view) {
  StagePlan stage;
  ADAMK_TRY(const JsonView kind, view.at("kind"));
  ADAMK_TRY(stage.kind, parse_name<StageKind>(kStageNames, kind));
  ADAMK_TRY(const JsonView input, view.at("input"));
  ADAMK_TRY(stage.input, parse_name<Exchange>(kExchangeNames, input));
  if (has_norm(stage.kind)) {
    ADAMK_TRY(const JsonView norm, view.at("norm"));
    ADAMK_TRY(stage.norm, parse_name<NormMode>(kNormNames, norm));
  }
  switch (stage.kind) {
    case StageKind::attention: {
      ADAMK_CHECK(view.only_keys({"kind", "input", "kv_splits"}));
      ADAMK_TRY(stage.kv_splits, bounded(view, "kv_splits", 1, 16));
      return stage;
    }
    case StageKind::qkv:
    case StageKind::head: ADAMK_CHECK(view.only_keys({"kind", "input", "norm", "tile_rows", "chunk_steps"})); break;
    case StageKind::down: ADAMK_CHECK(view.only_keys({"kind", "input", "tile_rows", "chunk_steps"})); break;
    case StageKind::output: {
      ADAMK_CHECK(view.only_keys({"kind", "input", "tile_rows", "chunk_steps", "fused_attention"}));
      ADAMK_TRY(const JsonView fused, view.at("fused_attention"));
      ADAMK_TRY(stage.fused_attention, fused.boolean());
      break;
    }
    case StageKind::gate_up: {
      ADAMK_CHECK(view.only_keys({"kind", "input", "norm", "tile_rows", "chunk_steps", "fused_silu"}));
      ADAMK_TRY(const JsonView fused, view.at("fused_silu"));
      ADAMK_TRY(stage.fused_silu, fused.boolean());
      break;
    }
  }
  ADAMK_TRY(const JsonView rows, view.at("tile_rows"));
  ADAMK_TRY(const std::int64_t tile_rows, rows.integer());
  if (tile_rows != 16 && tile_rows != 32)
    return tl::unexpected(rows.error(Errc::bad_input, fmt::format("{} is not a tile height; 16 or 32", tile_rows)));
  stage.tile_rows = static_cast<int>(tile_rows);
  ADAMK_TRY(stage.chunk_steps, bounded(view, "chunk_steps", 1, 64));
  return stage;
}

/// The one order a layer can have: qkv, attention unless fused, output, gate_up, down, head.
Result<void> check_order(const JsonView& stages, const Plan& plan) {
  const StagePlan* output = plan.find(StageKind::output);
  std::vector<StageKind> want{StageKind::qkv, StageKind::attention, StageKind::output,
                              StageKind::gate_up, StageKind::down, StageKind::head};
  if (output != nullptr && output->fused_attention) std::erase(want, StageKind::attention);
  const bool same = std::equal(plan.stages.begin(), plan.stages.end(), want.begin(), want.end(),
                               [](const StagePlan& stage, StageKind kind) { return stage.kind == kind; });
  if (!same)
    return tl::unexpected(stages.error(Errc::bad_input,
                                       "the stages are qkv, attention (left out when output.fused_attention is true), "
                                       "output, gate_up, down, head, in this order, once each"));
  return {};
}

}  // namespace

const StagePlan* Plan::find(StageKind kind) const {
  for (const StagePlan& stage : stages)
    if (stage.kind == kind) return &stage;
  return nullptr;
}

const StagePlan& Plan::stage(StageKind kind) const { return *find(kind); }

std::string Plan::hash() const { return hash_hex(plan_to_json(*this).dump()); }

std::string_view to_string(StageKind kind) { return name_of(kStageNames, kind); }
std::string_view to_string(Exchange exchange) { return name_of(kExchangeNames, exchange); }
std::string_view to_string(NormMode mode) { return name_of(kNormNames, mode); }

Json plan_to_json(const Plan& plan) {
  Json out;
  out["format"] = "adamk.plan";
  out["version"] = 1;
  out["grid"] = plan.grid;
  out["consumer_warps"] = plan.consumer_warps;
  out["ring_stages"] = plan.ring_stages;
  out["window"] = plan.window;
  out["pace"] = plan.pace;
  // Left out where they say nothing: plans from before there were these knobs keep their hashes.
  if (plan.unroll != 0) out["unroll"] = plan.unroll;
  if (plan.fragments != 1) out["fragments"] = plan.fragments;
  out["stages"] = Json::array();
  for (const StagePlan& stage : plan.stages) out["stages"].push_back(stage_to_json(stage));
  return out;
}

Result<Plan> plan_from_json(const JsonView& root) {
  ADAMK_CHECK(expect_format(root, "adamk.plan", 1));
  ADAMK_CHECK(root.only_keys(
      {"format", "version", "grid", "consumer_warps", "ring_stages", "window", "pace", "unroll", "fragments", "stages"}));
  Plan plan;
  ADAMK_TRY(plan.grid, bounded(root, "grid", 1, 1024));
  ADAMK_TRY(plan.consumer_warps, bounded(root, "consumer_warps", 1, 28));
  ADAMK_TRY(plan.ring_stages, bounded(root, "ring_stages", 2, 256));
  ADAMK_TRY(plan.window, bounded(root, "window", 1, 256));
  ADAMK_TRY(plan.pace, bounded(root, "pace", 0, 1 << 20));
  if (root.find("unroll")) {
    ADAMK_TRY(plan.unroll, bounded(root, "unroll", 0, 64));
  }
  if (root.find("fragments")) {
    ADAMK_TRY(plan.fragments, bounded(root, "fragments", 1, 16));
  }
  ADAMK_TRY(const JsonView stages, root.at("stages"));
  ADAMK_TRY(const std::vector<JsonView> items, stages.items());
  for (const JsonView& item : items) {
    ADAMK_TRY(StagePlan stage, stage_from_json(item));
    plan.stages.push_back(stage);
  }
  ADAMK_CHECK(check_order(stages, plan));
  return plan;
}

}  // namespace adamk
