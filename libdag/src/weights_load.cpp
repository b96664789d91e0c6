// Weights from a Hugging Face folder: every tensor accounted for, none guessed.
#include <fmt/ranges.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "adamk/base/half.h"
#include "adamk/dag/weights.h"
#include "parallel.h"
#include "weights_slots.h"

namespace adamk {
namespace {

constexpr std::string_view tied_copy = "lm_head.weight";

/// Bytes per element of a dtype this loader reads, 0 for any other.
std::size_t element_bytes(std::string_view dtype) {
  if (dtype == "F32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

std::string_view dtype_of(WeightsFormat format) { return format == WeightsFormat::bf16 ? "BF16" : "F16"; }

Result<const Tensor*> expect_tensor(const SafeTensors& checkpoint, const TensorSlot& slot, const std::string& folder) {
  const Tensor* tensor = checkpoint.find(slot.name);
  if (!tensor) {
    return fail(Errc::bad_input, "{}: tensor '{}' of shape [{}] is missing; config.json says the model has it", folder,
                slot.name, fmt::join(slot.shape, ", "));
  }
  const std::size_t size = element_bytes(tensor->dtype);
  if (size == 0) {
    return fail(Errc::unsupported, "{}: tensor '{}' is stored as {}; only F32, F16 and BF16 are read", folder, slot.name,
                tensor->dtype);
  }
  if (tensor->shape != slot.shape) {
    return fail(Errc::bad_input, "{}: tensor '{}' has shape [{}], config.json asks for [{}]", folder, slot.name,
                fmt::join(tensor->shape, ", "), fmt::join(slot.shape, ", "));
  }
  if (tensor->data.size() != static_cast<std::size_t>(slot.elements()) * size) {
    return fail(Errc::bad_input, "{}: tensor '{}' holds {} bytes, its shape and dtype need {}", folder, slot.name,
                tensor->data.size(), static_cast<std::size_t>(slot.elements()) * size);
  }
  return tensor;
}

float stored_value(std::string_view dtype, const std::byte* data, std::size_t index) {
  if (dtype == "F32") {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  Half bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == "BF16" ? bf16_to_float(bits) : fp16_to_float(bits);
}

/// Rounds `tensor` to `format`; false when a finite value has no finite counterpart (fp16 ends at 65504).
bool convert(const Tensor& tensor, WeightsFormat format, std::span<Half> values) {
  if (tensor.dtype == dtype_of(format)) {   // only its alignment was wrong
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return true;
  }
  constexpr std::size_t piece = std::size_t{1} << 20;
  std::atomic<bool> representable{true};
  parallel_for((values.size() + piece - 1) / piece, [&](std::size_t p) {
    const std::size_t last = std::min(values.size(), (p + 1) * piece);
    bool good = true;
    for (std::size_t i = p * piece; i < last; ++i) {
      const float value = stored_value(tensor.dtype, tensor.data.data(), i);
      values[i] = from_float(format, value);
      good = good && (std::isfinite(to_float(format, values[i])) || !std::isfinite(value));
    }
    if (!good) representable = false;
  });
  return representable;
}

bool in_place(const Tensor& tensor, WeightsFormat format) {
  // A header of odd length leaves the data of a valid file unaligned.
  return tensor.dtype == dtype_of(format) && reinterpret_cast<std::uintptr_t>(tensor.data.data()) % alignof(Half) == 0;
}

bool is_rotary_buffer(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

/// A tied model may carry a copy of its embedding as lm_head.weight; anything else there would be ignored weights.
Result<void> check_tied_copy(const SafeTensors& checkpoint, const std::string& folder) {
  const Tensor* copy = checkpoint.find(std::string(tied_copy));
  const Tensor* embedding = checkpoint.find("model.embed_tokens.weight");
  if (!copy || !embedding) return {};
  if (copy->dtype == embedding->dtype && copy->shape == embedding->shape &&
      copy->data.size() == embedding->data.size() &&
      std::memcmp(copy->data.data(), embedding->data.data(), copy->data.size()) == 0) {
    return {};
  }
  return fail(Errc::bad_input,
              "{}: tie_word_embeddings is true, but '{}' differs from 'model.embed_tokens.weight'; set "
              "tie_word_embeddings to false to use it, or remove the tensor", folder, tied_copy);
}

Result<void> refuse_unused(const SafeTensors& checkpoint, const std::vector<TensorSlot>& slots, const Model& model,
                           const std::string& folder) {
  std::set<std::string_view> known;
  for (const TensorSlot& slot : slots) known.insert(slot.name);
  if (model.tied_head) known.insert(tied_copy);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (known.contains(name) || is_rotary_buffer(name)) continue;
    return fail(Errc::bad_input, "{}: no part of the model uses tensor '{}' ({} [{}]); config.json and the checkpoint "
                "disagree", folder, name, tensor.dtype, fmt::join(tensor.shape, ", "));
  }
  return {};
}

}  // namespace

Result<Weights> Weights::load(const Model& model, const std::filesystem::path& folder, WeightsFormat format) {
  const std::string where = folder.string();
  if (model.quantization) {
    return fail(Errc::unsupported, "{}: weights quantised as {} cannot be loaded yet; use the bf16 or fp16 checkpoint",
                where, model.quantization->method);
  }
  Weights weights;
  weights.format_ = format;
  weights.storage_ = std::make_shared<Storage>();
  ADAMK_TRY(SafeTensors opened, SafeTensors::open(folder));
  weights.storage_->checkpoint = std::make_unique<SafeTensors>(std::move(opened));
  const SafeTensors& checkpoint = *weights.storage_->checkpoint;

  const std::vector<TensorSlot> slots =
      tensor_slots(model, {&weights.embedding_, &weights.head_, &weights.final_norm_, &weights.layers_});
  ADAMK_CHECK(refuse_unused(checkpoint, slots, model, where));
  if (model.tied_head) ADAMK_CHECK(check_tied_copy(checkpoint, where));
  for (const TensorSlot& slot : slots) {
    ADAMK_TRY(const Tensor* tensor, expect_tensor(checkpoint, slot, where));
    const auto elements = static_cast<std::size_t>(slot.elements());
    if (in_place(*tensor, format)) {
      *slot.target = {reinterpret_cast<const Half*>(tensor->data.data()), elements};
      continue;
    }
    auto values = std::make_unique_for_overwrite<Half[]>(elements);
    if (!convert(*tensor, format, {values.get(), elements})) {
      return fail(Errc::unsupported, "{}: tensor '{}' ({}) holds values beyond the range of {}; use --weights bf16",
                  where, slot.name, tensor->dtype, dtype_of(format));
    }
    *slot.target = {values.get(), elements};
    weights.storage_->converted.push_back(std::move(values));
  }
  if (model.tied_head) weights.head_ = weights.embedding_;
  return weights;
}

}  // namespace adamk
