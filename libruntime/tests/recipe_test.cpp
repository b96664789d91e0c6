#include "adamk/runtime/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_recipe.h"

namespace adamk {
namespace {

using ::testing::HasSubstr;
using adamk::testing::sample_recipe;

TEST(Recipe, SurvivesAJsonRoundTrip) {
  const Json document = recipe_to_json(sample_recipe());
  auto back = recipe_from_json(JsonView(document, "recipe.json"));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(recipe_to_json(*back).dump(), document.dump());
  EXPECT_EQ(back->smem, 1024);
  EXPECT_EQ(back->rope_inverse_frequencies, (std::vector<double>{1.0, 0.01}));
}

void expect_refused(const std::string& pointer, const Json& value, const std::string& names) {
  Json document = recipe_to_json(sample_recipe());
  document[Json::json_pointer(pointer)] = value;
  auto result = recipe_from_json(JsonView(document, "recipe.json"));
  ASSERT_FALSE(result.has_value()) << pointer;
  EXPECT_EQ(exit_status(result.error().code), 2);
  EXPECT_THAT(result.error().message, HasSubstr(names));
}

TEST(Recipe, RefusesValuesThatWouldOverrunABuffer) {
  expect_refused("/bytes/kv", 511, "bytes.kv");
  expect_refused("/bytes/embedding", 159, "bytes.embedding");
  expect_refused("/shapes/head_dim", 5, "shapes.head_dim");
  expect_refused("/shapes/kv_heads", 3, "shapes.kv_heads");
  expect_refused("/launch/grid", 0, "launch.grid");
  expect_refused("/launch/max_steps", -1, "launch.max_steps");
  expect_refused("/rope_inverse_frequencies", Json::array({1.0}), "rope_inverse_frequencies");
  expect_refused("/shapes/format", "int4", "shapes.format");
}

TEST(Recipe, RefusesUnknownKeysAndVersions) {
  expect_refused("/launch/cluster", 2, "cluster");
  expect_refused("/extra", 1, "extra");
  expect_refused("/version", 2, "version");
}

}  // namespace
}  // namespace adamk
