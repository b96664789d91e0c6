#include "worker_session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <list>
#include <optional>

#include "adamk/base/file.h"
#include "adamk/base/hash.h"
#include "adamk/codegen/kernel.h"
#include "adamk/codegen/packer.h"
#include "adamk/profile/cupti.h"
#include "adamk/profile/emulated_device.h"
#include "adamk/profile/probe.h"
#include "gate.h"
#include "worker_protocol.h"

namespace adamk {
namespace {

constexpr std::uint64_t largest_source = 64u << 20, largest_image = 256u << 20;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<std::string> text_of(const JsonView& request, const char* key) {
  ADAMK_TRY(const JsonView member, request.at(key));
  return member.text();
}

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& path) {
  ADAMK_TRY(const std::string content, read_file(path, largest_image));
  const auto bytes = std::as_bytes(std::span<const char>(content));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Result<void> write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  ADAMK_TRY(AtomicFile file, AtomicFile::create(path));
  ADAMK_CHECK(file.write(bytes));
  return file.commit();
}

Result<Json> compile_candidate(const JsonView& request) {
  ADAMK_TRY(const std::string source_file, text_of(request, "source_file"));
  ADAMK_TRY(const std::string arch, text_of(request, "arch"));
  CompiledCandidate compiled;
  ADAMK_TRY(compiled.image_file, text_of(request, "image_file"));
  ADAMK_TRY(const std::string source, read_file(source_file, largest_source));
  const double begin = steady_seconds();
  ADAMK_TRY(const Kernel kernel, compile(source, arch));
  KernelResources& resources = compiled.resources;
  resources.compile_seconds = steady_seconds() - begin;
  const std::vector<std::byte> image = kernel.image();
  resources.source_hash = hash_hex(source);
  resources.cubin_hash = hash_hex(image);
  resources.arch = kernel.arch;
  resources.registers = kernel.registers;
  resources.spill_bytes = kernel.spill_bytes;
  resources.code_bytes = static_cast<std::int64_t>(image.size());
  ADAMK_CHECK(write_bytes(compiled.image_file, image));
  return compiled_to_json(compiled);
}

Result<std::vector<std::int64_t>> positions_of(const JsonView& request) {
  ADAMK_TRY(const JsonView member, request.at("positions"));
  ADAMK_TRY(const std::vector<JsonView> items, member.items());
  std::vector<std::int64_t> positions;
  for (const JsonView& item : items) {
    ADAMK_TRY(const std::int64_t position, item.integer(0));
    positions.push_back(position);
  }
  return positions;
}

/// Gigabytes that are packed anew for every layout: kept, so that their pages are touched for the first time once.
class PackBuffer {
 public:
  std::span<const std::byte> pack(const Deployment& deployment, const Schedule& schedule, const Weights& weights) {
    const auto size = static_cast<std::size_t>(schedule.packed_bytes);
    if (size > capacity_) {
      bytes_.reset();
      capacity_ = size + size / 16;   // layouts differ by their padding
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(capacity_);
    }
    const std::span<std::byte> out(bytes_.get(), size);
    pack_weights(deployment, schedule, weights, out);
    return out;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t capacity_ = 0;
};

}  // namespace

struct WorkerSession::State {
  std::string isolation;
  // In the order they must outlive each other.
  std::unique_ptr<Device> device;
  std::optional<Emulation> emulation;
  EmulatedDevice* emulated = nullptr;   // `device`, when it is one
  std::optional<Deployment> deployment;
  std::optional<Weights> weights;
  std::optional<ReferenceLogits> reference;
  WeightsOrigin origin = WeightsOrigin::trained;
  std::uint64_t seed = 1;
  bool cupti = false;

  struct Packed {
    std::string key;
    std::int64_t bytes = 0;
    std::shared_ptr<Decoder::DeviceWeights> weights;
  };
  std::list<Packed> packed;   // most recently used first
  PackBuffer buffer;
  std::optional<Decoder> decoder;
  std::vector<CheckedLaunch> launches;   // every candidate is checked with

