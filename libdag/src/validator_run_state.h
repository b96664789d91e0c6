// The state of a run of a protocol (validator_run.h); what each kind of operation does to it is in validator_run_*.cpp.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "protocol_walk.h"
#include "validator_clocks.h"
#include "validator_run.h"

namespace adamk::validation {

inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Which of a tensor's contents: those that a stage wrote in one step and layer. Step -1: as the host left them.
struct Version {
  int stage = -1, step = -1, layer = -1;
  auto operator<=>(const Version&) const = default;
};

/// One access of a warp: the components of its SM's clock that made it, and when. Warp -1: nobody yet.
struct Stamp {
  int warp = -1, first = 0, second = 0;
  Tick at = 0;
};
inline bool knows(const Ticks& ticks, const Stamp& s) { return ticks[index(s.first)] >= s.at && ticks[index(s.second)] >= s.at; }

/// Memory that is written and read as one: a warp's part of a slot, or a stretch of a tensor that stays in place.
struct Cell {
  int tensor = -1, task = -1, part = -1;   // task, part: -1 where storage is not used again for each
  Version version;
  Stamp write;
  std::vector<Stamp> reads;                // since that write
};

/// One mbarrier.
struct MBarrier {
  int turn = 0;                               // complete turns
  int arrivals = 0, copies = 0;               // of the current turn
  bool expects = false;                       // the current turn waits for copies
  Clock pending, complete;                    // what the current turn, and the last complete one, release
  std::vector<Stamp> arrived, last, last_but_one;          // who arrived: in the current turn and in those before
  std::vector<std::pair<int, Tick>> passed;       // components that went on at `turn`, and when
};

/// A stretch of a tensor in device memory that one task writes.
struct Stretch {
  std::int64_t begin, end;
  int sm;
  auto operator<=>(const Stretch&) const = default;
};
/// Stretches [first, second).
using Runs = std::vector<std::pair<int, int>>;

struct Packet {
  Version version;
  bool tagged = true;                                 // the host leaves zeros, which are tags of zero
  std::uint32_t tag = 0, tag_before = 0;
  Stamp write;
  std::shared_ptr<const Knowledge> known, released;   // when it was written; at the fence before that
};

struct ReaderList {
  struct Reader {
    int sm;
    Stamp stamp;
  };
  std::vector<Reader> readers;
  std::map<int, std::size_t> followed;   // how many of them a writing warp is known to follow
};

/// One slot of a tensor that crosses SMs.
struct Exchanged {
  std::vector<Packet> packets;   // of each stretch
  std::map<Version, std::map<Runs, ReaderList>> readers;
};

struct CounterState {
  std::vector<std::int64_t> adds_of;   // a phase gets from each SM
  std::int64_t arrivals = 0, value = 0;
  struct Add {
    Stamp stamp;
    bool relaxed;
    std::shared_ptr<const Knowledge> known;
  };
  std::vector<std::vector<Add>> added;   // by each SM
  std::map<std::int64_t, Outside> lessons;   // what so many complete phases teach
};

struct Heard {
  Tick at;
  Shared ticks;
};

/// What is worked out once of an operation.
struct OpFacts {
  bool crosses = false;                   // its tensor crosses SMs
  bool slotted = false;                   // its tensor lies in a slot, whichever its elements
  std::vector<const EdgeSet*> sources;    // of what it reads
  bool keeps = false;                     // it reads what its own tasks alone write
};

struct Warp {
  Warp(Walk w, int s, int l, const WarpProgram* p, const std::vector<std::vector<OpFacts>>* f)
      : walk(std::move(w)), sm(s), local(l), program(p), facts(f) {}
  Walk walk;
  int sm, local;
  const WarpProgram* program;
  const std::vector<std::vector<OpFacts>>* facts;   // by section and operation
  const OpFacts& fact() const { return (*facts)[index(walk.section())][index(walk.op_index())]; }
  std::vector<int> uses;
  Tick now = 0;                            // operations done
  std::array<Clock, 2> lanes;                       // of the first lane, of the others
  std::array<std::vector<Heard>, 2> order_heard, memory_heard;   // from outside, in order of time
  std::vector<Shared> polled;                       // order, by single lanes; the warp knows it at its next sync
  std::vector<Shared> acquirable, acquired;         // memory, at its next fence; at its next sync
  std::shared_ptr<const Knowledge> fenced;          // by its last fence
  bool waiting = false, finished = false;
};

/// Who appended a step's position, and when.
struct Append {
  int sm = -1, step = -1;
  Stamp stamp;
};

class ProtocolRun {
 public:
  explicit ProtocolRun(const Subject& subject);
  RunResult run();

