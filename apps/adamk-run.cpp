// adamk-run: decode with an exported artifact: verify it, generate with it, time it.
#include <algorithm>
#include <optional>

#include "adamk.h"
#include "adamk/base/file.h"
#include "adamk/codegen/kernel.h"
#include "adamk/dag/deployment.h"
#include "adamk/profile/emulated_device.h"
#include "adamk/profile/oracle.h"
#include "adamk/profile/verify.h"
#include "adamk/runtime/artifact.h"
#include "adamk/runtime/decoder.h"
#include "adamk/runtime/sequence.h"
#include "common/artifact_flags.h"
#include "common/bench.h"
#include "common/command.h"

namespace adamk {
namespace {

struct RunFlags {
  ArtifactFlags artifact;
  std::string prompt;
  std::vector<int> tokens;
  std::vector<std::int64_t> positions;
  int steps = 0;
  std::uint64_t seed = 1;
  bool reference = false;
};

Result<std::vector<int>> prompt_of(const RunFlags& flags, int vocab) {
  if (flags.prompt.empty()) return flags.tokens;
  if (vocab != 256) {
    return fail(Errc::bad_input, "--prompt: the vocabulary has {} tokens, so they are not bytes; give --tokens instead", vocab);
  }
  return bytes_to_tokens(flags.prompt);
}

// ---- the emulated device

/// The deployment's target, emulated, and an artifact as it can run there.
struct EmulatedArtifact {
  std::unique_ptr<EmulatedDevice> device;
  Recipe recipe;
  std::vector<std::byte> image;   // PTX

