// Checks common to every model, our own description format, and loading by path.
#include "adamk/dag/model.h"

#include <algorithm>

#include "model_import.h"

namespace adamk {
namespace {

constexpr std::string_view format_name = "adamk.model";
constexpr int format_version = 1;
constexpr std::string_view rope_names[] = {"default", "linear", "llama3"};  // by RopeKind

Json rope_to_json(const Rope& rope) {
  Json json = {{"kind", rope_names[static_cast<std::size_t>(rope.kind)]}, {"theta", rope.theta}};
  if (rope.kind != RopeKind::plain) json["factor"] = rope.factor;
  if (rope.kind == RopeKind::llama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    json["original_max_positions"] = rope.original_max_positions;
  }
  return json;
}

Result<Rope> rope_from_json(const JsonView& view) {
  ADAMK_CHECK(
      view.only_keys({"kind", "theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_positions"}));
  Rope rope;
  if (const auto kind = view.find("kind")) {
    ADAMK_TRY(const std::string name, kind->text());
    const auto* found = std::find(std::begin(rope_names), std::end(rope_names), name);
    if (found == std::end(rope_names)) {
      return tl::unexpected(kind->error(
          Errc::unsupported, fmt::format("'{}' is not supported, only {}", name, fmt::join(rope_names, ", "))));
    }
    rope.kind = static_cast<RopeKind>(found - std::begin(rope_names));
  }
  const auto read = [&](double& field, std::string_view key, double low, double high, bool wanted) -> Result<void> {
    if (!wanted) {
      if (!view.has(key)) return {};
      return tl::unexpected(view.error(Errc::bad_input, fmt::format("'{}' means nothing for this kind of rope", key)));
    }
    ADAMK_TRY(const JsonView value, view.at(key));
    ADAMK_TRY(field, value.number(low, high));
    return {};
  };
  const bool scaled = rope.kind != RopeKind::plain;
  const bool llama3 = rope.kind == RopeKind::llama3;
  if (view.has("theta")) ADAMK_CHECK(read(rope.theta, "theta", 1.0, limits::rope_theta, true));
  ADAMK_CHECK(read(rope.factor, "factor", 1.0, limits::rope_factor, scaled));
  ADAMK_CHECK(read(rope.low_freq_factor, "low_freq_factor", 1e-6, limits::rope_factor, llama3));
  ADAMK_CHECK(read(rope.high_freq_factor, "high_freq_factor", 1e-6, limits::rope_factor, llama3));
  double original = 0;
  ADAMK_CHECK(read(original, "original_max_positions", 1.0, static_cast<double>(limits::positions), llama3));
  rope.original_max_positions = static_cast<std::int64_t>(original);
  return rope;
}

Json quantization_to_json(const Quantization& quantization) {
  return {{"method", quantization.method},
          {"bits", quantization.bits},
          {"group_size", quantization.group_size},
          {"symmetric", quantization.symmetric},
          {"act_order", quantization.act_order},
          {"zeros_version", quantization.zeros_version},
          {"quantized_head", quantization.quantized_head}};
}

/// Our spelling is checked by the reader of the published one, so that one set of limits holds.
Result<Quantization> quantization_from_json(const JsonView& view) {
  ADAMK_CHECK(
      view.only_keys({"method", "bits", "group_size", "symmetric", "act_order", "zeros_version", "quantized_head"}));
  Json published = Json::object();
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"method", "quant_method"}, {"bits", "bits"},          {"group_size", "group_size"},
      {"symmetric", "sym"},       {"act_order", "desc_act"}, {"quantized_head", "lm_head"}};
  for (const auto& [ours, theirs] : names) {
    if (const auto value = view.find(ours)) published[std::string(theirs)] = value->value();
  }
  if (const auto version = view.find("zeros_version")) {
    ADAMK_TRY(const std::int64_t number, version->integer(1, 2));
    published["checkpoint_format"] = number == 2 ? "gptq_v2" : "gptq";
  }
  return quantization_from_config(JsonView(published, view.file(), view.path()));
}

/// Reads members of a description, filling in defaults and noting them.
class DescriptionReader {
 public:
  DescriptionReader(const JsonView& root, std::vector<std::string>& notes) : root_(&root), notes_(&notes) {}

  Result<void> size(int& field, std::string_view key, std::int64_t high, std::optional<int> fallback = {}) {
    if (!root_->has(key) && fallback) {
      field = *fallback;
      return noted(key, field);
    }
    ADAMK_TRY(const JsonView view, root_->at(key));
    ADAMK_TRY(const std::int64_t value, view.integer(1, high));
    field = static_cast<int>(value);
    return {};
  }
  Result<void> flag(bool& field, std::string_view key, bool fallback) {
    if (!root_->has(key)) {
      field = fallback;
      return noted(key, field);
    }
    ADAMK_TRY(const JsonView view, root_->at(key));
    ADAMK_TRY(field, view.boolean());
    return {};
  }
  template <class Value>
  Result<void> noted(std::string_view key, const Value& value) {
    notes_->push_back(fmt::format("{} is absent: {}, the default", key, value));
    return {};
  }

