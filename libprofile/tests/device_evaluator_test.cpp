// The evaluator with a worker that is a shell script: what becomes of crashes, hangs and nonsense, without a GPU.
#include "adamk/profile/device_evaluator.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "adamk/codegen/packer.h"
#include "worker_protocol.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

Deployment small_deployment() {
  Model model;
  model.family = "llama";
  model.layers = 2;
  model.hidden = 256;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.ffn = 512;
  model.vocab = 512;
  model.max_positions = 512;
  model.norm_eps = 1e-5;
  Target target;
  target.name = "test";
  target.product = "NVIDIA test";
  target.sm = 90;
  target.sms = 8;
  target.smem_per_block = 232448;
  target.smem_per_sm = 233472;
  target.smem_reserved = 1024;
  target.l2_bytes = 50'000'000;
  target.memory_bytes = 80'000'000'000;
  target.read_gbps = 3000;
  target.hop_us = 1.2;
  target.clock_mhz = 1800;
  Workload workload;
  workload.context = 128;
  workload.steps_per_launch = 8;
  auto deployment = make_deployment(model, WeightsFormat::bf16, target, workload);
  EXPECT_TRUE(deployment) << (deployment ? "" : deployment.error().message);
  return *deployment;
}

/// Each request is answered by the line of `answers` under its "do"; "$CRASH", "$HANG" and "$SPLIT" act instead. The text of
/// the request's plan may choose: "load:<ring>" beats "load".
struct FakeWorker {
  fs::path folder = fs::path(testing::TempDir()) / ("adamk_fake_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
  std::map<std::string, std::string> answers;

  FakeWorker() {
    fs::create_directories(folder);
    answers["compile"] = ok(R"({"source_hash": "s", "cubin_hash": "c", "arch": "sm_90a", "registers": 128, "spill_bytes": 0,)"
                            R"( "code_bytes": 1000, "seconds": 0.5, "image_file": "/nonexistent"})");
    answers["device"] = ok(R"({"identity": {"name": "NVIDIA test", "sm": 90, "sms": 8, "driver": "13.0", "toolkit": "13.0",)"
                           R"( "memory_bytes": 1, "clock_mhz": 1800, "read_gbps": 3000, "hop_us": 1.2}, "method": "cupti", "isolation": "of the test"})");
    for (const char* plain : {"open", "reference", "load", "health"}) answers[plain] = ok("{}");
    answers["verify"] = verify(true, "");
    answers["time"] = time("");
  }
  ~FakeWorker() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  static std::string ok(const std::string& value) { return R"({"ok": true, "value": )" + value + "}"; }
  static std::string error(const std::string& code, const std::string& message) {
    return R"({"ok": false, "code": ")" + code + R"(", "message": ")" + message + "\"}";
  }
  static std::string verify(bool passed, const std::string& message) {
    return ok(std::string(R"({"passed": )") + (passed ? "true" : "false") + R"(, "message": ")" + message +
              R"(", "verdict": {"checked": true, "positions": 2, "tokens": 5, "near_ties": 0, "max_error": 0.01, "tolerance": 0.02}})");
  }
  static std::string time(const std::string& wrong) {
    return ok(R"({"method": "cupti", "samples_us": [10, 12, 11], "bytes_per_token": 11000, "clock_mhz": 1800, "throttled": 1,)"
              R"( "wrong": ")" + wrong + "\"}");
  }

  /// Requests are logged to `log`, one "do" a line.
  std::vector<std::string> command() const {
    std::ofstream script(folder / "worker.sh");
    script << "while read -r line <&3; do\n"
           << "  what=${line#*'\"do\":\"'}; what=${what%%'\"'*}; echo $what >> " << (folder / "log").string() << "\n"
           << "  case \"$line\" in\n";
    // Longer keys first: they are the special ones.
    for (auto it = answers.rbegin(); it != answers.rend(); ++it) {
      const std::string& key = it->first;
      const std::size_t colon = key.find(':');
      std::string pattern = "*'\"do\":\"" + key.substr(0, colon) + "\"'*";
      if (colon != std::string::npos) pattern += "'" + key.substr(colon + 1) + "'*";
      script << "    " << pattern << ") ";
      if (it->second == "$CRASH") script << "kill -SEGV $$";
      else if (it->second == "$HANG") script << "sleep 600";
      else script << "echo '" << it->second << "' >&3";
      script << " ;;\n";
    }
    script << "    *) exit 9 ;;\n  esac\ndone\n";
    script.close();
    return {"/bin/sh", (folder / "worker.sh").string()};
  }

  int asked(const std::string& what) const {
    std::ifstream log(folder / "log");
    int count = 0;
    for (std::string line; std::getline(log, line);) count += line == what ? 1 : 0;
    return count;
  }
};

