#include "adamk/ptx/instruction_dag.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "addresses.h"
#include "branch_census.h"
#include "flow.h"
#include "liveness.h"
#include "piece.h"
#include "regions.h"
#include "turns.h"
#include "waits.h"

namespace adamk {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Pieces of one function while they are collected.
class Cutter {
 public:
  Cutter(const PtxModule& module, const PtxBody& body, const KernelFacts& facts)
      : body_(body), facts_(facts), flow_(ptx::make_flow(body)), regions_(ptx::find_regions(body, flow_)),
        loops_(ptx::find_waits(module, body, flow_, facts.watchdog)), turns_(loops_.size(), 0) {
    for (std::size_t loop = 0; loop < turns_.size(); ++loop)
      if (loops_[loop] == ptx::LoopKind::work && flow_.loops[loop].parent >= 0)
        turns_[loop] = ptx::constant_turns(body_, flow_, static_cast<int>(loop));
  }

  std::vector<InstructionPiece> run(const PtxModule& module, const LatencyTable& table) {
    collect();
    ptx::Addresses addresses(module, body_, facts_);
    const std::vector<int> live = ptx::live_registers(body_, flow_);
    std::vector<InstructionPiece> pieces;
    for (std::size_t region = 0; region < regions_.names.size(); ++region) {
      const std::size_t first = pieces.size();
      for (const auto& [key, code] : code_) {
        if (key.first != static_cast<int>(region)) continue;
        InstructionPiece piece;
        piece.role = regions_.names[region].role;
        piece.stage = regions_.names[region].stage;
        piece.name = name(key);
        const auto warps = facts_.warps.find(piece.role);
        piece.warps = warps == facts_.warps.end() ? 1 : warps->second;
        ptx::fill_piece(body_, flow_, addresses, table, live, code, piece);
        pieces.push_back(std::move(piece));
      }
      if (region > 0) choose_tile(pieces, first);
    }
    return pieces;
  }

 private:
  using Key = std::pair<int, int>;   // region, loop or -1

  /// A loop within another that counts with constants is written out: it is part of what is around it, again and again.
  bool in_work_loop_of(int region, int loop) const {
    if (turns_[at(loop)] > 0) return false;
    const int header = flow_.blocks[at(flow_.loops[at(loop)].header)].begin;
    return loops_[at(loop)] == ptx::LoopKind::work && regions_.of[at(header)] == region;
  }

  Key key_of(int instruction) const {
    const int region = regions_.of[at(instruction)];
    int loop = flow_.blocks[at(flow_.block_of[at(instruction)])].loop;
    while (loop >= 0 && !in_work_loop_of(region, loop)) loop = flow_.loops[at(loop)].parent;
    return {region, loop};
  }

  /// Calls of the watchdog, ways out of the kernel, and the insides of waits but for the first look.
  bool left_out(int b) const {
    const ptx::FlowBlock& block = flow_.blocks[at(b)];
    const PtxInstruction& last = body_.code[at(block.end - 1)];
    if (last.op == PtxOp::exit || last.op == PtxOp::trap) return true;
    for (int i = block.begin; i < block.end; ++i)
      if (body_.code[at(i)].op == PtxOp::call) return true;
    if (block.loop < 0 || loops_[at(block.loop)] == ptx::LoopKind::work) return false;
    const bool can_leave =
        std::any_of(block.to.begin(), block.to.end(), [&](int to) { return !flow_.in_loop(to, block.loop); });
    return b != flow_.loops[at(block.loop)].header || !can_leave;
  }

  void collect() {
    for (const int b : flow_.order) {
      if (left_out(b)) continue;
      const ptx::FlowBlock& block = flow_.blocks[at(b)];
      const int turns = block.loop < 0 ? 1 : std::max(1, turns_[at(block.loop)]);
      for (int turn = 0; turn < turns; ++turn)
        for (int i = block.begin; i < block.end; ++i) code_[key_of(i)].push_back(i);
    }
  }

