#include "adamk/dag/target.h"

#include <gtest/gtest.h>

namespace adamk {
namespace {

const std::filesystem::path shipped = std::filesystem::path(ADAMK_SOURCE_DIR) / "examples" / "targets";

// Shared memory per block and SM in KB by compute capability, from the CUDA C++ Programming Guide.
TEST(TargetTest, ShippedTargetsCarryTheLimitsOfTheirArchitecture) {
  struct Expected {
    const char* name;
    int sm, sms, block_kb, sm_kb;
  };
  for (const Expected& expected :
       {Expected{"a100", 80, 108, 163, 164}, Expected{"a10g", 86, 80, 99, 100}, Expected{"l4", 89, 58, 99, 100},
        Expected{"l20", 89, 92, 99, 100}, Expected{"l40s", 89, 142, 99, 100}, Expected{"rtx4090", 89, 128, 99, 100},
        Expected{"h100", 90, 132, 227, 228}, Expected{"h200", 90, 132, 227, 228},
        Expected{"rtx5090", 120, 170, 99, 100}, Expected{"b200", 100, 148, 227, 228}}) {
    const Result<Target> target = load_target(expected.name, shipped);
    ASSERT_TRUE(target) << target.error().message;
    EXPECT_EQ(target->name, expected.name);
    EXPECT_EQ(target->sm, expected.sm) << expected.name;
    EXPECT_EQ(target->sms, expected.sms) << expected.name;
    EXPECT_EQ(target->smem_per_block, expected.block_kb * 1024) << expected.name;
    EXPECT_EQ(target->smem_per_sm, expected.sm_kb * 1024) << expected.name;
    EXPECT_EQ(target->smem_reserved, 1024) << expected.name;
  }
}

TEST(TargetTest, FeaturesAndArchitectureFollowFromTheCapability) {
  Target target;
  target.sm = 90;
  EXPECT_EQ(target.arch(), "sm_90a");
  EXPECT_TRUE(target.bulk_copy());
  target.sm = 89;
  EXPECT_EQ(target.arch(), "sm_89");
  EXPECT_TRUE(target.async_copy());
  EXPECT_FALSE(target.bulk_copy() || target.clusters());
}

TEST(TargetTest, NamesAreFoundWithoutASearchPathAndUnknownOnesListTheKnown) {
  EXPECT_TRUE(load_target("l20"));
  const Result<Target> unknown = load_target("gtx1080");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("h200, l20, l4"), std::string::npos) << unknown.error().message;
  EXPECT_NE(load_target("l20", "/nowhere").error().message.find("ADAMK_TARGETS"), std::string::npos);
  EXPECT_EQ(load_target((shipped / "h200.yaml").string())->read_gbps, 4690);
}

TEST(TargetTest, JsonRoundTripAndRangesAreChecked) {
  const Target target = load_target("h200", shipped).value();
  Json json = target_to_json(target);
  EXPECT_EQ(target_to_json(target_from_json(JsonView(json, "t")).value()), json);

  const auto refused = [&](const char* key, const Json& value, std::string_view words) {
    Json wrong = json;
    wrong[key] = value;
    const Result<Target> result = target_from_json(JsonView(wrong, "t"));
    return !result && result.error().message.find(words) != std::string::npos;
  };
  EXPECT_TRUE(refused("sm", 75, "sm 75"));
  EXPECT_TRUE(refused("sms", 0, "t: sms"));
  EXPECT_TRUE(refused("read_gbps", "4690", "read_gbps: must be a number"));
  EXPECT_TRUE(refused("smem_per_block", 233472, "more than smem_per_sm"));
  EXPECT_TRUE(refused("colour", 1, "unknown key 'colour'"));
}

}  // namespace
}  // namespace adamk