struct Outcome {
  Result<void> result;
  std::map<std::size_t, Evaluation> evaluations;
  int restarts = 0;
};

DeviceEvaluatorOptions options_for(const FakeWorker& fake) {
  DeviceEvaluatorOptions options;
  options.worker_command = fake.command();
  options.weights.random_seed = 1;
  options.compile_workers = 2;
  options.deadlines = {.open = 20, .reference = 20, .compile = 20, .load = 20, .verify = 1, .time = 20};
  return options;
}

Outcome evaluate(const FakeWorker& fake, const Deployment& deployment, const std::vector<Plan>& plans,
                 const Evaluator::Stop& stop = {}, bool emulate = false) {
  Outcome outcome;
  DeviceEvaluatorOptions options = options_for(fake);
  if (emulate) options.emulation = Emulation{deployment.target};
  auto evaluator = DeviceEvaluator::create(std::move(options));
  if (!evaluator) {
    outcome.result = tl::unexpected(evaluator.error());
    return outcome;
  }
  outcome.result = (*evaluator)->evaluate(deployment, plans,
      [&](std::size_t index, const Evaluation& evaluation) -> Result<void> {
        EXPECT_TRUE(outcome.evaluations.emplace(index, evaluation).second) << "plan " << index << " reported twice";
        return {};
      }, stop);
  outcome.restarts = (*evaluator)->restarts();
  return outcome;
}

/// The default plan with rings of other depths: distinct, feasible plans of one packed layout.
std::vector<Plan> plans_of(const Deployment& deployment, int count) {
  auto plan = default_plan(deployment);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  std::vector<Plan> plans;
  for (int i = 0; i < count; ++i) {
    plans.push_back(*plan);
    plans.back().ring_stages = 3 + i;
    plans.back().window = 2;
    EXPECT_TRUE(make_schedule(deployment, plans.back()));
  }
  return plans;
}

TEST(DeviceEvaluator, a_good_candidate_carries_verdict_resources_and_samples) {
  FakeWorker fake;
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 2));
  ASSERT_TRUE(outcome.result) << outcome.result.error().message;
  ASSERT_EQ(outcome.evaluations.size(), 2u);
  const Evaluation& e = outcome.evaluations.at(0);
  EXPECT_EQ(e.status, Status::ok) << e.message;
  EXPECT_EQ(e.method, Method::cupti);
  EXPECT_EQ(e.samples_us, (std::vector<double>{10, 12, 11}));
  EXPECT_EQ(e.median_us(), 11);
  EXPECT_EQ(e.ceiling_gbps, 3000);
  EXPECT_TRUE(e.verdict.checked);
  EXPECT_FALSE(e.verdict.certificate.empty());
  EXPECT_EQ(e.resources.registers, 128);
  EXPECT_GT(e.resources.smem_bytes, 0);
  EXPECT_EQ(e.conditions.throttled, 1);
  // Weights and reference once, however many candidates.
  EXPECT_EQ(fake.asked("open"), 1);
  EXPECT_EQ(fake.asked("reference"), 1);
  EXPECT_EQ(fake.asked("time"), 2);
}

TEST(DeviceEvaluator, a_wrong_candidate_is_never_timed) {
  FakeWorker fake;
  fake.answers["verify"] = FakeWorker::verify(false, "position 64: logits differ");
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 1));
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::wrong_result);
  EXPECT_EQ(outcome.evaluations.at(0).message, "position 64: logits differ");
  EXPECT_TRUE(outcome.evaluations.at(0).samples_us.empty());
  EXPECT_EQ(fake.asked("time"), 0);
}

TEST(DeviceEvaluator, wrong_after_timing_keeps_no_samples) {
  FakeWorker fake;
  fake.answers["time"] = FakeWorker::time("after timing: position 64");
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 1));
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::wrong_result);
  EXPECT_TRUE(outcome.evaluations.at(0).samples_us.empty());
}

TEST(DeviceEvaluator, a_crash_costs_one_candidate_and_a_restart) {
  FakeWorker fake;
  fake.answers["load:\"ring_stages\":4"] = "$CRASH";
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 3));
  ASSERT_TRUE(outcome.result) << outcome.result.error().message;
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::ok);
  EXPECT_EQ(outcome.evaluations.at(1).status, Status::crashed);
  EXPECT_NE(outcome.evaluations.at(1).message.find("signal 11"), std::string::npos) << outcome.evaluations.at(1).message;
  EXPECT_EQ(outcome.evaluations.at(2).status, Status::ok);
  EXPECT_EQ(outcome.restarts, 1);
  EXPECT_EQ(fake.asked("open"), 2);
}

TEST(DeviceEvaluator, a_hang_is_a_timeout) {
  FakeWorker fake;
  fake.answers["verify"] = "$HANG";
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 1));
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::timeout);
  EXPECT_EQ(outcome.restarts, 1);
}