  /// "loop 2.1": the first loop inside the second of the region, in the order of their headers.
  std::string name(const Key& key) const {
    if (key.second < 0) return "once";
    int parent = flow_.loops[at(key.second)].parent, number = 0;
    while (parent >= 0 && !in_work_loop_of(key.first, parent)) parent = flow_.loops[at(parent)].parent;
    for (const auto& [other, code] : code_) {
      if (other.first != key.first || other.second < 0 || other.second > key.second) continue;
      int around = flow_.loops[at(other.second)].parent;
      while (around >= 0 && !in_work_loop_of(key.first, around)) around = flow_.loops[at(around)].parent;
      number += around == parent ? 1 : 0;
    }
    const std::string outer = parent < 0 ? "loop " : name({key.first, parent}) + ".";
    return outer + std::to_string(number);
  }

  /// Where the products are; without any, the largest outermost loop, else what there is.
  static void choose_tile(std::vector<InstructionPiece>& pieces, std::size_t first) {
    const auto weight = [](const InstructionPiece& piece) {
      const auto products = std::count_if(piece.nodes.begin(), piece.nodes.end(),
                                          [](const InstructionNode& n) { return n.kind == CostKind::mma; });
      const bool outer = piece.name != "once" && piece.name.find('.') == std::string::npos;
      return std::tuple(products, outer, piece.nodes.size());
    };
    const auto begin = pieces.begin() + static_cast<std::ptrdiff_t>(first);
    const auto best =
        std::max_element(begin, pieces.end(), [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
    if (best != pieces.end()) best->tile = true;
  }

  const PtxBody& body_;
  const KernelFacts& facts_;
  ptx::Flow flow_;
  ptx::Regions regions_;
  std::vector<ptx::LoopKind> loops_;
  std::vector<int> turns_;   // by loop; 0: not known, or not inside another
  std::map<Key, std::vector<int>> code_;
};

}  // namespace

std::string_view to_string(InstructionHazard hazard) {
  constexpr std::array<std::string_view, 6> names = {"raw", "war", "waw", "barrier", "async", "control"};
  return names[static_cast<std::size_t>(hazard)];
}

std::string_view to_string(BranchClass branch) {
  constexpr std::array<std::string_view, branch_classes> names = {"poll", "loop", "bounds", "watchdog",
                                                                  "role", "pacing", "select", "other"};
  return names[static_cast<std::size_t>(branch)];
}

bool InstructionDag::decides_nothing() const { return census()[static_cast<std::size_t>(BranchClass::other)] == 0; }

std::array<int, branch_classes> InstructionDag::census() const {
  std::array<int, branch_classes> counts{};
  for (const BranchNote& note : branches) ++counts[static_cast<std::size_t>(note.branch)];
  return counts;
}

const InstructionPiece* InstructionDag::tile(std::string_view role, std::string_view stage) const {
  for (const InstructionPiece& piece : pieces)
    if (piece.tile && piece.role == role && piece.stage == stage) return &piece;
  return nullptr;
}

Result<InstructionDag> make_instruction_dag(const PtxModule& module, const KernelFacts& facts) {
  const PtxBody* entry = module.find(facts.entry);
  if (entry == nullptr || !entry->entry) return fail(Errc::bad_input, "PTX: there is no kernel '{}'", facts.entry);
  InstructionDag dag;
  const std::string_view target = module.target;
  const std::size_t digits = target.find_first_of("0123456789");
  if (digits == std::string_view::npos ||
      std::from_chars(target.data() + digits, target.data() + target.size(), dag.sm).ec != std::errc())
    return fail(Errc::bad_input, "PTX: target '{}' names no sm", target);
  dag.table = latency_table(dag.sm);
  dag.pieces = Cutter(module, *entry, facts).run(module, dag.table);
  dag.branches = ptx::branch_census(module, facts);
  return dag;
}

}  // namespace adamk
