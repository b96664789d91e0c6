#include "validator_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "validator_run_state.h"

namespace adamk::validation {

RunResult run_protocol(const Subject& subject) { return ProtocolRun(subject).run(); }

ProtocolRun::ProtocolRun(const Subject& subject)
    : s_(subject), dag_(subject.dag), p_(subject.dag.protocol), size_(walk_size(subject.dag)), tasks_(subject.dag, size_), grid_(subject.dag.resources.grid) {
  for (const WarpProgram& program : p_.programs) {
    warps_ = std::max(warps_, program.first_warp + program.warps);
    per_sm_ += program.warps;
    std::vector<SectionShape> shapes;
    for (const ProgramSection& section : program.sections) shapes.emplace_back(section.ops);
    shapes_.push_back(std::move(shapes));
  }
  components_ = 2 * warps_;
  for (const BarrierArray& b : p_.barriers) {
    engines_.push_back(components_);
    if (b.copies > 0) components_ += 2 * b.buffers;   // a copy of the first lane and one of the others may be on their way
  }
  lay_out_tensors();
  gather_facts();
  all_.reserve(index(grid_ * per_sm_));
  for (int sm = 0; sm < grid_; ++sm) {
    for (std::size_t k = 0; k < p_.programs.size(); ++k) {
      const WarpProgram& program = p_.programs[k];
      for (int w = 0; w < program.warps; ++w) {
        all_.emplace_back(Walk(dag_, program, shapes_[k], tasks_, sm, size_), sm, program.first_warp + w, &program, &facts_[k]);
        all_.back().uses.assign(p_.uses.size(), 0);
      }
    }
  }
  count_adders();
  cache_.resize(index(grid_));
}

RunResult ProtocolRun::run() {
  int step = 0;
  for (std::size_t launch = 0; launch < size_.steps.size() && !failed(); ++launch) {
    begin_launch(static_cast<int>(launch), step);
    step += size_.steps[launch];
    run_launch();
  }
  result_.layers = size_.layers;
  result_.steps = step;
  return std::move(result_);
}

int ProtocolRun::model_layer(int layer) const {
  if (layer >= size_.layers) return dag_.layers + layer - size_.layers;
  return layer + 1 == size_.layers ? dag_.layers - 1 : layer;
}

void ProtocolRun::lay_out_tensors() {
  stretches_.resize(dag_.tensors.size());
  cuts_.resize(dag_.tensors.size());
  exchanged_.resize(dag_.tensors.size());
  writers_.resize(dag_.tensors.size());
  for (std::size_t stage = 0; stage < dag_.stages.size(); ++stage) {
    for (const TaskRange& range : dag_.stages[stage].ranges)
      for (const Access& write : range.writes) writers_[index(write.region.tensor)].insert({static_cast<int>(stage), range.role});
  }
  place_base_.assign(dag_.tensors.size(), 0);
  int cells = 0;
  for (const Storage& storage : p_.storages) {
    slot_base_.push_back(cells);
    cells += storage.slots * (storage.by_warp ? dag_.resources.consumer_warps : 1);
  }
  for (std::size_t t = 0; t < dag_.tensors.size(); ++t) {
    const int id = static_cast<int>(t);
    if (tensor(id).storage < 0 || tensor(id).appended) continue;
    for (const auto& [stage, role] : writers_[t]) {
      for (int sm = 0; sm < grid_; ++sm) {
        for (const TaskAt& task : tasks_.of(stage, role, sm)) {
          for (const Access& access : task.range->writes) {
            if (access.region.tensor != id) continue;
            const Region region = task.region(access);
            if (crosses(id)) stretches_[t].push_back({region.begin, region.end, sm});
            else cuts_[t].insert(cuts_[t].end(), {region.begin, region.end});
          }
        }
      }
    }
    const auto sort_once = [](auto& list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    sort_once(stretches_[t]);
    sort_once(cuts_[t]);
    if (crosses(id)) {
      exchanged_[t].resize(index(storage_of(id).slots));
      for (Exchanged& slot : exchanged_[t]) slot.packets.resize(stretches_[t].size());
    } else if (!storage_of(id).by_warp && storage_of(id).slots == 1) {
      place_base_[t] = cells;
      cells += static_cast<int>(cuts_[t].size());
    }
  }
  cells_.assign(index(grid_), std::vector<Cell>(index(cells)));
}

/// How many adds of a phase, one each layer, each counter gets from each SM.
void ProtocolRun::count_adders() {
  counters_.resize(p_.counters.size());
  for (CounterState& counter : counters_) {
    counter.adds_of.assign(index(grid_), 0);
    counter.added.resize(index(grid_));
  }
  for (const WarpProgram& program : p_.programs) {
    for (const ProgramSection& section : program.sections) {
      for (const SyncOp& op : section.ops) {
        for (int sm = 0; sm < grid_ && op.kind == SyncKind::add && section.stage >= 0; ++sm) {
          const bool busy = op.when != When::always && !tasks_.of(op.stage, WarpRole::storer, sm).empty();
          if (op.when != When::always && busy != (op.when == When::busy)) continue;
          std::int64_t times = program.warps * (op.lanes == LaneSet::all ? 32 : 1);
          if (dag_.stages[index(section.stage)].section == Section::layer) times *= size_.layers - (op.after_first ? 1 : 0);
          if (op.each != Each::stage) times *= static_cast<std::int64_t>(tasks_.of(section.stage, program.role, sm).size());
          if (op.each == Each::part) times *= size_.parts[index(section.stage)];
          counters_[index(op.counter)].adds_of[index(sm)] += times;
        }
      }
    }
  }
  for (std::size_t c = 0; c < counters_.size(); ++c) {
    for (int sm = 0; sm < grid_; ++sm) {
      std::int64_t& adds = counters_[c].adds_of[index(sm)];
      if (adds % size_.layers != 0)
        deadlock(fmt::format("SM {} adds {} times to counter {} in a step of {} layers, so no target fits all phases", sm, adds,
                             p_.counters[c].name, size_.layers));
      adds /= size_.layers;
      counters_[c].arrivals += adds;
    }
  }
}

// ---- a launch ------------------------------------------------------------------------------------------------------------------------

/// The end of a launch comes before everything of the next; its barriers are new.
void ProtocolRun::begin_launch(int launch, int first_step) {
  auto all = std::make_shared<Ticks>(index(grid_ * 2 * warps_));
  for (const Warp& w : all_)
    for (const int lane : {kFirst, kOthers}) (*all)[outside_index(w.sm, component(w.local, lane))] = w.now;
  base_ = {all, all};
  joins_.clear();
  lessons_.clear();
  const Ticks nothing(index(components_));
  mbarriers_.assign(index(grid_), {});
  for (auto& of_sm : mbarriers_) {
    for (const BarrierArray& b : p_.barriers) {
      of_sm.emplace_back(index(b.buffers));
      for (MBarrier& barrier : of_sm.back()) barrier.pending = barrier.complete = {nothing, nothing};
    }
  }
  for (auto& of_sm : cells_) std::fill(of_sm.begin(), of_sm.end(), Cell{});
  for (Cache& cache : cache_) cache = {};
  for (Warp& w : all_) {
    for (std::size_t u = 0; u < p_.uses.size(); ++u)
      if (!p_.uses[u].kept) w.uses[u] = 0;
    for (const int lane : {kFirst, kOthers}) {
      w.lanes[index(lane)] = {nothing, nothing};
      w.order_heard[index(lane)].clear();
      w.memory_heard[index(lane)].clear();
    }
    w.polled.clear();
    w.acquirable.clear();
    w.acquired.clear();
    w.fenced.reset();
    w.waiting = w.finished = false;
    w.walk.begin_launch(launch, first_step);
  }
}

/// Every warp goes as far as it can, again and again; an SM at a time, which is kinder to the cache.
void ProtocolRun::run_launch() {
  const auto go_on = [&](Warp& w) {
    bool moved = false;
    while (w.walk.op() != nullptr && execute(w)) {
      w.walk.next();
      moved = true;
    }
    if (!failed() && w.walk.op() == nullptr) finish(w);
    return moved;
  };
  for (bool any = true; any;) {
    any = false;
    for (int sm = 0; sm < grid_; ++sm) {
      for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < per_sm_; ++k) {
          Warp& w = all_[index(sm * per_sm_ + k)];
          if (!w.finished) moved = go_on(w) || moved;
          if (failed()) return;
        }
        any = any || moved;
      }
    }
  }
  if (std::any_of(all_.begin(), all_.end(), [](const Warp& w) { return !w.finished; })) report_deadlock();
}

