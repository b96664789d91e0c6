// The gate before any time is shown: a Decoder against the reference decoder. Logits at chosen positions over random KV,
// then greedy tokens from an empty cache; outputs are poisoned before every launch (docs/verification.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/weights.h"
#include "adamk/profile/compare.h"
#include "adamk/runtime/decoder.h"

namespace adamk {

struct VerifyOptions {
  std::vector<std::int64_t> positions{0};   // of single steps; each below the context; KV before it is random
  std::vector<int> prompt;                  // of the greedy run; empty: one token drawn from the seed
  int greedy_tokens = 16;                   // chosen after the prompt; 0: no greedy run
  std::uint64_t seed = 1;                   // of KV and tokens
  WeightsOrigin origin = WeightsOrigin::trained;   // decides the tolerance
};

struct PositionVerdict {
  std::int64_t position = 0;
  LogitComparison logits;
};

struct VerifyReport {
  double tolerance = 0;                     // of relative_l2
  std::vector<PositionVerdict> positions;
  GreedyReport greedy;
  std::string failure;                      // the first check that does not hold; empty: all do

  bool passed() const { return failure.empty(); }
  double max_abs_error() const;             // over all positions
};

/// Overwrites the decoder's KV. An Error means that the check could not be made; a kernel that is wrong is a report.
Result<VerifyReport> verify_decoder(Decoder& decoder, const Deployment& deployment, const Weights& weights,
                                    const VerifyOptions& options = {});

Json verify_report_to_json(const VerifyReport& report);

}  // namespace adamk
