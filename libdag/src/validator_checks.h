// The validator's checks, each a function that returns a counterexample in words or nothing.
#pragma once

#include <optional>
#include <string>

#include "adamk/dag/validator.h"

namespace adamk::validation {

/// Nothing: the check holds.
using Counterexample = std::optional<std::string>;

struct Subject {
  const TileDag& dag;
  const Deployment& deployment;
  bool fused_attention = false;   // no attention stage
  bool fused_silu = false;        // gate_up publishes ffn values, not 2 x ffn

  const Model& model() const { return deployment.model; }
  const DagTensor& tensor(int id) const { return dag.tensors[static_cast<std::size_t>(id)]; }
  const DagStage& stage(int id) const { return dag.stages[static_cast<std::size_t>(id)]; }
};

/// "qkv consumer task 12 on SM 3"
std::string describe(const DagStage& stage, const TaskRange& range, int i);
/// "qkv[32, 48)"
std::string describe(const Subject& subject, const Region& region);

/// The rows and columns of a GEMV stage's matrix, from the model alone; {0, 0} for other stages.
struct MatrixSize {
  std::int64_t rows = 0, k = 0;
};
MatrixSize matrix_size(const Model& model, const std::string& stage);
/// Values that a GEMV stage publishes: its rows, or half of gate_up's when SiLU is fused.
std::int64_t values_out(const Subject& subject, const std::string& stage);

Counterexample check_structure(const Subject& subject);
Counterexample check_fits(const Subject& subject);
Counterexample check_in_bounds(const Subject& subject);
Counterexample check_complete(const Subject& subject);
Counterexample check_operands(const Subject& subject);
Counterexample check_edges(const Subject& subject);
/// Names and indices of the protocol, which the other checks of it rely on.
Counterexample check_protocol_names(const Subject& subject);
Counterexample check_protocol(const Subject& subject);
/// Part of "fits".
Counterexample check_storage(const Subject& subject);

}  // namespace adamk::validation