  Result<Json> open_device(const JsonView& request);
  void open_emulated();
  Result<Json> open_weights(const JsonView& request);
  Result<Json> make_reference(const JsonView& request);
  Result<Json> load(const JsonView& request);
  Result<Json> verify();
  Result<Json> time(const JsonView& request);
  Result<Json> health();
  Result<Json> count_emulation();
  Result<std::shared_ptr<Decoder::DeviceWeights>> device_weights(const Schedule& schedule);
  Result<void> need(bool there, const char* what) const {
    if (there) return {};
    return fail(Errc::bad_input, "the worker was not asked to {} before", what);
  }
};

/// A new one for each candidate: its memory was never written, no earlier failure stays with it, and the interleavings do not
/// depend on what was tried before.
void WorkerSession::State::open_emulated() {
  decoder.reset();
  packed.clear();
  auto made = EmulatedDevice::make(emulation->target, {.seed = emulation->seed});
  emulated = made.get();
  device = std::move(made);
}

Result<Json> WorkerSession::State::open_device(const JsonView& request) {
  if (request.has("emulation")) {
    ADAMK_TRY(const JsonView wanted, request.at("emulation"));
    ADAMK_TRY(emulation, emulation_from_json(wanted));
    open_emulated();
    ADAMK_TRY(DeviceIdentity identity, device_identity(device->info()));
    identity.driver.clear();
    return Json{{"identity", identity_to_json(identity)},
                {"method", std::string(to_string(Method::emulated))},
                {"isolation", isolation}};
  }
  ADAMK_TRY(const JsonView index, request.at("device"));
  ADAMK_TRY(const std::int64_t number, index.integer(0, 1024));
  ADAMK_TRY(device, open_cuda_device(static_cast<int>(number)));
  const DeviceInfo& info = device->info();
  ADAMK_TRY(DeviceIdentity identity, device_identity(info));
  ADAMK_TRY(const Target measured, probe_target(*device));
  identity.clock_mhz = measured.clock_mhz;
  identity.read_gbps = measured.read_gbps;
  identity.hop_us = measured.hop_us;
  auto trace = ActivityTrace::start();
  cupti = trace.has_value();
  if (cupti) cupti = trace->stop().has_value();
  return Json{{"identity", identity_to_json(identity)},
              {"method", std::string(to_string(cupti ? Method::cupti : Method::events))},
              {"isolation", isolation}};
}

Result<Json> WorkerSession::State::open_weights(const JsonView& request) {
  ADAMK_CHECK(need(device != nullptr, "open the device"));
  decoder.reset();
  packed.clear();
  reference.reset();
  weights.reset();
  ADAMK_TRY(const JsonView description, request.at("deployment"));
  ADAMK_TRY(Deployment read, deployment_from_json(description));
  if (read.target.sm != device->info().sm || read.target.sms > device->info().sms) {
    return fail(Errc::bad_input,
                "the deployment is for {} (sm_{}, {} SMs) and the GPU is {} (sm_{}, {} SMs); build it for this GPU: "
                "adamk-search probe -o target.yaml, adamk-dag build --target target.yaml",
                read.target.name, read.target.sm, read.target.sms, device->info().name, device->info().sm, device->info().sms);
  }
  deployment = std::move(read);
  ADAMK_TRY(const JsonView source_view, request.at("weights"));
  ADAMK_TRY(const WeightsSource source, weights_source_from_json(source_view));
  ADAMK_TRY(const JsonView seed_view, request.at("seed"));
  ADAMK_TRY(const std::int64_t seed_value, seed_view.integer());
  seed = static_cast<std::uint64_t>(seed_value);
  auto made = source.random_seed ? Weights::random(deployment->model, deployment->weights, *source.random_seed)
                                 : Weights::load(deployment->model, source.folder, deployment->weights);
  ADAMK_CHECK(made);
  weights = std::move(*made);
  origin = source.random_seed ? WeightsOrigin::random : WeightsOrigin::trained;
  return Json::object();
}

Result<Json> WorkerSession::State::make_reference(const JsonView& request) {
  ADAMK_CHECK(need(weights.has_value(), "open the weights"));
  ADAMK_TRY(const std::vector<std::int64_t> positions, positions_of(request));
  if (!reference) {
    ADAMK_TRY(ReferenceLogits made, ReferenceLogits::create(*deployment, *weights, origin, seed));
    reference = std::move(made);
  }
  launches = checked_launches(positions, deployment->workload);
  if (launches.empty()) return fail(Errc::bad_input, "no position to verify lies within the context of {}",
                                    deployment->workload.context);
  ADAMK_CHECK(reference->prepare(launches));
  return Json::object();
}

/// Packed weights of plans with one layout are uploaded once. Layouts not used lately make room: at most half of the
/// device's memory holds weights.
Result<std::shared_ptr<Decoder::DeviceWeights>> WorkerSession::State::device_weights(const Schedule& schedule) {
  const std::string key = packed_layout_key(schedule);
  for (auto it = packed.begin(); it != packed.end(); ++it) {
    if (it->key != key) continue;
    packed.splice(packed.begin(), packed, it);
    return packed.front().weights;
  }
  const std::span<const std::byte> matrices = buffer.pack(*deployment, schedule, *weights);
  const std::vector<std::byte> small = pack_small_tensors(*deployment, schedule, *weights);
  DecoderInputs inputs;
  inputs.packed = matrices;
  inputs.small_tensors = small;
  inputs.embedding = std::as_bytes(weights->embedding());
  const auto bytes = static_cast<std::int64_t>(inputs.packed.size() + inputs.small_tensors.size() + inputs.embedding.size());
  const auto held = [&] {
    std::int64_t sum = 0;
    for (const Packed& entry : packed) sum += entry.bytes;
    return sum;
  };
  while (!packed.empty() && held() + bytes > device->info().memory_bytes / 2) packed.pop_back();
  ADAMK_TRY(std::shared_ptr<Decoder::DeviceWeights> uploaded, Decoder::upload_weights(*device, inputs));
  packed.push_front({key, bytes, uploaded});
  return uploaded;
}

Result<Json> WorkerSession::State::load(const JsonView& request) {
  ADAMK_CHECK(need(weights.has_value(), "open the weights"));
  decoder.reset();   // before the next one is allocated
  if (emulation) open_emulated();
  ADAMK_TRY(const JsonView plan_view, request.at("plan"));
  ADAMK_TRY(const Plan plan, plan_from_json(plan_view));
  ADAMK_TRY(const JsonView compiled_view, request.at("compiled"));
  ADAMK_TRY(const CompiledCandidate compiled, compiled_from_json(compiled_view));
  ADAMK_TRY(const Schedule schedule, make_schedule(*deployment, plan));
  Kernel kernel;
  kernel.arch = compiled.resources.arch;
  kernel.registers = compiled.resources.registers;
  kernel.spill_bytes = compiled.resources.spill_bytes;
  ADAMK_TRY(kernel.cubin, read_bytes(compiled.image_file));
  ADAMK_TRY(std::shared_ptr<Decoder::DeviceWeights> uploaded, device_weights(schedule));
  ADAMK_TRY(Decoder made, Decoder::create(*device, make_recipe(*deployment, schedule, kernel), kernel.cubin, uploaded));
  decoder = std::move(made);
  return Json::object();
}

Result<Json> WorkerSession::State::verify() {
  ADAMK_CHECK(need(decoder.has_value(), "load a candidate"));
  ADAMK_CHECK(need(reference.has_value(), "make the reference"));
  ADAMK_TRY(const GateResult gate, check_decoder(*decoder, *reference, launches));
  return Json{{"passed", gate.passed}, {"message", gate.message}, {"verdict", verdict_to_json(gate.verdict)}};
}

Result<Json> WorkerSession::State::time(const JsonView& request) {
  ADAMK_CHECK(need(decoder.has_value(), "load a candidate"));
  ADAMK_TRY(const JsonView options_view, request.at("timing"));
  ADAMK_TRY(TimingOptions options, timing_options_from_json(options_view));
  if (options.position < 0) options.position = default_timing_position(decoder->recipe(), options.steps);
  options.use_cupti = options.use_cupti && cupti;
  ADAMK_TRY(const Timing timing, time_decoder(*decoder, options));
  ADAMK_TRY(const GateResult again, check_again(*decoder, *reference, launches));
  TimedCandidate timed;
  timed.method = timing.method;
  timed.samples_us = timing.samples_us;
  timed.conditions.clock_mhz = timing.launches.clock_mhz;
  timed.conditions.throttled = timing.launches.discarded;
  if (!again.passed) timed.wrong = "after timing: " + again.message;
  timed.bytes_per_token = token_bytes(decoder->recipe(), options.position, timing.steps).total();
  return timed_to_json(timed);
}

Result<Json> WorkerSession::State::health() {
  ADAMK_CHECK(need(device != nullptr, "open the device"));
  decoder.reset();   // after a watchdog it is unusable
  if (emulation) return Json::object();   // the next candidate gets a device of its own
  ADAMK_TRY(ClockProbe probe, ClockProbe::create(*device));
  ADAMK_CHECK(probe.mhz());
  return Json::object();
}

Result<Json> WorkerSession::State::count_emulation() {
  ADAMK_CHECK(need(emulated != nullptr, "open an emulated device"));
  const EmulationSummary counted = emulated->summary();
  return Json{{"emulator.launches", counted.launches},
              {"emulator.warp_instructions", counted.warp_instructions},
              {"emulator.races", counted.races},
              {"emulator.seconds", counted.seconds}};
}

WorkerSession::WorkerSession(std::string isolation) : state_(std::make_unique<State>()) {
  state_->isolation = std::move(isolation);
}
WorkerSession::~WorkerSession() = default;

Result<Json> WorkerSession::answer(const Json& request) {
  const JsonView view(request, "request");
  ADAMK_TRY(const std::string what, text_of(view, "do"));
  if (what == "compile") return compile_candidate(view);
  if (what == "device") return state_->open_device(view);
  if (what == "open") return state_->open_weights(view);
  if (what == "reference") return state_->make_reference(view);
  if (what == "load") return state_->load(view);
  if (what == "verify") return state_->verify();
  if (what == "time") return state_->time(view);
  if (what == "health") return state_->health();
  if (what == "emulation") return state_->count_emulation();
  return fail(Errc::bad_input, "the worker does not know how to '{}'", what);
}

}  // namespace adamk
