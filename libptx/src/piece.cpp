#include "piece.h"

#include <algorithm>
#include <map>
#include <utility>

#include "waits.h"

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// What an instruction does to memory besides its registers.
struct Access {
  int node = 0;
  std::string over;                // address class
  bool shared = false, write = false;
  int base = -1;                   // register of the address
  Place place;
  std::int64_t offset = 0, bytes = 0;
};

bool overlap(std::int64_t a, std::int64_t a_bytes, std::int64_t b, std::int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

bool may_alias(const Access& a, const Access& b, bool same_base) {
  if (a.shared != b.shared) return false;
  if (a.over != b.over && a.over != "shared" && b.over != "shared" && a.over != "global" && b.over != "global") return false;
  if (same_base) return overlap(a.offset, a.bytes, b.offset, b.bytes);
  const bool known = a.place.exact && b.place.exact && a.place.variable == b.place.variable && a.place.variable >= 0;
  return !known || overlap(a.place.constant, a.bytes, b.place.constant, b.bytes);
}

/// How an instruction orders memory.
struct Ordering {
  bool release = false, acquire = false, full = false;
};

Ordering ordering_of(const PtxInstruction& i) {
  switch (i.op) {
    case PtxOp::bar_sync: case PtxOp::bar_warp_sync: case PtxOp::fence: case PtxOp::membar: case PtxOp::fence_proxy:
    case PtxOp::fence_mbarrier_init:
      return {true, true, true};
    case PtxOp::bar_arrive: case PtxOp::cluster_arrive: case PtxOp::mbarrier_arrive: case PtxOp::mbarrier_expect_tx:
    case PtxOp::cp_async_mbarrier_arrive:
      return {true, false, false};
    case PtxOp::cluster_wait: case PtxOp::mbarrier_test_wait: case PtxOp::mbarrier_try_wait: case PtxOp::cp_async_wait_group:
    case PtxOp::cp_async_wait_all:
      return {false, true, false};
    default: break;
  }
  const bool sc = i.order == PtxOrder::sc || i.order == PtxOrder::acq_rel;
  return {i.order == PtxOrder::release || sc, i.order == PtxOrder::acquire || sc, false};
}

bool is_barrier_object(PtxOp op) {
  return op == PtxOp::mbarrier_init || op == PtxOp::mbarrier_inval || op == PtxOp::mbarrier_arrive ||
         op == PtxOp::mbarrier_expect_tx || op == PtxOp::cp_async_mbarrier_arrive;
}

class Builder {
 public:
  Builder(const PtxBody& body, const Flow& flow, Addresses& addresses, const LatencyTable& table, const std::vector<int>& code,
          InstructionPiece& piece)
      : body_(body), flow_(flow), addresses_(addresses), table_(table), code_(code), piece_(piece),
        writes_(body.registers.size(), 0) {
    for (const PtxInstruction& i : body.code)
      for (const int r : registers_written(i)) ++writes_[at(r)];
  }

  void run() {
    for (int n = 0; n < static_cast<int>(code_.size()); ++n) {
      const PtxInstruction& i = instruction(n);
      const bool branches = i.op == PtxOp::bra && i.guard >= 0, predicates = branches && skips_little(code_[at(n)]);
      piece_.nodes.push_back({i.line, i.opcode, cost_kind(i), 0, cost(n),
                             (branches && !predicates) || i.op == PtxOp::bar_warp_sync || i.op == PtxOp::bar_sync});
      if (predicates) piece_.nodes.back().cost = {};
      if (branch_ >= 0) edge(branch_, n, InstructionHazard::control, "branch", cost(branch_).latency);
      if (predicate_ >= 0 && code_[at(n)] < predicated_end_) edge(predicate_, n, InstructionHazard::control, "branch", 0);
      registers(n, i);
      memory(n, i);
      if (predicates) predicate_ = n, predicated_end_ = i.target;
      else if (branches) branch_ = n;
    }
    if (piece_.name != "once") carried();
  }

 private:
  const PtxInstruction& instruction(int node) const { return body_.code[at(code_[at(node)])]; }
  int block(int node) const { return flow_.block_of[at(code_[at(node)])]; }
  InstructionCost cost(int node) const { return instruction_cost(instruction(node), table_); }

  void edge(int from, int to, InstructionHazard hazard, const std::string& over, double clocks) {
    auto found = std::find(piece_.over.begin(), piece_.over.end(), over);
    if (found == piece_.over.end()) found = piece_.over.insert(piece_.over.end(), over);
    piece_.edges.push_back({from, to, hazard, static_cast<int>(found - piece_.over.begin()), clocks});
    InstructionNode& node = piece_.nodes[at(to)];
    node.start = std::max(node.start, piece_.nodes[at(from)].start + clocks);
  }

  /// A branch over a few instructions that do not branch: ptxas predicates them, and orders as if it were not there.
  bool skips_little(int branch) const {
    constexpr int most = 16;
    const int target = body_.code[at(branch)].target;
    if (target <= branch + 1 || target > branch + 1 + most) return false;
    return std::none_of(body_.code.begin() + branch + 1, body_.code.begin() + target, [](const PtxInstruction& i) {
      return i.op == PtxOp::bra || i.op == PtxOp::call || i.op == PtxOp::ret || i.op == PtxOp::exit || i.op == PtxOp::trap ||
             i.op == PtxOp::bar_sync;
    });
  }

  std::string file(int reg) const { return body_.registers[at(reg)].type == PtxType::pred ? "predicate" : "register"; }

  void registers(int n, const PtxInstruction& i) {
    std::vector<int> read = registers_read(i), written = registers_written(i);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (const int r : read) {
      // Back to the last write that every path to here has passed.
      const std::vector<int>& writers = writers_[r];
      for (auto w = writers.rbegin(); w != writers.rend(); ++w) {
        edge(*w, n, InstructionHazard::raw, file(r), cost(*w).latency);
        if (instruction(*w).guard < 0 && flow_.dominates(block(*w), block(n))) break;
      }
    }
    for (const int r : written) {
      for (const int reader : readers_[r])
        if (reader != n) edge(reader, n, InstructionHazard::war, file(r), 0);
      if (!writers_[r].empty()) edge(writers_[r].back(), n, InstructionHazard::waw, file(r), 1);
      readers_[r].clear();
      writers_[r].push_back(n);
    }
    for (const int r : read) readers_[r].push_back(n);
  }

  /// What a loop's next time through reads before it writes it.
  void carried() {
    std::map<int, std::vector<int>> written;   // in this time through
    for (int n = 0; n < static_cast<int>(code_.size()); ++n) {
      for (const int r : registers_read(instruction(n))) {
        const auto before = written.find(r);
        const auto wins = [&](int w) { return instruction(w).guard < 0 && flow_.dominates(block(w), block(n)); };
        if (before != written.end() && std::any_of(before->second.begin(), before->second.end(), wins)) continue;
        const auto last = writers_.find(r);
        if (last == writers_.end()) continue;
        for (const int w : last->second)
          piece_.carried.push_back({w, n, InstructionHazard::raw, 0, cost(w).latency});
      }
      for (const int r : registers_written(instruction(n))) written[r].push_back(n);
    }
  }

  void access(int n, const PtxInstruction& i, const PtxOperand& address, bool write, std::int64_t bytes) {
    Access now;
    now.node = n;
    now.over = is_barrier_object(i.op) ? "barriers" : addresses_.memory_class(i, address);
    ++piece_.memory[now.over];
    if (!write && !addresses_.written(i, address)) return;
    now.place = addresses_.place(address);
    now.shared = i.space == PtxSpace::shared || (address.variable >= 0 || now.place.variable >= 0);
    now.write = write;
    now.base = address.reg;
    now.offset = address.value;
    now.bytes = bytes;
    for (const Access& before : accesses_) {
      if (!before.write && !write) continue;
      const bool same_base = now.base >= 0 && now.base == before.base && writes_[at(now.base)] == 1;
      if (before.node == n || !may_alias(before, now, same_base)) continue;
      const InstructionHazard hazard = !before.write ? InstructionHazard::war
                                       : write       ? InstructionHazard::waw
                                                     : InstructionHazard::raw;
      edge(before.node, n, hazard, now.over, hazard == InstructionHazard::raw ? cost(before.node).latency : 1);
    }
    accesses_.push_back(std::move(now));
  }

  void memory(int n, const PtxInstruction& i) {
    const Ordering order = ordering_of(i);
    const bool plain = i.space != PtxSpace::param && i.space != PtxSpace::local;
    const std::int64_t bytes = std::int64_t{i.vector} * bytes_of(i.type);
    const bool touches = (plain && (i.op == PtxOp::ld || i.op == PtxOp::st || i.op == PtxOp::atom || i.op == PtxOp::red)) ||
                         i.op == PtxOp::ldmatrix || i.op == PtxOp::stmatrix || i.op == PtxOp::cp_async ||
                         i.op == PtxOp::cp_async_bulk || is_barrier_object(i.op);
    if ((touches || order.full) && acquired_ >= 0)
      edge(acquired_, n, InstructionHazard::barrier, "order", cost(acquired_).latency);
    if (order.release)
      for (const Access& before : accesses_)   // what was read must have arrived before others may write it
        edge(before.node, n, InstructionHazard::barrier, "order", before.write ? 1 : cost(before.node).latency);
    const auto address_of = [&](std::size_t o) { return o < i.operands.size() ? i.operands[o] : PtxOperand{}; };
    switch (i.op) {
      case PtxOp::ld: if (plain) access(n, i, i.operands.back(), false, bytes); break;
      case PtxOp::st: if (plain) access(n, i, address_of(0), true, bytes); break;
      case PtxOp::atom: access(n, i, address_of(1), true, bytes); break;
      case PtxOp::red: access(n, i, address_of(0), true, bytes); break;
      case PtxOp::ldmatrix: access(n, i, address_of(1), false, 16); break;
      case PtxOp::stmatrix: access(n, i, address_of(0), true, 16); break;
      case PtxOp::cp_async: case PtxOp::cp_async_bulk:
        if (expected_ >= 0 && i.op == PtxOp::cp_async_bulk) edge(expected_, n, InstructionHazard::async, "barriers", 1);
        access(n, i, address_of(0), true, 16);
        copies_.push_back(n);
        break;
      case PtxOp::cp_async_commit: case PtxOp::cp_async_wait_group: case PtxOp::cp_async_wait_all:
      case PtxOp::cp_async_mbarrier_arrive:
        for (const int copy : copies_) edge(copy, n, InstructionHazard::async, "copy group", 1);
        if (i.op == PtxOp::cp_async_commit) copies_ = {n};   // what waits, waits for the group
        else copies_.clear();
        break;
      default: break;
    }
    if (is_barrier_object(i.op)) {
      // Operations on barriers stay in order, as what they order does.
      if (expected_ >= 0) edge(expected_, n, InstructionHazard::waw, "barriers", 1);
      ++piece_.memory["barriers"];
      expected_ = n;
    }
    if (order.full) accesses_.clear();
    if (order.acquire) acquired_ = n;
  }

  const PtxBody& body_;
  const Flow& flow_;
  Addresses& addresses_;
  const LatencyTable& table_;
  const std::vector<int>& code_;
  InstructionPiece& piece_;
  std::vector<int> writes_;
  std::map<int, std::vector<int>> writers_, readers_;   // by register, nodes
  std::vector<Access> accesses_;                        // since the last full barrier
  std::vector<int> copies_;
  int predicate_ = -1, predicated_end_ = -1;            // the latest branch of that kind, and where it leads
  int branch_ = -1, acquired_ = -1, expected_ = -1;
};

/// The most bytes that loads and copies have outstanding, in the order of the nodes. -1: a copy's size is not known.
std::int64_t bytes_in_flight(const PtxBody& body, Addresses& addresses, const std::vector<int>& code) {
  std::vector<std::int64_t> change(code.size() + 1, 0);
  std::map<int, std::size_t> wanted;                 // by register: the load that brings it
  std::vector<std::int64_t> loads, copies;           // bytes of each, 0 once they have landed
  const auto lands = [&](std::size_t n, std::int64_t& bytes) { change[n] -= std::exchange(bytes, 0); };
  for (std::size_t n = 0; n < code.size(); ++n) {
    const PtxInstruction& i = body.code[at(code[n])];
    for (const int r : registers_read(i)) {
      const auto found = wanted.find(r);
      if (found == wanted.end()) continue;
      lands(n, loads[found->second]);
      wanted.erase(found);
    }
    std::int64_t bytes = 0;
    if (i.op == PtxOp::ld && (i.space == PtxSpace::global || i.space == PtxSpace::generic)) {
      bytes = 32 * std::int64_t{i.vector} * bytes_of(i.type);
      for (const int r : registers_written(i)) wanted[r] = loads.size();
      loads.push_back(bytes);
    } else if (i.op == PtxOp::cp_async || i.op == PtxOp::cp_async_bulk) {
      const PtxOperand size_operand = i.operands.size() > 2 ? i.operands[2] : PtxOperand{};
      Place size{-1, -1, size_operand.value, size_operand.kind == PtxOperandKind::immediate};
      if (size_operand.kind == PtxOperandKind::reg) size = addresses.place(size_operand);
      if (!size.exact) return -1;
      bytes = i.op == PtxOp::cp_async ? 32 * size.constant : size.constant;
      copies.push_back(bytes);
    } else if (i.op == PtxOp::cp_async_wait_all ||
               (i.op == PtxOp::cp_async_wait_group && !i.operands.empty() && i.operands[0].value == 0)) {
      for (std::int64_t& copy : copies) lands(n, copy);
    }
    change[n] += bytes;
  }
  std::int64_t now = 0, most = 0;
  for (const std::int64_t each : change) most = std::max(most, now += each);
  return most;
}

void figures(const PtxBody& body, const std::vector<int>& live, const std::vector<int>& code,
             InstructionPiece& piece) {
  for (std::size_t n = 0; n < code.size(); ++n) {
    const InstructionCost& cost = piece.nodes[n].cost;
    // Nobody waits for the end of a store.
    const bool last = registers_written(body.code[at(code[n])]).empty() || piece.nodes[n].kind == CostKind::barrier_arrive;
    piece.critical_clocks = std::max(piece.critical_clocks, piece.nodes[n].start + (last ? cost.busy : cost.latency));
    if (cost.alu_or_fma) {
      for (const PtxPipe pipe : {PtxPipe::alu, PtxPipe::fma}) piece.pipe_clocks[static_cast<std::size_t>(pipe)] += cost.busy / 2;
    } else {
      piece.pipe_clocks[static_cast<std::size_t>(cost.pipe)] += cost.busy;
    }
    piece.issue_slots += cost.issue;
    piece.live_registers = std::max(piece.live_registers, live[at(code[n])]);
  }
  const int sharing = (piece.warps + 3) / 4;   // warps of a sub-partition
  piece.clocks = piece.critical_clocks;
  piece.bound = "latency";
  const auto consider = [&](double clocks, std::string_view what) {
    if (clocks > piece.clocks) piece.clocks = clocks, piece.bound = what;
  };
  consider(sharing * piece.issue_slots, "issue");
  for (int p = 1; p < ptx_pipes; ++p) {
    const auto pipe = static_cast<PtxPipe>(p);
    consider((is_shared(pipe) ? piece.warps : sharing) * piece.pipe_clocks[at(p)], to_string(pipe));
  }
}

}  // namespace

void fill_piece(const PtxBody& body, const Flow& flow, Addresses& addresses, const LatencyTable& table,
                const std::vector<int>& live, const std::vector<int>& code, InstructionPiece& piece) {
  Builder(body, flow, addresses, table, code, piece).run();
  piece.bytes_in_flight = bytes_in_flight(body, addresses, code);
  figures(body, live, code, piece);
}

}  // namespace adamk::ptx