/// Copies must not outlive their block: who started one sees it land.
void ProtocolRun::finish(Warp& w) {
  w.finished = true;
  for (const Stamp& landing : started_[static_cast<int>(&w - all_.data())]) {
    if (!knows(w.lanes[kFirst].order, landing) && !knows(w.lanes[kOthers].order, landing)) {
      race(fmt::format("{} ends while a copy that it started may still be on its way into shared memory", name(w)));
      return;
    }
  }
  started_.erase(static_cast<int>(&w - all_.data()));
}

/// False: the warp must wait, or the run has failed.
bool ProtocolRun::execute(Warp& w) {
  const SyncOp& op = *w.walk.op();
  if (op.kind == SyncKind::advance) {
    ++w.uses[index(op.use)];
    return true;
  }
  const int use = op.use >= 0 ? w.uses[index(op.use)] + op.offset : 0;
  if (use < 0) return true;
  // An operation bears its own time, so that what it releases includes it; a wait that fails gives the time back.
  ++w.now;
  for (const int lane : {kFirst, kOthers}) {
    const std::size_t own = index(component(w.local, lane));
    if (takes_part(op, lane)) w.lanes[index(lane)].order[own] = w.lanes[index(lane)].memory[own] = w.now;
  }
  const bool global = w.fact().crosses;
  bool done = false;
  switch (op.kind) {
    case SyncKind::wait: done = wait(w, op, use); break;
    case SyncKind::arrive:
    case SyncKind::expect: done = arrive(w, op, use); break;
    case SyncKind::copy: done = copy(w, op, use); break;
    case SyncKind::read:
    case SyncKind::load:
    case SyncKind::poll: done = global ? take(w, op, use) : read(w, op, use); break;
    case SyncKind::write:
    case SyncKind::store:
    case SyncKind::publish: done = global ? put(w, op, use) : write(w, op, use); break;
    case SyncKind::add: done = add(w, op); break;
    case SyncKind::await: done = await(w, op); break;
    case SyncKind::sync: done = sync(w, op); break;
    case SyncKind::fence: done = fence(w); break;
    case SyncKind::advance: break;
  }
  if (!done) --w.now;
  w.waiting = !done;
  if (done) ++result_.operations;
  return done && !failed();
}