 private:
  const JsonView* root_;
  std::vector<std::string>* notes_;
};

Result<void> read_description_sizes(const JsonView& root, DescriptionReader& reader, Model& model) {
  ADAMK_CHECK(reader.size(model.layers, "layers", limits::layers));
  ADAMK_CHECK(reader.size(model.hidden, "hidden", limits::hidden));
  ADAMK_CHECK(reader.size(model.heads, "heads", limits::heads));
  ADAMK_CHECK(reader.size(model.kv_heads, "kv_heads", limits::heads, model.heads));
  std::optional<int> head_dim;
  if (model.hidden % model.heads == 0) head_dim = model.hidden / model.heads;
  ADAMK_CHECK(reader.size(model.head_dim, "head_dim", limits::head_dim, head_dim));
  ADAMK_CHECK(reader.size(model.ffn, "ffn", limits::ffn));
  ADAMK_CHECK(reader.size(model.vocab, "vocab", limits::vocab));
  ADAMK_TRY(const JsonView positions, root.at("max_positions"));
  ADAMK_TRY(model.max_positions, positions.integer(1, limits::positions));
  model.norm_eps = 1e-6;
  if (!root.has("norm_eps")) return reader.noted("norm_eps", model.norm_eps);
  ADAMK_TRY(const JsonView eps, root.at("norm_eps"));
  ADAMK_TRY(model.norm_eps, eps.number(0.0, 1.0));
  return {};
}

Result<void> read_description_rest(const JsonView& root, DescriptionReader& reader, Model& model) {
  ADAMK_CHECK(reader.flag(model.qkv_bias, "qkv_bias", model.family == "qwen2"));
  ADAMK_CHECK(reader.flag(model.output_bias, "output_bias", false));
  ADAMK_CHECK(reader.flag(model.mlp_bias, "mlp_bias", false));
  ADAMK_CHECK(reader.flag(model.qk_norm, "qk_norm", model.family == "qwen3"));
  ADAMK_CHECK(reader.flag(model.tied_head, "tied_head", false));
  if (const auto rope = root.find("rope")) {
    ADAMK_TRY(model.rope, rope_from_json(*rope));
  } else {
    ADAMK_CHECK(reader.noted("rope", "kind default, theta 10000"));
  }
  if (const auto window = root.find("sliding_window")) {
    ADAMK_TRY(model.sliding_window, window->integer(1, limits::positions));
  }
  if (const auto quantization = root.find("quantization")) {
    ADAMK_TRY(model.quantization, quantization_from_json(*quantization));
  }
  if (const auto dtype = root.find("stored_dtype")) {
    ADAMK_TRY(model.stored_dtype, dtype->text());
    constexpr std::string_view known[] = {"", "bfloat16", "float16", "float32"};
    if (std::find(std::begin(known), std::end(known), model.stored_dtype) == std::end(known)) {
      return tl::unexpected(
          dtype->error(Errc::unsupported,
                       fmt::format("'{}' is not supported, only bfloat16, float16 and float32", model.stored_dtype)));
    }
  }
  return {};
}

/// AutoGPTQ writes quantize_config.json beside a config.json that may not mention quantisation.
Result<void> read_quantize_config(const std::filesystem::path& folder, Model& model) {
  const std::filesystem::path path = folder / "quantize_config.json";
  std::error_code ignored;
  if (model.quantization || !std::filesystem::exists(path, ignored)) return {};
  ADAMK_TRY(const Json document, read_document(path));
  ADAMK_TRY(model.quantization, quantization_from_config(JsonView(document, path.string())));
  model.notes.push_back("quantisation as in quantize_config.json; config.json does not mention it");
  return {};
}

}  // namespace

std::int64_t Model::parameters() const {
  const auto i64 = [](int value) { return static_cast<std::int64_t>(value); };
  std::int64_t layer = 2 * i64(hidden)                                           // norms
                       + i64(hidden) * (2 * i64(q_rows()) + 2 * i64(kv_rows()))  // q, o, k, v
                       + 3 * i64(hidden) * ffn;                                  // gate, up, down
  if (qk_norm) layer += 2 * i64(head_dim);
  if (qkv_bias) layer += i64(q_rows()) + 2 * i64(kv_rows());
  if (output_bias) layer += hidden;
  if (mlp_bias) layer += 2 * i64(ffn) + hidden;
  return layers * layer + hidden + i64(vocab) * hidden * (tied_head ? 1 : 2);
}

