// Shared memory, and the positions that steps append.
#include <fmt/format.h>

#include <algorithm>

#include "validator_run_state.h"

namespace adamk::validation {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Of a view, the elements that a warp with this K slice touches: whole units that meet it, or that begin in it.
std::pair<std::int64_t, std::int64_t> through(const ColumnView& view, const KSlice& slice, bool begins) {
  if (slice.begin >= slice.end) return {0, 0};
  // Unit j begins at column j x unit x columns / elements. All factors are bounded where the protocol is read.
  const std::int64_t width = view.columns * view.unit;
  const std::int64_t low = begins ? ceil_div(slice.begin * view.elements, width) : slice.begin * view.elements / width;
  const std::int64_t high = ceil_div(slice.end * view.elements, width);
  const std::int64_t end = view.begin + view.elements;
  return {std::min(end, view.begin + low * view.unit), std::min(end, view.begin + high * view.unit)};
}

}  // namespace

/// What this warp touches of the operation's tensor.
std::vector<Region> ProtocolRun::regions(const Warp& w, const SyncOp& op, bool writes) {
  std::vector<Region> declared;
  const auto take = [&](const TaskAt& task) {
    for (const Access& access : writes ? task.range->writes : task.range->reads)
      if (access.region.tensor == op.tensor) declared.push_back(task.region(access));
  };
  if (op.each == Each::stage) {
    auto [at, fresh] = stage_regions_.try_emplace({&op, w.sm});
    if (fresh) {
      for (const TaskAt& task : w.walk.tasks()) take(task);
      std::sort(declared.begin(), declared.end(), [](const Region& a, const Region& b) {
        return std::tuple(a.begin, a.end, a.part) < std::tuple(b.begin, b.end, b.part);
      });
      declared.erase(std::unique(declared.begin(), declared.end()), declared.end());
      at->second = declared;
    }
    declared = at->second;
  } else {
    take(w.walk.tasks()[index(w.walk.task())]);
  }
  if (op.views.empty()) return declared;
  const DagStage& stage = dag_.stages[index(stage_of(w))];
  const auto warp = index(w.local - w.program->first_warp);
  if (warp >= stage.slices.size()) return declared;
  std::vector<Region> found;
  for (const ColumnView& view : op.views) {
    const auto [begin, end] = through(view, stage.slices[warp], writes);
    for (Region region : declared) {
      region.begin = std::max(region.begin, begin);
      region.end = std::min(region.end, end);
      if (region.begin < region.end) found.push_back(region);
    }
  }
  return found;
}

/// The cells of a region on this warp's SM: its own part of a slot, all parts, or the stretches of what stays in place.
template <class Visit>
bool ProtocolRun::for_cells(const Warp& w, const SyncOp& op, int use, bool writes, Visit visit) {
  const auto all = [&](std::pair<Cell*, Cell*> cells) {
    for (Cell* cell = cells.first; cell != cells.second; ++cell)
      if (!visit(*cell)) return false;
    return true;
  };
  if (!w.fact().slotted) {
    for (const Region& region : regions(w, op, writes))
      if (!all(cells(w, op, use, region))) return false;
    return true;
  }
  // A slot is touched by whoever declares anything in it.
  const auto declares = [&](const TaskAt& task) {
    const std::vector<Access>& accesses = writes ? task.range->writes : task.range->reads;
    return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) { return access.region.tensor == op.tensor; });
  };
  const Tasks& tasks = w.walk.tasks();
  const bool any = op.each == Each::stage ? std::any_of(tasks.begin(), tasks.end(), declares) : declares(tasks[index(w.walk.task())]);
  return !any || all(cells(w, op, use, {}));
}

std::pair<Cell*, Cell*> ProtocolRun::cells(const Warp& w, const SyncOp& op, int use, const Region& region) {
  std::vector<Cell>& of_sm = cells_[index(w.sm)];
  const Storage& storage = storage_of(op.tensor);
  if (!w.fact().slotted) {
    const std::vector<std::int64_t>& cuts = cuts_[index(op.tensor)];
    const auto at = [&](std::int64_t element) { return std::lower_bound(cuts.begin(), cuts.end(), element) - cuts.begin(); };
    Cell* base = of_sm.data() + place_base_[index(op.tensor)];
    return {base + at(region.begin), base + at(region.end)};
  }
  const int parts = storage.by_warp ? dag_.resources.consumer_warps : 1;
  Cell* slot = of_sm.data() + slot_base_[index(tensor(op.tensor).storage)] + use % storage.slots * parts;
  if (!storage.by_warp) return {slot, slot + 1};
  if (w.program->role != WarpRole::consumer) return {slot, slot + parts};
  Cell* own = slot + std::min(parts - 1, w.local - w.program->first_warp);
  return {own, own + 1};
}

