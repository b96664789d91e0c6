// adamk-search: finds plans by trying them, on a GPU or by the cost model, and keeps everything it finds out.
#include <ctime>
#include <map>
#include <optional>
#include <set>

#include "adamk/base/file.h"
#include "adamk/dag/dag_file.h"
#include "adamk/dag/space.h"
#include "adamk/profile/device_evaluator.h"
#include "adamk/profile/probe.h"
#include "adamk/profile/tuning_db.h"
#include "adamk/search/search.h"
#include "adamk/search/simulated.h"
#include "common/candidate_views.h"
#include "common/command.h"
#include "common/device_choice.h"
#include "common/progress.h"
#include "common/target_yaml.h"
#include "common/terminal.h"
#include "common/weights_flags.h"

namespace adamk {
namespace {

struct SearchFlags {
  std::string dag, database, budget = "200", strategy = "beam", output;
  std::vector<std::string> plans;
  std::uint64_t seed = 1;
  bool simulate = false;
  WeightsFlags weights;
  DeviceChoice device;
  int compile_workers = 0;
  bool run_spilling = false, no_isolation = false;
  std::string command_line;
};

struct ProbeFlags {
  std::string output, name;
  int device = 0;
};

/// What tries the plans, and what a run's key says about it.
struct Bench {
  std::unique_ptr<Evaluator> evaluator;
  std::string weights;   // RunKey::weights
};

/// Weights that are there and fit are named before a GPU is opened, and a checkpoint by what it holds, not where it lies.
Result<std::string> weights_identity(const Deployment& deployment, const WeightsFlags& source) {
  if (source.seed) return source.origin();
  ADAMK_TRY(const Weights weights, load_weights(deployment, source));
  return "checkpoint " + weights.hash();
}

Result<Bench> make_bench(const SearchFlags& flags, const DagFile& dag, const CommonOptions& common) {
  if (flags.simulate) return Bench{make_simulated_evaluator(dag.deployment.target), ""};
  ADAMK_TRY(const WeightsFlags source, weights_source(flags.weights, dag, flags.dag));
  DeviceEvaluatorOptions options;
  options.device = flags.device.index;
  if (flags.device.emulated) options.emulation = {dag.deployment.target, flags.seed};
  options.weights = {source.folder, source.seed};
  options.compile_workers = flags.compile_workers;
  options.run_spilling = flags.run_spilling;
  options.isolate = !flags.no_isolation;
  options.progress = [&common](std::string_view doing) { note(common, fmt::format("{} ...", doing)); };
  auto evaluator = DeviceEvaluator::create(std::move(options));
  if (!evaluator) {
    return fail(evaluator.error().code, "{} (--simulate searches with the cost model instead, without a GPU)",
                evaluator.error().message);
  }
  ADAMK_TRY(std::string identity, weights_identity(dag.deployment, source));
  note(common, fmt::format("{}; isolation of candidates: {}", (*evaluator)->device().name, (*evaluator)->isolation()));
  return Bench{std::move(*evaluator), std::move(identity)};
}

SearchOptions search_options(const SearchFlags& flags, const Bench& bench) {
  SearchOptions options;
  options.strategy = flags.strategy;
  options.seed = flags.seed;
  options.weights = bench.weights;
  options.tool_version = fmt::format("adamk {}", version());
  options.command_line = flags.command_line;
  return options;
}

/// Shows progress, and watches for Ctrl-C from now on.
class Watch {
 public:
  Watch(const CommonOptions& options, std::optional<std::int64_t> trials, std::optional<double> seconds)
      : interrupted_(catch_interrupts()), progress_(options.quiet), seconds_(seconds) {
    state_.total = trials;
  }

  SearchHooks hooks() {
    return {[this](const SearchProgress& now) { show(now); }, [this] { return interrupted_.load(); }};
  }
  void finish() {
    if (state_.done > 0) progress_.finish(state_);
  }

 private:
  void show(const SearchProgress& now) {
    state_.done = now.done;
    if (seconds_) state_.seconds_left = *seconds_ - now.seconds;
    state_.note = views::counts_text(now.counts);
    if (now.best_us > 0) state_.note = fmt::format("best {:.2f} us, {}", now.best_us, state_.note);
    if (now.reused > 0) state_.note += fmt::format(", {} known before", now.reused);
    progress_.show(state_);
  }

