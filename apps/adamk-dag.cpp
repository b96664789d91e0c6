// adamk-dag: what there is to decide about a deployment, before anything runs, and what a plan becomes.
#include <algorithm>
#include <set>
#include <string>

#include "adamk/dag/dag_file.h"
#include "adamk/dag/space.h"
#include "adamk/dag/validator.h"
#include "common/command.h"
#include "common/dag_views.h"
#include "common/instruction_views.h"

namespace {

using namespace adamk;

struct BuildFlags {
  std::string model, target, weights = "bf16", output;
  int batch = 1, steps_per_launch = 32;
  std::int64_t context = 0;
  std::int64_t random_seed = -1;
  std::string plan;
  bool tiles = false;
};

struct ReadFlags {
  std::string file, plan, level = "operator", format = "table", output, role, stage;
  int layer = -1;
  bool census = false;
};

Result<Deployment> deployment_of(const BuildFlags& flags) {
  ADAMK_TRY(Model model, load_model(flags.model));
  ADAMK_TRY(const WeightsFormat format, parse_weights_format(flags.weights));
  ADAMK_TRY(Target target, load_target(flags.target));
  Workload workload;
  workload.batch = flags.batch;
  workload.context = flags.context > 0 ? flags.context : std::min<std::int64_t>(2048, model.max_positions);
  workload.steps_per_launch = flags.steps_per_launch;
  return make_deployment(std::move(model), format, std::move(target), std::move(workload));
}

Result<void> run_build(const BuildFlags& flags, const CommonOptions& options) {
  DagFile file;
  ADAMK_TRY(file.deployment, deployment_of(flags));
  file.model_path = flags.model;
  if (flags.random_seed >= 0) file.random_weights = static_cast<std::uint64_t>(flags.random_seed);
  // A deployment without any feasible plan is better refused here than by every later command.
  ADAMK_TRY(Plan plan, default_plan(file.deployment));
  if (!flags.plan.empty()) {
    ADAMK_TRY(plan, read_plan(flags.plan));
  }
  if (!flags.plan.empty() || flags.tiles) {
    ADAMK_TRY(file.tiles, make_tile_dag(file.deployment, plan));
    file.plan = plan;
  }
  ADAMK_CHECK(write_dag(flags.output, file));
  for (const std::string& text : file.deployment.model.notes) note(options, "note: " + text);
  if (options.json) {
    return print_json({{"file", flags.output}, {"deployment_key", file.deployment.key()}});
  }
  return print(views::deployment_text(file.deployment) + fmt::format("written to {}\n", flags.output));
}

/// --plan, else the plan in the file, else the default one.
Result<Plan> plan_of(const ReadFlags& flags, const DagFile& file) {
  if (!flags.plan.empty()) return read_plan(flags.plan);
  if (file.plan) return *file.plan;
  return default_plan(file.deployment);
}

/// The DAG stored for the same plan is used as it is, so that what is shown and validated is the file's.
Result<TileDag> tiles_of(const ReadFlags& flags, const DagFile& file) {
  ADAMK_TRY(const Plan plan, plan_of(flags, file));
  if (file.tiles && file.tiles->plan_hash == plan.hash()) return *file.tiles;
  return make_tile_dag(file.deployment, plan);
}

Result<void> show_instructions(const ReadFlags& flags, const CommonOptions& options, const DagFile& file) {
  ADAMK_TRY(const Plan plan, plan_of(flags, file));
  ADAMK_TRY(LoweredPlan lowered, lower_plan(file, plan));
  ADAMK_CHECK(keep_pieces(lowered.dag, flags.role, flags.stage));
  if (options.json || flags.format == "json") {
    ADAMK_CHECK(print_json(lowered_to_json(lowered, true)));
  } else if (flags.format == "dot") {
    ADAMK_CHECK(print(views::instructions_dot(lowered.dag)));
  } else {
    ADAMK_CHECK(print(views::instructions_text(lowered)));
  }
  if (!flags.census || lowered.dag.decides_nothing()) return {};
  return fail(Errc::check_failed, "plan {}: {} branch(es) may depend on a scheduling decision; --level ptx lists them",
              plan.hash(), lowered.dag.census()[static_cast<std::size_t>(BranchClass::other)]);
}

Result<void> run_lower(const ReadFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(DagFile file, read_dag(flags.file));
  ADAMK_TRY(const Plan plan, plan_of(flags, file));
  ADAMK_TRY(const LoweredPlan lowered, lower_plan(file, plan));
  if (!file.plan || file.plan->hash() != plan.hash()) file.tiles.reset();   // another plan's
  file.plan = plan;
  file.instructions = lowered_to_json(lowered, true);
  const std::string output = flags.output.empty() ? flags.file : flags.output;
  ADAMK_CHECK(write_dag(output, file));
  if (options.json) {
    Json summary = lowered_to_json(lowered, false);
    summary["file"] = output;
    return print_json(summary);
  }
  return print(views::instructions_text(lowered) + fmt::format("written to {}\n", output));
}

Result<void> run_show(const ReadFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const DagFile file, read_dag(flags.file));
  if (flags.level != "ptx" && (flags.census || !flags.role.empty() || !flags.stage.empty()))
    return fail(Errc::bad_input, "--role, --stage and --census are about instructions; add --level ptx");
  if (flags.level == "ptx") return show_instructions(flags, options, file);
  const int layers = file.deployment.model.layers;
  if (flags.layer >= layers) return fail(Errc::bad_input, "--layer {}: the model has layers 0 to {}", flags.layer, layers - 1);
  const bool json = options.json || flags.format == "json";
  if (flags.level == "operator") {
    const OperatorGraph graph = make_operator_graph(file.deployment);
    if (json) return print_json(operator_graph_to_json(graph));
    if (flags.format == "dot") return print(views::operators_dot(graph));
    ADAMK_CHECK(print(views::deployment_text(file.deployment)));
    return print(render(views::operators_table(graph, flags.layer), TableFormat::text));
  }
  ADAMK_TRY(const TileDag dag, tiles_of(flags, file));
  if (json) return print_json(tile_dag_to_json(dag));
  if (flags.format == "dot") return print(views::tiles_dot(dag));
  return print(views::tiles_text(dag, flags.layer));
}

