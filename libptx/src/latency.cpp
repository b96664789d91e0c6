#include "adamk/ptx/latency.h"

#include <algorithm>

namespace adamk {
namespace {

// Sources. The guide's throughputs are results per clock and SM; clocks of a sub-partition's pipe are 32 / (results / 4).
constexpr std::string_view kGuide = "CUDA C++ Programming Guide, throughput of native arithmetic instructions";
constexpr std::string_view kAmpere = "Abdelkhalik et al. 2022, arXiv 2208.11174 (A100)";
constexpr std::string_view kTensor = "Sun et al. 2022, arXiv 2206.02874 (A100, RTX 3070 Ti)";
constexpr std::string_view kHopper = "Luo et al. 2024, arXiv 2402.13499 (A100, RTX 4090, H100)";
constexpr std::string_view kMeasured = "measured on an H200 (adamk-profile latencies)";
constexpr std::string_view kMeasuredGuide = "latency measured on an H200 (adamk-profile latencies), throughput of the CUDA guide";
constexpr std::string_view kMeasuredLatency = "latency measured on an H200 (adamk-profile latencies), throughput assumed";
constexpr std::string_view kNotKept = "5 from a program that was not kept (adamk-profile latencies on an H200: 4, behind a store), throughput assumed";
constexpr std::string_view kFitted = "fitted on an H200 to the tiles of plans 1, 3, 5, ... of scripts/tile-variants";
constexpr std::string_view kAssumed = "assumed: no published figure";
constexpr std::string_view kAssumedHopper = "assumed: as measured on sm_90";
constexpr std::string_view kNone = "usually no machine instruction";

using Rows = std::array<CostRow, cost_kinds>;

constexpr CostRow& at(Rows& rows, CostKind kind) { return rows[static_cast<std::size_t>(kind)]; }

/// sm_80; the other tables are this one with what is known to differ.
Rows ampere() {
  Rows rows{};
  const auto set = [&](CostKind kind, PtxPipe pipe, double latency, double busy, std::string_view source) {
    at(rows, kind) = {pipe, latency, busy, source};
  };
  set(CostKind::free, PtxPipe::none, 0, 0, kNone);
  set(CostKind::integer, PtxPipe::alu, 4, 2, kAmpere);
  set(CostKind::multiply, PtxPipe::fma, 4, 2, kAmpere);
  set(CostKind::float_add, PtxPipe::fma, 4, 2, kAmpere);
  set(CostKind::convert, PtxPipe::alu, 6, 2, kAssumed);
  set(CostKind::special, PtxPipe::special, 18, 8, kGuide);
  set(CostKind::divide, PtxPipe::special, 45, 8, kAssumed);
  set(CostKind::shuffle, PtxPipe::memory, 23, 1, kGuide);
  set(CostKind::vote, PtxPipe::alu, 12, 2, kGuide);
  set(CostKind::mma, PtxPipe::tensor, 24.7, 8, kTensor);
  set(CostKind::load_shared, PtxPipe::memory, 29, 1, kHopper);
  set(CostKind::store_shared, PtxPipe::memory, 19, 1, kAmpere);
  set(CostKind::load_matrix, PtxPipe::memory, 29, 1, kHopper);
  set(CostKind::load_global, PtxPipe::memory, 261.5, 1, kHopper);
  set(CostKind::store_global, PtxPipe::memory, 10, 1, kAssumed);
  set(CostKind::load_constant, PtxPipe::memory, 37.9, 1, kHopper);
  set(CostKind::atomic_shared, PtxPipe::memory, 60, 2, kAssumed);
  set(CostKind::atomic_global, PtxPipe::memory, 261.5, 1, kHopper);
  set(CostKind::barrier_test, PtxPipe::sync, 30, 1, kAssumed);
  set(CostKind::barrier_arrive, PtxPipe::sync, 30, 1, kAssumed);
  set(CostKind::warp_barrier, PtxPipe::control, 6, 1, kAssumed);
  set(CostKind::block_barrier, PtxPipe::control, 30, 2, kAssumed);
  set(CostKind::fence, PtxPipe::memory, 500, 1, kAssumed);
  set(CostKind::async_copy, PtxPipe::memory, 20, 4, kAssumed);
  set(CostKind::bulk_copy, PtxPipe::memory, 20, 4, kAssumed);
  set(CostKind::branch, PtxPipe::control, 10, 2, kAssumed);
  set(CostKind::call, PtxPipe::control, 30, 4, kAssumed);
  set(CostKind::clock, PtxPipe::control, 10, 2, kAssumed);
  return rows;
}

Rows rows_of(int sm) {
  Rows rows = ampere();
  const auto wide_float = [&] { at(rows, CostKind::float_add).busy = 1, at(rows, CostKind::float_add).source = kGuide; };
  if (sm >= 86) wide_float();
  if (sm == 86) {
    at(rows, CostKind::mma) = {PtxPipe::tensor, 33, 16, kTensor};
  } else if (sm == 89 || sm == 120) {
    at(rows, CostKind::mma) = {PtxPipe::tensor, 33, 16, sm == 89 ? kHopper : kAssumed};
    for (const CostKind kind : {CostKind::load_shared, CostKind::load_matrix}) at(rows, kind).latency = 30.1;
    for (const CostKind kind : {CostKind::load_global, CostKind::atomic_global}) at(rows, kind).latency = 273;
    at(rows, CostKind::load_constant).latency = 43.4;
  } else if (sm == 90 || sm == 100) {
    const std::string_view source = sm == 90 ? kMeasured : kAssumedHopper, fitted = sm == 90 ? kFitted : kAssumedHopper,
                           part_guide = sm == 90 ? kMeasuredGuide : kAssumedHopper,
                           part_assumed = sm == 90 ? kMeasuredLatency : kAssumedHopper;
    const auto set = [&](CostKind kind, double latency, double busy) {
      at(rows, kind) = {at(rows, kind).pipe, latency, busy, source};
    };
    set(CostKind::integer, 4, 2);
    set(CostKind::multiply, 4, 2);
    at(rows, CostKind::float_add) = {PtxPipe::fma, 4, 1, part_guide};
    set(CostKind::convert, 4, 2);
    set(CostKind::special, 17, 8);
    set(CostKind::divide, 44, 18);
    set(CostKind::shuffle, 24, 1);
    set(CostKind::vote, 13, 2);
    set(CostKind::mma, 24, 9.9);
    set(CostKind::load_shared, 23, 1);
    set(CostKind::load_matrix, 23, 1);
    set(CostKind::load_constant, 34, 1);
    set(CostKind::atomic_shared, 26, 1);
    set(CostKind::atomic_global, 286, 11);
    set(CostKind::barrier_test, 42, 4);
    set(CostKind::barrier_arrive, 6, 2);
    at(rows, CostKind::warp_barrier) = {PtxPipe::control, 5, 1, sm == 90 ? kNotKept : kAssumedHopper};
    at(rows, CostKind::block_barrier) = {PtxPipe::control, 14, 2, part_assumed};
    at(rows, CostKind::fence) = {PtxPipe::memory, 272, 1, part_assumed};
    // 283 from L2 at rest; the reads of attention's loop, of a cache that fills both halves of L2, take longer.
    at(rows, CostKind::load_global) = {PtxPipe::memory, 370, 1, fitted};
    at(rows, CostKind::branch) = {PtxPipe::control, 25, 2, fitted};   // with the reconvergence behind it
  }
  return rows;
}

bool is_load(PtxOp op) { return op == PtxOp::ld; }

CostKind memory_kind(const PtxInstruction& i) {
  if (i.space == PtxSpace::param) return CostKind::free;
  const bool shared = i.space == PtxSpace::shared;
  if (i.op == PtxOp::atom || i.op == PtxOp::red) return shared ? CostKind::atomic_shared : CostKind::atomic_global;
  if (!is_load(i.op)) return shared ? CostKind::store_shared : CostKind::store_global;
  if (shared) return CostKind::load_shared;
  return i.space == PtxSpace::constant ? CostKind::load_constant : CostKind::load_global;
}

}  // namespace

std::string_view to_string(PtxPipe pipe) {
  constexpr std::array<std::string_view, ptx_pipes> names = {"none", "alu", "fma", "special", "tensor", "memory", "sync",
                                                             "control"};
  return names[static_cast<std::size_t>(pipe)];
}

std::string_view to_string(CostKind kind) {
  constexpr std::array<std::string_view, cost_kinds> names = {
      "free", "integer", "multiply", "float_add", "convert", "special", "divide", "shuffle", "vote", "mma", "load_shared",
      "store_shared", "load_matrix", "load_global", "store_global", "load_constant", "atomic_shared", "atomic_global",
      "barrier_test", "barrier_arrive", "warp_barrier", "block_barrier", "fence", "async_copy", "bulk_copy", "branch", "call",
      "clock"};
  return names[static_cast<std::size_t>(kind)];
}

LatencyTable latency_table(int sm) {
  constexpr int known[] = {80, 86, 89, 90, 100, 120};
  LatencyTable table;
  table.sm = known[0];
  for (const int each : known)
    if (each <= sm) table.sm = each;
  table.exact = table.sm == sm;
  table.rows = rows_of(table.sm);
  return table;
}

CostKind cost_kind(const PtxInstruction& i) {
  switch (i.op) {
    case PtxOp::mov:
      if (!i.operands.empty() && i.operands.back().kind == PtxOperandKind::special &&
          i.operands.back().special.find("clock") != std::string::npos)
        return CostKind::clock;
      return CostKind::free;
    case PtxOp::cvta: case PtxOp::createpolicy: case PtxOp::isspacep: case PtxOp::mapa: case PtxOp::cp_async_commit:
    case PtxOp::griddepcontrol:
      return CostKind::free;
    case PtxOp::mul: case PtxOp::mad:
      return is_float(i.type) ? CostKind::float_add : CostKind::multiply;
    case PtxOp::add: case PtxOp::sub: case PtxOp::fma: case PtxOp::neg: case PtxOp::abs: case PtxOp::min: case PtxOp::max:
      return is_float(i.type) && i.op != PtxOp::min && i.op != PtxOp::max ? CostKind::float_add : CostKind::integer;
    case PtxOp::div: case PtxOp::rem: case PtxOp::sqrt:
      return CostKind::divide;
    case PtxOp::rcp: case PtxOp::rsqrt: case PtxOp::ex2: case PtxOp::lg2: case PtxOp::sin: case PtxOp::cos: case PtxOp::tanh:
    case PtxOp::popc: case PtxOp::clz: case PtxOp::brev:
      return CostKind::special;
    case PtxOp::cvt:
      // Widening and narrowing of integers is addressing: a sign word at most.
      return is_float(i.type) || is_float(i.to_type) ? CostKind::convert : CostKind::free;
    case PtxOp::shfl: return CostKind::shuffle;
    case PtxOp::vote: case PtxOp::match: case PtxOp::activemask: case PtxOp::redux: return CostKind::vote;
    case PtxOp::mma: return CostKind::mma;
    case PtxOp::ld: case PtxOp::st: case PtxOp::atom: case PtxOp::red: return memory_kind(i);
    case PtxOp::ldmatrix: return CostKind::load_matrix;
    case PtxOp::stmatrix: return CostKind::store_shared;
    case PtxOp::mbarrier_test_wait: case PtxOp::mbarrier_try_wait: return CostKind::barrier_test;
    case PtxOp::mbarrier_init: case PtxOp::mbarrier_inval: case PtxOp::mbarrier_arrive: case PtxOp::mbarrier_expect_tx:
    case PtxOp::cp_async_mbarrier_arrive:
      return CostKind::barrier_arrive;
    case PtxOp::bar_warp_sync: return CostKind::warp_barrier;
    case PtxOp::bar_sync: case PtxOp::bar_arrive: case PtxOp::cluster_arrive: case PtxOp::cluster_wait:
      return CostKind::block_barrier;
    case PtxOp::fence: case PtxOp::membar: case PtxOp::fence_mbarrier_init: case PtxOp::fence_proxy: return CostKind::fence;
    case PtxOp::cp_async: case PtxOp::cp_async_wait_group: case PtxOp::cp_async_wait_all: return CostKind::async_copy;
    case PtxOp::cp_async_bulk: return CostKind::bulk_copy;
    case PtxOp::bra: case PtxOp::ret: case PtxOp::exit: case PtxOp::trap: case PtxOp::nanosleep: return CostKind::branch;
    case PtxOp::call: return CostKind::call;
    default: return CostKind::integer;   // logic, shifts, compares, selections, byte permutes
  }
}

InstructionCost instruction_cost(const PtxInstruction& i, const LatencyTable& table) {
  const CostKind kind = cost_kind(i);
  const CostRow& row = table.row(kind);
  InstructionCost cost{row.pipe, row.latency, row.busy, kind == CostKind::free ? 0.0 : 1.0};
  const bool predicates = i.type == PtxType::pred;
  if (predicates) return cost;
  if (kind == CostKind::integer || kind == CostKind::multiply) {
    // 64-bit integers are pairs: two instructions, the second waits for the first's carry.
    const bool pair = bytes_of(i.type) == 8 || i.has("wide");
    if (pair) cost.busy *= 2, cost.issue *= 2, cost.latency += i.op == PtxOp::selp ? 0 : 2;
    cost.alu_or_fma = !pair && (i.op == PtxOp::add || i.op == PtxOp::sub || i.op == PtxOp::shl);
  } else if (kind == CostKind::divide) {
    cost.issue = 8;
    if (!is_float(i.type)) cost.issue = 16, cost.latency *= 2;
  } else if (row.pipe == PtxPipe::memory && (i.op == PtxOp::ld || i.op == PtxOp::st)) {
    // An SM moves 128 bytes a clock between shared memory or L1 and registers.
    cost.busy = std::max(row.busy, 32.0 * i.vector * bytes_of(i.type) / 128.0);
    if (kind == CostKind::load_shared) cost.latency += 2 * (cost.busy - 1);   // 23 clocks for 4 bytes a lane, 29 for 16
  } else if (kind == CostKind::load_matrix) {
    cost.busy = i.has("x4") ? 4 : i.has("x2") ? 2 : 1;
  } else if (kind == CostKind::mma && i.has("m16n8k8")) {
    cost.busy /= 2;
    cost.latency -= 7;
  }
  return cost;
}

}  // namespace adamk
