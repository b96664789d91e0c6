// A DAG file, whole or as a patch to a sound one, and the validator over the tile DAG in it: it takes one from any source. The keys that tie a file's parts
// together are set right once, or an input with a changed part would never get past them.
#include "adamk/dag/dag_file.h"

#include "adamk/dag/validator.h"
#include "fuzz.h"
#include "patch.h"
#include "small_deployment.h"

using namespace adamk;

namespace {

void read(const Json& document, bool judge) {
  const Result<DagFile> file = dag_from_json(JsonView(document, "dag.json"));
  if (!file) return;
  const Json written = dag_to_json(*file);
  const Result<DagFile> again = dag_from_json(JsonView(written, "written"));
  fuzz::require(again && dag_to_json(*again) == written, "reading a DAG file back changes nothing");
  if (judge && file->tiles) static_cast<void>(validate(*file->tiles, file->deployment));
}

void set_keys(Json& document) {
  const auto part = [&](const char* key) { return document.contains(key) ? &document[key] : nullptr; };
  if (const Json* stored = part("deployment")) {
    if (const auto deployment = deployment_from_json(JsonView(*stored, "deployment"))) {
      document["deployment_key"] = deployment->key();
    }
  }
  if (const Json* stored = part("plan")) {
    const auto plan = plan_from_json(JsonView(*stored, "plan"));
    const Json* tiles = part("tile_dag");
    if (plan && tiles != nullptr && tiles->is_object()) document["tile_dag"]["plan_hash"] = plan->hash();
  }
  document.erase("operators");
}

Json sound_file() {
  DagFile file;
  file.deployment = fuzz::small_deployment();
  file.model_path = "model";
  file.random_weights = 1;
  file.plan = fuzz::small_plan();
  file.tiles = make_tile_dag(file.deployment, *file.plan).value();
  file.instructions = Json{{"plan_hash", file.plan->hash()}, {"roles", Json::array()}};
  return dag_to_json(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Json sound = sound_file();
  Result<Json> document = fuzz::patched(fuzz::as_text(data, size), "dag.json", sound);
  if (!document) return 0;
  read(*document, false);
  if (!document->is_object()) return 0;
  set_keys(*document);
  read(*document, true);
  return 0;
}
