#include "common/candidate_views.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace adamk::views {
namespace {

/// The values of all stages, repeats in a row once.
template <class Value>
std::string across_stages(const Plan& plan, bool attention_too, const Value& value) {
  std::vector<std::string> values;
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind == StageKind::attention && !attention_too) continue;
    std::string text = fmt::format("{}", value(stage));
    if (values.empty() || values.back() != text) values.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(values, "/"));
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string software_text(const DeviceIdentity& device) {
  std::string text = fmt::format("{} (sm_{}, {} SMs", device.name, device.sm, device.sms);
  if (!device.driver.empty()) text += fmt::format(", driver {}, NVRTC", device.driver);
  return text + fmt::format("{} {})", device.driver.empty() ? "," : "", device.toolkit);
}

}  // namespace

std::string plan_text(const Plan& plan) {
  std::vector<std::string> parts;
  parts.push_back(across_stages(plan, true, [](const StagePlan& stage) { return to_string(stage.input); }));
  parts.push_back(fmt::format("tiles of {} x {}",
                              across_stages(plan, false, [](const StagePlan& stage) { return stage.tile_rows; }),
                              across_stages(plan, false, [](const StagePlan& stage) { return 16 * stage.chunk_steps; })));
  const StagePlan* attention = plan.find(StageKind::attention);
  if (attention == nullptr) parts.push_back("fused attention");
  else if (attention->kv_splits > 1) parts.push_back(fmt::format("{} KV splits", attention->kv_splits));
  if (std::any_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& s) { return s.norm == NormMode::exchange; }))
    parts.push_back("norm exchanged");
  const StagePlan* gate_up = plan.find(StageKind::gate_up);
  if (gate_up != nullptr && !gate_up->fused_silu) parts.push_back("late SiLU");
  parts.push_back(fmt::format("{} warps, ring {}, window {}", plan.consumer_warps, plan.ring_stages, plan.window));
  if (plan.pace > 0) parts.push_back(fmt::format("pace {}", plan.pace));
  if (plan.unroll > 0) parts.push_back(fmt::format("unroll {}", plan.unroll));
  if (plan.fragments > 1) parts.push_back(fmt::format("{} fragments ahead", plan.fragments));
  parts.push_back(fmt::format("{} blocks", plan.grid));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Table candidates_table(const std::vector<CandidateRow>& rows) {
  Table table{{{"candidate", true}, {"plan"}, {"us", true}, {"p10", true}, {"p90", true}, {"GB/s", true},
               {"% of ceiling", true}, {"match"}, {"status"}, {"verified"}, {"device"}, {"method"}, {"what"}}, {}};
  const bool failures =
      std::any_of(rows.begin(), rows.end(), [](const CandidateRow& row) { return row.status != Status::ok; });
  if (failures) table.columns.push_back({"why not"});
  for (const CandidateRow& row : rows) {
    Cell plan(row.plan_hash);
    plan.text = row.plan_hash.substr(0, 12);
    table.rows.push_back({row.id, plan, Cell(row.median_us, 2), Cell(row.p10_us, 2), Cell(row.p90_us, 2), Cell(row.gbps, 0),
                          Cell(row.percent_of_ceiling(), 1), to_string(row.match), to_string(row.status), row.verified,
                          row.device.name, to_string(row.method), plan_text(row.plan)});
    const std::string first_line = row.message.substr(0, row.message.find('\n'));
    if (failures) table.rows.back().push_back(first_line.empty() ? Cell() : Cell(first_line));
  }
  return table;
}

std::string candidate_text(const CandidateRow& row) {
  std::string text = fmt::format("plan       {}\n           {}\n", row.plan_hash, plan_text(row.plan));
  text += fmt::format("time       {:.2f} us per token", row.median_us);
  text += row.method == Method::simulated
              ? ", predicted by the cost model\n"
              : fmt::format(" (10th to 90th percentile {:.2f} to {:.2f})\n", row.p10_us, row.p90_us);
  text += fmt::format("bandwidth  {:.0f} GB/s", row.gbps);
  if (std::isfinite(row.percent_of_ceiling()))
    text += fmt::format(", {:.1f} % of the read ceiling ({:.0f} GB/s)", row.percent_of_ceiling(), row.ceiling_gbps);
  text += fmt::format("\ndevice     {}\nmatch      {}\n", software_text(row.device), to_string(row.match));
  text += fmt::format("method     {}, {}\n", to_string(row.method),
                      row.method == Method::simulated ? "nothing was compiled or run"
                      : row.verified ? "verified against the reference" : "not verified");
  return text + fmt::format("record     candidate {} of run {} ({}, {}), {}\n", row.id, row.run, row.strategy,
                            row.tool_version, row.evaluated_at);
}

Json candidate_to_json(const CandidateRow& row) {
  return {{"candidate", row.id},
          {"run", row.run},
          {"deployment", row.deployment},
          {"plan_hash", row.plan_hash},
          {"status", to_string(row.status)},
          {"message", row.message},
          {"us", number(row.median_us)},
          {"p10_us", number(row.p10_us)},
          {"p90_us", number(row.p90_us)},
          {"gbps", number(row.gbps)},
          {"ceiling_gbps", row.ceiling_gbps > 0 ? Json(row.ceiling_gbps) : Json()},
          {"percent", number(row.percent_of_ceiling())},
          {"match", to_string(row.match)},
          {"method", to_string(row.method)},
          {"verified", row.verified},
          {"reused", row.reused},
          {"device",
           {{"name", row.device.name},
            {"sm", row.device.sm},
            {"sms", row.device.sms},
            {"driver", row.device.driver},
            {"toolkit", row.device.toolkit}}},
          {"strategy", row.strategy},
          {"tool_version", row.tool_version},
          {"evaluated_at", row.evaluated_at},
          {"plan", plan_to_json(row.plan)}};
}

Json candidates_to_json(const std::vector<CandidateRow>& rows) {
  Json list = Json::array();
  for (const CandidateRow& row : rows) list.push_back(candidate_to_json(row));
  return list;
}

std::string counts_text(const std::map<std::string, int>& counts) {
  std::vector<std::string> parts;
  for (const auto& [status, count] : counts) {
    std::string part = fmt::format("{} {}", count, status);
    parts.insert(status == "ok" ? parts.begin() : parts.end(), std::move(part));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace adamk::views
