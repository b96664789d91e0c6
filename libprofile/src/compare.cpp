#include "adamk/profile/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace adamk {
namespace {

template <class Number>
int first_largest(std::span<const Number> values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best] || (std::isnan(values[best]) && !std::isnan(values[i]))) best = i;
  }
  return static_cast<int>(best);
}

/// Largest minus second largest; infinite for a vocabulary of one.
double gap_to_second(std::span<const double> values, int best) {
  double second = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int>(i) != best) second = std::max(second, values[i]);
  }
  return values.empty() ? 0.0 : values[static_cast<std::size_t>(best)] - second;
}

}  // namespace

int argmax(std::span<const double> values) { return first_largest(values); }
int argmax(std::span<const float> values) { return first_largest(values); }

LogitComparison compare_logits(std::span<const float> got, std::span<const double> want) {
  LogitComparison result;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    norm += want[i] * want[i];
    if (i >= got.size() || !std::isfinite(got[i])) {
      ++result.unwritten;
      continue;
    }
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    result.max_abs_error = std::max(result.max_abs_error, error);
    difference += error * error;
  }
  if (result.unwritten > 0) {
    result.relative_l2 = std::numeric_limits<double>::infinity();
  } else if (difference > 0) {   // a reference of zeros leaves no scale: any error is infinite
    result.relative_l2 = norm > 0 ? std::sqrt(difference / norm) : std::numeric_limits<double>::infinity();
  }
  result.argmax_got = argmax(got);
  result.argmax_want = argmax(want);
  result.top2_gap = gap_to_second(want, result.argmax_want);
  return result;
}

double logit_tolerance(const Model& model, WeightsFormat format, WeightsOrigin origin) {
  const double unit = format == WeightsFormat::bf16 ? 0x1p-8 : 0x1p-11;
  const double depth = 1 + 1.6 * std::sqrt(static_cast<double>(model.layers));
  return unit * (origin == WeightsOrigin::random ? depth : std::max(10.0, depth));
}

namespace {

/// Why the kernel's choice of this step is wrong by its own logits; empty when it is not.
std::string choice_against_logits(const GreedyStep& step, const LogitComparison& comparison) {
  if (comparison.unwritten > 0) return fmt::format("{} logits were never written", comparison.unwritten);
  if (comparison.argmax_got == step.chosen) return {};
  return fmt::format("the kernel chose token {} but its own largest logit is token {}", step.chosen,
                     comparison.argmax_got);
}

}  // namespace

Result<GreedyReport> check_greedy(ReferenceDecoder& reference, std::span<const GreedyStep> steps, double logit_error) {
  GreedyReport report;
  for (const GreedyStep& step : steps) {
    ADAMK_TRY(const std::vector<double> want, reference.step(step.input, step.position));
    ++report.compared;
    double error = logit_error;
    if (!step.logits.empty()) {
      const LogitComparison comparison = compare_logits(step.logits, want);
      error = comparison.max_abs_error;
      if (report.worst.relative_l2 <= comparison.relative_l2) report.worst = comparison;
      report.reason = choice_against_logits(step, comparison);
    }
    if (report.reason.empty() && (step.chosen < 0 || static_cast<std::size_t>(step.chosen) >= want.size())) {
      report.reason = fmt::format("token {} is outside the vocabulary of {}", step.chosen, want.size());
    }
    if (!report.reason.empty()) {
      report.mismatch = step.position;
      return report;
    }

    const int best = argmax(want);
    const bool equal = best == step.chosen;
    const double gap = equal ? gap_to_second(want, best)
                             : want[static_cast<std::size_t>(best)] - want[static_cast<std::size_t>(step.chosen)];
    if (equal) ++report.equal;
    if (gap < 2 * error) {
      report.near_ties.push_back({step.position, best, step.chosen, gap, error});
    } else if (!equal) {
      report.mismatch = step.position;
      report.reason = fmt::format("the kernel chose token {}, the reference {} by {:.4g}, more than twice the measured "
                                  "error {:.4g}", step.chosen, best, gap, error);
      return report;
    }
  }
  return report;
}

}  // namespace adamk
