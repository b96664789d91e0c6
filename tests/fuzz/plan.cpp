// A plan file, and what it would mean for a small deployment.
#include "adamk/dag/plan.h"

#include "adamk/dag/schedule.h"
#include "fuzz.h"
#include "small_deployment.h"

using namespace adamk;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Json> document = parse_json(fuzz::as_text(data, size), "plan.json");
  if (!document) return 0;
  const Result<Plan> plan = plan_from_json(JsonView(*document, "plan.json"));
  if (!plan) return 0;
  const Json written = plan_to_json(*plan);
  const Result<Plan> again = plan_from_json(JsonView(written, "written"));
  fuzz::require(again && *again == *plan, "reading a plan back changes nothing");
  if (const auto schedule = make_schedule(fuzz::small_deployment(), *plan)) {
    fuzz::require(schedule->smem.total() <= fuzz::small_deployment().target.smem_per_block,
                  "a schedule fits the target's shared memory");
  }
  return 0;
}
