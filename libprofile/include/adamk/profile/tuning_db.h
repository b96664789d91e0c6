// TuningDb: everything a search found out, in one SQLite file (docs/tuning-database.md, schemas/tuning-db.sql). One
// transaction per candidate, write-ahead log: a killed process loses at most the candidate in flight, and several
// processes may write one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/search/records.h"

namespace adamk {

/// How well a record's device fits the one asked for.
enum class Match {
  exact,     // same name, sm, SMs, driver and toolkit
  same_sm,   // same compute capability: another chip, driver or toolkit
  nearest,   // another compute capability
};
std::string_view to_string(Match match);

/// Simulated and measured figures never meet in one answer unless `any` is asked for.
enum class MethodFilter { measured, simulated, any };

/// What an answer must satisfy; unset members do not restrict.
struct CandidateFilter {
  std::string deployment;                  // key, or the start of one
  MethodFilter method = MethodFilter::measured;
  std::optional<Status> status;
  std::optional<DeviceIdentity> device;    // ranks by match quality, does not exclude; without a toolkit: a chip, with
                                           // whatever driver and toolkit
  std::optional<Match> worst_match;        // excludes records below this quality; needs `device`
  std::optional<std::int64_t> run;
  int limit = 0;                           // rows; 0: all
};

struct CandidateRow {
  std::int64_t id = 0, run = 0;
  std::string deployment, plan_hash;       // key, hash
  Plan plan;
  DeviceIdentity device;
  Method method = Method::simulated;
  Status status = Status::ok;
  std::string message;
  std::string strategy, tool_version;
  double median_us = 0, p10_us = 0, p90_us = 0;   // NaN unless ok
  double gbps = 0, ceiling_gbps = 0;              // NaN / 0 unless known
  int registers = 0;
  bool verified = false;                   // the oracle agreed
  bool reused = false;                     // taken over from an earlier run
  std::string evaluated_at;
  Match match = Match::exact;              // against CandidateFilter::device

  /// Share of the read ceiling in per cent; NaN when unknown.
  double percent_of_ceiling() const;
};

struct RunRow {
  RunRecord record;
  RunKey key;
  std::string deployment, target, command_line, started_at, ended_at;
};

struct DatabaseCheck {
  int schema_version = 0;
  std::vector<std::string> problems;       // of integrity_check, foreign_key_check and stored plans; empty: sound
  std::int64_t candidates = 0, runs = 0;
};

class TuningDb final : public Records {
 public:
  enum class Mode { create, existing, read_only };

  /// `create` makes a missing file; `existing` and `read_only` fail (bad_input) without one. An older schema is migrated in
  /// one transaction (not when read-only: refused). Files that are no database, another program's, or of a newer adamk are
  /// refused (bad_input) and left as they are.
  static Result<std::unique_ptr<TuningDb>> open(const std::filesystem::path& path, Mode mode = Mode::create);
  ~TuningDb() override;

  // Records
  Result<RunRecord> open_run(const Deployment& deployment, const RunKey& key, const std::string& command_line) override;
  Result<std::optional<Evaluation>> find(const Deployment& deployment, const RunKey& key,
                                         const std::string& plan_hash) override;
  Result<void> store(std::int64_t run, int ordinal, const Deployment& deployment, const Plan& plan,
                     const Evaluation& evaluation) override;
  Result<void> close_run(std::int64_t run, RunState state, const std::string& ended_by,
                         const std::string& best_plan) override;
  Result<Plan> plan(const std::string& plan_hash) override;

  /// The fastest ok candidate of the best match quality there is. not_found names the filter that left nothing.
  Result<CandidateRow> best(CandidateFilter filter);
  /// Distinct plans, ok first by us, then the failed ones; match quality before speed when a device is given.
  Result<std::vector<CandidateRow>> top(const CandidateFilter& filter);
  /// Everything about one candidate (its number), plan (hash, or at least 6 digits of one) or run ("run 3").
  Result<Json> show(const std::string& id);
  Result<std::vector<RunRow>> runs();
  Result<DatabaseCheck> check();
  /// The whole of a stored deployment by key or start of one; refuses ambiguous ones.
  Result<Deployment> deployment(const std::string& key);
  /// One line on why a filter leaves nothing: which of its conditions removed everything.
  Result<std::string> explain_empty(const CandidateFilter& filter);

 private:
  struct State;
  explicit TuningDb(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Rows of one read-only SQL statement; values are JSON (null, number, text). Anything but reading is refused
/// (bad_input), whatever the file's permissions.
struct QueryResult {
  std::vector<std::string> columns;
  std::vector<std::vector<Json>> rows;
};
Result<QueryResult> query_database(const std::filesystem::path& path, const std::string& sql);

}  // namespace adamk
