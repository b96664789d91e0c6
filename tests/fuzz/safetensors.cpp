// One safetensors file, or an index over two shards (input that starts with '{'). Every byte of every tensor must be readable.
#include "adamk/base/safetensors.h"

#include <array>

#include "adamk/base/hash.h"
#include "fuzz.h"

using namespace adamk;

namespace {

void open(const std::filesystem::path& path) {
  const auto opened = SafeTensors::open(path);
  if (!opened) return;
  for (const auto& [name, tensor] : opened->tensors()) {
    static_cast<void>(hash_hex(tensor.data));
    fuzz::require(opened->find(name) == &tensor, "a listed tensor is found by its name");
  }
}

/// The shards that indices of the corpus name: a in the first, b in the second.
const fuzz::Folder& folder() {
  static const fuzz::Folder made;
  static const bool filled = [] {
    const std::array<std::byte, 8> values{};
    for (const char* name : {"a", "b"}) {
      const TensorToWrite tensor{name, "F32", {2}, values};
      fuzz::require(write_safetensors(made.path() / (std::string(name) + ".safetensors"), {&tensor, 1}).has_value(),
                    "the shards can be written");
    }
    return true;
  }();
  static_cast<void>(filled);
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::as_text(data, size);
  open(folder().write(bytes.starts_with('{') ? "model.safetensors.index.json" : "single.safetensors", bytes));
  return 0;
}