bool ProtocolRun::read(Warp& w, const SyncOp& op, int use) {
  if (tensor(op.tensor).appended) return read_appended(w, op);
  const std::optional<Version> version = needed_version(w);
  if (!version) return race(fmt::format("{} reads {}, which nothing has written for it", here(w), tensor(op.tensor).name));
  const bool same_task = version->stage == stage_of(w) && op.each != Each::stage && op.use >= 0;
  const Stamp who = stamp(w, op);
  return for_cells(w, op, use, false, [&](Cell& cell) {
    const bool right = cell.tensor == op.tensor && cell.version == *version &&
                       (!same_task || (cell.task == w.walk.tasks()[index(w.walk.task())].id() &&
                                       cell.part == (op.each == Each::part ? w.walk.part() : 0)));
    if (!right)
      return race(fmt::format("{} reads {} and may find {}{}, but must find {}", here(w), tensor(op.tensor).name, words(cell.version),
                              cell.tensor == op.tensor || cell.tensor < 0 ? "" : " of " + tensor(cell.tensor).name, words(*version)));
    for (const int lane : {kFirst, kOthers}) {
      if (!takes_part(op, lane) || knows(w.lanes[index(lane)].memory, cell.write)) continue;
      return race(fmt::format("{} reads {}, but nothing makes sure that {} by {} can be seen by {}", here(w), tensor(op.tensor).name,
                              words(cell.version),
                              cell.write.first >= 2 * warps_ ? "an asynchronous copy" : name_of(w.sm, cell.write.warp),
                              lane == kFirst ? "its first lane" : "its other lanes"));
    }
    cell.reads.push_back(who);
    return true;
  });
}

/// Before a cell is written again, everybody is done with it.
bool ProtocolRun::overwrite(const Warp& w, const SyncOp& op, Cell& cell, const Stamp& who) {
  const auto follows_stamp = [&](const Stamp& before) {
    if (before.warp < 0) return true;
    for (const int lane : {kFirst, kOthers})
      if (takes_part(op, lane) && !knows(w.lanes[index(lane)].memory, before)) return false;
    return true;
  };
  for (const Stamp& reader : cell.reads) {
    if (!follows_stamp(reader))
      return race(fmt::format("{} writes {} while {} may still read {} there", here(w), tensor(op.tensor).name,
                              name_of(w.sm, reader.warp), words(cell.version)));
  }
  if (!follows_stamp(cell.write))
    return race(fmt::format("{} writes {}, and nothing orders that behind {}", here(w), tensor(op.tensor).name, words(cell.version)));
  cell.tensor = op.tensor;
  cell.version = version_here(w);
  cell.task = op.each == Each::stage ? -1 : w.walk.tasks()[index(w.walk.task())].id();
  cell.part = op.each == Each::part ? w.walk.part() : 0;
  cell.write = who;
  cell.reads.clear();
  return true;
}

bool ProtocolRun::write(Warp& w, const SyncOp& op, int use) {
  return tensor(op.tensor).appended ? append(w, op) : fill(w, op, use, stamp(w, op));
}

bool ProtocolRun::fill(Warp& w, const SyncOp& op, int use, const Stamp& who) {
  return for_cells(w, op, use, true, [&](Cell& cell) { return overwrite(w, op, cell, who); });
}

/// Positions of the steps before. Without views a warp reads what it appended itself.
bool ProtocolRun::read_appended(Warp& w, const SyncOp& op) {
  for (const Region& region : regions(w, op, false)) {
    const std::int64_t unit = op.views.empty() ? region.end - region.begin : op.views.front().unit;
    for (std::int64_t begin = region.begin; begin < region.end; begin += unit) {
      const auto found = appended_.find({w.walk.layer(), begin, region.part, op.views.empty() ? w.local : -1});
      if (found == appended_.end()) continue;
      const Append& last = found->second[found->second[0].step < w.walk.step() ? 0 : 1];
      if (last.step < 0) continue;   // by no step of this walk
      if (last.step < w.walk.step() - 1)
        return race(fmt::format("{} reads {}, but nobody appended step {} to it", here(w), tensor(op.tensor).name, w.walk.step() - 1));
      for (const int lane : {kFirst, kOthers}) {
        if (!takes_part(op, lane)) continue;
        const Clock& inside = w.lanes[index(lane)];
        if (follows(outside_of(w.sm, inside), inside, w.sm, last.sm, last.stamp, true)) continue;
        return race(fmt::format("{} reads {}, but nothing makes sure that what {} appended in step {} can be seen", here(w),
                                tensor(op.tensor).name, name_of(last.sm, last.stamp.warp), last.step));
      }
    }
  }
  return true;
}

bool ProtocolRun::append(Warp& w, const SyncOp& op) {
  for (const Region& region : regions(w, op, true)) {
    const std::int64_t unit = op.views.empty() ? region.end - region.begin : op.views.front().unit;
    for (std::int64_t begin = region.begin; begin < region.end; begin += unit) {
      std::array<Append, 2>& last = appended_[{w.walk.layer(), begin, region.part, op.views.empty() ? w.local : -1}];
      if (last[0].step < w.walk.step()) last[1] = last[0];
      last[0] = {w.sm, w.walk.step(), stamp(w, op)};
    }
  }
  return true;
}

}  // namespace adamk::validation
