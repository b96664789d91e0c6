#include <algorithm>

#include "model_import.h"

namespace adamk {
namespace {

// How the checkpoint was made, or which kernels its maker had in mind: the stored tensors say all that a reader needs.
// clang-format off
constexpr std::string_view harmless[] = {
    "damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "model_name_or_path",
    "model_file_base_name", "dataset", "tokenizer", "model_seqlen", "module_name_preceding_first_block", "batch_size",
    "pad_token_id", "disable_exllama", "use_exllama", "use_cuda_fp16", "exllama_config", "max_input_length",
    "cache_block_outputs", "mse", "meta", "quantizer", "backend", "version", "act_group_aware"};

constexpr std::string_view read[] = {
    "quant_method", "bits", "group_size", "sym", "desc_act", "lm_head", "dynamic", "checkpoint_format", "format",
    "pack_dtype", "block_name_to_quantize"};
// clang-format on

// Absent or empty in every checkpoint whose layout is the plain one.
constexpr std::string_view must_be_empty[] = {"dynamic", "modules_in_block_to_quantize", "modules_to_not_convert",
                                              "rotation", "is_marlin_format"};

bool contains(std::span<const std::string_view> list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

Result<bool> flag(const JsonView& config, std::string_view key, bool fallback) {
  const std::optional<JsonView> view = config.find(key);
  return view ? view->boolean() : Result<bool>(fallback);
}

/// A text key that may only say `expected` (or be absent).
Result<void> only_value(const JsonView& config, std::string_view key, std::string_view expected) {
  const std::optional<JsonView> view = config.find(key);
  if (!view) return {};
  ADAMK_TRY(const std::string stated, view->text());
  if (stated == expected) return {};
  return tl::unexpected(
      view->error(Errc::unsupported, fmt::format("'{}' is not supported, only '{}'", stated, expected)));
}

Result<void> check_keys(const JsonView& config) {
  for (const auto& [key, value] : config.value().items()) {
    if (contains(must_be_empty, key)) {
      if (is_empty(value)) continue;
      ADAMK_TRY(const JsonView view, config.at(key));
      return tl::unexpected(view.error(Errc::unsupported,
                                       "quantisation that differs between modules, or a layout of its own, is not "
                                       "supported yet; leave the key out or empty"));
    }
    if (contains(harmless, key) || contains(read, key)) continue;
    return tl::unexpected(config.error(
        Errc::unsupported,
        fmt::format("unknown key '{}': it might change how the weights are stored, so it is not ignored", key)));
  }
  return {};
}

Result<int> zeros_version(const JsonView& config) {
  int version = 1;
  for (const std::string_view key : {"checkpoint_format", "format"}) {
    const std::optional<JsonView> view = config.find(key);
    if (!view) continue;
    ADAMK_TRY(const std::string format, view->text());
    if (format != "gptq" && format != "gptq_v2") {
      return tl::unexpected(view->error(
          Errc::unsupported, fmt::format("checkpoint format '{}' is not supported, only gptq and gptq_v2", format)));
    }
    version = format == "gptq_v2" ? 2 : 1;
  }
  return version;
}

}  // namespace

Result<Quantization> quantization_from_config(const JsonView& config) {
  if (!config.value().is_object()) return tl::unexpected(config.error(Errc::bad_input, "must be an object"));
  Quantization quantization;
  quantization.method = "gptq";
  if (const std::optional<JsonView> method = config.find("quant_method")) {
    ADAMK_TRY(quantization.method, method->text());
    if (quantization.method != "gptq") {
      return tl::unexpected(method->error(
          Errc::unsupported, fmt::format("quantisation '{}' is not supported; use a bf16 or fp16 checkpoint, or GPTQ "
                                         "with 4 or 8 bits",
                                         quantization.method)));
    }
  } else if (!config.has("bits")) {
    return tl::unexpected(config.error(Errc::unsupported, "neither quant_method nor bits: not a GPTQ config"));
  }
  ADAMK_CHECK(check_keys(config));

  ADAMK_TRY(const JsonView bits, config.at("bits"));
  ADAMK_TRY(const std::int64_t bit_count, bits.integer(1, 64));
  if (bit_count != 4 && bit_count != 8) {
    return tl::unexpected(
        bits.error(Errc::unsupported, fmt::format("GPTQ with {} bits is not supported, only 4 and 8", bit_count)));
  }
  quantization.bits = static_cast<int>(bit_count);

  if (const std::optional<JsonView> group = config.find("group_size")) {
    ADAMK_TRY(const std::int64_t size, group->integer(-1, limits::hidden));
    if (size != 32 && size != 64 && size != 128 && size != -1) {
      return tl::unexpected(group->error(Errc::unsupported,
                                         fmt::format("group size {} is not supported, only 32, 64, 128 and -1", size)));
    }
    quantization.group_size = static_cast<int>(size);
  }
  ADAMK_TRY(quantization.symmetric, flag(config, "sym", true));
  ADAMK_TRY(quantization.act_order, flag(config, "desc_act", false));
  ADAMK_TRY(quantization.quantized_head, flag(config, "lm_head", false));
  ADAMK_TRY(quantization.zeros_version, zeros_version(config));
  ADAMK_CHECK(only_value(config, "pack_dtype", "int32"));
  ADAMK_CHECK(only_value(config, "block_name_to_quantize", "model.layers"));
  return quantization;
}

}  // namespace adamk
