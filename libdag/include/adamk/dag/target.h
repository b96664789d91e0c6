// Target: a GPU as the planner sees it. Shipped as YAML (examples/targets); `adamk-search probe` measures the one at hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

struct Target {
  std::string name;                      // "l20"
  std::string product;                   // "NVIDIA L20"
  int sm = 0;                            // 80, 86, 89, 90, 100, 120
  int sms = 0;
  std::int64_t smem_per_block = 0;       // bytes a block may opt in to (dynamic + static)
  std::int64_t smem_per_sm = 0;
  std::int64_t smem_reserved = 0;        // bytes the system takes per block
  int registers_per_sm = 65536;
  int max_threads_per_block = 1024;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  double read_gbps = 0;                  // GB/s, streaming reads by all SMs
  double hop_us = 0;                     // publish, see, publish again: one tagged exchange, idle memory system
  double clock_mhz = 0;
  bool measured = false;                 // probed on a device (true) or from data sheets (false)

  bool async_copy() const { return sm >= 80; }   // cp.async
  bool bulk_copy() const { return sm >= 90; }    // cp.async.bulk with mbarrier completion
  bool clusters() const { return sm >= 90; }
  /// The architecture NVRTC compiles for: sm_90a for 90, sm_NN otherwise.
  std::string arch() const;
};

/// A name of a shipped target ("l20") or a path to a YAML file. `search_path` holds the shipped ones; empty: the
/// folder examples/targets beside the executable's source or install tree, else $ADAMK_TARGETS.
Result<Target> load_target(const std::string& name_or_path, const std::filesystem::path& search_path = {});
Result<Target> target_from_json(const JsonView& root);
Json target_to_json(const Target& target);

}  // namespace adamk
