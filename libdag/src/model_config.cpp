// Import of a Hugging Face config.json.
#include <algorithm>

#include "model_import.h"

namespace adamk {
namespace {

/// What a family's config class in transformers fills in (configuration_<family>.py), and what its modules have.
struct Family {
  std::string_view model_type, architecture;
  std::int64_t vocab, ffn, kv_heads, max_positions;  // kv_heads 0: as many as query heads
  std::int64_t head_dim;                             // 0: hidden / heads
  bool qkv_bias, qk_norm;
  bool has_attention_bias, has_mlp_bias;  // whether the config keys of that name do anything
};

constexpr Family families[] = {
    {"llama", "LlamaForCausalLM", 32000, 11008, 0, 2048, 0, false, false, true, true},
    {"mistral", "MistralForCausalLM", 32000, 14336, 8, 131072, 0, false, false, false, false},
    {"qwen2", "Qwen2ForCausalLM", 151936, 22016, 32, 32768, 0, true, false, false, false},
    {"qwen3", "Qwen3ForCausalLM", 151936, 22016, 32, 32768, 128, false, true, true, false},
};
constexpr std::int64_t default_hidden = 4096, default_layers = 32, default_heads = 32, default_window = 4096,
                       default_window_layers = 28;

Result<const Family*> find_family(const JsonView& config) {
  if (!config.value().is_object()) {
    return tl::unexpected(
        config.error(Errc::bad_input, "the root must be an object, as in a Hugging Face config.json"));
  }
  const std::optional<JsonView> type = config.find("model_type");
  if (!type) {
    return tl::unexpected(config.error(
        Errc::bad_input, "no model_type: not a Hugging Face config.json; the kind of model is not guessed"));
  }
  ADAMK_TRY(const std::string name, type->text());
  const auto* family =
      std::find_if(std::begin(families), std::end(families), [&](const Family& f) { return f.model_type == name; });
  if (family == std::end(families)) {
    const std::string_view reason = reason_against(name);
    return tl::unexpected(
        type->error(Errc::unsupported,
                    fmt::format("model type '{}' is not supported{}{}; supported are llama, mistral, qwen2, qwen3",
                                name, reason.empty() ? "" : ": ", reason)));
  }
  // An encoder or a draft head can share the model_type: only `architectures` tells them apart.
  if (const std::optional<JsonView> architectures = config.find("architectures")) {
    ADAMK_TRY(const std::vector<JsonView> names, architectures->items());
    for (const JsonView& item : names) {
      ADAMK_TRY(const std::string architecture, item.text());
      if (architecture != family->architecture) {
        return tl::unexpected(
            item.error(Errc::unsupported, fmt::format("'{}' is not supported: a {} model that decodes is a {}",
                                                      architecture, family->model_type, family->architecture)));
      }
    }
  }
  return family;
}

Result<void> read_sizes(ConfigReader& reader, const Family& family, Model& model) {
  const JsonView& config = reader.config();
  const auto read_int = [&](int& field, std::string_view key, std::int64_t high,
                            std::int64_t fallback) -> Result<void> {
    ADAMK_TRY(const std::int64_t value, reader.integer(key, high, fallback));
    field = static_cast<int>(value);
    return {};
  };
  ADAMK_CHECK(read_int(model.layers, "num_hidden_layers", limits::layers, default_layers));
  ADAMK_CHECK(read_int(model.hidden, "hidden_size", limits::hidden, default_hidden));
  ADAMK_CHECK(read_int(model.heads, "num_attention_heads", limits::heads, default_heads));
  ADAMK_CHECK(read_int(model.ffn, "intermediate_size", limits::ffn, family.ffn));
  ADAMK_CHECK(read_int(model.vocab, "vocab_size", limits::vocab, family.vocab));

  // Written null, num_key_value_heads means multi-head attention in every family, whatever the class default.
  const bool null_kv_heads = config.has("num_key_value_heads") && !config.find("num_key_value_heads");
  if (null_kv_heads) {
    model.kv_heads = model.heads;
  } else {
    const std::int64_t fallback = family.kv_heads == 0 ? model.heads : family.kv_heads;
    ADAMK_CHECK(read_int(model.kv_heads, "num_key_value_heads", limits::heads, fallback));
  }

  if (family.head_dim == 0 && !config.find("head_dim")) {  // absent or null
    if (model.hidden % model.heads != 0) {
      return tl::unexpected(config.error(
          Errc::bad_input, fmt::format("hidden_size {} is not a multiple of num_attention_heads {}; state head_dim",
                                       model.hidden, model.heads)));
    }
    model.head_dim = model.hidden / model.heads;
  } else {
    ADAMK_CHECK(read_int(model.head_dim, "head_dim", limits::head_dim, family.head_dim));
  }
  ADAMK_TRY(model.max_positions, reader.integer("max_position_embeddings", limits::positions, family.max_positions));
  ADAMK_TRY(model.norm_eps, reader.number("rms_norm_eps", 0.0, 1.0, 1e-6));
  return {};
}

Result<void> read_activation(ConfigReader& reader) {
  if (!reader.config().has("hidden_act")) {
    reader.note("hidden_act is absent: silu, the default");
    return {};
  }
  ADAMK_TRY(const JsonView view, reader.config().at("hidden_act"));
  ADAMK_TRY(const std::string activation, view.text());
  if (activation == "silu" || activation == "swish") return {};
  return tl::unexpected(
      view.error(Errc::unsupported, fmt::format("activation '{}' is not supported, only silu", activation)));
}

Result<void> read_biases(ConfigReader& reader, const Family& family, Model& model) {
  model.qkv_bias = family.qkv_bias;
  model.qk_norm = family.qk_norm;
  const JsonView& config = reader.config();
  if (const std::optional<JsonView> view = config.find("attention_bias")) {
    ADAMK_TRY(const bool bias, view->boolean());
    if (family.has_attention_bias) {
      // One key for all four projections, the output's included (modeling_llama.py, modeling_qwen3.py).
      model.qkv_bias = model.output_bias = bias;
    } else if (bias && !family.qkv_bias) {
      return tl::unexpected(
          view->error(Errc::unsupported, fmt::format("a {} model has no attention biases", family.model_type)));
    } else if (!bias && family.qkv_bias) {
      reader.note(
          fmt::format("attention_bias false has no effect: {} always has q, k and v biases", family.model_type));
    }
  }
  if (const std::optional<JsonView> view = config.find("mlp_bias")) {
    ADAMK_TRY(const bool bias, view->boolean());
    if (bias && !family.has_mlp_bias) {
      return tl::unexpected(
          view->error(Errc::unsupported, fmt::format("a {} model has no MLP biases", family.model_type)));
    }
    model.mlp_bias = bias;
  }
  ADAMK_TRY(model.tied_head, reader.boolean("tie_word_embeddings", false));
  return {};
}

/// True when the list is there; every layer must attend to all positions.
Result<bool> read_layer_types(const JsonView& config, int layers) {
  const std::optional<JsonView> types = config.find("layer_types");
  if (!types) return false;
  ADAMK_TRY(const std::vector<JsonView> items, types->items());
  if (items.size() != static_cast<std::size_t>(layers)) {
    return tl::unexpected(types->error(Errc::bad_input, fmt::format("{} entries for {} layers", items.size(), layers)));
  }
  for (const JsonView& item : items) {
    ADAMK_TRY(const std::string type, item.text());
    if (type != "full_attention") {
      return tl::unexpected(
          item.error(Errc::unsupported, fmt::format("layer type '{}' is not supported, only full_attention", type)));
    }
  }
  return true;
}

Result<void> read_window(ConfigReader& reader, const Family& family, Model& model) {
  const JsonView& config = reader.config();
  ADAMK_TRY(const bool all_full, read_layer_types(config, model.layers));
  const std::optional<JsonView> stated = config.find("sliding_window");
  std::optional<std::int64_t> window;
  if (stated) {
    ADAMK_TRY(window, stated->integer(1, limits::positions));
  }

  if (family.model_type == "mistral") {
    // Absent is the class default, null is full attention: not the same.
    if (!config.has("sliding_window")) {
      reader.note(fmt::format("sliding_window is absent: {}, the default", default_window));
      window = default_window;
    }
    model.sliding_window = window;
    return {};
  }
  if (family.model_type == "llama") {
    // transformers' Llama has no window. Where one is stated, contexts within it mean the same either way.
    if (window) reader.note("sliding_window is stated for a llama model: contexts beyond it are refused");
    model.sliding_window = window;
    return {};
  }

  bool used = false;
  if (const std::optional<JsonView> use = config.find("use_sliding_window")) {
    ADAMK_TRY(used, use->boolean());
  }
  if (!used || all_full) return {};
  if (!config.has("sliding_window")) window = default_window;
  ADAMK_TRY(const std::int64_t first_windowed, [&]() -> Result<std::int64_t> {
    const std::optional<JsonView> view = config.find("max_window_layers");
    return view ? view->integer(0, limits::positions) : Result<std::int64_t>(default_window_layers);
  }());
  if (!window || first_windowed >= model.layers) return {};
  if (first_windowed > 0) {
    return tl::unexpected(config.error(
        Errc::unsupported,
        fmt::format(
            "use_sliding_window with max_window_layers {} of {} layers: layers with and without a sliding window "
            "are not supported",
            first_windowed, model.layers)));
  }
  model.sliding_window = window;
  return {};
}

Result<void> read_dtype(const JsonView& config, Model& model) {
  for (const std::string_view key : {"torch_dtype", "dtype"}) {
    const std::optional<JsonView> view = config.find(key);
    if (!view) continue;
    ADAMK_TRY(std::string name, view->text());
    if (name.starts_with("torch.")) name.erase(0, std::string_view("torch.").size());
    if (name != "bfloat16" && name != "float16" && name != "float32") {
      return tl::unexpected(view->error(
          Errc::unsupported, fmt::format("'{}' is not supported, only bfloat16, float16 and float32", name)));
    }
    if (!model.stored_dtype.empty() && model.stored_dtype != name) {
      return tl::unexpected(
          view->error(Errc::bad_input, fmt::format("'{}' disagrees with torch_dtype '{}'", name, model.stored_dtype)));
    }
    model.stored_dtype = name;
  }
  return {};
}

Result<void> read_quantization(const JsonView& config, Model& model) {
  if (const std::optional<JsonView> mlx = config.find("quantization")) {
    return tl::unexpected(
        mlx->error(Errc::unsupported, "MLX quantisation is not supported; use a bf16 or fp16 checkpoint, or GPTQ"));
  }
  const std::optional<JsonView> view = config.find("quantization_config");
  if (!view) return {};
  if (view->value().is_object() && !view->find("quant_method")) {
    return tl::unexpected(view->error(Errc::unsupported, "the key 'quant_method' is missing; it is not guessed"));
  }
  ADAMK_TRY(model.quantization, quantization_from_config(*view));
  return {};
}

Result<void> check_tensor_parallel(ConfigReader& reader) {
  const std::optional<JsonView> view = reader.config().find("pretraining_tp");
  if (!view) return {};
  ADAMK_TRY(const std::int64_t parts, view->integer(1, limits::heads));
  // transformers then splits the products and adds the parts: the same sum in another order.
  if (parts != 1) reader.note(fmt::format("pretraining_tp {} only changes the order of summation; not used", parts));
  return {};
}

}  // namespace

Result<std::int64_t> ConfigReader::integer(std::string_view key, std::int64_t high, std::int64_t fallback) {
  if (!config_->has(key)) {
    note(fmt::format("{} is absent: {}, the default", key, fallback));
    return fallback;
  }
  ADAMK_TRY(const JsonView view, config_->at(key));
  return view.integer(1, high);
}

Result<double> ConfigReader::number(std::string_view key, double low, double high, double fallback) {
  if (!config_->has(key)) {
    note(fmt::format("{} is absent: {}, the default", key, fallback));
    return fallback;
  }
  ADAMK_TRY(const JsonView view, config_->at(key));
  return view.number(low, high);
}

Result<bool> ConfigReader::boolean(std::string_view key, bool fallback) {
  if (!config_->has(key)) {
    note(fmt::format("{} is absent: {}, the default", key, fallback));
    return fallback;
  }
  ADAMK_TRY(const JsonView view, config_->at(key));
  return view.boolean();
}

Result<Model> model_from_config(const JsonView& config) {
  ADAMK_TRY(const Family* family, find_family(config));
  Model model;
  model.family = family->model_type;
  ConfigReader reader(config, model.notes);
  ADAMK_CHECK(read_quantization(config, model));
  ADAMK_CHECK(read_sizes(reader, *family, model));
  ADAMK_TRY(model.rope, read_rope(reader));
  ADAMK_CHECK(read_activation(reader));
  ADAMK_CHECK(read_biases(reader, *family, model));
  ADAMK_CHECK(read_window(reader, *family, model));
  ADAMK_CHECK(read_dtype(config, model));
  ADAMK_CHECK(check_tensor_parallel(reader));
  ADAMK_CHECK(check_other_keys(reader));
  ADAMK_CHECK(check_model(model, config));
  return model;
}

}  // namespace adamk
