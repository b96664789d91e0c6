// The generated kernel as a System of the explorer: what each warp of each SM does in order, as libcodegen/device and the role
// functions of the emitter have it, over the tasks of a TileDag. For instances small enough to be explored.
#pragma once

#include "adamk/dag/schedule.h"
#include "adamk/dag/tile_dag.h"
#include "explorer.h"

namespace adamk::explorer {

struct Runs {
  int launches = 2, steps = 2;
};

System kernel_system(const Deployment& deployment, const Schedule& schedule, const TileDag& dag, const Runs& runs = {});

}  // namespace adamk::explorer
