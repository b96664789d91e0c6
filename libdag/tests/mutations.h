// Kinds of defect: each changes a DAG and its protocol in one place, chosen by a seed, and says who may judge the outcome.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "adamk/dag/deployment.h"
#include "adamk/dag/tile_dag.h"

namespace adamk::explorer {

using Random = std::mt19937_64;

enum class Judge {
  explorer,    // sound if and only if every interleaving ends, without a race, with the outputs of the plan as it was
  schedules,   // the same without the outputs: work is done by other warps, and so in another order
  contract,    // what the explorer finds must be refuted; the validator may refute more, for the reason given
  unsound,     // for the reason given
  sound,       // for the reason given
};

struct Mutation {
  std::string name;
  Judge judge = Judge::explorer;
  std::string reason;   // of every judge but the explorer
  std::function<bool(TileDag&, const Deployment&, Random&)> apply;   // false: nothing of the kind in this plan
};

const std::vector<Mutation>& mutations();

}  // namespace adamk::explorer
