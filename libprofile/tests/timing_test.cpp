#include "adamk/profile/timing.h"

#include <gtest/gtest.h>

namespace adamk {
namespace {

/// A device whose launches take what `us` says and whose clock is what `mhz` says, one entry per batch, last one repeated.
struct FakeSource {
  std::vector<std::vector<double>> us;
  std::vector<double> mhz = {1980};
  std::size_t batches = 0;   // taken, warm-up not counted
  int warmups = 0;
  double now = 0, waited = 0;
  double seconds_per_launch = 0.01;

  SampleSource source() {
    SampleSource s;
    s.launches_us = [this, warm = true](int launches) mutable -> Result<std::vector<double>> {
      now += launches * seconds_per_launch;
      if (warm) {
        warm = false;
        warmups = launches;
        return std::vector<double>(static_cast<std::size_t>(launches), 1e9);   // must never be kept
      }
      const std::vector<double>& batch = us[std::min(batches++, us.size() - 1)];
      std::vector<double> taken;
      for (int i = 0; i < launches; ++i) taken.push_back(batch[static_cast<std::size_t>(i) % batch.size()]);
      return taken;
    };
    s.clock_mhz = [this]() -> Result<double> { return mhz[std::min(batches, mhz.size()) - 1]; };
    s.wait = [this](double seconds) { waited += seconds, now += seconds; };
    s.seconds = [this] { return now; };
    return s;
  }
};

TimingOptions quick() {
  TimingOptions options;
  options.warmup_launches = 3;
  options.batch_launches = 5;
  options.min_samples = 10;
  options.max_samples = 40;
  options.relative_error = 0.01;
  options.max_seconds = 100;
  return options;
}

TEST(TakeSamples, stops_as_soon_as_the_figure_settles_but_not_before_the_minimum) {
  FakeSource fake{{{100, 100, 100, 100, 100}}};
  const auto samples = take_samples(fake.source(), quick(), 1980);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->us.size(), 10u);
  EXPECT_TRUE(samples->settled);
  EXPECT_EQ(fake.warmups, 3);
  for (double us : samples->us) EXPECT_EQ(us, 100);   // no warm-up launch among them
}

TEST(TakeSamples, noise_runs_into_the_cap_and_is_not_called_settled) {
  FakeSource fake{{{50, 150, 60, 140, 100}}};
  const auto samples = take_samples(fake.source(), quick(), 1980);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->us.size(), 40u);
  EXPECT_FALSE(samples->settled);
}

TEST(TakeSamples, time_ends_it_too) {
  FakeSource fake{{{50, 150, 60, 140, 100}}};
  TimingOptions options = quick();
  options.max_seconds = 0.12;   // a batch takes 0.05
  const auto samples = take_samples(fake.source(), options, 1980);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->us.size(), 15u);
}

TEST(TakeSamples, a_batch_under_a_low_clock_is_discarded_and_waited_for) {
  FakeSource fake{{{200}, {100}}};
  fake.mhz = {1000, 1980};   // 1000 is below 75 % of 1980 (1485)
  const auto samples = take_samples(fake.source(), quick(), 1980);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->discarded, 5);
  EXPECT_EQ(fake.waited, quick().discard_wait_seconds);
  for (double us : samples->us) EXPECT_EQ(us, 100);
  EXPECT_EQ(samples->clock_mhz, 1980);
}

TEST(TakeSamples, a_device_that_stays_slow_gives_a_figure_after_a_bounded_number_of_discards) {
  FakeSource fake{{{200}}};
  fake.mhz = {1000};
  const auto samples = take_samples(fake.source(), quick(), 1980);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->discarded, 5 * quick().max_discards);
  EXPECT_EQ(samples->clock_mhz, 1000);
  EXPECT_FALSE(samples->us.empty());
}

TEST(TakeSamples, a_failing_launch_ends_it_with_its_error) {
  SampleSource source = FakeSource{{{1}}}.source();
  source.launches_us = [](int) -> Result<std::vector<double>> { return fail(Errc::machine, "watchdog"); };
  const auto samples = take_samples(source, quick(), 1980);
  ASSERT_FALSE(samples);
  EXPECT_EQ(samples.error().message, "watchdog");
}

Recipe small_recipe() {
  Recipe recipe;
  recipe.layers = 2;
  recipe.kv_heads = 3;
  recipe.head_dim = 16;
  recipe.context = 256;
  recipe.max_steps = 32;
  recipe.bytes_per_step = 1000;
  return recipe;
}

TEST(TokenBytes, are_the_weights_and_the_keys_and_values_of_every_position_so_far) {
  // A position holds K and V of 2 layers x 3 heads x 16 elements of 2 bytes: 384. Position 10 reads ten and writes its own.
  EXPECT_EQ(token_bytes(small_recipe(), 10, 1).weights, 1000);
  EXPECT_EQ(token_bytes(small_recipe(), 10, 1).kv, 11 * 384);
  // Three tokens from there move 11, 12 and 13.
  EXPECT_EQ(token_bytes(small_recipe(), 10, 3).total(), 1000 + 12 * 384);
}

TEST(DefaultTimingPosition, is_the_middle_of_the_context_but_no_later_than_128) {
  Recipe recipe = small_recipe();
  EXPECT_EQ(default_timing_position(recipe), 112);      // (256 - 32) / 2
  EXPECT_EQ(default_timing_position(recipe, 2), 127);
  recipe.context = 4096;
  EXPECT_EQ(default_timing_position(recipe), 128);
  recipe.context = 16;                                  // shorter than a launch may be
  EXPECT_EQ(default_timing_position(recipe), 0);
}

}  // namespace
}  // namespace adamk
