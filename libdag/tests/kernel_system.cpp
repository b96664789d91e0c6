#include "kernel_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace adamk::explorer {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

enum StageNumber { kQkv, kAttention, kOutput, kGateUp, kDown, kHead, kStages };
constexpr const char* kStageNames[] = {"qkv", "attention", "output", "gate_up", "down", "head"};

/// An exchanged tensor as cells: the widest intervals that every access takes whole or not at all.
struct Tensor {
  int id = -1;
  std::vector<std::int64_t> bounds;   // ascending, first and past the last element
  int first_cell = 0;
};

/// How the values of one stage reach the next.
struct Edge {
  Exchange kind = Exchange::tagged;
  int counter = -1;
  int arrivals = 0;
};

/// The mbarriers of one SM during one launch.
struct Barriers {
  std::vector<int> full, empty;
  int partials_full[2] = {}, partials_empty[2] = {};
  int inputs_ready = 0, attention_full = 0, attention_empty = 0, token_ready = 0, token_taken = 0;
};

class Builder {
 public:
  Builder(const Deployment& deployment, const Schedule& schedule, const TileDag& dag, const Runs& runs)
      : model_(deployment.model), schedule_(schedule), plan_(schedule.plan), dag_(dag), runs_(runs),
        warps_(plan_.consumer_warps), layers_(model_.layers) {}

  System build() {
    system_.computes = true;
    for (const char* name : kStageNames) system_.stages.emplace_back(name);
    find_stages();
    lay_out_tensors();
    lay_out_memory();
    for (int sm = 0; sm < plan_.grid; ++sm) {
      for (int w = 0; w < warps_; ++w) system_.threads.push_back({fmt::format("SM {} consumer {}", sm, w), {}});
      for (const char* role : {"loader", "storer", "control"}) system_.threads.push_back({fmt::format("SM {} {}", sm, role), {}});
    }
    system_.engines = plan_.grid * plan_.ring_stages;
    launch_counter_ = system_.add_counter();
    for (int launch = 0; launch < runs_.launches; ++launch) add_launch(launch);
    return std::move(system_);
  }

 private:
  // ---- layout -----------------------------------------------------------------------------------------------------------------

  bool fused() const { return schedule_.attention.fused; }
  StageKind reader_of_qkv() const { return fused() ? StageKind::output : StageKind::attention; }
  NormMode norm(StageKind kind) const { return plan_.stage(kind).norm; }

  const DagStage* stage(int number) const {
    const int at = dag_.find_stage(kStageNames[number]);
    return at < 0 ? nullptr : &dag_.stages[index(at)];
  }

  /// The tasks of each role of each SM, in order.
  void find_stages() {
    for (int number = 0; number < kStages; ++number) {
      const DagStage* found = stage(number);
      if (found == nullptr) continue;
      for (const TaskRange& range : found->ranges) {
        for (int i = 0; i < range.count; ++i) tasks_[{number, range.role, range.sm}].push_back({&range, i});
      }
    }
  }

  struct Task {
    const TaskRange* range;
    int number;   // within the range
    int id() const { return range->first + number; }
  };
  const std::vector<Task>& tasks(int number, WarpRole role, int sm) const {
    static const std::vector<Task> none;
    const auto found = tasks_.find({number, role, sm});
    return found == tasks_.end() ? none : found->second;
  }
  bool works(int number, int sm) const { return !tasks(number, WarpRole::storer, sm).empty(); }

  Tensor& tensor(std::string_view name) {
    const auto found = tensors_.find(std::string(name));
    if (found != tensors_.end()) return found->second;
    Tensor t;
    t.id = dag_.find_tensor(name);
    if (t.id >= 0) t.bounds = {0, dag_.tensors[index(t.id)].elements};
    return tensors_.emplace(name, t).first->second;
  }

  void cut(Tensor& t, std::int64_t at) {
    if (t.id >= 0 && at > 0 && at < t.bounds[1]) t.bounds.push_back(at);
  }