  const std::atomic<bool>& interrupted_;
  Progress progress_;
  ProgressState state_;
  std::optional<double> seconds_;
};

Result<std::vector<CandidateRow>> rows_of_run(TuningDb& database, const Evaluator& evaluator, std::int64_t run) {
  CandidateFilter filter;
  filter.run = run;
  filter.method = MethodFilter::any;
  filter.device = evaluator.device();
  return database.top(filter);
}

/// How the process that ran candidates was confined; null where none of their code was run.
Json isolation_to_json(const Evaluator& evaluator) {
  const std::string isolation = evaluator.isolation();
  return isolation.empty() ? Json() : Json(isolation);
}

/// Prints what there is; then an Error where the answer is no (nothing was sound) or came early (interrupted).
Result<void> report_run(const SearchFlags& flags, const SearchOutcome& outcome, const std::vector<CandidateRow>& rows,
                        const Evaluator& evaluator, const CommonOptions& options) {
  const RunRecord& run = outcome.run;
  int tried = 0;
  for (const auto& [status, count] : run.counts) tried += count;
  const CandidateRow* best = !rows.empty() && rows.front().status == Status::ok ? &rows.front() : nullptr;
  if (options.json) {
    ADAMK_CHECK(print_json(Json{{"run", run.id},
                                {"state", to_string(run.state)},
                                {"ended_by", run.ended_by},
                                {"repeated", outcome.repeated},
                                {"tried", tried},
                                {"known_before", outcome.reused},
                                {"counts", Json(run.counts)},
                                {"isolation", outcome.repeated ? Json() : isolation_to_json(evaluator)},
                                {"best", best != nullptr ? views::candidate_to_json(*best) : Json()}}));
  } else {
    const std::string why = run.state == RunState::completed ? " (" + run.ended_by + ")" : "";
    std::string text = fmt::format("run        {}, {}{}\n", run.id, to_string(run.state), why);
    text += fmt::format("tried      {} plans: {}", tried, views::counts_text(run.counts));
    text += outcome.reused > 0 ? fmt::format("; {} were known before\n", outcome.reused) : "\n";
    ADAMK_CHECK(print(text + (best != nullptr ? views::candidate_text(*best) : std::string())));
  }
  if (run.state == RunState::interrupted)
    return fail(Errc::interrupted, "stopped after {} plans; everything finished is in {}, and the same command goes on", tried,
                flags.database);
  if (best != nullptr) return {};
  const std::string first = rows.empty() ? "" : fmt::format("; {}: {}", to_string(rows.front().status), rows.front().message);
  return fail(Errc::not_found, "none of {} plans is sound{} (adamk-db top --db {} lists them)", tried, first, flags.database);
}

Result<void> run_run(const SearchFlags& flags, const CommonOptions& options) {
  ADAMK_CHECK(refuse_emulated(flags.device, "it has no time to search by; adamk-search eval checks plans on it"));
  ADAMK_TRY(const Budget budget, parse_budget(flags.budget));
  ADAMK_TRY(const DagFile dag, read_dag(flags.dag));
  ADAMK_TRY(const Space space, make_space(dag.deployment));
  ADAMK_TRY(const Bench bench, make_bench(flags, dag, options));
  ADAMK_TRY(const auto database, TuningDb::open(flags.database));
  SearchOptions wanted = search_options(flags, bench);
  wanted.budget = budget;
  Watch watch(options, budget.trials, budget.seconds);
  ADAMK_TRY(const SearchOutcome outcome, run_search(space, *bench.evaluator, *database, wanted, watch.hooks()));
  watch.finish();
  if (outcome.repeated)
    note(options, "this run was completed before, so its result is shown; another --seed or --budget searches further");
  ADAMK_TRY(const std::vector<CandidateRow> rows, rows_of_run(*database, *bench.evaluator, outcome.run.id));
  if (!flags.output.empty() && outcome.best) ADAMK_CHECK(write_json(flags.output, plan_to_json(*outcome.best)));
  return report_run(flags, outcome, rows, *bench.evaluator, options);
}

/// What the user states: files (of a plan, or of a DAG that holds one) are read before the database is touched, hashes or
/// their first digits are looked up in it.
bool is_hash(const std::string& text) {
  std::error_code ignored;
  return text.size() >= 6 && text.find_first_not_of("0123456789abcdef") == std::string::npos &&
         !std::filesystem::exists(text, ignored);
}

Result<Plan> plan_in(TuningDb& database, const std::string& hash) {
  ADAMK_TRY(const Json found, database.show(hash));
  ADAMK_TRY(const JsonView plan, JsonView(found, "plan " + hash).at("json"));
  return plan_from_json(plan);
}

// ---- eval --device emulated: the gate without a GPU. Nothing is recorded: a database holds what was measured or predicted.

Json emulated_to_json(const Plan& plan, const Evaluation& evaluation, const Evaluator& evaluator) {
  const auto count = [&](const char* name) {
    const auto found = evaluation.counters.find(fmt::format("emulator.{}", name));
    return found == evaluation.counters.end() ? Json() : Json(static_cast<std::uint64_t>(found->second));
  };
  return Json{{"plan_hash", plan.hash()},
              {"status", to_string(evaluation.status)},
              {"message", evaluation.message},
              {"method", to_string(Method::emulated)},
              {"device", evaluator.device().name},
              {"verified", evaluation.status == Status::ok},
              {"certificate", evaluation.verdict.certificate},
              {"positions", evaluation.verdict.positions},
              {"tokens", evaluation.verdict.tokens},
              {"error", evaluation.verdict.checked ? Json(evaluation.verdict.max_error) : Json()},
              {"tolerance", evaluation.verdict.checked ? Json(evaluation.verdict.tolerance) : Json()},
              {"launches", count("launches")},
              {"warp_instructions", count("warp_instructions")},
              {"races", count("races")},
              {"isolation", isolation_to_json(evaluator)},
              {"plan", plan_to_json(plan)}};
}

Cell count_cell(const Json& value) { return value.is_null() ? Cell() : Cell(value.get<std::int64_t>()); }

Result<void> print_emulated(const Json& listed, const std::vector<Plan>& plans, const CommonOptions& options) {
  if (options.json) return print_json(listed);
  Table table{{{"plan"}, {"status"}, {"tokens", true}, {"error", true}, {"tolerance", true}, {"launches", true},
               {"warp instructions", true}, {"races", true}, {"device"}, {"what"}}, {}};
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Json& row = listed[i];
    const auto error = [&row](const char* key) { return row[key].is_null() ? Cell() : Cell(row[key].get<double>(), 6); };
    table.rows.push_back({row["plan_hash"].get<std::string>().substr(0, 12), row["status"].get<std::string>(), row["tokens"].get<int>(),
                          error("error"), error("tolerance"), count_cell(row["launches"]), count_cell(row["warp_instructions"]),
                          count_cell(row["races"]), row["device"].get<std::string>(), views::plan_text(plans[i])});
  }
  return print_table(table, TableFormat::text, options);
}

Result<void> check_emulated(const SearchFlags& flags, const DagFile& dag, const std::vector<Plan>& plans, const CommonOptions& options) {
  ADAMK_TRY(const Bench bench, make_bench(flags, dag, options));
  const std::atomic<bool>& interrupted = catch_interrupts();
  std::vector<std::optional<Evaluation>> evaluations(plans.size());
  const auto finished = [&](std::size_t i, const Evaluation& evaluation) -> Result<void> {
    evaluations[i] = evaluation;
    return {};
  };
  ADAMK_CHECK(bench.evaluator->evaluate(dag.deployment, plans, finished, [&] { return interrupted.load(); }));
  Json listed = Json::array();
  std::vector<Plan> reached;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!evaluations[i]) continue;
    listed.push_back(emulated_to_json(plans[i], *evaluations[i], *bench.evaluator));
    reached.push_back(plans[i]);
  }
  ADAMK_CHECK(print_emulated(listed, reached, options));
  if (reached.size() < plans.size())
    return fail(Errc::interrupted, "stopped after {} of {} plans", reached.size(), plans.size());
  for (const Json& row : listed)
    if (row["status"] != to_string(Status::ok))
      return fail(Errc::check_failed, "plan {}: {}: {}", row["plan_hash"].get<std::string>(), row["status"].get<std::string>(),
                  row["message"].get<std::string>());
  return {};
}

