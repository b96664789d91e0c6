// Task edges of an EdgeSet, found by overlap of regions.
#include <algorithm>
#include <vector>

#include "adamk/dag/tile_dag.h"

namespace adamk {
namespace {

struct Touch {
  TaskId task;
  Region region;
};

std::vector<Touch> touches(const TileDag& dag, int stage, WarpRole role, int tensor, bool writes) {
  std::vector<Touch> found;
  for (const TaskRange& range : dag.stages[static_cast<std::size_t>(stage)].ranges) {
    if (range.role != role) continue;
    for (const Access& access : writes ? range.writes : range.reads) {
      if (access.region.tensor != tensor) continue;
      for (int i = 0; i < range.count; ++i) found.push_back({{stage, role, range.sm, range.first + i}, access.at(i)});
    }
  }
  return found;
}

}  // namespace

void for_each_task_edge(const TileDag& dag, const EdgeSet& edge,
                        const std::function<void(const TaskId&, const TaskId&)>& visit) {
  const bool from_writes = edge.hazard != Hazard::war, to_writes = edge.hazard != Hazard::raw;
  const std::vector<Touch> from = touches(dag, edge.from, edge.from_role, edge.tensor, from_writes);
  std::vector<Touch> to = touches(dag, edge.to, edge.to_role, edge.tensor, to_writes);
  std::stable_sort(to.begin(), to.end(),
                   [](const Touch& a, const Touch& b) { return a.region.begin < b.region.begin; });
  std::int64_t longest = 0;
  for (const Touch& touch : to) longest = std::max(longest, touch.region.end - touch.region.begin);
  for (const Touch& source : from) {
    // Only what begins within the longest region before `source` can reach into it.
    auto at = std::lower_bound(to.begin(), to.end(), source.region.begin - longest,
                               [](const Touch& touch, std::int64_t begin) { return touch.region.begin < begin; });
    for (; at != to.end() && at->region.begin < source.region.end; ++at) {
      if (!overlap(source.region, at->region)) continue;
      if (edge.via == Via::local && source.task.sm != at->task.sm) continue;
      visit(source.task, at->task);
    }
  }
}

}  // namespace adamk