  void lay_out_tensors() {
    for (const char* name : {"qkv", "attention", "attention_sums", "hidden_mid", "hidden_mid.sums", "ffn", "hidden", "hidden.sums"})
      tensor(name);
    for (auto& [name, t] : tensors_) {
      if (t.id < 0) continue;
      std::vector<std::int64_t> cuts;
      for (const DagStage& s : dag_.stages) {
        for (const TaskRange& range : s.ranges) {
          for (const std::vector<Access>* accesses : {&range.reads, &range.writes}) {
            for (const Access& access : *accesses) {
              if (access.region.tensor != t.id) continue;
              for (int i = 0; i < range.count; ++i) cuts.insert(cuts.end(), {access.at(i).begin, access.at(i).end});
            }
          }
        }
      }
      for (const std::int64_t at : cuts) cut(t, at);
    }
    // Slices of K, and the heads that attention reads.
    for (int number : {kOutput, kGateUp, kDown, kHead, kQkv}) {
      for (int w = 0; w < warps_; ++w) {
        for (const auto& [name, begin, end] : slices(number, w)) {
          cut(tensor(name), begin);
          cut(tensor(name), end);
        }
      }
    }
    for (std::int64_t row = 0; row < model_.q_rows() + 2 * model_.kv_rows(); row += model_.head_dim) cut(tensor("qkv"), row);
    for (auto& [name, t] : tensors_) {
      if (t.id < 0) continue;
      std::sort(t.bounds.begin(), t.bounds.end());
      t.bounds.erase(std::unique(t.bounds.begin(), t.bounds.end()), t.bounds.end());
      t.first_cell = system_.add_cells(static_cast<int>(t.bounds.size()) - 1);
      for (std::size_t i = 0; i + 1 < t.bounds.size(); ++i)
        name_cell(t.first_cell + static_cast<int>(i), fmt::format("{}[{}, {})", name, t.bounds[i], t.bounds[i + 1]));
    }
  }

  struct Slice {
    std::string name;
    std::int64_t begin, end;
  };
  /// What warp w of a reader of this stage's inputs takes: consumer.cuh, receive_inputs, receive_gated and receive_splits.
  std::vector<Slice> slices(int number, int w) const {
    const DagStage* s = stage(number);
    const KSlice k = s->slices[index(w)];
    if (k.begin >= k.end) return {};
    switch (number) {
      case kOutput: {
        if (fused()) return {};
        std::vector<Slice> found;
        for (int split = 0; split < schedule_.attention.splits; ++split) {
          const std::int64_t values = std::int64_t{split} * model_.q_rows(), sums = std::int64_t{split} * model_.heads;
          found.push_back({"attention", values + k.begin, values + k.end});
          if (schedule_.attention.splits > 1)
            found.push_back({"attention_sums", sums + k.begin / model_.head_dim, sums + (k.end - 1) / model_.head_dim + 1});
        }
        return found;
      }
      case kGateUp: return {{"hidden_mid", k.begin, k.end}};
      case kDown: {
        if (plan_.stage(StageKind::gate_up).fused_silu) return {{"ffn", k.begin, k.end}};
        return {{"ffn", k.begin, k.end}, {"ffn", model_.ffn + k.begin, model_.ffn + k.end}};
      }
      default: return {{"hidden", k.begin, k.end}};
    }
  }

  void name_cell(int cell, std::string name) {
    if (system_.cell_names.size() <= index(cell)) system_.cell_names.resize(index(cell) + 1);
    system_.cell_names[index(cell)] = std::move(name);
  }
  int cells(int count, const std::string& name) {
    const int first = system_.add_cells(count);
    for (int i = 0; i < count; ++i) name_cell(first + i, count == 1 ? name : fmt::format("{} {}", name, i));
    return first;
  }

