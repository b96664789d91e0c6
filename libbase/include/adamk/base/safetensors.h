// Safetensors files: single, or sharded through model.safetensors.index.json; mapped, every offset checked before use.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/file.h"
#include "adamk/base/result.h"

namespace adamk {

struct Tensor {
  std::string dtype;                // as the file spells it: "BF16", "F16", "F32", "I32", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // little-endian, row-major, of any alignment; owned by the SafeTensors it came from
};

/// The tensors of one checkpoint. Owns the mappings; tensors stay valid as long as it lives.
class SafeTensors {
 public:
  /// Refuses (bad_input) files cut short, overlapping or unclaimed data, sizes that disagree with the shape, and an index
  /// and shards that disagree. A file, or a folder holding model.safetensors or model.safetensors.index.json (the index decides when both exist).
  static Result<SafeTensors> open(const std::filesystem::path& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const Tensor* find(const std::string& name) const;

 private:
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

/// One tensor to write; `data` must hold exactly shape x element size bytes.
struct TensorToWrite {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};
Result<void> write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace adamk