  const std::string& name() const { return device->info().name; }
  /// An Error of the device, as it counts here: the kernel was run, and it is not sound.
  tl::unexpected<Error> failure(const Error& error) const {
    if (describe_emulation(device->report()).empty()) return tl::unexpected(error);
    return fail(Errc::check_failed, "{}", error.message);
  }
};

/// The PTX the artifact holds; else its source is compiled again, by the NVRTC at hand.
Result<EmulatedArtifact> open_emulated(const Artifact& artifact, std::uint64_t seed, const CommonOptions& options) {
  ADAMK_TRY(const Deployment deployment, deployment_of(artifact));
  EmulatedArtifact opened{EmulatedDevice::make(deployment.target, {.seed = seed}), artifact.recipe, artifact.image};
  if (artifact.recipe.arch.starts_with("compute_")) return opened;
  const std::filesystem::path path = artifact.folder / "kernel.cu";
  note(options, fmt::format("compiling {} for the emulator", path.string()));
  ADAMK_TRY(const std::string source, read_file(path, static_cast<std::uint64_t>(artifact.files.at("kernel.cu").bytes)));
  auto kernel = compile(source, ptx_arch(deployment.target));
  if (!kernel) {
    return fail(kernel.error().code, "{} (an artifact exported with --arch {} holds what the emulator runs)", kernel.error().message,
                ptx_arch(deployment.target));
  }
  opened.recipe.arch = kernel->arch;
  opened.image = kernel->image();
  return opened;
}

DecoderInputs inputs_of(const Artifact& artifact, const EmulatedArtifact& emulated) {
  DecoderInputs inputs = artifact.inputs();
  inputs.image = emulated.image;
  return inputs;
}

// ---- verify

Result<void> print_verdict(const VerifyReport& report, const CommonOptions& options) {
  if (options.json) return print_json(verify_report_to_json(report));
  Table table{{{"check"}, {"position", true}, {"relative error", true}, {"tolerance", true}, {"max error", true},
               {"unwritten", true}}, {}};
  for (const auto& [position, logits] : report.positions) {
    table.rows.push_back({"logits", position, Cell(logits.relative_l2, 6), Cell(report.tolerance, 6),
                          Cell(logits.max_abs_error, 6), logits.unwritten});
  }
  if (report.greedy.compared > 0) {
    const LogitComparison& worst = report.greedy.worst;
    table.rows.push_back({"greedy, worst", Cell(), Cell(worst.relative_l2, 6), Cell(report.tolerance, 6),
                          Cell(worst.max_abs_error, 6), worst.unwritten});
  }
  ADAMK_CHECK(print_table(table, TableFormat::text, options));
  if (report.greedy.compared > 0) {
    ADAMK_CHECK(print(fmt::format("greedy: {} of {} tokens equal to the reference's, {} near ties", report.greedy.equal,
                                  report.greedy.compared, report.greedy.near_ties.size())));
  }
  for (const NearTie& tie : report.greedy.near_ties) {
    ADAMK_CHECK(print(fmt::format("near tie at position {}: reference {}, kernel {}, gap {:.4g}, measured error {:.4g}",
                                  tie.position, tie.reference, tie.chosen, tie.gap, tie.error)));
  }
  return report.passed() ? print("verified") : Result<void>();
}

Result<void> run_verify(const RunFlags& flags, const CommonOptions& options) {
  ADAMK_TRY(const Artifact artifact, open_artifact(flags.artifact.folder, flags.artifact.checks()));
  ADAMK_TRY(const Deployment deployment, deployment_of(artifact));
  std::unique_ptr<Device> gpu;
  std::optional<EmulatedArtifact> emulated;
  if (flags.artifact.device.emulated) {
    ADAMK_TRY(emulated, open_emulated(artifact, flags.seed, options));
  } else {
    ADAMK_TRY(gpu, open_cuda_device(flags.artifact.device.index));
  }
  ADAMK_TRY(Decoder decoder, emulated ? Decoder::create(*emulated->device, emulated->recipe, inputs_of(artifact, *emulated))
                                      : Decoder::create(*gpu, artifact.recipe, artifact.inputs()));
  ADAMK_TRY(const Weights weights, weights_of(flags.artifact, artifact, deployment));
  VerifyOptions wanted;
  wanted.positions = flags.positions;
  if (wanted.positions.empty()) {
    for (const std::int64_t position : {0, 64, 255}) {
      if (position < artifact.recipe.context) wanted.positions.push_back(position);
    }
  }
  ADAMK_TRY(wanted.prompt, prompt_of(flags, artifact.recipe.vocab));
  wanted.greedy_tokens = flags.steps;
  wanted.seed = flags.seed;
  wanted.origin = weights_origin(weights_flags(flags.artifact, artifact));
  const auto report = verify_decoder(decoder, deployment, weights, wanted);
  if (emulated) note(options, emulation_text(emulated->name(), emulated->device->summary()));
  if (!report) return emulated ? emulated->failure(report.error()) : tl::unexpected(report.error());
  ADAMK_CHECK(print_verdict(*report, options));
  if (!report->passed()) return fail(Errc::check_failed, "{}: not verified: {}", flags.artifact.folder, report->failure);
  return {};
}

// ---- generate

Result<std::vector<int>> generate_on_reference(const RunFlags& flags, const Artifact& artifact, std::vector<int> tokens) {
  ADAMK_TRY(const Deployment deployment, deployment_of(artifact));
  ADAMK_TRY(const Weights weights, weights_of(flags.artifact, artifact, deployment));
  ADAMK_TRY(ReferenceDecoder reference, ReferenceDecoder::create(deployment.model, weights, artifact.recipe.context));
  std::vector<int> made;
  std::vector<double> logits;
  for (const int token : tokens) {
    ADAMK_TRY(logits, reference.step(token, reference.length()));
  }
  for (;;) {
    made.push_back(argmax(logits));
    if (static_cast<int>(made.size()) == flags.steps) return made;
    ADAMK_TRY(logits, reference.step(made.back(), reference.length()));
  }
}

/// Through the C API, as a user's program would.
Result<std::vector<int>> generate_on_gpu(const RunFlags& flags, const std::vector<int>& tokens) {
  struct Handles {
    adamk_model* model = nullptr;
    adamk_session* session = nullptr;
    ~Handles() {
      adamk_session_destroy(session);
      adamk_close(model);
    }
  } handles;
  const auto error_of = [](adamk_status status, const std::string& text) -> tl::unexpected<Error> {
    return fail(status == ADAMK_MACHINE ? Errc::machine : Errc::bad_input, "{}", text);
  };
  char text[2048] = "";
  adamk_open_options open_options{};
  open_options.size = sizeof open_options;
  open_options.skip_weight_hashes = flags.artifact.skip_weight_hashes ? 1 : 0;
  adamk_status status = adamk_open(flags.artifact.folder.c_str(), &open_options, &handles.model, text, sizeof text);
  if (status != ADAMK_OK) return error_of(status, text);
  adamk_session_options session_options{};
  session_options.size = sizeof session_options;
  session_options.device = flags.artifact.device.index;
  status = adamk_session_create(handles.model, &session_options, &handles.session, text, sizeof text);
  if (status != ADAMK_OK) {
    return error_of(status, fmt::format("{} (--device emulated runs the kernel on the CPU; --reference decodes without it, in double precision)", text));
  }
  // The choice after the last prompt token is the first one made.
  const std::size_t steps = tokens.size() + static_cast<std::size_t>(flags.steps) - 1;
  status = adamk_step(handles.session, tokens.data(), tokens.size(), static_cast<std::int64_t>(steps));
  std::vector<int> chosen(steps);
  if (status == ADAMK_OK) status = adamk_read_tokens(handles.session, chosen.data(), chosen.size());
  if (status != ADAMK_OK) return error_of(status, adamk_session_error(handles.session));
  chosen.erase(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(tokens.size() - 1));
  return chosen;
}

struct EmulatedText {
  std::vector<int> tokens;
  std::string device;
  EmulationSummary summary;
};

Result<EmulatedText> generate_on_emulator(const RunFlags& flags, const Artifact& artifact, const std::vector<int>& tokens,
                                          const CommonOptions& options) {
  ADAMK_TRY(const EmulatedArtifact emulated, open_emulated(artifact, flags.seed, options));
  ADAMK_TRY(Decoder decoder, Decoder::create(*emulated.device, emulated.recipe, inputs_of(artifact, emulated)));
  Sequence sequence(decoder);
  const std::size_t steps = tokens.size() + static_cast<std::size_t>(flags.steps) - 1;
  auto chosen = sequence.advance(tokens, static_cast<std::int64_t>(steps));
  EmulatedText made{{}, emulated.name(), emulated.device->summary()};
  note(options, emulation_text(made.device, made.summary));
  if (!chosen) return emulated.failure(chosen.error());
  made.tokens.assign(chosen->begin() + static_cast<std::ptrdiff_t>(tokens.size() - 1), chosen->end());
  return made;
}

/// What to start from: the prompt, else the token that begins a text, if --model names it.
Result<std::vector<int>> start_of(const RunFlags& flags, int vocab) {
  ADAMK_TRY(std::vector<int> prompt, prompt_of(flags, vocab));
  if (!prompt.empty()) return prompt;
  if (!flags.artifact.weights.folder.empty()) {
    const std::filesystem::path path = std::filesystem::path(flags.artifact.weights.folder) / "config.json";
    ADAMK_TRY(const Json config, read_document(path));
    const JsonView root(config, path.string());
    const auto bos = root.find("bos_token_id");
    if (bos && bos->value().is_number_integer()) {
      ADAMK_TRY(const std::int64_t token, bos->integer(0, vocab - 1));
      return std::vector<int>{static_cast<int>(token)};
    }
  }
  return fail(Errc::bad_input, "nothing to start from: give --prompt TEXT or --tokens 1,2,3");
}

Result<void> check_room(const std::vector<int>& prompt, int steps, const Recipe& recipe) {
  if (steps < 1) return fail(Errc::bad_input, "--steps: {} is less than 1", steps);
  if (static_cast<std::int64_t>(prompt.size()) + steps - 1 > recipe.context) {
    return fail(Errc::bad_input, "--steps: {} after a prompt of {} do not fit a context of {}", steps, prompt.size(),
                recipe.context);
  }
  return {};
}

Result<void> run_generate(const RunFlags& flags, const CommonOptions& options) {
  // The GPU path opens the artifact again through the C API, so the large hashes are left to it.
  const bool emulated = flags.artifact.device.emulated;
  const ArtifactChecks checks = flags.reference || emulated ? flags.artifact.checks() : ArtifactChecks::skip_weights;
  if (flags.reference) ADAMK_CHECK(refuse_emulated(flags.artifact.device, "--reference decodes without any device"));
  ADAMK_TRY(const Artifact artifact, open_artifact(flags.artifact.folder, checks));
  ADAMK_TRY(const std::vector<int> prompt, start_of(flags, artifact.recipe.vocab));
  ADAMK_CHECK(check_room(prompt, flags.steps, artifact.recipe));
  if (flags.reference) note(options, "decoding with the reference decoder (double precision, CPU), not with the kernel");
  std::vector<int> made;
  Json emulation;
  if (emulated) {
    ADAMK_TRY(EmulatedText text, generate_on_emulator(flags, artifact, prompt, options));
    made = std::move(text.tokens);
    emulation = emulation_to_json(text.device, text.summary);
  } else {
    ADAMK_TRY(made, flags.reference ? generate_on_reference(flags, artifact, prompt) : generate_on_gpu(flags, prompt));
  }
  const bool bytes = artifact.recipe.vocab == 256;
  if (options.json) {
    Json result{{"decoder", flags.reference ? "reference" : emulated ? "emulated" : "gpu"}, {"prompt", prompt}, {"tokens", made}};
    if (emulated) result["emulation"] = emulation;
    if (bytes) result["text"] = tokens_to_bytes(made);
    return print_json(result);
  }
  if (bytes) return print(tokens_to_bytes(prompt) + tokens_to_bytes(made));
  return print(fmt::format("{}", fmt::join(made, ",")));
}

// ---- flags

void add_prompt(CLI::App& app, RunFlags& flags) {
  CLI::Option* prompt = app.add_option("--prompt", flags.prompt, "Text to start from (models whose tokens are bytes)");
  app.add_option("--tokens", flags.tokens, "Tokens to start from: 1,2,3")->delimiter(',')->excludes(prompt);
}

int run(int argc, char** argv) {
  RunFlags flags;
  BenchFlags bench;
  Command command("adamk-run", "Decode with an exported artifact.");
  CLI::App& verify = command.add("verify", "Compare the kernel with the double-precision reference decoder.",
                                 [&] { return run_verify(flags, command.options()); });
  add_artifact_flags(verify, flags.artifact);
  add_prompt(verify, flags);
  verify.add_option("--positions", flags.positions, "Positions whose logits are compared (0,64,255)")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  // The default of --steps differs between the commands, so each sets its own when the flag is absent.
  verify.add_option("--steps", flags.steps, "Greedy tokens to compare (32)")->check(CLI::NonNegativeNumber);
  verify.add_option("--seed", flags.seed, "Of random KV and tokens, and of an emulated device's interleavings")->capture_default_str();
  verify.preparse_callback([&](std::size_t) { flags.steps = 32; });

  CLI::App& generate = command.add("generate", "Continue a prompt, greedily.",
                                   [&] { return run_generate(flags, command.options()); });
  add_artifact_flags(generate, flags.artifact);
  add_prompt(generate, flags);
  generate.add_option("--steps", flags.steps, "Tokens to make (64)");
  generate.add_option("--seed", flags.seed, "Of an emulated device's interleavings")->capture_default_str();
  generate.add_flag("--reference", flags.reference, "Decode with the reference decoder on the CPU instead of the kernel");
  generate.preparse_callback([&](std::size_t) { flags.steps = 64; });

  CLI::App& timed = command.add("bench", "Time decode steps, back to back.", [&] { return run_bench(bench, command.options()); });
  add_bench_flags(timed, bench);
  return command.run(argc, argv);
}

}  // namespace
}  // namespace adamk

int main(int argc, char** argv) { return adamk::run(argc, argv); }
