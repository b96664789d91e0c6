// A Hugging Face config.json. What is accepted is read back the same from our own description of it.
#include "adamk/dag/deployment.h"
#include "adamk/dag/model.h"
#include "fuzz.h"

using namespace adamk;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Json> document = parse_json(fuzz::as_text(data, size), "config.json");
  if (!document) return 0;
  const JsonView root(*document, "config.json");
  static_cast<void>(quantization_from_config(root));
  const Result<Model> model = model_from_config(root);
  if (!model) return 0;
  const Json described = model_to_json(*model);
  const Result<Model> again = model_from_description(JsonView(described, "description"));
  fuzz::require(again.has_value(), "a model that was read is written as one that can be read");
  fuzz::require(model_to_json(*again) == described, "reading a model back changes nothing");
  return 0;
}
