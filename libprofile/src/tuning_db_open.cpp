#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "embedded/tuning_db.h"
#include "embedded/tuning_db_1_to_2.h"
#include "tuning_db_state.h"

namespace adamk {

namespace tuning_db {

Error to_error(const std::filesystem::path& path, const SQLite::Exception& exception) {
  const auto error = [&](Errc code, std::string_view advice) {
    return Error{code, fmt::format("{}: {} ({})", path.string(), advice, exception.what())};
  };
  switch (exception.getErrorCode() & 0xff) {
    case SQLITE_NOTADB: return error(Errc::bad_input, "is not a SQLite database; it was left as it is");
    case SQLITE_CORRUPT:
      return error(Errc::bad_input, "the database is damaged; it was left as it is. Save what is readable with "
                                    "`sqlite3 FILE .recover` and start a new one");
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return error(Errc::io, "another process kept the database locked for 10 s; try again");
    case SQLITE_FULL: return error(Errc::io, "the disk is full; everything stored before is kept");
    case SQLITE_READONLY: return error(Errc::io, "the database may not be written; check the permissions of file and folder");
    case SQLITE_CANTOPEN: return error(Errc::io, "cannot open the database; check that the folder exists and may be written");
    default: return error(Errc::io, "the database refused");
  }
}

Result<Json> parse_stored(const std::filesystem::path& path, const std::string& text, const std::string& what) {
  return parse_json(text, path.string() + ": " + what);
}

Result<Plan> plan_of_text(const std::filesystem::path& path, const std::string& text, const std::string& hash) {
  ADAMK_TRY(const Json json, parse_stored(path, text, "plan " + hash));
  return plan_from_json(JsonView(json, path.string() + ": plan " + hash));
}

}  // namespace tuning_db

namespace {

using tuning_db::guarded;

int pragma(SQLite::Database& db, const std::string& name) { return db.execAndGet("PRAGMA " + name).getInt(); }

/// Looks, and changes nothing: whose file this is, and of which version. 0: an empty file.
Result<int> schema_version(SQLite::Database& db, const std::filesystem::path& path) {
  const int application = pragma(db, "application_id");
  const int version = pragma(db, "user_version");
  const int tables = db.execAndGet("SELECT count(*) FROM sqlite_master").getInt();
  if (tables == 0 && application == 0 && version == 0) return 0;
  if (application != kApplicationId)
    return fail(Errc::bad_input, "{}: is a SQLite database of another program; it was left as it is", path.string());
  if (version < 1 || version > kSchemaVersion)
    return fail(Errc::bad_input,
                "{}: has schema version {}, and this adamk knows versions 1 to {}; use the adamk that wrote it, or a newer one",
                path.string(), version, kSchemaVersion);
  return version;
}

/// A schema is code that SQLite runs: a trigger, or a view in place of a table, would run whatever the file's author wished.
Result<void> check_tables(SQLite::Database& db, const std::filesystem::path& path) {
  const int strangers = db.execAndGet(
      "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' OR (name IN ('devices', 'models', 'deployments', 'plans', "
      "'runs', 'kernels', 'verdicts', 'measurements', 'candidates') AND type != 'index' AND (type != 'table' OR "
      "sql LIKE 'CREATE VIRTUAL%'))").getInt();
  if (strangers == 0) return {};
  return fail(Errc::bad_input, "{}: holds triggers, or views in place of tables, which no adamk makes; it was left as it is",
              path.string());
}

/// Turning the log on takes the file to itself for a moment, and SQLite's busy timeout does not wait for that.
void use_write_ahead_log(SQLite::Database& db) {
  constexpr int kAttempts = 500;   // 10 s
  for (int attempt = 1;; ++attempt) {
    try {
      if (db.execAndGet("PRAGMA journal_mode").getString() != "wal") db.exec("PRAGMA journal_mode = WAL");
      return;
    } catch (const SQLite::Exception& refused) {
      if ((refused.getErrorCode() & 0xff) != SQLITE_BUSY || attempt == kAttempts) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

/// Brings the file to kSchemaVersion, all of it or nothing. Another process may have been faster: look again inside.
Result<void> bring_up(SQLite::Database& db, const std::filesystem::path& path) {
  use_write_ahead_log(db);
  SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
  ADAMK_TRY(const int version, schema_version(db, path));
  if (version == 0) db.exec(std::string(embedded_tuning_db));
  if (version == 1) db.exec(std::string(embedded_tuning_db_1_to_2));
  transaction.commit();
  return {};
}

Result<void> check_path(const std::filesystem::path& path, TuningDb::Mode mode) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (there && std::filesystem::is_directory(path, error))
    return fail(Errc::bad_input, "{}: is a folder; give the name of a database file", path.string());
  if (!there && mode != TuningDb::Mode::create)
    return fail(Errc::bad_input, "{}: no such database; adamk-search run makes one", path.string());
  return {};
}

}  // namespace

TuningDb::TuningDb(std::unique_ptr<State> state) : state_(std::move(state)) {}
TuningDb::~TuningDb() = default;

Result<std::unique_ptr<TuningDb>> TuningDb::open(const std::filesystem::path& path, Mode mode) {
  ADAMK_CHECK(check_path(path, mode));
  return guarded(path, [&]() -> Result<std::unique_ptr<TuningDb>> {
    const int flags = mode == Mode::read_only ? SQLite::OPEN_READONLY
                      : mode == Mode::create  ? SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE
                                              : SQLite::OPEN_READWRITE;
    auto state = std::unique_ptr<State>(new State{path, SQLite::Database(path.string(), flags, 10000)});
    state->db.exec("PRAGMA trusted_schema = OFF");   // no function with a side effect from inside a view or an index
    std::optional<SQLite::Transaction> one_state(std::in_place, state->db);   // another process may be making the file
    ADAMK_TRY(const int version, schema_version(state->db, path));
    ADAMK_CHECK(check_tables(state->db, path));
    one_state.reset();
    if (mode == Mode::read_only && version != kSchemaVersion)
      return fail(Errc::bad_input, "{}: has schema version {} and {} is needed; open it once with adamk-db check, which migrates it",
                  path.string(), version, kSchemaVersion);
    if (mode != Mode::read_only) {
      ADAMK_CHECK(bring_up(state->db, path));
      state->db.exec("PRAGMA foreign_keys = ON");
      state->db.exec("PRAGMA synchronous = NORMAL");   // in WAL mode a killed process still loses nothing committed
    }
    return std::unique_ptr<TuningDb>(new TuningDb(std::move(state)));
  });
}

}  // namespace adamk
