#include "mutations.h"

#include <algorithm>
#include <utility>

namespace adamk::explorer {
namespace {

using Dag = TileDag;
using K = SyncKind;

template <class List>
auto& any(List& list, Random& random) {
  return list[random() % list.size()];
}
WarpRole some_role(Random& random) {
  constexpr WarpRole roles[] = {WarpRole::loader, WarpRole::consumer, WarpRole::storer};
  return roles[random() % 3];
}
int sign(Random& random) { return random() % 2 ? 1 : -1; }

/// An operation where it stands.
struct Place {
  WarpProgram* program;
  ProgramSection* section;
  std::size_t at;
  SyncOp& op() const { return section->ops[at]; }
};

template <class Match>
std::vector<Place> places(Dag& dag, Match match) {
  std::vector<Place> found;
  for (WarpProgram& program : dag.protocol.programs) {
    for (ProgramSection& section : program.sections) {
      for (std::size_t i = 0; i < section.ops.size(); ++i) {
        const Place place{&program, &section, i};
        if (match(place)) found.push_back(place);
      }
    }
  }
  return found;
}
std::vector<Place> places(Dag& dag, std::initializer_list<SyncKind> kinds) {
  return places(dag, [&](const Place& p) { return std::find(kinds.begin(), kinds.end(), p.op().kind) != kinds.end(); });
}

/// Does something to one of the places.
template <class Change>
bool at_one(std::vector<Place> found, Random& random, Change change) {
  if (found.empty()) return false;
  const Place place = any(found, random);
  change(place);
  return true;
}

bool drop(Dag& dag, Random& random, std::initializer_list<SyncKind> kinds) {
  return at_one(places(dag, kinds), random, [](const Place& p) { p.section->ops.erase(p.section->ops.begin() + static_cast<std::ptrdiff_t>(p.at)); });
}
bool relax(Dag& dag, Random& random, SyncKind kind) {
  return at_one(places(dag, [&](const Place& p) { return p.op().kind == kind && !p.op().relaxed; }), random, [](const Place& p) { p.op().relaxed = true; });
}
/// Of tasks, and of parts.
std::pair<int, int> loops(const std::vector<SyncOp>& ops) {
  std::pair<int, int> n;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Each before = i == 0 ? Each::stage : ops[i - 1].each;
    n.first += ops[i].each != Each::stage && before == Each::stage ? 1 : 0;
    n.second += ops[i].each == Each::part && before != Each::part ? 1 : 0;
  }
  return n;
}
/// From its place to another of the section; but no loop becomes two, which is another program and may be a good one.
bool move(const Place& p, std::size_t to) {
  std::vector<SyncOp> ops = p.section->ops;
  if (to >= ops.size() || to == p.at) return false;
  const SyncOp op = ops[p.at];
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(p.at));
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(to), op);
  const auto [tasks, parts] = loops(ops);
  if (tasks > loops(p.section->ops).first || parts > loops(p.section->ops).second) return false;
  p.section->ops = std::move(ops);
  return true;
}

// ---- tasks ----------------------------------------------------------------------------------------------------------------------

bool is_gemv(const DagStage& stage) { return !stage.slices.empty(); }

bool named_stage(const DagStage& stage, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), stage.name) != names.end();
}

DagStage* gemv(Dag& dag, Random& random) {
  std::vector<DagStage*> found;
  for (DagStage& stage : dag.stages)
    if (is_gemv(stage)) found.push_back(&stage);
  return any(found, random);
}

/// Every range into tasks of their own, so that one of them can be changed.
void split_ranges(DagStage& stage) {
  if (std::all_of(stage.ranges.begin(), stage.ranges.end(), [](const TaskRange& range) { return range.count == 1; })) return;
  std::vector<TaskRange> split;
  for (const TaskRange& range : stage.ranges) {
    for (int i = 0; i < range.count; ++i) {
      TaskRange one = range;
      one.first = range.first + i;
      one.count = 1;
      for (auto* accesses : {&one.reads, &one.writes})
        for (Access& access : *accesses) access = {access.at(i), access.stride};
      split.push_back(std::move(one));
    }
  }
  stage.ranges = std::move(split);
}

template <class Match>
TaskRange* task(DagStage& stage, Random& random, Match match) {
  split_ranges(stage);
  std::vector<TaskRange*> found;
  for (TaskRange& range : stage.ranges)
    if (match(range)) found.push_back(&range);
  return found.empty() ? nullptr : any(found, random);
}
TaskRange* task(DagStage& stage, Random& random, WarpRole role) {
  return task(stage, random, [&](const TaskRange& range) { return range.role == role; });
}

