#include "branch_census.h"

#include <algorithm>
#include <utility>

#include "flow.h"
#include "regions.h"
#include "waits.h"

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// What a value depends on; a set.
using Sources = unsigned;
enum Source : Sources {
  kThread = 1, kBlock = 2, kSteers = 4, kParameter = 8, kClock = 16, kLook = 32, kMemory = 64, kWatchdog = 128
};
constexpr Sources kFixed = kThread | kBlock | kSteers;   // known when the launch begins
constexpr std::pair<Source, std::string_view> kNames[] = {
    {kThread, "thread"}, {kBlock, "block"}, {kSteers, "call parameter"}, {kParameter, "other parameter"}, {kClock, "clock"},
    {kLook, "wait"}, {kMemory, "memory"}, {kWatchdog, "watchdog"}};

std::string named(Sources sources) {
  std::string text;
  for (const auto& [source, name] : kNames)
    if ((sources & source) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "constants" : text;
}

/// One function, its flow, and what its registers depend on.
struct Function {
  const PtxBody* body = nullptr;
  Flow flow;
  Regions regions;
  std::vector<LoopKind> loops;
  std::vector<VariableAddress> variables;   // by register
  std::vector<Sources> registers;
  // Inside of a wait, what the wait itself counts is not yet news; behind it, how often it looked would be.
  std::vector<Sources> counted;
  std::vector<std::vector<int>> arms;    // by block: what its branch chooses between, if that does nothing but compute
  bool watchdog = false;
};

constexpr std::size_t kMostArms = 16;

/// Nothing but registers changes.
bool is_pure(const PtxInstruction& i) {
  return i.op == PtxOp::bra || cost_kind(i) <= CostKind::divide;
}

class Census {
 public:
  Census(const PtxModule& module, const KernelFacts& facts) : facts_(facts) {
    memory_.assign(module.variables.size(), 0);
    for (const PtxBody& body : module.functions) {
      Function f;
      f.body = &body;
      f.flow = make_flow(body);
      f.regions = find_regions(body, f.flow);
      f.loops = find_waits(module, body, f.flow, facts.watchdog);
      f.variables = variable_registers(body);
      f.registers.assign(body.registers.size(), 0);
      f.counted.assign(body.registers.size(), 0);
      f.watchdog = !facts.watchdog.empty() && body.name.find(facts.watchdog) != std::string::npos;
      find_arms(f);
      functions_.push_back(std::move(f));
    }
  }

  std::vector<BranchNote> run() {
    // Sources only grow, and there are eight: this ends.
    for (bool changed = true; changed;) {
      changed = false;
      for (Function& f : functions_) changed = pass(f) || changed;
    }
    std::vector<BranchNote> notes;
    for (const Function& f : functions_) {
      for (const int b : ordered(f)) {
        const FlowBlock& block = f.flow.blocks[at(b)];
        for (int n = block.begin; n < block.end; ++n) {
          const PtxInstruction& i = f.body->code[at(n)];
          if (i.guard < 0 || (i.op != PtxOp::bra && is_pure(i))) continue;
          const Regions::Name& region = f.regions.names[at(f.regions.of[at(n)])];
          const Sources sources = i.op == PtxOp::bra ? of_branch(f, b) : f.counted[at(i.guard)];
          const BranchClass what = i.op == PtxOp::bra ? classify(f, b, sources)
                                   : (sources & ~kFixed) == 0 ? BranchClass::bounds
                                                              : BranchClass::other;   // an access under a predicate
          notes.push_back({i.line, f.body->name, region.role, region.stage, what, named(sources)});
        }
      }
    }
    return notes;
  }

 private:
  static std::vector<int> ordered(const Function& f) {
    std::vector<int> blocks = f.flow.order;
    std::sort(blocks.begin(), blocks.end());
    return blocks;
  }

  /// What lies between a branch and the place where its ways meet again, if that does nothing but compute.
  static void find_arms(Function& f) {
    f.arms.resize(f.flow.blocks.size());
    for (const int b : f.flow.order) {
      const FlowBlock& block = f.flow.blocks[at(b)];
      if (block.to.size() != 2 || block.rejoins < 0) continue;
      std::vector<int> arms, work = block.to;
      bool pure = true;
      while (!work.empty() && pure) {
        const int arm = work.back();
        work.pop_back();
        if (arm == block.rejoins || std::find(arms.begin(), arms.end(), arm) != arms.end()) continue;
        arms.push_back(arm);
        const FlowBlock& each = f.flow.blocks[at(arm)];
        pure = arms.size() <= kMostArms && each.loop == block.loop && arm != b &&
               std::all_of(f.body->code.begin() + each.begin, f.body->code.begin() + each.end, is_pure);
        work.insert(work.end(), each.to.begin(), each.to.end());
      }
      if (pure) f.arms[at(b)] = std::move(arms);
    }
  }

  Sources parameter_sources(std::int64_t offset) const {
    for (const KernelFacts::Parameter& p : facts_.parameters)
      if (offset >= p.offset && offset < p.offset + p.bytes) return p.steers ? kSteers : kParameter;
    return kParameter;
  }

  Sources special_sources(const std::string& name) const {
    if (name.starts_with("%clock") || name == "%globaltimer") return kClock;
    for (const std::string_view thread : {"%tid", "%ntid", "%laneid", "%warpid", "%nwarpid", "%lanemask"})
      if (name.starts_with(thread)) return kThread;
    // Where the hardware put a block is a decision of its scheduler.
    return name == "%smid" || name == "%nsmid" ? kMemory : kBlock;
  }

  Sources of_operand(const std::vector<Sources>& registers, const PtxOperand& o) const {
    Sources sources = o.reg >= 0 ? registers[at(o.reg)] : 0;
    if (o.kind == PtxOperandKind::special) sources |= special_sources(o.special);
    for (const PtxOperand& part : o.parts) sources |= of_operand(registers, part);
    return sources;
  }

  /// What the results of an instruction depend on.
  Sources of_result(const Function& f, const std::vector<Sources>& registers, const PtxInstruction& i) const {
    Sources sources = i.guard >= 0 ? registers[at(i.guard)] : 0;
    for (std::size_t o = at(i.results); o < i.operands.size(); ++o) sources |= of_operand(registers, i.operands[o]);
    if (i.op == PtxOp::ld && i.space == PtxSpace::param) {
      const PtxOperand& from = i.operands.back();
      const VariableAddress where = variable_of(from, f.variables);
      if (where.variable < 0) return sources | kMemory;
      const bool of_entry = f.body->entry && std::count(f.body->params.begin(), f.body->params.end(), where.variable) > 0;
      return of_entry ? parameter_sources(where.offset) : memory_[at(where.variable)];
    }
    if (looks(i)) return (sources & ~Sources{kParameter}) | kLook;   // a pointer says where to look, not what is there
    const bool reads = i.op == PtxOp::ld || i.op == PtxOp::atom || i.op == PtxOp::ldmatrix;
    return reads ? (sources & ~Sources{kParameter}) | kMemory : sources;
  }

  static bool add(Sources& to, Sources more) {
    const Sources before = to;
    to |= more;
    return to != before;
  }

  /// Parameters of calls and their results.
  bool pass_memory(const Function& f, const PtxInstruction& i) {
    bool changed = false;
    if (i.op == PtxOp::st && i.space == PtxSpace::param && i.operands.size() > 1) {
      const int variable = i.operands[0].variable;
      if (variable >= 0) changed = add(memory_[at(variable)], of_operand(f.counted, i.operands[1]));
    } else if (i.op == PtxOp::call && i.target >= 0) {
      const Function& callee = functions_[at(i.target)];
      const std::vector<PtxOperand>& results = i.operands[0].parts;
      const std::vector<PtxOperand>& params = i.operands[1].parts;
      for (std::size_t n = 0; n < params.size() && n < callee.body->params.size(); ++n) {
        if (params[n].variable < 0) continue;
        changed = add(memory_[at(callee.body->params[n])], memory_[at(params[n].variable)]) || changed;
      }
      for (std::size_t n = 0; n < results.size() && n < callee.body->returns.size(); ++n) {
        if (results[n].variable < 0) continue;
        const Sources answer = callee.watchdog ? Sources{kWatchdog} : memory_[at(callee.body->returns[n])];
        changed = add(memory_[at(results[n].variable)], answer) || changed;
      }
    }
    return changed;
  }

  bool pass(Function& f) {
    bool changed = false;
    for (const int b : f.flow.order) {
      const FlowBlock& block = f.flow.blocks[at(b)];
      const bool waits = block.loop >= 0 && f.loops[at(block.loop)] == LoopKind::poll;
      for (int n = block.begin; n < block.end; ++n) {
        const PtxInstruction& i = f.body->code[at(n)];
        const Sources plain = of_result(f, f.registers, i), counted = of_result(f, f.counted, i) | (waits ? kLook : 0u);
        for (const int r : registers_written(i)) {
          changed = add(f.registers[at(r)], plain) || changed;
          changed = add(f.counted[at(r)], counted) || changed;
        }
        changed = pass_memory(f, i) || changed;
      }
      if (f.arms[at(b)].empty()) continue;
      const Sources chosen = of_branch(f, b);   // which arm ran shows in what the arms wrote
      for (const int arm : f.arms[at(b)])
        for (int n = f.flow.blocks[at(arm)].begin; n < f.flow.blocks[at(arm)].end; ++n)
          for (const int r : registers_written(f.body->code[at(n)])) {
            changed = add(f.registers[at(r)], chosen) || changed;
            changed = add(f.counted[at(r)], chosen) || changed;
          }
    }
    return changed;
  }

  static LoopKind kind_of_loop(const Function& f, int block) {
    const int loop = f.flow.blocks[at(block)].loop;
    return loop < 0 ? LoopKind::work : f.loops[at(loop)];
  }

  static Sources of_branch(const Function& f, int b) {
    const int guard = f.body->code[at(f.flow.blocks[at(b)].end - 1)].guard;
    if (guard < 0) return 0;
    return (kind_of_loop(f, b) == LoopKind::work ? f.counted : f.registers)[at(guard)];
  }

  /// The first look, in front of a wait: one side goes straight into the wait, the other straight to where it ends.
  static bool guards(const Function& f, int b, LoopKind kind) {
    for (const int to : f.flow.blocks[at(b)].to) {
      int block = to;
      for (int steps = 0; steps < 4; ++steps) {   // over blocks that only prepare
        const FlowBlock& here = f.flow.blocks[at(block)];
        if (kind_of_loop(f, block) == kind) {
          for (const int other : f.flow.blocks[at(b)].to)
            if (other != to && ends_at(f, here.loop, other)) return true;
          break;
        }
        const bool pure = std::all_of(f.body->code.begin() + here.begin, f.body->code.begin() + here.end, is_pure);
        if (here.to.size() != 1 || !pure) break;
        block = here.to[0];
      }
    }
    return false;
  }
  static bool ends_at(const Function& f, int loop, int block) {
    const std::vector<int>& from = f.flow.blocks[at(block)].from;
    return std::any_of(from.begin(), from.end(), [&](int b) { return f.flow.in_loop(b, loop); });
  }

  static bool leaves_loop(const Function& f, int b) {
    for (int loop = f.flow.blocks[at(b)].loop; loop >= 0; loop = f.flow.loops[at(loop)].parent)
      for (const int to : f.flow.blocks[at(b)].to)
        if (!f.flow.in_loop(to, loop)) return true;
    return false;
  }

  BranchClass classify(const Function& f, int b, Sources sources) const {
    if (f.watchdog) return BranchClass::watchdog;
    const auto only = [&](Sources allowed) { return (sources & ~allowed) == 0; };
    const LoopKind loop = kind_of_loop(f, b);
    if (loop == LoopKind::poll && only(kFixed | kLook | kClock | kWatchdog))
      return (sources & kLook) != 0 ? BranchClass::poll : BranchClass::watchdog;
    if (loop == LoopKind::pacing && only(kFixed | kClock)) return BranchClass::pacing;
    if (only(kFixed)) {
      if (leaves_loop(f, b)) return BranchClass::loop;
      const bool outside = f.regions.of[at(f.flow.blocks[at(b)].end - 1)] == 0;
      return outside && sources == kThread ? BranchClass::role : BranchClass::bounds;
    }
    if ((sources & kWatchdog) != 0 && only(kFixed | kWatchdog | kLook)) return BranchClass::watchdog;
    if (only(kFixed | kLook) && guards(f, b, LoopKind::poll)) return BranchClass::poll;
    if (only(kFixed | kClock) && guards(f, b, LoopKind::pacing)) return BranchClass::pacing;
    return f.arms[at(b)].empty() ? BranchClass::other : BranchClass::select;
  }

  const KernelFacts& facts_;
  std::vector<Function> functions_;
  std::vector<Sources> memory_;          // by variable of the module: parameters of calls
};

}  // namespace

