// The tuning loop: propose, evaluate, record, until the budget is spent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/space.h"
#include "adamk/search/evaluator.h"
#include "adamk/search/records.h"
#include "adamk/search/strategy.h"

namespace adamk {

/// Seconds or trials. Trials count plans tried in this run, those known from earlier runs included.
struct Budget {
  std::optional<double> seconds;
  std::optional<int> trials;
  std::string text() const;   // canonical: "60s", "200"
};

/// "200" (trials), "60s", "2m", "1h".
Result<Budget> parse_budget(std::string_view text);

struct SearchOptions {
  std::string strategy = "beam";
  std::uint64_t seed = 1;
  Budget budget;
  std::string weights;         // RunKey::weights
  std::string tool_version;
  std::string command_line;    // recorded, not part of the key
};

struct SearchProgress {
  int done = 0;                          // plans of this run so far
  int reused = 0;                        // of those, known from the records
  double seconds = 0;
  std::map<std::string, int> counts;     // by status
  double best_us = 0;                    // NaN until one is ok
};

struct SearchOutcome {
  RunRecord run;                         // state completed or interrupted
  bool repeated = false;                 // a completed run with this key was there: nothing was tried
  int reused = 0;
  std::optional<Plan> best;              // none: no candidate was ok
};

/// Called after every candidate. `interrupted` is asked between candidates: true ends the run, everything finished is
/// stored, and the next run with the same key goes on where this one stopped.
struct SearchHooks {
  std::function<void(const SearchProgress&)> progress;
  std::function<bool()> interrupted;
};

/// Errors: of the evaluator (no device any more) or of the records; whatever was stored before stays.
Result<SearchOutcome> run_search(const Space& space, Evaluator& evaluator, Records& records, const SearchOptions& options,
                                 const SearchHooks& hooks = {});

/// Tries these plans, equal ones once, as one run whose strategy is "eval" and whose budget names the set; strategy and
/// budget of `options` are not looked at. Otherwise as run_search: known plans are linked, the same set is not repeated.
Result<SearchOutcome> run_plans(const Deployment& deployment, const std::vector<Plan>& plans, Evaluator& evaluator,
                                Records& records, SearchOptions options, const SearchHooks& hooks = {});

}  // namespace adamk
