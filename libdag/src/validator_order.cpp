// edges: every read has an edge from the write that it needs, one that can carry it, and no chain of edges is a circle.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "validator_checks.h"

namespace adamk::validation {
namespace {

constexpr int kRoles = 4;

/// The launcher begins a step, and ends it.
int turned(const TileDag& dag, int stage) { return dag.stages[static_cast<std::size_t>(stage)].section == Section::prologue ? 1 : 0; }

/// A role of a stage; nodes of one section are numbered in the order in which data goes through them.
int node(const TileDag& dag, int stage, WarpRole role) { return stage * kRoles + (static_cast<int>(role) + turned(dag, stage)) % kRoles; }

std::string name(const Subject& s, int n) {
  const int role = (n + kRoles - turned(s.dag, n / kRoles)) % kRoles;
  return fmt::format("{} {}", s.stage(n / kRoles).name, to_string(static_cast<WarpRole>(role)));
}
Section section(const Subject& s, int n) { return s.stage(n / kRoles).section; }

/// Depth-first; returns the nodes of a cycle, or nothing.
class CycleFinder {
 public:
  explicit CycleFinder(const TileDag& dag) : next_(dag.stages.size() * kRoles), state_(next_.size(), 0) {
    for (const EdgeSet& edge : dag.edges) {
      if (edge.layer_distance == 0 && edge.step_distance == 0)
        next_[static_cast<std::size_t>(node(dag, edge.from, edge.from_role))].push_back(node(dag, edge.to, edge.to_role));
    }
  }
  std::vector<int> find() {
    for (std::size_t n = 0; n < next_.size(); ++n)
      if (visit(static_cast<int>(n))) return cycle_;
    return {};
  }

