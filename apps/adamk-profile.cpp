// adamk-profile: where a decode step's time goes: its time, the bytes it must move, and what the hardware counted.
#include <algorithm>
#include <array>
#include <optional>

#include "adamk/dag/tile_dag.h"
#include "adamk/dag/validator.h"
#include "adamk/profile/cupti.h"
#include "adamk/profile/latencies.h"
#include "adamk/profile/probe.h"
#include "adamk/profile/random_decoder.h"
#include "adamk/profile/timing.h"
#include "common/artifact_flags.h"
#include "common/command.h"
#include "common/tile_views.h"
#include "common/timeline_views.h"

namespace adamk {
namespace {

struct ProfileFlags {
  ArtifactFlags artifact;
  std::int64_t position = -1;
  int steps = 0;
  int repeat = 100;
  std::uint64_t seed = 1;
  bool unverified = false, no_cupti = false, no_counters = false;
};

// Names as Nsight Compute spells them, the same on every chip from sm_80 on.
const std::string dram_read = "dram__bytes_read.sum", dram_write = "dram__bytes_write.sum", l2_bytes = "lts__t_bytes.sum",
                  instructions = "sm__inst_executed.sum", cycles = "sm__cycles_elapsed.max";

/// Under the profiler kernels are slower by far; what is no hang must not look like one.
constexpr double profiled_watchdog_ms = 60'000;

struct Profile {
  std::string device, verified;
  std::int64_t position = 0;
  Timing timing;
  TokenBytes bytes;
  ReadCeiling ceiling;
  std::map<std::string, double> counted;   // per token; empty when counters were not read
  int passes = 0;
  std::string no_counters;                 // why

