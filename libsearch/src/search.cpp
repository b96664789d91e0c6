#include "adamk/search/search.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "adamk/base/hash.h"

namespace adamk {

std::string_view to_string(RunState state) {
  switch (state) {
    case RunState::running: return "running";
    case RunState::interrupted: return "interrupted";
    case RunState::completed: return "completed";
  }
  return "?";
}

std::string Budget::text() const { return trials ? fmt::format("{}", *trials) : fmt::format("{}s", seconds.value_or(0)); }

Result<Budget> parse_budget(std::string_view text) {
  const auto wrong = [&] {
    return fail(Errc::bad_input, "budget '{}' is neither a number of trials (200) nor a time (60s, 2m, 1h)", text);
  };
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || !std::isfinite(value) || value <= 0) return wrong();
  Budget budget;
  if (unit.empty()) {
    if (value != std::floor(value) || value > 1e9) return wrong();
    budget.trials = static_cast<int>(value);
    return budget;
  }
  if (unit != "s" && unit != "m" && unit != "h") return wrong();
  budget.seconds = value * (unit == "h" ? 3600 : unit == "m" ? 60 : 1);
  return budget;
}

namespace {

using Clock = std::chrono::steady_clock;

class Loop {
 public:
  Loop(const Deployment& deployment, Evaluator& evaluator, Records& records, const SearchOptions& options,
       const SearchHooks& hooks)
      : deployment_(deployment), evaluator_(evaluator), records_(records), options_(options), hooks_(hooks) {
    progress_.best_us = std::numeric_limits<double>::quiet_NaN();
  }

  /// `budget` is the key's: what bounds the run, as text.
  Result<SearchOutcome> run(Strategy& strategy, const std::string& budget) {
    key_ = {evaluator_.device(), evaluator_.method(), options_.strategy,     options_.seed,
            budget,              options_.weights,    options_.tool_version};
    ADAMK_TRY(run_, records_.open_run(deployment_, key_, options_.command_line));
    if (run_.state == RunState::completed) return repeated();
    const Result<std::string> ended = generations(strategy);
    if (!ended) {
      // The evaluator or the records failed: leave the run open for resumption; the first error is the one that matters.
      static_cast<void>(records_.close_run(run_.id, RunState::interrupted, "", best_hash()));
      return tl::unexpected<Error>(ended.error());
    }
    run_.state = *ended == "interrupted" ? RunState::interrupted : RunState::completed;
    run_.ended_by = *ended;
    ADAMK_CHECK(records_.close_run(run_.id, run_.state, run_.ended_by, best_hash()));
    return outcome();
  }

 private:
  Result<SearchOutcome> repeated() {
    SearchOutcome out;
    out.run = run_;
    out.repeated = true;
    if (!run_.best_plan.empty()) {
      ADAMK_TRY(Plan plan, records_.plan(run_.best_plan));
      out.best = std::move(plan);
    }
    return out;
  }

  SearchOutcome outcome() const {
    SearchOutcome out;
    out.run = run_;
    out.run.counts = progress_.counts;
    out.reused = progress_.reused;
    if (best_) {
      out.best = tried_[*best_].plan;
      out.run.best_plan = tried_[*best_].hash;
      out.run.best_us = tried_[*best_].us;
    }
    return out;
  }

  std::string best_hash() const { return best_ ? tried_[*best_].hash : std::string(); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool interrupted() const { return hooks_.interrupted && hooks_.interrupted(); }
  bool out_of_time() const { return options_.budget.seconds && seconds() >= *options_.budget.seconds; }

  /// Returns what ended the run.
  Result<std::string> generations(Strategy& strategy) {
    for (;;) {
      if (interrupted()) return std::string("interrupted");
      if (out_of_time() || trials_left() == 0) return std::string("budget");
      std::vector<Plan> plans = strategy.propose(tried_);
      if (plans.empty()) return std::string(strategy.ending());
      const std::size_t left = trials_left();
      if (plans.size() > left) plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(left), plans.end());
      ADAMK_CHECK(generation(plans));
    }
  }

  std::size_t trials_left() const {
    if (!options_.budget.trials) return std::numeric_limits<std::size_t>::max();
    const auto total = static_cast<std::size_t>(*options_.budget.trials);
    return total > tried_.size() ? total - tried_.size() : 0;
  }

