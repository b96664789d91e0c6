#include <cmath>
#include <numbers>

#include "model_import.h"

namespace adamk {
namespace {

/// A number stated in the rope dict, in [low, high].
Result<double> required_number(const JsonView& dict, std::string_view key, double low, double high) {
  ADAMK_TRY(const JsonView view, dict.at(key));
  return view.number(low, high);
}

/// The kind by `rope_type` or its older spelling `type`; both may be there if they agree.
Result<std::string> rope_type(const JsonView& dict, bool may_be_absent) {
  std::optional<std::string> name;
  for (const std::string_view key : {"rope_type", "type"}) {
    if (!dict.has(key)) continue;
    ADAMK_TRY(const JsonView view, dict.at(key));
    ADAMK_TRY(const std::string stated, view.text());
    if (name && *name != stated) {
      return tl::unexpected(
          dict.error(Errc::bad_input, fmt::format("rope_type '{}' and type '{}' disagree", *name, stated)));
    }
    name = stated;
  }
  if (name) return *name;
  if (may_be_absent) return std::string("default");
  return tl::unexpected(dict.error(Errc::bad_input, "the key 'rope_type' is missing"));
}

/// `dict` is rope_scaling or rope_parameters; `rope` holds the theta known so far.
Result<Rope> read_rope_dict(const JsonView& dict, Rope rope, bool has_theta, bool may_lack_type) {
  if (!dict.value().is_object()) return tl::unexpected(dict.error(Errc::bad_input, "must be an object or null"));
  if (dict.has("rope_theta")) {
    ADAMK_TRY(const double theta, required_number(dict, "rope_theta", 1.0, limits::rope_theta));
    if (has_theta && theta != rope.theta) {
      return tl::unexpected(
          dict.error(Errc::bad_input, fmt::format("rope_theta {} differs from {} outside it", theta, rope.theta)));
    }
    rope.theta = theta;
  }
  if (dict.has("partial_rotary_factor")) {
    ADAMK_TRY(const JsonView partial, dict.at("partial_rotary_factor"));
    ADAMK_TRY(const double factor, partial.number());
    if (factor != 1.0) {
      return tl::unexpected(
          partial.error(Errc::unsupported, "rotary embedding of a part of each head is not supported, only 1"));
    }
  }
  ADAMK_TRY(const std::string kind, rope_type(dict, may_lack_type));
  if (kind == "default") {
    ADAMK_CHECK(dict.only_keys({"rope_type", "type", "rope_theta", "partial_rotary_factor"}));
    return rope;
  }
  if (kind == "linear") {
    ADAMK_CHECK(dict.only_keys({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"}));
    rope.kind = RopeKind::linear;
    ADAMK_TRY(rope.factor, required_number(dict, "factor", 1.0, limits::rope_factor));
    return rope;
  }
  if (kind == "llama3") {
    ADAMK_CHECK(dict.only_keys({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
                                "high_freq_factor", "original_max_position_embeddings"}));
    rope.kind = RopeKind::llama3;
    ADAMK_TRY(rope.factor, required_number(dict, "factor", 1.0, limits::rope_factor));
    ADAMK_TRY(rope.low_freq_factor, required_number(dict, "low_freq_factor", 1e-6, limits::rope_factor));
    ADAMK_TRY(rope.high_freq_factor, required_number(dict, "high_freq_factor", 1e-6, limits::rope_factor));
    ADAMK_TRY(const JsonView original, dict.at("original_max_position_embeddings"));
    ADAMK_TRY(rope.original_max_positions, original.integer(1, limits::positions));
    return rope;
  }
  return tl::unexpected(
      dict.error(Errc::unsupported,
                 fmt::format("rope type '{}' is not supported; supported are default, linear and llama3", kind)));
}

bool same_rope(const Rope& a, const Rope& b) {
  return a.kind == b.kind && a.theta == b.theta && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor && a.original_max_positions == b.original_max_positions;
}

}  // namespace

Result<Rope> read_rope(ConfigReader& reader) {
  const JsonView& config = reader.config();
  const std::optional<JsonView> scaling = config.find("rope_scaling");
  const std::optional<JsonView> parameters = config.find("rope_parameters");
  const bool theta_inside = (scaling && scaling->has("rope_theta")) || (parameters && parameters->has("rope_theta"));

  Rope rope;
  const bool has_theta = config.has("rope_theta");
  if (has_theta || !theta_inside) {
    ADAMK_TRY(rope.theta, reader.number("rope_theta", 1.0, limits::rope_theta, rope.theta));
  }
  std::optional<Rope> result;
  for (const std::optional<JsonView>* dict : {&scaling, &parameters}) {
    // An empty rope dict counts as none, as in transformers.
    if (!*dict || ((*dict)->value().is_object() && (*dict)->value().empty())) continue;
    ADAMK_TRY(const Rope read, read_rope_dict(**dict, rope, has_theta, dict == &parameters));
    if (result && !same_rope(*result, read)) {
      return tl::unexpected(config.error(Errc::bad_input, "rope_scaling and rope_parameters disagree"));
    }
    result = read;
  }
  return result.value_or(rope);
}

std::vector<double> rope_inverse_frequencies(const Model& model) {
  const Rope& rope = model.rope;
  const int pairs = model.head_dim / 2;
  std::vector<double> frequencies(static_cast<std::size_t>(pairs));
  for (int j = 0; j < pairs; ++j) {
    double frequency = std::pow(rope.theta, -2.0 * j / model.head_dim);
    if (rope.kind == RopeKind::linear) frequency /= rope.factor;
    if (rope.kind == RopeKind::llama3) {
      // Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended linearly in
      // original length / wavelength. Published in meta-llama/llama-models and in transformers' modeling_rope_utils.
      const double turns = static_cast<double>(rope.original_max_positions) * frequency / (2 * std::numbers::pi);
      if (turns < rope.low_freq_factor) {
        frequency /= rope.factor;
      } else if (turns <= rope.high_freq_factor) {
        const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
      }
    }
    frequencies[static_cast<std::size_t>(j)] = frequency;
  }
  return frequencies;
}

}  // namespace adamk
