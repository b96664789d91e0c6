#include "kernel_fixture.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace adamk::emulated {
namespace {

const std::string source_folder = ADAMK_SOURCE_DIR;

/// What must not fail for a test to mean anything.
template <class T>
T need(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);   // gtest fails the test with it
  return std::move(*result);
}

const Model& tiny_model() {
  static const Model model = need(load_model(source_folder + "/examples/tiny"));
  return model;
}

Subject make_subject(const Variant& variant) {
  Target target = need(load_target(source_folder + "/examples/targets/" + variant.target + ".yaml"));
  target.sms = variant.sms;
  Workload workload;
  workload.context = 64;
  workload.steps_per_launch = 3;
  Subject made{need(make_deployment(tiny_model(), variant.format, target, workload)), {}, {}, {}, {}, {}, &tiny_weights(variant.format)};
  Plan plan = need(default_plan(made.deployment));
  plan.consumer_warps = 4;
  plan.ring_stages = 4;
  plan.window = 2;
  variant.change(plan);
  made.schedule = need(make_schedule(made.deployment, plan));
  made.kernel = need(compile(need(emit_source(made.deployment, made.schedule)), ptx_arch(target)));
  made.recipe = make_recipe(made.deployment, made.schedule, made.kernel);
  made.packed = pack_weights(made.deployment, made.schedule, *made.weights);
  made.small_tensors = pack_small_tensors(made.deployment, made.schedule, *made.weights);
  return made;
}

}  // namespace

std::function<void(Plan&)> every_input(Exchange kind) {
  return [kind](Plan& plan) {
    for (StagePlan& stage : plan.stages) stage.input = kind;
  };
}

void mixed_inputs(Plan& plan) {
  for (StagePlan& stage : plan.stages) {
    if (stage.kind == StageKind::attention || stage.kind == StageKind::down) stage.input = Exchange::counter;
    if (stage.kind == StageKind::output) stage.input = Exchange::barrier;
  }
}

void norm_exchanged(Plan& plan) {
  for (StagePlan& stage : plan.stages)
    if (stage.kind == StageKind::qkv || stage.kind == StageKind::gate_up || stage.kind == StageKind::head) stage.norm = NormMode::exchange;
}

void attention_fused(Plan& plan) {
  std::erase_if(plan.stages, [](const StagePlan& stage) { return stage.kind == StageKind::attention; });
  for (StagePlan& stage : plan.stages)
    if (stage.kind == StageKind::output) stage.fused_attention = true;
}

void silu_apart(Plan& plan) {
  for (StagePlan& stage : plan.stages)
    if (stage.kind == StageKind::gate_up) stage.fused_silu = false;
}

void paced(Plan& plan) { plan.pace = 390; }

std::function<void(Plan&)> inner_loop(int warps, int chunk_steps, int unroll, int fragments) {
  return [=](Plan& plan) {
    plan.consumer_warps = warps;
    for (StagePlan& stage : plan.stages)
      if (stage.kind != StageKind::attention) stage.chunk_steps = chunk_steps;
    plan.ring_stages = 3;
    plan.window = 2;
    plan.unroll = unroll;
    plan.fragments = fragments;
  };
}

std::function<void(Plan&)> kv_split(int splits) {
  return [splits](Plan& plan) {
    for (StagePlan& stage : plan.stages)
      if (stage.kind == StageKind::attention) stage.kv_splits = splits;
  };
}

std::function<void(Plan&)> both(std::function<void(Plan&)> one, std::function<void(Plan&)> other) {
  return [one = std::move(one), other = std::move(other)](Plan& plan) {
    one(plan);
    other(plan);
  };
}

const Weights& tiny_weights(WeightsFormat format) {
  static std::map<WeightsFormat, Weights> loaded;
  const auto found = loaded.find(format);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(format, need(Weights::load(tiny_model(), source_folder + "/examples/tiny", format))).first->second;
}

const Subject& subject(const Variant& variant) {
  static std::map<std::string, std::unique_ptr<Subject>> made;
  std::unique_ptr<Subject>& entry = made[variant.name];
  if (!entry) entry = std::make_unique<Subject>(make_subject(variant));
  return *entry;
}

Result<Running> start(const Subject& subject, std::uint64_t seed, const std::string& ptx,
                      const std::function<void(EmulatedDeviceOptions&)>& change) {
  EmulatedDeviceOptions options;
  options.seed = seed;
  if (change) change(options);
  Running running{EmulatedDevice::make(subject.deployment.target, options), std::nullopt};
  std::vector<std::byte> image = subject.kernel.image();
  if (!ptx.empty()) {
    const auto bytes = std::as_bytes(std::span(ptx.c_str(), ptx.size() + 1));
    image.assign(bytes.begin(), bytes.end());
  }
  DecoderInputs inputs;
  inputs.image = image;
  inputs.packed = subject.packed;
  inputs.small_tensors = subject.small_tensors;
  inputs.embedding = std::as_bytes(subject.weights->embedding());
  ADAMK_TRY(Decoder decoder, Decoder::create(*running.device, subject.recipe, inputs));
  running.decoder = std::move(decoder);
  return running;
}

void KernelTest::SetUp() {
  const auto version = nvrtc_version();
  if (!version) GTEST_SKIP() << version.error().message;
}

}  // namespace adamk::emulated
