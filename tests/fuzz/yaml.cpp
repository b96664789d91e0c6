// A model description and a target, which are YAML: the same bytes as both.
#include "adamk/dag/model.h"
#include "adamk/dag/target.h"
#include "fuzz.h"

using namespace adamk;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Json> document = parse_yaml(fuzz::as_text(data, size), "file.yaml");
  if (!document) return 0;
  const JsonView root(*document, "file.yaml");
  if (const Result<Model> model = model_from_description(root)) {
    const Json described = model_to_json(*model);
    const Result<Model> again = model_from_description(JsonView(described, "description"));
    fuzz::require(again && model_to_json(*again) == described, "reading a model back changes nothing");
    fuzz::require(rope_inverse_frequencies(*model).size() == static_cast<std::size_t>(model->head_dim / 2),
                  "half as many frequencies as a head has elements");
  }
  if (const Result<Target> target = target_from_json(root)) {
    const Json described = target_to_json(*target);
    const Result<Target> again = target_from_json(JsonView(described, "target"));
    fuzz::require(again && target_to_json(*again) == described, "reading a target back changes nothing");
  }
  return 0;
}
