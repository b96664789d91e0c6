// Walks a warp through its program: which operation comes next, in which step, layer, task and part.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adamk/dag/tile_dag.h"

namespace adamk::validation {

/// How often the loops of the template are gone through: often enough that whatever can meet in the whole kernel meets in the walk
/// (docs/trust.md). A layer of the walk stands for one of the model's: the first ones and, where some are left out, the last.
struct WalkSize {
  int layers = 1;
  std::vector<int> steps = {1};   // of each launch
  std::vector<int> parts;         // of a task of each stage
  std::vector<int> tasks;         // the most of an SM in each stage that are gone through one by one
};
WalkSize walk_size(const TileDag& dag);

/// A task; or `count` of them at once, where a walk does not go through all.
struct TaskAt {
  const TaskRange* range = nullptr;
  int i = 0, count = 1;
  int id() const { return range->first + i; }
  Region region(const Access& access) const;
};

/// The tasks of one role on one SM in one stage, in order.
using Tasks = std::vector<TaskAt>;

class TaskTable {
 public:
  TaskTable(const TileDag& dag, const WalkSize& size);
  const Tasks& of(int stage, WarpRole role, int sm) const;

 private:
  int grid_;
  std::vector<Tasks> tasks_;
};

/// Where the loops of a section lie: op -> the run of task ops and the run of part ops it belongs to; [op, op) outside of one.
struct SectionShape {
  std::vector<std::pair<int, int>> task_loop, part_loop;
  explicit SectionShape(const std::vector<SyncOp>& ops);
};

/// A warp's place in its program. `op()` is null once the launch is over.
class Walk {
 public:
  Walk(const TileDag& dag, const WarpProgram& program, const std::vector<SectionShape>& shapes, const TaskTable& tasks, int sm,
       const WalkSize& size);

  void begin_launch(int launch, int first_step);
  const SyncOp* op() const;
  void next();

  int section() const { return section_; }
  int op_index() const { return op_; }
  int step() const { return step_; }                       // over all launches
  int layer() const { return layer_; }                     // -1 in the prologue, `size.layers` in the epilogue and behind it
  int task() const { return task_; }
  int part() const { return part_; }
  const Tasks& tasks() const { return *current_; }

 private:
  void enter_section();
  void enter_op();
  void next_section();
  bool left_out(const SyncOp& op) const;
  Section of(int section) const;

  const TileDag& dag_;
  const WarpProgram& program_;
  const std::vector<SectionShape>& shapes_;
  const TaskTable& table_;
  const int sm_;
  const WalkSize& size_;
  int launch_ = 0, step_ = 0, last_step_ = 0, layer_ = -1, section_ = 0, op_ = 0, task_ = 0, part_ = 0;
  const Tasks* current_ = nullptr;
};

}  // namespace adamk::validation