TEST(DeviceEvaluator, nonsense_on_the_channel_is_a_crash) {
  FakeWorker fake;
  fake.answers["time"] = "nonsense";
  const Deployment deployment = small_deployment();
  EXPECT_EQ(evaluate(fake, deployment, plans_of(deployment, 1)).evaluations.at(0).status, Status::crashed);
  fake.answers["time"] = R"({"ok": true, "value": {"method": "cupti"}})";
  EXPECT_EQ(evaluate(fake, deployment, plans_of(deployment, 1)).evaluations.at(0).status, Status::crashed);
}

TEST(DeviceEvaluator, an_emulated_candidate_is_checked_and_never_timed) {
  FakeWorker fake;
  fake.answers["emulation"] = FakeWorker::ok(R"({"emulator.launches": 2, "emulator.races": 0, "note": "no number"})");
  const Deployment deployment = small_deployment();
  const Evaluation sound = evaluate(fake, deployment, plans_of(deployment, 1), {}, true).evaluations.at(0);
  EXPECT_EQ(sound.status, Status::ok) << sound.message;
  EXPECT_TRUE(sound.samples_us.empty());
  EXPECT_EQ(sound.counters, (std::map<std::string, double>{{"emulator.launches", 2}, {"emulator.races", 0}}));
  EXPECT_EQ(fake.asked("time"), 0);
  const std::vector<std::pair<std::string, Status>> found = {{"data race: read after write at KV + 0x10", Status::wrong_result},
                                                             {"deadlock: 3 waits can never end", Status::timeout},
                                                             {"PTX line 7: stray", Status::crashed}};
  for (const auto& [words, status] : found) {
    fake.answers["verify"] = FakeWorker::error("machine", words);
    const Evaluation broken = evaluate(fake, deployment, plans_of(deployment, 1), {}, true).evaluations.at(0);
    EXPECT_EQ(broken.status, status) << words;
    EXPECT_EQ(broken.message, "verifying: " + words);
    EXPECT_EQ(broken.counters.size(), 2u);
  }
}

TEST(DeviceEvaluator, a_watchdog_is_a_timeout_and_a_healthy_worker_goes_on) {
  FakeWorker fake;
  fake.answers["verify"] = FakeWorker::error("machine", "watchdog: SM 1, role consumer");
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 2));
  EXPECT_EQ(outcome.evaluations.at(1).status, Status::timeout);
  EXPECT_EQ(outcome.restarts, 0);
  EXPECT_EQ(fake.asked("health"), 2);
  EXPECT_EQ(fake.asked("open"), 1);
}

TEST(DeviceEvaluator, an_error_that_stays_with_the_context_restarts_the_worker) {
  FakeWorker fake;
  fake.answers["load:\"ring_stages\":3"] = FakeWorker::error("machine", "CUDA_ERROR_ILLEGAL_ADDRESS");
  fake.answers["health"] = FakeWorker::error("machine", "CUDA_ERROR_ILLEGAL_ADDRESS");
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 2));
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::crashed);
  EXPECT_EQ(outcome.evaluations.at(1).status, Status::ok);
  EXPECT_EQ(outcome.restarts, 1);
}

TEST(DeviceEvaluator, three_crashes_in_a_row_end_the_batch_after_reporting_them) {
  FakeWorker fake;
  fake.answers["load"] = "$CRASH";
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 5));
  ASSERT_FALSE(outcome.result);
  EXPECT_EQ(outcome.result.error().code, Errc::machine);
  EXPECT_EQ(outcome.evaluations.size(), 3u);
}

TEST(DeviceEvaluator, compile_errors_and_spills_never_reach_the_gpu) {
  const Deployment deployment = small_deployment();
  FakeWorker broken;
  broken.answers["compile"] = FakeWorker::error("bad_input", "kernel.cu(12): error");
  EXPECT_EQ(evaluate(broken, deployment, plans_of(deployment, 1)).evaluations.at(0).status, Status::compile_error);
  EXPECT_EQ(broken.asked("open"), 0);
  FakeWorker spilling;
  std::string& answer = spilling.answers["compile"];
  answer.replace(answer.find("\"spill_bytes\": 0"), 16, "\"spill_bytes\": 65");
  const Outcome outcome = evaluate(spilling, deployment, plans_of(deployment, 1));
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::spills);
  EXPECT_NE(outcome.evaluations.at(0).message.find("spills 65 bytes"), std::string::npos);
  EXPECT_EQ(spilling.asked("open"), 0);
}

TEST(DeviceEvaluator, a_few_spilled_bytes_are_for_the_measurement_to_judge) {
  FakeWorker fake;
  std::string& answer = fake.answers["compile"];
  answer.replace(answer.find("\"spill_bytes\": 0"), 16, "\"spill_bytes\": 64");
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 1));
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::ok);
  EXPECT_EQ(outcome.evaluations.at(0).resources.spill_bytes, 64);
}

