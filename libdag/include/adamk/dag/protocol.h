// Protocol: what every warp of the kernel does in order, as far as another warp can tell: its waits and arrivals, its reads and
// writes of what is shared, what it publishes and polls. Part of a TileDag, as data, so that the validator proves it and another
// exchange, role or buffer is another row here and no new code there. Kept compact: one list of operations for each role and stage,
// which the tasks of an SM and the parts of a task repeat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

enum class WarpRole { loader, consumer, storer, launcher };   // the launcher's warp is the controller's too

enum class MemorySpace { shared, global };

/// Memory that tensors lie in, a slot at a time where there are several. Bytes from the start of the block's shared memory, or of
/// the exchange workspace; -1: a buffer of its own.
struct Storage {
  std::string name;
  MemorySpace space = MemorySpace::shared;
  std::int64_t offset = 0, slot_bytes = 0;
  int slots = 1;
  bool by_warp = false;        // a slot is divided among the consumer warps: each touches its own part, every other role all of them
  bool operator==(const Storage&) const = default;
};

/// `buffers` mbarriers of a block, one behind the other, initialised anew by every launch. A turn of one is complete after so many
/// arrivals and completed copies.
struct BarrierArray {
  std::string name;
  std::int64_t offset = 0;
  int buffers = 1, arrivals = 1, copies = 0;
  bool operator==(const BarrierArray&) const = default;
};

/// A number of the phase (step, layer): per_step x step + per_layer x layer + first, modulo 2^32. Steps are counted from the first
/// launch on; the layer is `layers` in the epilogue.
struct PhaseRule {
  std::int64_t per_step = 0, per_layer = 0, first = 0;
  std::int64_t at(std::int64_t step, std::int64_t layer) const { return per_step * step + per_layer * layer + first; }
  bool operator==(const PhaseRule&) const = default;
};

/// A word of the workspace that only grows; phase (step, layer) is complete when it reads at least `target`.
struct PhaseCounter {
  std::string name;
  PhaseRule target;
  bool operator==(const PhaseCounter&) const = default;
};

/// How often a warp has done something: numbers slots and turns. Zero at the start of a launch, or kept over launches.
struct UseCount {
  std::string name;
  bool kept = false;
  bool operator==(const UseCount&) const = default;
};

enum class SyncKind {
  wait,      // barrier, until turn index / buffers + turn of buffer index % buffers is complete; tested by its parity alone
  arrive,    // barrier; releases what the lanes know
  expect,    // the same, and the turn also waits for its copies
  copy,      // starts an asynchronous write of the tensor, whose completion counts at `barrier`
  read, write,     // tensor, plain
  load, store,     // tensor, relaxed, untagged
  publish,         // tensor, relaxed packets with the phase's tag
  poll,            // tensor, until every packet has the phase's tag
  add,       // counter, one
  await,     // counter, until the phase is complete
  sync,      // __syncwarp: each lane knows what the others know; relaxed, a shuffle, which passes on values but orders no memory
  fence,     // releases with every relaxed store behind it, acquires from every relaxed load before it
  advance,   // use
};

enum class Each {
  stage,   // once; over all that the SM's tasks of the stage and role declare
  task,    // for every task
  part,    // for every part of a task: ring stages of a tile, passes of attention. What parts publish is there with the last of them
};

enum class LaneSet {
  all,     // every lane its share of the elements, or each for itself
  first,   // one lane for all
};

/// Tasks of the SM in another (or this) stage.
enum class When { always, busy, idle };

/// `elements` elements from `begin` on stand for a product's K columns in order, `unit` of them indivisible. A consumer warp touches
/// those whose columns meet its K slice; it writes the units whose first column does.
struct ColumnView {
  std::int64_t begin = 0, elements = 0, columns = 0, unit = 1;
  bool operator==(const ColumnView&) const = default;
};

struct SyncOp {
  SyncKind kind = SyncKind::sync;
  Each each = Each::stage;
  LaneSet lanes = LaneSet::all;
  int tensor = -1, barrier = -1, counter = -1;
  int use = -1;              // index = the warp's count of this use, plus offset; negative: the operation is left out
  int offset = 0;
  int turn = 0;
  int layer = 0;             // tag or target of the phase so many layers away
  bool relaxed = false;      // arrive, wait, add, await, sync: orders no memory
  bool after_first = false;  // left out in the first layer
  When when = When::always;
  int stage = -1;            // of `when`: does this SM have storer tasks there? (consumer tasks: the same SMs)
  std::vector<ColumnView> views;   // empty: all that is declared; of an appended tensor the positions that are the warp's own
  bool operator==(const SyncOp&) const = default;
};

struct ProgramSection {
  int stage = -1;            // -1: once, behind the last step
  std::vector<SyncOp> ops;   // consecutive ops of tasks are one loop over the tasks, within it those of parts one over the parts
  bool operator==(const ProgramSection&) const = default;
};

/// What `warps` warps of every block run: the sections of the prologue, of the layer as often as there are layers, of the epilogue;
/// for every step.
struct WarpProgram {
  WarpRole role = WarpRole::consumer;
  int first_warp = 0, warps = 1;
  std::vector<ProgramSection> sections;   // in the order of the DAG's stages
  bool operator==(const WarpProgram&) const = default;
};

struct Protocol {
  std::vector<Storage> storages;
  std::vector<BarrierArray> barriers;
  std::vector<PhaseCounter> counters;
  std::vector<UseCount> uses;
  PhaseRule tag;
  std::int64_t workspace_bytes = 0;
  std::vector<WarpProgram> programs;
  bool operator==(const Protocol&) const = default;
};

std::string_view to_string(WarpRole role);
std::string_view to_string(SyncKind kind);

Json protocol_to_json(const Protocol& protocol);
/// Structure and index ranges only, of a DAG with so many tensors and stages.
Result<Protocol> protocol_from_json(const JsonView& root, int tensors, int stages);

}  // namespace adamk
