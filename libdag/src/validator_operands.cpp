// operands: what a task reads is what its outputs are made of.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "validator_checks.h"

namespace adamk::validation {
namespace {

struct Task {
  const TaskRange* range = nullptr;
  int i = 0;
  explicit operator bool() const { return range != nullptr; }
};

std::map<int, Task> tasks_of(const DagStage& stage, WarpRole role) {
  std::map<int, Task> tasks;
  for (const TaskRange& range : stage.ranges) {
    if (range.role != role) continue;
    for (int i = 0; i < range.count; ++i) tasks[range.first + i] = {&range, i};
  }
  return tasks;
}

/// Regions of one tensor that a task reads or writes, in order of their begin.
std::vector<Region> regions(const Task& task, const std::vector<Access>& accesses, int tensor) {
  std::vector<Region> found;
  for (const Access& access : accesses)
    if (access.region.tensor == tensor) found.push_back(access.at(task.i));
  std::sort(found.begin(), found.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  return found;
}

std::string list(const Subject& s, const std::vector<Region>& found) {
  std::string text;
  for (const Region& region : found) text += (text.empty() ? "" : ", ") + describe(s, region);
  return text.empty() ? "none of it" : text;
}

/// The regions of `tensor` that a task reads must be exactly `needed`.
Counterexample expect_reads(const Subject& s, const DagStage& stage, const Task& task, const std::string& tensor,
                            const std::vector<Region>& needed) {
  const int id = s.dag.find_tensor(tensor);
  if (id < 0) return fmt::format("{} needs tensor '{}', which does not exist", describe(stage, *task.range, task.i), tensor);
  std::vector<Region> wanted = needed;
  for (Region& region : wanted) region.tensor = id;
  const std::vector<Region> found = regions(task, task.range->reads, id);
  if (found == wanted) return {};
  return fmt::format("{} reads {} of {}, but its output needs {}", describe(stage, *task.range, task.i), list(s, found),
                     tensor, list(s, wanted));
}

Counterexample check_slices(const Subject& s, const DagStage& stage, std::int64_t k) {
  if (static_cast<int>(stage.slices.size()) != s.dag.resources.consumer_warps)
    return fmt::format("stage {} has {} K slices, but there are {} consumer warps", stage.name, stage.slices.size(),
                       s.dag.resources.consumer_warps);
  std::int64_t reached = 0;
  for (std::size_t warp = 0; warp < stage.slices.size(); ++warp) {
    const KSlice& slice = stage.slices[warp];
    if (slice.begin != reached || slice.end < slice.begin || slice.end > k)
      return fmt::format("stage {}: the K slice of warp {} is [{}, {}), but the slices before it end at {} and K is {}",
                         stage.name, warp, slice.begin, slice.end, reached, k);
    if (s.fused_attention && stage.name == "output" && slice.begin % s.model().head_dim != 0)
      return fmt::format("stage {}: the K slice of warp {} begins at column {}, inside a head of {}", stage.name, warp,
                         slice.begin, s.model().head_dim);
    reached = slice.end;
  }
  if (reached != k)
    return fmt::format("stage {}: the K slices cover [0, {}), but K is {}", stage.name, reached, k);
  return {};
}

/// The elements of an input that belong to the columns of a K slice.
std::vector<ColumnView> needed_views(const Subject& s, const std::string& stage, const std::string& tensor) {
  const Model& model = s.model();
  const std::int64_t hidden = model.hidden, ffn = model.ffn, q = model.q_rows(), kv = model.kv_rows(), dim = model.head_dim;
  if (tensor == "hidden" || tensor == "hidden_mid") return {{0, hidden, hidden, 1}};
  if (tensor == "ffn") return s.fused_silu ? std::vector<ColumnView>{{0, ffn, ffn, 1}} : std::vector<ColumnView>{{0, ffn, ffn, 1}, {ffn, ffn, ffn, 1}};
  if (stage == "output" && tensor == "qkv") return {{0, q, q, dim}, {q, kv, q, dim}, {q + kv, kv, q, dim}};
  const std::int64_t elements = s.tensor(s.dag.find_tensor(tensor)).elements;
  if (stage == "output" && tensor == "kv_cache") return {{0, elements, q, elements / model.kv_heads}};
  std::vector<ColumnView> views;
  if (tensor != "attention" && tensor != "attention_sums") return views;
  const std::int64_t of_split = tensor == "attention" ? q : model.heads;
  for (std::int64_t begin = 0; begin < elements; begin += of_split) views.push_back({begin, of_split, q, 1});
  return views;
}

/// Warps that do not touch all of a tensor touch what belongs to their K slice.
Counterexample check_views(const Subject& s) {
  for (const WarpProgram& program : s.dag.protocol.programs) {
    for (const ProgramSection& section : program.sections) {
      for (const SyncOp& op : section.ops) {
        if (op.views.empty()) continue;
        const bool sliced = section.stage >= 0 && op.tensor >= 0 && program.role == WarpRole::consumer && !s.stage(section.stage).slices.empty();
        std::vector<ColumnView> found = op.views;
        std::sort(found.begin(), found.end(), [](const ColumnView& a, const ColumnView& b) { return a.begin < b.begin; });
        if (sliced && found == needed_views(s, s.stage(section.stage).name, s.tensor(op.tensor).name)) continue;
        return fmt::format("the {}'s '{}'{} takes other elements than those of its warps' K slices", to_string(program.role), to_string(op.kind),
                           section.stage < 0 ? "" : fmt::format(" of {} in stage {}", op.tensor < 0 ? "nothing" : s.tensor(op.tensor).name, s.stage(section.stage).name));
      }
    }
  }
  return {};
}

/// The tensors whose every element a tile's product needs.
std::vector<std::string> whole_inputs(const Subject& s, const std::string& stage) {
  std::vector<std::string> names;
  if (stage == "qkv") names = {"hidden", "embedding_row", "attn_norm.gain"};
  if (stage == "output") names = s.fused_attention ? std::vector<std::string>{"qkv", "kv_cache"}
                                                   : std::vector<std::string>{"attention"};
  if (stage == "output" && !s.fused_attention && s.dag.find_tensor("attention_sums") >= 0) names.push_back("attention_sums");
  if (stage == "gate_up") names = {"hidden_mid", "mlp_norm.gain"};
  if (stage == "down") names = {"ffn"};
  if (stage == "head") names = {"hidden", "final_norm.gain"};
  return names;
}

bool has_bias(const Model& model, const std::string& stage) {
  if (stage == "qkv") return model.qkv_bias;
  if (stage == "output") return model.output_bias;
  return model.mlp_bias && (stage == "gate_up" || stage == "down");
}

struct Tile {
  Task load, multiply, store;
};

const char* output_of(const std::string& stage) {
  if (stage == "output") return "hidden_mid";
  if (stage == "gate_up") return "ffn";
  if (stage == "down") return "hidden";
  return stage == "head" ? "logits" : "qkv";
}

/// Shared memory that carries a result from one role to the next: written and read as one region on one SM, and large
/// enough.
Counterexample check_carried(const Subject& s, const DagStage& stage, const Task& from, const Task& to,
                             const std::string& tensor, std::int64_t least) {
  const int id = s.dag.find_tensor(tensor);
  const std::vector<Region> written = regions(from, from.range->writes, id), read = regions(to, to.range->reads, id);
  if (written.size() != 1 || written != read || from.range->sm != to.range->sm)
    return fmt::format("{} writes {}, but {} reads {}", describe(stage, *from.range, from.i), list(s, written),
                       describe(stage, *to.range, to.i), list(s, read));
  if (written[0].end - written[0].begin < least)
    return fmt::format("{} holds {} elements for {}, which needs {}", describe(s, written[0]),
                       written[0].end - written[0].begin, describe(stage, *from.range, from.i), least);
  return {};
}

/// The ring and the partial sums carry a tile from role to role.
Counterexample check_handover(const Subject& s, const DagStage& stage, const Tile& tile, std::int64_t weights,
                              std::int64_t rows) {
  if (auto found = check_carried(s, stage, tile.load, tile.multiply, stage.name + ".ring", weights)) return found;
  if (2 * weights > stage.parts * s.dag.resources.ring_stage_bytes)
    return fmt::format("{}: {} bytes of weights in {} ring stages of {} bytes", describe(stage, *tile.load.range, tile.load.i),
                       2 * weights, stage.parts, s.dag.resources.ring_stage_bytes);
  return check_carried(s, stage, tile.multiply, tile.store, stage.name + ".partials",
                       rows * s.dag.resources.consumer_warps);
}

Counterexample check_tile(const Subject& s, const DagStage& stage, const Tile& tile, std::int64_t k) {
  const std::string output = output_of(stage.name);
  const std::vector<Region> out = regions(tile.store, tile.store.range->writes, s.dag.find_tensor(output));
  if (out.size() != 1)
    return fmt::format("{} writes {} regions of {}, but a tile is one run of rows",
                       describe(stage, *tile.store.range, tile.store.i), out.size(), output);
  const std::int64_t begin = out[0].begin, end = out[0].end, ffn = s.model().ffn;
  const bool pairs = stage.name == "gate_up" && s.fused_silu;   // gate row and the up row that belongs to it
  const auto rows = [&](std::int64_t width) {
    std::vector<Region> needed = {{0, begin * width, end * width}};
    if (pairs) needed.push_back({0, (ffn + begin) * width, (ffn + end) * width});
    return needed;
  };
  const bool packed_apart = stage.name == "head" && s.model().tied_head;
  const std::string weights = stage.name + (packed_apart ? ".weight.packed" : ".weight");
  if (auto found = expect_reads(s, stage, tile.load, weights, rows(k))) return found;
  if (has_bias(s.model(), stage.name)) {
    if (auto found = expect_reads(s, stage, tile.store, stage.name + ".bias", rows(1))) return found;
  }
  for (const std::string& name : whole_inputs(s, stage.name)) {
    const int id = s.dag.find_tensor(name);
    const std::int64_t elements = id < 0 ? 0 : s.tensor(id).elements;
    if (auto found = expect_reads(s, stage, tile.multiply, name, {{0, 0, elements}})) return found;
  }
  if (stage.name == "output" || stage.name == "down") {
    if (auto found = expect_reads(s, stage, tile.store, "residual", rows(1))) return found;
    const std::vector<Region> kept = regions(tile.store, tile.store.range->writes, s.dag.find_tensor("residual"));
    if (kept.size() != 1 || kept[0].begin != begin || kept[0].end != end)
      return fmt::format("{} keeps {}, but publishes rows [{}, {})", describe(stage, *tile.store.range, tile.store.i),
                         list(s, kept), begin, end);
  }
  const std::int64_t matrix_rows = (end - begin) * (pairs ? 2 : 1);
  return check_handover(s, stage, tile, matrix_rows * k, matrix_rows);
}

Counterexample check_gemv(const Subject& s, const DagStage& stage) {
  const std::int64_t k = matrix_size(s.model(), stage.name).k;
  if (auto found = check_slices(s, stage, k)) return found;
  const std::map<int, Task> loads = tasks_of(stage, WarpRole::loader), stores = tasks_of(stage, WarpRole::storer);
  for (const auto& [id, multiply] : tasks_of(stage, WarpRole::consumer)) {
    const auto load = loads.find(id), store = stores.find(id);
    if (load == loads.end() || store == stores.end())
      return fmt::format("{} has no {} task", describe(stage, *multiply.range, multiply.i),
                         load == loads.end() ? "loader" : "storer");
    if (auto found = check_tile(s, stage, {load->second, multiply, store->second}, k)) return found;
  }
  return {};
}

/// An item computes one split of one KV head's group; which, its output says.
Counterexample check_attention_item(const Subject& s, const DagStage& stage, const Task& attend, const Task& merge) {
  const Model& model = s.model();
  const int attention = s.dag.find_tensor("attention");
  const std::vector<Region> out = regions(merge, merge.range->writes, attention);
  const std::int64_t q_rows = model.q_rows(), dim = model.head_dim, width = model.group() * dim;
  if (out.size() != 1 || out[0].begin % width != 0 || out[0].end - out[0].begin != width)
    return fmt::format("{} writes {}, but a group of {} heads of {} is {} elements",
                       describe(stage, *merge.range, merge.i), list(s, out), model.group(), dim, width);
  const int splits = static_cast<int>(s.tensor(attention).elements / q_rows);
  const int split = static_cast<int>(out[0].begin / q_rows);
  const std::int64_t head = out[0].begin % q_rows / width;
  const std::int64_t k = q_rows + head * dim, v = k + model.kv_rows();
  if (auto found = expect_reads(s, stage, attend, "qkv",
                                {{0, head * width, (head + 1) * width}, {0, k, k + dim}, {0, v, v + dim}}))
    return found;
  const std::int64_t cache = 2 * s.deployment.workload.context * dim;
  const Region positions{s.dag.find_tensor("kv_cache"), head * cache, (head + 1) * cache, split, splits};
  if (auto found = expect_reads(s, stage, attend, "kv_cache", {positions})) return found;
  const std::vector<Region> appended = regions(attend, attend.range->writes, positions.tensor);
  if (appended != std::vector<Region>{positions})
    return fmt::format("{} appends to {}, but reads {}", describe(stage, *attend.range, attend.i), list(s, appended),
                       describe(s, positions));
  const std::int64_t at = std::int64_t{split} * model.heads + head * model.group();
  const Region logsums{s.dag.find_tensor("attention_sums"), at, at + model.group()};
  const std::vector<Region> written = regions(merge, merge.range->writes, logsums.tensor);
  if (splits > 1 && written != std::vector<Region>{logsums})
    return fmt::format("{} writes {}, but its heads' sums are {}", describe(stage, *merge.range, merge.i),
                       list(s, written), describe(s, logsums));
  return check_carried(s, stage, attend, merge, "attention.partials",
                       s.dag.resources.consumer_warps * model.group() * (dim + 2));
}

Counterexample check_attention(const Subject& s, const DagStage& stage) {
  const std::map<int, Task> attends = tasks_of(stage, WarpRole::consumer);
  for (const auto& [id, merge] : tasks_of(stage, WarpRole::storer)) {
    const auto attend = attends.find(id);
    if (attend == attends.end())
      return fmt::format("{} has no consumer task", describe(stage, *merge.range, merge.i));
    if (auto found = check_attention_item(s, stage, attend->second, merge)) return found;
  }
  return {};
}

/// The task of SM `sm`: the stages that every SM takes part in have one each.
Task task_of_sm(const std::map<int, Task>& tasks, int sm) {
  for (const auto& [id, task] : tasks)
    if (task.range->sm == sm) return task;
  return {};
}

/// The argmax of each SM is over the rows it made, all of them; every SM looks at every entry, keeps the winner and hands it to its
/// warps in the next step.
Counterexample check_tokens(const Subject& s) {
  const DagStage& start = s.dag.stages.front();
  const DagStage& end = s.dag.stages.back();
  std::vector<Region> seen;
  for (const auto& [id, task] : tasks_of(end, WarpRole::storer)) {
    for (const Region& region : regions(task, task.range->reads, s.dag.find_tensor("logits"))) seen.push_back(region);
  }
  std::sort(seen.begin(), seen.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  std::int64_t reached = 0;
  for (const Region& region : seen) {
    if (region.begin != reached)
      return fmt::format("the argmax looks at {} after logits[0, {})", describe(s, region), reached);
    reached = region.end;
  }
  if (reached != s.model().vocab)
    return fmt::format("the argmax looks at logits[0, {}), but the vocabulary has {}", reached, s.model().vocab);
  const std::map<int, Task> launches = tasks_of(start, WarpRole::launcher), winners = tasks_of(end, WarpRole::launcher);
  const std::vector<Region> all = {{0, 0, s.dag.resources.grid}};
  for (int sm = 0; sm < s.dag.resources.grid; ++sm) {
    const std::vector<Region> own = {{0, sm, sm + 1}};
    const Task launch = task_of_sm(launches, sm), winner = task_of_sm(winners, sm);
    if (!launch || !winner) return fmt::format("SM {} has no launcher task in embedding or argmax", sm);
    if (auto found = expect_reads(s, end, winner, "argmax", all)) return found;
    if (auto found = expect_reads(s, start, launch, "next_token", own)) return found;
    for (const WarpRole role : {WarpRole::consumer, WarpRole::storer}) {
      const Task task = task_of_sm(tasks_of(start, role), sm);
      if (!task) return fmt::format("SM {} has no {} task in embedding", sm, to_string(role));
      if (auto found = expect_reads(s, start, task, "token", own)) return found;
      if (auto found = expect_reads(s, start, task, "embedding.weight",
                                    {{0, 0, std::int64_t{s.model().vocab} * s.model().hidden}}))
        return found;
    }
  }
  return {};
}

}  // namespace

Counterexample check_operands(const Subject& s) {
  for (const DagStage& stage : s.dag.stages) {
    if (stage.section == Section::prologue || stage.name == "argmax") continue;
    if (auto found = stage.name == "attention" ? check_attention(s, stage) : check_gemv(s, stage)) return found;
  }
  if (auto found = check_views(s)) return found;
  return check_tokens(s);
}

}  // namespace adamk::validation
