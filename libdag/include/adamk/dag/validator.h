// Validator: proves a TileDag sound for its deployment, or refutes it with a counterexample. It takes nothing from the code
// that makes schedules, DAGs or kernels: what a stage must read and write is worked out again from the model.
#pragma once

#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/dag/deployment.h"
#include "adamk/dag/operator_graph.h"
#include "adamk/dag/tile_dag.h"

namespace adamk {

inline constexpr int kValidatorVersion = 2;

/// The verdict. With `ok`, every check listed holds for every task of every layer; otherwise `checks` lists those that
/// held before the one named by `failed`.
struct Certificate {
  bool ok = false;
  int validator_version = kValidatorVersion;
  std::string deployment_key, plan_hash;
  std::string dag_hash;         // of the tile DAG's JSON, protocol and all
  std::vector<std::string> checks;
  std::string failed;           // name of the check that does not hold
  std::string counterexample;   // in words: stage, task, SM, tensor and elements concerned
};

/// The checks, in order:
///   structure      the stages of one decode step, in order, for the model's layer count; tensors as large as the model needs
///   fits           grid, threads, registers, shared memory and workspace without overlap, ring and device memory of the target
///   in_bounds      every access inside its tensor, every SM inside the grid, every task id used once
///   complete       every element that a stage must produce is written exactly once, and nothing else is
///   operands       every tile reads the weights of the rows it writes and all of K; every head meets all its positions
///   edges          every read has an edge from the write it needs that can carry it; no chain of hazards is a circle
///   protocol       the warps' programs do what the tasks declare, with accesses that the storage allows
///   deadlock_free  every wait ends in every schedule; no turn, phase or packet can be overtaken
///   race_free      every read finds what it must, by the memory model, and nothing is overwritten before its readers are done
Certificate validate(const TileDag& dag, const Deployment& deployment);

Json certificate_to_json(const Certificate& certificate);

}  // namespace adamk