 private:
  bool visit(int n) {
    int& state = state_[static_cast<std::size_t>(n)];
    if (state == 2) return false;
    if (state == 1) {
      cycle_.assign(std::find(path_.begin(), path_.end(), n), path_.end());
      return true;
    }
    state = 1;
    path_.push_back(n);
    for (const int to : next_[static_cast<std::size_t>(n)])
      if (visit(to)) return true;
    path_.pop_back();
    state = 2;
    return false;
  }
  std::vector<std::vector<int>> next_;
  std::vector<int> state_, path_, cycle_;
};

/// Nodes that read, or write, each tensor.
struct Users {
  std::map<int, std::set<int>> readers, writers;
};

Users users_of(const TileDag& dag) {
  Users users;
  for (std::size_t stage = 0; stage < dag.stages.size(); ++stage) {
    for (const TaskRange& range : dag.stages[stage].ranges) {
      const int n = node(dag, static_cast<int>(stage), range.role);
      for (const Access& access : range.reads) users.readers[access.region.tensor].insert(n);
      for (const Access& access : range.writes) users.writers[access.region.tensor].insert(n);
    }
  }
  return users;
}

struct Need {
  int from;
  int layer_distance, step_distance;
};

/// The latest of `writers` in `where`, before node `bound` when given.
std::optional<int> latest(const Subject& s, const std::set<int>& writers, Section where, int bound = -1) {
  std::optional<int> found;
  for (const int writer : writers)
    if (section(s, writer) == where && (bound < 0 || writer < bound)) found = writer;
  return found;
}

/// Which writes a read sees: the latest before it in its own section; else those that precede the section, which for a
/// layer are the layer before and (for the first layer) the prologue.
std::vector<Need> needed_writes(const Subject& s, const DagTensor& tensor, const std::set<int>& writers, int reader) {
  const Section own = section(s, reader);
  if (!tensor.per_layer && writers == std::set<int>{reader}) return {};   // what a task keeps for itself in between
  if (const auto before = latest(s, writers, own, reader)) return {{*before, 0, 0}};
  std::vector<Need> needs;
  if (tensor.per_layer) {   // the same storage is met again one step later
    if (const auto last = latest(s, writers, own)) needs.push_back({*last, 0, 1});
    return needs;
  }
  if (own == Section::layer) {
    if (const auto last = latest(s, writers, Section::layer)) needs.push_back({*last, 1, 0});
    if (const auto start = latest(s, writers, Section::prologue)) needs.push_back({*start, 0, 0});
    return needs;
  }
  if (own == Section::epilogue) {
    for (const Section where : {Section::layer, Section::prologue})
      if (const auto last = latest(s, writers, where)) return {{*last, 0, 0}};
    return needs;
  }
  for (const Section where : {Section::epilogue, Section::layer})
    if (const auto last = latest(s, writers, where)) return {{*last, 0, 1}};
  return needs;
}

/// Can `to` be reached from `from` by reads that follow writes, within so many layers (or one step)?
bool follows(const Subject& s, int from, int to, int layers, int steps) {
  std::set<std::array<int, 3>> seen;
  std::vector<std::array<int, 3>> open = {{from, 0, 0}};
  while (!open.empty()) {
    const auto [at, layer, step] = open.back();
    open.pop_back();
    for (const EdgeSet& edge : s.dag.edges) {
      if (edge.hazard != Hazard::raw || edge.via == Via::path || node(s.dag, edge.from, edge.from_role) != at) continue;
      const int next_step = step + edge.step_distance;
      const int next_layer = next_step > 0 ? 0 : layer + edge.layer_distance;
      if (next_step > steps || (steps == 0 && next_layer > layers) || next_layer > 1) continue;
      const std::array<int, 3> next = {node(s.dag, edge.to, edge.to_role), next_layer, next_step};
      if (next[0] == to) return true;
      if (seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

/// A local edge orders tasks of one SM only, so no reader may touch what another SM wrote.
Counterexample check_same_sm(const Subject& s, const EdgeSet& edge) {
  EdgeSet everywhere = edge;
  everywhere.via = Via::path;   // enumerate pairs on different SMs too
  Counterexample found;
  for_each_task_edge(s.dag, everywhere, [&](const TaskId& from, const TaskId& to) {
    if (found || from.sm == to.sm) return;
    found = fmt::format("{} {} task {} on SM {} reads what {} {} task {} wrote of {} on SM {}, which stays in that SM",
                        s.stage(to.stage).name, to_string(to.role), to.id, to.sm, s.stage(from.stage).name,
                        to_string(from.role), from.id, s.tensor(edge.tensor).name, from.sm);
  });
  return found;
}

Counterexample check_edge(const Subject& s, const EdgeSet& edge) {
  const DagTensor& tensor = s.tensor(edge.tensor);
  const int from = node(s.dag, edge.from, edge.from_role), to = node(s.dag, edge.to, edge.to_role);
  if (edge.via == Via::path) {
    if (follows(s, from, to, edge.layer_distance, edge.step_distance)) return {};
    return fmt::format("{} reads {}, which {} writes, and no path of other edges orders the two", name(s, to), tensor.name,
                       name(s, from));
  }
  if (edge.via == Via::local) return tensor.placement == Placement::copy ? Counterexample{} : check_same_sm(s, edge);
  if (tensor.placement != Placement::memory)
    return fmt::format("{} reads {} by {}, but it stays in the SM of {}", name(s, to), tensor.name, to_string(edge.via),
                       name(s, from));
  return {};
}

Counterexample check_reads_follow_writes(const Subject& s, const Users& users) {
  for (const auto& [tensor_id, readers] : users.readers) {
    const auto writers = users.writers.find(tensor_id);
    if (writers == users.writers.end()) continue;   // weights and gains: there before the launch
    for (const int reader : readers) {
      for (const Need& need : needed_writes(s, s.tensor(tensor_id), writers->second, reader)) {
        const auto edge = std::find_if(s.dag.edges.begin(), s.dag.edges.end(), [&](const EdgeSet& e) {
          return e.hazard == Hazard::raw && e.tensor == tensor_id && node(s.dag, e.from, e.from_role) == need.from &&
                 node(s.dag, e.to, e.to_role) == reader && e.layer_distance == need.layer_distance &&
                 e.step_distance == need.step_distance;
        });
        if (edge == s.dag.edges.end())
          return fmt::format("{} reads {}, which {} writes ({} layers and {} steps earlier), with no edge between them",
                             name(s, reader), s.tensor(tensor_id).name, name(s, need.from), need.layer_distance,
                             need.step_distance);
        if (auto found = check_edge(s, *edge)) return found;
      }
    }
  }
  return {};
}

Counterexample check_acyclic(const Subject& s) {
  const std::vector<int> cycle = CycleFinder(s.dag).find();
  if (cycle.empty()) return {};
  std::string text = "a cycle: ";
  for (const int n : cycle) text += name(s, n) + " -> ";
  return text + name(s, cycle.front());
}

}  // namespace

Counterexample check_edges(const Subject& s) {
  if (auto found = check_acyclic(s)) return found;
  return check_reads_follow_writes(s, users_of(s.dag));
}

}  // namespace adamk::validation
