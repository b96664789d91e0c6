// What the parts of model import share: sizes with their bounds, defaults that are noted, and the lists of known keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/dag/model.h"

namespace adamk {

/// The largest sizes taken: generous, but products of two stay far below 2^63.
namespace limits {
inline constexpr std::int64_t layers = 1024;
inline constexpr std::int64_t hidden = 65536;
inline constexpr std::int64_t heads = 4096;
inline constexpr std::int64_t head_dim = 1024;
inline constexpr std::int64_t ffn = std::int64_t{1} << 20;
inline constexpr std::int64_t vocab = std::int64_t{1} << 21;
inline constexpr std::int64_t positions = std::int64_t{1} << 53;  // exact as a JSON number of any reader
inline constexpr double rope_theta = 1e15;
inline constexpr double rope_factor = 1e6;
}  // namespace limits

/// Reads keys of one config.json, filling in what Hugging Face's config class would and noting that it did.
class ConfigReader {
 public:
  ConfigReader(const JsonView& config, std::vector<std::string>& notes) : config_(&config), notes_(&notes) {}

  /// Absent: `fallback`, noted. Null or of another type: an error.
  Result<std::int64_t> integer(std::string_view key, std::int64_t high, std::int64_t fallback);
  Result<double> number(std::string_view key, double low, double high, double fallback);
  Result<bool> boolean(std::string_view key, bool fallback);
  void note(std::string text) { notes_->push_back(std::move(text)); }
  const JsonView& config() const { return *config_; }

 private:
  const JsonView* config_;
  std::vector<std::string>* notes_;
};

/// rope_theta with rope_scaling (transformers 4) or rope_parameters (5).
Result<Rope> read_rope(ConfigReader& reader);

/// Refuses keys that would change the result when they are not neutral; lists the unknown ones in notes.
Result<void> check_other_keys(ConfigReader& reader);

/// Why a model_type is refused, where that is known: "its attention is ...", or empty.
std::string_view reason_against(std::string_view model_type);

/// What every Model must satisfy however it was described; `view` names the file.
Result<void> check_model(const Model& model, const JsonView& view);

}  // namespace adamk
