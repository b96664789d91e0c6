// Statistics of samples, and the decision between two kernels. Pure functions.
#pragma once

#include <span>
#include <string_view>

#include "adamk/base/json.h"

namespace adamk {

/// Of an empty set everything but `count` is NaN.
struct Statistics {
  double median = 0, p10 = 0, p90 = 0;   // linear between order statistics
  double mean = 0;
  double stdev = 0;                      // of the sample (n - 1); 0 for one value
  int count = 0;
};

Statistics summarise(std::span<const double> samples);
Json statistics_to_json(const Statistics& statistics);

/// Standard error of the median of a normal sample relative to the median: 1.2533 stdev / (sqrt(n) median). Infinite below two
/// samples.
double relative_error(std::span<const double> samples);

enum class Winner { first, second, tie };
std::string_view to_string(Winner winner);

struct Comparison {
  Winner winner = Winner::tie;
  double p_value = 1;       // two-sided, Wilcoxon's signed-rank test, exact also with tied ranks
  double ratio = 1;         // median of b[i] / a[i]; above 1: the first is faster
  int pairs = 0;
};

/// Pairs (a[i], b[i]) taken alternately, A B A B, smaller is better. Within noise is a tie: no winner above `alpha`.
/// Extra samples of the longer side are left out.
Comparison compare_pairs(std::span<const double> a, std::span<const double> b, double alpha = 0.05);

/// Two-sided p of Wilcoxon's signed-rank test over differences; zero differences are dropped. 1 when none remain. At most
/// the first 500 differences are used.
double signed_rank_p(std::span<const double> differences);

}  // namespace adamk
