// protocol: the programs touch what the tasks declare, and in a way that its storage allows; and where that storage lies.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "validator_checks.h"

namespace adamk::validation {
namespace {

bool takes(SyncKind kind) { return kind == SyncKind::read || kind == SyncKind::load || kind == SyncKind::poll; }
bool puts(SyncKind kind) {
  return kind == SyncKind::write || kind == SyncKind::store || kind == SyncKind::publish || kind == SyncKind::copy;
}

std::string at(const Subject& s, const WarpProgram& program, const ProgramSection& section, const SyncOp& op) {
  return fmt::format("the {}'s '{}' {}", to_string(program.role), to_string(op.kind),
                     section.stage < 0 ? std::string("at the end") : "in stage " + s.stage(section.stage).name);
}

template <class List>
bool within(int i, const List& list, bool optional) {
  return (optional && i == -1) || (i >= 0 && i < static_cast<int>(list.size()));
}

Counterexample check_indices(const Subject& s) {
  const Protocol& p = s.dag.protocol;
  for (const DagTensor& tensor : s.dag.tensors)
    if (!within(tensor.storage, p.storages, true)) return fmt::format("tensor {} lies in a storage that does not exist", tensor.name);
  for (const WarpProgram& program : p.programs) {
    int before = -1;
    for (const ProgramSection& section : program.sections) {
      const bool last = &section == &program.sections.back();
      if (!within(section.stage, s.dag.stages, last) || (section.stage >= 0 && section.stage <= before))
        return fmt::format("the {}'s sections are not in the order of the stages", to_string(program.role));
      before = section.stage;
      for (const SyncOp& op : section.ops) {
        if (!within(op.tensor, s.dag.tensors, true) || !within(op.barrier, p.barriers, true) || !within(op.counter, p.counters, true) ||
            !within(op.use, p.uses, true) || !within(op.stage, s.dag.stages, op.when == When::always) ||
            (section.stage < 0 && (op.each != Each::stage || op.tensor >= 0)))
          return at(s, program, section, op) + " names something that does not exist";
        const bool needs_barrier = op.kind == SyncKind::wait || op.kind == SyncKind::arrive || op.kind == SyncKind::expect ||
                                   op.kind == SyncKind::copy;
        const bool needs_counter = op.kind == SyncKind::add || op.kind == SyncKind::await;
        const bool needs_use = needs_barrier || op.kind == SyncKind::advance;
        if ((needs_barrier && op.barrier < 0) || (needs_counter && op.counter < 0) || (needs_use && op.use < 0) ||
            ((takes(op.kind) || puts(op.kind)) && op.tensor < 0))
          return at(s, program, section, op) + " does not say of what";
        if (op.kind == SyncKind::copy && p.barriers[static_cast<std::size_t>(op.barrier)].copies < 1)
          return fmt::format("{}: mbarrier {} waits for no copies", at(s, program, section, op),
                             p.barriers[static_cast<std::size_t>(op.barrier)].name);
        if (op.each != Each::stage && (op.when != When::always || op.after_first))
          return at(s, program, section, op) + " is conditional for single tasks, which no warp can be";
      }
    }
  }
  return {};
}

Counterexample check_warps(const Subject& s) {
  std::set<int> taken;
  int consumers = 0;
  for (const WarpProgram& program : s.dag.protocol.programs) {
    if (program.role == WarpRole::consumer) consumers += program.warps;
    for (int w = program.first_warp; w < program.first_warp + program.warps; ++w) {
      if (w < 0 || w >= s.dag.resources.threads / 32 || !taken.insert(w).second)
        return fmt::format("warp {} of the {} is taken already, or past the block's {} warps", w, to_string(program.role),
                           s.dag.resources.threads / 32);
    }
  }
  if (consumers != s.dag.resources.consumer_warps)
    return fmt::format("{} warps run the consumer's program, but there are {} consumer warps", consumers,
                       s.dag.resources.consumer_warps);
  return {};
}

Counterexample check_kind(const Subject& s, const std::string& who, const SyncOp& op) {
  const DagTensor& tensor = s.tensor(op.tensor);
  if (tensor.storage < 0) return fmt::format("{}: {} is in no storage that others see", who, tensor.name);
  const Storage& storage = s.dag.protocol.storages[static_cast<std::size_t>(tensor.storage)];
  const bool crosses = storage.space == MemorySpace::global && !tensor.appended;
  const bool plain = op.kind == SyncKind::read || op.kind == SyncKind::write || op.kind == SyncKind::copy;
  if (crosses == plain)
    return fmt::format("{}: {} {}", who, tensor.name, crosses ? "crosses SMs, and needs relaxed accesses" : "stays in its SM");
  if (op.kind == SyncKind::copy && storage.space != MemorySpace::shared) return fmt::format("{}: copies go to shared memory", who);
  if (storage.slots > 1 && op.use < 0)
    return fmt::format("{}: storage {} has {} slots, and nothing says which", who, storage.name, storage.slots);
  return {};
}

/// A role's accesses to one tensor in one stage.
using Touch = std::tuple<int, WarpRole, int, bool>;   // stage, role, tensor, writes

/// An operation and where it stands in its program.
struct Done {
  const SyncOp* op;
  int at;
};

struct Accesses {
  std::map<Touch, std::set<int>> declared;        // the SMs whose tasks say so
  std::map<Touch, std::vector<Done>> done;
};

/// Left out in the first layer may be only what comes from the layer before.
bool comes_later(const Subject& s, const Touch& touch) {
  const auto& [stage, role, tensor, writes] = touch;
  int sources = 0;
  for (const EdgeSet& e : s.dag.edges) {
    if (e.hazard != Hazard::raw || e.tensor != tensor || e.to != stage || e.to_role != role) continue;
    if (e.layer_distance == 0) return false;
    ++sources;
  }
  return !writes && sources > 0;
}

bool runs_on(const Subject& s, const SyncOp& op, int sm) {
  if (op.when == When::always) return true;
  const std::vector<TaskRange>& ranges = s.stage(op.stage).ranges;
  const bool busy = std::any_of(ranges.begin(), ranges.end(), [&](const TaskRange& r) { return r.role == WarpRole::storer && r.sm == sm; });
  return busy == (op.when == When::busy);
}

Counterexample check_done(const Subject& s, const Touch& touch, const std::set<int>& sms, const std::vector<Done>& done) {
  const auto& [stage, role, tensor, writes] = touch;
  const auto says = [&](const char* but) {
    return fmt::format("tasks of the {} in stage {} {} {}, but its program {}", to_string(role), s.stage(stage).name, writes ? "write" : "read",
                       s.tensor(tensor).name, but);
  };
  if (done.empty()) return says("never does");
  const auto always = [&](const Done& d) { return !d.op->after_first || comes_later(s, touch); };
  if (std::none_of(done.begin(), done.end(), always)) return says("leaves that out in the first layer");
  for (const int sm : sms) {
    if (std::none_of(done.begin(), done.end(), [&](const Done& d) { return always(d) && runs_on(s, *d.op, sm); }))
      return says("leaves that out on SM ") + std::to_string(sm);
  }
  return {};
}

/// Is what is put there made of what is taken here? Positions are appended as they come from other SMs; what the tasks of a role alone
/// write and read they work out from that and from positions, before their first slot is full.
bool made_of(const Subject& s, const Accesses& accesses, const Touch& put, const Touch& take) {
  const auto kept = [&](int tensor) {
    return std::none_of(accesses.declared.begin(), accesses.declared.end(), [&](const auto& d) {
      const auto& [stage, role, of, writes] = d.first;
      return of == tensor && (stage != std::get<0>(put) || role != std::get<1>(put));
    });
  };
  const int made = std::get<2>(put), taken = std::get<2>(take);
  if (!s.tensor(taken).appended && kept(taken)) return false;
  const bool crosses = s.dag.protocol.storages[static_cast<std::size_t>(s.tensor(taken).storage)].space == MemorySpace::global && !s.tensor(taken).appended;
  if (s.tensor(made).appended) return crosses;
  return crosses || s.tensor(taken).appended || !kept(made);
}

/// What a role puts out in a stage is made of what it has taken there, so it takes all of that before.
Counterexample check_taken_before(const Subject& s, const Accesses& accesses) {
  for (const auto& [put, puts] : accesses.done) {
    const auto& [stage, role, tensor, writes] = put;
    for (const auto& [take, takers] : accesses.done) {
      if (!writes || std::get<0>(take) != stage || std::get<1>(take) != role || std::get<3>(take) || !made_of(s, accesses, put, take)) continue;
      for (const Done& p : puts) {
        if (std::none_of(takers.begin(), takers.end(), [&](const Done& t) { return t.at < p.at; }))
          return fmt::format("the {} in stage {} puts {} out before it has taken {}", to_string(role), s.stage(stage).name, s.tensor(tensor).name,
                             s.tensor(std::get<2>(take)).name);
      }
    }
  }
  return {};
}

/// Every declared access of memory that is written has an operation that does it, and the other way round.
Counterexample check_accesses(const Subject& s) {
  Accesses accesses;
  std::set<int> written;
  for (const DagStage& stage : s.dag.stages) {
    for (const TaskRange& range : stage.ranges)
      for (const Access& access : range.writes) written.insert(access.region.tensor);
  }
  const auto shared = [&](int tensor) { return written.contains(tensor) && s.tensor(tensor).storage >= 0; };
  for (std::size_t stage = 0; stage < s.dag.stages.size(); ++stage) {
    for (const TaskRange& range : s.dag.stages[stage].ranges) {
      for (const auto* of : {&range.reads, &range.writes}) {
        for (const Access& access : *of) {
          const Touch touch{static_cast<int>(stage), range.role, access.region.tensor, of == &range.writes};
          if (shared(access.region.tensor)) accesses.declared[touch].insert(range.sm);
        }
      }
    }
  }
  for (const WarpProgram& program : s.dag.protocol.programs) {
    for (const ProgramSection& section : program.sections) {
      for (const SyncOp& op : section.ops) {
        if (!takes(op.kind) && !puts(op.kind)) continue;
        if (auto found = check_kind(s, at(s, program, section, op), op)) return found;
        const Touch touch{section.stage, program.role, op.tensor, puts(op.kind)};
        if (!accesses.declared.contains(touch))
          return fmt::format("{} touches {}, which none of its tasks declares", at(s, program, section, op), s.tensor(op.tensor).name);
        accesses.done[touch].push_back({&op, static_cast<int>(&op - section.ops.data())});
      }
    }
  }
  for (const auto& [touch, sms] : accesses.declared)
    if (auto found = check_done(s, touch, sms, accesses.done[touch])) return found;
  return check_taken_before(s, accesses);
}

/// Registers go from a warp to itself only.
Counterexample check_registers(const Subject& s) {
  for (const EdgeSet& edge : s.dag.edges) {
    if (edge.hazard == Hazard::raw && s.tensor(edge.tensor).storage < 0 && edge.from_role != edge.to_role)
      return fmt::format("{} is written by the {} and read by the {}, but lies in no storage that both see", s.tensor(edge.tensor).name,
                         to_string(edge.from_role), to_string(edge.to_role));
  }
  return {};
}

struct Piece {
  std::int64_t begin, end;
  std::string name;
};

Counterexample check_disjoint(std::vector<Piece> pieces, std::int64_t bytes, const char* what) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].end > bytes)
      return fmt::format("{}: {} ends at byte {}, but there are {}", what, pieces[i].name, pieces[i].end, bytes);
    if (i > 0 && pieces[i].begin < pieces[i - 1].end)
      return fmt::format("{}: {} from byte {} on lies over {}, which ends at {}", what, pieces[i].name, pieces[i].begin,
                         pieces[i - 1].name, pieces[i - 1].end);
  }
  return {};
}

