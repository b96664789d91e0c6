// adamk-db: what a tuning database knows.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/ranges.h>

#include "adamk/dag/dag_file.h"
#include "adamk/profile/device_evaluator.h"
#include "adamk/profile/tuning_db.h"
#include "common/candidate_views.h"
#include "common/command.h"

namespace adamk {
namespace {

struct DbFlags {
  std::string database, dag, deployment, match, status, sql;
  std::vector<std::string> id;
  bool simulated = false, here = false;
  int device = 0, limit = 10;
  TableFormat format = TableFormat::text;
};

bool wants_json(const DbFlags& flags, const CommonOptions& options) {
  return options.json || flags.format == TableFormat::json;
}

/// "ab12... (llama, l20, bf16, context 256), cd34..." of a database that holds several.
Result<std::string> deployments_text(const std::string& database) {
  ADAMK_TRY(const QueryResult found,
            query_database(database, "SELECT substr(d.key, 1, 12) || ' (' || m.family || ', ' || d.target || ', ' || "
                                     "d.weights || ', context ' || d.context || ')' FROM deployments d "
                                     "JOIN models m ON m.id = d.model_id ORDER BY d.id"));
  std::vector<std::string> parts;
  for (const auto& row : found.rows) parts.push_back(row[0].get<std::string>());
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// The deployment asked about: --dag, --deployment, else the only one there is.
Result<Deployment> asked_deployment(const DbFlags& flags, TuningDb& database) {
  if (!flags.dag.empty()) {
    ADAMK_TRY(DagFile dag, read_dag(flags.dag));
    return std::move(dag.deployment);
  }
  auto found = database.deployment(flags.deployment);
  if (found || !flags.deployment.empty()) return found;
  if (found.error().code == Errc::not_found) {
    ADAMK_TRY(const std::string why, database.explain_empty({}));
    return fail(Errc::not_found, "{}", why);
  }
  if (found.error().code != Errc::bad_input) return found;
  ADAMK_TRY(const std::string known, deployments_text(flags.database));
  return fail(Errc::bad_input, "{}: holds several deployments; choose one with --dag or --deployment: {}", flags.database,
              known);
}

/// What match quality is against: the deployment's chip with whatever driver and toolkit, or the GPU here with its own.
Result<DeviceIdentity> asked_device(const DbFlags& flags, const Target& target) {
  if (flags.here) {
    ADAMK_TRY(const auto device, open_cuda_device(flags.device));
    return device_identity(device->info());
  }
  DeviceIdentity chip;
  chip.name = flags.simulated ? "simulated " + target.name : target.product;
  chip.sm = target.sm;
  chip.sms = target.sms;
  return chip;
}

Result<CandidateFilter> filter_of(const DbFlags& flags, TuningDb& database) {
  CandidateFilter filter;
  ADAMK_TRY(const Deployment deployment, asked_deployment(flags, database));
  filter.deployment = deployment.key();
  filter.method = flags.simulated ? MethodFilter::simulated : MethodFilter::measured;
  ADAMK_TRY(filter.device, asked_device(flags, deployment.target));
  const std::map<std::string, Match> matches{
      {"exact", Match::exact}, {"same-sm", Match::same_sm}, {"nearest", Match::nearest}};
  if (!flags.match.empty()) filter.worst_match = matches.at(flags.match);
  if (!flags.status.empty()) {
    ADAMK_TRY(filter.status, parse_status(flags.status));
  }
  filter.limit = flags.limit;
  return filter;
}

void note_match(const CandidateRow& row, const DeviceIdentity& asked, const CommonOptions& options) {
  if (row.match == Match::exact) return;
  note(options, fmt::format("no record of {} (sm_{}, {} SMs{}): the best match is {} (sm_{}, {} SMs), '{}'", asked.name,
                            asked.sm, asked.sms, asked.toolkit.empty() ? "" : ", this driver and NVRTC", row.device.name,
                            row.device.sm, row.device.sms, to_string(row.match)));
}

Result<void> run_best(const DbFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const auto database, TuningDb::open(flags.database, TuningDb::Mode::read_only));
  ADAMK_TRY(const CandidateFilter filter, filter_of(flags, *database));
  ADAMK_TRY(const CandidateRow row, database->best(filter));
  note_match(row, *filter.device, options);
  return options.json ? print_json(views::candidate_to_json(row)) : print(views::candidate_text(row));
}

Result<void> run_top(const DbFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const auto database, TuningDb::open(flags.database, TuningDb::Mode::read_only));
  ADAMK_TRY(const CandidateFilter filter, filter_of(flags, *database));
  ADAMK_TRY(const std::vector<CandidateRow> rows, database->top(filter));
  if (rows.empty()) {
    ADAMK_TRY(const std::string why, database->explain_empty(filter));
    return fail(Errc::not_found, "{}", why);
  }
  note_match(rows.front(), *filter.device, options);
  if (wants_json(flags, options)) return print_json(views::candidates_to_json(rows));
  return print_table(views::candidates_table(rows), flags.format, options);
}

// ---- show

std::string scalar_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_flat(const Json& value) {
  if (!value.is_structured() || value.empty()) return true;
  return value.is_array() && std::none_of(value.begin(), value.end(), [](const Json& each) { return each.is_structured(); });
}

Cell record_cell(const Json& value) {
  if (value.is_number_float()) return Cell(value.get<double>(), 2);
  return value.is_null() || value == "" ? Cell() : Cell(scalar_text(value));
}

/// `name  value` lines, nested members indented; lists of records one line each.
void add_lines(const Json& document, std::size_t indent, std::string& text) {
  for (const auto& [name, value] : document.items()) {
    const std::string margin(indent, ' ');
    if (is_flat(value)) {
      text += fmt::format("{}{:<18} {}\n", margin, name, scalar_text(value));
    } else if (value.is_array() && !value.empty() && value[0].is_object() && value[0].contains("candidate")) {
      Table table;
      const std::vector<const char*> columns{"candidate", "run", "plan", "device", "method", "status", "us", "gbps", "percent",
                                             "message"};
      for (const char* column : columns) table.columns.push_back({column, value[0][column].is_number()});
      for (const Json& record : value) {
        table.rows.emplace_back();
        for (const char* column : columns) table.rows.back().push_back(record_cell(record[column]));
      }
      text += fmt::format("{}{}\n{}", margin, name, render(table, TableFormat::text));
    } else {
      text += fmt::format("{}{}\n", margin, name);
      if (value.is_object()) add_lines(value, indent + 2, text);
      else for (const Json& each : value) text += fmt::format("{}  {}\n", margin, scalar_text(each));
    }
  }
}

Result<void> run_show(const DbFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const auto database, TuningDb::open(flags.database, TuningDb::Mode::read_only));
  ADAMK_TRY(const Json found, database->show(fmt::format("{}", fmt::join(flags.id, " "))));
  if (options.json) return print_json(found);
  std::string text;
  add_lines(found, 0, text);
  return print(text);
}

