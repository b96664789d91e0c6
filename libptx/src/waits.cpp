#include "waits.h"

#include "adamk/ptx/latency.h"

namespace adamk::ptx {
namespace {

bool is_work(const PtxModule& module, const PtxInstruction& i, const std::string& watchdog) {
  switch (i.op) {
    case PtxOp::call: return !is_watchdog(module, i, watchdog);
    case PtxOp::ld: return i.space != PtxSpace::param && i.space != PtxSpace::local && !looks(i);
    case PtxOp::st: return i.space != PtxSpace::param && i.space != PtxSpace::local;
    case PtxOp::atom: case PtxOp::red: case PtxOp::ldmatrix: case PtxOp::stmatrix: case PtxOp::mma: case PtxOp::shfl:
    case PtxOp::vote: case PtxOp::match: case PtxOp::redux: case PtxOp::bar_sync: case PtxOp::bar_arrive:
    case PtxOp::cluster_arrive: case PtxOp::cluster_wait: case PtxOp::mbarrier_init: case PtxOp::mbarrier_inval:
    case PtxOp::mbarrier_arrive: case PtxOp::mbarrier_expect_tx: case PtxOp::cp_async: case PtxOp::cp_async_commit:
    case PtxOp::cp_async_mbarrier_arrive: case PtxOp::cp_async_bulk:
      return true;
    default: return false;
  }
}

}  // namespace

bool looks(const PtxInstruction& i) {
  if (i.op == PtxOp::mbarrier_test_wait || i.op == PtxOp::mbarrier_try_wait) return true;
  return i.op == PtxOp::ld && i.space == PtxSpace::global && (i.order == PtxOrder::relaxed || i.order == PtxOrder::acquire);
}

bool is_watchdog(const PtxModule& module, const PtxInstruction& call, const std::string& watchdog) {
  return call.op == PtxOp::call && call.target >= 0 && !watchdog.empty() &&
         module.functions[static_cast<std::size_t>(call.target)].name.find(watchdog) != std::string::npos;
}

std::vector<LoopKind> find_waits(const PtxModule& module, const PtxBody& body, const Flow& flow, const std::string& watchdog) {
  std::vector<LoopKind> kinds;
  for (const FlowLoop& loop : flow.loops) {
    bool has_look = false, has_clock = false, has_work = false;
    for (std::size_t b = 0; b < flow.blocks.size(); ++b) {
      if (!loop.holds[b]) continue;
      for (int i = flow.blocks[b].begin; i < flow.blocks[b].end; ++i) {
        const PtxInstruction& instruction = body.code[static_cast<std::size_t>(i)];
        has_look = has_look || looks(instruction);
        has_clock = has_clock || cost_kind(instruction) == CostKind::clock;
        has_work = has_work || is_work(module, instruction, watchdog);
      }
    }
    kinds.push_back(has_work || (!has_look && !has_clock) ? LoopKind::work : has_look ? LoopKind::poll : LoopKind::pacing);
  }
  return kinds;
}

}  // namespace adamk::ptx
