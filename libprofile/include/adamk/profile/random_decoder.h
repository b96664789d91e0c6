// A decoder of random weights, for kernels whose time is looked at and whose tokens are not.
#pragma once

#include <cstdint>

#include "adamk/codegen/kernel.h"
#include "adamk/runtime/decoder.h"

namespace adamk {

/// Weights, embedding and KV cache: values between 0.008 and 0.12 of either sign, a piece of at most 16 MB again and again.
/// `recipe`: of `kernel`, its sizes changed as the kernel needs them. Fails as Decoder::create does.
Result<Decoder> random_decoder(Device& device, const Recipe& recipe, const Kernel& kernel, WeightsFormat format,
                               std::uint64_t seed);

}  // namespace adamk
