#include "adamk/dag/plan.h"

#include <gtest/gtest.h>

#include "dag_fixtures.h"

namespace adamk {
namespace {

Plan small_plan() {
  return default_plan(make_deployment(fixtures::make_model({2, 64, 4, 2, 16, 96, 128}), WeightsFormat::bf16,
                                      load_target("l20").value(), {.batch = 1, .context = 64}).value()).value();
}

Result<Plan> read(const Json& json) { return plan_from_json(JsonView(json, "plan.json")); }

TEST(PlanTest, KnobsOfTheInnerLoopAreWrittenOnlyWhereTheySaySomething) {
  Plan plan = small_plan();
  const Json plain = plan_to_json(plan);
  EXPECT_FALSE(plain.contains("unroll"));      // or every stored plan would have another hash
  EXPECT_FALSE(plain.contains("fragments"));
  EXPECT_EQ(read(plain).value(), plan);
  plan.unroll = 2;
  plan.fragments = 4;
  const Json written = plan_to_json(plan);
  EXPECT_EQ(written["unroll"], 2);
  EXPECT_EQ(written["fragments"], 4);
  EXPECT_EQ(read(written).value(), plan);
  EXPECT_NE(plan.hash(), small_plan().hash());
  Json spelled = plain;                        // the defaults may be spelled out; it is the same plan
  spelled["unroll"] = 0;
  spelled["fragments"] = 1;
  EXPECT_EQ(read(spelled).value().hash(), small_plan().hash());
}

TEST(PlanTest, KnobsOfTheInnerLoopHaveBounds) {
  for (const auto& [key, value] : {std::pair{"unroll", -1}, {"unroll", 65}, {"fragments", 0}, {"fragments", 17}}) {
    Json json = plan_to_json(small_plan());
    json[key] = value;
    const Result<Plan> refused = read(json);
    ASSERT_FALSE(refused) << key << " " << value;
    EXPECT_NE(refused.error().message.find(fmt::format("plan.json: {}", key)), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace adamk
