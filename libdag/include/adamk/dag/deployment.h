// Deployment: Model x weights format x Target x Workload. The tuning key, hashed over everything that can change the result.
#pragma once

#include <cstdint>
#include <string>

#include "adamk/base/json.h"
#include "adamk/base/result.h"
#include "adamk/dag/model.h"
#include "adamk/dag/target.h"

namespace adamk {

/// What the packed weights, the activations and the KV cache are stored as.
enum class WeightsFormat { bf16, fp16 };

struct Workload {
  int batch = 1;
  std::int64_t context = 2048;   // positions the KV cache holds
  int steps_per_launch = 32;     // the most tokens one launch decodes; part of the key, not a compile-time constant
  std::string sampling = "greedy";
};

struct Deployment {
  Model model;
  WeightsFormat weights = WeightsFormat::bf16;
  Target target;
  Workload workload;

  /// 32 hexadecimal digits over the canonical JSON of all four.
  std::string key() const;
};

/// Checks what the four demand of each other (context against max_positions and sliding window, batch, sizes a kernel
/// can be made for, quantisation whose kernels do not exist yet) and names the constraint.
Result<Deployment> make_deployment(Model model, WeightsFormat weights, Target target, Workload workload);

std::string_view to_string(WeightsFormat format);
Result<WeightsFormat> parse_weights_format(std::string_view text);
Json deployment_to_json(const Deployment& deployment);
Result<Deployment> deployment_from_json(const JsonView& root);

}  // namespace adamk