/// Bytes of a tensor that its storage must hold at once, in one slot.
std::int64_t bytes_at_once(const Subject& s, int id) {
  const DagTensor& tensor = s.tensor(id);
  const Storage& storage = s.dag.protocol.storages[static_cast<std::size_t>(tensor.storage)];
  if (storage.space == MemorySpace::global) {
    bool packets = false;   // values of two or four bytes come with as much tag
    for (const WarpProgram& program : s.dag.protocol.programs) {
      for (const ProgramSection& section : program.sections)
        for (const SyncOp& op : section.ops) packets = packets || (op.kind == SyncKind::publish && op.tensor == id);
    }
    return tensor.elements * tensor.element_bytes * (packets && tensor.element_bytes <= 4 ? 2 : 1);
  }
  std::int64_t most = 0;
  const bool in_place = !storage.by_warp && storage.slots == 1;
  for (const DagStage& stage : s.dag.stages) {
    std::vector<std::int64_t> of_sm(static_cast<std::size_t>(std::max(1, s.dag.resources.grid)));
    for (const TaskRange& range : stage.ranges) {
      for (const Access& access : range.writes) {
        if (access.region.tensor != id || range.sm < 0 || range.sm >= s.dag.resources.grid) continue;
        const std::int64_t elements = access.region.end - access.region.begin;
        of_sm[static_cast<std::size_t>(range.sm)] += elements * range.count;
        if (!in_place) most = std::max(most, (elements + stage.parts - 1) / stage.parts);
      }
    }
    if (in_place) most = std::max(most, *std::max_element(of_sm.begin(), of_sm.end()));
  }
  return most * tensor.element_bytes;
}

