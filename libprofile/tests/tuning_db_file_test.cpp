// The file itself: foreign, damaged, older, newer, and killed in the middle.
#include <SQLiteCpp/SQLiteCpp.h>
#include <sys/wait.h>

#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "tuning_db_fixture.h"

namespace adamk {
namespace {

using namespace testing_db;

TEST_F(TuningDbTest, ForeignAndDamagedFilesAreRefusedAndLeftAlone) {
  write("this is a text file, long enough to have a header of one hundred bytes in a database, which it has not at all\n");
  const std::string text = bytes();
  const auto refused = TuningDb::open(path);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::bad_input);
  EXPECT_NE(refused.error().message.find("is not a SQLite database"), std::string::npos) << refused.error().message;
  EXPECT_EQ(bytes(), text);
}

TEST_F(TuningDbTest, DatabasesOfOtherProgramsAreRefusedAndLeftAlone) {
  { SQLite::Database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE songs (name TEXT)"); }
  const std::string before = bytes();
  const auto refused = TuningDb::open(path);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("another program"), std::string::npos) << refused.error().message;
  EXPECT_EQ(bytes(), before);
}

TEST_F(TuningDbTest, NewerSchemasAreRefusedAndLeftAlone) {
  open().reset();
  { SQLite::Database(path.string(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99"); }
  const auto refused = TuningDb::open(path);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("schema version 99"), std::string::npos) << refused.error().message;
}

TEST_F(TuningDbTest, ADamagedPageIsAnErrorNotACrash) {
  {
    const auto db = open();
    const auto run = db->open_run(small_deployment(), key(), "x");
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(db->store(run->id, i, small_deployment(), plan(i), measured(100 + i)).has_value());
  }
  std::string all = bytes();
  for (std::size_t i = 8192; i < all.size(); ++i) all[i] = static_cast<char>(0x5a);
  write(all);
  const auto db = TuningDb::open(path, TuningDb::Mode::existing);
  const bool said = !db || !(*db)->top({}) || !(*db)->check() || !(*db)->check()->problems.empty();
  EXPECT_TRUE(said);
}

TEST_F(TuningDbTest, MissingFilesAreMadeOnlyWhenAskedTo) {
  for (const auto mode : {TuningDb::Mode::existing, TuningDb::Mode::read_only}) {
    const auto refused = TuningDb::open(path, mode);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("no such database"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(TuningDb::open(folder / "absent" / "x.db").error().code, Errc::io);
  EXPECT_EQ(TuningDb::open(folder).error().code, Errc::bad_input);
}

TEST_F(TuningDbTest, ManyMayMakeTheSameFileAtOnce) {
  for (int round = 0; round < 10; ++round) {
    const std::filesystem::path fresh = folder / fmt::format("fresh{}.db", round);
    std::mutex mutex;
    std::vector<std::string> failures;
    std::vector<std::thread> openers;
    for (int i = 0; i < 8; ++i)
      openers.emplace_back([&] {
        const auto db = TuningDb::open(fresh);
        const std::lock_guard lock(mutex);
        if (!db) failures.push_back(db.error().message);
      });
    for (std::thread& opener : openers) opener.join();
    EXPECT_EQ(failures, std::vector<std::string>()) << round;
  }
}

TEST_F(TuningDbTest, AFileThatBringsCodeAlongIsRefused) {
  for (const char* change : {"CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM candidates; END",
                             "ALTER TABLE kernels RENAME TO other; CREATE VIEW kernels AS SELECT * FROM other",
                             "ALTER TABLE plans RENAME TO other; CREATE VIRTUAL TABLE plans USING fts5(hash, json)"}) {
    std::filesystem::remove(path);
    ASSERT_TRUE(open());
    {
      SQLite::Database db(path.string(), SQLite::OPEN_READWRITE);
      db.exec(change);
    }
    for (const auto mode : {TuningDb::Mode::create, TuningDb::Mode::existing, TuningDb::Mode::read_only}) {
      const auto refused = TuningDb::open(path, mode);
      ASSERT_FALSE(refused.has_value()) << change;
      EXPECT_EQ(refused.error().code, Errc::bad_input);
      EXPECT_NE(refused.error().message.find("triggers"), std::string::npos) << refused.error().message;
    }
  }
}

/// INSERT OR IGNORE and ON CONFLICT pass over a row that a constraint of the file's own refuses.
TEST_F(TuningDbTest, AFileThatLosesWhatIsWrittenIsDamaged) {
  struct Change {
    const char* table;
    const char* column;       // as the schema has it
    const char* constraint;   // behind it: no row fits any more
  };
  for (const Change& change : {Change{"devices", "name         TEXT NOT NULL", "UNIQUE ON CONFLICT IGNORE"},
                               Change{"models", "family TEXT NOT NULL", "CHECK (family = '')"},
                               Change{"plans", "json TEXT NOT NULL", "CHECK (json = '')"},
                               Change{"runs", "command_line  TEXT NOT NULL", "UNIQUE"}}) {
    SCOPED_TRACE(change.table);
    std::filesystem::remove(path);
    ASSERT_TRUE(open());
    {
      SQLite::Database db(path.string(), SQLite::OPEN_READWRITE);
      std::string sql = db.execAndGet(fmt::format("SELECT sql FROM sqlite_master WHERE name = '{}'", change.table)).getString();
      const std::size_t column = sql.find(change.column);
      ASSERT_NE(column, std::string::npos) << sql;
      sql.insert(column + std::string_view(change.column).size(), fmt::format(" {}", change.constraint));
      db.exec(fmt::format("DROP TABLE {}; {}", change.table, sql));
    }
    const auto db = open(TuningDb::Mode::existing);
    ASSERT_NE(db, nullptr);
    auto lost = Result<void>();
    for (int i = 0; i < 2 && lost; ++i) {
      RunKey other = key(device("NVIDIA L20", 89, fmt::format("13.{}", i)));
      const auto run = db->open_run(small_deployment(), other, "the same command");
      if (!run) lost = tl::unexpected(run.error());
      else lost = db->store(run->id, 0, small_deployment(), plan(0), measured(100));
    }
    ASSERT_FALSE(lost.has_value());
    EXPECT_NE(lost.error().message.find("just now"), std::string::npos) << lost.error().message;
  }
}

/// Version 1 as it was, written out: no PTX statistics, no reuse, no view.
constexpr const char* kVersion1 = R"sql(
PRAGMA application_id = 1633971563; PRAGMA user_version = 1;
CREATE TABLE devices (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, name TEXT NOT NULL, sm INTEGER NOT NULL,
  sms INTEGER NOT NULL, driver TEXT NOT NULL, toolkit TEXT NOT NULL, memory_bytes INTEGER NOT NULL, clock_mhz REAL NOT NULL,
  read_gbps REAL NOT NULL, hop_us REAL NOT NULL) STRICT;
CREATE TABLE models (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, family TEXT NOT NULL, json TEXT NOT NULL) STRICT;
CREATE TABLE deployments (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, model_id INTEGER NOT NULL REFERENCES models(id),
  target TEXT NOT NULL, weights TEXT NOT NULL, context INTEGER NOT NULL, json TEXT NOT NULL) STRICT;
CREATE TABLE plans (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, json TEXT NOT NULL) STRICT;
CREATE TABLE runs (id INTEGER PRIMARY KEY, deployment_id INTEGER NOT NULL REFERENCES deployments(id),
  device_id INTEGER NOT NULL REFERENCES devices(id),
  method TEXT NOT NULL CHECK (method IN ('simulated', 'cupti', 'events')), strategy TEXT NOT NULL, seed INTEGER NOT NULL,
  budget TEXT NOT NULL, weights TEXT NOT NULL, tool_version TEXT NOT NULL, command_line TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'interrupted', 'completed')), ended_by TEXT NOT NULL DEFAULT '',
  best_plan_id INTEGER REFERENCES plans(id), started_at TEXT NOT NULL, ended_at TEXT,
  UNIQUE (deployment_id, device_id, method, strategy, seed, budget, weights, tool_version)) STRICT;
CREATE TABLE kernels (id INTEGER PRIMARY KEY, source_hash TEXT NOT NULL, cubin_hash TEXT NOT NULL, arch TEXT NOT NULL,
  registers INTEGER NOT NULL, spill_bytes INTEGER NOT NULL, threads INTEGER NOT NULL, smem_bytes INTEGER NOT NULL,
  code_bytes INTEGER NOT NULL, compile_seconds REAL NOT NULL) STRICT;
CREATE TABLE verdicts (id INTEGER PRIMARY KEY, certificate TEXT NOT NULL, positions INTEGER NOT NULL, tokens INTEGER NOT NULL,
  near_ties INTEGER NOT NULL, max_error REAL NOT NULL, tolerance REAL NOT NULL) STRICT;
CREATE TABLE measurements (id INTEGER PRIMARY KEY, samples TEXT NOT NULL, median_us REAL NOT NULL, p10_us REAL NOT NULL,
  p90_us REAL NOT NULL, bytes_per_token REAL NOT NULL, ceiling_gbps REAL NOT NULL, clock_mhz REAL NOT NULL,
  temperature_c REAL NOT NULL, throttled INTEGER NOT NULL, counters TEXT NOT NULL) STRICT;
CREATE TABLE candidates (id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES runs(id), ordinal INTEGER NOT NULL,
  plan_id INTEGER NOT NULL REFERENCES plans(id), status TEXT NOT NULL CHECK (status IN ('ok', 'infeasible', 'rejected',
  'compile_error', 'spills', 'wrong_result', 'timeout', 'crashed')), message TEXT NOT NULL,
  kernel_id INTEGER REFERENCES kernels(id), verdict_id INTEGER REFERENCES verdicts(id),
  measurement_id INTEGER REFERENCES measurements(id), evaluated_at TEXT NOT NULL, UNIQUE (run_id, plan_id)) STRICT;
)sql";

std::vector<std::string> shape(const std::filesystem::path& path) {
  SQLite::Database db(path.string(), SQLite::OPEN_READONLY);
  std::vector<std::string> out;
  SQLite::Statement rows(db, "SELECT m.type || ' ' || m.name || ' ' || coalesce(c.name, '') || ' ' || coalesce(c.type, '') FROM "
                             "sqlite_master m LEFT JOIN pragma_table_info(m.name) c WHERE m.name NOT LIKE 'sqlite_%' ORDER BY 1");
  while (rows.executeStep()) out.push_back(rows.getColumn(0).getString());
  return out;
}

TEST_F(TuningDbTest, Version1IsMigratedWithItsRecords) {
  const Deployment d = small_deployment();
  {
    SQLite::Database old(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(kVersion1);
    const auto insert = [&](const std::string& sql, const std::vector<std::string>& texts) {
      SQLite::Statement statement(old, sql);
      for (std::size_t i = 0; i < texts.size(); ++i) statement.bind(static_cast<int>(i) + 1, texts[i]);
      statement.exec();
    };
    insert("INSERT INTO devices VALUES (1, ?, 'NVIDIA L20', 89, 92, '13.0', '13.0', 0, 0, 780, 0)", {device().fingerprint()});
    insert("INSERT INTO models VALUES (1, 'm', 'llama', ?)", {model_to_json(d.model).dump()});
    insert("INSERT INTO deployments VALUES (1, ?, 1, 'l20', 'bf16', 128, ?)", {d.key(), deployment_to_json(d).dump()});
    insert("INSERT INTO plans VALUES (1, ?, ?)", {plan(0).hash(), plan_to_json(plan(0)).dump()});
    old.exec("INSERT INTO runs VALUES (1, 1, 1, 'cupti', 'beam', 1, '20', 'random 1', 'test', 'x', 'completed', 'budget', 1, "
             "'2026-01-01T00:00:00Z', NULL); INSERT INTO measurements VALUES (1, '[7.5]', 7.5, 7.5, 7.5, 1e6, 780, 0, 0, 0, '{}');"
             "INSERT INTO candidates VALUES (1, 1, 0, 1, 'ok', '', NULL, NULL, 1, '2026-01-01T00:00:00Z')");
  }
  const auto refused = TuningDb::open(path, TuningDb::Mode::read_only);
  ASSERT_FALSE(refused.has_value()) << "a reader does not migrate";
  {
    const auto db = open(TuningDb::Mode::existing);
    ASSERT_NE(db, nullptr);
    const auto check = db->check();
    EXPECT_EQ(check->schema_version, 2);
    EXPECT_TRUE(check->problems.empty());
    EXPECT_EQ(db->best({})->median_us, 7.5);
    EXPECT_TRUE(db->find(d, key(), plan(0).hash())->has_value());
    EXPECT_EQ(db->open_run(d, key(), "again")->state, RunState::completed);
  }
  const auto migrated = shape(path);
  path = folder / "fresh.db";
  open().reset();
  EXPECT_EQ(migrated, shape(path)) << "migrated and fresh files have the same tables, columns, indices and views";
}

/// Tells a pipe when it starts a candidate, and never finishes candidate number `stuck`.
class StuckEvaluator final : public Evaluator {
 public:
  StuckEvaluator(const Target& target, int pipe, int stuck)
      : inner_(make_simulated_evaluator(target)), pipe_(pipe), stuck_(stuck) {}
  const DeviceIdentity& device() const override { return inner_->device(); }
  Method method() const override { return inner_->method(); }
  Result<void> evaluate(const Deployment& deployment, std::span<const Plan> plans, const Finished& finished,
                        const Stop&) override {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (++started_ == stuck_) {
        static_cast<void>(!write(pipe_, "x", 1));
        for (;;) pause();
      }
      ADAMK_TRY(const Evaluation evaluation, evaluate_one(*inner_, deployment, plans[i]));
      ADAMK_CHECK(finished(i, evaluation));
    }
    return {};
  }

 private:
  std::unique_ptr<Evaluator> inner_;
  int pipe_, stuck_, started_ = 0;
};

TEST_F(TuningDbTest, AKilledSearchLosesTheCandidateInFlightAndResumes) {
  const Space space = make_space(small_deployment()).value();
  SearchOptions options;
  options.budget.trials = 20;
  options.tool_version = "test";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto db = TuningDb::open(path);
    StuckEvaluator evaluator(small_deployment().target, ends[1], 13);
    if (db) static_cast<void>(run_search(space, evaluator, **db, options));
    _exit(1);
  }
  close(ends[1]);
  char told = 0;
  ASSERT_EQ(read(ends[0], &told, 1), 1) << "the child reached candidate 13";
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  close(ends[0]);

  const auto db = open(TuningDb::Mode::existing);
  ASSERT_NE(db, nullptr);
  EXPECT_EQ(db->check()->candidates, 12) << "all but the one in flight";
  EXPECT_TRUE(db->check()->problems.empty());
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  const auto resumed = run_search(space, *evaluator, *db, options);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message;
  EXPECT_EQ(resumed->reused, 12);
  EXPECT_EQ(resumed->run.state, RunState::completed);
  EXPECT_EQ(db->check()->candidates, 20);
  EXPECT_EQ(db->runs()->size(), 1u);

  path = folder / "undisturbed.db";
  const auto other = open();
  const auto reference = run_search(space, *evaluator, *other, options);
  EXPECT_EQ(resumed->run.best_plan, reference->run.best_plan);
}

TEST_F(TuningDbTest, TwoWritersShareAFile) {
  const auto one = open(), two = open();
  const auto a = one->open_run(small_deployment(), key(), "one");
  RunKey other = key();
  other.seed = 2;
  const auto b = two->open_run(small_deployment(), other, "two");
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(one->store(a->id, i, small_deployment(), plan(i), measured(100 + i)).has_value());
    EXPECT_TRUE(two->store(b->id, i, small_deployment(), plan(10 + i), measured(90 + i)).has_value());
  }
  EXPECT_EQ(one->top({})->size(), 10u);
  EXPECT_EQ(two->top({})->size(), 10u);
}

}  // namespace
}  // namespace adamk