// ---- query, history, check

Result<void> run_query(const DbFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const QueryResult found, query_database(flags.database, flags.sql));
  Table table;
  for (std::size_t i = 0; i < found.columns.size(); ++i) {
    const bool numbers = std::all_of(found.rows.begin(), found.rows.end(),
                                     [i](const auto& row) { return row[i].is_number() || row[i].is_null(); });
    table.columns.push_back({found.columns[i], numbers});
  }
  for (const auto& row : found.rows) {
    table.rows.emplace_back();
    for (const Json& value : row) {
      Cell cell;
      if (!value.is_null()) cell.text = scalar_text(value);
      cell.value = value;
      table.rows.back().push_back(std::move(cell));
    }
  }
  return print_table(table, flags.format, options);
}

Json run_to_json(const RunRow& run) {
  return {{"run", run.record.id},
          {"state", to_string(run.record.state)},
          {"ended_by", run.record.ended_by},
          {"deployment", run.deployment},
          {"target", run.target},
          {"device", run.key.device.name},
          {"method", to_string(run.key.method)},
          {"strategy", run.key.strategy},
          {"seed", run.key.seed},
          {"budget", run.key.budget},
          {"weights", run.key.weights},
          {"tool_version", run.key.tool_version},
          {"counts", Json(run.record.counts)},
          {"best_plan", run.record.best_plan},
          {"best_us", run.record.best_us > 0 ? Json(run.record.best_us) : Json()},
          {"started_at", run.started_at},
          {"ended_at", run.ended_at},
          {"command_line", run.command_line}};
}

