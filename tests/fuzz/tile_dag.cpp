// A tile DAG on its own, judged for a small deployment: whole, or as a patch to a sound one.
#include "adamk/dag/tile_dag.h"

#include "adamk/dag/validator.h"
#include "fuzz.h"
#include "patch.h"
#include "small_deployment.h"

using namespace adamk;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Json sound = tile_dag_to_json(make_tile_dag(fuzz::small_deployment(), fuzz::small_plan()).value());
  const Result<Json> document = fuzz::patched(fuzz::as_text(data, size), "tile_dag.json", sound);
  if (!document) return 0;
  const Result<TileDag> dag = tile_dag_from_json(JsonView(*document, "tile_dag.json"));
  if (!dag) return 0;
  if (size % 4 == 0) {   // not always: it takes longer than all the rest
    const Json written = tile_dag_to_json(*dag);
    const Result<TileDag> again = tile_dag_from_json(JsonView(written, "written"));
    fuzz::require(again && tile_dag_to_json(*again) == written, "reading a tile DAG back changes nothing");
  }
  const Certificate certificate = validate(*dag, fuzz::small_deployment());
  fuzz::require(certificate.ok || !certificate.counterexample.empty(), "a refusal says why");
  return 0;
}
