#include "adamk/profile/tuning_db.h"

#include <cmath>

#include "tuning_db_fixture.h"

namespace adamk {
namespace {

using namespace testing_db;

/// One run on `on` with the evaluations as plans 0, 1, 2, ...
std::int64_t store_run(TuningDb& db, const RunKey& with, const std::vector<Evaluation>& evaluations) {
  const auto run = db.open_run(small_deployment(), with, "test");
  EXPECT_TRUE(run.has_value()) << run.error().message;
  int ordinal = 0;
  for (const Evaluation& evaluation : evaluations) {
    const auto stored = db.store(run->id, ordinal, small_deployment(), plan(ordinal), evaluation);
    EXPECT_TRUE(stored.has_value()) << stored.error().message;
    ++ordinal;
  }
  return run->id;
}

TEST_F(TuningDbTest, FindGivesBackEverythingThatWasStored) {
  const auto db = open();
  store_run(*db, key(), {measured(100)});
  const auto found = db->find(small_deployment(), key(), plan(0).hash());
  ASSERT_TRUE(found.has_value() && found->has_value());
  const Evaluation& got = **found;
  EXPECT_EQ(got.status, Status::ok);
  EXPECT_EQ(got.samples_us, (std::vector<double>{100, 102, 101}));
  EXPECT_EQ(got.bytes_per_token, 2e6);
  EXPECT_EQ(got.ceiling_gbps, 800);
  EXPECT_TRUE(got.verdict.checked);
  EXPECT_EQ(got.verdict.tokens, 64);
  EXPECT_EQ(got.verdict.near_ties, 1);
  EXPECT_EQ(got.resources.registers, 128);
  EXPECT_EQ(got.resources.cubin_hash, "cubin");
  EXPECT_EQ(got.conditions.throttled, 2);
  EXPECT_GT(got.record, 0);
}

TEST_F(TuningDbTest, FindIsStrictAboutDeviceMethodWeightsAndToolVersion) {
  const auto db = open();
  store_run(*db, key(), {measured(100)});
  RunKey other = key();
  const auto known = [&](const RunKey& asked) { return db->find(small_deployment(), asked, plan(0).hash())->has_value(); };
  EXPECT_TRUE(known(key()));
  EXPECT_FALSE(known(key(device("NVIDIA L20", 89, "12.8")))) << "another driver";
  EXPECT_FALSE(known(key(device("NVIDIA L40", 89)))) << "another chip";
  EXPECT_FALSE(known(key(device(), Method::simulated)));
  other.weights = "random 2";
  EXPECT_FALSE(known(other));
  other = key();
  other.tool_version = "later";
  EXPECT_FALSE(known(other));
  other = key();
  other.seed = 99;
  EXPECT_TRUE(known(other)) << "another run of the same search may reuse it";
}

TEST_F(TuningDbTest, FailuresKeepStatusAndMessageAndNoMeasurement) {
  const auto db = open();
  const auto run = store_run(*db, key(), {failed(Status::timeout, "worker killed after 60 s"), measured(50)});
  const auto found = db->find(small_deployment(), key(), plan(0).hash());
  EXPECT_EQ((*found)->status, Status::timeout);
  EXPECT_EQ((*found)->message, "worker killed after 60 s");
  const auto show = db->show(fmt::format("run {}", run));
  EXPECT_EQ(show->at("candidates").size(), 2u);
}

TEST_F(TuningDbTest, BestIsTheFastestSoundMeasurement) {
  const auto db = open();
  Evaluation wrong = measured(10);
  wrong.status = Status::wrong_result;
  wrong.message = "position 3";
  store_run(*db, key(), {measured(100), wrong, measured(80), failed(Status::crashed, "signal 11")});
  CandidateFilter filter;
  filter.deployment = small_deployment().key();
  const auto best = db->best(filter);
  ASSERT_TRUE(best.has_value()) << best.error().message;
  EXPECT_EQ(best->plan.hash(), plan(2).hash());
  EXPECT_EQ(best->median_us, 81);
  EXPECT_NEAR(best->gbps, 2e6 / 81 / 1e3, 1e-9);
  EXPECT_NEAR(best->percent_of_ceiling(), 100 * (2e6 / 81 / 1e3) / 800, 1e-9);
  EXPECT_TRUE(best->verified);
}

TEST_F(TuningDbTest, SimulatedResultsNeverAnswerForMeasuredOnes) {
  const auto db = open();
  Evaluation simulated = measured(1);
  simulated.method = Method::simulated;
  store_run(*db, key(device("simulated l20"), Method::simulated), {simulated});
  const auto none = db->best({});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_NE(none.error().message.find("measured on a device"), std::string::npos) << none.error().message;
  store_run(*db, key(), {measured(100)});
  EXPECT_EQ(db->best({})->method, Method::cupti);
  CandidateFilter filter;
  filter.method = MethodFilter::simulated;
  EXPECT_EQ(db->best(filter)->method, Method::simulated);
  filter.method = MethodFilter::any;
  EXPECT_EQ(db->top(filter)->size(), 2u);
}

TEST_F(TuningDbTest, MatchQualityComesBeforeSpeed) {
  const auto db = open();
  store_run(*db, key(device("NVIDIA H200", 90)), {measured(10)});
  store_run(*db, key(device("NVIDIA L20", 89, "12.8")), {measured(50)});
  CandidateFilter filter;
  filter.device = device();
  EXPECT_EQ(db->best(filter)->match, Match::same_sm);
  EXPECT_EQ(db->best(filter)->median_us, 51);
  store_run(*db, key(), {measured(100)});
  EXPECT_EQ(db->best(filter)->match, Match::exact);
  EXPECT_EQ(db->best(filter)->median_us, 101);
  filter.device = device("NVIDIA B200", 100);
  EXPECT_EQ(db->best(filter)->match, Match::nearest);
  filter.worst_match = Match::same_sm;
  const auto none = db->best(filter);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("same sm"), std::string::npos) << none.error().message;
}

TEST_F(TuningDbTest, AskingForAChipTakesAnyDriverAndToolkit) {
  const auto db = open();
  store_run(*db, key(device("NVIDIA L20", 89, "12.8")), {measured(50)});
  CandidateFilter filter;
  filter.device = device("NVIDIA L20", 89, "");
  EXPECT_EQ(db->best(filter)->match, Match::same_sm) << "13.0 was asked for: a toolkit, so driver and toolkit count";
  filter.device->toolkit.clear();
  EXPECT_EQ(db->best(filter)->match, Match::exact);
  filter.device->sms = 60;
  EXPECT_EQ(db->best(filter)->match, Match::same_sm) << "a cut-down chip of the same name";
}

TEST_F(TuningDbTest, TopListsEachPlanOnceFastestFirstFailuresLast) {
  const auto db = open();
  const auto first = store_run(*db, key(), {measured(100), failed(Status::spills, "64 bytes"), measured(80)});
  RunKey again = key();
  again.seed = 2;
  const auto run = db->open_run(small_deployment(), again, "test");
  const auto known = db->find(small_deployment(), again, plan(2).hash());
  ASSERT_TRUE(db->store(run->id, 0, small_deployment(), plan(2), **known).has_value());
  const auto rows = db->top({});
  ASSERT_EQ(rows->size(), 3u);
  EXPECT_EQ(rows->at(0).plan_hash, plan(2).hash());
  EXPECT_EQ(rows->at(0).run, first) << "the record itself, not the reference to it";
  EXPECT_EQ(rows->at(1).plan_hash, plan(0).hash());
  EXPECT_EQ(rows->at(2).status, Status::spills);
  EXPECT_TRUE(std::isnan(rows->at(2).median_us));
  CandidateFilter filter;
  filter.limit = 2;
  EXPECT_EQ(db->top(filter)->size(), 2u);
}

TEST_F(TuningDbTest, EmptyAnswersNameTheFilter) {
  const auto db = open();
  EXPECT_NE(db->best({}).error().message.find("holds no candidates yet"), std::string::npos);
  store_run(*db, key(), {failed(Status::crashed, "x")});
  EXPECT_NE(db->best({}).error().message.find("none is: status ok"), std::string::npos) << db->best({}).error().message;
  CandidateFilter filter;
  filter.deployment = "0123abcd";
  EXPECT_NE(db->best(filter).error().message.find("deployment 0123abcd"), std::string::npos);
}

TEST_F(TuningDbTest, StoringAPlanTwiceInARunChangesNothing) {
  const auto db = open();
  const auto run = store_run(*db, key(), {measured(100)});
  ASSERT_TRUE(db->store(run, 0, small_deployment(), plan(0), measured(1)).has_value());
  EXPECT_EQ(db->best({})->median_us, 101);
  EXPECT_EQ(db->check()->candidates, 1);
}

TEST_F(TuningDbTest, CompletedRunsAreReturnedWithTheirBest) {
  const auto db = open();
  const auto id = store_run(*db, key(), {measured(100), measured(90)});
  EXPECT_EQ(db->open_run(small_deployment(), key(), "again")->state, RunState::running);
  ASSERT_TRUE(db->close_run(id, RunState::completed, "budget", plan(1).hash()).has_value());
  const auto run = db->open_run(small_deployment(), key(), "again");
  EXPECT_EQ(run->id, id);
  EXPECT_EQ(run->state, RunState::completed);
  EXPECT_EQ(run->ended_by, "budget");
  EXPECT_EQ(run->best_plan, plan(1).hash());
  EXPECT_EQ(run->best_us, 91);
  EXPECT_EQ(run->counts.at("ok"), 2);
  RunKey other = key();
  other.budget = "21";
  EXPECT_NE(db->open_run(small_deployment(), other, "x")->id, id);
  EXPECT_EQ(db->runs()->size(), 2u);
}

TEST_F(TuningDbTest, PlansAndDeploymentsComeBackEqual) {
  const auto db = open();
  store_run(*db, key(), {measured(100)});
  EXPECT_EQ(db->plan(plan(0).hash())->hash(), plan(0).hash());
  EXPECT_EQ(db->plan("0").error().code, Errc::not_found);
  const std::string wanted = small_deployment().key();
  EXPECT_EQ(db->deployment(wanted.substr(0, 8))->key(), wanted);
}

TEST_F(TuningDbTest, FiguresThatAreNotNumbersAreStoredAsInfinite) {
  const auto db = open();
  Evaluation wrong = measured(100);
  wrong.status = Status::wrong_result;
  wrong.verdict.max_error = std::nan("");
  store_run(*db, key(), {wrong});
  EXPECT_TRUE(std::isinf((*db->find(small_deployment(), key(), plan(0).hash()))->verdict.max_error));
}

TEST_F(TuningDbTest, ShowFindsCandidatesPlansAndRuns) {
  const auto db = open();
  const auto run = store_run(*db, key(), {measured(100)});
  const auto candidate = db->show("1");
  ASSERT_TRUE(candidate.has_value()) << candidate.error().message;
  EXPECT_EQ(candidate->at("measurement").at("samples"), Json({100.0, 102.0, 101.0}));
  EXPECT_EQ(candidate->at("plan").at("hash"), plan(0).hash());
  EXPECT_EQ(candidate->at("device").at("name"), "NVIDIA L20");
  EXPECT_EQ(db->show(plan(0).hash().substr(0, 8))->at("hash"), plan(0).hash());
  EXPECT_EQ(db->show(fmt::format("run {}", run))->at("strategy"), "beam");
  EXPECT_EQ(db->show("77").error().code, Errc::not_found);
  EXPECT_EQ(db->show("run 77").error().code, Errc::not_found);
  EXPECT_EQ(db->show("nonsense").error().code, Errc::bad_input);
}

TEST_F(TuningDbTest, QueriesReadAndNothingElse) {
  store_run(*open(), key(), {measured(100)});
  const auto rows = query_database(path, "SELECT status, us, message FROM results");
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  EXPECT_EQ(rows->columns, (std::vector<std::string>{"status", "us", "message"}));
  EXPECT_EQ(rows->rows.at(0), (std::vector<Json>{"ok", 101.0, ""}));
  EXPECT_TRUE(query_database(path, "WITH x(a) AS (SELECT 1) SELECT a FROM x;  ").has_value());
  const auto stages =
      query_database(path, "SELECT json_extract(s.value, '$.kind') FROM plans p, json_each(p.json, '$.stages') s");
  ASSERT_TRUE(stages.has_value()) << stages.error().message;
  EXPECT_EQ(stages->rows.at(0), std::vector<Json>{"qkv"});
  for (const char* refused : {"DELETE FROM candidates", "UPDATE plans SET json = ''", "DROP TABLE runs", "PRAGMA user_version = 9",
                              "ATTACH '/tmp/x.db' AS x", "CREATE TEMP TABLE t (a)", "SELECT load_extension('x')",
                              "SELECT 1; DELETE FROM candidates", "VACUUM", "", "SELEC 1"}) {
    const auto result = query_database(path, refused);
    ASSERT_FALSE(result.has_value()) << refused;
    EXPECT_EQ(result.error().code, Errc::bad_input) << refused;
  }
  EXPECT_EQ(open()->check()->candidates, 1);
}

TEST_F(TuningDbTest, CheckFindsAPlanThatWasTamperedWith) {
  store_run(*open(), key(), {measured(100)});
  EXPECT_TRUE(open()->check()->problems.empty());
  Plan other = plan(5);
  {
    const auto db = open();
    const auto run = db->open_run(small_deployment(), key(), "x");
    ASSERT_TRUE(db->store(run->id, 1, small_deployment(), other, measured(1)).has_value());
  }
  // Swap a digit of the stored text in place, as a disk or an editor might.
  std::string all = bytes();
  const std::string needle = fmt::format("\"grid\":{}", other.grid);
  const auto at = all.find(needle);
  ASSERT_NE(at, std::string::npos);
  all[at + needle.size() - 1] = all[at + needle.size() - 1] == '1' ? '2' : '1';
  write(all);
  const auto check = open()->check();
  ASSERT_TRUE(check.has_value()) << check.error().message;
  ASSERT_EQ(check->problems.size(), 1u);
  EXPECT_NE(check->problems[0].find(other.hash()), std::string::npos);
}

}  // namespace
}  // namespace adamk
