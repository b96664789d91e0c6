#include "adamk/profile/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace adamk {
namespace {

TEST(Statistics, hand_worked_five_values) {
  // sorted 1 2 3 4 10; p10 at 0.4 between 1 and 2; p90 at 3.6 between 4 and 10; squares 9 + 4 + 1 + 0 + 36 = 50, / 4
  const Statistics s = summarise(std::vector<double>{3, 1, 2, 10, 4});
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_DOUBLE_EQ(s.p10, 1.4);
  EXPECT_DOUBLE_EQ(s.p90, 7.6);
  EXPECT_DOUBLE_EQ(s.mean, 4);
  EXPECT_DOUBLE_EQ(s.stdev, std::sqrt(12.5));
  EXPECT_EQ(s.count, 5);
}

TEST(Statistics, median_of_an_even_count_is_the_middle_of_the_two_middle_values) {
  EXPECT_DOUBLE_EQ(summarise(std::vector<double>{4, 1, 3, 2}).median, 2.5);
}

TEST(Statistics, one_value_is_its_own_summary_and_none_is_not_a_number) {
  const Statistics one = summarise(std::vector<double>{7});
  EXPECT_DOUBLE_EQ(one.median, 7);
  EXPECT_DOUBLE_EQ(one.p90, 7);
  EXPECT_DOUBLE_EQ(one.stdev, 0);
  const Statistics none = summarise({});
  EXPECT_EQ(none.count, 0);
  EXPECT_TRUE(std::isnan(none.median));
}

TEST(RelativeError, shrinks_with_the_root_of_the_count_and_is_infinite_for_one) {
  EXPECT_TRUE(std::isinf(relative_error(std::vector<double>{5})));
  // 9 and 11: stdev sqrt(2), median 10: 1.2533 x 1.4142 / (1.4142 x 10)
  EXPECT_NEAR(relative_error(std::vector<double>{9, 11}), 0.12533, 1e-5);
}

// Expected p values counted over all 2^n sign patterns by a separate program.
TEST(SignedRank, six_differences_of_one_sign) {
  EXPECT_DOUBLE_EQ(signed_rank_p(std::vector<double>{1, 2, 3, 4, 5, 6}), 0.03125);
}

TEST(SignedRank, one_difference_of_eight_against) {
  EXPECT_DOUBLE_EQ(signed_rank_p(std::vector<double>{1, 2, 3, -4, 5, 6, 7, 8}), 0.0546875);
}

TEST(SignedRank, ties_share_the_mean_rank) {
  EXPECT_DOUBLE_EQ(signed_rank_p(std::vector<double>{1, 1, 2, -1, 3, 3, -2}), 0.28125);
}

TEST(SignedRank, zero_differences_say_nothing) {
  EXPECT_DOUBLE_EQ(signed_rank_p(std::vector<double>{0, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(signed_rank_p(std::vector<double>{0, 1, 2, 3, 0, 4, 5, 6}), 0.03125);
}

TEST(ComparePairs, a_consistent_small_difference_wins) {
  std::vector<double> a, b;
  for (int i = 0; i < 10; ++i) {
    a.push_back(100 + i);       // drift common to both
    b.push_back(101 + i + 0.01 * i);
  }
  const Comparison c = compare_pairs(a, b);
  EXPECT_EQ(c.winner, Winner::first);
  EXPECT_GT(c.ratio, 1);
  EXPECT_DOUBLE_EQ(c.p_value, 2.0 / 1024);   // all ten of one sign
  EXPECT_EQ(compare_pairs(b, a).winner, Winner::second);
}

TEST(ComparePairs, differences_of_both_signs_are_a_tie) {
  const std::vector<double> a{100, 101, 99, 100, 102, 98}, b{101, 100, 100, 99, 101, 99};
  EXPECT_EQ(compare_pairs(a, b).winner, Winner::tie);
}

TEST(ComparePairs, five_pairs_can_never_decide_at_five_per_cent) {
  const std::vector<double> a{1, 1, 1, 1, 1}, b{2, 3, 4, 5, 6};
  EXPECT_EQ(compare_pairs(a, b).winner, Winner::tie);   // smallest p is 2 / 32
}

TEST(ComparePairs, no_pairs_are_a_tie) {
  EXPECT_EQ(compare_pairs({}, {}).winner, Winner::tie);
}

}  // namespace
}  // namespace adamk
