#include "adamk/profile/tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "adamk/profile/random_decoder.h"
#include "adamk/profile/statistics.h"

namespace adamk {
namespace {

struct Entry {
  std::uint32_t clocks = 0, second = 0;   // waited, or times through the loop
};
static_assert(sizeof(Entry) == 8);

class Collected {
 public:
  explicit Collected(const Schedule& schedule) : schedule_(schedule) {}

  void add(const std::vector<Entry>& entries) {
    const auto at = [&](StageKind stage, int sm, int warp, int tile) {
      const Plan& plan = schedule_.plan;
      const std::size_t row =
          (static_cast<std::size_t>(stage) * static_cast<std::size_t>(plan.grid) + static_cast<std::size_t>(sm)) *
              static_cast<std::size_t>(plan.consumer_warps) + static_cast<std::size_t>(warp);
      return entries[row * StampLayout::tiles + static_cast<std::size_t>(tile)];
    };
    for (int sm = 0; sm < schedule_.plan.grid; ++sm)
      for (int warp = 0; warp < schedule_.plan.consumer_warps; ++warp) {
        for (const GemvShape& shape : schedule_.gemvs) {
          const int tiles = shape.tile_count(sm, schedule_.plan.grid);
          const int end = std::min(tiles - (tiles >= 4 ? 1 : 0), StampLayout::tiles);
          for (int tile = 1; tile < end; ++tile) {
            const Entry entry = at(shape.kind, sm, warp, tile);
            clocks_[shape.kind].push_back(static_cast<double>(entry.clocks - entry.second));
            waited_[shape.kind] += entry.second;
          }
        }
        if (schedule_.attention.fused) continue;
        const Entry walk = at(StageKind::attention, sm, warp, 0);
        if (walk.second >= 2) clocks_[StageKind::attention].push_back(static_cast<double>(walk.clocks) / walk.second);
      }
  }

  std::vector<TileClocks> summary() const {
    std::vector<TileClocks> out;
    for (const auto& [stage, clocks] : clocks_) {
      const Statistics all = summarise(clocks);
      const auto waited = waited_.find(stage);
      out.push_back({stage, all.count, all.median, all.p10, all.p90,
                     waited == waited_.end() ? 0 : waited->second / static_cast<double>(clocks.size())});
    }
    return out;
  }

 private:
  const Schedule& schedule_;
  std::map<StageKind, std::vector<double>> clocks_;
  std::map<StageKind, double> waited_;
};

/// Ranks from 1; equal values share the mean of theirs.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) out[order[i]] = static_cast<double>(begin + end + 1) / 2;
    begin = end;
  }
  return out;
}

}  // namespace

Result<std::vector<TileClocks>> measure_tiles(Device& device, const Deployment& deployment, const Schedule& schedule,
                                              const Kernel& stamped, const TileOptions& options) {
  const StampLayout layout = stamp_layout(schedule);
  Recipe recipe = make_recipe(deployment, schedule, stamped);
  recipe.packed_bytes = schedule.smem.ring;
  recipe.workspace_bytes = layout.bytes;
  ADAMK_TRY(Decoder decoder, random_decoder(device, recipe, stamped, deployment.weights, options.seed));

  Collected collected(schedule);
  std::vector<Entry> entries(static_cast<std::size_t>(layout.bytes - layout.offset) / sizeof(Entry));
  const std::array given{1};
  for (int launch = 0; launch < options.launches; ++launch) {
    ADAMK_CHECK(decoder.decode(options.position, given, options.steps));
    ADAMK_CHECK(decoder.read_workspace(layout.offset, std::as_writable_bytes(std::span(entries))));
    collected.add(entries);
  }
  return collected.summary();
}

const InstructionPiece* timed_piece(const InstructionDag& dag, StageKind stage) {
  if (stage != StageKind::attention) {
    const InstructionPiece* tile = dag.tile("consumer", to_string(stage));
    return tile == nullptr || tile->name == "once" ? nullptr : tile;
  }
  // The innermost loop that weighs scores; loops over heads and items lie around it.
  const InstructionPiece* walk = nullptr;
  for (const InstructionPiece& piece : dag.pieces) {
    if (piece.role != "consumer" || piece.stage != to_string(stage) || piece.name == "once") continue;
    const bool weighs = std::any_of(piece.nodes.begin(), piece.nodes.end(),
                                    [](const InstructionNode& node) { return node.kind == CostKind::special; });
    const auto depth = [](const InstructionPiece& p) { return std::count(p.name.begin(), p.name.end(), '.'); };
    if (weighs && (walk == nullptr || depth(piece) > depth(*walk))) walk = &piece;
  }
  return walk;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.size() < 2) return 0;
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx == 0 || yy == 0 ? 0 : xy / std::sqrt(xx * yy);
}

}  // namespace adamk
