// SimulatedEvaluator: the cost model in the place of a device. Deterministic and free of noise, so a whole search runs, and
// repeats exactly, on a machine without a GPU.
#pragma once

#include <memory>

#include "adamk/search/evaluator.h"

namespace adamk {

/// The identity holds the target's name, the cost model's version and a digest of the figures it predicts from, so a
/// prediction is never mistaken for a measurement, nor for one of other figures.
std::unique_ptr<Evaluator> make_simulated_evaluator(const Target& target);

}  // namespace adamk
