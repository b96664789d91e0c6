// Space: the search DAG of a deployment. Nodes are cuts between the operators of a layer (and of the head behind it), an edge
// is one fused stage that covers the operators between two cuts, in one of its variants; a path from the first node to
// the last, with the global knobs, is a Plan. Edges and variants that are ruled out stay, with the reason (docs/space.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/operator_graph.h"
#include "adamk/dag/schedule.h"

namespace adamk {

struct SpaceNode {
  int cut = 0;               // operators of [layer, epilogue] before this point
  std::string name;          // "layer start", "after qkv", ...
};

/// One way to run a stage. Ruled out when no choice of the global knobs makes it fit or when it repeats another variant.
struct Variant {
  StagePlan stage;
  std::string reason;        // why it is ruled out; empty: open
  bool open() const { return reason.empty(); }
};

struct SpaceEdge {
  int from = 0, to = 0;      // nodes
  std::string name;          // "qkv", "output with attention", ...
  std::vector<OperatorKind> operators;
  std::string reason;        // why the whole edge is ruled out; empty: open (it then has variants)
  std::vector<Variant> variants;
  bool open() const { return reason.empty(); }
  std::vector<int> open_variants() const;
};

/// Values of the knobs that hold for the whole kernel. Ring stages and window depend on the bytes of a ring stage, so they
/// are kept as fractions of what fits and as bytes in flight; several may come to the same number (plan_at refuses repeats).
struct Knobs {
  std::vector<int> consumer_warps;
  std::vector<double> ring_fractions;            // of the ring stages that fit, largest first
  std::vector<std::int64_t> window_bytes;        // in flight per SM; 0: the whole ring
  std::vector<int> paces;                        // clocks per 8 KB copy for a grid of all SMs; scaled for smaller grids
  std::vector<int> grids;
  std::vector<int> unrolls, fragments;           // of the consumers' inner loop
  std::uint64_t combinations() const;
};

/// What a choice of warps, tile height and K split asks of shared memory.
struct MemoryRow {
  int consumer_warps = 0, tile_rows = 0;
  int chunk_steps = 0;                           // 0: K is not split, a ring stage holds the whole K of a tile
  SharedMemory smem;                             // with as many ring stages as fit (two when fewer do)
  int stages = 0;                                // ring stages that fit; below 2 the choice is infeasible
  std::int64_t limit = 0;                        // bytes a block may have
};

struct Space {
  Deployment deployment;
  std::vector<SpaceNode> nodes;
  std::vector<SpaceEdge> edges;
  std::vector<std::vector<int>> paths;           // open edges from the first node to the last
  Knobs knobs;
  double fair_share_clocks = 0;                  // clocks in which an SM's share of the read bandwidth brings 8 KB
  std::vector<MemoryRow> memory;

  /// Index range of plan_at: over all paths, the product of their open variants and of the knobs.
  std::uint64_t candidates() const;
  std::uint64_t path_candidates(std::size_t path) const;
};

/// Fails with default_plan's error when the deployment has no feasible plan at all.
Result<Space> make_space(const Deployment& deployment);

/// The plan with this index, in [0, candidates()). An Error (infeasible) says what rules it out: what make_schedule says, or
/// that it is the same kernel as another candidate.
Result<Plan> plan_at(const Space& space, std::uint64_t index);

/// Visits the feasible plans with indices in [begin, end), in order, until `visit` returns false.
void for_each_plan(const Space& space, std::uint64_t begin, std::uint64_t end,
                   const std::function<bool(std::uint64_t, const Plan&)>& visit);

/// A feasible plan that is a pure function of the space, the seed and the index: draws every choice at random, ties the
/// choices that must agree, and draws again when the result does not fit.
Plan sample(const Space& space, std::uint64_t seed, std::uint64_t index);

/// Every feasible plan that differs from `plan` in one choice (or in the choices that must change together), in a fixed
/// order, without `plan` itself. The ring is refitted where a change makes its stages larger or smaller.
std::vector<Plan> neighbours(const Space& space, const Plan& plan);

/// Most ring stages with which `plan` fits, whatever its own ring_stages; 0 when not even two do.
int most_ring_stages(const Deployment& deployment, Plan plan);

Json space_to_json(const Space& space);

}  // namespace adamk
