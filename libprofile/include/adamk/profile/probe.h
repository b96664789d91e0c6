// What the GPU at hand is and does: properties from the driver, ceilings measured.
#pragma once

#include <string>
#include <string_view>

#include "adamk/base/result.h"
#include "adamk/dag/target.h"
#include "adamk/runtime/device.h"

namespace adamk {

struct ReadCeiling {
  double gbps = 0;              // the faster of the two
  std::string method;           // "bulk copies" or "vector loads"
  double vector_gbps = 0;
  double bulk_gbps = 0;         // 0 where the architecture has no bulk copies
  std::int64_t bytes = 0;       // read per launch
};

/// All SMs stream random data far larger than L2: up to 4 GiB, at most half of the memory that is free. About half a second.
Result<ReadCeiling> measure_read_ceiling(Device& device);
Result<double> read_ceiling_gbps(Device& device);

/// us from publishing to having seen every other SM's tagged packets, idle memory system, one block on every SM.
Result<double> measure_hop_us(Device& device);

/// Target as make_deployment wants it, `measured` set. `name` empty: from the product ("NVIDIA H200" -> "h200").
Result<Target> probe_target(Device& device, const std::string& name = {});

/// "NVIDIA GeForce RTX 4090" -> "rtx-4090", "NVIDIA A100-SXM4-80GB" -> "a100".
std::string target_name(std::string_view product);

/// "sm_90a" for 90, else "sm_NN": what NVRTC compiles for.
std::string device_arch(const DeviceInfo& info);

}  // namespace adamk