TEST(DeviceEvaluator, long_steps_before_the_first_candidate_are_told) {
  FakeWorker fake;
  std::vector<std::string> told;
  DeviceEvaluatorOptions options = options_for(fake);
  options.progress = [&](std::string_view doing) { told.emplace_back(doing); };
  auto evaluator = DeviceEvaluator::create(std::move(options));
  ASSERT_TRUE(evaluator);
  const Deployment deployment = small_deployment();
  const auto ignore = [](std::size_t, const Evaluation&) -> Result<void> { return {}; };
  ASSERT_TRUE((*evaluator)->evaluate(deployment, plans_of(deployment, 2), ignore, {}));
  EXPECT_EQ(told, (std::vector<std::string>{"opening the GPU", "preparing the weights", "computing the reference"}));
}

TEST(DeviceEvaluator, a_compiler_that_crashes_costs_one_candidate) {
  FakeWorker fake;
  fake.answers["compile"] = "$CRASH";
  const Deployment deployment = small_deployment();
  const Outcome outcome = evaluate(fake, deployment, plans_of(deployment, 4));
  ASSERT_TRUE(outcome.result);
  for (const auto& [index, evaluation] : outcome.evaluations) EXPECT_EQ(evaluation.status, Status::crashed) << index;
  EXPECT_EQ(outcome.evaluations.size(), 4u);
}

TEST(DeviceEvaluator, an_infeasible_plan_names_its_constraint) {
  FakeWorker fake;
  const Deployment deployment = small_deployment();
  std::vector<Plan> plans = plans_of(deployment, 1);
  plans[0].ring_stages = 100000;
  const Outcome outcome = evaluate(fake, deployment, plans);
  EXPECT_EQ(outcome.evaluations.at(0).status, Status::infeasible);
  EXPECT_FALSE(outcome.evaluations.at(0).message.empty());
}

TEST(DeviceEvaluator, stopping_leaves_the_rest_unreported) {
  FakeWorker fake;
  const Deployment deployment = small_deployment();
  int seen = 0;
  auto evaluator = DeviceEvaluator::create(options_for(fake));
  ASSERT_TRUE(evaluator);
  const Result<void> result = (*evaluator)->evaluate(deployment, plans_of(deployment, 5),
      [&](std::size_t, const Evaluation&) -> Result<void> { ++seen; return {}; }, [&] { return seen >= 2; });
  EXPECT_TRUE(result);
  EXPECT_EQ(seen, 2);
}

TEST(DeviceEvaluator, without_a_gpu_it_is_not_created) {
  FakeWorker fake;
  fake.answers["device"] = FakeWorker::error("machine", "libcuda.so.1 was not found");
  const auto evaluator = DeviceEvaluator::create(options_for(fake));
  ASSERT_FALSE(evaluator);
  EXPECT_EQ(evaluator.error().code, Errc::machine);
  EXPECT_EQ(evaluator.error().message, "libcuda.so.1 was not found");
}

TEST(WorkerProtocol, everything_that_crosses_comes_back_as_it_was) {
  TimedCandidate timed;
  timed.method = Method::events;
  timed.samples_us = {1.5, 2.25};
  timed.bytes_per_token = 3e9;
  timed.conditions.clock_mhz = 1755;
  timed.conditions.throttled = 2;
  const Json line = timed_to_json(timed);
  const auto back = timed_from_json(JsonView(line, "test"));
  ASSERT_TRUE(back);
  EXPECT_EQ(timed_to_json(*back), line);

  WeightsSource source;
  source.random_seed = 18446744073709551615ull;
  const Json source_line = weights_source_to_json(source);
  EXPECT_EQ(weights_source_from_json(JsonView(source_line, "test"))->random_seed, source.random_seed);

  const TimingOptions options{.position = -1, .steps = 4};
  const Json options_line = timing_options_to_json(options);
  EXPECT_EQ(timing_options_to_json(*timing_options_from_json(JsonView(options_line, "test"))), options_line);
}

TEST(WorkerProtocol, an_error_keeps_its_code_and_message) {
  for (const Errc code : {Errc::bad_input, Errc::infeasible, Errc::machine, Errc::interrupted}) {
    const Result<Json> back = reply_from_json(reply_to_json(tl::unexpected(Error{code, "why"})));
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().code, code);
    EXPECT_EQ(back.error().message, "why");
  }
  EXPECT_FALSE(reply_from_json(Json::object()));
  EXPECT_FALSE(reply_from_json({{"ok", false}, {"code", "unheard"}, {"message", ""}}));
}

}  // namespace
}  // namespace adamk
