#include "adamk/search/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "search_fixture.h"

namespace adamk {
namespace {

using namespace testing_search;

const Space& small_space() {
  static const Space space = make_space(small_deployment()).value();
  return space;
}

SearchOptions options(int trials, std::uint64_t seed = 1) {
  SearchOptions out;
  out.seed = seed;
  out.budget.trials = trials;
  out.tool_version = "test";
  return out;
}

SearchOutcome search(Evaluator& evaluator, Records& records, const SearchOptions& with, const SearchHooks& hooks = {}) {
  auto outcome = run_search(small_space(), evaluator, records, with, hooks);
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  return outcome.value_or(SearchOutcome{});
}

TEST(Search, FortyTrialsCoverExchangesAndKnobs) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords records;
  const SearchOutcome outcome = search(*evaluator, records, options(40));
  EXPECT_EQ(outcome.run.state, RunState::completed);
  EXPECT_EQ(outcome.run.ended_by, "budget");
  ASSERT_EQ(records.candidates.size(), 40u);
  std::set<Exchange> exchanges;
  std::set<int> warps, rings, tiles, windows;
  std::set<std::string> hashes;
  int ok = 0;
  for (const auto& candidate : records.candidates) {
    for (const StagePlan& stage : candidate.plan.stages) {
      exchanges.insert(stage.input);
      tiles.insert(stage.tile_rows);
    }
    warps.insert(candidate.plan.consumer_warps);
    rings.insert(candidate.plan.ring_stages);
    windows.insert(candidate.plan.window);
    hashes.insert(candidate.plan.hash());
    ok += candidate.evaluation.status == Status::ok;
  }
  EXPECT_EQ(exchanges.size(), 3u);
  EXPECT_GE(warps.size(), 2u);
  EXPECT_GE(rings.size(), 3u);
  EXPECT_GE(windows.size(), 2u);
  EXPECT_EQ(tiles.size(), 2u);
  EXPECT_EQ(hashes.size(), 40u) << "no plan twice";
  EXPECT_GE(ok, 30);
}

TEST(Search, FindsSomethingFasterThanTheDefaultPlan) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords records;
  const SearchOutcome outcome = search(*evaluator, records, options(60));
  const Plan first = default_plan(small_deployment()).value();
  const double start = evaluate_one(*evaluator, small_deployment(), first)->median_us();
  EXPECT_LT(outcome.run.best_us, start);
}

TEST(Search, ProposalsDoNotDependOnTheOrderInWhichResultsArrive) {
  const auto forward = make_simulated_evaluator(small_deployment().target);
  BackwardEvaluator backward(small_deployment().target);
  MemoryRecords one, two;
  const SearchOutcome a = search(*forward, one, options(40)), b = search(backward, two, options(40));
  EXPECT_EQ(one.hashes(), two.hashes());
  EXPECT_EQ(a.run.best_plan, b.run.best_plan);
}

TEST(Search, SeedsChangeTheProposals) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords one, two;
  search(*evaluator, one, options(40, 1));
  search(*evaluator, two, options(40, 2));
  EXPECT_NE(one.hashes(), two.hashes());
}

TEST(Search, CompletedRunIsReturnedNotRepeated) {
  BackwardEvaluator evaluator(small_deployment().target);
  MemoryRecords records;
  const SearchOutcome first = search(evaluator, records, options(20));
  EXPECT_FALSE(first.repeated);
  EXPECT_EQ(evaluator.evaluated, 20);
  const SearchOutcome second = search(evaluator, records, options(20));
  EXPECT_TRUE(second.repeated);
  EXPECT_EQ(evaluator.evaluated, 20);
  ASSERT_TRUE(second.best.has_value());
  EXPECT_EQ(*second.best, *first.best);
}

TEST(Search, LargerBudgetReusesWhatIsKnown) {
  BackwardEvaluator evaluator(small_deployment().target);
  MemoryRecords records;
  search(evaluator, records, options(20));
  const SearchOutcome outcome = search(evaluator, records, options(30));
  EXPECT_EQ(outcome.reused, 20);
  EXPECT_EQ(evaluator.evaluated, 30);
}