  void lay_out_memory() {
    argmax_ = cells(4 * plan_.grid, "argmax");
    const int positions = runs_.launches * runs_.steps;
    kv_ = cells(layers_ * static_cast<int>(model_.kv_heads) * positions, "kv");
    for (int sm = 0; sm < plan_.grid; ++sm) {
      word_.push_back(cells(1, fmt::format("SM {} token", sm)));
      ring_.push_back(cells(plan_.ring_stages, fmt::format("SM {} ring", sm)));
      partials_.push_back(cells(2 * warps_, fmt::format("SM {} partials", sm)));
      scratch_.push_back(cells(warps_, fmt::format("SM {} attention scratch", sm)));
      residual_.push_back(cells(std::max<int>(1, static_cast<int>(tasks(kOutput, WarpRole::storer, sm).size())),
                                fmt::format("SM {} residual", sm)));
    }
    edges_[kQkv].kind = plan_.stage(reader_of_qkv()).input;
    if (!fused()) edges_[kAttention].kind = plan_.stage(StageKind::output).input;
    edges_[kOutput].kind = plan_.stage(StageKind::gate_up).input;
    edges_[kGateUp].kind = plan_.stage(StageKind::down).input;
    edges_[kDown].kind = plan_.stage(StageKind::qkv).input;
    for (int number = kQkv; number <= kDown; ++number) {
      Edge& edge = edges_[number];
      edge.counter = system_.add_counter();
      for (int sm = 0; sm < plan_.grid; ++sm) edge.arrivals += edge.kind == Exchange::barrier || works(number, sm) ? 1 : 0;
    }
  }

  // ---- one launch -----------------------------------------------------------------------------------------------------------

  int barrier(int arrivals, std::string name) {
    system_.barrier_names.push_back(std::move(name));
    return system_.add_barrier(arrivals);
  }

  void add_launch(int launch) {
    launch_ = launch;
    for (int sm = 0; sm < plan_.grid; ++sm) {
      sm_ = sm;
      barriers_ = {};
      const auto named = [&](const char* name) { return fmt::format("{} of SM {}", name, sm); };
      for (int i = 0; i < plan_.ring_stages; ++i) {
        barriers_.full.push_back(barrier(1, named("ring full")));
        barriers_.empty.push_back(barrier(warps_, named("ring empty")));
      }
      for (int i = 0; i < 2; ++i) {
        barriers_.partials_full[i] = barrier(warps_, named("partials full"));
        barriers_.partials_empty[i] = barrier(1, named("partials empty"));
      }
      barriers_.inputs_ready = barrier(1, named("inputs ready"));
      barriers_.attention_full = barrier(warps_, named("attention full"));
      barriers_.attention_empty = barrier(1, named("attention empty"));
      barriers_.token_ready = barrier(1, named("token ready"));
      barriers_.token_taken = barrier(warps_ + 1, named("token taken"));
      for (int w = 0; w < warps_; ++w) run_role(w, [&] { run_consumer(w); });
      run_role(warps_, [&] { run_loader(); });
      run_role(warps_ + 1, [&] { run_storer(); });
      run_role(warps_ + 2, [&] { run_control(); });
    }
  }

  /// A launch ends when all its warps have, and the next one begins after that.
  template <class Role>
  void run_role(int warp, Role role) {
    ops_ = &system_.threads[index(sm_ * (warps_ + 3) + warp)].ops;
    where_ = {};
    role();
    const int all = static_cast<int>(system_.threads.size());
    emit({.kind = OpKind::sync});
    emit({.kind = OpKind::add, .object = launch_counter_});
    emit({.kind = OpKind::await, .object = launch_counter_, .argument = (launch_ + 1) * all});
  }

  void emit(Op op) {
    op.where = where_;
    ops_->push_back(op);
  }
  void sync() { emit({.kind = OpKind::sync}); }
  void wait(int barrier, int parity) { emit({.kind = OpKind::wait, .object = barrier, .argument = parity}); }
  void arrive(int barrier) { emit({.kind = OpKind::arrive, .object = barrier, .lanes = Lanes::first}); }
  void read(int cell) { emit({.kind = OpKind::read, .object = cell}); }
  void write(int cell, int value) { emit({.kind = OpKind::write, .object = cell, .value = value}); }

  /// Identifies what a task does with which operands. Where it writes is said by the cells.
  int task_value(const Task& task) const {
    std::size_t hash = 0;
    const auto add = [&](std::int64_t x) { hash = hash * 1000003 + static_cast<std::size_t>(x); };
    for (const Access& access : task.range->reads) {
      const Region r = access.at(task.number);
      for (const std::int64_t x : {std::int64_t{r.tensor}, r.begin, r.end, std::int64_t{r.part}, std::int64_t{r.parts}}) add(x);
    }
    return static_cast<int>((hash ^ hash >> 32) & 0x7fffffff);
  }

