#include "common/tile_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "adamk/codegen/facts.h"
#include "adamk/cost/model.h"
#include "adamk/dag/tile_dag.h"
#include "adamk/dag/validator.h"
#include "adamk/profile/statistics.h"
#include "adamk/ptx/module.h"

namespace adamk {
namespace {

Result<TileVariant> compile_variant(const DagFile& file) {
  TileVariant variant;
  variant.deployment = file.deployment;
  ADAMK_TRY(variant.schedule, make_schedule(file.deployment, *file.plan));
  // The stamped kernel hands over and waits as the plan's own does: what can hang is not launched.
  const Certificate certificate = validate(make_tile_dag(file.deployment, variant.schedule), file.deployment);
  if (!certificate.ok)
    return fail(Errc::bad_input, "plan {}: {}: {}", certificate.plan_hash, certificate.failed, certificate.counterexample);
  const std::string arch = file.deployment.target.arch();
  ADAMK_TRY(const std::string source, emit_source(file.deployment, variant.schedule));
  ADAMK_TRY(variant.kernel, compile(source, arch));
  ADAMK_TRY(const std::string stamped, emit_source(file.deployment, variant.schedule, Instrument::tiles));
  ADAMK_TRY(variant.stamped, compile(stamped, arch));
  ADAMK_TRY(const PtxModule module, parse_ptx(variant.kernel.ptx));
  ADAMK_TRY(variant.dag, make_instruction_dag(module, kernel_facts(variant.schedule)));
  return variant;
}

/// One stage of one plan.
struct Row {
  std::size_t variant = 0;
  StageKind stage = StageKind::qkv;
  const InstructionPiece* piece = nullptr;
  double predicted = 0;
  std::optional<TileClocks> measured;
  double error() const { return std::abs(predicted - measured->clocks) / measured->clocks; }
};

std::vector<Row> rows_of(const std::vector<TileVariant>& variants) {
  std::vector<Row> rows;
  for (std::size_t v = 0; v < variants.size(); ++v)
    for (const StagePlan& stage : variants[v].schedule.plan.stages) {
      Row row{v, stage.kind, timed_piece(variants[v].dag, stage.kind), 0, std::nullopt};
      if (row.piece == nullptr) continue;
      row.predicted = interleaved_clocks(*row.piece, variants[v].schedule.plan.consumer_warps);
      for (const TileClocks& measured : variants[v].measured)
        if (measured.stage == stage.kind && measured.samples > 0) row.measured = measured;
      rows.push_back(std::move(row));
    }
  return rows;
}

struct Agreement {
  int rows = 0;
  double median_error = 0, rank_correlation = 0;
};

Agreement agreement(const std::vector<Row>& rows, const std::function<bool(const Row&)>& wanted) {
  std::vector<double> errors, predicted, measured;
  for (const Row& row : rows) {
    if (!row.measured || !wanted(row)) continue;
    errors.push_back(row.error());
    predicted.push_back(row.predicted);
    measured.push_back(row.measured->clocks);
  }
  if (errors.empty()) return {};
  return {static_cast<int>(errors.size()), summarise(errors).median, rank_correlation(predicted, measured)};
}

std::string name_of(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view end : {".json", ".dag"})
    if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
      name.resize(name.size() - end.size());
  return name;
}

}  // namespace

Result<std::vector<TileVariant>> compile_tile_variants(const std::vector<DagFile>& files) {
  std::vector<std::optional<Result<TileVariant>>> made(files.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < files.size(); i = next++) made[i] = compile_variant(files[i]);
  };
  std::vector<std::thread> threads;
  const std::size_t most = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t t = 0; t < std::min(most, files.size()); ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::vector<TileVariant> variants;
  for (auto& each : made) {
    ADAMK_TRY(TileVariant variant, std::move(*each));
    variants.push_back(std::move(variant));
  }
  return variants;
}

