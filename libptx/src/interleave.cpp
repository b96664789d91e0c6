// What W warps of one SM make of a piece: a simulation, clock by clock, of four schedulers that issue one instruction a clock
// each, their pipes, and the memory pipe they share. Within a stretch without conditional branches a warp issues whatever is
// ready, the longest remaining path first: as ptxas orders, not as the PTX lies. No stretch begins before the last has issued.
#include <algorithm>
#include <array>
#include <utility>

#include "adamk/ptx/instruction_dag.h"

namespace adamk {
namespace {

constexpr int kSchedulers = 4;
constexpr double kLongest = 1e7;   // clocks; nothing that a kernel does once takes as long

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct After {
  int node = 0;
  double clocks = 0;
  bool next_time = false;
};

using Pipes = std::array<double, ptx_pipes>;   // when each is free

std::size_t pipe_of(const InstructionCost& cost, const Pipes& free) {
  const auto alu = static_cast<std::size_t>(PtxPipe::alu), fma = static_cast<std::size_t>(PtxPipe::fma);
  return cost.alu_or_fma ? free[fma] < free[alu] ? fma : alu : static_cast<std::size_t>(cost.pipe);
}

/// What all warps share.
struct Code {
  std::vector<std::vector<After>> after;   // by node
  std::vector<int> stretch;                // by node
  std::vector<int> sizes;                  // nodes, by stretch
  std::vector<int> holds;                  // by node: how many of its own stretch it waits for
  std::vector<double> height;              // clocks from issue to the end

  void hold_loads_ahead(const InstructionPiece& piece);
  explicit Code(const InstructionPiece& piece) : after(piece.nodes.size()), holds(piece.nodes.size(), 0),
                                                 height(piece.nodes.size(), 0) {
    int now = 0;
    for (const InstructionNode& node : piece.nodes) {
      stretch.push_back(now);
      now += node.ends_stretch ? 1 : 0;
    }
    sizes.assign(at(now) + 1, 0);
    for (const int s : stretch) ++sizes[at(s)];
    for (const InstructionEdge& edge : piece.edges) {
      after[at(edge.from)].push_back({edge.to, edge.clocks, false});
      if (stretch[at(edge.from)] == stretch[at(edge.to)]) ++holds[at(edge.to)];
    }
    for (const InstructionEdge& edge : piece.carried) after[at(edge.from)].push_back({edge.to, edge.clocks, true});
    hold_loads_ahead(piece);
    // A branch waits for all of its stretch to be issued: it is the last of it.
    for (int n = static_cast<int>(piece.nodes.size()) - 1; n >= 0; --n) {
      height[at(n)] = piece.nodes[at(n)].cost.latency;
      for (const After& next : after[at(n)])
        if (!next.next_time) height[at(n)] = std::max(height[at(n)], next.clocks + height[at(next.node)]);
    }
  }
};

/// A load for the next time through goes to registers that this time's values are still in: it comes behind all before it.
void Code::hold_loads_ahead(const InstructionPiece& piece) {
  for (int n = 0; n < static_cast<int>(piece.nodes.size()); ++n) {
    const CostKind kind = piece.nodes[at(n)].kind;
    const auto ahead = [](const After& next) { return next.next_time; };
    if (kind != CostKind::load_global && kind != CostKind::load_constant) continue;
    if (after[at(n)].empty() || !std::any_of(after[at(n)].begin(), after[at(n)].end(), ahead)) continue;
    for (int before = 0; before < n; ++before) {
      if (stretch[at(before)] != stretch[at(n)]) continue;
      after[at(before)].push_back({n, 0, false});
      ++holds[at(n)];
    }
  }
}

class Warp {
 public:
  Warp(const InstructionPiece& piece, const Code& code) : piece_(&piece), code_(&code) { begin(); }

  int times() const { return static_cast<int>(ends.size()); }