Result<void> run_space(const ReadFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const DagFile file, read_dag(flags.file));
  ADAMK_TRY(const Space space, make_space(file.deployment));
  return options.json ? print_json(space_to_json(space)) : print(views::space_text(space));
}

Result<void> run_validate(const ReadFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const DagFile file, read_dag(flags.file));
  ADAMK_TRY(const TileDag dag, tiles_of(flags, file));
  const Certificate certificate = validate(dag, file.deployment);
  if (options.json) {
    ADAMK_CHECK(print_json(certificate_to_json(certificate)));
  } else if (certificate.ok) {
    ADAMK_CHECK(print(fmt::format("plan {} is sound: {} tasks, {} edge sets\nchecked: {}\n", certificate.plan_hash,
                                  dag.tasks(), dag.edges.size(), views::joined(certificate.checks))));
  }
  if (certificate.ok) return {};
  return fail(Errc::check_failed, "plan {} is refuted by check '{}': {}", certificate.plan_hash, certificate.failed,
              certificate.counterexample);
}

Result<void> run_plan(const ReadFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const DagFile file, read_dag(flags.file));
  ADAMK_TRY(const Plan plan, default_plan(file.deployment));
  if (flags.output.empty()) return print_json(plan_to_json(plan));
  ADAMK_CHECK(write_json(flags.output, plan_to_json(plan)));
  if (options.json) return print_json({{"file", flags.output}, {"plan_hash", plan.hash()}});
  return print(fmt::format("plan {} written to {}\n", plan.hash(), flags.output));
}

