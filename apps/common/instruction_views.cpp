#include "common/instruction_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "adamk/codegen/facts.h"
#include "adamk/dag/schedule.h"
#include "common/dag_views.h"

namespace adamk {

Result<LoweredPlan> lower_plan(const DagFile& file, const Plan& plan) {
  LoweredPlan lowered;
  lowered.plan_hash = plan.hash();
  ADAMK_TRY(const Schedule schedule, make_schedule(file.deployment, plan));
  ADAMK_TRY(const std::string source, emit_source(file.deployment, schedule));
  ADAMK_TRY(lowered.kernel, compile(source, file.deployment.target.arch()));
  ADAMK_TRY(const PtxModule module, parse_ptx(lowered.kernel.ptx));
  ADAMK_TRY(lowered.dag, make_instruction_dag(module, kernel_facts(schedule)));
  return lowered;
}

Result<void> keep_pieces(InstructionDag& dag, const std::string& role, const std::string& stage) {
  std::set<std::string> there;
  for (const InstructionPiece& piece : dag.pieces)
    there.insert(piece.stage.empty() ? piece.role : piece.role + " " + piece.stage);
  std::erase_if(dag.pieces, [&](const InstructionPiece& piece) {
    return (!role.empty() && piece.role != role) || (!stage.empty() && piece.stage != stage);
  });
  if (!dag.pieces.empty()) return {};
  return fail(Errc::bad_input, "no code of role '{}' in stage '{}'; there is {}", role.empty() ? "any" : role,
              stage.empty() ? "any" : stage, views::joined({there.begin(), there.end()}));
}

Json lowered_to_json(const LoweredPlan& lowered, bool lists) {
  Json root;
  root["plan_hash"] = lowered.plan_hash;
  root["kernel"] = {{"arch", lowered.kernel.arch},
                    {"registers", lowered.kernel.registers},
                    {"spill_bytes", lowered.kernel.spill_bytes},
                    {"cubin_bytes", lowered.kernel.cubin.size()}};
  root.update(instruction_dag_to_json(lowered.dag, lists));
  return root;
}

namespace views {

std::string instructions_text(const LoweredPlan& lowered) {
  const InstructionDag& dag = lowered.dag;
  Table table{{{"role"}, {"stage"}, {"piece"}, {"instructions", true}, {"edges", true}, {"clocks", true}, {"bound by"},
               {"critical path", true}, {"issue", true}, {"alu", true}, {"fma", true}, {"special", true}, {"tensor", true},
               {"memory", true}, {"live registers", true}, {"in flight", true}},
              {}};
  for (const InstructionPiece& piece : dag.pieces) {
    const auto pipe = [&](PtxPipe which) { return Cell(piece.pipe_clocks[static_cast<std::size_t>(which)], 0); };
    table.rows.push_back({piece.role, piece.stage, piece.name + (piece.tile ? " *" : ""), piece.nodes.size(),
                          piece.edges.size(), Cell(piece.clocks, 0), piece.bound, Cell(piece.critical_clocks, 0),
                          Cell(piece.issue_slots, 0),
                          pipe(PtxPipe::alu), pipe(PtxPipe::fma), pipe(PtxPipe::special), pipe(PtxPipe::tensor),
                          pipe(PtxPipe::memory), piece.live_registers,
                          piece.bytes_in_flight < 0 ? Cell() : Cell(piece.bytes_in_flight)});
  }
  const Kernel& kernel = lowered.kernel;
  const std::string machine_code =
      kernel.cubin.empty() ? std::string("machine code: made by the driver")
                           : fmt::format("machine code: {} bytes, {} registers, {} bytes spilled", kernel.cubin.size(),
                                         kernel.registers, kernel.spill_bytes);
  return fmt::format("plan {} for {}; costs of sm_{}{}\n{}\n\n{}\n* a stage's unit of work: one tile, or one item of "
                     "attention. Clocks of all its warps on one SM; the other columns are of one warp.\n\n{}",
                     lowered.plan_hash, kernel.arch, dag.table.sm,
                     dag.table.exact ? "" : fmt::format(", the nearest: there is no table for sm_{}", dag.sm), machine_code,
                     render(table, TableFormat::text), census_text(dag));
}

std::string instructions_dot(const InstructionDag& dag) {
  std::string text = "digraph instructions {\n  node [shape=box];\n";
  for (std::size_t p = 0; p < dag.pieces.size(); ++p) {
    const InstructionPiece& piece = dag.pieces[p];
    text += fmt::format("  subgraph cluster_{} {{\n  label=\"{} {} {}, {:.0f} clocks\";\n", p, piece.role, piece.stage,
                        piece.name, piece.clocks);
    for (std::size_t n = 0; n < piece.nodes.size(); ++n)
      text += fmt::format("  n{}_{} [label=\"{}\\nline {}, from {:.0f}\"];\n", p, n, piece.nodes[n].opcode,
                          piece.nodes[n].line, piece.nodes[n].start);
    for (const InstructionEdge& edge : piece.edges)
      text += fmt::format("  n{}_{} -> n{}_{} [label=\"{} {}\"{}];\n", p, edge.from, p, edge.to, to_string(edge.hazard),
                          piece.over[static_cast<std::size_t>(edge.over)],
                          edge.hazard == InstructionHazard::raw ? "" : ", style=dashed");
    text += "  }\n";
  }
  return text + "}\n";
}

std::string census_text(const InstructionDag& dag) {
  std::string text = fmt::format("{} branches:", dag.branches.size());
  for (int b = 0; b < branch_classes; ++b)
    text += fmt::format(" {} {}{}", dag.census()[static_cast<std::size_t>(b)], to_string(static_cast<BranchClass>(b)),
                        b + 1 < branch_classes ? "," : "\n");
  for (const BranchNote& note : dag.branches)
    if (note.branch == BranchClass::other)
      text += fmt::format("  line {} of the PTX, {} {} {}: depends on {}\n", note.line, note.function, note.role, note.stage,
                          note.depends_on);
  return text + fmt::format("a branch depends on a scheduling decision: {}\n", dag.decides_nothing() ? "no" : "not ruled out");
}

}  // namespace views
}  // namespace adamk
