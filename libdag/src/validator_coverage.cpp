// complete: every element written exactly once, and nothing written that is not the stage's to write.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "validator_checks.h"

namespace adamk::validation {
namespace {

struct Write {
  Region region;
  const TaskRange* range;
  int i;
};

std::vector<Write> writes_to(const DagStage& stage, int tensor) {
  std::vector<Write> found;
  for (const TaskRange& range : stage.ranges) {
    for (const Access& access : range.writes) {
      if (access.region.tensor != tensor) continue;
      for (int i = 0; i < range.count; ++i) found.push_back({access.at(i), &range, i});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Write& a, const Write& b) {
    return std::pair(a.region.begin, a.region.part) < std::pair(b.region.begin, b.region.part);
  });
  return found;
}

std::string twice(const Subject& s, const DagStage& stage, const Write& a, const Write& b) {
  const std::int64_t begin = std::max(a.region.begin, b.region.begin), end = std::min(a.region.end, b.region.end);
  return fmt::format("{} is written twice: by {} and by {}", describe(s, {a.region.tensor, begin, end}),
                     describe(stage, *a.range, a.i), describe(stage, *b.range, b.i));
}

/// The writes of one interval, whose parts must be 0 .. parts - 1, once each.
Counterexample check_parts(const Subject& s, const DagStage& stage, const Write* first, const Write* last) {
  const int parts = first->region.parts;
  for (const Write* write = first; write != last; ++write) {
    if (write->region.end != first->region.end || write->region.parts != parts) return twice(s, stage, *first, *write);
    if (write != first && write->region.part == (write - 1)->region.part) return twice(s, stage, *(write - 1), *write);
  }
  for (int part = 0; part < parts; ++part) {
    if (part < last - first && first[part].region.part == part) continue;
    Region missing = first->region;
    missing.part = part;
    return fmt::format("{} is never written by stage {}", describe(s, missing), stage.name);
  }
  return {};
}

Counterexample check_covered_once(const Subject& s, const DagStage& stage, int tensor) {
  const std::vector<Write> writes = writes_to(stage, tensor);
  std::int64_t reached = 0;
  const Write* before = nullptr;
  for (std::size_t i = 0; i < writes.size();) {
    std::size_t next = i + 1;
    while (next < writes.size() && writes[next].region.begin == writes[i].region.begin) ++next;
    const Region& region = writes[i].region;
    if (region.begin > reached)
      return fmt::format("{} is never written by stage {}", describe(s, {tensor, reached, region.begin}), stage.name);
    if (region.begin < reached) return twice(s, stage, *before, writes[i]);
    if (auto found = check_parts(s, stage, &writes[i], writes.data() + next)) return found;
    reached = region.end;
    before = &writes[i];
    i = next;
  }
  if (reached < s.tensor(tensor).elements)
    return fmt::format("{} is never written by stage {}", describe(s, {tensor, reached, s.tensor(tensor).elements}),
                       stage.name);
  return {};
}

/// A tensor of which every SM holds a copy: each SM writes all of its own, once.
Counterexample check_copies(const Subject& s, const DagStage& stage, int tensor) {
  std::map<int, Write> by_sm;
  for (const Write& write : writes_to(stage, tensor)) {
    const auto [at, fresh] = by_sm.emplace(write.range->sm, write);
    if (!fresh) return twice(s, stage, at->second, write);
    if (write.region.begin != 0 || write.region.end != s.tensor(tensor).elements)
      return fmt::format("{} writes {}, but its SM needs all {} elements", describe(stage, *write.range, write.i),
                         describe(s, write.region), s.tensor(tensor).elements);
  }
  for (int sm = 0; sm < s.dag.resources.grid; ++sm) {
    if (!by_sm.contains(sm)) return fmt::format("SM {}'s copy of {} is never written", sm, s.tensor(tensor).name);
  }
  return {};
}

/// What each stage must produce, by name.
std::vector<std::string> products(const Subject& s, const std::string& stage) {
  if (stage == "embedding") return {"token", "embedding_row", "residual"};
  if (stage == "argmax") return {"argmax", "next_token"};
  std::vector<std::string> names = {stage + ".ring", stage + ".partials"};
  if (stage == "attention") names = {"attention", "attention_sums", "attention.partials", "kv_cache"};
  const auto add = [&](std::initializer_list<const char*> more) { names.insert(names.end(), more.begin(), more.end()); };
  if (stage == "qkv") add({"qkv"});
  if (stage == "output") add({"hidden_mid", "residual", "hidden_mid.sums"});
  if (stage == "output" && s.fused_attention) add({"kv_cache", "attention.scratch"});
  if (stage == "gate_up") add({"ffn"});
  if (stage == "down") add({"hidden", "residual", "hidden.sums"});
  if (stage == "head") add({"logits"});
  // Sums exist only where the plan exchanges them: of squares for a norm, of exponentials where positions are split.
  std::erase_if(names, [&](const std::string& name) { return name.ends_with("sums") && s.dag.find_tensor(name) < 0; });
  return names;
}

}  // namespace

Counterexample check_complete(const Subject& s) {
  for (const DagStage& stage : s.dag.stages) {
    std::set<int> expected;
    for (const std::string& name : products(s, stage.name)) {
      const int tensor = s.dag.find_tensor(name);
      if (tensor < 0) return fmt::format("stage {} writes no tensor '{}'", stage.name, name);
      expected.insert(tensor);
    }
    for (const TaskRange& range : stage.ranges) {
      for (const Access& write : range.writes) {
        if (!expected.contains(write.region.tensor))
          return fmt::format("{} writes {}, which is not this stage's to write", describe(stage, range, 0),
                             describe(s, write.region));
      }
    }
    for (const int tensor : expected) {
      const bool copies = s.tensor(tensor).placement == Placement::copy;
      if (auto found = copies ? check_copies(s, stage, tensor) : check_covered_once(s, stage, tensor)) return found;
    }
  }
  return {};
}

}  // namespace adamk::validation
