// The instruction DAG as JSON. Nodes and edges are short arrays, since there are many.
#include "adamk/ptx/instruction_dag.h"

namespace adamk {
namespace {

Json piece_to_json(const InstructionPiece& piece, bool lists) {
  Json out;
  out["role"] = piece.role;
  out["stage"] = piece.stage;
  out["piece"] = piece.name;
  out["tile"] = piece.tile;
  out["instructions"] = piece.nodes.size();
  out["warps"] = piece.warps;
  out["clocks"] = piece.clocks;
  out["bound"] = piece.bound;
  out["critical_clocks"] = piece.critical_clocks;
  out["issue_slots"] = piece.issue_slots;
  Json pipes = Json::object(), memory = Json::object(), hazards = Json::object();
  for (int p = 1; p < ptx_pipes; ++p)
    pipes[std::string(to_string(static_cast<PtxPipe>(p)))] = piece.pipe_clocks[static_cast<std::size_t>(p)];
  out["pipe_clocks"] = std::move(pipes);
  out["live_registers"] = piece.live_registers;
  if (piece.bytes_in_flight >= 0) out["bytes_in_flight"] = piece.bytes_in_flight;
  for (const auto& [name, count] : piece.memory) memory[name] = count;
  out["memory"] = std::move(memory);
  for (const InstructionEdge& edge : piece.edges) {
    Json& count = hazards[std::string(to_string(edge.hazard))];
    count = (count.is_null() ? 0 : count.get<int>()) + 1;
  }
  out["hazards"] = std::move(hazards);
  if (!lists) return out;
  out["over"] = piece.over;
  Json nodes = Json::array(), edges = Json::array();
  for (const InstructionNode& node : piece.nodes) nodes.push_back({node.line, node.opcode, to_string(node.kind), node.start});
  for (const InstructionEdge& edge : piece.edges)
    edges.push_back({edge.from, edge.to, to_string(edge.hazard), edge.over, edge.clocks});
  out["nodes"] = std::move(nodes);
  out["edges"] = std::move(edges);
  return out;
}

}  // namespace

Json instruction_dag_to_json(const InstructionDag& dag, bool lists) {
  Json root;
  root["sm"] = dag.sm;
  root["costs_of_sm"] = dag.table.sm;
  Json costs = Json::array();
  for (int k = 0; k < cost_kinds; ++k) {
    const CostRow& row = dag.table.rows[static_cast<std::size_t>(k)];
    costs.push_back({{"kind", to_string(static_cast<CostKind>(k))}, {"pipe", to_string(row.pipe)}, {"latency", row.latency},
                     {"busy", row.busy}, {"source", row.source}});
  }
  root["costs"] = std::move(costs);
  Json census = Json::object();
  for (int b = 0; b < branch_classes; ++b)
    census[std::string(to_string(static_cast<BranchClass>(b)))] = dag.census()[static_cast<std::size_t>(b)];
  root["decides_nothing"] = dag.decides_nothing();
  root["census"] = std::move(census);
  root["pieces"] = Json::array();
  for (const InstructionPiece& piece : dag.pieces) root["pieces"].push_back(piece_to_json(piece, lists));
  root["branches"] = Json::array();
  for (const BranchNote& note : dag.branches) {
    if (!lists && note.branch != BranchClass::other) continue;
    root["branches"].push_back({{"line", note.line}, {"function", note.function}, {"role", note.role}, {"stage", note.stage},
                                {"class", to_string(note.branch)}, {"depends_on", note.depends_on}});
  }
  return root;
}

}  // namespace adamk
