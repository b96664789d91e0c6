#include "protocol_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace adamk::explorer {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Task {
  const TaskRange* range;
  int number;   // within the range
};

/// Elements [begin, end); of an appended tensor, whose positions these are.
struct Interval {
  std::int64_t begin = 0, end = 0;
  int part = 0, parts = 1;
  auto operator<=>(const Interval&) const = default;
};

struct Cells {
  int first = 0, count = 0;
};

class Builder {
 public:
  Builder(const TileDag& dag, const ProtocolRuns& runs) : dag_(dag), p_(dag.protocol), runs_(runs), grid_(dag.resources.grid) {}

  System build() {
    system_.computes = true;
    for (const DagStage& stage : dag_.stages) system_.stages.push_back(stage.name);
    find_tasks();
    cut_tensors();
    lay_out_memory();
    for (std::size_t c = 0; c < p_.counters.size(); ++c) system_.add_counter();
    launch_counter_ = system_.add_counter();
    make_threads();
    int first_step = 0;
    for (const int steps : runs_.steps) {
      add_launch(first_step, steps);
      first_step += steps;
    }
    system_.engines = static_cast<int>(engines_.size());
    return std::move(system_);
  }

 private:
  struct Memory {
    int slots = 1, shares = 1, parts = 1;   // a slot is so many shares of so many cells
    std::vector<int> first;                 // of each SM, or one for all
  };

  bool apart() const { return runs_.lanes != LaneModel::together; }
  const DagTensor& tensor(int id) const { return dag_.tensors[index(id)]; }
  const Storage& storage(int id) const { return p_.storages[index(tensor(id).storage)]; }
  bool crosses(int id) const { return storage(id).space == MemorySpace::global && !tensor(id).appended; }
  bool slotted(int id) const { return storage(id).space == MemorySpace::shared && (storage(id).by_warp || storage(id).slots > 1); }

  // ---- tasks --------------------------------------------------------------------------------------------------------------------

  void find_tasks() {
    for (std::size_t stage = 0; stage < dag_.stages.size(); ++stage) {
      for (const TaskRange& range : dag_.stages[stage].ranges) {
        for (int i = 0; i < range.count; ++i) tasks_[{static_cast<int>(stage), range.role, range.sm}].push_back({&range, i});
      }
    }
  }
  const std::vector<Task>& tasks(int stage, WarpRole role, int sm) const {
    static const std::vector<Task> none;
    const auto found = tasks_.find({stage, role, sm});
    return found == tasks_.end() ? none : found->second;
  }

  /// What a task does with which operands: every region that it declares. Constants are there from the start, and in here.
  static std::size_t hash(const std::vector<Task>& tasks, std::size_t seed) {
    const auto add = [&](std::int64_t x) { seed = (seed ^ static_cast<std::size_t>(x)) * 0x100000001b3u + 0x9e3779b9u; };
    for (const Task& task : tasks) {
      for (const auto* accesses : {&task.range->reads, &task.range->writes}) {
        add(-1);
        for (const Access& access : *accesses) {
          const Region r = access.at(task.number);
          for (const std::int64_t x : {std::int64_t{r.tensor}, r.begin, r.end, std::int64_t{r.part}, std::int64_t{r.parts}}) add(x);
        }
      }
    }
    return seed;
  }
  static int value(std::size_t hash) { return static_cast<int>((hash ^ hash >> 31) & 0x7fffffff); }

  // ---- memory -------------------------------------------------------------------------------------------------------------------

