// Strategies: which plans to try next, given what was found so far. Pure functions of the space, the seed and the results
// of finished generations in the order they were proposed; never of time or of the order in which results came in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/space.h"
#include "adamk/search/evaluator.h"

namespace adamk {

/// A candidate that was tried, in the order of proposal.
struct Tried {
  Plan plan;
  std::string hash;
  Status status = Status::ok;
  double us = 0;   // median; NaN unless ok
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next generation: distinct feasible plans that were not proposed before. Empty: the strategy has nothing left.
  virtual std::vector<Plan> propose(const std::vector<Tried>& tried) = 0;
  /// What an empty generation means: "space exhausted", "converged".
  virtual std::string_view ending() const = 0;
};

/// All plans of the space, in an order that spreads any first part of it over the whole. `space` must outlive the strategy.
std::unique_ptr<Strategy> make_exhaustive(const Space& space);

/// Keeps the `width` best plans and tries their neighbours, the most promising by the cost model first, the rest in an order
/// drawn from the seed, with one random plan a generation. The first generation is the default plan and plans that differ
/// from it in one respect each, one of every exchange kind among them.
std::unique_ptr<Strategy> make_beam(const Space& space, std::uint64_t seed, int width = 6);

struct StrategyInfo {
  std::string_view name, description;
};
/// What make_strategy knows.
std::span<const StrategyInfo> strategies();

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const Space& space, std::uint64_t seed);

}  // namespace adamk
