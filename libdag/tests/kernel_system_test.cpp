// The kernel that the emitter writes, explored on small instances of every kind: sound, and unsound once something is changed.
#include "kernel_system.h"

#include <gtest/gtest.h>

#include "instances.h"

namespace adamk::explorer {
namespace {

System system(const Instance& instance) {
  const Schedule schedule = make_schedule(instance.deployment, instance.plan).value();
  return kernel_system(instance.deployment, schedule, make_tile_dag(instance.deployment, schedule));
}

TEST(KernelSystem, EveryKindIsSoundInOneExecution) {
  for (const Instance& instance : instances()) {
    const Verdict v = explore(system(instance));
    EXPECT_EQ(v.defect, Defect::none) << instance.name << ": " << v.what;
    EXPECT_EQ(v.executions, 1) << instance.name;
    EXPECT_GT(v.steps, 500) << instance.name;
  }
}

}  // namespace
}  // namespace adamk::explorer