TEST(Search, InterruptKeepsWhatIsFinishedAndTheNextRunGoesOn) {
  BackwardEvaluator evaluator(small_deployment().target);
  MemoryRecords records;
  SearchHooks hooks;
  hooks.interrupted = [&] { return evaluator.evaluated >= 11; };
  const SearchOutcome stopped = search(evaluator, records, options(30), hooks);
  EXPECT_EQ(stopped.run.state, RunState::interrupted);
  EXPECT_EQ(records.candidates.size(), 11u);
  const SearchOutcome resumed = search(evaluator, records, options(30));
  EXPECT_EQ(resumed.run.state, RunState::completed);
  EXPECT_EQ(evaluator.evaluated, 30) << "nothing is evaluated twice";

  MemoryRecords undisturbed;
  BackwardEvaluator fresh(small_deployment().target);
  const SearchOutcome reference = search(fresh, undisturbed, options(30));
  EXPECT_EQ(records.hashes(), undisturbed.hashes());
  EXPECT_EQ(resumed.run.best_plan, reference.run.best_plan);
}

TEST(Search, EvaluatorFailureIsAnErrorThatLosesNothing) {
  BackwardEvaluator evaluator(small_deployment().target);
  evaluator.broken_after = 5;
  MemoryRecords records;
  const auto outcome = run_search(small_space(), evaluator, records, options(30));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::machine);
  EXPECT_EQ(records.candidates.size(), 5u);
  EXPECT_EQ(records.runs[1].state, RunState::interrupted);
}

TEST(Search, FailingRecordsEndTheRun) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords records;
  records.full = true;
  const auto outcome = run_search(small_space(), *evaluator, records, options(30));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::io);
}

TEST(Search, TimeBudgetEndsTheRun) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords records;
  SearchOptions with = options(1);
  with.budget = parse_budget("0.05s").value();
  const SearchOutcome outcome = search(*evaluator, records, with);
  EXPECT_EQ(outcome.run.ended_by, "budget");
  EXPECT_EQ(outcome.run.state, RunState::completed);
}

TEST(Search, ProgressCountsEveryCandidate) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords records;
  SearchHooks hooks;
  std::vector<SearchProgress> seen;
  hooks.progress = [&](const SearchProgress& progress) { seen.push_back(progress); };
  const SearchOutcome outcome = search(*evaluator, records, options(12), hooks);
  ASSERT_EQ(seen.size(), 12u);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].done, static_cast<int>(i) + 1);
  EXPECT_EQ(seen.back().best_us, outcome.run.best_us);
}

TEST(Plans, StatedPlansAreTriedOnceEachAndNotAgain) {
  BackwardEvaluator evaluator(small_deployment().target);
  MemoryRecords records;
  const Plan first = default_plan(small_deployment()).value();
  Plan second = first;
  second.window = 1;
  const auto outcome = run_plans(small_deployment(), {first, second, first}, evaluator, records, options(1));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->run.state, RunState::completed);
  EXPECT_EQ(outcome->run.ended_by, "all tried");
  EXPECT_EQ(evaluator.evaluated, 2);
  const auto reordered = run_plans(small_deployment(), {second, first}, evaluator, records, options(1, 7));
  EXPECT_EQ(reordered->reused, 2) << "another seed is another run, of known plans";
  EXPECT_TRUE(run_plans(small_deployment(), {second, first}, evaluator, records, options(1))->repeated)
      << "the order does not matter";
  EXPECT_EQ(evaluator.evaluated, 2);
}

TEST(Plans, AnUnsoundPlanIsARecordNotAnError) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  MemoryRecords records;
  Plan plan = default_plan(small_deployment()).value();
  plan.grid = 93;
  const auto outcome = run_plans(small_deployment(), {plan}, *evaluator, records, options(1));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_FALSE(outcome->best.has_value());
  ASSERT_EQ(records.candidates.size(), 1u);
  EXPECT_EQ(records.candidates[0].evaluation.status, Status::infeasible);
}

/// A space of one path that is small enough to count, cut down from the real one.
Space cut_space() {
  Space space = small_space();
  space.paths.resize(1);
  for (SpaceEdge& edge : space.edges)
    for (std::size_t i = 2; i < edge.variants.size(); ++i) edge.variants[i].reason = "left out by this test";
  space.knobs.paces.resize(1);
  space.knobs.grids.resize(1);
  return space;
}

