#include "protocol_walk.h"

#include <algorithm>
#include <array>

namespace adamk::validation {

namespace {

constexpr std::size_t kRoles = 4;

/// Can the tasks of a range be taken together? Their regions are one, or lie side by side.
bool merges(const TaskRange& range) {
  for (const auto* accesses : {&range.reads, &range.writes}) {
    for (const Access& access : *accesses)
      if (access.stride != 0 && access.stride != access.region.end - access.region.begin) return false;
  }
  return true;
}

/// Tasks [0, n) of a stage on one SM as runs: each by itself, but of a long stretch that no role interrupts all from the keep-th to the
/// last but one together. Empty: the roles' tasks do not correspond.
std::vector<int> runs_of(const std::array<std::vector<const TaskRange*>, kRoles>& roles, int keep) {
  int n = -1;
  std::vector<char> breaks;
  for (const auto& ranges : roles) {
    if (ranges.empty()) continue;
    int count = 0;
    for (const TaskRange* range : ranges) count += range->count;
    if (n >= 0 && count != n) return {};
    n = count;
    breaks.resize(static_cast<std::size_t>(n) + 1);
    int at = 0;
    for (const TaskRange* range : ranges) {
      breaks[static_cast<std::size_t>(at)] = 1;
      for (int i = 0; !merges(*range) && i < range->count; ++i) breaks[static_cast<std::size_t>(at + i)] = 1;
      at += range->count;
    }
  }
  std::vector<int> runs;
  for (int begin = 0; begin < n;) {
    int end = begin + 1;
    while (end < n && !breaks[static_cast<std::size_t>(end)]) ++end;
    const int together = end - begin > keep ? end - begin - keep + 1 : 1;
    for (int at = begin; at < end;) {
      runs.push_back(at == begin + keep - 2 ? together : 1);
      at += runs.back();
    }
    begin = end;
  }
  return runs;
}

}  // namespace

/// With b buffers and u uses a layer, a buffer comes round after b / u layers; within a stage, after b / parts tasks. Two or three more
/// of each for what lies before and behind.
WalkSize walk_size(const TileDag& dag) {
  WalkSize size;
  int buffers = 2, layers = 1, steps = 1;
  for (const BarrierArray& b : dag.protocol.barriers) buffers = std::max(buffers, b.buffers);
  const auto rounds = [&](std::int64_t uses) { return static_cast<int>((buffers + uses - 1) / uses); };
  std::vector<std::int64_t> of_layer(static_cast<std::size_t>(std::max(0, dag.resources.grid))), of_end = of_layer;
  for (const DagStage& stage : dag.stages) {
    size.parts.push_back(std::min(stage.parts, buffers + 2));
    size.tasks.push_back(rounds(size.parts.back()) + 3);
    for (const TaskRange& range : stage.ranges) {
      if (range.role != WarpRole::loader || range.sm < 0 || range.sm >= dag.resources.grid) continue;
      (stage.section == Section::layer ? of_layer : of_end)[static_cast<std::size_t>(range.sm)] +=
          std::int64_t{std::min(range.count, size.tasks.back())} * size.parts.back();
    }
  }
  for (std::size_t sm = 0; sm < of_layer.size(); ++sm) {
    if (of_layer[sm] > 0) layers = std::max(layers, rounds(of_layer[sm]));
    else if (of_end[sm] > 0) steps = std::max(steps, rounds(of_end[sm]));
  }
  size.layers = std::min(dag.layers, layers + 2);
  // Two slots that steps take in turn need a third step; a second launch shows what is kept and what is new.
  size.steps = {steps + 2, 1};
  return size;
}

Region TaskAt::region(const Access& access) const {
  Region region = access.at(i);
  region.end = access.at(i + count - 1).end;
  return region;
}

TaskTable::TaskTable(const TileDag& dag, const WalkSize& size) : grid_(dag.resources.grid) {
  const auto grid = static_cast<std::size_t>(grid_);
  tasks_.resize(dag.stages.size() * kRoles * grid);
  for (std::size_t stage = 0; stage < dag.stages.size(); ++stage) {
    std::vector<std::array<std::vector<const TaskRange*>, kRoles>> of_sm(grid);
    for (const TaskRange& range : dag.stages[stage].ranges) {
      if (range.sm >= 0 && range.sm < grid_)
        of_sm[static_cast<std::size_t>(range.sm)][static_cast<std::size_t>(range.role)].push_back(&range);
    }
    for (std::size_t sm = 0; sm < grid; ++sm) {
      const std::vector<int> runs = runs_of(of_sm[sm], size.tasks[stage]);
      for (std::size_t role = 0; role < kRoles; ++role) {
        Tasks& mine = tasks_[(stage * kRoles + role) * grid + sm];
        std::size_t run = 0;
        for (const TaskRange* range : of_sm[sm][role]) {
          for (int i = 0; i < range->count;) {
            mine.push_back({range, i, runs.empty() ? 1 : runs[run++]});
            i += mine.back().count;
          }
        }
      }
    }
  }
}

const Tasks& TaskTable::of(int stage, WarpRole role, int sm) const {
  return tasks_[(static_cast<std::size_t>(stage) * kRoles + static_cast<std::size_t>(role)) * static_cast<std::size_t>(grid_) +
                static_cast<std::size_t>(sm)];
}

SectionShape::SectionShape(const std::vector<SyncOp>& ops) {
  const int n = static_cast<int>(ops.size());
  const auto runs = [&](auto inside) {
    std::vector<std::pair<int, int>> found;
    for (int i = 0; i < n;) {
      int end = i;
      while (end < n && inside(ops[static_cast<std::size_t>(end)])) ++end;
      if (end == i) {
        found.emplace_back(i, i);
        ++i;
      }
      for (const int begin = i; i < end; ++i) found.emplace_back(begin, end);
    }
    return found;
  };
  task_loop = runs([](const SyncOp& op) { return op.each != Each::stage; });
  part_loop = runs([](const SyncOp& op) { return op.each == Each::part; });
}

Walk::Walk(const TileDag& dag, const WarpProgram& program, const std::vector<SectionShape>& shapes, const TaskTable& tasks, int sm,
           const WalkSize& size)
    : dag_(dag), program_(program), shapes_(shapes), table_(tasks), sm_(sm), size_(size) {}

Section Walk::of(int section) const {
  const int stage = program_.sections[static_cast<std::size_t>(section)].stage;
  return dag_.stages[static_cast<std::size_t>(stage)].section;
}

void Walk::begin_launch(int launch, int first_step) {
  launch_ = launch;
  step_ = first_step;
  last_step_ = first_step + size_.steps[static_cast<std::size_t>(launch)] - 1;
  layer_ = -1;
  section_ = -1;
  next_section();
}

const SyncOp* Walk::op() const {
  if (section_ >= static_cast<int>(program_.sections.size())) return nullptr;
  return &program_.sections[static_cast<std::size_t>(section_)].ops[static_cast<std::size_t>(op_)];
}

/// The next section with operations that this warp runs: round the layer's sections for every layer, round all for every step.
void Walk::next_section() {
  const auto& sections = program_.sections;
  const int n = static_cast<int>(sections.size());
  int at = section_ + 1;
  for (;;) {
    const bool exits = at == n || sections[static_cast<std::size_t>(at)].stage < 0;
    const Section here = exits ? Section::epilogue : of(at);
    if (layer_ < 0 && here != Section::prologue) layer_ = here == Section::layer ? 0 : size_.layers;
    if (layer_ >= 0 && layer_ < size_.layers && here == Section::epilogue) {   // the layer's sections are through
      int first = at;
      while (first > 0 && of(first - 1) == Section::layer) --first;
      if (++layer_ < size_.layers && first < at) at = first;
      else layer_ = size_.layers;
      continue;
    }
    if (exits && step_ < last_step_) {
      ++step_;
      layer_ = -1;
      at = 0;
      if (n == 0) at = n;
      continue;
    }
    if (at == n) break;
    section_ = at;
    enter_section();
    if (op_ < static_cast<int>(sections[static_cast<std::size_t>(at)].ops.size())) return;
    ++at;
  }
  section_ = n;
}

void Walk::enter_section() {
  static const Tasks none;
  const ProgramSection& section = program_.sections[static_cast<std::size_t>(section_)];
  current_ = section.stage < 0 ? &none : &table_.of(section.stage, program_.role, sm_);
  op_ = task_ = part_ = 0;
  enter_op();
}

bool Walk::left_out(const SyncOp& op) const {
  if (op.after_first && layer_ == 0) return true;
  if (op.when == When::always) return false;
  const bool busy = !table_.of(op.stage, WarpRole::storer, sm_).empty();
  return busy != (op.when == When::busy);
}

/// Moves on from an operation that is left out.
void Walk::enter_op() {
  const auto& ops = program_.sections[static_cast<std::size_t>(section_)].ops;
  const SectionShape& shape = shapes_[static_cast<std::size_t>(section_)];
  while (op_ < static_cast<int>(ops.size())) {
    const auto at = static_cast<std::size_t>(op_);
    if (shape.task_loop[at].first < shape.task_loop[at].second && current_->empty()) op_ = shape.task_loop[at].second;
    else if (ops[at].each == Each::stage && left_out(ops[at])) ++op_;
    else return;
  }
}

void Walk::next() {
  const ProgramSection& section = program_.sections[static_cast<std::size_t>(section_)];
  const SectionShape& shape = shapes_[static_cast<std::size_t>(section_)];
  const auto at = static_cast<std::size_t>(op_);
  const auto [task_begin, task_end] = shape.task_loop[at];
  const auto [part_begin, part_end] = shape.part_loop[at];
  ++op_;
  if (part_begin < part_end && op_ == part_end) {
    if (++part_ < size_.parts[static_cast<std::size_t>(section.stage)]) {
      op_ = part_begin;
      return;
    }
    part_ = 0;
  }
  if (task_begin < task_end && op_ == task_end) {
    if (++task_ < static_cast<int>(current_->size())) {
      op_ = task_begin;
      return;
    }
    task_ = 0;
  }
  enter_op();
  if (op_ == static_cast<int>(section.ops.size())) next_section();
}

}  // namespace adamk::validation
