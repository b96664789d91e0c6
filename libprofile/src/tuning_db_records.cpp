// TuningDb as Records: what the search loop writes and reads back.
#include <cmath>
#include <limits>

#include "adamk/base/hash.h"
#include "tuning_db_state.h"

namespace adamk {

using tuning_db::guarded;

namespace {

constexpr const char* kNow = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')";

/// SQLite stores NaN as NULL; a figure that is not a number is as bad as it can be.
double storable(double value) { return std::isnan(value) ? std::numeric_limits<double>::infinity() : value; }

template <class... Values>
void execute(SQLite::Database& db, const std::string& sql, const Values&... values) {
  SQLite::Statement statement(db, sql);
  SQLite::bind(statement, values...);
  statement.exec();
}

template <class... Values>
std::optional<std::int64_t> select_id(SQLite::Database& db, const std::string& sql, const Values&... values) {
  SQLite::Statement statement(db, sql);
  SQLite::bind(statement, values...);
  if (!statement.executeStep()) return std::nullopt;
  return statement.getColumn(0).getInt64();
}

/// Of a row that was written just now or before: without it the file is damaged.
template <class... Values>
std::int64_t written_id(SQLite::Database& db, const std::string& sql, const Values&... values) {
  if (const auto id = select_id(db, sql, values...)) return *id;
  throw SQLite::Exception("a row is missing that was written just now", SQLITE_CORRUPT);
}

std::int64_t device_id(SQLite::Database& db, const DeviceIdentity& device) {
  const std::string fingerprint = device.fingerprint();
  execute(db,
          "INSERT INTO devices (fingerprint, name, sm, sms, driver, toolkit, memory_bytes, clock_mhz, read_gbps, hop_us) "
          "VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (fingerprint) DO UPDATE SET read_gbps = excluded.read_gbps, "
          "hop_us = excluded.hop_us WHERE excluded.read_gbps > 0",
          fingerprint, device.name, device.sm, device.sms, device.driver, device.toolkit, device.memory_bytes,
          device.clock_mhz, device.read_gbps, device.hop_us);
  return written_id(db, "SELECT id FROM devices WHERE fingerprint = ?", fingerprint);
}

std::int64_t deployment_id(SQLite::Database& db, const Deployment& deployment) {
  const std::string key = deployment.key();
  if (const auto known = select_id(db, "SELECT id FROM deployments WHERE key = ?", key)) return *known;
  const std::string model = model_to_json(deployment.model).dump();
  const std::string hash = hash_hex(model);
  execute(db, "INSERT OR IGNORE INTO models (hash, family, json) VALUES (?,?,?)", hash, deployment.model.family, model);
  const std::int64_t model_id = written_id(db, "SELECT id FROM models WHERE hash = ?", hash);
  execute(db, "INSERT INTO deployments (key, model_id, target, weights, context, json) VALUES (?,?,?,?,?,?)", key, model_id,
          deployment.target.name, std::string(to_string(deployment.weights)), deployment.workload.context,
          deployment_to_json(deployment).dump());
  return db.getLastInsertRowid();
}

std::int64_t plan_id(SQLite::Database& db, const Plan& plan) {
  const std::string hash = plan.hash();
  execute(db, "INSERT OR IGNORE INTO plans (hash, json) VALUES (?,?)", hash, plan_to_json(plan).dump());
  return written_id(db, "SELECT id FROM plans WHERE hash = ?", hash);
}

std::int64_t insert_kernel(SQLite::Database& db, const KernelResources& kernel) {
  execute(db,
          "INSERT INTO kernels (source_hash, cubin_hash, arch, registers, spill_bytes, threads, smem_bytes, code_bytes, "
          "compile_seconds) VALUES (?,?,?,?,?,?,?,?,?)",
          kernel.source_hash, kernel.cubin_hash, kernel.arch, kernel.registers, kernel.spill_bytes, kernel.threads,
          kernel.smem_bytes, kernel.code_bytes, kernel.compile_seconds);
  return db.getLastInsertRowid();
}

std::int64_t insert_verdict(SQLite::Database& db, const Verdict& verdict) {
  execute(db,
          "INSERT INTO verdicts (certificate, positions, tokens, near_ties, max_error, tolerance) VALUES (?,?,?,?,?,?)",
          verdict.certificate, verdict.positions, verdict.tokens, verdict.near_ties, storable(verdict.max_error),
          verdict.tolerance);
  return db.getLastInsertRowid();
}

std::int64_t insert_measurement(SQLite::Database& db, const Evaluation& evaluation) {
  const Json samples(evaluation.samples_us), counters(evaluation.counters);
  execute(db,
          "INSERT INTO measurements (samples, median_us, p10_us, p90_us, bytes_per_token, ceiling_gbps, clock_mhz, "
          "temperature_c, throttled, counters) VALUES (?,?,?,?,?,?,?,?,?,?)",
          samples.dump(), storable(evaluation.median_us()), storable(quantile(evaluation.samples_us, 0.1)),
          storable(quantile(evaluation.samples_us, 0.9)), evaluation.bytes_per_token, evaluation.ceiling_gbps,
          evaluation.conditions.clock_mhz, evaluation.conditions.temperature_c, evaluation.conditions.throttled,
          evaluation.counters.empty() ? "{}" : counters.dump());
  return db.getLastInsertRowid();
}

void bind_optional(SQLite::Statement& statement, int index, const std::optional<std::int64_t>& value) {
  if (value) statement.bind(index, *value);
  else statement.bind(index);
}

/// A fresh candidate with its kernel, verdict and measurement, as far as it came.
void insert_fresh(SQLite::Database& db, std::int64_t run, int ordinal, std::int64_t plan, const Evaluation& evaluation) {
  std::optional<std::int64_t> kernel, verdict, measurement;
  if (!evaluation.resources.source_hash.empty()) kernel = insert_kernel(db, evaluation.resources);
  if (evaluation.verdict.checked) verdict = insert_verdict(db, evaluation.verdict);
  if (!evaluation.samples_us.empty()) measurement = insert_measurement(db, evaluation);
  SQLite::Statement insert(db, fmt::format("INSERT INTO candidates (run_id, ordinal, plan_id, status, message, kernel_id, "
                                           "verdict_id, measurement_id, evaluated_at) VALUES (?,?,?,?,?,?,?,?,{})", kNow));
  insert.bind(1, run);
  insert.bind(2, ordinal);
  insert.bind(3, plan);
  insert.bind(4, std::string(to_string(evaluation.status)));
  insert.bind(5, evaluation.message);
  bind_optional(insert, 6, kernel);
  bind_optional(insert, 7, verdict);
  bind_optional(insert, 8, measurement);
  insert.exec();
}

void insert_reused(SQLite::Database& db, std::int64_t run, int ordinal, std::int64_t plan, std::int64_t record) {
  execute(db,
          "INSERT INTO candidates (run_id, ordinal, plan_id, status, message, kernel_id, verdict_id, measurement_id, "
          "reused_from, evaluated_at) SELECT ?, ?, ?, status, message, kernel_id, verdict_id, measurement_id, id, "
          "evaluated_at FROM candidates WHERE id = ?",
          run, ordinal, plan, record);
}

RunRecord read_run(SQLite::Database& db, std::int64_t id) {
  SQLite::Statement row(db,
                        "SELECT r.state, r.ended_by, p.hash, m.median_us FROM runs r LEFT JOIN plans p ON p.id = r.best_plan_id "
                        "LEFT JOIN candidates c ON c.run_id = r.id AND c.plan_id = r.best_plan_id "
                        "LEFT JOIN measurements m ON m.id = c.measurement_id WHERE r.id = ?");
  row.bind(1, id);
  row.executeStep();
  RunRecord record;
  record.id = id;
  const std::string state = row.getColumn(0).getString();
  record.state = state == "completed" ? RunState::completed
                 : state == "interrupted" ? RunState::interrupted : RunState::running;
  record.ended_by = row.getColumn(1).getString();
  record.best_plan = row.getColumn(2).isNull() ? "" : row.getColumn(2).getString();
  record.best_us = row.getColumn(3).isNull() ? 0 : row.getColumn(3).getDouble();
  record.counts = tuning_db::count_statuses(db, id);
  return record;
}

Result<Evaluation> read_evaluation(const std::filesystem::path& path, SQLite::Statement& row, Method method) {
  Evaluation out;
  out.method = method;
  out.record = row.getColumn(0).getInt64();
  ADAMK_TRY(out.status, parse_status(row.getColumn(1).getString()));
  out.message = row.getColumn(2).getString();
  if (!row.getColumn(3).isNull()) {
    ADAMK_TRY(const Json samples, tuning_db::parse_stored(path, row.getColumn(3).getString(), "samples"));
    for (const Json& sample : samples)
      if (sample.is_number()) out.samples_us.push_back(sample.get<double>());
    out.bytes_per_token = row.getColumn(4).getDouble();
    out.ceiling_gbps = row.getColumn(5).getDouble();
    out.conditions = {row.getColumn(6).getDouble(), row.getColumn(7).getDouble(), row.getColumn(8).getInt()};
  }
  if (!row.getColumn(9).isNull())
    out.verdict = {true, row.getColumn(9).getString(), row.getColumn(10).getInt(), row.getColumn(11).getInt(),
                   row.getColumn(12).getInt(), row.getColumn(13).getDouble(), row.getColumn(14).getDouble()};
  if (!row.getColumn(15).isNull()) {
    KernelResources& kernel = out.resources;
    kernel.source_hash = row.getColumn(15).getString();
    kernel.cubin_hash = row.getColumn(16).getString();
    kernel.arch = row.getColumn(17).getString();
    kernel.registers = row.getColumn(18).getInt();
    kernel.spill_bytes = row.getColumn(19).getInt();
    kernel.threads = row.getColumn(20).getInt();
    kernel.smem_bytes = row.getColumn(21).getInt64();
    kernel.code_bytes = row.getColumn(22).getInt64();
    kernel.compile_seconds = row.getColumn(23).getDouble();
  }
  return out;
}

}  // namespace

namespace tuning_db {

std::map<std::string, int> count_statuses(SQLite::Database& db, std::int64_t run) {
  std::map<std::string, int> counts;
  SQLite::Statement rows(db, "SELECT status, count(*) FROM candidates WHERE run_id = ? GROUP BY status");
  rows.bind(1, run);
  while (rows.executeStep()) counts[rows.getColumn(0).getString()] = rows.getColumn(1).getInt();
  return counts;
}

}  // namespace tuning_db

Result<RunRecord> TuningDb::open_run(const Deployment& deployment, const RunKey& key, const std::string& command_line) {
  return guarded(state_->path, [&]() -> Result<RunRecord> {
    SQLite::Database& db = state_->db;
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
    const std::int64_t where = deployment_id(db, deployment), device = device_id(db, key.device);
    const std::string method(to_string(key.method));
    const auto seed = static_cast<std::int64_t>(key.seed);
    execute(db,
            fmt::format("INSERT INTO runs (deployment_id, device_id, method, strategy, seed, budget, weights, tool_version, "
                        "command_line, state, started_at) VALUES (?,?,?,?,?,?,?,?,?,'running',{}) ON CONFLICT DO NOTHING",
                        kNow),
            where, device, method, key.strategy, seed, key.budget, key.weights, key.tool_version, command_line);
    const std::int64_t id = written_id(db,
                                       "SELECT id FROM runs WHERE deployment_id = ? AND device_id = ? AND method = ? AND "
                                       "strategy = ? AND seed = ? AND budget = ? AND weights = ? AND tool_version = ?",
                                       where, device, method, key.strategy, seed, key.budget, key.weights, key.tool_version);
    RunRecord record = read_run(db, id);
    if (record.state != RunState::completed) {
      execute(db, "UPDATE runs SET state = 'running', command_line = ? WHERE id = ?", command_line, id);
      record.state = RunState::running;
    }
    transaction.commit();
    return record;
  });
}

Result<std::optional<Evaluation>> TuningDb::find(const Deployment& deployment, const RunKey& key,
                                                 const std::string& plan_hash) {
  return guarded(state_->path, [&]() -> Result<std::optional<Evaluation>> {
    SQLite::Statement row(state_->db,
        "SELECT c.id, c.status, c.message, m.samples, m.bytes_per_token, m.ceiling_gbps, m.clock_mhz, m.temperature_c, "
        "m.throttled, w.certificate, w.positions, w.tokens, w.near_ties, w.max_error, w.tolerance, k.source_hash, "
        "k.cubin_hash, k.arch, k.registers, k.spill_bytes, k.threads, k.smem_bytes, k.code_bytes, k.compile_seconds "
        "FROM candidates c JOIN plans p ON p.id = c.plan_id JOIN runs r ON r.id = c.run_id "
        "JOIN deployments d ON d.id = r.deployment_id JOIN devices v ON v.id = r.device_id "
        "LEFT JOIN measurements m ON m.id = c.measurement_id LEFT JOIN verdicts w ON w.id = c.verdict_id "
        "LEFT JOIN kernels k ON k.id = c.kernel_id "
        "WHERE p.hash = ? AND d.key = ? AND v.fingerprint = ? AND r.method = ? AND r.weights = ? AND r.tool_version = ? "
        "AND c.reused_from IS NULL ORDER BY c.id DESC LIMIT 1");
    SQLite::bind(row, plan_hash, deployment.key(), key.device.fingerprint(), std::string(to_string(key.method)), key.weights,
                 key.tool_version);
    if (!row.executeStep()) return std::optional<Evaluation>();
    ADAMK_TRY(Evaluation evaluation, read_evaluation(state_->path, row, key.method));
    return std::optional<Evaluation>(std::move(evaluation));
  });
}

Result<void> TuningDb::store(std::int64_t run, int ordinal, const Deployment&, const Plan& plan,
                             const Evaluation& evaluation) {
  return guarded(state_->path, [&]() -> Result<void> {
    SQLite::Database& db = state_->db;
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
    const std::int64_t id = plan_id(db, plan);
    if (select_id(db, "SELECT id FROM candidates WHERE run_id = ? AND plan_id = ?", run, id)) return {};
    if (evaluation.record != 0) insert_reused(db, run, ordinal, id, evaluation.record);
    else insert_fresh(db, run, ordinal, id, evaluation);
    transaction.commit();
    return {};
  });
}

Result<void> TuningDb::close_run(std::int64_t run, RunState state, const std::string& ended_by,
                                 const std::string& best_plan) {
  return guarded(state_->path, [&]() -> Result<void> {
    execute(state_->db,
            fmt::format("UPDATE runs SET state = ?, ended_by = ?, ended_at = {}, "
                        "best_plan_id = (SELECT id FROM plans WHERE hash = ?) WHERE id = ?", kNow),
            std::string(to_string(state)), ended_by, best_plan, run);
    return {};
  });
}

Result<Plan> TuningDb::plan(const std::string& plan_hash) {
  return guarded(state_->path, [&]() -> Result<Plan> {
    SQLite::Statement row(state_->db, "SELECT json FROM plans WHERE hash = ?");
    row.bind(1, plan_hash);
    if (!row.executeStep()) return fail(Errc::not_found, "{}: holds no plan {}", state_->path.string(), plan_hash);
    return tuning_db::plan_of_text(state_->path, row.getColumn(0).getString(), plan_hash);
  });
}

}  // namespace adamk