Result<void> print_tile_variants(const std::vector<TileVariant>& variants, const std::vector<std::string>& names,
                                 const CommonOptions& options) {
  const std::vector<Row> rows = rows_of(variants);
  Table table{{{"plan"}, {"stage"}, {"warps", true}, {"instructions", true}, {"critical path", true}, {"issue", true},
               {"memory", true}, {"predicted", true}, {"measured", true}, {"p10", true}, {"p90", true}, {"waited", true},
               {"error %", true}, {"registers", true}}, {}};
  Json out = Json::array();
  for (const Row& row : rows) {
    const TileVariant& variant = variants[row.variant];
    const InstructionPiece& piece = *row.piece;
    const double memory = piece.pipe_clocks[static_cast<std::size_t>(PtxPipe::memory)];
    const auto measured = [&](double TileClocks::*figure) { return row.measured ? Cell((*row.measured).*figure, 0) : Cell(); };
    table.rows.push_back({name_of(names[row.variant]), to_string(row.stage), piece.warps, piece.nodes.size(),
                          Cell(piece.critical_clocks, 0), Cell(piece.issue_slots, 0), Cell(memory, 0), Cell(row.predicted, 0),
                          measured(&TileClocks::clocks), measured(&TileClocks::p10), measured(&TileClocks::p90),
                          measured(&TileClocks::waited), row.measured ? Cell(100 * row.error(), 1) : Cell(),
                          variant.kernel.registers});
    Json json = {{"file", names[row.variant]}, {"plan", variant.schedule.plan.hash()}, {"stage", to_string(row.stage)},
                 {"warps", piece.warps}, {"instructions", piece.nodes.size()}, {"critical_clocks", piece.critical_clocks},
                 {"issue_slots", piece.issue_slots}, {"memory_clocks", memory}, {"predicted", row.predicted},
                 {"registers", variant.kernel.registers}, {"spill_bytes", variant.kernel.spill_bytes},
                 {"cubin_bytes", variant.kernel.cubin.size()}, {"stamped_registers", variant.stamped.registers},
                 {"stamped_spill_bytes", variant.stamped.spill_bytes}};
    if (row.measured)
      json.update({{"measured", row.measured->clocks}, {"p10", row.measured->p10}, {"p90", row.measured->p90},
                   {"waited", row.measured->waited}, {"samples", row.measured->samples}, {"error", row.error()}});
    out.push_back(std::move(json));
  }
  // What the cost model makes of a plan by its own formula, and with these tiles.
  Json costs = Json::array();
  std::string cost_lines;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    TileTerms tiles;
    for (const Row& row : rows)
      if (row.variant == v) tiles[row.stage] = row.predicted;
    const TileVariant& variant = variants[v];
    const double formula = predict(variant.deployment, variant.schedule).us_per_token;
    const double known = predict(variant.deployment, variant.schedule, -1, {}, tiles).us_per_token;
    costs.push_back({{"file", names[v]}, {"formula_us", formula}, {"with_tiles_us", known}});
    cost_lines += fmt::format("{}: cost model {:.1f} us per token; by its own formula for tiles {:.1f}\n", name_of(names[v]), known,
                              formula);
  }
  const std::array groups = {std::pair{"all", agreement(rows, [](const Row&) { return true; })},
                             std::pair{"plans 1, 3, 5, ...", agreement(rows, [](const Row& r) { return r.variant % 2 == 0; })},
                             std::pair{"plans 2, 4, 6, ...", agreement(rows, [](const Row& r) { return r.variant % 2 == 1; })}};
  if (options.json) {
    Json summary = Json::array();
    for (const auto& [name, found] : groups)
      summary.push_back({{"of", name}, {"rows", found.rows}, {"median_error", found.median_error},
                         {"rank_correlation", found.rank_correlation}});
    return print_json({{"rows", out}, {"agreement", summary}, {"costs", costs}});
  }
  ADAMK_CHECK(print_table(table, TableFormat::text, options));
  ADAMK_CHECK(print(cost_lines));
  for (const auto& [name, found] : groups)
    if (found.rows > 0)
      ADAMK_CHECK(print(fmt::format("{}: {} rows, median error {:.1f} %, rank correlation {:.3f}", name, found.rows,
                                    100 * found.median_error, found.rank_correlation)));
  return {};
}

}  // namespace adamk