  /// The best node that may issue at `now`, or -1; `soonest` is lowered to when there may be one.
  template <class Free>
  int choose(double now, double& soonest, Free free) const {
    int best = -1;
    for (const int n : open_) {
      if (holds_[at(n)] > 0) continue;
      const double when = std::max(ready_[at(n)], free(piece_->nodes[at(n)]));
      if (when > now) soonest = std::min(soonest, when);
      else if (best < 0 || code_->height[at(n)] > code_->height[at(best)]) best = n;
    }
    return best;
  }

  /// `from`: when its latency begins; memory serves later than it is asked.
  void issue(int n, double now, double from) {
    open_.erase(std::find(open_.begin(), open_.end(), n));
    for (const After& next : code_->after[at(n)]) {
      double& ready = (next.next_time ? ready_next_time_ : ready_)[at(next.node)];
      ready = std::max(ready, from + next.clocks);
      if (!next.next_time && code_->stretch[at(n)] == code_->stretch[at(next.node)]) --holds_[at(next.node)];
    }
    while (open_.empty()) {
      if (++stretch_ < static_cast<int>(code_->sizes.size())) {
        open_stretch();
      } else {
        ends.push_back(now);
        begin();
      }
    }
  }

  std::vector<double> ends;   // when each time through was issued whole

 private:
  void begin() {
    ready_ = std::exchange(ready_next_time_, std::vector<double>(piece_->nodes.size(), 0));
    if (ready_.empty()) ready_.assign(piece_->nodes.size(), 0);
    holds_ = code_->holds;
    stretch_ = 0;
    open_stretch();
  }
  void open_stretch() {
    for (int n = 0; n < static_cast<int>(piece_->nodes.size()); ++n)
      if (code_->stretch[at(n)] == stretch_) open_.push_back(n);
  }

  const InstructionPiece* piece_;
  const Code* code_;
  int stretch_ = 0;
  std::vector<int> open_, holds_;
  std::vector<double> ready_, ready_next_time_;
};

}  // namespace

double interleaved_clocks(const InstructionPiece& piece, int warps, int times) {
  if (piece.nodes.empty() || warps < 1 || times < 2) return 0;
  const Code code(piece);
  std::vector<Warp> all(at(warps), Warp(piece, code));
  std::array<Pipes, kSchedulers> pipe_free{};
  std::array<double, kSchedulers> issue_free{};
  std::array<int, kSchedulers> latest{};
  Pipes shared_free{};
  double now = 0;
  int running = warps;
  while (running > 0 && now < kLongest) {
    double soonest = kLongest;
    for (int s = 0; s < kSchedulers; ++s) {
      const int mine = (warps - s + kSchedulers - 1) / kSchedulers;
      for (int k = 0; k < mine && issue_free[at(s)] <= now; ++k) {
        const int slot = (latest[at(s)] + k) % mine;   // stays with a warp until it stalls
        Warp& warp = all[at(s + kSchedulers * slot)];
        if (warp.times() >= times) continue;
        const int n = warp.choose(now, soonest, [&](const InstructionNode& node) {
          return is_shared(node.cost.pipe) ? 0.0 : pipe_free[at(s)][pipe_of(node.cost, pipe_free[at(s)])];
        });
        if (n < 0) continue;
        const InstructionCost& cost = piece.nodes[at(n)].cost;
        double from = now;
        if (is_shared(cost.pipe)) {
          double& free = shared_free[static_cast<std::size_t>(cost.pipe)];
          from = std::max(now, free);
          free = from + cost.busy;
        } else if (cost.pipe != PtxPipe::none) {
          pipe_free[at(s)][pipe_of(cost, pipe_free[at(s)])] = now + cost.busy;
        }
        issue_free[at(s)] = now + cost.issue;
        latest[at(s)] = slot;
        warp.issue(n, now, from);
        running -= warp.times() >= times ? 1 : 0;
        k = -1;   // what is free costs no issue slot: look again
      }
      soonest = std::min(soonest, std::max(issue_free[at(s)], now + 1));
    }
    now = std::max(now + 1, soonest);
  }
  double sum = 0;
  for (const Warp& warp : all)
    if (warp.times() >= times) sum += (warp.ends[at(times - 1)] - warp.ends[0]) / (times - 1);
  return sum / warps;
}

}  // namespace adamk