VariableAddress variable_of(const PtxOperand& address, const std::vector<VariableAddress>& registers) {
  VariableAddress out{address.variable, 0};
  if (address.variable < 0 && address.reg >= 0) out = registers[at(address.reg)];
  if (address.kind == PtxOperandKind::address) out.offset += address.value;
  return out;
}

std::vector<VariableAddress> variable_registers(const PtxBody& body) {
  std::vector<VariableAddress> variables(body.registers.size());
  std::vector<int> writes(body.registers.size(), 0);
  for (const PtxInstruction& i : body.code)
    for (const int r : registers_written(i)) ++writes[at(r)];
  for (bool changed = true; changed;) {
    changed = false;
    for (const PtxInstruction& i : body.code) {
      const bool copies = (i.op == PtxOp::mov || i.op == PtxOp::cvta) && i.operands.size() == 2;
      const bool moves_on = i.op == PtxOp::add && i.operands.size() == 3 && i.operands[2].kind == PtxOperandKind::immediate;
      if ((!copies && !moves_on) || i.guard >= 0) continue;
      const int to = i.operands[0].reg;
      if (to < 0 || writes[at(to)] != 1 || variables[at(to)].variable >= 0) continue;
      variables[at(to)] = variable_of(i.operands[1], variables);
      if (moves_on) variables[at(to)].offset += i.operands[2].value;
      changed = changed || variables[at(to)].variable >= 0;
    }
  }
  return variables;
}

std::vector<BranchNote> branch_census(const PtxModule& module, const KernelFacts& facts) {
  return Census(module, facts).run();
}

}  // namespace adamk::ptx
