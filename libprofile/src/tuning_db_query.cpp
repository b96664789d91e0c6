// Questions people ask of the tuning database.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tuning_db_state.h"

namespace adamk {

using tuning_db::guarded;

std::string_view to_string(Match match) {
  switch (match) {
    case Match::exact: return "exact";
    case Match::same_sm: return "same sm";
    case Match::nearest: return "nearest";
  }
  return "?";
}

double CandidateRow::percent_of_ceiling() const {
  return ceiling_gbps > 0 ? 100 * gbps / ceiling_gbps : std::numeric_limits<double>::quiet_NaN();
}

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Match match_of(const DeviceIdentity& wanted, const DeviceIdentity& found) {
  DeviceIdentity same = wanted;
  if (wanted.toolkit.empty()) same.driver = found.driver, same.toolkit = found.toolkit;
  if (same.fingerprint() == found.fingerprint()) return Match::exact;
  return wanted.sm == found.sm ? Match::same_sm : Match::nearest;
}

/// The SQL part of a filter: everything but match quality.
struct Condition {
  std::string name;      // for messages
  std::string sql;
  std::vector<std::string> values;
};

/// The start of a key, with LIKE's own signs taken literally.
std::string prefix_pattern(const std::string& start) {
  std::string pattern;
  for (const char c : start) pattern += (c == '%' || c == '_' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return pattern + '%';
}

std::vector<Condition> conditions(const CandidateFilter& filter) {
  std::vector<Condition> out;
  if (!filter.deployment.empty())
    out.push_back({"deployment " + filter.deployment, "d.key LIKE ? ESCAPE '\\'", {prefix_pattern(filter.deployment)}});
  if (filter.run) out.push_back({fmt::format("run {}", *filter.run), fmt::format("r.id = {}", *filter.run), {}});
  if (filter.method == MethodFilter::measured)
    out.push_back({"measured on a device (simulated ones are asked for with --simulated)", "r.method != 'simulated'", {}});
  if (filter.method == MethodFilter::simulated) out.push_back({"simulated", "r.method = 'simulated'", {}});
  if (filter.status)
    out.push_back({fmt::format("status {}", to_string(*filter.status)), "c.status = ?", {std::string(to_string(*filter.status))}});
  return out;
}

std::string where(const std::vector<Condition>& list, std::size_t count) {
  std::string sql;
  for (std::size_t i = 0; i < count; ++i) sql += (i == 0 ? " WHERE " : " AND ") + list[i].sql;
  return sql;
}

void bind_all(SQLite::Statement& statement, const std::vector<Condition>& list, std::size_t count) {
  int index = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (const std::string& value : list[i].values) statement.bind(++index, value);
}

constexpr const char* kFrom =
    " FROM candidates c JOIN runs r ON r.id = c.run_id JOIN deployments d ON d.id = r.deployment_id"
    " JOIN plans p ON p.id = c.plan_id JOIN devices v ON v.id = r.device_id"
    " LEFT JOIN measurements m ON m.id = c.measurement_id LEFT JOIN kernels k ON k.id = c.kernel_id"
    " LEFT JOIN verdicts w ON w.id = c.verdict_id";

Result<CandidateRow> read_row(const std::filesystem::path& path, SQLite::Statement& row) {
  CandidateRow out;
  out.device = tuning_db::read_device(row, 0);
  out.id = row.getColumn(9).getInt64();
  out.run = row.getColumn(10).getInt64();
  out.deployment = row.getColumn(11).getString();
  out.plan_hash = row.getColumn(12).getString();
  ADAMK_TRY(out.plan, tuning_db::plan_of_text(path, row.getColumn(13).getString(), out.plan_hash));
  ADAMK_TRY(out.method, parse_method(row.getColumn(14).getString()));
  ADAMK_TRY(out.status, parse_status(row.getColumn(15).getString()));
  out.message = row.getColumn(16).getString();
  out.strategy = row.getColumn(17).getString();
  out.tool_version = row.getColumn(18).getString();
  const bool timed = !row.getColumn(19).isNull();
  out.median_us = timed ? row.getColumn(19).getDouble() : kNaN;
  out.p10_us = timed ? row.getColumn(20).getDouble() : kNaN;
  out.p90_us = timed ? row.getColumn(21).getDouble() : kNaN;
  out.gbps = timed ? row.getColumn(22).getDouble() / out.median_us / 1e3 : kNaN;
  out.ceiling_gbps = timed ? row.getColumn(23).getDouble() : 0;
  out.registers = row.getColumn(24).isNull() ? 0 : row.getColumn(24).getInt();
  out.verified = out.status == Status::ok && !row.getColumn(25).isNull();
  out.reused = !row.getColumn(26).isNull();
  out.evaluated_at = row.getColumn(27).getString();
  return out;
}

constexpr const char* kRowColumns =
    ", c.id, r.id, d.key, p.hash, p.json, r.method, c.status, c.message, r.strategy, r.tool_version, m.median_us, m.p10_us, "
    "m.p90_us, m.bytes_per_token, m.ceiling_gbps, k.registers, w.id, c.reused_from, c.evaluated_at";

Result<std::vector<CandidateRow>> matching_rows(const std::filesystem::path& path, SQLite::Database& db,
                                                const CandidateFilter& filter) {
  const std::vector<Condition> list = conditions(filter);
  SQLite::Statement statement(db, std::string("SELECT ") + tuning_db::kDeviceColumns + kRowColumns + kFrom +
                                      where(list, list.size()) + " ORDER BY c.id DESC");
  bind_all(statement, list, list.size());
  std::vector<CandidateRow> rows;
  while (statement.executeStep()) {
    ADAMK_TRY(CandidateRow row, read_row(path, statement));
    if (filter.device) row.match = match_of(*filter.device, row.device);
    if (filter.device && filter.worst_match && row.match > *filter.worst_match) continue;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Match quality, then speed, failures last; ids make the order total.
bool ranks_before(const CandidateRow& a, const CandidateRow& b) {
  if (a.match != b.match) return a.match < b.match;
  const bool a_ok = a.status == Status::ok, b_ok = b.status == Status::ok;
  if (a_ok != b_ok) return a_ok;
  if (a_ok && a.median_us != b.median_us) return a.median_us < b.median_us;
  return a.id < b.id;
}

/// Of several records of one plan on one device, the newest (`rows` come newest first) that was not a mere reference.
std::vector<CandidateRow> distinct(std::vector<CandidateRow> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const CandidateRow& a, const CandidateRow& b) { return a.reused < b.reused; });
  std::set<std::string> seen;
  std::vector<CandidateRow> out;
  for (CandidateRow& row : rows)
    if (seen.insert(row.deployment + row.plan_hash + row.device.fingerprint() + std::string(to_string(row.method))).second)
      out.push_back(std::move(row));
  return out;
}

}  // namespace

namespace tuning_db {

DeviceIdentity read_device(SQLite::Statement& row, int first) {
  DeviceIdentity device;
  device.name = row.getColumn(first).getString();
  device.sm = row.getColumn(first + 1).getInt();
  device.sms = row.getColumn(first + 2).getInt();
  device.driver = row.getColumn(first + 3).getString();
  device.toolkit = row.getColumn(first + 4).getString();
  device.memory_bytes = row.getColumn(first + 5).getInt64();
  device.clock_mhz = row.getColumn(first + 6).getDouble();
  device.read_gbps = row.getColumn(first + 7).getDouble();
  device.hop_us = row.getColumn(first + 8).getDouble();
  return device;
}

}  // namespace tuning_db

Result<std::vector<CandidateRow>> TuningDb::top(const CandidateFilter& filter) {
  return guarded(state_->path, [&]() -> Result<std::vector<CandidateRow>> {
    ADAMK_TRY(std::vector<CandidateRow> rows, matching_rows(state_->path, state_->db, filter));
    rows = distinct(std::move(rows));
    std::sort(rows.begin(), rows.end(), ranks_before);
    if (filter.limit > 0 && rows.size() > static_cast<std::size_t>(filter.limit))
      rows.erase(rows.begin() + filter.limit, rows.end());
    return rows;
  });
}

Result<CandidateRow> TuningDb::best(CandidateFilter filter) {
  filter.status = Status::ok;
  filter.limit = 1;
  ADAMK_TRY(std::vector<CandidateRow> rows, top(filter));
  if (!rows.empty()) return std::move(rows.front());
  ADAMK_TRY(const std::string why, explain_empty(filter));
  return fail(Errc::not_found, "{}", why);
}

Result<std::string> TuningDb::explain_empty(const CandidateFilter& filter) {
  return guarded(state_->path, [&]() -> Result<std::string> {
    const std::vector<Condition> list = conditions(filter);
    std::string kept;
    std::int64_t before = 0;
    for (std::size_t count = 0; count <= list.size(); ++count) {
      SQLite::Statement statement(state_->db, std::string("SELECT count(*)") + kFrom + where(list, count));
      bind_all(statement, list, count);
      statement.executeStep();
      const std::int64_t left = statement.getColumn(0).getInt64();
      if (left == 0 && count == 0)
        return fmt::format("{}: holds no candidates yet; adamk-search run or eval stores them", state_->path.string());
      if (left == 0)
        return fmt::format("{}: of {} candidates{}, none is: {}", state_->path.string(), before, kept, list[count - 1].name);
      before = left;
      if (count > 0) kept += (kept.empty() ? " with " : ", ") + list[count - 1].name;
    }
    const std::string_view quality = filter.worst_match ? to_string(*filter.worst_match) : "any";
    return fmt::format("{}: {} candidates{}, but none from a device that matches this one ('{}' or better)",
                       state_->path.string(), before, kept, quality);
  });
}

Result<std::vector<RunRow>> TuningDb::runs() {
  return guarded(state_->path, [&]() -> Result<std::vector<RunRow>> {
    SQLite::Statement row(state_->db,
        std::string("SELECT ") + tuning_db::kDeviceColumns + ", r.id, r.state, r.ended_by, r.method, r.strategy, r.seed, "
        "r.budget, r.weights, r.tool_version, d.key, d.target, r.command_line, r.started_at, r.ended_at, p.hash, "
        "(SELECT m.median_us FROM candidates c JOIN measurements m ON m.id = c.measurement_id WHERE c.run_id = r.id AND "
        "c.plan_id = r.best_plan_id) FROM runs r JOIN deployments d ON d.id = r.deployment_id JOIN devices v ON "
        "v.id = r.device_id LEFT JOIN plans p ON p.id = r.best_plan_id ORDER BY r.id");
    std::vector<RunRow> out;
    while (row.executeStep()) {
      RunRow run;
      run.key.device = tuning_db::read_device(row, 0);
      run.record.id = row.getColumn(9).getInt64();
      const std::string state = row.getColumn(10).getString();
      run.record.state = state == "completed" ? RunState::completed
                         : state == "interrupted" ? RunState::interrupted : RunState::running;
      run.record.ended_by = row.getColumn(11).getString();
      ADAMK_TRY(run.key.method, parse_method(row.getColumn(12).getString()));
      run.key.strategy = row.getColumn(13).getString();
      run.key.seed = static_cast<std::uint64_t>(row.getColumn(14).getInt64());
      run.key.budget = row.getColumn(15).getString();
      run.key.weights = row.getColumn(16).getString();
      run.key.tool_version = row.getColumn(17).getString();
      run.deployment = row.getColumn(18).getString();
      run.target = row.getColumn(19).getString();
      run.command_line = row.getColumn(20).getString();
      run.started_at = row.getColumn(21).getString();
      run.ended_at = row.getColumn(22).isNull() ? "" : row.getColumn(22).getString();
      run.record.best_plan = row.getColumn(23).isNull() ? "" : row.getColumn(23).getString();
      run.record.best_us = row.getColumn(24).isNull() ? 0 : row.getColumn(24).getDouble();
      run.record.counts = tuning_db::count_statuses(state_->db, run.record.id);
      out.push_back(std::move(run));
    }
    return out;
  });
}

}  // namespace adamk
