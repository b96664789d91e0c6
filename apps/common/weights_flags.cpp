#include "common/weights_flags.h"

#include <charconv>
#include <filesystem>
#include <string_view>

#include "common/command.h"

namespace adamk {

std::string WeightsFlags::origin() const { return seed ? fmt::format("random {}", *seed) : "checkpoint"; }

void add_weights_flags(CLI::App& app, WeightsFlags& flags) {
  CLI::Option* folder = app.add_option("--model", flags.folder, "Hugging Face folder to take the weights from");
  app.add_option("--random-weights", flags.seed, "Reproducible random weights of this seed")
      ->check(CLI::Range(std::uint64_t{0}, largest_seed))
      ->excludes(folder);
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

Result<WeightsFlags> weights_source(const WeightsFlags& flags, const DagFile& dag, const std::string& dag_path) {
  if (flags.given()) return flags;
  WeightsFlags source;
  source.seed = dag.random_weights;
  std::error_code ignored;
  if (!source.seed && std::filesystem::is_directory(dag.model_path, ignored)) source.folder = dag.model_path;
  if (source.given()) return source;
  return fail(Errc::bad_input, "{}: names no folder with weights: give --model FOLDER or --random-weights SEED", dag_path);
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
