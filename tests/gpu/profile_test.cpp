// Measuring on a GPU: the evaluator behind its worker process, the two clocks against each other, counters, the ceiling.
#include <gmock/gmock.h>

#include <cmath>
#include <iostream>

#include "adamk/dag/space.h"
#include "adamk/profile/cupti.h"
#include "adamk/profile/device_evaluator.h"
#include "adamk/profile/timing.h"
#include "gpu_fixture.h"

namespace adamk::gpu {
namespace {

class ProfileTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    model_.family = "llama";
    model_.layers = 4;
    model_.hidden = 512;
    model_.heads = 8;
    model_.kv_heads = 4;
    model_.head_dim = 64;
    model_.ffn = 1536;
    model_.vocab = 4096;
    model_.max_positions = 4096;
    model_.norm_eps = 1e-5;
  }

  Decoder decoder() {
    const Deployment deployment = deploy(model_, 512);
    const Weights weights = Weights::random(model_, WeightsFormat::bf16, 3).value();
    auto made = make_decoder(deployment, default_plan(deployment).value(), weights);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  Model model_;
};

TEST_F(ProfileTest, TheEvaluatorVerifiesAndTimesPlansInItsWorker) {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  DeviceEvaluatorOptions options;
  options.worker_command = {(here / "adamk-search").string(), worker_argument};
  options.weights.random_seed = 3;
  options.positions = {0, 64, 255};
  auto evaluator = DeviceEvaluator::create(options);
  ASSERT_TRUE(evaluator) << evaluator.error().message;
  EXPECT_EQ((*evaluator)->device().name, device().info().name);
  EXPECT_GT((*evaluator)->device().read_gbps, 0);
  std::cout << "isolation: " << (*evaluator)->isolation() << "\n";   // whether this kernel has Landlock cannot be required
  EXPECT_NE((*evaluator)->isolation(), "");

  const Deployment deployment = deploy(model_, 256);   // position 255 has room for one token: several are chained at 64
  const Space space = make_space(deployment).value();
  std::vector<Plan> plans = {default_plan(deployment).value()};
  for (std::uint64_t i = 0; i < 5; ++i) plans.push_back(sample(space, 5, i));
  plans.push_back(plans.front());
  plans.back().ring_stages = 256;   // no block has room for it
  std::map<std::size_t, Evaluation> found;
  const auto result = (*evaluator)->evaluate(deployment, plans,
      [&](std::size_t index, const Evaluation& evaluation) -> Result<void> {
        EXPECT_TRUE(found.emplace(index, evaluation).second);
        return {};
      }, {});
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(found.size(), plans.size());
  EXPECT_EQ(found.at(6).status, Status::infeasible);
  for (std::size_t i = 0; i < 6; ++i) {
    const Evaluation& e = found.at(i);
    if (e.status == Status::spills) continue;
    EXPECT_EQ(e.status, Status::ok) << i << ": " << e.message;
    EXPECT_EQ(e.verdict.positions, 3);
    EXPECT_EQ(e.verdict.tokens, 1 + 4 + 1);
    EXPECT_LT(e.verdict.max_error, e.verdict.tolerance);
    EXPECT_GE(e.samples_us.size(), 2u);
    EXPECT_GT(e.median_us(), 0);
    EXPECT_GT(e.gbps(), 0);
  }
  EXPECT_EQ((*evaluator)->restarts(), 0);
}

TEST_F(ProfileTest, ActivityRecordsAndEventsAgree) {
  Decoder timed = decoder();
  TimingOptions options;
  options.position = 64;
  const auto by_cupti = time_decoder(timed, options);
  ASSERT_TRUE(by_cupti) << by_cupti.error().message;
  options.use_cupti = false;
  const auto by_events = time_decoder(timed, options);
  ASSERT_TRUE(by_events) << by_events.error().message;
  EXPECT_EQ(by_events->method, Method::events);
  // Events include the launch; a launch of 32 tokens is long enough to hide most of it.
  if (by_cupti->method == Method::cupti)
    EXPECT_NEAR(by_events->per_token.median / by_cupti->per_token.median, 1.0, 0.15);
  else
    EXPECT_FALSE(by_cupti->note.empty());
}

TEST_F(ProfileTest, CountersSeeAtLeastTheWeightsOrSayWhyNot) {
  Decoder counted = decoder();
  const std::vector<std::string> metrics = {"lts__t_bytes.sum", "sm__inst_executed.sum"};
  const auto work = [&]() -> Result<void> {
    const int token = 0;
    ADAMK_CHECK(counted.decode(64, std::span(&token, 1), 4));
    return {};
  };
  const auto counters = collect_counters(device().native_context(), metrics, work, {});
  if (!counters) {
    EXPECT_EQ(counters.error().code, Errc::machine);
    EXPECT_THAT(counters.error().message, ::testing::HasSubstr("docs/warnings/"));
    return;
  }
  EXPECT_GE(counters->passes, 1);
  // Each of four tokens streams every weight through L2 once.
  EXPECT_GE(counters->values.at("lts__t_bytes.sum"), 4.0 * static_cast<double>(counted.recipe().bytes_per_step));
  EXPECT_GT(counters->values.at("sm__inst_executed.sum"), 0);
  const auto unknown = collect_counters(device().native_context(), std::vector<std::string>{"no__such_metric.sum"}, work, {});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("no__such_metric.sum"));
}

TEST_F(ProfileTest, TheReadCeilingIsWhatADeviceCanReach) {
  const auto ceiling = measure_read_ceiling(device());
  ASSERT_TRUE(ceiling) << ceiling.error().message;
  EXPECT_EQ(ceiling->gbps, std::max(ceiling->vector_gbps, ceiling->bulk_gbps));
  EXPECT_EQ(ceiling->bulk_gbps > 0, device().info().sm >= 90);
  // The slowest supported memory reads 300 GB/s, the fastest 8000.
  EXPECT_GT(ceiling->gbps, 100);
  EXPECT_LT(ceiling->gbps, 12000);
}

}  // namespace
}  // namespace adamk::gpu
