#include "adamk/profile/device_evaluator.h"

#include <stdlib.h>   // mkdtemp

#include <algorithm>
#include <map>
#include <thread>

#include "adamk/codegen/packer.h"
#include "compile_pool.h"
#include "worker_process.h"
#include "worker_protocol.h"

namespace adamk {
namespace {

constexpr int most_restarts_in_a_row = 3;
constexpr double health_seconds = 30;
constexpr double device_seconds = 120;   // opening the driver and measuring the ceilings

/// A folder for sources and images, removed at the end.
class ScratchFolder {
 public:
  static Result<ScratchFolder> create() {
    std::error_code code;
    std::filesystem::path base = std::filesystem::temp_directory_path(code);
    std::string pattern = (base / "adamk-XXXXXX").string();
    if (code || mkdtemp(pattern.data()) == nullptr) {
      return fail(Errc::io, "no temporary folder can be made in {}; set TMPDIR", base.string());
    }
    return ScratchFolder(pattern);
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// Why a step of a candidate did not give a value.
struct StepFailure {
  Status status = Status::crashed;
  std::string message;
};
using Step = tl::expected<Json, StepFailure>;

Result<std::vector<std::string>> own_command() {
  std::error_code code;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", code);
  if (code) return fail(Errc::machine, "/proc/self/exe cannot be read: {}", code.message());
  return std::vector<std::string>{executable.string(), worker_argument};
}

int default_workers() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 8); }

/// Of an error of the device. The emulated one names what it found first.
Status status_of(const Error& error) {
  const std::string_view message = error.message;
  if (message.starts_with("data race")) return Status::wrong_result;
  return message.starts_with("deadlock") || message.find("watchdog") != std::string_view::npos ? Status::timeout : Status::crashed;
}

}  // namespace

struct DeviceEvaluator::State {
  State(DeviceEvaluatorOptions chosen, ScratchFolder folder) : options(std::move(chosen)), scratch(std::move(folder)) {}

  DeviceEvaluatorOptions options;
  ScratchFolder scratch;
  std::optional<WorkerProcess> worker;
  DeviceIdentity identity;
  Method method = Method::events;
  std::string isolation;
  std::string opened;          // key of the deployment the worker holds; empty: none
  int restarts = 0;
  int failed_in_a_row = 0;     // restarts since a candidate was last evaluated to its end

