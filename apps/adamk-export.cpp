// adamk-export: a plan of a deployment as an artifact: .cu, .cubin, manifest, packed weights.
#include <optional>

#include "adamk/codegen/kernel.h"
#include "adamk/codegen/packer.h"
#include "adamk/dag/dag_file.h"
#include "adamk/dag/validator.h"
#include "adamk/profile/tuning_db.h"
#include "adamk/runtime/arch.h"
#include "adamk/runtime/artifact.h"
#include "common/command.h"
#include "common/weights_flags.h"

namespace adamk {
namespace {

struct ExportFlags {
  std::string dag, database, plan, output, arch;
  WeightsFlags weights;
  bool device_check = false;
  int device = 0;
};

/// The plan to export and where it came from.
struct ChosenPlan {
  Plan plan;
  std::string source;              // for people
  std::optional<Json> measured;    // only of a measured and verified record
};

Json measured_to_json(const CandidateRow& row) {
  return Json{{"method", to_string(row.method)},
              {"device", row.device.name},
              {"driver", row.device.driver},
              {"toolkit", row.device.toolkit},
              {"us_per_token", {{"median", row.median_us}, {"p10", row.p10_us}, {"p90", row.p90_us}}},
              {"gbps", row.gbps},
              {"ceiling_gbps", row.ceiling_gbps},
              {"evaluated_at", row.evaluated_at}};
}

Result<ChosenPlan> plan_from_database(const ExportFlags& flags, const Deployment& deployment,
                                      const CommonOptions& options) {
  ADAMK_TRY(const auto database, TuningDb::open(flags.database, TuningDb::Mode::read_only));
  CandidateFilter filter;
  filter.deployment = deployment.key();
  auto row = database->best(filter);
  if (!row && row.error().code == Errc::not_found) {
    filter.method = MethodFilter::simulated;
    auto simulated = database->best(filter);
    if (!simulated) return tl::unexpected<Error>(std::move(row).error());
    note(options, "no measured plan of this deployment: the best by simulation is exported");
    row = std::move(simulated);
  }
  if (!row) return tl::unexpected<Error>(std::move(row).error());
  if (row->method != Method::simulated && row->device.sm != deployment.target.sm) {
    note(options, fmt::format("the plan was measured on {} (sm_{}), the target is {} (sm_{})", row->device.name,
                              row->device.sm, deployment.target.name, deployment.target.sm));
  }
  ChosenPlan chosen{row->plan, fmt::format("best on {}", row->device.name), std::nullopt};
  if (row->method != Method::simulated && row->verified) chosen.measured = measured_to_json(*row);
  return chosen;
}

Result<ChosenPlan> choose_plan(const ExportFlags& flags, const DagFile& dag, const CommonOptions& options) {
  if (!flags.plan.empty()) {
    ADAMK_TRY(Plan plan, read_plan(flags.plan));
    return ChosenPlan{std::move(plan), flags.plan, std::nullopt};
  }
  if (!flags.database.empty()) return plan_from_database(flags, dag.deployment, options);
  if (dag.plan) return ChosenPlan{*dag.plan, flags.dag, std::nullopt};
  note(options, "neither --db nor --plan: the default plan, which nothing was measured for");
  ADAMK_TRY(Plan plan, default_plan(dag.deployment));
  return ChosenPlan{std::move(plan), "default", std::nullopt};
}

Result<Certificate> certify(const Deployment& deployment, const Schedule& schedule) {
  Certificate certificate = validate(make_tile_dag(deployment, schedule), deployment);
  if (certificate.ok) return certificate;
  return fail(Errc::check_failed, "plan {}: the validator refuses it: {}: {}", schedule.plan.hash(), certificate.failed,
              certificate.counterexample);
}

/// That the kernel loads on the GPU at hand with its whole grid resident.
Result<void> check_on_device(const ExportFlags& flags, const Recipe& recipe, const std::vector<std::byte>& image) {
  ADAMK_TRY(const auto device, open_cuda_device(flags.device));
  ADAMK_CHECK(check_arch(recipe.arch, device->info()));
  ADAMK_TRY(const KernelHandle kernel, device->load(image, recipe.entry));
  ADAMK_TRY(const int per_sm, device->resident_blocks(kernel, {recipe.grid, recipe.threads, recipe.smem, true}));
  if (recipe.grid <= per_sm * device->info().sms) return {};
  return fail(Errc::infeasible, "the kernel needs {} blocks resident at once; {} holds {}", recipe.grid,
              device->info().name, per_sm * device->info().sms);
}

Result<void> print_result(const ExportFlags& flags, const ArtifactContents& contents, const ChosenPlan& chosen,
                          const CommonOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(flags.output).lexically_normal();
  const bool ptx = contents.recipe.arch.starts_with("compute_");
  const std::string source = (folder / "kernel.cu").string();
  const std::string image = (folder / (ptx ? "kernel.ptx" : "kernel.cubin")).string();
  const std::string manifest = (folder / "manifest.json").string();
  const std::string packed = (folder / "weights.packed").string();
  if (options.json) {
    return print_json(Json{{"plan", contents.recipe.plan_hash},
                           {"plan_source", chosen.source},
                           {"arch", contents.recipe.arch},
                           {"registers", contents.recipe.registers},
                           {"spill_bytes", contents.recipe.spill_bytes},
                           {"source", source},
                           {"image", image},
                           {"manifest", manifest},
                           {"weights", packed}});
  }
  return print(fmt::format("plan      {} ({})\narch      {}, {} registers, {} bytes spilled\nsource    {}\nkernel    {}\n"
                           "manifest  {}\nweights   {} ({:.1f} MB)\n",
                           contents.recipe.plan_hash, chosen.source, contents.recipe.arch, contents.recipe.registers,
                           contents.recipe.spill_bytes, source, image, manifest, packed,
                           static_cast<double>(contents.recipe.packed_bytes) / 1e6));
}

Result<void> run_export(const ExportFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const DagFile dag, read_dag(flags.dag));
  const Deployment& deployment = dag.deployment;
  ADAMK_TRY(const WeightsFlags origin, weights_source(flags.weights, dag, flags.dag));
  ADAMK_TRY(const ChosenPlan chosen, choose_plan(flags, dag, options));
  ADAMK_TRY(const Schedule schedule, make_schedule(deployment, chosen.plan));
  ADAMK_TRY(const Certificate certificate, certify(deployment, schedule));