  /// One generation: what the records know is linked, the rest evaluated. Results enter in the order of proposal.
  Result<void> generation(const std::vector<Plan>& plans) {
    std::vector<std::optional<Tried>> results(plans.size());
    std::vector<std::size_t> fresh;
    std::vector<Plan> batch;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      ADAMK_TRY(const std::optional<Evaluation> known, records_.find(deployment_, key_, plans[i].hash()));
      if (known) {
        ++progress_.reused;
        ADAMK_CHECK(record(i, plans[i], *known, results));
      } else {
        fresh.push_back(i);
        batch.push_back(plans[i]);
      }
    }
    const auto finished = [&](std::size_t index, const Evaluation& evaluation) -> Result<void> {
      return record(fresh[index], batch[index], evaluation, results);
    };
    if (!batch.empty())
      ADAMK_CHECK(evaluator_.evaluate(deployment_, batch, finished, [&] { return interrupted() || out_of_time(); }));
    for (std::optional<Tried>& result : results)
      if (result) accept(std::move(*result));
    return {};
  }

  Result<void> record(std::size_t index, const Plan& plan, const Evaluation& evaluation,
                      std::vector<std::optional<Tried>>& results) {
    const int ordinal = static_cast<int>(tried_.size() + index);
    ADAMK_CHECK(records_.store(run_.id, ordinal, deployment_, plan, evaluation));
    const bool ok = evaluation.status == Status::ok;
    const double us = ok ? evaluation.median_us() : std::numeric_limits<double>::quiet_NaN();
    results[index] = Tried{plan, plan.hash(), evaluation.status, us};
    ++progress_.done;
    ++progress_.counts[std::string(to_string(evaluation.status))];
    if (ok && !(us >= progress_.best_us)) progress_.best_us = us;   // also replaces NaN
    progress_.seconds = seconds();
    if (hooks_.progress) hooks_.progress(progress_);
    return {};
  }

  void accept(Tried result) {
    tried_.push_back(std::move(result));
    const Tried& last = tried_.back();
    if (last.status == Status::ok && (!best_ || last.us < tried_[*best_].us)) best_ = tried_.size() - 1;
  }

  const Deployment& deployment_;
  Evaluator& evaluator_;
  Records& records_;
  const SearchOptions& options_;
  const SearchHooks& hooks_;
  RunKey key_;
  RunRecord run_;
  std::vector<Tried> tried_;
  std::optional<std::size_t> best_;
  SearchProgress progress_;
  Clock::time_point start_ = Clock::now();
};

/// One generation: the plans a user stated, each once.
class StatedPlans final : public Strategy {
 public:
  explicit StatedPlans(const std::vector<Plan>& plans) {
    std::set<std::string> hashes;
    for (const Plan& plan : plans)
      if (hashes.insert(plan.hash()).second) plans_.push_back(plan);
    digest_ = hash_hex(fmt::format("{}", fmt::join(hashes, " ")));
  }

  std::vector<Plan> propose(const std::vector<Tried>&) override {
    return std::exchange(proposed_, true) ? std::vector<Plan>() : plans_;
  }
  std::string_view ending() const override { return "all tried"; }
  /// For the run's key: equal for equal sets, whatever their order.
  std::string text() const {
    return fmt::format("{} plan{} {}", plans_.size(), plans_.size() == 1 ? "" : "s", digest_.substr(0, 12));
  }

 private:
  std::vector<Plan> plans_;
  std::string digest_;
  bool proposed_ = false;
};

}  // namespace

Result<SearchOutcome> run_search(const Space& space, Evaluator& evaluator, Records& records, const SearchOptions& options,
                                 const SearchHooks& hooks) {
  ADAMK_TRY(const std::unique_ptr<Strategy> strategy, make_strategy(options.strategy, space, options.seed));
  return Loop(space.deployment, evaluator, records, options, hooks).run(*strategy, options.budget.text());
}

Result<SearchOutcome> run_plans(const Deployment& deployment, const std::vector<Plan>& plans, Evaluator& evaluator,
                                Records& records, SearchOptions options, const SearchHooks& hooks) {
  StatedPlans stated(plans);
  options.strategy = "eval";
  options.budget = {};
  return Loop(deployment, evaluator, records, options, hooks).run(stated, stated.text());
}

}  // namespace adamk