  Result<Json> must(const Json& request, double seconds, const char* doing);
  Result<void> start_worker();
  Result<void> ready(const Deployment& deployment);
  std::vector<std::int64_t> positions(const Deployment& deployment) const;
  Step step(const Json& request, double seconds, const char* doing);
  void check_health();
  void run(const Plan& plan, const CompiledCandidate& compiled, Evaluation& evaluation);
  Evaluation begin_evaluation(const Schedule* schedule) const;
};

/// A request whose failure is the machine's, not a candidate's.
Result<Json> DeviceEvaluator::State::must(const Json& request, double seconds, const char* doing) {
  if (options.progress) options.progress(doing);
  const Reply reply = worker->ask(request, seconds);
  if (reply.state != ReplyState::ok) return fail(Errc::machine, "{}: {}", doing, reply.detail);
  return reply_from_json(reply.value);
}

Result<void> DeviceEvaluator::State::start_worker() {
  worker.reset();
  opened.clear();
  ADAMK_TRY(const std::string folder, make_worker_folder(scratch.path(), "gpu"));
  ADAMK_TRY(WorkerProcess started, WorkerProcess::start(worker_command(options.worker_command, folder, options.isolate)));
  worker = std::move(started);
  Json request{{"do", "device"}, {"device", options.device}};
  if (options.emulation) request["emulation"] = emulation_to_json(*options.emulation);
  ADAMK_TRY(const Json answer, must(request, device_seconds, options.emulation ? "opening the emulated device" : "opening the GPU"));
  const JsonView view(answer, "worker");
  ADAMK_TRY(const JsonView identity_view, view.at("identity"));
  ADAMK_TRY(identity, identity_from_json(identity_view));
  ADAMK_TRY(const JsonView method_view, view.at("method"));
  ADAMK_TRY(const std::string method_text, method_view.text());
  ADAMK_TRY(method, parse_method(method_text));
  ADAMK_TRY(const JsonView isolation_view, view.at("isolation"));
  ADAMK_TRY(isolation, isolation_view.text());
  return {};
}

std::vector<std::int64_t> DeviceEvaluator::State::positions(const Deployment& deployment) const {
  std::vector<std::int64_t> inside;
  for (std::int64_t position : options.positions) {
    if (position >= 0 && position < deployment.workload.context) inside.push_back(position);
  }
  return inside;
}

/// A worker with this deployment's weights and reference.
Result<void> DeviceEvaluator::State::ready(const Deployment& deployment) {
  if (!worker || !worker->alive()) ADAMK_CHECK(start_worker());
  const std::string key = deployment.key();
  if (opened == key) return {};
  ADAMK_CHECK(must({{"do", "open"},
                    {"deployment", deployment_to_json(deployment)},
                    {"weights", weights_source_to_json(options.weights)},
                    {"seed", static_cast<std::int64_t>(options.input_seed)}},
                   options.deadlines.open, "preparing the weights"));
  ADAMK_CHECK(must({{"do", "reference"}, {"positions", positions(deployment)}}, options.deadlines.reference,
                   "computing the reference"));
  opened = key;
  return {};
}

Step DeviceEvaluator::State::step(const Json& request, double seconds, const char* doing) {
  const Reply reply = worker->ask(request, seconds);
  if (reply.state != ReplyState::ok) {
    const Status status = reply.state == ReplyState::timeout ? Status::timeout : Status::crashed;
    return tl::unexpected(StepFailure{status, fmt::format("{}: {}", doing, reply.detail)});
  }
  auto value = reply_from_json(reply.value);
  if (value) return std::move(*value);
  const Error& error = value.error();
  if (error.code == Errc::infeasible || error.code == Errc::unsupported) {
    return tl::unexpected(StepFailure{Status::infeasible, error.message});
  }
  check_health();
  return tl::unexpected(StepFailure{status_of(error), fmt::format("{}: {}", doing, error.message)});
}

/// After an error on the GPU: an error that stays with the context would spoil every later candidate.
void DeviceEvaluator::State::check_health() {
  const Reply reply = worker->ask({{"do", "health"}}, health_seconds);
  if (reply.state != ReplyState::ok || !reply_from_json(reply.value)) worker->kill();
}

void DeviceEvaluator::State::run(const Plan& plan, const CompiledCandidate& compiled, Evaluation& evaluation) {
  const auto ended = [&](Status status, std::string message) {
    evaluation.status = status;
    evaluation.message = std::move(message);
  };
  const Step loaded = step({{"do", "load"}, {"plan", plan_to_json(plan)}, {"compiled", compiled_to_json(compiled)}},
                           options.deadlines.load, "loading");
  if (!loaded) return ended(loaded.error().status, loaded.error().message);

  const Step verified = step({{"do", "verify"}}, options.emulation ? options.deadlines.emulate : options.deadlines.verify, "verifying");
  if (options.emulation) {
    const Step counted = step({{"do", "emulation"}}, health_seconds, "counting");
    if (counted) evaluation.counters = counters_from_json(*counted);
  }
  if (!verified) return ended(verified.error().status, verified.error().message);
  const Json& answer = *verified;
  if (!answer.contains("verdict") || !answer.contains("passed")) return ended(Status::crashed, "verifying: no verdict");
  auto verdict = verdict_from_json(JsonView(answer["verdict"], "worker"));
  if (!verdict) return ended(Status::crashed, verdict.error().message);
  verdict->certificate = evaluation.verdict.certificate;
  evaluation.verdict = std::move(*verdict);
  if (answer["passed"] != true) return ended(Status::wrong_result, answer.value("message", "wrong result"));
  if (options.emulation) return;   // it has no time

  const Step measured = step({{"do", "time"}, {"timing", timing_options_to_json(options.timing)}}, options.deadlines.time, "timing");
  if (!measured) return ended(measured.error().status, measured.error().message);
  auto timed = timed_from_json(JsonView(*measured, "worker"));
  if (!timed) return ended(Status::crashed, timed.error().message);
  if (!timed->wrong.empty()) return ended(Status::wrong_result, timed->wrong);
  evaluation.method = timed->method;
  evaluation.samples_us = std::move(timed->samples_us);
  evaluation.bytes_per_token = timed->bytes_per_token;
  evaluation.conditions = timed->conditions;
}

Evaluation DeviceEvaluator::State::begin_evaluation(const Schedule* schedule) const {
  Evaluation evaluation;
  evaluation.method = method;
  evaluation.ceiling_gbps = identity.read_gbps;
  if (schedule != nullptr) {
    evaluation.resources.threads = schedule->threads;
    evaluation.resources.smem_bytes = schedule->smem.total();
  }
  return evaluation;
}

DeviceEvaluator::DeviceEvaluator(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeviceEvaluator::~DeviceEvaluator() = default;
const DeviceIdentity& DeviceEvaluator::device() const { return state_->identity; }
Method DeviceEvaluator::method() const { return state_->method; }
std::string DeviceEvaluator::isolation() const { return state_->isolation; }
int DeviceEvaluator::restarts() const { return state_->restarts; }

Result<std::unique_ptr<DeviceEvaluator>> DeviceEvaluator::create(DeviceEvaluatorOptions options) {
  if (options.worker_command.empty()) {
    ADAMK_TRY(options.worker_command, own_command());
  }
  if (options.compile_workers <= 0) options.compile_workers = default_workers();
  ADAMK_TRY(ScratchFolder scratch, ScratchFolder::create());
  auto state = std::make_unique<State>(std::move(options), std::move(scratch));
  ADAMK_CHECK(state->start_worker());
  return std::unique_ptr<DeviceEvaluator>(new DeviceEvaluator(std::move(state)));
}

Result<void> DeviceEvaluator::evaluate(const Deployment& deployment, std::span<const Plan> plans, const Finished& finished,
                                       const Stop& stop) {
  State& state = *state_;
  const auto stopped = [&] { return stop && stop(); };
  // Feasible plans with equal packed weights follow each other, layouts in the order they first appear.
  struct Feasible {
    std::size_t index;
    Schedule schedule;
    std::size_t layout;
  };
  std::vector<Feasible> feasible;
  std::map<std::string, std::size_t> layouts;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto schedule = make_schedule(deployment, plans[i]);
    if (schedule) {
      const std::size_t layout = layouts.emplace(packed_layout_key(*schedule), layouts.size()).first->second;
      feasible.push_back({i, std::move(*schedule), layout});
      continue;
    }
    if (stopped()) return {};
    Evaluation evaluation = state.begin_evaluation(nullptr);
    evaluation.status = Status::infeasible;
    evaluation.message = schedule.error().message;
    ADAMK_CHECK(finished(i, evaluation));
  }
  std::stable_sort(feasible.begin(), feasible.end(),
                   [](const Feasible& a, const Feasible& b) { return a.layout < b.layout; });
  if (feasible.empty() || stopped()) return {};

  std::vector<const Schedule*> schedules;
  for (const Feasible& candidate : feasible) schedules.push_back(&candidate.schedule);
  CompilePool pool({state.options.worker_command, state.options.isolate, state.options.emulation.has_value(),
                    state.options.compile_workers, state.options.deadlines.compile, state.scratch.path()},
                   deployment, schedules);
  for (std::size_t i = 0; i < feasible.size(); ++i) {
    if (stopped()) return {};
    const auto prepared = pool.take(i, stop);
    if (!prepared) return {};
    if (prepared->fatal) return tl::unexpected(*prepared->fatal);
    Evaluation evaluation = state.begin_evaluation(&feasible[i].schedule);
    evaluation.status = prepared->status;
    evaluation.message = prepared->message;
    evaluation.verdict.certificate = prepared->certificate;
    if (prepared->status == Status::ok) {
      const KernelResources compiled = prepared->compiled.resources;
      const KernelResources scheduled = evaluation.resources;
      evaluation.resources = compiled;
      evaluation.resources.threads = scheduled.threads;
      evaluation.resources.smem_bytes = scheduled.smem_bytes;
      if (compiled.spill_bytes > state.options.spill_limit && !state.options.run_spilling) {
        evaluation.status = Status::spills;
        evaluation.message = fmt::format("the kernel spills {} bytes of registers per thread ({} registers), more than {}",
                                         compiled.spill_bytes, compiled.registers, state.options.spill_limit);
      } else {
        ADAMK_CHECK(state.ready(deployment));
        state.run(plans[feasible[i].index], prepared->compiled, evaluation);
        if (state.worker->alive()) {
          state.failed_in_a_row = 0;
        } else {
          ++state.restarts;
          ++state.failed_in_a_row;
        }
      }
      std::error_code ignored;
      std::filesystem::remove(prepared->compiled.image_file, ignored);
    }
    ADAMK_CHECK(finished(feasible[i].index, evaluation));
    if (state.failed_in_a_row >= most_restarts_in_a_row) {
      return fail(Errc::machine, "{} candidates in a row killed their worker, the last one with '{}'; see "
                  "docs/warnings/candidate-crashed.md", state.failed_in_a_row, evaluation.message);
    }
  }
  return {};
}

}  // namespace adamk