Result<void> run_history(const DbFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const auto database, TuningDb::open(flags.database, TuningDb::Mode::read_only));
  ADAMK_TRY(const std::vector<RunRow> runs, database->runs());
  if (runs.empty()) return fail(Errc::not_found, "{}: holds no runs yet; adamk-search run makes them", flags.database);
  if (wants_json(flags, options)) {
    Json list = Json::array();
    for (const RunRow& run : runs) list.push_back(run_to_json(run));
    return print_json(list);
  }
  Table table{{{"run", true}, {"state"}, {"ended by"}, {"deployment"}, {"target"}, {"device"}, {"method"}, {"strategy"},
               {"seed", true}, {"budget", true}, {"plans"}, {"best us", true}, {"best plan"}, {"started"}}, {}};
  for (const RunRow& run : runs) {
    const double best = run.record.best_us > 0 ? run.record.best_us : std::nan("");
    const auto cell = [](const std::string& text) { return text.empty() ? Cell() : Cell(text); };
    table.rows.push_back({run.record.id, to_string(run.record.state), cell(run.record.ended_by), run.deployment.substr(0, 12),
                          run.target, run.key.device.name, to_string(run.key.method), run.key.strategy, run.key.seed,
                          run.key.budget, views::counts_text(run.record.counts), Cell(best, 2),
                          cell(run.record.best_plan.substr(0, 12)), run.started_at});
  }
  return print_table(table, flags.format, options);
}

Result<void> run_check(const DbFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const auto database, TuningDb::open(flags.database, TuningDb::Mode::existing));   // migrates an older file
  ADAMK_TRY(const DatabaseCheck check, database->check());
  if (options.json) {
    ADAMK_CHECK(print_json(Json{{"schema_version", check.schema_version},
                                {"runs", check.runs},
                                {"candidates", check.candidates},
                                {"problems", check.problems}}));
  } else {
    const std::string verdict = check.problems.empty() ? "sound" : fmt::format("{} problems", check.problems.size());
    std::string text = fmt::format("schema {}, {} runs, {} candidates: {}\n", check.schema_version, check.runs,
                                   check.candidates, verdict);
    for (const std::string& problem : check.problems) text += "  " + problem + "\n";
    ADAMK_CHECK(print(text));
  }
  if (check.problems.empty()) return {};
  return fail(Errc::check_failed, "{}: {}", flags.database, check.problems.front());
}

// ---- flags

void add_database(CLI::App& app, DbFlags& flags) {
  app.add_option("--db", flags.database, "Tuning database that adamk-search wrote")->required();
}

void add_filter(CLI::App& app, DbFlags& flags) {
  CLI::Option* dag = app.add_option("--dag", flags.dag, "Of this DAG file's deployment (default: the only one there is)");
  app.add_option("--deployment", flags.deployment, "Of the deployment with this key, or the start of one")->excludes(dag);
  CLI::Option* simulated = app.add_flag("--simulated", flags.simulated, "The cost model's predictions, not measurements");
  app.add_flag("--here", flags.here, "Match against the GPU here, its driver and NVRTC (default: the deployment's chip)")
      ->excludes(simulated);
  app.add_option("--device", flags.device, "Index of the GPU for --here")->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--match", flags.match, "Leave out records that match worse: exact, same-sm or nearest")
      ->check(CLI::IsMember({"exact", "same-sm", "nearest"}));
}

int run(int argc, char** argv) {
  Command command("adamk-db", "Ask the tuning database.");
  DbFlags flags;
  const auto add = [&](const char* name, const char* description, Result<void> (*body)(const DbFlags&, const CommonOptions&)) {
    CLI::App& sub = command.add(name, description, [&flags, &command, body] { return body(flags, command.options()); });
    add_database(sub, flags);
    return &sub;
  };
  add_filter(*add("best", "The fastest sound plan of a deployment.", run_best), flags);

  CLI::App* top = add("top", "The plans of a deployment, fastest first, failed ones last.", run_top);
  add_filter(*top, flags);
  top->add_option("--limit,-n", flags.limit, "Plans to list; 0: all")->check(CLI::NonNegativeNumber)->capture_default_str();
  top->add_option("--status", flags.status, "Only plans that ended so: ok, infeasible, rejected, compile_error, spills, "
                                            "wrong_result, timeout or crashed");
  add_table_format(*top, flags.format);

  CLI::App* show = add("show", "Everything about one candidate, plan or run.", run_show);
  show->add_option("id", flags.id, "A candidate's number, a plan's hash or its first 6 digits, or: run NUMBER")->required();

  CLI::App* query = add("query", "Run one SQL statement that only reads (tables: docs/tuning-database.md).", run_query);
  query->add_option("sql", flags.sql, "The statement")->required();
  add_table_format(*query, flags.format);

  add_table_format(*add("history", "The runs, oldest first.", run_history), flags.format);
  add("check", "Whether the file is sound; brings an older one up to date.", run_check);
  return command.run(argc, argv);
}

}  // namespace
}  // namespace adamk

int main(int argc, char** argv) { return adamk::run(argc, argv); }
