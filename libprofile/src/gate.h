// The correctness gate of a candidate on a device: nothing is timed before it has passed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/weights.h"
#include "adamk/profile/compare.h"
#include "adamk/profile/oracle.h"
#include "adamk/runtime/decoder.h"
#include "adamk/search/evaluator.h"

namespace adamk {

struct CheckedLaunch {
  std::int64_t position = 0;
  int steps = 1;
};

/// What a candidate is checked with: one step at each of `positions`, but several in one launch at the last one that leaves
/// room for them, so that what passes from step to step is seen as well.
std::vector<CheckedLaunch> checked_launches(std::span<const std::int64_t> positions, const Workload& workload);

/// Logits of the reference decoder for inputs that every candidate of a deployment is given; computed once. The KV cache is
/// random at every position, also behind the ones that may be read, so that reading there shows.
class ReferenceLogits {
 public:
  static Result<ReferenceLogits> create(const Deployment& deployment, const Weights& weights, WeightsOrigin origin,
                                        std::uint64_t seed);

  /// Computes ahead what a candidate that chooses as the reference does will be compared with.
  Result<void> prepare(std::span<const CheckedLaunch> launches);

  /// [vocab], after `tokens` (at least one) fed from `position`.
  Result<std::vector<double>> after(std::int64_t position, const std::vector<int>& tokens);
  /// What to write to the device before each check.
  std::span<const std::byte> kv() const { return std::as_bytes(std::span<const Half>(kv_)); }
  /// The token fed first at `position`: any, but the same for every candidate.
  int first_token(std::int64_t position) const;
  /// Of the logits' relative L2.
  double tolerance() const { return tolerance_; }

 private:
  ReferenceLogits(ReferenceDecoder decoder, std::uint64_t seed, int vocab, double tolerance)
      : decoder_(std::move(decoder)), seed_(seed), vocab_(vocab), tolerance_(tolerance) {}
  using Key = std::pair<std::int64_t, std::vector<int>>;
  ReferenceDecoder decoder_;
  std::uint64_t seed_;
  int vocab_;
  double tolerance_;
  Key state_{-1, {}};   // what the decoder holds now
  std::map<Key, std::vector<double>> known_;
  std::vector<Half> kv_;
};

struct GateResult {
  bool passed = false;
  std::string message;   // the first wrong position
  Verdict verdict;       // max_error and tolerance: relative L2 of the logits, the worst position
};

/// The tokens a launch chooses must be the argmax of its logits, and those match the reference's on the same tokens. An Error
/// is the device's (watchdog, fault).
Result<GateResult> check_decoder(Decoder& decoder, ReferenceLogits& reference, std::span<const CheckedLaunch> launches);

/// The longest of the launches once more, after timing: a race may only show at speed.
Result<GateResult> check_again(Decoder& decoder, ReferenceLogits& reference, std::span<const CheckedLaunch> launches);

}  // namespace adamk