 private:
  static constexpr int kFirst = 0, kOthers = 1;

  // validator_run.cpp: layout, launches, words
  void lay_out_tensors();
  void count_adders();
  void begin_launch(int launch, int first_step);
  void run_launch();
  void finish(Warp& w);
  bool execute(Warp& w);
  void report_deadlock();
  std::string blocked_on(const Warp& w, std::vector<int>& owes);
  bool failed() const { return result_.deadlock || result_.race; }
  bool deadlock(std::string what);
  bool race(std::string what);
  std::string name(const Warp& w) const;
  std::string name_of(int sm, int local) const;
  std::string here(const Warp& w) const;
  std::string words(const Version& version) const;
  const DagTensor& tensor(int id) const { return dag_.tensors[index(id)]; }
  const Storage& storage_of(int id) const { return p_.storages[index(tensor(id).storage)]; }
  bool crosses(int id) const { return storage_of(id).space == MemorySpace::global && !tensor(id).appended; }
  int stage_of(const Warp& w) const { return w.program->sections[index(w.walk.section())].stage; }
  int model_layer(int layer) const;
  Version version_here(const Warp& w) const;
  /// The version of its tensor that a read must find; nothing: no edge says.
  std::optional<Version> needed_version(const Warp& w) const;
  void gather_facts();

  // validator_run_clocks.cpp
  static bool takes_part(const SyncOp& op, int lane) { return op.lanes != LaneSet::first || lane == kFirst; }
  int component(int local, int lane) const { return 2 * local + lane; }
  std::size_t outside_index(int sm, int component) const { return index(sm * 2 * warps_ + component); }
  Stamp stamp(const Warp& w, const SyncOp& op) const;
  Shared joined(const Shared& a, const Shared& b);
  Outside outside_of(int sm, const Clock& known);
  /// Of what the given lane of a warp knows, or what both of its kinds of lanes know.
  std::shared_ptr<const Knowledge> knowledge(const Warp& w, LaneSet lanes);
  void add_knowledge(Ticks& into, const Knowledge& from, bool memory) const;
  void learn(Warp& w, int lane, const Shared& ticks, bool memory);
  bool follows(const Outside& outside, const Clock& inside, int sm, int of_sm, const Stamp& what, bool memory) const;
  bool sync(Warp& w, const SyncOp& op);
  bool fence(Warp& w);

  // validator_run_barriers.cpp: mbarriers and counters
  MBarrier& barrier(const Warp& w, const SyncOp& op, int use);
  std::string barrier_name(const Warp& w, const SyncOp& op, int use) const;
  bool wait(Warp& w, const SyncOp& op, int use);
  bool arrive(Warp& w, const SyncOp& op, int use);
  bool arrive_at(MBarrier& b, const Warp& w, const SyncOp& op, int use, const Clock& clock, const Stamp& who);
  bool complete_if_full(MBarrier& b, const Warp& w, const SyncOp& op, int use);
  bool add(Warp& w, const SyncOp& op);
  bool await(Warp& w, const SyncOp& op);
  std::int64_t target(const Warp& w, const SyncOp& op) const;

