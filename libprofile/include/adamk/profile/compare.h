// Judging a kernel by the reference: logits within a tolerance, greedy tokens one by one, near ties by their logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/model.h"
#include "adamk/dag/weights.h"
#include "adamk/profile/oracle.h"

namespace adamk {

struct LogitComparison {
  double max_abs_error = 0;       // over the elements that were written
  double relative_l2 = 0;         // |got - want| / |want|; infinite when an element is unwritten
  int argmax_got = 0, argmax_want = 0;
  double top2_gap = 0;            // of `want`: largest minus second largest
  std::size_t unwritten = 0;      // NaN (the poison outputs are filled with), infinite, or missing in `got`

  /// Every element written, and relative_l2 <= tolerance.
  bool within(double tolerance) const { return unwritten == 0 && relative_l2 <= tolerance; }
};
LogitComparison compare_logits(std::span<const float> got, std::span<const double> want);

/// Where the weights under test came from: trained ones amplify rounding more than random ones do.
enum class WeightsOrigin { trained, random };

/// The largest relative_l2 a correct kernel may show. With u the unit roundoff of `format` (2^-8 for bf16, 2^-11 for fp16) and L
/// layers: u (1 + 1.6 sqrt L) for Weights::random, and no less than 10 u for trained weights. Measured, not derived:
/// rounding every activation of an otherwise exact decoder costs two thirds of that at most (docs/tolerances.md).
double logit_tolerance(const Model& model, WeightsFormat format, WeightsOrigin origin = WeightsOrigin::trained);

/// One decode step of the kernel under test.
struct GreedyStep {
  int input = 0;                    // token fed at `position`
  std::int64_t position = 0;
  int chosen = 0;                   // token the kernel chose
  std::span<const float> logits;    // [vocab], or empty when the kernel kept none for this step
};

/// A step whose two largest reference logits lie closer than twice the measured error.
struct NearTie {
  std::int64_t position = 0;
  int reference = 0, chosen = 0;
  double gap = 0;     // reference logit of its own choice minus that of the kernel's choice; of the second best if equal
  double error = 0;   // measured: max_abs_error of the step, or the caller's figure
};

struct GreedyReport {
  std::int64_t compared = 0;
  std::int64_t equal = 0;               // same token as the reference
  std::vector<NearTie> near_ties;       // whether or not the tokens were equal there
  std::int64_t mismatch = -1;           // position of the first difference that no near tie explains; -1: none
  std::string reason;                   // of the mismatch
  LogitComparison worst;                // the comparison with the largest relative_l2, of the steps with logits

  bool passed() const { return mismatch < 0; }
};

/// Runs the reference over the kernel's own inputs (teacher-forced), so that one near tie does not end the check. A different
/// token is a mismatch unless the reference holds the two tokens closer than twice the error. `logit_error` stands in for
/// steps without logits: the largest error measured for this kernel elsewhere. A step whose logits were written must have
/// chosen their argmax. Stops at the first mismatch.
Result<GreedyReport> check_greedy(ReferenceDecoder& reference, std::span<const GreedyStep> steps,
                                  double logit_error = 0);

}  // namespace adamk
