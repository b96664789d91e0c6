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
#include "adamk/profile/oracle.h"
#include "adamk/runtime/decoder.h"
#include "adamk/search/evaluator.h"

namespace adamk {

/// Logits of the reference decoder for inputs that every candidate of a deployment is given; computed once. The KV cache is
/// random at every position, also behind the ones that may be read, so that reading there shows.
class ReferenceLogits {
 public:
  static Result<ReferenceLogits> create(const Deployment& deployment, const Weights& weights, std::uint64_t seed);

  /// [vocab], after `tokens` (at least one) fed from `position`.
  Result<std::vector<double>> after(std::int64_t position, const std::vector<int>& tokens);
  /// What to write to the device before each check.
  std::span<const std::byte> kv() const { return std::as_bytes(std::span<const Half>(kv_)); }
  /// The token fed first at `position`: any, but the same for every candidate.
  int first_token(std::int64_t position) const;

 private:
  ReferenceLogits(ReferenceDecoder decoder, std::uint64_t seed, int vocab)
      : decoder_(std::move(decoder)), seed_(seed), vocab_(vocab) {}
  using Key = std::pair<std::int64_t, std::vector<int>>;
  ReferenceDecoder decoder_;
  std::uint64_t seed_;
  int vocab_;
  Key state_{-1, {}};   // what the decoder holds now
  std::map<Key, std::vector<double>> known_;
  std::vector<Half> kv_;
};

struct GateResult {
  bool passed = false;
  std::string message;   // the first wrong position
  Verdict verdict;       // max_error and tolerance: relative L2 of the logits, the worst position
};

/// `positions` within the context; the last one is also decoded on for a few tokens in one launch, whose tokens must be
/// the argmax of logits that match the reference on the same tokens. An Error is the device's (watchdog, fault).
Result<GateResult> check_decoder(Decoder& decoder, const Deployment& deployment, ReferenceLogits& reference,
                                 std::span<const std::int64_t> positions);

/// The last position alone, after timing: a race may only show at speed.
Result<GateResult> check_again(Decoder& decoder, const Deployment& deployment, ReferenceLogits& reference,
                               std::int64_t position);

}  // namespace adamk
