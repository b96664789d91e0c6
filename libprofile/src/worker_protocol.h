// What the evaluator asks its workers, as JSON. Requests carry "do"; replies are {"ok": true, "value": ...} or
// {"ok": false, "code": "machine", "message": ...}.
#pragma once

#include <map>
#include <string>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/profile/device_evaluator.h"
#include "adamk/search/evaluator.h"

namespace adamk {

Json reply_to_json(const Result<Json>& result);
/// The worker's value or its Error; a reply of another shape is an Error (machine).
Result<Json> reply_from_json(const Json& reply);

Json identity_to_json(const DeviceIdentity& identity);
Result<DeviceIdentity> identity_from_json(const JsonView& view);

Json verdict_to_json(const Verdict& verdict);
Result<Verdict> verdict_from_json(const JsonView& view);

Json timing_options_to_json(const TimingOptions& options);
Result<TimingOptions> timing_options_from_json(const JsonView& view);

Json weights_source_to_json(const WeightsSource& source);
Result<WeightsSource> weights_source_from_json(const JsonView& view);

Json emulation_to_json(const Emulation& emulation);
Result<Emulation> emulation_from_json(const JsonView& view);

/// Evaluation::counters; what is no number is left out.
std::map<std::string, double> counters_from_json(const Json& counters);

/// What compiling one candidate gave.
struct CompiledCandidate {
  KernelResources resources;      // threads and smem_bytes are the schedule's, filled in by the parent
  std::string image_file;         // cubin, or PTX with its terminating zero
};
Json compiled_to_json(const CompiledCandidate& compiled);
Result<CompiledCandidate> compiled_from_json(const JsonView& view);

/// What timing one candidate gave.
struct TimedCandidate {
  Method method = Method::events;
  std::vector<double> samples_us;
  double bytes_per_token = 0;
  Conditions conditions;
  std::string wrong;              // the check after timing failed: why
};
Json timed_to_json(const TimedCandidate& timed);
Result<TimedCandidate> timed_from_json(const JsonView& view);

}  // namespace adamk
