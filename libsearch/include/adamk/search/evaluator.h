// Evaluator: what a search needs to know about a plan, whoever finds it out: the cost model, or a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/plan.h"

namespace adamk {

/// How the evaluation of one candidate ended. Everything but `ok` carries a message that says why.
enum class Status {
  ok,
  infeasible,      // make_schedule refused it
  rejected,        // the validator refused its tile DAG
  compile_error,
  spills,          // compiles, but to a kernel that spills more registers than it may
  wrong_result,    // ran, and the oracle disagrees
  timeout,         // compilation or run passed its deadline, or the kernel's watchdog fired
  crashed,         // the worker died
};

std::string_view to_string(Status status);
Result<Status> parse_status(std::string_view text);

/// Where the figures come from; records of different methods are never compared. `emulated`: there are none, the kernel was
/// only checked; such evaluations are not recorded.
enum class Method { simulated, cupti, events, emulated };

std::string_view to_string(Method method);
Result<Method> parse_method(std::string_view text);

/// The chip and the software that a record is valid for.
struct DeviceIdentity {
  std::string name;              // "NVIDIA H200"; of a simulation "simulated <target name>"
  int sm = 0;
  int sms = 0;
  std::string driver;            // "13.0"; empty for a simulation
  std::string toolkit;           // NVRTC's version, "13.0"; for a simulation the cost model's, "cost 1"
  // not part of the identity
  std::int64_t memory_bytes = 0;
  double clock_mhz = 0;
  double read_gbps = 0;          // measured ceiling; 0: unknown
  double hop_us = 0;

  /// 32 hexadecimal digits over name, sm, sms, driver and toolkit.
  std::string fingerprint() const;
};

/// What the correctness gate saw. `checked` is false where nothing was run (simulation, or a candidate that failed before).
struct Verdict {
  bool checked = false;
  std::string certificate;       // hash or summary of the validator's verdict on the tile DAG; may be empty
  int positions = 0;             // positions whose logits were compared
  int tokens = 0;                // greedy tokens compared
  int near_ties = 0;             // of those, accepted as near ties
  double max_error = 0;          // of the logits against the reference's: relative L2, the worst step
  double tolerance = 0;          // what it may be
};

struct KernelResources {
  std::string source_hash, cubin_hash;   // empty when nothing was compiled
  std::string arch;
  int registers = 0;
  int spill_bytes = 0;
  int threads = 0;
  std::int64_t smem_bytes = 0;           // dynamic shared memory per block
  std::int64_t code_bytes = 0;
  double compile_seconds = 0;
};

struct Conditions {
  double clock_mhz = 0;          // SM clock while timing; 0: unknown
  double temperature_c = 0;      // 0: unknown
  int throttled = 0;             // samples discarded because the clock was low
};

struct Evaluation {
  Status status = Status::ok;
  std::string message;           // why not ok: the constraint, the compiler's first error, the first wrong position
  Method method = Method::simulated;
  std::vector<double> samples_us;      // us per decoded token, in the order they were taken
  double bytes_per_token = 0;          // weights and KV that must be read for one token
  double ceiling_gbps = 0;             // read ceiling of the same device, in the same run where measured
  Verdict verdict;
  KernelResources resources;
  Conditions conditions;
  std::map<std::string, double> counters;   // by CUPTI metric name, or emulator.NAME; empty unless collected
  std::int64_t record = 0;                  // its number in Records when it came from there; 0: fresh

  /// The figure candidates are ranked by; NaN without samples.
  double median_us() const;
  /// GB/s of the bytes that had to move; NaN without samples.
  double gbps() const;
};

/// `q` in [0, 1], linear between order statistics; NaN when empty.
double quantile(std::span<const double> samples, double q);

/// One device (or its model) that candidates are tried on. Not thread-safe.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual const DeviceIdentity& device() const = 0;
  virtual Method method() const = 0;
  /// How the process that runs candidates is confined ("landlock 7, seccomp"); empty where none of their code is run.
  virtual std::string isolation() const { return {}; }

  /// Called once for each plan that was evaluated, in any order; `index` counts from the start of `plans`. An error
  /// (the record could not be stored) ends the batch.
  using Finished = std::function<Result<void>(std::size_t index, const Evaluation& evaluation)>;
  /// True once the budget is spent or the user interrupted; asked between candidates. Plans not reached are not reported.
  using Stop = std::function<bool()>;

  /// Evaluates a batch; the evaluator chooses the order (equal packed weights together, compilations in parallel). A bad
  /// candidate is an Evaluation, never an Error: an Error means that no candidate can be evaluated any more.
  virtual Result<void> evaluate(const Deployment& deployment, std::span<const Plan> plans, const Finished& finished,
                                const Stop& stop) = 0;
};

/// One plan through the same gate.
Result<Evaluation> evaluate_one(Evaluator& evaluator, const Deployment& deployment, const Plan& plan);

}  // namespace adamk