template <class Match>
Access* access(Dag& dag, std::vector<Access>& accesses, Match match) {
  for (Access& a : accesses)
    if (match(dag.tensors[static_cast<std::size_t>(a.region.tensor)])) return &a;
  return nullptr;
}
/// A stage's task of the role with such an access.
template <class Match>
std::pair<TaskRange*, Access*> touching(Dag& dag, Random& random, WarpRole role, bool writes, Match match) {
  std::vector<std::pair<DagStage*, TaskRange*>> found;
  for (DagStage& stage : dag.stages) {
    split_ranges(stage);
    for (TaskRange& range : stage.ranges)
      if (range.role == role && access(dag, writes ? range.writes : range.reads, match)) found.emplace_back(&stage, &range);
  }
  if (found.empty()) return {nullptr, nullptr};
  TaskRange* range = any(found, random).second;
  return {range, access(dag, writes ? range->writes : range->reads, match)};
}

bool ends_with(const DagTensor& tensor, std::string_view text) { return tensor.name.ends_with(text); }
bool named(const DagTensor& tensor, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), tensor.name) != names.end();
}

bool is_weights(const DagTensor& t) { return ends_with(t, ".weight") || ends_with(t, ".weight.packed"); }
bool is_published(const DagTensor& t) { return named(t, {"qkv", "attention", "hidden_mid", "ffn", "hidden"}); }

bool shift(Access* a, std::int64_t by) {
  if (a == nullptr) return false;
  a->region.begin += by;
  a->region.end += by;
  return true;
}

/// All tasks of one tile, its loader's, consumer's and storer's.
std::vector<TaskRange*> tile(DagStage& stage, Random& random) {
  const TaskRange* one = task(stage, random, WarpRole::storer);
  std::vector<TaskRange*> found;
  for (TaskRange& range : stage.ranges)
    if (one != nullptr && range.first == one->first) found.push_back(&range);
  return found;
}

// ---- the kinds ------------------------------------------------------------------------------------------------------------------

constexpr const char* kDeclared = "tasks declare accesses that their programs must make, whether or not another one makes up for it";
constexpr const char* kTurns = "an operation says its turn, and one that counts for another is refuted although it may do no harm here";
constexpr const char* kRegions = "a declared region is what a task's results are made of; the explorer takes any other as other results";
constexpr const char* kSize = "a limit of the target or the layout of memory, which no interleaving shows";
constexpr const char* kShape = "the stages, tensors and tasks that the model needs, by their names and numbers";
constexpr const char* kEdges = "edges say what a read must find; programs do not change with them";

