#include "adamk/codegen/facts.h"

#include <cstddef>

#include "adamk/runtime/kernel_params.h"
#include "adamk/runtime/recipe.h"

namespace adamk {

KernelFacts kernel_facts(const Schedule& schedule) {
  KernelFacts facts;
  facts.entry = Recipe{}.entry;
  facts.watchdog = kernel_watchdog;
  std::int64_t begin = 0;
  const auto area = [&](const char* name, std::int64_t bytes) {
    if (bytes > 0) facts.shared.push_back({name, begin, begin + bytes});
    begin += bytes;
  };
  const SharedMemory& smem = schedule.smem;   // laid out in this order
  area("barriers", smem.barriers);
  area("partials", smem.partials);
  area("residual", smem.residual);
  area("attention", smem.attention);
  area("ring", smem.ring);
  const auto pointer = [&](const char* name, std::size_t offset, bool read_only) {
    facts.parameters.push_back({name, static_cast<std::int64_t>(offset), 8, false, read_only});
  };
  pointer("weights", offsetof(AdamkKernelParams, weights), true);
  pointer("small_tensors", offsetof(AdamkKernelParams, small_tensors), true);
  pointer("embedding", offsetof(AdamkKernelParams, embedding), true);
  pointer("rope", offsetof(AdamkKernelParams, rope), true);
  pointer("kv", offsetof(AdamkKernelParams, kv), false);
  pointer("exchange", offsetof(AdamkKernelParams, workspace), false);
  pointer("given", offsetof(AdamkKernelParams, given), true);
  pointer("tokens", offsetof(AdamkKernelParams, tokens), false);
  pointer("report", offsetof(AdamkKernelParams, report), false);
  // What the caller asks for: how many steps, from which position, with which given tokens, with logits or without.
  const auto steers = [&](const char* name, std::size_t offset, std::int64_t bytes) {
    facts.parameters.push_back({name, static_cast<std::int64_t>(offset), bytes, true, false});
  };
  steers("logits", offsetof(AdamkKernelParams, logits), 8);
  steers("position", offsetof(AdamkKernelParams, position), 8);
  steers("epoch", offsetof(AdamkKernelParams, epoch), 4);
  steers("given_count", offsetof(AdamkKernelParams, given_count), 4);
  steers("steps", offsetof(AdamkKernelParams, steps), 4);
  facts.warps = {{"consumer", schedule.plan.consumer_warps}};
  return facts;
}

}  // namespace adamk
