// The text of a PTX module.
#include "adamk/ptx/statistics.h"
#include "fuzz.h"

using namespace adamk;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto statistics = ptx_statistics(fuzz::as_text(data, size));
  if (!statistics) {
    fuzz::require(!statistics.error().message.empty(), "a refusal says why");
    return 0;
  }
  for (const PtxFunction& function : statistics->functions) {
    std::int64_t counted = 0;
    for (const auto& [kind, count] : function.classes) counted += count;
    fuzz::require(counted == function.instructions, "every instruction is in one class");
  }
  return 0;
}
