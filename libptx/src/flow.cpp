#include "flow.h"

#include <algorithm>
#include <utility>

namespace adamk::ptx {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool ends_block(const PtxInstruction& i) {
  return i.op == PtxOp::bra || i.op == PtxOp::ret || i.op == PtxOp::exit || i.op == PtxOp::trap;
}

void make_blocks(const PtxBody& body, Flow& flow) {
  const int n = static_cast<int>(body.code.size());
  std::vector<bool> leads(at(n) + 1, false);
  leads[0] = true;
  for (int i = 0; i < n; ++i) {
    if (!ends_block(body.code[at(i)])) continue;
    leads[at(i) + 1] = true;
    if (body.code[at(i)].op == PtxOp::bra) leads[at(std::min(body.code[at(i)].target, n))] = true;
  }
  flow.block_of.resize(at(n));
  for (int i = 0; i < n; ++i) {
    if (leads[at(i)]) flow.blocks.push_back({i, i, {}, {}, -1, -1, -1});
    flow.block_of[at(i)] = static_cast<int>(flow.blocks.size()) - 1;
    flow.blocks.back().end = i + 1;
  }
  for (int b = 0; b < static_cast<int>(flow.blocks.size()); ++b) {
    FlowBlock& block = flow.blocks[at(b)];
    const PtxInstruction& last = body.code[at(block.end - 1)];
    if ((!ends_block(last) || last.guard >= 0) && block.end < n) block.to.push_back(b + 1);
    if (last.op == PtxOp::bra && last.target < n) {
      const int target = flow.block_of[at(last.target)];
      if (block.to.empty() || block.to[0] != target) block.to.push_back(target);
    }
  }
  for (int b = 0; b < static_cast<int>(flow.blocks.size()); ++b)
    for (const int to : flow.blocks[at(b)].to) flow.blocks[at(to)].from.push_back(b);
}

/// Nodes reached from `root`; of two successors the first comes first.
std::vector<int> reverse_postorder(int root, const std::vector<std::vector<int>>& to) {
  std::vector<int> order;
  std::vector<bool> seen(to.size(), false);
  std::vector<std::pair<int, std::size_t>> stack{{root, 0}};
  seen[at(root)] = true;
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    if (next < to[at(node)].size()) {
      const int successor = to[at(node)][to[at(node)].size() - ++next];
      if (!seen[at(successor)]) {
        seen[at(successor)] = true;
        stack.emplace_back(successor, 0);
      }
    } else {
      order.push_back(node);
      stack.pop_back();
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

void make_order(Flow& flow) {
  std::vector<std::vector<int>> to;
  for (const FlowBlock& block : flow.blocks) to.push_back(block.to);
  flow.order = reverse_postorder(0, to);
}

/// Immediate dominators of the nodes in `order` (reverse postorder, the root first; -1 for others), by the nodes before each.
/// Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
std::vector<int> dominators(const std::vector<int>& order, const std::vector<std::vector<int>>& before) {
  std::vector<int> rank(before.size(), -1), dominator(before.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) rank[at(order[i])] = static_cast<int>(i);
  dominator[at(order[0])] = order[0];
  for (bool changed = true; changed;) {
    changed = false;
    for (const int node : order) {
      if (node == order[0]) continue;
      int common = -1;
      for (int from : before[at(node)]) {
        if (rank[at(from)] < 0 || dominator[at(from)] < 0) continue;
        if (common < 0) common = from;
        while (common != from) {
          if (rank[at(common)] > rank[at(from)]) common = dominator[at(common)];
          else from = dominator[at(from)];
        }
      }
      if (common != dominator[at(node)]) dominator[at(node)] = common, changed = true;
    }
  }
  return dominator;
}

void make_dominators(Flow& flow) {
  std::vector<std::vector<int>> from;
  for (const FlowBlock& block : flow.blocks) from.push_back(block.from);
  const std::vector<int> dominator = dominators(flow.order, from);
  for (const int block : flow.order) flow.blocks[at(block)].dominator = block == 0 ? -1 : dominator[at(block)];
}

/// Dominators of the flow turned around, with one more node behind every way out.
void make_rejoins(Flow& flow) {
  const int way_out = static_cast<int>(flow.blocks.size());
  std::vector<std::vector<int>> after(flow.blocks.size() + 1), before(flow.blocks.size() + 1);
  for (const int b : flow.order) {
    after[at(b)] = flow.blocks[at(b)].to;
    if (after[at(b)].empty()) after[at(b)].push_back(way_out);
    for (const int to : after[at(b)]) before[at(to)].push_back(b);
  }
  const std::vector<int> rejoins = dominators(reverse_postorder(way_out, before), after);
  for (const int b : flow.order) flow.blocks[at(b)].rejoins = rejoins[at(b)] == way_out ? -1 : rejoins[at(b)];
}

void make_loops(Flow& flow) {
  for (const int header : flow.order) {
    std::vector<int> work;
    for (const int from : flow.blocks[at(header)].from)
      if (flow.reached(from) && flow.dominates(header, from)) work.push_back(from);
    if (work.empty()) continue;
    FlowLoop loop;
    loop.header = header;
    loop.holds.assign(flow.blocks.size(), false);
    loop.holds[at(header)] = true;
    while (!work.empty()) {
      const int block = work.back();
      work.pop_back();
      if (loop.holds[at(block)]) continue;
      loop.holds[at(block)] = true;
      for (const int from : flow.blocks[at(block)].from)
        if (flow.reached(from)) work.push_back(from);
    }
    // Headers come in reverse postorder, so a loop that holds this one is there already; the last such is the innermost.
    for (int outer = 0; outer < static_cast<int>(flow.loops.size()); ++outer)
      if (flow.loops[at(outer)].holds[at(header)]) loop.parent = outer;
    flow.loops.push_back(std::move(loop));
    for (std::size_t b = 0; b < flow.blocks.size(); ++b)
      if (flow.loops.back().holds[b]) flow.blocks[b].loop = static_cast<int>(flow.loops.size()) - 1;
  }
}

}  // namespace

bool Flow::dominates(int a, int b) const {
  while (b >= 0 && b != a) b = blocks[at(b)].dominator;
  return b == a;
}

bool Flow::in_loop(int block, int loop) const { return loops[at(loop)].holds[at(block)]; }

Flow make_flow(const PtxBody& body) {
  Flow flow;
  make_blocks(body, flow);
  make_order(flow);
  make_dominators(flow);
  make_rejoins(flow);
  make_loops(flow);
  return flow;
}

}  // namespace adamk::ptx
