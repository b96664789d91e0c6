// A kernel's instructions as people read them.
#pragma once

#include <string>

#include "adamk/codegen/kernel.h"
#include "adamk/dag/dag_file.h"
#include "adamk/ptx/instruction_dag.h"
#include "common/table.h"

namespace adamk {

/// A plan compiled, and its PTX as a DAG.
struct LoweredPlan {
  std::string plan_hash;
  Kernel kernel;
  InstructionDag dag;
};
/// Fails where make_schedule, compile and make_instruction_dag do.
Result<LoweredPlan> lower_plan(const DagFile& file, const Plan& plan);

/// Keeps the pieces of a role and of a stage; empty: all. Fails (bad_input) when nothing is left, naming what there is.
Result<void> keep_pieces(InstructionDag& dag, const std::string& role, const std::string& stage);

/// What a DAG file and `show --json` hold.
Json lowered_to_json(const LoweredPlan& lowered, bool lists);

namespace views {

std::string instructions_text(const LoweredPlan& lowered);
std::string instructions_dot(const InstructionDag& dag);
/// How many branches of each class; those that decide something one by one.
std::string census_text(const InstructionDag& dag);

}  // namespace views
}  // namespace adamk
