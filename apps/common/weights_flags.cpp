#include "common/weights_flags.h"

#include <charconv>
#include <string_view>

namespace adamk {

std::string WeightsFlags::origin() const { return seed ? fmt::format("random {}", *seed) : "checkpoint"; }

void add_weights_flags(CLI::App& app, WeightsFlags& flags) {
  CLI::Option* folder = app.add_option("--model", flags.folder, "Hugging Face folder to take the weights from");
  app.add_option("--random-weights", flags.seed, "Reproducible random weights of this seed")->excludes(folder);
}

WeightsFlags flags_of_origin(const std::string& origin) {
  WeightsFlags flags;
  std::string_view text = origin;
  if (!text.starts_with("random ")) return flags;
  text.remove_prefix(7);
  std::uint64_t seed = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (code == std::errc{} && end == text.data() + text.size()) flags.seed = seed;
  return flags;
}

Result<Weights> load_weights(const Deployment& deployment, const WeightsFlags& flags) {
  if (flags.seed) return Weights::random(deployment.model, deployment.weights, *flags.seed);
  ADAMK_TRY(const Model model, load_model(flags.folder));
  if (model_to_json(model) != model_to_json(deployment.model)) {
    return fail(Errc::bad_input, "--model {}: describes another model than the deployment was made for", flags.folder);
  }
  return Weights::load(deployment.model, flags.folder, deployment.weights);
}

}  // namespace adamk