// ---- versions ------------------------------------------------------------------------------------------------------------------------

Version ProtocolRun::version_here(const Warp& w) const { return {stage_of(w), w.walk.step(), w.walk.layer()}; }

void ProtocolRun::gather_facts() {
  for (const WarpProgram& program : p_.programs) {
    std::vector<std::vector<OpFacts>> of_program;
    for (const ProgramSection& section : program.sections) {
      std::vector<OpFacts> of_section;
      for (const SyncOp& op : section.ops) {
        OpFacts facts;
        if (op.tensor >= 0) {
          const Storage& storage = storage_of(op.tensor);
          facts.crosses = crosses(op.tensor);
          facts.slotted = !facts.crosses && !tensor(op.tensor).appended && (op.use >= 0 || storage.by_warp);
          for (const EdgeSet& edge : dag_.edges) {
            if (edge.hazard == Hazard::raw && edge.tensor == op.tensor && edge.to == section.stage && edge.to_role == program.role)
              facts.sources.push_back(&edge);
          }
          facts.keeps = writers_[index(op.tensor)] == std::set{std::pair(section.stage, program.role)};
        }
        of_section.push_back(std::move(facts));
      }
      of_program.push_back(std::move(of_section));
    }
    facts_.push_back(std::move(of_program));
  }
}

/// By the DAG's read-after-write edges: the source that runs last before this read.
std::optional<Version> ProtocolRun::needed_version(const Warp& w) const {
  const auto section = [&](int of) { return dag_.stages[index(of)].section; };
  const Section here = section(stage_of(w));
  std::optional<Version> found;
  for (const EdgeSet* edge : w.fact().sources) {
    Version v{edge->from, w.walk.step() - edge->step_distance, -1};
    if (section(edge->from) == Section::epilogue) v.layer = size_.layers;
    if (section(edge->from) == Section::layer) {
      v.layer = here == Section::layer ? w.walk.layer() - edge->layer_distance : size_.layers - 1;
      if (v.layer < 0) continue;   // before the first layer: another edge says
    }
    if (v.step < 0) continue;
    if (!found || std::pair(found->step, found->layer) < std::pair(v.step, v.layer)) found = v;
  }
  if (!found && w.fact().keeps) return version_here(w);
  return found;
}

// ---- words ---------------------------------------------------------------------------------------------------------------------------

bool ProtocolRun::deadlock(std::string what) {
  if (!failed()) result_.deadlock = std::move(what);
  return false;
}
bool ProtocolRun::race(std::string what) {
  if (!failed()) result_.race = std::move(what);
  return false;
}

std::string ProtocolRun::name(const Warp& w) const {
  std::string who(to_string(w.program->role));
  if (w.program->warps > 1) who += fmt::format(" warp {}", w.local - w.program->first_warp);
  return fmt::format("{} of SM {}", who, w.sm);
}

std::string ProtocolRun::name_of(int sm, int local) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Warp& w) { return w.sm == sm && w.local == local; });
  return found == all_.end() ? fmt::format("warp {} of SM {}", local, sm) : name(*found);
}