/// Plan files are read before the database is touched; each plan once.
Result<std::vector<Plan>> stated_plans(const SearchFlags& flags, std::unique_ptr<TuningDb>& database, const CommonOptions& options) {
  std::map<std::string, Plan> from_files;
  for (const std::string& text : flags.plans) {
    if (!is_hash(text)) {
      ADAMK_TRY(from_files[text], read_plan(text));
    } else if (flags.database.empty()) {
      return fail(Errc::bad_input, "{}: hashes are looked up in a database: give --db", text);
    }
  }
  if (!flags.database.empty()) {
    ADAMK_TRY(database, TuningDb::open(flags.database, flags.device.emulated ? TuningDb::Mode::read_only : TuningDb::Mode::create));
  }
  std::vector<Plan> plans;
  std::set<std::string> hashes;
  for (const std::string& text : flags.plans) {
    ADAMK_TRY(Plan plan, is_hash(text) ? plan_in(*database, text) : Result<Plan>(from_files[text]));
    if (hashes.insert(plan.hash()).second) plans.push_back(std::move(plan));
    else note(options, fmt::format("{}: the same plan as one before it; it is tried once", text));
  }
  return plans;
}

Result<void> run_eval(const SearchFlags& flags, const CommonOptions& options) {
  if (flags.simulate) ADAMK_CHECK(refuse_emulated(flags.device, "--simulate runs nothing"));
  if (flags.database.empty() && !flags.device.emulated) return fail(Errc::bad_input, "--db is required (only --device emulated records nothing)");
  ADAMK_TRY(const DagFile dag, read_dag(flags.dag));
  std::unique_ptr<TuningDb> database;
  ADAMK_TRY(const std::vector<Plan> plans, stated_plans(flags, database, options));
  if (flags.device.emulated) return check_emulated(flags, dag, plans, options);
  ADAMK_TRY(const Bench bench, make_bench(flags, dag, options));
  Watch watch(options, static_cast<std::int64_t>(plans.size()), std::nullopt);
  ADAMK_TRY(const SearchOutcome outcome, run_plans(dag.deployment, plans, *bench.evaluator, *database,
                                                   search_options(flags, bench), watch.hooks()));
  watch.finish();
  if (outcome.repeated || outcome.reused > 0)
    note(options, "records that were there already are shown; they were not made again");
  ADAMK_TRY(const std::vector<CandidateRow> rows, rows_of_run(*database, *bench.evaluator, outcome.run.id));
  Json listed = views::candidates_to_json(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // Known for what ran just now; records do not keep it.
    listed[i]["isolation"] = outcome.repeated || rows[i].reused ? Json() : isolation_to_json(*bench.evaluator);
  }
  ADAMK_CHECK(options.json ? print_json(listed) : print_table(views::candidates_table(rows), TableFormat::text, options));
  if (outcome.run.state == RunState::interrupted)
    return fail(Errc::interrupted, "stopped after {} of {} plans; everything finished is in {}, and the same command goes on",
                rows.size(), plans.size(), flags.database);
  for (const CandidateRow& row : rows)
    if (row.status != Status::ok)
      return fail(Errc::check_failed, "plan {}: {}: {}", row.plan_hash, to_string(row.status), row.message);
  return {};
}