  int epoch() const { return launch_ * runs_.steps; }
  int turn() const { return (epoch() + where_.step) * (layers_ + 1) + where_.layer + 1; }   // of a layer; tag and value
  int target(const Edge& edge, int layer) const { return ((epoch() + where_.step) * layers_ + layer + 1) * edge.arrivals; }

  /// The cells of a region of an exchanged tensor.
  std::pair<int, int> range(const Tensor& t, std::int64_t begin, std::int64_t end) const {
    const auto at = [&](std::int64_t element) {
      return static_cast<int>(std::lower_bound(t.bounds.begin(), t.bounds.end(), element) - t.bounds.begin());
    };
    return {t.first_cell + at(begin), at(end) - at(begin)};
  }
  void publish(const Edge& edge, const Tensor& t, std::int64_t begin, std::int64_t end, bool always_tagged, int value) {
    const auto [cell, count] = range(t, begin, end);
    const bool tagged = always_tagged || edge.kind == Exchange::tagged;
    emit({.kind = tagged ? OpKind::publish : OpKind::store, .object = cell, .argument = turn(), .count = count, .value = value});
  }
  void take(const Edge& edge, const Tensor& t, std::int64_t begin, std::int64_t end, bool always_tagged, int of) {
    const auto [cell, count] = range(t, begin, end);
    const bool tagged = always_tagged || edge.kind == Exchange::tagged;
    emit({.kind = tagged ? OpKind::poll : OpKind::load, .object = cell, .argument = of, .count = count});
  }

  // ---- loader: block.cuh --------------------------------------------------------------------------------------------------------

  void run_loader() {
    fills_ = 0;
    for (where_.step = 0; where_.step < runs_.steps; ++where_.step) {
      for (where_.layer = 0; where_.layer < layers_; ++where_.layer) {
        for (int number : {kQkv, kOutput, kGateUp, kDown}) load_stage(number);
      }
      load_stage(kHead);
    }
    for (int left = std::min(fills_, plan_.window); left > 0; --left) wait_full(fills_ - left);
  }

  void wait_full(int fill) { wait(barriers_.full[index(fill % plan_.ring_stages)], fill / plan_.ring_stages % 2); }

  void load_stage(int number) {
    where_.stage = number;
    for (const Task& task : tasks(number, WarpRole::loader, sm_)) {
      where_.tile = task.id();
      for (int chunk = 0; chunk < stage(number)->parts; ++chunk) {
        if (fills_ >= plan_.window) wait_full(fills_ - plan_.window);
        const int slot = fills_ % plan_.ring_stages;
        wait(barriers_.empty[index(slot)], 1 - fills_ / plan_.ring_stages % 2);
        emit({.kind = OpKind::expect, .object = barriers_.full[index(slot)], .argument = 1, .lanes = Lanes::first});
        emit({.kind = OpKind::copy, .object = ring_[index(sm_)] + slot, .argument = barriers_.full[index(slot)],
              .value = task_value(task) ^ chunk, .lanes = Lanes::first, .engine = sm_ * plan_.ring_stages + slot});
        ++fills_;
      }
    }
    where_.tile = -1;
  }

  // ---- consumers: consumer.cuh, attention.cuh -------------------------------------------------------------------------------------

  void take_token(int step) {
    wait(barriers_.token_ready, step % 2);
    read(word_[index(sm_)]);
    sync();
    arrive(barriers_.token_taken);
  }

  void await_inputs(const Edge& edge) {
    if (edge.kind != Exchange::tagged) wait(barriers_.inputs_ready, inputs_++ % 2);
  }