  /// Tensors that lie in one storage are cut alike, so that what one writes the other meets.
  void cut_tensors() {
    cuts_.resize(p_.storages.size());
    for (const DagStage& stage : dag_.stages) {
      for (const TaskRange& range : stage.ranges) {
        for (const auto* accesses : {&range.reads, &range.writes}) {
          for (const Access& access : *accesses) {
            for (int i = 0; i < range.count; ++i) cut(access.region.tensor, access.at(i).begin, access.at(i).end);
          }
        }
      }
    }
    for (const WarpProgram& program : p_.programs) {
      for (const ProgramSection& section : program.sections) {
        for (const SyncOp& op : section.ops) {
          for (const ColumnView& view : op.views) {
            if (section.stage < 0) continue;
            for (const KSlice& slice : dag_.stages[index(section.stage)].slices) {
              for (const bool begins : {false, true})
                for (const Interval& seen : through(view, slice, begins)) cut(op.tensor, seen.begin, seen.end);
            }
          }
        }
      }
    }
    for (auto& cuts : cuts_) {
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
  }
  void cut(int id, std::int64_t begin, std::int64_t end) {
    if (id >= 0 && tensor(id).storage >= 0 && begin < end) cuts_[index(tensor(id).storage)].insert(cuts_[index(tensor(id).storage)].end(), {begin, end});
  }

  /// Unit u of a view stands for columns [u, u + 1) x columns x unit / elements.
  static std::vector<Interval> through(const ColumnView& view, const KSlice& slice, bool begins) {
    std::vector<Interval> seen;
    if (slice.begin >= slice.end || view.elements <= 0 || view.unit <= 0) return seen;
    const std::int64_t width = view.columns * view.unit;
    for (std::int64_t u = 0; u * view.unit < view.elements; ++u) {
      const bool before_end = u * width < slice.end * view.elements;
      const bool mine = before_end && (begins ? u * width >= slice.begin * view.elements : (u + 1) * width > slice.begin * view.elements);
      if (!mine) continue;
      const std::int64_t begin = view.begin + u * view.unit, end = view.begin + std::min(view.elements, (u + 1) * view.unit);
      if (!seen.empty() && seen.back().end == begin) seen.back().end = end;
      else seen.push_back({begin, end});
    }
    return seen;
  }

  std::size_t bounds(std::size_t s, int cell) const {
    return index(cuts_[s][index(cell)]) * 65537 + index(cell + 1 < static_cast<int>(cuts_[s].size()) ? cuts_[s][index(cell + 1)] : 0);
  }
  int cells_of(std::size_t s) const { return std::max<int>(1, static_cast<int>(cuts_[s].size()) - 1); }

  void lay_out_memory() {
    for (const int steps : runs_.steps) positions_ += steps;
    std::set<int> copied, appended;   // storages that every lane copies into; that positions are appended to
    for (const WarpProgram& program : p_.programs) {
      for (const ProgramSection& section : program.sections) {
        for (const SyncOp& op : section.ops)
          if (op.kind == SyncKind::copy && op.lanes == LaneSet::all) copied.insert(tensor(op.tensor).storage);
      }
    }
    for (const DagTensor& t : dag_.tensors)
      if (t.appended) appended.insert(t.storage);
    for (std::size_t s = 0; s < p_.storages.size(); ++s) {
      const Storage& of = p_.storages[s];
      Memory m;
      m.slots = of.slots;
      const bool in_slots = of.space == MemorySpace::shared && (of.by_warp || of.slots > 1);
      m.parts = in_slots ? (of.by_warp ? dag_.resources.consumer_warps : 1) : cells_of(s);
      if (appended.contains(static_cast<int>(s))) m.slots = dag_.layers * positions_;
      m.shares = apart() || copied.contains(static_cast<int>(s)) || appended.contains(static_cast<int>(s)) ? 2 : 1;
      const int copies = of.space == MemorySpace::shared ? grid_ : 1;
      for (int sm = 0; sm < copies; ++sm) {
        m.first.push_back(add_cells(m.slots * m.shares * m.parts, copies > 1 ? fmt::format("SM {} {}", sm, of.name) : of.name));
        // Which slot of which storage does not matter to whoever finds in it what he must.
        for (int i = 0; i < m.slots * m.shares * m.parts; ++i)
          system_.cell_keys.push_back(in_slots || cuts_[s].empty() ? index(i % m.parts) : bounds(s, i % m.parts));
      }
      memory_.push_back(std::move(m));
    }
  }

  int add_cells(int count, const std::string& name) {
    const int first = system_.add_cells(count);
    for (int i = 0; i < count; ++i) system_.cell_names.push_back(count == 1 ? name : fmt::format("{} {}", name, i));
    return first;
  }

  // ---- threads ------------------------------------------------------------------------------------------------------------------

  struct Warp {
    const WarpProgram* program = nullptr;
    int sm = 0, number = 0;                 // among the program's warps
    int thread = 0;                         // of the first lane, or of all
    std::vector<int> uses;
    int rendezvous = -1, met = 0;           // of its two threads; how often
  };

  void make_threads() {
    for (int sm = 0; sm < grid_; ++sm) {
      for (const WarpProgram& program : p_.programs) {
        for (int w = 0; w < program.warps; ++w) {
          warps_.push_back({&program, sm, w, static_cast<int>(system_.threads.size()), std::vector<int>(p_.uses.size()), -1, 0});
          const std::string name = fmt::format("SM {} {} {}", sm, to_string(program.role), w);
          system_.threads.push_back({name, {}});
          if (apart()) system_.threads.push_back({name + ", other lanes", {}});
        }
      }
    }
  }

  int add_barrier(int arrivals, std::string name) {
    system_.barrier_names.push_back(std::move(name));
    return system_.add_barrier(arrivals);
  }

  void add_launch(int first_step, int steps) {
    first_barrier_.clear();
    for (int sm = 0; sm < grid_; ++sm) {
      for (const BarrierArray& b : p_.barriers) {
        first_barrier_.push_back(static_cast<int>(system_.barriers.size()));
        for (int i = 0; i < b.buffers; ++i)
          add_barrier(b.arrivals > 0 ? b.arrivals : b.copies, fmt::format("{}[{}] of SM {}", b.name, i, sm));
      }
    }
    ++launch_;
    for (Warp& w : warps_) {
      for (std::size_t u = 0; u < w.uses.size(); ++u)
        if (!p_.uses[u].kept) w.uses[u] = 0;
      if (apart()) w.rendezvous = add_barrier(2, system_.threads[index(w.thread)].name + " together");
      w.met = 0;
      run(w, first_step, steps);
      end_launch(w);
    }
  }

  /// A launch ends when all its warps have, and the next one begins after that.
  void end_launch(const Warp& w) {
    where_ = {};
    const int all = static_cast<int>(system_.threads.size());
    for (int lane = 0; lane < (apart() ? 2 : 1); ++lane) {
      std::vector<Op>& ops = system_.threads[index(w.thread + lane)].ops;
      if (!apart()) ops.push_back({.kind = OpKind::sync});
      ops.push_back({.kind = OpKind::end, .object = w.thread, .count = apart() ? 2 : 1});
      ops.push_back({.kind = OpKind::add, .object = launch_counter_});
      ops.push_back({.kind = OpKind::await, .object = launch_counter_, .argument = launch_ * all});
    }
  }

  void run(Warp& w, int first_step, int steps) {
    const auto run_sections = [&](Section of) {
      for (const ProgramSection& section : w.program->sections)
        if (section.stage >= 0 && dag_.stages[index(section.stage)].section == of) run(w, section);
    };
    for (step_ = first_step; step_ < first_step + steps; ++step_) {
      layer_ = -1;
      run_sections(Section::prologue);
      for (layer_ = 0; layer_ < dag_.layers; ++layer_) run_sections(Section::layer);
      run_sections(Section::epilogue);
    }
    --step_;
    for (const ProgramSection& section : w.program->sections)
      if (section.stage < 0) run(w, section);
  }

  void run(Warp& w, const ProgramSection& section) {
    where_ = {step_, layer_, section.stage, -1};
    const std::vector<Task>& all = section.stage < 0 ? tasks(-1, w.program->role, w.sm) : tasks(section.stage, w.program->role, w.sm);
    if (!all.empty()) take_constants(w, section.stage, all);
    const std::vector<SyncOp>& ops = section.ops;
    for (std::size_t i = 0; i < ops.size();) {
      if (ops[i].each == Each::stage) {
        if (!left_out(ops[i], w.sm)) emit(w, ops[i], all, 0, 1);
        ++i;
        continue;
      }
      std::size_t end = i;
      while (end < ops.size() && ops[end].each != Each::stage) ++end;
      for (const Task& task : all) {
        where_.tile = task.range->first + task.number;
        run_task(w, section.stage, {ops.begin() + static_cast<std::ptrdiff_t>(i), ops.begin() + static_cast<std::ptrdiff_t>(end)}, {task});
      }
      where_.tile = -1;
      i = end;
    }
  }

  void run_task(Warp& w, int stage, const std::vector<SyncOp>& ops, const std::vector<Task>& task) {
    const int parts = dag_.stages[index(stage)].parts;
    for (std::size_t i = 0; i < ops.size();) {
      if (ops[i].each == Each::task) {
        emit(w, ops[i], task, 0, 1);
        ++i;
        continue;
      }
      std::size_t end = i;
      while (end < ops.size() && ops[end].each == Each::part) ++end;
      for (int part = 0; part < parts; ++part) {
        for (std::size_t k = i; k < end; ++k) emit(w, ops[k], task, part, parts);
      }
      i = end;
    }
  }

  bool left_out(const SyncOp& op, int sm) const {
    if (op.after_first && layer_ == 0) return true;
    if (op.when == When::always) return false;
    return tasks(op.stage, WarpRole::storer, sm).empty() != (op.when == When::idle);
  }

  /// Weights, gains and all that a stage's tasks declare, in one cell of the warp's own.
  void take_constants(const Warp& w, int stage, const std::vector<Task>& all) {
    auto [at, fresh] = constants_.try_emplace({w.thread, stage});
    if (fresh) {
      at->second = add_cells(1, "constants");
      system_.cell_keys.push_back(~index(stage));
      std::size_t all_of_it = hash(all, index(stage) + 1);
      const std::vector<KSlice>& slices = dag_.stages[index(stage)].slices;
      if (w.program->role == WarpRole::consumer && index(w.number) < slices.size())
        all_of_it = all_of_it * 31 + static_cast<std::size_t>(slices[index(w.number)].begin * 65537 + slices[index(w.number)].end);
      system_.cells[index(at->second)] = value(all_of_it);
    }
    put(w, LaneSet::all, {.kind = OpKind::read, .object = at->second});
  }

  // ---- operations ---------------------------------------------------------------------------------------------------------------

  void put(const Warp& w, LaneSet lanes, Op op) {
    op.where = where_;
    if (!apart()) {
      op.lanes = lanes == LaneSet::first ? Lanes::first : Lanes::all;
      system_.threads[index(w.thread)].ops.push_back(op);
      return;
    }
    op.lanes = Lanes::first;   // a thread of its own for each kind of lanes
    for (int lane = 0; lane < (lanes == LaneSet::first ? 1 : 2); ++lane) system_.threads[index(w.thread + lane)].ops.push_back(op);
  }

  /// Every lane's own arrival or add.
  void put_counted(const Warp& w, const SyncOp& of, const Op& op) {
    put(w, of.lanes, op);
    if (of.lanes == LaneSet::first) return;
    for (int i = apart() ? 2 : 1; i < 32; ++i) {
      if (!apart()) {
        put(w, of.lanes, op);
        continue;
      }
      Op mine = op;
      mine.where = where_;
      mine.lanes = Lanes::first;
      system_.threads[index(w.thread + 1)].ops.push_back(mine);
    }
  }

  void emit(Warp& w, const SyncOp& op, const std::vector<Task>& of, int part, int parts) {
    if (op.kind == SyncKind::advance) {
      ++w.uses[index(op.use)];
      return;
    }
    const int use = op.use < 0 ? 0 : w.uses[index(op.use)] + op.offset;
    if (use < 0) return;
    switch (op.kind) {
      case SyncKind::wait: {
        const BarrierArray& b = p_.barriers[index(op.barrier)];
        const int turn = use / b.buffers + op.turn;
        put(w, op.lanes, {.kind = OpKind::wait, .object = barrier(w, op, use), .argument = (turn + 1) & 1, .relaxed = op.relaxed, .turn = turn});
        return;
      }
      case SyncKind::arrive:
      case SyncKind::expect: {
        const BarrierArray& b = p_.barriers[index(op.barrier)];
        const bool expects = op.kind == SyncKind::expect && b.arrivals > 0 && b.copies > 0;
        put_counted(w, op, {.kind = expects ? OpKind::expect : OpKind::arrive, .object = barrier(w, op, use), .argument = b.copies,
                            .relaxed = op.relaxed, .turn = use / b.buffers + 1});
        return;
      }
      case SyncKind::add: put_counted(w, op, {.kind = OpKind::add, .object = op.counter, .relaxed = op.relaxed}); return;
      case SyncKind::await:
        put(w, op.lanes, {.kind = OpKind::await, .object = op.counter,
                          .argument = static_cast<int>(p_.counters[index(op.counter)].target.at(step_, layer_ + op.layer)), .relaxed = op.relaxed});
        return;
      case SyncKind::sync: sync(w, op); return;
      case SyncKind::fence: put(w, op.lanes, {.kind = OpKind::fence}); return;
      default: touch(w, op, of, use, part, parts); return;
    }
  }

  int barrier(const Warp& w, const SyncOp& op, int use) const {
    return first_barrier_[index(w.sm) * p_.barriers.size() + index(op.barrier)] + use % p_.barriers[index(op.barrier)].buffers;
  }

  void sync(Warp& w, const SyncOp& op) {
    if (!apart()) {
      if (!op.relaxed) put(w, LaneSet::all, {.kind = OpKind::sync});
      return;
    }
    ++w.met;
    put(w, LaneSet::all, {.kind = OpKind::arrive, .object = w.rendezvous, .relaxed = op.relaxed, .turn = w.met});
    put(w, LaneSet::all, {.kind = OpKind::wait, .object = w.rendezvous, .argument = (w.met + 1) & 1, .turn = w.met});
  }

  static bool writes(SyncKind kind) {
    return kind == SyncKind::write || kind == SyncKind::store || kind == SyncKind::publish || kind == SyncKind::copy;
  }
  static OpKind kind_of(SyncKind kind) {
    switch (kind) {
      case SyncKind::copy: return OpKind::copy;
      case SyncKind::read: return OpKind::read;
      case SyncKind::write: return OpKind::write;
      case SyncKind::load: return OpKind::load;
      case SyncKind::store: return OpKind::store;
      case SyncKind::publish: return OpKind::publish;
      default: return OpKind::poll;
    }
  }

  void touch(const Warp& w, const SyncOp& op, const std::vector<Task>& of, int use, int part, int parts) {
    if (tensor(op.tensor).storage < 0) return;
    const bool puts = writes(op.kind);
    // What parts publish is there with the last of them.
    if (puts && crosses(op.tensor) && op.each == Each::part && part + 1 < parts) return;
    Op made{.kind = kind_of(op.kind), .value = op.tensor, .position = tensor(op.tensor).appended};
    if (op.kind == SyncKind::publish || op.kind == SyncKind::poll) made.argument = static_cast<int>(static_cast<std::uint32_t>(p_.tag.at(step_, layer_ + op.layer)));
    if (puts) {
      std::size_t seed = hash(of, index(where_.stage) + 1);
      for (const int x : {step_, layer_, crosses(op.tensor) ? 0 : part, static_cast<int>(w.program->role)}) seed = seed * 31 + index(x + 2);
      made.value = value(seed);
      made.output = tensor(op.tensor).appended || (crosses(op.tensor) && dag_.stages[index(where_.stage)].section == Section::epilogue);
    }
    const std::vector<Cells> runs = cells(w, op, of, use, puts);
    const Memory& memory = memory_[index(tensor(op.tensor).storage)];
    if (op.kind == SyncKind::copy) copy(w, op, use, made, runs, memory);
    else for (std::size_t i = 0; i < runs.size(); ++i) touch_cells(w, op, made, runs[i], memory);
  }

  /// Shares: those of the first lanes lie before those of the others.
  void touch_cells(const Warp& w, const SyncOp& op, const Op& made, Cells run, const Memory& memory) {
    const auto at = [&](LaneSet lanes, int lane, Cells of, int share) {
      if (of.count == 0) return;
      Op mine = made;
      mine.object = of.first + share * memory.parts;
      mine.count = of.count;
      mine.where = where_;
      mine.lanes = Lanes::first;
      if (lane < 0) put(w, lanes, mine);
      else system_.threads[index(w.thread + lane)].ops.push_back(mine);
    };
    if (!apart() && op.lanes == LaneSet::all && op.kind == SyncKind::write && memory.shares == 2) {   // each lane its own
      for (int lane = 0; lane < 2; ++lane) {
        Op mine = made;
        mine.object = run.first + lane * memory.parts;
        mine.count = run.count;
        mine.where = where_;
        mine.lanes = lane == 0 ? Lanes::first : Lanes::others;
        system_.threads[index(w.thread)].ops.push_back(mine);
      }
      return;
    }
    const bool whole = !apart() || op.lanes == LaneSet::first || op.kind == SyncKind::read;
    if (whole) {
      for (int share = 0; share < memory.shares; ++share) at(op.lanes, -1, run, share);
      return;
    }
    if (runs_.lanes == LaneModel::first || runs_.lanes == LaneModel::others) {
      for (int share = 0; share < memory.shares; ++share) at(op.lanes, runs_.lanes == LaneModel::first ? 0 : 1, run, share);
      return;
    }
    if (writes(op.kind) || runs_.lanes == LaneModel::shares) {
      for (int lane = 0; lane < 2; ++lane) at(op.lanes, lane, run, lane);
      return;
    }
    const int half = runs_.lanes == LaneModel::halves ? (run.count + 1) / 2 : run.count / 2;
    const Cells low{run.first, half}, high{run.first + half, run.count - half};
    for (int share = 0; share < 2; ++share) {
      at(op.lanes, runs_.lanes == LaneModel::halves ? 0 : 1, low, share);
      at(op.lanes, runs_.lanes == LaneModel::halves ? 1 : 0, high, share);
    }
  }

  /// By one lane, all of it; by every lane, its own share, which lands by itself.
  void copy(const Warp& w, const SyncOp& op, int use, const Op& made, const std::vector<Cells>& runs, const Memory& memory) {
    const BarrierArray& b = p_.barriers[index(op.barrier)];
    for (int lane = 0; lane < (op.lanes == LaneSet::first ? 1 : 2); ++lane) {
      Op mine = made;
      mine.argument = barrier(w, op, use);
      mine.arrives = b.arrivals == 0;
      mine.turn = use / b.buffers + 1;
      mine.where = where_;
      mine.count = 0;
      if (!runs.empty()) {   // parts of a slot lie side by side, and so do its shares
        const bool both = op.lanes == LaneSet::first && memory.shares == 2;
        mine.object = runs.front().first + lane * memory.parts;
        mine.count = both ? 2 * memory.parts : runs.front().count;
      }
      mine.engine = engines_.try_emplace({w.sm, mine.object, lane}, static_cast<int>(engines_.size())).first->second;
      mine.lanes = apart() ? Lanes::first : lane == 0 ? Lanes::first : Lanes::others;
      system_.threads[index(w.thread + (apart() ? lane : 0))].ops.push_back(mine);
    }
  }

  // ---- where an operation's elements are ------------------------------------------------------------------------------------------

  std::vector<Interval> regions(const Warp& w, const SyncOp& op, const std::vector<Task>& of, bool puts) const {
    std::set<Interval> declared;
    for (const Task& task : of) {
      for (const Access& access : puts ? task.range->writes : task.range->reads) {
        if (access.region.tensor != op.tensor) continue;
        const Region r = access.at(task.number);
        declared.insert({r.begin, r.end, r.part, r.parts});
      }
    }
    const std::vector<KSlice>& slices = dag_.stages[index(where_.stage)].slices;
    if (op.views.empty() || index(w.number) >= slices.size()) return {declared.begin(), declared.end()};
    std::set<Interval> found;
    for (const ColumnView& view : op.views) {
      for (const Interval& seen : through(view, slices[index(w.number)], puts)) {
        for (Interval r : declared) {
          r.begin = std::max(r.begin, seen.begin);
          r.end = std::min(r.end, seen.end);
          if (r.begin < r.end) found.insert(r);
        }
      }
    }
    return {found.begin(), found.end()};
  }

  std::vector<Cells> cells(const Warp& w, const SyncOp& op, const std::vector<Task>& of, int use, bool puts) const {
    const std::vector<Interval> found = regions(w, op, of, puts);
    const Memory& memory = memory_[index(tensor(op.tensor).storage)];
    if (found.empty()) return {};
    const int base = memory.first[memory.first.size() > 1 ? index(w.sm) : 0], slot_cells = memory.shares * memory.parts;
    if (slotted(op.tensor)) {
      const int slot = base + use % memory.slots * slot_cells;
      if (w.program->role != WarpRole::consumer || !storage(op.tensor).by_warp) return {{slot, memory.parts}};
      return {{slot + std::min(memory.parts - 1, w.number), 1}};
    }
    std::vector<Cells> runs;
    const auto add = [&](const Interval& r, int slot) {
      const std::vector<std::int64_t>& cuts = cuts_[index(tensor(op.tensor).storage)];
      const auto at = [&](std::int64_t x) { return static_cast<int>(std::lower_bound(cuts.begin(), cuts.end(), x) - cuts.begin()); };
      const int first = base + slot * slot_cells + at(r.begin), count = at(r.end) - at(r.begin);
      if (count <= 0) return;
      if (!runs.empty() && runs.back().first <= first && first <= runs.back().first + runs.back().count)
        runs.back().count = std::max(runs.back().count, first + count - runs.back().first);
      else
        runs.push_back({first, count});
    };
    for (const Interval& r : found) {
      if (!tensor(op.tensor).appended) {
        add(r, use % memory.slots);
        continue;
      }
      const int first = puts ? step_ : 0, last = puts ? step_ : step_ - 1;
      for (int at = first; at <= last; ++at) {
        const bool own = !op.views.empty() || at / r.parts / runs_.positions_per_warp % w.program->warps == w.number;
        if (at % r.parts == r.part && own) add(r, (tensor(op.tensor).per_layer ? layer_ : 0) * positions_ + at);
      }
    }
    return runs;
  }

  const TileDag& dag_;
  const Protocol& p_;
  const ProtocolRuns runs_;
  int grid_, positions_ = 0;

  System system_;
  std::map<std::tuple<int, WarpRole, int>, std::vector<Task>> tasks_;
  std::vector<std::vector<std::int64_t>> cuts_;
  std::vector<Memory> memory_;
  std::vector<Warp> warps_;
  std::map<std::pair<int, int>, int> constants_;
  std::map<std::tuple<int, int, int>, int> engines_;
  int launch_counter_ = 0;

  int launch_ = 0, step_ = 0, layer_ = 0;
  std::vector<int> first_barrier_;   // of each SM and array, of this launch
  Where where_;
};

}  // namespace

System protocol_system(const TileDag& dag, const ProtocolRuns& runs) { return Builder(dag, runs).build(); }

}  // namespace adamk::explorer
