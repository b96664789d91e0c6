// Everything about one record, the file's own health, and read-only SQL.
#include <algorithm>
#include <charconv>

#include "adamk/base/hash.h"
#include "tuning_db_state.h"

namespace adamk {

using tuning_db::guarded;

namespace {

Json column_json(const SQLite::Column& column) {
  switch (column.getType()) {
    case SQLITE_INTEGER: return column.getInt64();
    case SQLITE_FLOAT: return column.getDouble();
    case SQLITE_NULL: return nullptr;
    default: return column.getString();
  }
}

/// One row as an object; texts that hold JSON (named in `parsed`) become JSON.
Json row_json(SQLite::Statement& row, std::initializer_list<std::string_view> parsed = {}) {
  Json out = Json::object();
  for (int i = 0; i < row.getColumnCount(); ++i) {
    const std::string name = row.getColumnName(i);
    Json value = column_json(row.getColumn(i));
    if (value.is_string() && std::find(parsed.begin(), parsed.end(), name) != parsed.end())
      value = Json::parse(value.get<std::string>(), nullptr, false);
    out[name] = std::move(value);
  }
  return out;
}

Json row_by_id(SQLite::Database& db, const std::string& table, const Json& id,
               std::initializer_list<std::string_view> parsed = {}) {
  if (!id.is_number_integer()) return nullptr;
  SQLite::Statement row(db, "SELECT * FROM " + table + " WHERE id = ?");
  row.bind(1, id.get<std::int64_t>());
  return row.executeStep() ? row_json(row, parsed) : Json();
}

Json candidate_json(SQLite::Database& db, const Json& id) {
  Json out = row_by_id(db, "candidates", id);
  if (out.is_null()) return out;
  out["plan"] = row_by_id(db, "plans", out["plan_id"], {"json"});
  out["kernel"] = row_by_id(db, "kernels", out["kernel_id"], {"ptx_statistics"});
  out["verdict"] = row_by_id(db, "verdicts", out["verdict_id"]);
  out["measurement"] = row_by_id(db, "measurements", out["measurement_id"], {"samples", "counters"});
  out["run"] = row_by_id(db, "runs", out["run_id"]);
  out["device"] = row_by_id(db, "devices", out["run"]["device_id"]);
  out["deployment"] = row_by_id(db, "deployments", out["run"]["deployment_id"], {"json"});
  for (const char* key : {"plan_id", "kernel_id", "verdict_id", "measurement_id", "run_id"}) out.erase(key);
  return out;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Json ids(SQLite::Database& db, const std::string& sql, const Json& id) {
  SQLite::Statement rows(db, sql);
  rows.bind(1, id.get<std::int64_t>());
  Json out = Json::array();
  while (rows.executeStep()) out.push_back(row_json(rows));
  return out;
}

Result<Json> plan_json(SQLite::Database& db, const std::filesystem::path& path, const std::string& start) {
  if (start.size() < 6 || start.find_first_not_of("0123456789abcdef") != std::string::npos)
    return fail(Errc::bad_input, "'{}' is neither a candidate's number, nor 'run N', nor 6 or more digits of a plan's hash", start);
  SQLite::Statement row(db, "SELECT * FROM plans WHERE hash >= ? AND hash < ? || 'g' LIMIT 2");
  SQLite::bind(row, start, start);
  if (!row.executeStep()) return fail(Errc::not_found, "{}: holds no plan whose hash starts with {}", path.string(), start);
  Json out = row_json(row, {"json"});
  if (row.executeStep())
    return fail(Errc::bad_input, "{}: several plans start with {}; give more digits", path.string(), start);
  out["candidates"] = ids(db, "SELECT * FROM results WHERE plan = (SELECT hash FROM plans WHERE id = ?) ORDER BY candidate",
                          out["id"]);
  return out;
}

}  // namespace

Result<Json> TuningDb::show(const std::string& id) {
  return guarded(state_->path, [&]() -> Result<Json> {
    SQLite::Database& db = state_->db;
    if (id.rfind("run ", 0) == 0) {
      const auto run = number(std::string_view(id).substr(4));
      Json out = run ? row_by_id(db, "runs", Json(*run)) : Json();
      if (out.is_null()) return fail(Errc::not_found, "{}: holds no {}", state_->path.string(), id);
      out["candidates"] = ids(db, "SELECT * FROM results WHERE run = ? ORDER BY candidate", out["id"]);
      return out;
    }
    if (const auto candidate = number(id)) {
      Json out = candidate_json(db, Json(*candidate));
      if (!out.is_null()) return out;
      if (id.size() < 6) return fail(Errc::not_found, "{}: holds no candidate {}", state_->path.string(), id);
    }
    return plan_json(db, state_->path, id);
  });
}

Result<DatabaseCheck> TuningDb::check() {
  return guarded(state_->path, [&]() -> Result<DatabaseCheck> {
    SQLite::Database& db = state_->db;
    DatabaseCheck out;
    out.schema_version = db.execAndGet("PRAGMA user_version").getInt();
    SQLite::Statement integrity(db, "PRAGMA integrity_check");
    while (integrity.executeStep())
      if (integrity.getColumn(0).getString() != "ok") out.problems.push_back(integrity.getColumn(0).getString());
    SQLite::Statement keys(db, "PRAGMA foreign_key_check");
    while (keys.executeStep())
      out.problems.push_back(fmt::format("{} row {} refers to a missing row of {}", keys.getColumn(0).getString(),
                                         keys.getColumn(1).getInt64(), keys.getColumn(2).getString()));
    SQLite::Statement plans(db, "SELECT hash, json FROM plans");
    while (plans.executeStep()) {
      const std::string hash = plans.getColumn(0).getString();
      const Result<Plan> plan = tuning_db::plan_of_text(state_->path, plans.getColumn(1).getString(), hash);
      if (!plan) out.problems.push_back(plan.error().message);
      else if (plan->hash() != hash) out.problems.push_back(fmt::format("plan {}: its content has hash {}", hash, plan->hash()));
    }
    out.candidates = db.execAndGet("SELECT count(*) FROM candidates").getInt64();
    out.runs = db.execAndGet("SELECT count(*) FROM runs").getInt64();
    return out;
  });
}

Result<Deployment> TuningDb::deployment(const std::string& key) {
  return guarded(state_->path, [&]() -> Result<Deployment> {
    SQLite::Statement row(state_->db, "SELECT key, json FROM deployments WHERE key >= ? AND key < ? || 'g' LIMIT 2");
    SQLite::bind(row, key, key);
    if (!row.executeStep())
      return fail(Errc::not_found, "{}: holds no deployment whose key starts with '{}'", state_->path.string(), key);
    const std::string found = row.getColumn(0).getString(), text = row.getColumn(1).getString();
    if (row.executeStep())
      return fail(Errc::bad_input, "{}: several deployments start with '{}'; give more digits", state_->path.string(), key);
    const std::string what = "deployment " + found;
    ADAMK_TRY(const Json json, tuning_db::parse_stored(state_->path, text, what));
    return deployment_from_json(JsonView(json, state_->path.string() + ": " + what));
  });
}

namespace {

/// Reading only. PRAGMA, ATTACH, every write, and the function that loads code are refused.
int authorise(void*, int action, const char*, const char* name, const char*, const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_FUNCTION: return std::string_view(name) == "load_extension" ? SQLITE_DENY : SQLITE_OK;
    default: return SQLITE_DENY;
  }
}

Result<void> check_single_statement(SQLite::Database& db, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const char* tail = nullptr;
  const int code = sqlite3_prepare_v2(db.getHandle(), sql.c_str(), -1, &statement, &tail);
  const bool reads = statement == nullptr || sqlite3_stmt_readonly(statement) != 0;   // VACUUM passes the authorizer
  const bool empty = statement == nullptr;
  sqlite3_finalize(statement);
  if (code == SQLITE_AUTH)
    return fail(Errc::bad_input, "only reading is allowed here (SELECT): {}", sqlite3_errmsg(db.getHandle()));
  if (code != SQLITE_OK) return fail(Errc::bad_input, "the query is no valid SQL: {}", sqlite3_errmsg(db.getHandle()));
  if (empty) return fail(Errc::bad_input, "the query is empty");
  if (!reads) return fail(Errc::bad_input, "only reading is allowed here (SELECT)");
  if (tail != nullptr && std::string_view(tail).find_first_not_of(" \t\r\n;") != std::string_view::npos)
    return fail(Errc::bad_input, "one statement at a time; remove what follows the first ';'");
  return {};
}

}  // namespace

Result<QueryResult> query_database(const std::filesystem::path& path, const std::string& sql) {
  ADAMK_TRY(const auto opened, TuningDb::open(path, TuningDb::Mode::read_only));   // its checks
  return guarded(path, [&]() -> Result<QueryResult> {
    SQLite::Database db(path.string(), SQLite::OPEN_READONLY, 10000);
    // Table-valued functions declare their columns on first use by what looks like a CREATE TABLE: before it is refused.
    db.exec("SELECT count(*) FROM json_each('[]'), json_tree('[]')");
    sqlite3_set_authorizer(db.getHandle(), authorise, nullptr);
    ADAMK_CHECK(check_single_statement(db, sql));
    SQLite::Statement rows(db, sql);
    QueryResult out;
    for (int i = 0; i < rows.getColumnCount(); ++i) out.columns.emplace_back(rows.getColumnName(i));
    while (rows.executeStep()) {
      std::vector<Json> row;
      for (int i = 0; i < rows.getColumnCount(); ++i) row.push_back(column_json(rows.getColumn(i)));
      out.rows.push_back(std::move(row));
    }
    return out;
  });
}

}  // namespace adamk
