// Plans that the search may emit, for every shipped model and target: the validator accepts them all.
//
// ADAMK_NIGHTLY: eight of each pair. Otherwise one of the tiny model's, and of the others one on one target each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "adamk/dag/space.h"
#include "adamk/dag/validator.h"
#include "dag_fixtures.h"

namespace adamk {
namespace {

std::vector<std::filesystem::path> sorted(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Sound, unless the deployment has no feasible plan.
int accept(const std::filesystem::path& model, const std::filesystem::path& target, std::uint64_t plans) {
  Workload workload;
  workload.context = 512;
  const auto deployment = make_deployment(load_model(model).value(), WeightsFormat::bf16, load_target(target.string()).value(), workload);
  if (!deployment) return 0;
  const auto space = make_space(*deployment);
  if (!space) return 0;
  for (std::uint64_t i = 0; i < plans; ++i) {
    const Plan plan = sample(*space, 23, i);
    const Certificate certificate = validate(make_tile_dag(*deployment, plan).value(), *deployment);
    EXPECT_TRUE(certificate.ok) << model << " on " << target << ", " << plan_to_json(plan).dump() << ": " << certificate.failed << ": "
                                << certificate.counterexample;
  }
  return static_cast<int>(plans);
}

TEST(AcceptedPlans, OfEveryShippedModelAndTarget) {
  const std::filesystem::path examples = std::filesystem::path(ADAMK_SOURCE_DIR) / "examples";
  const bool nightly = std::getenv("ADAMK_NIGHTLY") != nullptr;
  const std::vector<std::filesystem::path> models = sorted(examples / "models"), targets = sorted(examples / "targets");
  ASSERT_GE(models.size(), 4u);
  ASSERT_GE(targets.size(), 10u);
  int accepted = 0;
  for (const auto& target : targets) accepted += accept(examples / "tiny", target, nightly ? 8 : 1);
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (std::size_t t = 0; t < targets.size(); ++t) {
      if (nightly || t % models.size() == m) accepted += accept(models[m], targets[t], nightly ? 8 : 1);
    }
  }
  EXPECT_GE(accepted, nightly ? 300 : 15);
}

}  // namespace
}  // namespace adamk