  ADAMK_TRY(const std::string source, emit_source(deployment, schedule));
  const std::string arch = flags.arch.empty() ? deployment.target.arch() : flags.arch;
  ADAMK_TRY(const Kernel kernel, compile(source, arch));
  ADAMK_TRY(const std::string nvrtc, nvrtc_version());
  const std::vector<std::byte> image = kernel.image();

  ADAMK_TRY(const Weights weights, load_weights(deployment, origin));
  ArtifactContents contents;
  contents.recipe = make_recipe(deployment, schedule, kernel);
  contents.recipe.weights_hash = weights.hash();
  if (flags.device_check) ADAMK_CHECK(check_on_device(flags, contents.recipe, image));
  const std::vector<std::byte> packed = pack_weights(deployment, schedule, weights);
  const std::vector<std::byte> small_tensors = pack_small_tensors(deployment, schedule, weights);
  contents.tool_version = fmt::format("adamk {}", version());
  contents.weights_origin = origin.origin();
  contents.deployment = deployment_to_json(deployment);
  contents.plan = plan_to_json(chosen.plan);
  contents.build = Json{{"nvrtc", nvrtc}, {"arch", arch}};
  contents.certificate = certificate_to_json(certificate);
  contents.measured = chosen.measured;
  contents.source = source;
  contents.image = image;
  contents.packed = packed;
  contents.small_tensors = small_tensors;
  contents.embedding = std::as_bytes(weights.embedding());
  ADAMK_CHECK(write_artifact(flags.output, contents));
  return print_result(flags, contents, chosen, options);
}

int run(int argc, char** argv) {
  ExportFlags flags;
  Command command("adamk-export", "Compile a plan and write what a user deploys.");
  CLI::App& app = command.only([&] { return run_export(flags, command.options()); });
  app.add_option("dag", flags.dag, "DAG file that adamk-dag build wrote")->required();
  CLI::Option* database = app.add_option("--db", flags.database, "Tuning database: its best plan for the deployment");
  app.add_option("--plan", flags.plan, "Plan file, or a DAG file that holds a plan")->excludes(database);
  app.add_option("-o,--output", flags.output, "Folder to write; an artifact in it is replaced")->required();
  add_weights_flags(app, flags.weights);
  app.add_option("--arch", flags.arch, "sm_90a for a cubin, compute_89 for PTX; default: the target's");
  app.add_flag("--device-check", flags.device_check, "Refuse unless the kernel loads on this machine's GPU, all of it resident");
  app.add_option("--device", flags.device, "Index of the GPU for --device-check")->capture_default_str();
  return command.run(argc, argv);
}

}  // namespace
}  // namespace adamk

int main(int argc, char** argv) { return adamk::run(argc, argv); }