Result<void> run_probe(const ProbeFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const auto device, open_cuda_device(flags.device));
  note(options, fmt::format("measuring the read ceiling and the hop of {}: a few seconds", device->info().name));
  ADAMK_TRY(const Target target, probe_target(*device, flags.name));
  char date[16] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(date, sizeof date, "%Y-%m-%d", &utc);
  const int driver = device->info().driver_version;
  const std::string comment = fmt::format("Measured by adamk-search probe (adamk {}, CUDA driver {}.{}) on {}.", version(),
                                          driver / 1000, driver % 1000 / 10, date);
  ADAMK_TRY(const std::string yaml, target_to_yaml(target, comment));
  if (!flags.output.empty()) ADAMK_CHECK(write_file_atomic(flags.output, yaml));
  if (options.json) return print_json(target_to_json(target));
  if (flags.output.empty()) return print(yaml);
  return print(fmt::format("{} (sm_{}, {} SMs): {:.0f} GB/s, hop {:.2f} us; written to {}\n", target.product, target.sm,
                           target.sms, target.read_gbps, target.hop_us, flags.output));
}

// ---- flags

void add_common(CLI::App& app, SearchFlags& flags) {
  app.add_option("dag", flags.dag, "DAG file that adamk-dag build wrote")->required();
  app.add_option("--db", flags.database, "Tuning database; made when missing");
  app.add_flag("--simulate", flags.simulate, "Ask the cost model instead of a GPU; nothing is compiled or run");
  app.add_option("--seed", flags.seed, "Of every random choice")
      ->check(CLI::Range(std::uint64_t{0}, largest_seed))
      ->capture_default_str();
  add_weights_flags(app, flags.weights);
  add_device_flag(app, flags.device);
  app.add_option("--compile-workers", flags.compile_workers, "Compilations at once (default: half of the cores, at most 8)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--no-isolation", flags.no_isolation,
               "Let the processes that run candidates do whatever you may (docs/isolation.md)");
  app.add_flag("--run-spilling", flags.run_spilling, "Run kernels that spill registers too instead of leaving them out");
}