  // validator_run_memory.cpp: shared memory, and what a warp appends for itself
  std::vector<Region> regions(const Warp& w, const SyncOp& op, bool writes);
  std::pair<Cell*, Cell*> cells(const Warp& w, const SyncOp& op, int use, const Region& region);
  bool read(Warp& w, const SyncOp& op, int use);
  bool write(Warp& w, const SyncOp& op, int use);
  bool copy(Warp& w, const SyncOp& op, int use);
  template <class Visit>
  bool for_cells(const Warp& w, const SyncOp& op, int use, bool writes, Visit visit);
  bool fill(Warp& w, const SyncOp& op, int use, const Stamp& who);
  bool overwrite(const Warp& w, const SyncOp& op, Cell& cell, const Stamp& who);
  bool read_appended(Warp& w, const SyncOp& op);
  bool append(Warp& w, const SyncOp& op);

  // validator_run_exchange.cpp: what crosses SMs
  std::uint32_t tag(const Warp& w, const SyncOp& op) const;
  Runs stretches(const Warp& w, const SyncOp& op, bool writes);
  Exchanged& exchanged(const SyncOp& op, int use) { return exchanged_[index(op.tensor)][index(use) % exchanged_[index(op.tensor)].size()]; }
  bool take(Warp& w, const SyncOp& op, int use);
  bool put(Warp& w, const SyncOp& op, int use);
  Outside lesson(const Exchanged& slot, int tensor, const Version& version, const Runs& runs);
  std::string words(int tensor, int stretch) const;

  const Subject& s_;
  const TileDag& dag_;
  const Protocol& p_;
  WalkSize size_;
  TaskTable tasks_;
  int grid_, warps_ = 0, components_ = 0, per_sm_ = 0;
  std::vector<std::vector<SectionShape>> shapes_;   // of each program
  std::vector<int> engines_;                        // first component of each barrier array's copies
  std::vector<std::vector<std::vector<OpFacts>>> facts_;   // of each program
  std::vector<Warp> all_;                           // by SM, then program
  RunResult result_;

  Outside base_;                                    // known to all since the launch began
  struct Cache {
    std::vector<std::size_t> key;
    Outside outside;
  };
  std::vector<Cache> cache_;                        // of each SM
  std::vector<std::size_t> key_;

  std::vector<std::vector<std::vector<MBarrier>>> mbarriers_;   // SM, array, buffer
  std::vector<CounterState> counters_;
  std::vector<std::vector<Cell>> cells_;                        // of each SM
  std::vector<std::set<std::pair<int, WarpRole>>> writers_;     // stage and role, of each tensor
  std::vector<int> slot_base_, place_base_;                     // first cell of each storage, of each tensor that stays in place
  std::map<int, std::vector<Stamp>> started_;                   // copies that a warp has started, by engine
  std::map<std::array<std::int64_t, 4>, std::array<Append, 2>> appended_;   // (layer, begin, part, warp or -1): last, before
  std::vector<std::vector<std::int64_t>> cuts_;                 // of tensors that stay in place
  std::vector<std::vector<Stretch>> stretches_;
  std::vector<std::vector<Exchanged>> exchanged_;               // tensor, slot
  std::map<std::pair<const SyncOp*, std::array<int, 3>>, Runs> runs_;   // (SM, warp, task) of an operation
  std::map<std::pair<const SyncOp*, int>, std::vector<Region>> stage_regions_;
  std::map<std::tuple<const Exchanged*, Version, Runs>, Outside> lessons_;
  struct PairHash {
    std::size_t operator()(const std::pair<const Ticks*, const Ticks*>& p) const {
      return std::hash<const void*>()(p.first) * 31 + std::hash<const void*>()(p.second);
    }
  };
  std::unordered_map<std::pair<const Ticks*, const Ticks*>, std::array<Shared, 3>, PairHash> joins_;   // both and the result
};

}  // namespace adamk::validation
