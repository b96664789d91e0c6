// The protocol of the kernels that libcodegen emits, for the DAG that make_tile_dag builds.
#pragma once

#include "adamk/dag/tile_dag.h"

namespace adamk {

/// Writes `dag.protocol` and binds the tensors to its storages. `sm`: of the target; bulk copies exist from 90 on.
void add_protocol(const Model& model, const Schedule& schedule, int sm, TileDag& dag);

}  // namespace adamk