void add_build(Command& command, BuildFlags& flags) {
  CLI::App& build = command.add("build", "Describe a deployment: model, weights format, target and workload in one file.",
                                [&] { return run_build(flags, command.options()); });
  build.add_option("--model", flags.model, "Hugging Face folder, config.json or YAML description")->required();
  build.add_option("--target", flags.target, "Name of a shipped target (l20, h200, ...) or a YAML file")->required();
  build.add_option("--weights", flags.weights, "Format of the packed weights: bf16 or fp16")->capture_default_str();
  build.add_option("--batch", flags.batch, "Sequences decoded together")->capture_default_str();
  build.add_option("--context", flags.context, "Positions the KV cache holds (default: 2048, or the model's limit)")
      ->check(CLI::PositiveNumber);
  build.add_option("--steps-per-launch", flags.steps_per_launch, "Most tokens one launch decodes")->capture_default_str();
  build.add_option("--random-weights", flags.random_seed, "Record that weights are made from this seed, not loaded")
      ->check(CLI::Range(std::uint64_t{0}, largest_seed));
  build.add_option("--plan", flags.plan, "Store this plan and its tile DAG too");
  build.add_flag("--tiles", flags.tiles, "Store the default plan and its tile DAG too");
  build.add_option("-o,--output", flags.output, "File to write")->required();
}

void add_readers(Command& command, ReadFlags& flags) {
  const auto add = [&](const char* name, const char* description, Result<void> (*body)(const ReadFlags&, const CommonOptions&)) {
    CLI::App& sub = command.add(name, description, [&flags, &command, body] { return body(flags, command.options()); });
    sub.add_option("file", flags.file, "Written by adamk-dag build")->required();
    return &sub;
  };
  CLI::App* show =
      add("show", "The operators of a decode step, the tile tasks of a plan, or the instructions of its kernel.", run_show);
  show->add_option("--level", flags.level, "operator, tile, or ptx (compiles the plan with NVRTC)")
      ->check(CLI::IsMember(std::set<std::string>{"operator", "tile", "ptx"}))->capture_default_str();
  show->add_option("--layer", flags.layer, "Only this layer, without what runs once a step")->check(CLI::NonNegativeNumber);
  show->add_option("--plan", flags.plan, "Plan to show tiles or instructions of (default: the file's, else the default plan)");
  show->add_option("--role", flags.role, "ptx: only this warp role (loader, consumer, storer, controller, launcher)");
  show->add_option("--stage", flags.stage, "ptx: only this stage (qkv, attention, output, gate_up, down, head, step)");
  show->add_flag("--census", flags.census, "ptx: status 1 when a branch may depend on a scheduling decision");
  show->add_option("--format", flags.format, "table, dot or json")
      ->check(CLI::IsMember(std::set<std::string>{"table", "dot", "json"}))->capture_default_str();
  CLI::App* lower = add("lower", "Compile a plan and write its instruction DAG into the file.", run_lower);
  lower->add_option("--plan", flags.plan, "Plan to lower (default: the file's, else the default plan)");
  lower->add_option("-o,--output", flags.output, "File to write (default: the one read)");
  add("space", "The search DAG: stages, variants, shared memory, and what is ruled out and why.", run_space);
  CLI::App* check = add("validate", "Prove a plan's tile DAG sound, or refute it with a counterexample.", run_validate);
  check->add_option("--plan", flags.plan, "Plan to validate (default: the file's, else the default plan)");
  CLI::App* plan = add("plan", "The plan used where nothing has been searched.", run_plan);
  plan->add_option("-o,--output", flags.output, "File to write (default: standard output)");
}

}  // namespace

int main(int argc, char** argv) {
  Command command("adamk-dag", "What there is to decide about a deployment: operators, space, tile tasks, instructions.");
  BuildFlags build;
  ReadFlags read;
  add_build(command, build);
  add_readers(command, read);
  return command.run(argc, argv);
}