/// Slots are filled anew for every use, by whichever tensor; anything else that lies in a storage lies there alone.
Counterexample check_sharing(const Subject& s) {
  std::map<int, const DagTensor*> alone;
  for (const DagTensor& tensor : s.dag.tensors) {
    if (tensor.storage < 0) continue;
    const Storage& storage = s.dag.protocol.storages[static_cast<std::size_t>(tensor.storage)];
    if (storage.space == MemorySpace::shared && (storage.by_warp || storage.slots > 1)) continue;
    const auto [at, fresh] = alone.try_emplace(tensor.storage, &tensor);
    if (!fresh) return fmt::format("storage {} holds both {} and {}", storage.name, at->second->name, tensor.name);
  }
  return {};
}

Counterexample check_sizes(const Subject& s) {
  for (std::size_t t = 0; t < s.dag.tensors.size(); ++t) {
    const DagTensor& tensor = s.dag.tensors[t];
    if (tensor.storage < 0) continue;
    const Storage& storage = s.dag.protocol.storages[static_cast<std::size_t>(tensor.storage)];
    const std::int64_t bytes = bytes_at_once(s, static_cast<int>(t));
    if (bytes > storage.slot_bytes)
      return fmt::format("storage {} has {} bytes{}, but {} needs {}", storage.name, storage.slot_bytes,
                         storage.slots > 1 ? " a slot" : "", tensor.name, bytes);
  }
  return {};
}

}  // namespace

