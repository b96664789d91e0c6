// Deployments and plans small enough to be explored: two layers, two or three SMs, some of them without work in some stage; every kind of
// exchange, norm, attention and split.
#pragma once

#include <string>
#include <vector>

#include "dag_fixtures.h"

namespace adamk::explorer {

struct Instance {
  std::string name;
  Deployment deployment;
  Plan plan;
};

/// `target`: l20 copies by all lanes, h200 in bulk.
std::vector<Instance> instances(const std::string& target = "l20");

}  // namespace adamk::explorer