std::string ProtocolRun::here(const Warp& w) const {
  const int stage = w.walk.op() == nullptr ? -1 : stage_of(w);
  if (stage < 0) return name(w) + ", at its end,";
  std::string text = fmt::format("{}, in {}", name(w), dag_.stages[index(stage)].name);
  if (w.walk.layer() >= 0 && w.walk.layer() < size_.layers) text += fmt::format(" of layer {}", model_layer(w.walk.layer()));
  text += fmt::format(" of step {}", w.walk.step());
  if (w.walk.op()->each != Each::stage) text += fmt::format(", task {}", w.walk.tasks()[index(w.walk.task())].id());
  if (w.walk.op()->each == Each::part && size_.parts[index(stage)] > 1) text += fmt::format(" part {}", w.walk.part());
  return text + ",";
}

std::string ProtocolRun::words(const Version& v) const {
  if (v.step < 0) return "what was there before the launch";
  std::string text = fmt::format("what {} wrote in step {}", dag_.stages[index(v.stage)].name, v.step);
  if (v.layer >= 0 && v.layer < size_.layers) text += fmt::format(", layer {}", model_layer(v.layer));
  return text;
}

/// What a warp that cannot go on waits for, and who could give it.
std::string ProtocolRun::blocked_on(const Warp& w, std::vector<int>& owes) {
  const SyncOp& op = *w.walk.op();
  const int use = op.use >= 0 ? w.uses[index(op.use)] + op.offset : 0;
  const auto owe = [&](int sm, auto matches) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const Warp& other = all_[i];
      if (other.sm != sm || other.finished || &other == &w) continue;
      const bool could = std::any_of(other.program->sections.begin(), other.program->sections.end(), [&](const ProgramSection& part) {
        return std::any_of(part.ops.begin(), part.ops.end(), matches);
      });
      if (could) owes.push_back(static_cast<int>(i));
    }
  };
  if (op.kind == SyncKind::wait) {
    owe(w.sm, [&](const SyncOp& other) { return other.barrier == op.barrier && other.kind != SyncKind::wait; });
    const MBarrier& b = barrier(w, op, use);
    return fmt::format("waits for turn {} of {} ({} of {} arrivals)", use / p_.barriers[index(op.barrier)].buffers + op.turn,
                       barrier_name(w, op, use), b.arrivals, p_.barriers[index(op.barrier)].arrivals);
  }
  if (op.kind == SyncKind::await) {
    const CounterState& counter = counters_[index(op.counter)];
    const std::int64_t phases = counter.arrivals > 0 ? (target(w, op) + counter.arrivals - 1) / counter.arrivals : 0;
    for (int sm = 0; sm < grid_; ++sm) {
      if (static_cast<std::int64_t>(counter.added[index(sm)].size()) < phases * counter.adds_of[index(sm)])
        owe(sm, [&](const SyncOp& other) { return other.kind == SyncKind::add && other.counter == op.counter; });
    }
    return fmt::format("waits until counter {} reads {} (of this run's adds; it reads {})", p_.counters[index(op.counter)].name,
                       target(w, op), counter.value);
  }
  for (const auto& [first, last] : stretches(w, op, false)) {
    for (int i = first; i < last; ++i) {
      const Packet& packet = exchanged(op, use).packets[index(i)];
      if (packet.tagged && packet.tag == tag(w, op)) continue;
      const int sm = stretches_[index(op.tensor)][index(i)].sm;
      owe(sm, [&](const SyncOp& other) { return other.tensor == op.tensor && other.kind == SyncKind::publish; });
      return fmt::format("waits for tag {} on {}, which SM {} has not published", tag(w, op), words(op.tensor, i), sm);
    }
  }
  return "waits";
}

/// A chain of waits, up to where it closes.
void ProtocolRun::report_deadlock() {
  std::vector<int> seen;
  int at = 0;
  while (at < static_cast<int>(all_.size()) && all_[index(at)].finished) ++at;
  std::string text;
  constexpr std::size_t kLongest = 12;
  for (;;) {
    const Warp& w = all_[index(at)];
    std::vector<int> owes;
    const std::string what = blocked_on(w, owes);
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", here(w), what);
    seen.push_back(at);
    if (owes.empty()) {
      text += ", and nobody is left who could do that";
      break;
    }
    // One of those that have not been met yet, if any.
    const auto fresh = std::find_if(owes.begin(), owes.end(), [&](int i) { return std::find(seen.begin(), seen.end(), i) == seen.end(); });
    if (fresh == owes.end()) {
      text += fmt::format(", which takes {}", name(all_[index(owes.front())]));
      break;
    }
    if (seen.size() == kLongest) {
      text += "; and so on";
      break;
    }
    at = *fresh;
  }
  deadlock(std::move(text));
}

}  // namespace adamk::validation