std::vector<Mutation> make() {
  std::vector<Mutation> all;
  const auto add = [&](std::string name, auto apply, Judge judge = Judge::explorer, const char* reason = "") {
    all.push_back({std::move(name), judge, reason, [apply](Dag& dag, const Deployment& d, Random& r) -> bool {
                     if constexpr (std::is_invocable_v<decltype(apply), Dag&, const Deployment&, Random&>) return apply(dag, d, r);
                     else return apply(dag, r);
                   }});
  };

  // Operations left out.
  add("wait dropped", [](Dag& d, Random& r) { return drop(d, r, {K::wait}); });
  add("arrival dropped", [](Dag& d, Random& r) { return drop(d, r, {K::arrive}); });
  add("sync dropped", [](Dag& d, Random& r) { return drop(d, r, {K::sync}); });
  add("fence dropped", [](Dag& d, Random& r) { return drop(d, r, {K::fence}); });
  add("expect dropped", [](Dag& d, Random& r) { return drop(d, r, {K::expect}); });
  add("copy dropped", [](Dag& d, Random& r) { return drop(d, r, {K::copy}); });
  add("read dropped", [](Dag& d, Random& r) { return drop(d, r, {K::read}); }, Judge::contract, kDeclared);
  add("write dropped", [](Dag& d, Random& r) { return drop(d, r, {K::write}); }, Judge::contract, kDeclared);
  add("publication dropped", [](Dag& d, Random& r) { return drop(d, r, {K::publish, K::store}); }, Judge::contract, kDeclared);
  add("poll or load dropped", [](Dag& d, Random& r) { return drop(d, r, {K::poll, K::load}); }, Judge::contract, kDeclared);
  add("counter: add dropped", [](Dag& d, Random& r) { return drop(d, r, {K::add}); });
  add("counter: await dropped", [](Dag& d, Random& r) { return drop(d, r, {K::await}); });
  add("advance dropped", [](Dag& d, Random& r) { return drop(d, r, {K::advance}); });
  add("append to the KV cache dropped", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::consumer, true, [](const DagTensor& t) { return t.appended; });
    if (a == nullptr) return false;
    range->writes.erase(range->writes.begin() + (a - range->writes.data()));
    return true;
  });

  // Operations changed.
  add("operation doubled", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.op().kind != K::sync; }), r, [](const Place& p) {
      const SyncOp op = p.op();
      p.section->ops.insert(p.section->ops.begin() + static_cast<std::ptrdiff_t>(p.at), op);
    });
  });
  add("sync doubled", [](Dag& d, Random& r) {
    return at_one(places(d, {K::sync}), r, [](const Place& p) {
      const SyncOp op = p.op();
      p.section->ops.insert(p.section->ops.begin() + static_cast<std::ptrdiff_t>(p.at), op);
    });
  });
  add("two operations swapped", [](Dag& d, Random& r) {
    bool swapped = false;
    at_one(places(d, [](const Place& p) { return p.at + 1 < p.section->ops.size() && !(p.op() == p.section->ops[p.at + 1]); }), r,
           [&](const Place& p) { swapped = move(p, p.at + 1); });
    return swapped;
  });
  add("operation moved within its stage", [](Dag& d, Random& r) {
    bool moved = false;
    at_one(places(d, [](const Place& p) { return p.section->ops.size() > 1; }), r,
           [&](const Place& p) { moved = move(p, r() % p.section->ops.size()); });
    return moved;
  });
  add("slot released early", [](Dag& d, Random& r) {   // behind the wait before the read
    return at_one(places(d, [](const Place& p) { return p.op().kind == K::arrive && p.at >= 3 && p.section->ops[p.at - 2].kind == K::read; }), r,
                  [](const Place& p) { move(p, p.at - 2); });
  });
  add("acquired late", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) {
                    return (p.op().kind == K::wait || p.op().kind == K::await) && p.at + 1 < p.section->ops.size() &&
                           p.section->ops[p.at + 1].each == p.op().each;
                  }), r, [](const Place& p) { move(p, p.at + 1); });
  });
  add("parity swapped", [](Dag& d, Random& r) {
    return at_one(places(d, {K::wait}), r, [&](const Place& p) { p.op().turn += sign(r); });
  });
  add("index off by one", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.op().use >= 0 && p.op().kind != K::advance; }), r,
                  [&](const Place& p) { p.op().offset += sign(r); });
  });
  add("other use counted", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.op().use >= 0; }), r, [&](const Place& p) {
      const int uses = static_cast<int>(d.protocol.uses.size());
      p.op().use = (p.op().use + 1 + static_cast<int>(r() % static_cast<std::size_t>(uses - 1))) % uses;
    });
  });
  add("tag or target of another layer", [](Dag& d, Random& r) {
    return at_one(places(d, {K::poll, K::publish, K::await}), r, [&](const Place& p) { p.op().layer += sign(r); });
  });
  add("arrival relaxed", [](Dag& d, Random& r) { return relax(d, r, K::arrive); });
  add("wait relaxed", [](Dag& d, Random& r) { return relax(d, r, K::wait); });
  add("add relaxed", [](Dag& d, Random& r) { return relax(d, r, K::add); });
  add("await relaxed", [](Dag& d, Random& r) { return relax(d, r, K::await); });
  add("sync relaxed to a shuffle", [](Dag& d, Random& r) { return relax(d, r, K::sync); });
  add("one lane for all, or all for one", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.op().kind != K::sync && p.op().kind != K::advance; }), r,
                  [](const Place& p) { p.op().lanes = p.op().lanes == LaneSet::all ? LaneSet::first : LaneSet::all; });
  });
  add("tagged for untagged, relaxed for plain", [](Dag& d, Random& r) {
    return at_one(places(d, {K::publish, K::poll, K::store, K::load, K::read, K::write}), r, [&](const Place& p) {
      const std::vector<SyncKind> puts = {K::publish, K::store, K::write}, takes = {K::poll, K::load, K::read};
      const bool put = std::find(puts.begin(), puts.end(), p.op().kind) != puts.end();
      const SyncKind before = p.op().kind;
      while (p.op().kind == before) p.op().kind = any(put ? puts : takes, r);
    });
  }, Judge::contract, "memory that crosses SMs takes relaxed accesses only, and memory that stays takes plain ones, synchronised or not");
  add("mbarrier mistaken for another", [](Dag& d, Random& r) {
    return at_one(places(d, {K::wait, K::arrive, K::expect, K::copy}), r, [&](const Place& p) {
      const int n = static_cast<int>(d.protocol.barriers.size());
      p.op().barrier = (p.op().barrier + 1 + static_cast<int>(r() % static_cast<std::size_t>(n - 1))) % n;
    });
  });
  add("counter mistaken for another", [](Dag& d, Random& r) {
    const int n = static_cast<int>(d.protocol.counters.size());
    return n > 1 && at_one(places(d, {K::add, K::await}), r, [&](const Place& p) {
      p.op().counter = (p.op().counter + 1 + static_cast<int>(r() % static_cast<std::size_t>(n - 1))) % n;
    });
  });
  add("condition turned round", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.op().when != When::always; }), r, [&](const Place& p) {
      p.op().when = r() % 2 ? When::always : p.op().when == When::busy ? When::idle : When::busy;
    });
  });
  add("left out in the first layer, or not", [](Dag& d, Random& r) {
    return at_one(places(d, [&](const Place& p) {
                    return p.op().each == Each::stage && p.op().kind != K::sync && p.section->stage >= 0 &&
                           d.stages[static_cast<std::size_t>(p.section->stage)].section == Section::layer;
                  }), r, [](const Place& p) { p.op().after_first = !p.op().after_first; });
  });
  add("once a task for once a part", [](Dag& d, Random& r) {
    // A part finds what the same part wrote, so what a task reads at once is not read by parts.
    return at_one(places(d, [](const Place& p) {
                    return p.op().each != Each::stage && p.op().kind != K::sync && (p.op().each == Each::part || p.op().kind != K::read);
                  }), r, [](const Place& p) { p.op().each = p.op().each == Each::task ? Each::part : Each::task; });
  });
  add("partial join", [](Dag& d, Random& r) {   // takes less than it needs
    return at_one(places(d, [](const Place& p) { return !p.op().views.empty(); }), r, [&](const Place& p) {
      std::vector<ColumnView>& views = p.op().views;
      ColumnView& view = any(views, r);
      const int how = static_cast<int>(r() % 3);
      if (how == 0 && views.size() > 1) views.erase(views.begin() + (&view - views.data()));
      else if (how == 1) view.elements -= view.unit;
      else view.begin += view.unit;
    });
  });

  // Objects.
  add("tag used again", [](Dag& d, Random& r) {
    PhaseRule& tag = d.protocol.tag;
    const int how = static_cast<int>(r() % 4);
    if (how == 0) tag.per_layer = 0;
    else if (how == 1) tag.per_step = 0;
    else if (how == 2) tag.per_step = static_cast<std::int64_t>(1 + r() % 2);
    else tag.first = -static_cast<std::int64_t>(r() % 4);
    return true;
  });
  add("counter target off by one", [](Dag& d, Random& r) {
    if (d.protocol.counters.empty()) return false;
    any(d.protocol.counters, r).target.first += sign(r);
    return true;
  });
  add("counter started anew by a step or launch", [](Dag& d, Random& r) {
    if (d.protocol.counters.empty()) return false;
    PhaseRule& target = any(d.protocol.counters, r).target;
    (r() % 2 ? target.per_step : target.per_layer) = 0;
    return true;
  });
  add("counter target grows too fast or slowly", [](Dag& d, Random& r) {
    if (d.protocol.counters.empty()) return false;
    PhaseRule& target = any(d.protocol.counters, r).target;
    (r() % 2 ? target.per_step : target.per_layer) += sign(r);
    return true;
  });
  add("arrivals off by one", [](Dag& d, Random& r) {
    any(d.protocol.barriers, r).arrivals += sign(r);
    return true;
  }, Judge::contract, "an mbarrier cannot be initialised for no arrivals, even where nobody uses it");
  add("copies off by one", [](Dag& d, Random& r) {
    for (BarrierArray& b : d.protocol.barriers)
      if (b.copies > 0) b.copies += sign(r);
    return true;
  });
  add("mbarriers: one more or less", [](Dag& d, Random& r) {
    BarrierArray& b = any(d.protocol.barriers, r);
    const int before = b.buffers;
    b.buffers = std::max(1, b.buffers + sign(r));
    return b.buffers != before;
  }, Judge::contract, kSize);
  add("slots: one more or less", [](Dag& d, Random& r) {
    Storage& s = any(d.protocol.storages, r);
    const int before = s.slots;
    s.slots = std::max(1, s.slots + sign(r));
    return s.slots != before;
  }, Judge::contract, kSize);
  add("argmax in one buffer", [](Dag& d, Random&) {
    for (Storage& s : d.protocol.storages)
      if (s.name == "argmax") s.slots = 1;
    return true;
  });
  add("use count kept, or not", [](Dag& d, Random& r) {
    UseCount& use = any(d.protocol.uses, r);
    use.kept = !use.kept;
    return true;
  });
  add("window larger than the ring", [](Dag& d, Random& r) {
    const int more = static_cast<int>(1 + r() % 2) + d.resources.ring_stages - d.resources.window;
    return at_one(places(d, [&](const Place& p) {
                    return p.program->role == WarpRole::loader && p.op().kind == K::wait && p.op().offset < 0 && p.section->stage >= 0;
                  }), r, [&](const Place& p) { p.op().offset -= more; });
  });
  add("warps: one more or less", [](Dag& d, Random& r) {
    any(d.protocol.programs, r).warps += sign(r);
    return true;
  }, Judge::unsound, "a role has as many warps as its work is divided among, and they are the block's");
  add("warps of two roles overlap", [](Dag& d, Random& r) {
    const std::size_t i = r() % (d.protocol.programs.size() - 1);
    d.protocol.programs[i + 1].first_warp = d.protocol.programs[i].first_warp + d.protocol.programs[i].warps - 1;
    return true;
  }, Judge::unsound, "one warp cannot run two programs");
  add("roles swapped", [](Dag& d, Random& r) {
    const std::size_t i = r() % d.protocol.programs.size(), k = (i + 1 + r() % (d.protocol.programs.size() - 1)) % d.protocol.programs.size();
    std::swap(d.protocol.programs[i].role, d.protocol.programs[k].role);
    return true;
  }, Judge::contract, kDeclared);
  add("stage of a role forgotten", [](Dag& d, Random& r) {
    WarpProgram& program = any(d.protocol.programs, r);
    program.sections.erase(program.sections.begin() + static_cast<std::ptrdiff_t>(r() % program.sections.size()));
    return true;
  }, Judge::contract, kDeclared);

  // Memory.
  add("storage lies over another", [](Dag& d, Random& r) {
    std::vector<Storage*> found;
    for (Storage& s : d.protocol.storages)
      if (s.offset > 0 && s.slot_bytes > 0) found.push_back(&s);
    const Storage* over = any(found, r);
    std::vector<Storage*> others;
    for (Storage* s : found)
      if (s->space == over->space && s != over) others.push_back(s);
    if (others.empty()) return false;
    any(others, r)->offset = over->offset + static_cast<std::int64_t>(r() % static_cast<std::size_t>(over->slot_bytes));
    return true;
  }, Judge::unsound, kSize);
  add("tensor in another's storage", [](Dag& d, Random& r) {
    std::vector<DagTensor*> found;
    for (DagTensor& t : d.tensors)
      if (t.storage >= 0) found.push_back(&t);
    DagTensor* moved = any(found, r);
    const DagTensor* to = any(found, r);
    if (to->storage == moved->storage) return false;
    moved->storage = to->storage;
    return true;
  }, Judge::contract, kSize);
  add("storage too small", [](Dag& d, Random& r) {
    std::vector<Storage*> found;
    for (Storage& s : d.protocol.storages)
      if (s.slot_bytes >= 64 && s.name != "partials" && s.name != "attention" && s.name != "argmax") found.push_back(&s);
    Storage* s = any(found, r);
    for (const DagTensor& t : d.tensors)
      if (t.storage == s - d.protocol.storages.data()) {
        s->slot_bytes /= 4;
        return true;
      }
    return false;
  }, Judge::unsound, kSize);
  add("workspace too small", [](Dag& d, Random& r) {
    std::int64_t end = 0;
    for (const Storage& s : d.protocol.storages)
      if (s.space == MemorySpace::global && s.offset >= 0) end = std::max(end, s.offset + s.slot_bytes * s.slots);
    d.protocol.workspace_bytes = end - 1 - static_cast<std::int64_t>(r() % 16);
    return true;
  }, Judge::unsound, kSize);
  add("mbarrier where none can be", [](Dag& d, Random& r) {
    any(d.protocol.barriers, r).offset += 4;
    return true;
  }, Judge::unsound, kSize);
  add("mbarriers over each other", [](Dag& d, Random& r) {
    const std::size_t i = r() % (d.protocol.barriers.size() - 1);
    d.protocol.barriers[i + 1].offset = d.protocol.barriers[i].offset;
    return true;
  }, Judge::unsound, kSize);
  add("more SMs than the target has", [](Dag& d, const Deployment& deployment, Random& r) {
    d.resources.grid = deployment.target.sms + static_cast<int>(1 + r() % 8);
    for (DagTensor& t : d.tensors)
      if (named(t, {"token", "next_token", "argmax"})) t.elements = d.resources.grid;
    return true;
  }, Judge::unsound, kSize);
  add("fewer SMs than have work", [](Dag& d, Random&) {
    if (d.resources.grid < 2) return false;
    --d.resources.grid;
    return true;
  }, Judge::unsound, kShape);
  add("too many threads", [](Dag& d, const Deployment& deployment, Random& r) {
    d.resources.threads = deployment.target.max_threads_per_block + 32 * static_cast<int>(1 + r() % 4);
    return true;
  }, Judge::unsound, kSize);
  add("more registers than there are", [](Dag& d, const Deployment& deployment, Random& r) {
    d.resources.registers_per_thread = deployment.target.registers_per_sm / d.resources.threads + static_cast<int>(1 + r() % 8);
    return true;
  }, Judge::unsound, kSize);
  add("more shared memory than there is", [](Dag& d, const Deployment& deployment, Random& r) {
    d.resources.smem_bytes = deployment.target.smem_per_block + static_cast<std::int64_t>(1 + r() % 4096);
    return true;
  }, Judge::unsound, kSize);

  // Tasks and their regions.
  add("tile dropped", [](Dag& d, Random& r) {
    DagStage* stage = gemv(d, r);
    const std::vector<TaskRange*> found = tile(*stage, r);
    if (found.empty()) return false;
    const int id = found.front()->first;
    std::erase_if(stage->ranges, [&](const TaskRange& range) { return range.first == id; });
    return true;
  });
  add("task of one role dropped", [](Dag& d, Random& r) {
    DagStage& stage = any(d.stages, r);
    split_ranges(stage);
    stage.ranges.erase(stage.ranges.begin() + static_cast<std::ptrdiff_t>(r() % stage.ranges.size()));
    return true;
  }, Judge::contract, kShape);
  add("tile done twice", [](Dag& d, Random& r) {
    DagStage* stage = gemv(d, r);
    const int sm = static_cast<int>(r() % static_cast<std::size_t>(d.resources.grid));
    std::vector<TaskRange> copies;
    for (const TaskRange* range : tile(*stage, r)) {
      copies.push_back(*range);
      copies.back().sm = sm;
    }
    stage->ranges.insert(stage->ranges.end(), copies.begin(), copies.end());
    return !copies.empty();
  });
  add("output shifted", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::storer, true, is_published);
    return shift(a, sign(r) * static_cast<std::int64_t>(1 + r() % 16));
  });
  add("output of fewer elements", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::storer, true, is_published);
    if (a == nullptr || a->region.end - a->region.begin < 2) return false;
    --a->region.end;
    return true;
  });
  add("weights of other rows", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::loader, false, is_weights);
    const std::int64_t rows = a->region.end - a->region.begin, last = d.tensors[static_cast<std::size_t>(a->region.tensor)].elements;
    const std::int64_t by = a->region.begin >= rows ? -rows : rows;
    return a->region.end + by <= last && shift(a, by);
  });
  add("weights past the end", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::loader, false, is_weights);
    return shift(a, d.tensors[static_cast<std::size_t>(a->region.tensor)].elements - a->region.end + static_cast<std::int64_t>(1 + r() % 64));
  });
  add("fewer columns of the weights", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::loader, false, is_weights);
    a->region.end -= static_cast<std::int64_t>(1 + r() % 8);
    return a->region.begin < a->region.end;
  });
  add("K slice wrong", [](Dag& d, Random& r) {
    KSlice& slice = any(gemv(d, r)->slices, r);
    (r() % 2 ? slice.begin : slice.end) += sign(r) * static_cast<std::int64_t>(1 + r() % 16);
    return true;
  });
  add("K slices swapped", [](Dag& d, Random& r) {
    std::vector<KSlice>& slices = gemv(d, r)->slices;
    if (slices.size() < 2 || slices[0].begin == slices[1].begin) return false;
    std::swap(slices[0], slices[1]);
    return true;
  });
  add("inputs of fewer elements", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::consumer, false, is_published);
    if (a == nullptr) return false;
    const std::int64_t by = static_cast<std::int64_t>(1 + r() % 8);
    if (r() % 2) a->region.begin += by;
    else a->region.end -= by;
    return a->region.begin < a->region.end;
  });
  add("head of another group", [](Dag& d, const Deployment& deployment, Random& r) {
    const int at = d.find_stage("attention");
    if (at < 0 || deployment.model.kv_heads < 2) return false;
    TaskRange* item = task(d.stages[static_cast<std::size_t>(at)], r, WarpRole::consumer);
    const std::int64_t dim = deployment.model.head_dim, q = deployment.model.q_rows();
    Access& a = item->reads[r() % 3];   // q, k, v
    return shift(&a, a.region.begin < q ? (a.region.begin > 0 ? -dim : dim) : a.region.begin % (dim * deployment.model.kv_heads) == 0 ? dim : -dim);
  });
  add("positions of another head or split", [](Dag& d, const Deployment& deployment, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::consumer, r() % 2 != 0, [](const DagTensor& t) { return t.appended; });
    if (a == nullptr) return false;
    if (a->region.parts > 1 && r() % 2) {
      a->region.part = (a->region.part + 1) % a->region.parts;
      return true;
    }
    const std::int64_t head = d.tensors[static_cast<std::size_t>(a->region.tensor)].elements / deployment.model.kv_heads;
    if (deployment.model.kv_heads < 2 || a->region.end - a->region.begin != head) return false;
    return shift(a, a->region.begin > 0 ? -head : head);
  });
  add("positions past the context", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::consumer, r() % 2 != 0, [](const DagTensor& t) { return t.appended; });
    if (a == nullptr) return false;
    a->region.end = d.tensors[static_cast<std::size_t>(a->region.tensor)].elements + static_cast<std::int64_t>(1 + r() % 64);
    return true;
  });
  add("argmax of fewer rows", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, WarpRole::storer, false, [](const DagTensor& t) { return t.name == "logits"; });
    if (a == nullptr) return false;
    --a->region.end;
    return true;
  });
  add("ring or partial sums of another tile", [](Dag& d, Random& r) {
    auto [range, a] = touching(d, r, r() % 2 ? WarpRole::consumer : WarpRole::storer, false,
                               [](const DagTensor& t) { return ends_with(t, ".ring") || ends_with(t, ".partials"); });
    if (a == nullptr) return false;
    const std::int64_t one = a->region.end - a->region.begin;
    return shift(a, a->region.begin >= one ? -one : one);
  });
  add("tile moved to another SM by one role", [](Dag& d, Random& r) {
    // Not of argmax: whoever publishes an entry that says "none" may do so.
    DagStage& stage = d.stages[r() % (d.stages.size() - 1)];
    if (d.resources.grid < 2) return false;
    split_ranges(stage);
    TaskRange& range = any(stage.ranges, r);
    range.sm = (range.sm + 1) % d.resources.grid;
    return true;
  });
  const auto move_tile = [](Dag& d, Random& r, bool keeps) {
    if (d.resources.grid < 2) return false;
    DagStage* stage = gemv(d, r);
    if (named_stage(*stage, {"output", "down", "head"}) != keeps) return false;
    for (TaskRange* range : tile(*stage, r)) range->sm = (range->sm + 1) % d.resources.grid;
    return true;
  };
  add("harmless: tile moved to another SM by all roles", [=](Dag& d, Random& r) { return move_tile(d, r, false); }, Judge::schedules,
      "a tile may be any SM's, and where it is changes what else that SM's warps have read");
  add("tile moved away from its residual or logits", [=](Dag& d, Random& r) { return move_tile(d, r, true); }, Judge::unsound,
      "rows of the residual and logits stay in the SM that made them");
  add("tiles in another order by one role", [](Dag& d, Random& r) {
    DagStage* stage = gemv(d, r);
    TaskRange* one = task(*stage, r, some_role(r));
    for (TaskRange& other : stage->ranges) {
      if (&other == one || other.role != one->role || other.sm != one->sm) continue;
      std::swap(*one, other);
      return true;
    }
    return false;
  });
  add("harmless: tiles in another order by all roles", [](Dag& d, Random& r) {
    DagStage* stage = gemv(d, r);
    const std::vector<TaskRange*> one = tile(*stage, r), other = tile(*stage, r);
    if (one.size() != other.size() || one == other || one.front()->sm != other.front()->sm) return false;
    for (std::size_t i = 0; i < one.size(); ++i) std::swap(*one[i], *other[i]);
    return true;
  }, Judge::schedules, "tiles may be done in any order that all roles keep, and the order changes what their warps have read before");
  add("task number wrong", [](Dag& d, Random& r) {
    TaskRange* range = task(*gemv(d, r), r, some_role(r));
    range->first += 1000;
    return true;
  }, Judge::unsound, "a number names the tile to all roles, and the interleavings do not depend on it");

  // Shapes and edges.
  add("tensor of another size", [](Dag& d, Random& r) {
    std::vector<DagTensor*> found;
    for (DagTensor& t : d.tensors)
      if (is_published(t) || is_weights(t) || named(t, {"residual", "logits", "argmax", "kv_cache", "token", "embedding_row"})) found.push_back(&t);
    any(found, r)->elements += sign(r);
    return true;
  }, Judge::unsound, kShape);
  add("layer template counted wrong", [](Dag& d, Random& r) {
    d.layers += sign(r);
    return true;
  }, Judge::unsound, kShape);
  add("stage dropped", [](Dag& d, Random& r) {
    any(d.stages, r).name += "?";
    return true;
  }, Judge::unsound, kShape);
  add("edge missing", [](Dag& d, Random& r) {
    std::vector<std::size_t> reads;
    for (std::size_t i = 0; i < d.edges.size(); ++i)
      if (d.edges[i].hazard == Hazard::raw) reads.push_back(i);
    d.edges.erase(d.edges.begin() + static_cast<std::ptrdiff_t>(any(reads, r)));
    return true;
  }, Judge::unsound, kEdges);
  add("edge by the wrong means", [](Dag& d, Random& r) {
    std::vector<EdgeSet*> found;
    for (EdgeSet& e : d.edges)
      if (e.hazard == Hazard::raw && d.tensors[static_cast<std::size_t>(e.tensor)].placement == Placement::split) found.push_back(&e);
    any(found, r)->via = Via::tagged;
    return true;
  }, Judge::unsound, kEdges);
  add("edge of another layer or step", [](Dag& d, Random& r) {
    std::vector<EdgeSet*> found;
    for (EdgeSet& e : d.edges)
      if (e.hazard == Hazard::raw) found.push_back(&e);
    EdgeSet* e = any(found, r);
    (r() % 2 ? e->layer_distance : e->step_distance) += 1;
    return true;
  }, Judge::unsound, kEdges);
  add("cycle", [](Dag& d, Random& r) {
    std::vector<EdgeSet> found;
    for (const EdgeSet& e : d.edges)
      if (e.layer_distance == 0 && e.step_distance == 0 && !(e.from == e.to && e.from_role == e.to_role)) found.push_back(e);
    EdgeSet back = any(found, r);
    std::swap(back.from, back.to);
    std::swap(back.from_role, back.to_role);
    d.edges.push_back(back);
    return true;
  }, Judge::unsound, kEdges);

  // Changes that are no defects.
  add("harmless: a larger workspace", [](Dag& d, Random& r) {
    d.protocol.workspace_bytes += static_cast<std::int64_t>(r() % 4096);
    return true;
  }, Judge::sound, "memory that nobody uses");
  add("harmless: ranges split into tasks", [](Dag& d, Random& r) {
    split_ranges(any(d.stages, r));
    return true;
  });
  add("harmless: a sync more", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.section->stage >= 0; }), r, [](const Place& p) {
      SyncOp sync;
      sync.kind = K::sync;
      sync.each = p.op().each;
      p.section->ops.insert(p.section->ops.begin() + static_cast<std::ptrdiff_t>(p.at), sync);
    });
  });
  add("harmless: a fence more", [](Dag& d, Random& r) {
    return at_one(places(d, [](const Place& p) { return p.section->stage >= 0; }), r, [](const Place& p) {
      SyncOp fence;
      fence.kind = K::fence;
      fence.each = p.op().each;
      p.section->ops.insert(p.section->ops.begin() + static_cast<std::ptrdiff_t>(p.at), fence);
    });
  });
  add("harmless: tags counted from elsewhere", [](Dag& d, Random& r) {
    d.protocol.tag.first += static_cast<std::int64_t>(1 + r() % 1000);
    return true;
  });
  add("harmless: tags with gaps", [](Dag& d, Random& r) {
    const std::int64_t times = static_cast<std::int64_t>(2 + r() % 5);
    d.protocol.tag.per_layer *= times;
    d.protocol.tag.per_step *= times;
    return true;
  });
  static_cast<void>(kTurns);
  static_cast<void>(kRegions);
  return all;
}

}  // namespace

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all = make();
  return all;
}

}  // namespace adamk::explorer
