// Searches of a shipped model on a shipped target, as a user starts them.
#include <gtest/gtest.h>

#include <set>

#include "adamk/cost/model.h"
#include "adamk/search/search.h"
#include "search_fixture.h"

namespace adamk {
namespace {

using namespace testing_search;

const Space& qwen_space() {
  static const Space space = [] {
    const std::filesystem::path examples = std::filesystem::path(ADAMK_SOURCE_DIR) / "examples";
    Workload workload;
    workload.context = 256;
    return make_space(make_deployment(load_model(examples / "models/qwen3-1.7b.yaml").value(), WeightsFormat::bf16,
                                      load_target("h200", examples / "targets").value(), workload).value()).value();
  }();
  return space;
}

struct Searched {
  MemoryRecords records;
  SearchOutcome outcome;
};

Searched search_qwen(const std::string& strategy, std::uint64_t seed, int trials) {
  Searched run;
  SearchOptions options;
  options.strategy = strategy;
  options.seed = seed;
  options.budget.trials = trials;
  const auto evaluator = make_simulated_evaluator(qwen_space().deployment.target);
  run.outcome = run_search(qwen_space(), *evaluator, run.records, options).value();
  return run;
}

class FortyTrials : public testing::TestWithParam<std::tuple<const char*, std::uint64_t>> {};

TEST_P(FortyTrials, SeeEveryExchangeAndNoPlanTwice) {
  const auto& [strategy, seed] = GetParam();
  const Searched run = search_qwen(strategy, seed, 40);
  ASSERT_EQ(run.records.candidates.size(), 40u);
  std::set<Exchange> everywhere, somewhere;
  std::set<std::string> hashes;
  int ok = 0;
  for (const auto& candidate : run.records.candidates) {
    std::set<Exchange> of_plan;
    for (const StagePlan& stage : candidate.plan.stages) of_plan.insert(stage.input);
    somewhere.insert(of_plan.begin(), of_plan.end());
    if (of_plan.size() == 1) everywhere.insert(*of_plan.begin());
    hashes.insert(candidate.plan.hash());
    ok += candidate.evaluation.status == Status::ok;
  }
  EXPECT_EQ(somewhere.size(), 3u);
  if (std::string_view(strategy) == "beam") {
    EXPECT_EQ(everywhere.size(), 3u) << "each exchange as the only one of a plan";
  }
  EXPECT_EQ(hashes.size(), 40u);
  EXPECT_GE(ok, 30);
}

INSTANTIATE_TEST_SUITE_P(Strategies, FortyTrials,
                         testing::Combine(testing::Values("beam", "exhaustive"), testing::Values(1u, 2u, 3u)),
                         [](const auto& each) {
                           return fmt::format("{}{}", std::get<0>(each.param), std::get<1>(each.param));
                         });

TEST(ShippedSearch, LongerSearchesAreNeverWorse) {
  const double few = search_qwen("beam", 1, 40).outcome.run.best_us, many = search_qwen("beam", 1, 120).outcome.run.best_us;
  EXPECT_LE(many, few);
  // The read ceiling bounds every prediction: 3.44 GB of weights at 4690 GB/s take 734 us.
  EXPECT_GT(many, necessary_bytes(qwen_space().deployment) / (qwen_space().deployment.target.read_gbps * 1e3));
}

}  // namespace
}  // namespace adamk
