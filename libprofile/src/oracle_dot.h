// The reference's inner loop: a row of 16-bit weights times a vector of doubles.
#pragma once

#include <cstdint>

#include "adamk/dag/weights.h"

namespace adamk {

/// Sum over i < n of weights[i] x x[i] in double precision, eight interleaved partial sums added in a fixed order: the same
/// bits on every machine, with or without AVX2.
using DotFunction = double (*)(const Half* weights, const double* x, std::int64_t n);

/// The fastest one for this processor.
DotFunction dot_function(WeightsFormat format);

/// Without AVX2 even where it is there; for tests.
DotFunction portable_dot_function(WeightsFormat format);

}  // namespace adamk
