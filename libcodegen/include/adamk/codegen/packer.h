// The packer: weights from checkpoint order to the order the loader streams them and the consumer's fragments want them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/schedule.h"
#include "adamk/dag/weights.h"

namespace adamk {

/// `schedule.packed_bytes` bytes; layout in adamk/dag/schedule.h. Multi-threaded, result independent of the thread count.
std::vector<std::byte> pack_weights(const Deployment& deployment, const Schedule& schedule, const Weights& weights);
/// The same into `out`, `schedule.packed_bytes` long; writes every byte of it.
void pack_weights(const Deployment& deployment, const Schedule& schedule, const Weights& weights, std::span<std::byte> out);

/// `schedule.small.bytes` bytes: norm gains and biases.
std::vector<std::byte> pack_small_tensors(const Deployment& deployment, const Schedule& schedule, const Weights& weights);

/// Two schedules with equal keys pack to the same bytes.
std::string packed_layout_key(const Schedule& schedule);

}  // namespace adamk