Counterexample check_storage(const Subject& s) {
  const Protocol& p = s.dag.protocol;
  std::vector<Piece> shared, global;
  for (const Storage& storage : p.storages) {
    if (storage.slots < 1) return fmt::format("storage {} has {} slots", storage.name, storage.slots);
    if (storage.offset < 0) continue;   // a buffer of its own
    (storage.space == MemorySpace::shared ? shared : global)
        .push_back({storage.offset, storage.offset + storage.slot_bytes * storage.slots, storage.name});
  }
  for (const BarrierArray& b : p.barriers) {
    if (b.offset % 8 != 0) return fmt::format("mbarrier {} lies at byte {}, which is no multiple of 8", b.name, b.offset);
    if (b.buffers < 1 || b.arrivals + b.copies < 1) return fmt::format("mbarrier {} has no buffers or expects no arrivals", b.name);
    shared.push_back({b.offset, b.offset + 8 * b.buffers, "mbarrier " + b.name});
  }
  if (auto found = check_disjoint(std::move(shared), s.dag.resources.smem_bytes, "shared memory")) return found;
  if (auto found = check_disjoint(std::move(global), p.workspace_bytes, "workspace")) return found;
  return {};
}

Counterexample check_protocol(const Subject& s) {
  if (auto found = check_warps(s)) return found;
  if (auto found = check_accesses(s)) return found;
  if (auto found = check_registers(s)) return found;
  if (auto found = check_sharing(s)) return found;
  return check_sizes(s);
}

Counterexample check_protocol_names(const Subject& s) { return check_indices(s); }

}  // namespace adamk::validation
