// TileDag: a Plan expanded into every tile task with its SM, warp role, reads, writes and resources, and the hazards
// between them. Kept compact: layers are one template and a count, the consecutive tiles of an SM are one TaskRange, and an
// EdgeSet stands for all task edges between two roles over one tensor; both are expanded on demand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/protocol.h"
#include "adamk/dag/schedule.h"

namespace adamk {

enum class Section { prologue, layer, epilogue };   // once a step, once a layer, once a step

/// Where a tensor's elements live.
enum class Placement {
  memory,   // device memory, any SM may read what the edge's exchange has made visible
  split,    // shared memory or registers; an element lives in the SM that wrote it and nowhere else
  copy,     // every SM holds a whole copy of its own
};

enum class Hazard { raw, war, waw };

/// What orders the two ends of an edge.
enum class Via {
  tagged, counter, barrier,   // the exchange of the plan
  local,                      // the same SM: program order or an mbarrier
  path,                       // other edges in between, which the validator follows
};

struct DagTensor {
  std::string name;
  std::int64_t elements = 0;
  int element_bytes = 2;
  Placement placement = Placement::memory;
  bool per_layer = false;     // one for every layer; otherwise the same storage is used again each layer
  bool appended = false;      // a step writes its own position, and reads those of the steps before
  int storage = -1;           // of the protocol; -1: read only, or registers of the warps that write it
};

/// Elements [begin, end) of a tensor; with `parts` > 1 (KV cache only) those whose position % parts == part.
struct Region {
  int tensor = 0;
  std::int64_t begin = 0, end = 0;
  int part = 0, parts = 1;
  bool operator==(const Region&) const = default;
};
bool overlap(const Region& a, const Region& b);

/// Task i of a range (from 0) touches `region` moved by i x `stride` elements.
struct Access {
  Region region;
  std::int64_t stride = 0;
  Region at(int i) const;
  bool operator==(const Access&) const = default;
};

/// Consecutive tasks of one role on one SM. Task ids are unique per stage and role: tile index for GEMV stages, kv_head x
/// kv_splits + split for attention.
struct TaskRange {
  WarpRole role = WarpRole::consumer;
  int sm = 0;
  int first = 0, count = 1;
  std::vector<Access> reads, writes;
  std::int64_t bytes = 0;     // device memory a task moves
  double flops = 0;           // per task
  bool operator==(const TaskRange&) const = default;
};

struct KSlice {
  std::int64_t begin = 0, end = 0;   // columns of K; begin == end for a warp without work
  bool operator==(const KSlice&) const = default;
};

struct DagStage {
  std::string name;                  // "embedding" or the plan's stage name
  Section section = Section::layer;
  std::vector<KSlice> slices;        // GEMV stages: one for each consumer warp, the same for every tile
  int parts = 1;                     // of a task: ring stages of a tile, passes over the heads of an attention item
  std::vector<TaskRange> ranges;
};

struct EdgeSet {
  int from = 0, to = 0;              // stages
  WarpRole from_role = WarpRole::storer, to_role = WarpRole::consumer;
  int tensor = 0;
  Hazard hazard = Hazard::raw;
  Via via = Via::local;
  int layer_distance = 0;            // `to` runs so many layers later
  int step_distance = 0;             // ... and so many decode steps later
  bool operator==(const EdgeSet&) const = default;
};

/// What the kernel asks of the target.
struct DagResources {
  int grid = 0, threads = 0, consumer_warps = 0;
  std::int64_t smem_bytes = 0, ring_stage_bytes = 0;
  int ring_stages = 0, window = 0;
  int registers_per_thread = 0;      // the most that lets one block be resident
};

struct TileDag {
  std::string plan_hash;
  int layers = 0;
  std::vector<DagTensor> tensors;
  std::vector<DagStage> stages;      // embedding, the layer's stages, head, argmax
  std::vector<EdgeSet> edges;
  DagResources resources;
  Protocol protocol;

  int find_tensor(std::string_view name) const;   // -1 when absent
  int find_stage(std::string_view name) const;    // -1 when absent
  std::int64_t tasks() const;                     // of a whole step, all layers
  std::int64_t bytes() const;                     // device memory moved by a step at the last position
  double flops() const;
};

/// Fails (infeasible) where make_schedule does.
Result<TileDag> make_tile_dag(const Deployment& deployment, const Plan& plan);
TileDag make_tile_dag(const Deployment& deployment, const Schedule& schedule);

struct TaskId {
  int stage = 0;
  WarpRole role = WarpRole::consumer;
  int sm = 0;
  int id = 0;
};
/// Every pair of tasks whose regions of the edge's tensor overlap (and, for local edges, that share an SM), in order.
void for_each_task_edge(const TileDag& dag, const EdgeSet& edge,
                        const std::function<void(const TaskId&, const TaskId&)>& visit);

std::string_view to_string(Section section);
std::string_view to_string(Placement placement);
std::string_view to_string(Hazard hazard);
std::string_view to_string(Via via);

Json tile_dag_to_json(const TileDag& dag);
/// Structure, names and index ranges only; whether the DAG is sound is the validator's question.
Result<TileDag> tile_dag_from_json(const JsonView& root);

}  // namespace adamk
