#include "common/bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "adamk/profile/probe.h"
#include "adamk/profile/timing.h"
#include "adamk/runtime/artifact.h"
#include "adamk/runtime/decoder.h"

namespace adamk {
namespace {

struct Row {
  std::int64_t position = 0;
  Timing timing;
  double bytes = 0;   // that a token must move
  double gbps() const { return bytes / timing.per_token.median / 1e3; }
};

struct Bench {
  std::string device, driver, verified;
  ReadCeiling ceiling;
  std::vector<Row> rows;
};

Json bench_to_json(const Bench& bench, const Recipe& recipe, bool unverified) {
  Json runs = Json::array();
  for (const Row& row : bench.rows) {
    const Timing& timing = row.timing;
    runs.push_back({{"position", row.position},
                    {"steps_per_launch", timing.steps},
                    {"method", to_string(timing.method)},
                    {"us_per_token", statistics_to_json(timing.per_token)},
                    {"events_us_per_token", timing.events_us},
                    {"tokens_per_s", 1e6 / timing.per_token.median},
                    {"bytes_per_token", row.bytes},
                    {"gbps", row.gbps()},
                    {"percent_of_ceiling", 100 * row.gbps() / bench.ceiling.gbps},
                    {"settled", timing.launches.settled},
                    {"discarded", timing.launches.discarded},
                    {"clock_mhz", timing.launches.clock_mhz},
                    {"samples_us", timing.samples_us}});
  }
  return {{"device", bench.device},
          {"driver", bench.driver},
          {"deployment", recipe.deployment_key},
          {"plan", recipe.plan_hash},
          {"verified", !unverified},
          {"read_ceiling", {{"gbps", bench.ceiling.gbps}, {"method", bench.ceiling.method}}},
          {"runs", runs}};
}

Result<void> print_bench(const Bench& bench, const Recipe& recipe, const CommonOptions& options) {
  Table table{{{"position", true}, {"steps", true}, {"us/token", true}, {"p10", true}, {"p90", true}, {"samples", true},
               {"tokens/s", true}, {"MB/token", true}, {"GB/s", true}, {"% of ceiling", true}, {"clock"}},
              {}};
  for (const Row& row : bench.rows) {
    const Statistics& us = row.timing.per_token;
    table.rows.push_back({row.position, row.timing.steps, Cell(us.median, 2), Cell(us.p10, 2), Cell(us.p90, 2), us.count,
                          Cell(1e6 / us.median, 0), Cell(row.bytes / 1e6, 2), Cell(row.gbps(), 0),
                          Cell(100 * row.gbps() / bench.ceiling.gbps, 1), to_string(row.timing.method)});
  }
  ADAMK_CHECK(print_table(table, TableFormat::text, options));
  return print(fmt::format("{}, plan {}; ceiling {:.0f} GB/s by {}; verified: {}", bench.device, recipe.plan_hash,
                           bench.ceiling.gbps, bench.ceiling.method, bench.verified));
}

}  // namespace

void add_bench_flags(CLI::App& app, BenchFlags& flags) {
  add_artifact_flags(app, flags.artifact);
  app.add_option("--positions,--position", flags.positions, "Of the first token of each launch: 64,512,2047")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--steps", flags.steps, "Tokens one launch decodes: 1,8; 0: as many as it can")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--repeat", flags.repeat, "Most launches to time, of each row")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seed", flags.seed, "Of random KV and tokens of the check before timing")->capture_default_str();
  app.add_flag("--unverified", flags.unverified, "Time without verifying first; the result says so");
  app.add_flag("--no-cupti", flags.no_cupti, "Time with CUDA events even where CUPTI works");
}

Result<void> run_bench(const BenchFlags& flags, const CommonOptions& options) {
  ADAMK_CHECK(refuse_emulated(flags.artifact.device, "an emulated device has no time"));
  ADAMK_TRY(const Artifact artifact, open_artifact(flags.artifact.folder, flags.artifact.checks()));
  const Recipe& recipe = artifact.recipe;
  for (const std::int64_t position : flags.positions)
    for (const int steps : flags.steps)
      if (steps > recipe.max_steps || position + std::max(steps, 1) > recipe.context)
        return fail(Errc::bad_input, "--positions {} with --steps {}: a launch decodes at most {} tokens in a context of {}", position,
                    steps, recipe.max_steps, recipe.context);
  ADAMK_TRY(const auto device, open_cuda_device(flags.artifact.device.index));
  ADAMK_TRY(Decoder decoder, Decoder::create(*device, recipe, artifact.inputs()));
  Bench bench;
  bench.device = device->info().name;
  const int driver = device->info().driver_version;
  bench.driver = fmt::format("{}.{}", driver / 1000, driver % 1000 / 10);
  const CheckBeforeTiming check{flags.positions, flags.seed, flags.unverified};
  ADAMK_TRY(bench.verified, check_before_timing(flags.artifact, artifact, decoder, check, options));
  for (const std::int64_t position : flags.positions)
    for (const int steps : flags.steps) {
      TimingOptions timing;
      timing.position = position;
      timing.steps = steps;
      timing.max_samples = flags.repeat;
      timing.min_samples = std::min(timing.min_samples, flags.repeat);
      timing.use_cupti = !flags.no_cupti;
      Row row{position, {}, 0};
      ADAMK_TRY(row.timing, time_decoder(decoder, timing));
      note_timing(row.timing, options);
      row.bytes = token_bytes(recipe, position, row.timing.steps).total();
      bench.rows.push_back(std::move(row));
    }
  ADAMK_TRY(bench.ceiling, measure_read_ceiling(*device));
  if (options.json) return print_json(bench_to_json(bench, recipe, flags.unverified));
  return print_bench(bench, recipe, options);
}

}  // namespace adamk