  double us() const { return timing.per_token.median; }
  double gbps(double of_bytes) const { return of_bytes / us() / 1e3; }
};

/// One launch a pass. It starts from an epoch of its own and writes the KV it reads, so nothing has to be put back between
/// passes; one launch before them has everything loaded.
Result<Counters> count_launch(Decoder& decoder, std::int64_t position, int steps, bool& kernel_failed) {
  decoder.set_watchdog_ms(profiled_watchdog_ms);
  const auto work = [&]() -> Result<void> {
    const std::array first_token{0};
    const auto decoded = decoder.decode(position, first_token, steps);
    kernel_failed = !decoded;
    ADAMK_CHECK(decoded);
    return {};
  };
  ADAMK_CHECK(work());
  const std::array metrics{dram_read, dram_write, l2_bytes, instructions, cycles};
  return collect_counters(decoder.device().native_context(), metrics, work, {});
}

/// Fills in the counters, or why there are none: a missing permission or library is no failure of the command. A metric that
/// the chip lacks is, and so is a kernel that fails.
Result<void> read_counters(Decoder& decoder, Profile& profile) {
  bool kernel_failed = false;
  const auto counters = count_launch(decoder, profile.position, profile.timing.steps, kernel_failed);
  if (!counters) {
    profile.no_counters = counters.error().message;
    if (!kernel_failed && counters.error().code == Errc::machine) return {};
    return tl::unexpected<Error>(counters.error());
  }
  profile.passes = counters->passes;
  for (const auto& [name, value] : counters->values) profile.counted[name] = value / profile.timing.steps;
  return {};
}

Json profile_to_json(const Profile& profile, const Recipe& recipe) {
  Json counters;
  if (profile.no_counters.empty()) counters = {{"passes", profile.passes}, {"per_token", profile.counted}};
  const double total = profile.bytes.total();
  return {{"device", profile.device},
          {"deployment", recipe.deployment_key},
          {"plan", recipe.plan_hash},
          {"verified", profile.verified},
          {"position", profile.position},
          {"steps_per_launch", profile.timing.steps},
          {"method", to_string(profile.timing.method)},
          {"us_per_token", statistics_to_json(profile.timing.per_token)},
          {"events_us_per_token", profile.timing.events_us},
          {"settled", profile.timing.launches.settled},
          {"discarded", profile.timing.launches.discarded},
          {"clock_mhz", profile.timing.launches.clock_mhz},
          {"must_move", {{"weights", profile.bytes.weights}, {"kv", profile.bytes.kv}, {"total", total}}},
          {"gbps", profile.gbps(total)},
          {"read_ceiling", {{"gbps", profile.ceiling.gbps}, {"method", profile.ceiling.method}}},
          {"percent_of_ceiling", 100 * profile.gbps(total) / profile.ceiling.gbps},
          {"counters", counters},
          {"no_counters", profile.no_counters}};
}

Table profile_table(const Profile& profile) {
  Table table{{{"decode step"}, {"per token", true}, {"unit"}, {"GB/s", true}, {"% of ceiling", true},
               {"% of must move", true}}, {}};
  const double total = profile.bytes.total();
  const auto plain = [&](const char* name, double value, int digits, const char* unit) {
    table.rows.push_back({name, Cell(value, digits), unit, Cell(), Cell(), Cell()});
  };
  const auto bytes = [&](const char* name, double count) {
    const double gbps = profile.gbps(count);
    table.rows.push_back({name, Cell(count / 1e6, 2), "MB", Cell(gbps, 0), Cell(100 * gbps / profile.ceiling.gbps, 1),
                          Cell(100 * count / total, 1)});
  };
  plain("time, median", profile.us(), 2, "us");
  plain("time, p10", profile.timing.per_token.p10, 2, "us");
  plain("time, p90", profile.timing.per_token.p90, 2, "us");
  bytes("must move: weights", profile.bytes.weights);
  bytes("must move: KV cache", profile.bytes.kv);
  bytes("must move", total);
  if (profile.no_counters.empty()) {
    bytes("counted: DRAM read", profile.counted.at(dram_read));
    bytes("counted: DRAM written", profile.counted.at(dram_write));
    bytes("counted: L2", profile.counted.at(l2_bytes));
    plain("counted: instructions", profile.counted.at(instructions) / 1e6, 3, "million");
    plain("counted: SM cycles", profile.counted.at(cycles), 0, "cycles");
  }
  // What the must-move bytes would take at the ceiling: the shortest time there is.
  table.rows.push_back({"at the read ceiling", Cell(total / profile.ceiling.gbps / 1e3, 2), "us",
                        Cell(profile.ceiling.gbps, 0), Cell(100.0, 1), Cell()});
  return table;
}

Result<void> print_profile(const Profile& profile, const Recipe& recipe, const CommonOptions& options) {
  if (options.json) return print_json(profile_to_json(profile, recipe));
  ADAMK_CHECK(print_table(profile_table(profile), TableFormat::text, options));
  const Timing& timing = profile.timing;
  return print(fmt::format("{}, plan {}: {} launches of {} tokens from position {}, timed by {}; ceiling by {}; verified: "
                           "{}{}",
                           profile.device, recipe.plan_hash, timing.launches.us.size(), timing.steps, profile.position,
                           to_string(timing.method), profile.ceiling.method, profile.verified,
                           profile.passes > 0 ? fmt::format("; counters in {} passes", profile.passes) : std::string()));
}

Result<void> run_profile(const ProfileFlags& flags, const CommonOptions& options) {
  ADAMK_CHECK(refuse_emulated(flags.artifact.device, "an emulated device has no time to profile"));
  ADAMK_TRY(const Artifact artifact, open_artifact(flags.artifact.folder, flags.artifact.checks()));
  ADAMK_TRY(const auto device, open_cuda_device(flags.artifact.device.index));
  ADAMK_TRY(Decoder decoder, Decoder::create(*device, artifact.recipe, artifact.inputs()));
  Profile profile;
  profile.device = device->info().name;
  profile.position = flags.position < 0 ? default_timing_position(artifact.recipe, flags.steps) : flags.position;
  const CheckBeforeTiming check{{profile.position}, flags.seed, flags.unverified};
  ADAMK_TRY(profile.verified, check_before_timing(flags.artifact, artifact, decoder, check, options));

  TimingOptions timing;
  timing.position = profile.position;
  timing.steps = flags.steps;
  timing.max_samples = flags.repeat;
  timing.min_samples = std::min(timing.min_samples, flags.repeat);
  timing.use_cupti = !flags.no_cupti;
  ADAMK_TRY(profile.timing, time_decoder(decoder, timing));
  note_timing(profile.timing, options);
  profile.bytes = token_bytes(artifact.recipe, profile.position, profile.timing.steps);
  ADAMK_TRY(profile.ceiling, measure_read_ceiling(*device));

  Result<void> counted;
  if (flags.no_counters) {
    profile.no_counters = "--no-counters";
  } else {
    counted = read_counters(decoder, profile);
    if (!counted) profile.no_counters = counted.error().message;
    if (counted && !profile.no_counters.empty()) note(options, "no counters: " + profile.no_counters);
  }
  ADAMK_CHECK(print_profile(profile, artifact.recipe, options));
  return counted;
}

struct TilesFlags {
  std::vector<std::string> dags;
  TileOptions options;
  int device = 0;
  bool predict_only = false;
};

/// Where nobody says: late in the context, so that attention walks far.
std::int64_t tiles_position(const Deployment& deployment, const TilesFlags& flags) {
  return flags.options.position > 0 ? flags.options.position
                                    : std::max<std::int64_t>(0, deployment.workload.context * 3 / 4 - flags.options.steps);
}

Result<void> run_tiles(const TilesFlags& flags, const CommonOptions& options) {
  std::unique_ptr<Device> device;
  if (!flags.predict_only) {
    ADAMK_TRY(device, open_cuda_device(flags.device));
  }
  std::vector<DagFile> files;
  for (const std::string& path : flags.dags) {
    ADAMK_TRY(DagFile file, read_dag(path));
    if (!file.plan) {
      ADAMK_TRY(file.plan, default_plan(file.deployment));
    }
    files.push_back(std::move(file));
  }
  ADAMK_TRY(std::vector<TileVariant> variants, compile_tile_variants(files));
  for (TileVariant& variant : variants) {
    if (device == nullptr) continue;
    TileOptions measure = flags.options;
    measure.position = tiles_position(variant.deployment, flags);
    measure.steps = std::min(measure.steps, variant.deployment.workload.steps_per_launch);
    ADAMK_TRY(variant.measured, measure_tiles(*device, variant.deployment, variant.schedule, variant.stamped, measure));
  }
  return print_tile_variants(variants, flags.dags, options);
}

struct TimelineFlags {
  std::string dag, plan, trace;
  TimelineOptions options;
  std::vector<int> sms;
  std::int64_t position = -1;
  int device = 0;
  std::uint64_t seed = 1;
};

/// The plan's own kernel and the instrumented one, of the same random data.
Result<void> run_timeline(const TimelineFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(DagFile file, read_dag(flags.dag));
  if (!flags.plan.empty()) {
    ADAMK_TRY(file.plan, read_plan(flags.plan));
  }
  if (!file.plan) {
    ADAMK_TRY(file.plan, default_plan(file.deployment));
  }
  const Deployment& deployment = file.deployment;
  ADAMK_TRY(const Schedule schedule, make_schedule(deployment, *file.plan));
  const Certificate certificate = validate(make_tile_dag(deployment, schedule), deployment);
  if (!certificate.ok)
    return fail(Errc::bad_input, "plan {}: {}: {}", certificate.plan_hash, certificate.failed, certificate.counterexample);
  ADAMK_TRY(const auto device, open_cuda_device(flags.device));
  const auto kernel = [&](Instrument instrument) -> Result<Kernel> {
    ADAMK_TRY(const std::string source, emit_source(deployment, schedule, instrument));
    return compile(source, deployment.target.arch());
  };
  ADAMK_TRY(const Kernel plain, kernel(Instrument::none));
  ADAMK_TRY(const Kernel instrumented, kernel(Instrument::timeline));
  if (instrumented.spill_bytes > plain.spill_bytes)
    note(options, fmt::format("the instrumented kernel spills {} bytes, the plan's own {}", instrumented.spill_bytes, plain.spill_bytes));

  TimelineReport report;
  report.device = device->info().name;
  report.plan_hash = schedule.plan.hash();
  const Recipe recipe = make_recipe(deployment, schedule, plain);
  TimelineOptions record = flags.options;
  record.steps = std::min(record.steps, recipe.max_steps);
  record.position = report.position = flags.position < 0 ? default_timing_position(recipe, record.steps) : flags.position;
  {
    ADAMK_TRY(Decoder decoder, random_decoder(*device, recipe, plain, deployment.weights, flags.seed));
    TimingOptions timing;
    timing.position = record.position;
    timing.steps = record.steps;
    ADAMK_TRY(const Timing timed, time_decoder(decoder, timing));
    report.plain_us = timed.per_token.median;
  }
  ADAMK_TRY(const ReadCeiling ceiling, measure_read_ceiling(*device));
  report.ceiling_gbps = ceiling.gbps;
  ADAMK_TRY(Decoder decoder, random_decoder(*device, timeline_recipe(deployment, schedule, instrumented), instrumented,
                                            deployment.weights, flags.seed));
  ADAMK_TRY(const Timeline timeline, record_timeline(decoder, deployment.model, schedule, record));
  report.clock_mhz = timeline.clock_mhz;
  report.summary = summarise_timeline(timeline, schedule);
  if (!flags.trace.empty()) {
    std::vector<int> sms = flags.sms;
    if (sms.empty()) sms = {0, timeline.sms / 2, timeline.sms - 1};
    ADAMK_TRY(const Json trace, timeline_trace(timeline, sms));
    ADAMK_CHECK(write_file_atomic(flags.trace, trace.dump()));
  }
  return print_timeline(report, options);
}

Result<void> run_latencies(int index, const CommonOptions& options) {
  ADAMK_TRY(const auto device, open_cuda_device(index));
  ADAMK_TRY(const std::vector<MeasuredCost> costs, measure_latencies(*device));
  const LatencyTable table = latency_table(device->info().sm);
  Table out{{{"kind"}, {"instruction"}, {"latency", true}, {"of the table", true}, {"busy", true}, {"of the table", true},
             {"source"}},
            {}};
  Json rows = Json::array();
  for (const MeasuredCost& cost : costs) {
    const CostRow& row = table.row(cost.kind);
    const auto cell = [](double clocks) { return clocks < 0 ? Cell() : Cell(clocks, 2); };
    out.rows.push_back({to_string(cost.kind), cost.what, cell(cost.latency), Cell(row.latency, 1), cell(cost.busy),
                        Cell(row.busy, 1), row.source});
    rows.push_back({{"kind", to_string(cost.kind)}, {"instruction", cost.what}, {"latency", cell(cost.latency).value},
                    {"busy", cell(cost.busy).value}, {"table_latency", row.latency}, {"table_busy", row.busy},
                    {"source", row.source}});
  }
  if (options.json)
    return print_json({{"device", device->info().name}, {"sm", device->info().sm}, {"costs_of_sm", table.sm}, {"rows", rows}});
  return print_table(out, TableFormat::text, options);
}

int run(int argc, char** argv) {
  ProfileFlags flags;
  TilesFlags tiles;
  TimelineFlags timeline;
  int latencies_device = 0;
  Command command("adamk-profile", "Where the time of a decode step goes.");
  CLI::App& profile = command.add("run", "Time decode steps of an artifact, and count what they do next to what they must.",
                                  [&] { return run_profile(flags, command.options()); });
  add_artifact_flags(profile, flags.artifact);
  profile.add_option("--position", flags.position, "Of the first token of each launch (middle of the context, 128 at most)")
      ->check(CLI::NonNegativeNumber);
  profile.add_option("--steps", flags.steps, "Tokens one launch decodes; 0: as many as it can")
      ->check(CLI::NonNegativeNumber);
  profile.add_option("--repeat", flags.repeat, "Most launches to time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  profile.add_option("--seed", flags.seed, "Of random KV and tokens of the check before timing")->capture_default_str();
  profile.add_flag("--unverified", flags.unverified, "Time without verifying first; the result says so");
  profile.add_flag("--no-cupti", flags.no_cupti, "Time with CUDA events even where CUPTI works");
  profile.add_flag("--no-counters", flags.no_counters, "Times only");

  CLI::App& each = command.add("tiles", "Clocks of a consumer's tile by stage: predicted from the instruction DAG, and measured.",
                               [&] { return run_tiles(tiles, command.options()); });
  each.add_option("dag", tiles.dags, "DAG files (adamk-dag build), each with its plan or for the default plan")->required();
  each.add_option("--position", tiles.options.position, "Of the first token of each launch (three quarters of the context)")
      ->check(CLI::NonNegativeNumber);
  each.add_option("--launches", tiles.options.launches, "Launches to sample")->check(CLI::PositiveNumber)->capture_default_str();
  each.add_option("--seed", tiles.options.seed, "Of the random data")->capture_default_str();
  each.add_option("--device", tiles.device, "Which GPU")->check(CLI::NonNegativeNumber)->capture_default_str();
  each.add_flag("--predict-only", tiles.predict_only, "No GPU: predictions alone");

  CLI::App& line = command.add("timeline", "Where a decode step's time goes, by stage and by role, from inside the kernel.",
                               [&] { return run_timeline(timeline, command.options()); });
  line.add_option("dag", timeline.dag, "DAG file (adamk-dag build), with its plan or for the default plan")->required();
  line.add_option("--plan", timeline.plan, "Plan file, instead of the DAG file's");
  line.add_option("--position", timeline.position, "Of the first token of each launch (middle of the context, 128 at most)")
      ->check(CLI::NonNegativeNumber);
  line.add_option("--steps", timeline.options.steps, "Tokens to record; all but the first are summarised")
      ->check(CLI::Range(1, TimelineLayout::steps))
      ->capture_default_str();
  line.add_option("--trace", timeline.trace, "Writes a trace for Perfetto (https://ui.perfetto.dev) to this file");
  line.add_option("--sms", timeline.sms, "SMs in the trace (the first, the middle and the last)")->delimiter(',');
  line.add_option("--seed", timeline.seed, "Of the random weights and KV cache")->capture_default_str();
  line.add_option("--device", timeline.device, "Which GPU")->check(CLI::NonNegativeNumber)->capture_default_str();

  CLI::App& latencies = command.add("latencies", "Measure the rows of the instruction DAG's latency table on this GPU.",
                                    [&] { return run_latencies(latencies_device, command.options()); });
  latencies.add_option("--device", latencies_device, "Which GPU")->check(CLI::NonNegativeNumber)->capture_default_str();
  return command.run(argc, argv);
}

}  // namespace
}  // namespace adamk

int main(int argc, char** argv) { return adamk::run(argc, argv); }