Result<void> check_model(const Model& model, const JsonView& view) {
  if (model.heads % model.kv_heads != 0) {
    return tl::unexpected(view.error(
        Errc::bad_input,
        fmt::format("{} attention heads are not a multiple of {} key/value heads", model.heads, model.kv_heads)));
  }
  if (model.head_dim > limits::head_dim) {   // also where it is hidden size by heads
    return tl::unexpected(view.error(
        Errc::unsupported, fmt::format("head_dim {} is more than {} ({} heads, hidden size {})", model.head_dim,
                                       limits::head_dim, model.heads, model.hidden)));
  }
  if (model.head_dim % 2 != 0) {
    return tl::unexpected(view.error(
        Errc::unsupported, fmt::format("head_dim {} is odd; rotary embedding pairs its elements", model.head_dim)));
  }
  if (static_cast<std::int64_t>(model.heads) * model.head_dim > limits::ffn) {
    return tl::unexpected(view.error(Errc::unsupported, fmt::format("{} heads of {} are more than {} query rows",
                                                                    model.heads, model.head_dim, limits::ffn)));
  }
  if (!(model.norm_eps > 0)) {
    return tl::unexpected(view.error(Errc::bad_input, "the epsilon of RMSNorm must be above 0"));
  }
  if (model.rope.kind == RopeKind::llama3 && model.rope.low_freq_factor >= model.rope.high_freq_factor) {
    return tl::unexpected(
        view.error(Errc::bad_input, fmt::format("rope: low_freq_factor {} must be below high_freq_factor {}",
                                                model.rope.low_freq_factor, model.rope.high_freq_factor)));
  }
  return {};
}

Json model_to_json(const Model& model) {
  return {{"format", format_name},
          {"version", format_version},
          {"family", model.family},
          {"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"ffn", model.ffn},
          {"vocab", model.vocab},
          {"max_positions", model.max_positions},
          {"norm_eps", model.norm_eps},
          {"rope", rope_to_json(model.rope)},
          {"qkv_bias", model.qkv_bias},
          {"output_bias", model.output_bias},
          {"mlp_bias", model.mlp_bias},
          {"qk_norm", model.qk_norm},
          {"tied_head", model.tied_head},
          {"sliding_window", model.sliding_window ? Json(*model.sliding_window) : Json()},
          {"quantization", model.quantization ? quantization_to_json(*model.quantization) : Json()},
          {"stored_dtype", model.stored_dtype}};
}

Result<Model> model_from_description(const JsonView& root) {
  ADAMK_CHECK(expect_format(root, format_name, format_version));
  ADAMK_CHECK(root.only_keys({"format",         "version",      "family",      "layers",   "hidden",        "heads",
                              "kv_heads",       "head_dim",     "ffn",         "vocab",    "max_positions", "norm_eps",
                              "rope",           "qkv_bias",     "output_bias", "mlp_bias", "qk_norm",       "tied_head",
                              "sliding_window", "quantization", "stored_dtype"}));
  Model model;
  ADAMK_TRY(const JsonView family, root.at("family"));
  ADAMK_TRY(model.family, family.text());
  constexpr std::string_view known[] = {"llama", "mistral", "qwen2", "qwen3"};
  if (std::find(std::begin(known), std::end(known), model.family) == std::end(known)) {
    return tl::unexpected(family.error(
        Errc::unsupported, fmt::format("'{}' is not supported, only {}", model.family, fmt::join(known, ", "))));
  }
  DescriptionReader reader(root, model.notes);
  ADAMK_CHECK(read_description_sizes(root, reader, model));
  ADAMK_CHECK(read_description_rest(root, reader, model));
  ADAMK_CHECK(check_model(model, root));
  return model;
}

Result<Model> load_model(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path file = is_folder ? path / "config.json" : path;
  if (is_folder && !std::filesystem::exists(file, ignored)) {
    return fail(Errc::bad_input,
                "{}: holds no config.json; give a Hugging Face folder, a config.json or a .yaml "
                "description",
                path.string());
  }
  ADAMK_TRY(const Json document, read_document(file));
  const JsonView root(document, file.string());
  if (root.has("format") && !root.has("model_type")) return model_from_description(root);
  const std::string extension = file.extension().string();
  if (extension == ".yaml" || extension == ".yml") return model_from_description(root);
  ADAMK_TRY(Model model, model_from_config(root));
  if (is_folder) ADAMK_CHECK(read_quantize_config(path, model));
  return model;
}

}  // namespace adamk