TEST(Strategy, ExhaustiveTriesEveryPlanOnce) {
  const Space space = cut_space();
  std::set<std::string> expected, proposed;
  for_each_plan(space, 0, space.candidates(), [&](std::uint64_t, const Plan& plan) {
    expected.insert(plan.hash());
    return true;
  });
  ASSERT_GT(expected.size(), 16u);
  const auto strategy = make_exhaustive(space);
  for (auto plans = strategy->propose({}); !plans.empty(); plans = strategy->propose({}))
    for (const Plan& plan : plans) EXPECT_TRUE(proposed.insert(plan.hash()).second) << "no plan twice";
  EXPECT_EQ(proposed, expected);
  EXPECT_TRUE(strategy->propose({}).empty());
}

TEST(Strategy, UnknownNamesAreRefused) { EXPECT_EQ(make_strategy("magic", small_space(), 1).error().code, Errc::bad_input); }

TEST(Strategy, BeamWithoutASoundPlanLooksElsewhere) {
  const auto strategy = make_beam(small_space(), 1);
  std::vector<Tried> tried;
  for (Plan& plan : strategy->propose(tried)) {
    const std::string hash = plan.hash();
    tried.push_back({std::move(plan), hash, Status::crashed, std::nan("")});
  }
  const auto next = strategy->propose(tried);
  ASSERT_FALSE(next.empty());
  for (const Plan& plan : next)
    for (const Tried& known : tried) EXPECT_NE(plan.hash(), known.hash);
}

TEST(Budget, TrialsAndTimesHaveOneSpelling) {
  EXPECT_EQ(parse_budget("200")->text(), "200");
  EXPECT_EQ(parse_budget("60s")->text(), "60s");
  EXPECT_EQ(parse_budget("2m")->text(), "120s");
  EXPECT_EQ(parse_budget("1.5h")->text(), "5400s");
  for (const char* wrong : {"", "s", "-3", "0", "1.5", "60x", "nan", "1e300", "60s "})
    EXPECT_EQ(parse_budget(wrong).error().code, Errc::bad_input) << wrong;
}

TEST(Simulated, IdentityChangesWithTheFiguresAndNeverLooksMeasured) {
  Target target = small_deployment().target;
  const auto a = make_simulated_evaluator(target);
  target.read_gbps = 800;
  const auto b = make_simulated_evaluator(target);
  EXPECT_NE(a->device().fingerprint(), b->device().fingerprint());
  EXPECT_EQ(a->device().name, "simulated l20");
  EXPECT_EQ(a->method(), Method::simulated);
}

TEST(Simulated, PlansThatDoNotFitAreInfeasibleWithTheReason) {
  const auto evaluator = make_simulated_evaluator(small_deployment().target);
  Plan plan = default_plan(small_deployment()).value();
  plan.grid = 93;
  const auto evaluation = evaluate_one(*evaluator, small_deployment(), plan);
  ASSERT_TRUE(evaluation.has_value());
  EXPECT_EQ(evaluation->status, Status::infeasible);
  EXPECT_NE(evaluation->message.find("92 SMs"), std::string::npos) << evaluation->message;
  EXPECT_TRUE(evaluation->samples_us.empty());
}

TEST(Evaluation, QuantilesAreLinearBetweenOrderStatistics) {
  const std::vector<double> samples{4, 1, 3, 2};   // sorted 1 2 3 4: median 2.5, p10 at place 0.3
  EXPECT_DOUBLE_EQ(quantile(samples, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.1), 1.3);
  EXPECT_DOUBLE_EQ(quantile(samples, 1), 4);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

TEST(Evaluation, GigabytesPerSecondAreUsefulBytesOverTheMedian) {
  Evaluation evaluation;
  evaluation.samples_us = {500};
  evaluation.bytes_per_token = 2e9;
  EXPECT_DOUBLE_EQ(evaluation.gbps(), 4000);   // 2 GB in 0.5 ms
}

TEST(Evaluation, NamesOfStatusAndMethodRoundTrip) {
  for (const Status status : {Status::ok, Status::infeasible, Status::rejected, Status::compile_error, Status::spills,
                              Status::wrong_result, Status::timeout, Status::crashed})
    EXPECT_EQ(parse_status(to_string(status)).value(), status);
  for (const Method method : {Method::simulated, Method::cupti, Method::events})
    EXPECT_EQ(parse_method(to_string(method)).value(), method);
  EXPECT_FALSE(parse_status("fine").has_value());
}

}  // namespace
}  // namespace adamk
