// A tuning database: SQLite's bytes. Opened as it is and asked everything adamk-db asks, or brought up to date and asked, or
// searched with: the sum of the bytes says which, as all of it would take four times as long.
#include "adamk/profile/tuning_db.h"

#include <numeric>

#include "fuzz.h"
#include "small_deployment.h"

using namespace adamk;

namespace {

void ask(TuningDb& database) {
  CandidateFilter filter;
  filter.method = MethodFilter::any;
  const auto rows = database.top(filter);
  static_cast<void>(database.best(filter));
  if (const auto runs = database.runs()) {
    for (const RunRow& run : *runs) static_cast<void>(database.show(fmt::format("run {}", run.record.id)));
  }
  static_cast<void>(database.check());
  static_cast<void>(database.deployment(""));
  static_cast<void>(database.show("1"));
  if (!rows) return;
  for (const CandidateRow& row : *rows) {
    static_cast<void>(row.percent_of_ceiling());
    static_cast<void>(database.show(row.plan_hash));
    static_cast<void>(database.plan(row.plan_hash));
  }
}

/// What a search does with a database that was there before.
void search(TuningDb& database) {
  const Deployment& deployment = fuzz::small_deployment();
  static const Plan plan = default_plan(deployment).value();
  RunKey key{.device = {}, .method = Method::cupti, .strategy = "beam", .seed = 1, .budget = "1", .weights = "random 1",
             .tool_version = "fuzz"};
  key.device.name = "NVIDIA L20";
  key.device.sm = 89;
  const auto run = database.open_run(deployment, key, "fuzz");
  if (!run) return;
  Evaluation evaluation;
  evaluation.method = Method::cupti;
  evaluation.samples_us = {1, 2, 3};
  static_cast<void>(database.store(run->id, 0, deployment, plan, evaluation));
  static_cast<void>(database.find(deployment, key, plan.hash()));
  static_cast<void>(database.close_run(run->id, RunState::completed, "budget", plan.hash()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  const std::filesystem::path path = folder.write("tuning.db", fuzz::as_text(data, size));
  for (const char* log : {"tuning.db-wal", "tuning.db-shm", "tuning.db-journal"}) {
    std::error_code ignored;
    std::filesystem::remove(folder.path() / log, ignored);
  }
  const unsigned choice = std::accumulate(data, data + size, 0u) % 4;
  if (choice == 0) static_cast<void>(query_database(path, "SELECT * FROM results"));
  const auto database = TuningDb::open(path, choice == 0 ? TuningDb::Mode::read_only : TuningDb::Mode::existing);
  if (!database) return 0;
  if (choice <= 1) ask(**database);
  else search(**database);
  return 0;
}
