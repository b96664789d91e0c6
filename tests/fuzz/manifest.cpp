// The manifest of an artifact whose other files are whole. The input is its text up to the seal, which is added: a hash keeps
// damage out, so that without it nothing behind it would be reached. The seal has an input of its own: the same text without.
#include "adamk/runtime/artifact.h"
#include "artifact_seal.h"
#include "fuzz.h"

using namespace adamk;

namespace {

/// What the corpus's manifests list: sizes as in them, contents all zero.
const fuzz::Folder& folder() {
  static const fuzz::Folder made;
  static const bool filled = [] {
    made.write("kernel.cu", "// kernel\n");
    made.write("kernel.cubin", std::string(16, '\0'));
    made.write("kernel.ptx", "// ptx\n");
    made.write("weights.packed", std::string(64, '\0'));
    made.write("small.packed", std::string(32, '\0'));
    made.write("embedding.bin", std::string(160, '\0'));
    return true;
  }();
  static_cast<void>(filled);
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body = fuzz::as_text(data, size);
  folder().write("manifest.json", body);
  fuzz::require(!open_artifact(folder().path()).has_value(), "a manifest without its hash is refused");
  folder().write("manifest.json", seal_text(body));
  const auto artifact = open_artifact(folder().path());
  if (!artifact) return 0;
  fuzz::require(verify_files(*artifact).has_value(), "what opens has files as listed");
  const Json written = recipe_to_json(artifact->recipe);
  const auto again = recipe_from_json(JsonView(written, "recipe"));
  fuzz::require(again && recipe_to_json(*again) == written, "reading a recipe back changes nothing");
  return 0;
}