  void run_consumer(int w) {
    read_ = tiles_ = inputs_ = attended_ = 0;
    for (where_.step = 0; where_.step < runs_.steps; ++where_.step) {
      where_.layer = where_.stage = -1;
      take_token(where_.step);
      for (where_.layer = 0; where_.layer < layers_; ++where_.layer) {
        multiply(kQkv, w);
        if (!fused()) attend(w);
        if (works(kOutput, sm_)) {
          where_.stage = kOutput;
          await_inputs(edges_[fused() ? kQkv : kAttention]);
          if (fused()) recompute_attention(w);
          receive(kOutput, w, edges_[kAttention]);
          multiply(kOutput, w);
        }
        if (works(kGateUp, sm_)) {
          where_.stage = kGateUp;
          await_inputs(edges_[kOutput]);
          receive(kGateUp, w, edges_[kOutput]);
          multiply(kGateUp, w);
        }
        if (works(kDown, sm_)) {
          where_.stage = kDown;
          await_inputs(edges_[kGateUp]);
          receive(kDown, w, edges_[kGateUp]);
          multiply(kDown, w);
        }
        where_.stage = kQkv;
        const int next = where_.layer + 1 < layers_ ? kQkv : kHead;
        if (works(next, sm_)) {
          await_inputs(edges_[kDown]);
          receive(next, w, edges_[kDown]);
        }
      }
      multiply(kHead, w);
    }
  }

  void receive(int number, int w, const Edge& edge) {
    for (const auto& [name, begin, end] : slices(number, w)) {
      const Tensor& t = tensor(name);
      if (t.id >= 0) take(edge, t, begin, end, name == "attention_sums", turn());
    }
  }

  void multiply(int number, int w) {
    where_.stage = number;
    for (const Task& task : tasks(number, WarpRole::consumer, sm_)) {
      where_.tile = task.id();
      for (int chunk = 0; chunk < stage(number)->parts; ++chunk) {
        const int slot = read_ % plan_.ring_stages;
        wait_full(read_);
        read(ring_[index(sm_)] + slot);
        ++read_;
        sync();
        arrive(barriers_.empty[index(slot)]);
      }
      const int buffer = tiles_ % 2;
      wait(barriers_.partials_empty[buffer], 1 - tiles_ / 2 % 2);
      write(partials_[index(sm_)] + buffer * warps_ + w, task_value(task));
      ++tiles_;
      sync();
      arrive(barriers_.partials_full[buffer]);
    }
    where_.tile = -1;
  }

  int position() const { return epoch() + where_.step; }
  int kv_cell(int head, int at) const {
    return kv_ + (where_.layer * static_cast<int>(model_.kv_heads) + head) * runs_.launches * runs_.steps + at;
  }
  void append(int head) {
    emit({.kind = OpKind::write, .object = kv_cell(head, position()), .output = true});
  }
  void take_qkv(int first_head, int heads, int kv_head, bool owns_new) {
    const Tensor& t = tensor("qkv");
    const std::int64_t dim = model_.head_dim, k = model_.q_rows() + kv_head * dim, v = k + model_.kv_rows();
    take(edges_[kQkv], t, first_head * dim, (first_head + heads) * dim, false, turn());
    if (!owns_new) return;
    take(edges_[kQkv], t, k, k + dim, false, turn());
    take(edges_[kQkv], t, v, v + dim, false, turn());
  }

  void attend(int w) {
    where_.stage = kAttention;
    const std::vector<Task>& items = tasks(kAttention, WarpRole::consumer, sm_);
    if (items.empty()) return;
    await_inputs(edges_[kQkv]);
    const AttentionShape& shape = schedule_.attention;
    const int positions_of_warp = 32 / shape.lanes_per_position;
    const auto owner = [&](int at) { return at / shape.splits / positions_of_warp % warps_; };
    for (const Task& item : items) {
      where_.tile = item.id();
      const int head = item.id() / shape.splits, split = item.id() % shape.splits;
      const bool owns_new = position() % shape.splits == split && owner(position()) == w;
      for (int pass = 0; pass < shape.passes; ++pass) {
        const int group = static_cast<int>(model_.group()), from = pass * shape.heads_per_pass;
        for (int at = split; at < position(); at += shape.splits) {
          if (owner(at) == w) read(kv_cell(head, at));
        }
        take_qkv(head * group + from, std::min(shape.heads_per_pass, group - from), head, owns_new);
        if (owns_new && pass == 0) append(head);
        wait(barriers_.attention_empty, 1 - attended_ % 2);
        write(scratch_[index(sm_)] + w, task_value(item));
        ++attended_;
        sync();
        arrive(barriers_.attention_full);
      }
    }
    where_.tile = -1;
    sync();
  }

