// The protocol that a TileDag carries, explored on small instances of every kind: sound, however far the lanes of a warp act apart.
#include "protocol_system.h"

#include <gtest/gtest.h>

#include "instances.h"

namespace adamk::explorer {
namespace {

TEST(ProtocolSystem, EveryKindIsSoundInOneExecution) {
  for (const char* target : {"l20", "h200"}) {
    for (const Instance& instance : instances(target)) {
      const TileDag dag = make_tile_dag(instance.deployment, instance.plan).value();
      for (const LaneModel lanes : {LaneModel::together, LaneModel::halves, LaneModel::swapped, LaneModel::shares, LaneModel::first, LaneModel::others}) {
        ProtocolRuns runs;
        runs.lanes = lanes;
        const Verdict v = explore(protocol_system(dag, runs));
        EXPECT_EQ(v.defect, Defect::none) << instance.name << " on " << target << ", lanes " << static_cast<int>(lanes) << ": " << v.what;
        EXPECT_EQ(v.executions, 1) << instance.name << " on " << target << ", lanes " << static_cast<int>(lanes);
        EXPECT_GT(v.steps, 500) << instance.name;
      }
    }
  }
}

}  // namespace
}  // namespace adamk::explorer