std::string strategies_text(bool json) {
  Table table{{{"strategy"}, {"tries"}}, {}};
  for (const StrategyInfo& strategy : strategies()) table.rows.push_back({strategy.name, strategy.description});
  std::string text = render(table, json ? TableFormat::json : TableFormat::text);
  text.erase(text.find_last_not_of('\n') + 1);   // CLI11 ends the line
  return text;
}

void add_run(Command& command, SearchFlags& flags) {
  CLI::App& run = command.add("run", "Search for the fastest plan of a deployment.",
                              [&] { return run_run(flags, command.options()); });
  add_common(run, flags);
  run.get_option("--db")->required();
  run.add_option("--budget", flags.budget, "Plans to try (200) or time to spend (60s, 2m, 1h)")->capture_default_str();
  std::set<std::string> names;
  for (const StrategyInfo& strategy : strategies()) names.emplace(strategy.name);
  run.add_option("--strategy", flags.strategy, "See --list")->check(CLI::IsMember(names))->capture_default_str();
  run.add_option("-o,--output", flags.output, "Write the best plan to this file too");
  run.add_flag_callback("--list", [&] { throw CLI::CallForVersion(strategies_text(command.options().json), 0); },
                        "List the strategies and exit");
}

void add_eval(Command& command, SearchFlags& flags) {
  CLI::App& eval = command.add("eval", "Put plans of your own through the same gate and record them.",
                               [&] { return run_eval(flags, command.options()); });
  add_common(eval, flags);
  eval.add_option("plan", flags.plans, "Plan files, or first digits of the hashes of plans in the database")->required();
}

void add_probe(Command& command, ProbeFlags& flags) {
  CLI::App& probe = command.add("probe", "Measure the GPU at hand and describe it as a target.",
                                [&] { return run_probe(flags, command.options()); });
  probe.add_option("--device", flags.device, "Index of the GPU")->check(CLI::NonNegativeNumber)->capture_default_str();
  probe.add_option("--name", flags.name, "Name of the target (default: from the product)");
  probe.add_option("-o,--output", flags.output, "YAML file to write (default: standard output)");
}

/// As a shell would take it.
std::string command_line_of(int argc, char** argv) {
  std::string line = "adamk-search";
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word.empty() || word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") !=
                            std::string::npos) {
      for (std::size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4) word.replace(at, 1, "'\\''");
      word = "'" + word + "'";
    }
    line += " " + word;
  }
  return line;
}

int run(int argc, char** argv) {
  Command command("adamk-search", "Find plans by trying them, on a GPU or by the cost model.");
  SearchFlags search;
  ProbeFlags probe;
  search.command_line = command_line_of(argc, argv);
  add_run(command, search);
  add_eval(command, search);
  add_probe(command, probe);
  return command.run(argc, argv);
}

}  // namespace
}  // namespace adamk

int main(int argc, char** argv) {
  if (const auto status = adamk::run_worker_if_asked(argc, argv)) return *status;
  return adamk::run(argc, argv);
}