  void recompute_attention(int w) {
    const KSlice k = stage(kOutput)->slices[index(w)];
    const int readers = std::min(schedule_.gemv(StageKind::output).tiles, plan_.grid), group = static_cast<int>(model_.group());
    for (int head = static_cast<int>(k.begin / model_.head_dim); head * model_.head_dim < k.end; ++head) {
      const int kv_head = head / group;
      for (int at = 0; at < position(); ++at) read(kv_cell(kv_head, at));
      take_qkv(head, 1, kv_head, true);
      if (head % group == 0 && kv_head % readers == sm_) append(kv_head);
    }
    sync();
  }

  // ---- storer: storer.cuh -------------------------------------------------------------------------------------------------------

  void run_storer() {
    tiles_ = attended_ = 0;
    for (where_.step = 0; where_.step < runs_.steps; ++where_.step) {
      where_.layer = where_.stage = -1;
      take_token(where_.step);
      const int rows = static_cast<int>(tasks(kOutput, WarpRole::storer, sm_).size());
      for (int i = 0; i < rows; ++i) write(residual_[index(sm_)] + i, 0);
      sync();
      for (where_.layer = 0; where_.layer < layers_; ++where_.layer) {
        if (norm(StageKind::qkv) == NormMode::exchange && where_.layer > 0 && works(kQkv, sm_)) take_sums("hidden.sums", turn() - 1);
        store(kQkv);
        if (!fused()) merge_attention();
        store(kOutput);
        if (norm(StageKind::gate_up) == NormMode::exchange && works(kGateUp, sm_)) take_sums("hidden_mid.sums", turn());
        store(kGateUp);
        store(kDown);
      }
      if (norm(StageKind::head) == NormMode::exchange && works(kHead, sm_)) take_sums("hidden.sums", turn() - 1);
      store(kHead);
      publish_argmax();
    }
  }

  void take_sums(const char* name, int of) {
    const Tensor& t = tensor(name);
    if (t.id >= 0) take({}, t, t.bounds.front(), t.bounds.back(), true, of);
  }

  void store(int number) {
    where_.stage = number;
    const std::vector<Task>& mine = tasks(number, WarpRole::storer, sm_);
    int row = 0;
    for (const Task& task : mine) {
      where_.tile = task.id();
      const int buffer = tiles_ % 2;
      wait(barriers_.partials_full[buffer], tiles_ / 2 % 2);
      ++tiles_;
      for (int w = 0; w < warps_; ++w) read(partials_[index(sm_)] + buffer * warps_ + w);
      sync();
      arrive(barriers_.partials_empty[buffer]);
      if (number == kOutput || number == kDown) {
        const int cell = residual_[index(sm_)] + row++;
        read(cell);
        sync();
        write(cell, 0);
      }
      if (number != kHead) publish_task(number, task);
    }
    where_.tile = -1;
    if (number != kHead) publish_done(number, !mine.empty());
  }

  void publish_task(int number, const Task& task) {
    for (const Access& access : task.range->writes) {
      const Region region = access.at(task.number);
      for (const auto& [name, t] : tensors_) {
        if (t.id == region.tensor) publish(edges_[number], t, region.begin, region.end, name.ends_with("sums"), task_value(task));
      }
    }
  }

  void publish_done(int number, bool worked) {
    if (edges_[number].kind == Exchange::tagged) return;
    sync();
    if (worked) emit({.kind = OpKind::add, .object = edges_[number].counter, .lanes = Lanes::first});
  }

