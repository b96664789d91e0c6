#include "adamk/dag/dag_file.h"

#include <limits>
#include <utility>

namespace adamk {
namespace {

constexpr std::string_view kFormat = "adamk.dag";
constexpr int kVersion = 2;   // 1 had no protocol
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;   // a tile DAG of a large grid is a few MB

Result<std::string> text_of(const JsonView& root, std::string_view key) {
  ADAMK_TRY(const JsonView view, root.at(key));
  return view.text();
}

Result<void> read_key(const JsonView& root, const Deployment& deployment) {
  ADAMK_TRY(const JsonView view, root.at("deployment_key"));
  ADAMK_TRY(const std::string key, view.text());
  if (key != deployment.key())
    return tl::unexpected(view.error(
        Errc::bad_input, fmt::format("'{}' is not the key of the deployment below, '{}'; the file was edited, build it again",
                                     key, deployment.key())));
  return {};
}

Result<void> read_tiles(const JsonView& root, DagFile& file) {
  if (const auto plan = root.find("plan")) {
    ADAMK_TRY(file.plan, plan_from_json(*plan));
  }
  if (const auto instructions = root.find("instruction_dag")) {
    ADAMK_TRY(const std::string hash, text_of(*instructions, "plan_hash"));
    if (!file.plan || file.plan->hash() != hash)
      return tl::unexpected(instructions->error(Errc::bad_input, "belongs to another plan than the one in this file"));
    file.instructions = instructions->value();
  }
  const auto tiles = root.find("tile_dag");
  if (!tiles) return {};
  ADAMK_TRY(file.tiles, tile_dag_from_json(*tiles));
  if (!file.plan || file.plan->hash() != file.tiles->plan_hash)
    return tl::unexpected(tiles->error(Errc::bad_input, "belongs to another plan than the one in this file"));
  return {};
}

}  // namespace

Json dag_to_json(const DagFile& file) {
  Json root;
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["deployment_key"] = file.deployment.key();
  root["model_path"] = file.model_path;
  if (file.random_weights) root["random_weights"] = *file.random_weights;
  root["deployment"] = deployment_to_json(file.deployment);
  root["operators"] = operator_graph_to_json(make_operator_graph(file.deployment));
  if (file.plan) root["plan"] = plan_to_json(*file.plan);
  if (file.tiles) root["tile_dag"] = tile_dag_to_json(*file.tiles);
  if (file.instructions) root["instruction_dag"] = *file.instructions;
  return root;
}

Result<DagFile> dag_from_json(const JsonView& root) {
  ADAMK_CHECK(expect_format(root, kFormat, kVersion));
  ADAMK_CHECK(root.only_keys({"format", "version", "deployment_key", "model_path", "random_weights", "deployment",
                              "operators", "plan", "tile_dag", "instruction_dag"}));
  DagFile file;
  ADAMK_TRY(const JsonView deployment, root.at("deployment"));
  ADAMK_TRY(file.deployment, deployment_from_json(deployment));
  ADAMK_CHECK(read_key(root, file.deployment));
  ADAMK_TRY(file.model_path, text_of(root, "model_path"));
  if (const auto seed = root.find("random_weights")) {
    ADAMK_TRY(const std::int64_t value, seed->integer(0));
    file.random_weights = static_cast<std::uint64_t>(value);
  }
  // The operators follow from the deployment; what is stored is for other programs to read.
  const auto operators = root.find("operators");
  if (operators && operators->value() != operator_graph_to_json(make_operator_graph(file.deployment)))
    return tl::unexpected(operators->error(Errc::bad_input, "not the operators of the deployment; build the file again"));
  ADAMK_CHECK(read_tiles(root, file));
  return file;
}

Result<DagFile> read_dag(const std::filesystem::path& path) {
  ADAMK_TRY(const Json document, read_document(path, kMostBytes));
  return dag_from_json(JsonView(document, path.string()));
}

Result<void> write_dag(const std::filesystem::path& path, const DagFile& file) {
  return write_json(path, dag_to_json(file));
}

Result<Plan> read_plan(const std::filesystem::path& path) {
  ADAMK_TRY(const Json document, read_document(path, kMostBytes));
  const JsonView root(document, path.string());
  if (const auto plan = root.find("plan")) return plan_from_json(*plan);
  return plan_from_json(root);
}

}  // namespace adamk
