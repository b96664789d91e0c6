#include "adamk/profile/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace adamk {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_differences = 500;   // keeps the exact distribution below a few million additions

/// `sorted` not empty.
double order_statistic(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// Twice the rank of each absolute value (ties share the mean rank), so that ranks stay whole numbers.
std::vector<int> doubled_ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::abs(values[a]) < std::abs(values[b]); });
  std::vector<int> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && std::abs(values[order[last + 1]]) == std::abs(values[order[first]])) ++last;
    // ranks first + 1 .. last + 1; twice their mean
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = static_cast<int>(first + last + 2);
    first = last + 1;
  }
  return ranks;
}

}  // namespace

Statistics summarise(std::span<const double> samples) {
  Statistics result;
  result.count = static_cast<int>(samples.size());
  if (samples.empty()) {
    result.median = result.p10 = result.p90 = result.mean = result.stdev = nan;
    return result;
  }
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  result.median = order_statistic(sorted, 0.5);
  result.p10 = order_statistic(sorted, 0.1);
  result.p90 = order_statistic(sorted, 0.9);
  result.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  double squares = 0;
  for (double value : sorted) squares += (value - result.mean) * (value - result.mean);
  result.stdev = sorted.size() < 2 ? 0 : std::sqrt(squares / static_cast<double>(sorted.size() - 1));
  return result;
}

Json statistics_to_json(const Statistics& statistics) {
  return {{"median", statistics.median}, {"p10", statistics.p10},     {"p90", statistics.p90},
          {"mean", statistics.mean},     {"stdev", statistics.stdev}, {"count", statistics.count}};
}

double relative_error(std::span<const double> samples) {
  if (samples.size() < 2) return std::numeric_limits<double>::infinity();
  const Statistics statistics = summarise(samples);
  constexpr double median_over_mean = 1.2533141373155;   // sqrt(pi / 2)
  return median_over_mean * statistics.stdev / (std::sqrt(static_cast<double>(statistics.count)) * statistics.median);
}

std::string_view to_string(Winner winner) {
  return winner == Winner::first ? "first" : winner == Winner::second ? "second" : "tie";
}

double signed_rank_p(std::span<const double> differences) {
  std::vector<double> kept;
  for (double difference : differences) {
    if (difference != 0 && kept.size() < most_differences) kept.push_back(difference);
  }
  if (kept.empty()) return 1;
  const std::vector<int> ranks = doubled_ranks(kept);
  const int total = std::accumulate(ranks.begin(), ranks.end(), 0);
  int positive = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) positive += kept[i] > 0 ? ranks[i] : 0;

  // Under the null hypothesis each sign is a fair coin: probability of every possible sum of positive ranks.
  std::vector<double> probability(static_cast<std::size_t>(total) + 1, 0.0);
  probability[0] = 1;
  int reached = 0;
  for (int rank : ranks) {
    for (int sum = reached; sum >= 0; --sum) {
      const double half = probability[static_cast<std::size_t>(sum)] / 2;
      probability[static_cast<std::size_t>(sum)] = half;
      probability[static_cast<std::size_t>(sum + rank)] += half;
    }
    reached += rank;
  }
  const int smaller = std::min(positive, total - positive);
  double tail = 0;
  for (int sum = 0; sum <= smaller; ++sum) tail += probability[static_cast<std::size_t>(sum)];
  return std::min(1.0, 2 * tail);
}

Comparison compare_pairs(std::span<const double> a, std::span<const double> b, double alpha) {
  Comparison result;
  const std::size_t pairs = std::min(a.size(), b.size());
  result.pairs = static_cast<int>(pairs);
  if (pairs == 0) return result;
  std::vector<double> differences(pairs), ratios(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    differences[i] = b[i] - a[i];
    ratios[i] = b[i] / a[i];
  }
  result.p_value = signed_rank_p(differences);
  result.ratio = summarise(ratios).median;
  if (result.p_value <= alpha && result.ratio != 1) result.winner = result.ratio > 1 ? Winner::first : Winner::second;
  return result;
}

}  // namespace adamk