  void merge_attention() {
    where_.stage = kAttention;
    const std::vector<Task>& items = tasks(kAttention, WarpRole::storer, sm_);
    for (const Task& item : items) {
      where_.tile = item.id();
      for (int pass = 0; pass < schedule_.attention.passes; ++pass) {
        wait(barriers_.attention_full, attended_++ % 2);
        for (int w = 0; w < warps_; ++w) read(scratch_[index(sm_)] + w);
        sync();
        if (pass + 1 == schedule_.attention.passes) publish_task(kAttention, item);
        sync();
        arrive(barriers_.attention_empty);
      }
    }
    where_.tile = -1;
    publish_done(kAttention, !items.empty());
  }

  int entry(int step, int sm) const { return argmax_ + 2 * ((epoch() + step) % 2 * plan_.grid + sm); }
  void publish_argmax() {
    if (fused()) emit({.kind = OpKind::fence});
    for (int i = 0; i < 2; ++i)
      emit({.kind = OpKind::publish, .object = entry(where_.step, sm_) + i, .argument = turn(), .value = i, .lanes = Lanes::first, .output = true});
  }

  // ---- controller and launcher: exchange.cuh, launcher.cuh ----------------------------------------------------------------------

  void run_control() {
    for (where_.step = 0; where_.step < runs_.steps; ++where_.step) {
      where_.layer = where_.stage = -1;
      wait(barriers_.token_taken, 1 - where_.step % 2);
      emit({.kind = OpKind::write, .object = word_[index(sm_)], .lanes = Lanes::first});
      arrive(barriers_.token_ready);
      sync();
      for (where_.layer = 0; where_.layer < layers_; ++where_.layer) {
        if (where_.layer > 0) control_edge(kDown, works(kQkv, sm_), where_.layer - 1);
        if (fused()) {
          control_edge(kQkv, works(kOutput, sm_), where_.layer);
        } else {
          control_edge(kQkv, !tasks(kAttention, WarpRole::consumer, sm_).empty(), where_.layer);
          control_edge(kAttention, works(kOutput, sm_), where_.layer);
        }
        control_edge(kOutput, works(kGateUp, sm_), where_.layer);
        control_edge(kGateUp, works(kDown, sm_), where_.layer);
      }
      control_edge(kDown, works(kHead, sm_), layers_ - 1);
      sync();
      where_.stage = kHead;
      for (int sm = 0; sm < plan_.grid; ++sm) {
        const Lanes lane = sm % 32 == 0 ? Lanes::first : Lanes::others;
        for (int i = 0; i < 2; ++i)
          emit({.kind = OpKind::poll, .object = entry(where_.step, sm) + i, .argument = turn(), .lanes = lane});
      }
      if (fused()) {
        emit({.kind = OpKind::fence});
        sync();
      }
    }
  }

  void control_edge(int number, bool reads, int layer) {
    const Edge& edge = edges_[number];
    where_.stage = number;
    if (edge.kind == Exchange::tagged || (!reads && edge.kind != Exchange::barrier)) return;
    if (edge.kind == Exchange::barrier && !works(number, sm_))
      emit({.kind = OpKind::add, .object = edge.counter, .lanes = Lanes::first});
    emit({.kind = OpKind::await, .object = edge.counter, .argument = target(edge, layer), .lanes = Lanes::first});
    if (reads) arrive(barriers_.inputs_ready);
  }

  const Model& model_;
  const Schedule& schedule_;
  const Plan& plan_;
  const TileDag& dag_;
  Runs runs_;
  int warps_, layers_;

  System system_;
  std::map<std::tuple<int, WarpRole, int>, std::vector<Task>> tasks_;
  std::map<std::string, Tensor> tensors_;
  Edge edges_[kStages];
  int argmax_ = 0, kv_ = 0, launch_counter_ = 0;
  std::vector<int> word_, ring_, partials_, scratch_, residual_;

  int launch_ = 0, sm_ = 0;
  Barriers barriers_;
  std::vector<Op>* ops_ = nullptr;
  Where where_;
  int fills_ = 0, read_ = 0, tiles_ = 0, inputs_ = 0, attended_ = 0;   // of the role that is being written, in this launch
};

}  // namespace

System kernel_system(const Deployment& deployment, const Schedule& schedule, const TileDag& dag, const Runs& runs) {
  return Builder(deployment, schedule, dag, runs).build();
}

}  // namespace adamk::explorer
