// Recipe: everything needed to run one generated kernel, and nothing about how it was found. It is the machine-readable
// part of an artifact's manifest and what the evaluator hands to a Decoder directly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

struct Recipe {
  // identity
  std::string deployment_key, plan_hash;
  std::string arch;                  // "sm_90a" (cubin) or "compute_89" (PTX)
  std::string entry = "adamk_decode";
  std::string weights_hash;          // of the checkpoint the packed weights came from

  // launch
  int grid = 0, threads = 0;
  std::int64_t smem = 0;
  int max_steps = 0;                 // per launch

  // shapes
  std::string format;                // "bf16" or "fp16"
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  std::int64_t context = 0;

  // bytes
  std::int64_t packed_bytes = 0, small_bytes = 0, embedding_bytes = 0, kv_bytes = 0, workspace_bytes = 0;
  std::int64_t bytes_per_step = 0;   // weights that must be read for one token, KV aside

  std::vector<double> rope_inverse_frequencies;   // [head_dim / 2]

  // resources of the compiled kernel
  int registers = 0, spill_bytes = 0;
  std::int64_t code_bytes = 0;
};

Json recipe_to_json(const Recipe& recipe);
Result<Recipe> recipe_from_json(const JsonView& root);

}  // namespace adamk
