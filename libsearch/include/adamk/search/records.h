// Records: what was already found out, and the runs that found it. TuningDb (libprofile) implements it on SQLite.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"
#include "adamk/search/evaluator.h"

namespace adamk {

/// Two runs with equal keys make the same proposals; a completed one is returned instead of repeated.
struct RunKey {
  DeviceIdentity device;
  Method method = Method::simulated;
  std::string strategy;          // "beam", "exhaustive", "eval"
  std::uint64_t seed = 1;
  std::string budget;            // as normalised by Budget::text: "60s", "200"; of "eval" the set: "3 plans 5d41402abc4b"
  std::string weights;           // "random 1", or the checkpoint's identity; empty when no weights are needed
  std::string tool_version;      // figures made by another version are kept, and not reused
};

enum class RunState { running, interrupted, completed };
std::string_view to_string(RunState state);

struct RunRecord {
  std::int64_t id = 0;
  RunState state = RunState::running;
  std::string ended_by;          // "budget", "space exhausted", "converged", "all tried"; empty until completed
  std::string best_plan;         // hash; empty when no candidate was ok
  double best_us = 0;
  std::map<std::string, int> counts;   // candidates by status
};

class Records {
 public:
  virtual ~Records() = default;

  /// The run with this key: completed, or unfinished and then reopened, or new. One row per key and deployment.
  virtual Result<RunRecord> open_run(const Deployment& deployment, const RunKey& key, const std::string& command_line) = 0;
  /// What is known of this plan on exactly this device with this method and tool version, whichever run found it.
  virtual Result<std::optional<Evaluation>> find(const Deployment& deployment, const RunKey& key,
                                                 const std::string& plan_hash) = 0;
  /// One candidate of a run, all of its rows or none. `ordinal` is its place in the run's proposals. An evaluation that
  /// came from find() is linked, not stored again; a plan the run already has is left as it is.
  virtual Result<void> store(std::int64_t run, int ordinal, const Deployment& deployment, const Plan& plan,
                             const Evaluation& evaluation) = 0;
  virtual Result<void> close_run(std::int64_t run, RunState state, const std::string& ended_by,
                                 const std::string& best_plan) = 0;
  virtual Result<Plan> plan(const std::string& plan_hash) = 0;
};

}  // namespace adamk
