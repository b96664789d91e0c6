// Deployments, operator graphs, spaces and tile DAGs as people read them.
#pragma once

#include <string>
#include <vector>

#include "adamk/dag/deployment.h"
#include "adamk/dag/operator_graph.h"
#include "adamk/dag/space.h"
#include "adamk/dag/tile_dag.h"
#include "common/table.h"

namespace adamk::views {

std::string joined(const std::vector<std::string>& words);
/// "1.50 GB", "33.6 MB", "512 B": powers of ten.
std::string bytes_text(double bytes);

std::string deployment_text(const Deployment& deployment);

/// `layer` < 0: the whole step; otherwise the operators of that layer alone.
Table operators_table(const OperatorGraph& graph, int layer);
std::string operators_dot(const OperatorGraph& graph);

/// Stages and edges; `layer` as above.
std::string tiles_text(const TileDag& dag, int layer);
std::string tiles_dot(const TileDag& dag);

/// Stages with their variants, knobs, the shared-memory table, and everything ruled out with its reason.
std::string space_text(const Space& space);

}  // namespace adamk::views
