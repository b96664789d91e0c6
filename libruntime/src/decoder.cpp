#include "adamk/runtime/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "adamk/runtime/arch.h"
#include "adamk/runtime/kernel_params.h"
#include "adamk/runtime/watchdog.h"

namespace adamk {
namespace {

const void* device_pointer(DeviceAddress address) { return reinterpret_cast<const void*>(address); }
template <class T>
T* device_pointer_to(DeviceAddress address) {
  return reinterpret_cast<T*>(address);
}

/// [context, head_dim / 2, 2] cos and sin. The angle is formed in double: in float it loses all meaning past 10^4 positions.
std::vector<float> rope_table(const Recipe& recipe) {
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(recipe.context) * recipe.rope_inverse_frequencies.size() * 2);
  for (std::int64_t position = 0; position < recipe.context; ++position) {
    for (const double frequency : recipe.rope_inverse_frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

Result<void> expect_size(std::string_view what, std::size_t have, std::int64_t want) {
  if (static_cast<std::int64_t>(have) == want) return {};
  return fail(Errc::bad_input, "{}: {} bytes, the recipe says {}", what, have, want);
}

}  // namespace

Decoder::DeviceWeights::~DeviceWeights() {
  if (device == nullptr) return;
  device->release(packed);
  device->release(small_tensors);
  device->release(embedding);
}

struct Decoder::State {
  State(Device& on, const Recipe& of) : device(on), recipe(of) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  Result<void> load(std::span<const std::byte> image);
  Result<void> allocate(const DecoderOptions& options);
  Result<void> check_bounds(std::int64_t position, std::span<const int> given, int steps) const;
  Result<void> check_usable() const;
  Result<void> check_report();
  AdamkKernelParams params(std::int64_t position, std::size_t given_count, int steps, bool with_logits) const;
  Result<void> begin(std::int64_t position, std::span<const int> given, int steps);
  Result<void> launch(std::int64_t position, std::span<const int> given, int steps, bool with_logits);
  Result<std::vector<int>> finish();
  LaunchShape shape() const { return {recipe.grid, recipe.threads, recipe.smem, true}; }

  Device& device;
  const Recipe recipe;
  std::shared_ptr<DeviceWeights> weights;
  KernelHandle kernel;
  DeviceAddress kv = 0, workspace = 0, rope = 0, given = 0, tokens = 0, logits = 0;
  bool owns_kv = true;
  void* report_host = nullptr;
  DeviceAddress report = 0;
  double watchdog_ms = 2000;
  std::uint32_t epoch = 0;
  int pending_steps = 0;      // of a launch queued and not yet waited for
  std::string unusable;       // why, once a launch has failed
};

Decoder::State::~State() {
  if (pending_steps > 0) static_cast<void>(device.synchronize());  // the kernel may still write what is freed below
  if (kernel.module != nullptr) device.unload(kernel);
  for (const DeviceAddress address : {workspace, rope, given, tokens, logits, owns_kv ? kv : 0}) {
    if (address != 0) device.release(address);
  }
  if (report_host != nullptr) device.release_mapped(report_host);
}

Result<void> Decoder::State::load(std::span<const std::byte> image) {
  ADAMK_CHECK(check_arch(recipe.arch, device.info()));
  ADAMK_TRY(kernel, device.load(image, recipe.entry));
  ADAMK_TRY(const int per_sm, device.resident_blocks(kernel, shape()));
  if (recipe.grid > per_sm * device.info().sms) {
    return fail(Errc::infeasible, "the kernel needs {} blocks resident at once; {} holds {} ({} per SM on {} SMs)",
                recipe.grid, device.info().name, per_sm * device.info().sms, per_sm, device.info().sms);
  }
  return {};
}

Result<void> Decoder::State::allocate(const DecoderOptions& options) {
  owns_kv = options.kv == 0;
  if (owns_kv) {
    ADAMK_TRY(kv, device.allocate(recipe.kv_bytes));
    ADAMK_CHECK(device.fill(kv, 0, recipe.kv_bytes));
  } else {
    kv = options.kv;
  }
  ADAMK_TRY(workspace, device.allocate(recipe.workspace_bytes));
  ADAMK_CHECK(device.fill(workspace, 0, recipe.workspace_bytes));
  const std::vector<float> table = rope_table(recipe);
  const auto table_bytes = std::as_bytes(std::span(table));
  ADAMK_TRY(rope, device.allocate(static_cast<std::int64_t>(table_bytes.size())));
  ADAMK_CHECK(device.upload(rope, table_bytes));
  const std::int64_t words = std::int64_t{4} * recipe.max_steps;
  ADAMK_TRY(given, device.allocate(words));
  ADAMK_TRY(tokens, device.allocate(words));
  ADAMK_TRY(logits, device.allocate(words * recipe.vocab));
  ADAMK_TRY(report_host, device.allocate_mapped(ADAMK_REPORT_WORDS * 4, &report));
  return device.synchronize();
}

Result<void> Decoder::State::check_usable() const {
  if (unusable.empty()) return {};
  return fail(Errc::machine, "the decoder cannot be used after a failed launch: {}", unusable);
}

Result<void> Decoder::State::check_bounds(std::int64_t position, std::span<const int> tokens_given, int steps) const {
  if (steps < 1 || steps > recipe.max_steps) {
    return fail(Errc::bad_input, "steps: {} is not between 1 and {}, the most one launch decodes", steps, recipe.max_steps);
  }
  if (position < 0 || position > recipe.context - steps) {
    return fail(Errc::bad_input, "position: {} and {} steps do not fit a context of {}", position, steps, recipe.context);
  }
  if (tokens_given.empty() || tokens_given.size() > static_cast<std::size_t>(steps)) {
    return fail(Errc::bad_input, "given: {} tokens for {} steps; at least one, at most one for each step",
                tokens_given.size(), steps);
  }
  for (std::size_t i = 0; i < tokens_given.size(); ++i) {
    if (tokens_given[i] < 0 || tokens_given[i] >= recipe.vocab) {
      return fail(Errc::bad_input, "given[{}]: token {} is not in the vocabulary of {}", i, tokens_given[i], recipe.vocab);
    }
  }
  return {};
}

AdamkKernelParams Decoder::State::params(std::int64_t position, std::size_t given_count, int steps,
                                         bool with_logits) const {
  AdamkKernelParams params{};
  params.weights = device_pointer(weights->packed);
  params.small_tensors = device_pointer(weights->small_tensors);
  params.embedding = device_pointer(weights->embedding);
  params.rope = device_pointer_to<const float>(rope);
  params.kv = device_pointer_to<void>(kv);
  params.workspace = device_pointer_to<void>(workspace);
  params.given = device_pointer_to<const int>(given);
  params.tokens = device_pointer_to<int>(tokens);
  params.logits = with_logits ? device_pointer_to<float>(logits) : nullptr;
  params.report = device_pointer_to<unsigned>(report);
  params.position = position;
  params.watchdog_clocks = std::llround(watchdog_ms * device.info().clock_khz);
  params.epoch = epoch;
  params.given_count = static_cast<int>(given_count);
  params.steps = steps;
  return params;
}

/// The checks before any launch, and its input tokens.
Result<void> Decoder::State::begin(std::int64_t position, std::span<const int> tokens_given, int steps) {
  ADAMK_CHECK(check_usable());
  if (pending_steps > 0) return fail(Errc::bad_input, "a launch is outstanding: call finish() before the next");
  ADAMK_CHECK(check_bounds(position, tokens_given, steps));
  return device.upload(given, std::as_bytes(tokens_given));
}

Result<void> Decoder::State::launch(std::int64_t position, std::span<const int> tokens_given, int steps,
                                    bool with_logits) {
  ADAMK_CHECK(begin(position, tokens_given, steps));
  const AdamkKernelParams arguments = params(position, tokens_given.size(), steps, with_logits);
  ADAMK_CHECK(device.launch(kernel, shape(), std::as_bytes(std::span(&arguments, 1))));
  pending_steps = steps;
  epoch += static_cast<std::uint32_t>(steps);
  return {};
}

/// To be called after a wait: fails when the watchdog fired.
Result<void> Decoder::State::check_report() {
  std::array<std::uint32_t, ADAMK_REPORT_WORDS> words{};
  const auto* from = static_cast<const volatile std::uint32_t*>(report_host);  // written by the device
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = from[i];
  if (words[0] == 0) return {};
  unusable = describe_report(words);
  return fail(Errc::machine, "{}", unusable);
}

Result<std::vector<int>> Decoder::State::finish() {
  ADAMK_CHECK(check_usable());
  if (pending_steps == 0) return fail(Errc::bad_input, "no launch is outstanding");
  const int steps = std::exchange(pending_steps, 0);
  auto waited = device.synchronize();
  if (!waited) {
    unusable = waited.error().message;
    return tl::unexpected<Error>(std::move(waited).error());
  }
  ADAMK_CHECK(check_report());
  std::vector<int> chosen(static_cast<std::size_t>(steps));
  ADAMK_CHECK(device.download(std::as_writable_bytes(std::span(chosen)), tokens));
  return chosen;
}

Decoder::Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Result<std::shared_ptr<Decoder::DeviceWeights>> Decoder::upload_weights(Device& device, const DecoderInputs& inputs) {
  auto weights = std::make_shared<DeviceWeights>();
  weights->device = &device;
  const auto put = [&](DeviceAddress& address, std::span<const std::byte> bytes) -> Result<void> {
    ADAMK_TRY(address, device.allocate(static_cast<std::int64_t>(bytes.size())));
    return device.upload(address, bytes);
  };
  ADAMK_CHECK(put(weights->packed, inputs.packed));
  ADAMK_CHECK(put(weights->small_tensors, inputs.small_tensors));
  ADAMK_CHECK(put(weights->embedding, inputs.embedding));
  return weights;
}

Result<Decoder> Decoder::create(Device& device, const Recipe& recipe, const DecoderInputs& inputs,
                                const DecoderOptions& options) {
  ADAMK_CHECK(expect_size("packed weights", inputs.packed.size(), recipe.packed_bytes));
  ADAMK_CHECK(expect_size("small tensors", inputs.small_tensors.size(), recipe.small_bytes));
  ADAMK_CHECK(expect_size("embedding", inputs.embedding.size(), recipe.embedding_bytes));
  ADAMK_CHECK(check_arch(recipe.arch, device.info()));  // before gigabytes are copied
  ADAMK_TRY(auto weights, upload_weights(device, inputs));
  return create(device, recipe, inputs.image, std::move(weights), options);
}

Result<Decoder> Decoder::create(Device& device, const Recipe& recipe, std::span<const std::byte> image,
                                std::shared_ptr<DeviceWeights> weights, const DecoderOptions& options) {
  auto state = std::make_unique<State>(device, recipe);
  state->weights = std::move(weights);
  ADAMK_CHECK(state->load(image));
  ADAMK_CHECK(state->allocate(options));
  return Decoder(std::move(state));
}

Result<std::vector<int>> Decoder::decode(std::int64_t position, std::span<const int> given, int steps) {
  ADAMK_CHECK(state_->launch(position, given, steps, false));
  return state_->finish();
}

Result<std::vector<int>> Decoder::decode_with_logits(std::int64_t position, std::span<const int> given, int steps,
                                                     std::vector<float>* logits) {
  ADAMK_CHECK(state_->launch(position, given, steps, true));
  ADAMK_TRY(std::vector<int> chosen, state_->finish());
  logits->resize(static_cast<std::size_t>(steps) * static_cast<std::size_t>(state_->recipe.vocab));
  ADAMK_CHECK(state_->device.download(std::as_writable_bytes(std::span(*logits)), state_->logits));
  return chosen;
}

Result<void> Decoder::enqueue(std::int64_t position, std::span<const int> given, int steps) {
  return state_->launch(position, given, steps, false);
}

Result<std::vector<int>> Decoder::finish() { return state_->finish(); }

Result<double> Decoder::time_launch_us(std::int64_t position, std::span<const int> given, int steps) {
  return time_launches_us(position, given, steps, 1);
}

Result<double> Decoder::time_launches_us(std::int64_t position, std::span<const int> given, int steps, int launches) {
  if (launches < 1) return fail(Errc::bad_input, "launches: {} is less than 1", launches);
  ADAMK_CHECK(state_->begin(position, given, steps));
  std::vector<AdamkKernelParams> params;
  for (int i = 0; i < launches; ++i) {
    params.push_back(state_->params(position, given.size(), steps, false));
    state_->epoch += static_cast<std::uint32_t>(steps);
  }
  std::vector<std::pair<KernelHandle, std::span<const std::byte>>> work;
  for (const AdamkKernelParams& each : params) work.emplace_back(state_->kernel, std::as_bytes(std::span(&each, 1)));
  auto time = state_->device.time_us(work, state_->shape());
  if (!time) {
    // Some of the launches may have run: the epoch no longer says what the workspace holds.
    state_->unusable = time.error().message;
    static_cast<void>(state_->device.synchronize());
    return time;
  }
  ADAMK_CHECK(state_->check_report());
  return time;
}

Result<void> Decoder::write_kv(std::span<const std::byte> kv) {
  ADAMK_CHECK(expect_size("kv", kv.size(), state_->recipe.kv_bytes));
  return state_->device.upload(state_->kv, kv);
}

Result<void> Decoder::read_kv(std::span<std::byte> kv) {
  ADAMK_CHECK(expect_size("kv", kv.size(), state_->recipe.kv_bytes));
  return state_->device.download(kv, state_->kv);
}

namespace {

Result<void> within_workspace(const Recipe& recipe, std::int64_t offset, std::int64_t bytes) {
  const std::int64_t all = recipe.workspace_bytes;
  if (offset < 0 || offset > all || bytes < 0 || bytes > all - offset)
    return fail(Errc::bad_input, "workspace: {} bytes from {} are not within its {}", bytes, offset, all);
  return {};
}

}  // namespace

Result<void> Decoder::read_workspace(std::int64_t offset, std::span<std::byte> to) {
  ADAMK_CHECK(within_workspace(state_->recipe, offset, static_cast<std::int64_t>(to.size())));
  return state_->device.download(to, state_->workspace + static_cast<DeviceAddress>(offset));
}

Result<void> Decoder::clear_workspace(std::int64_t offset, std::int64_t bytes) {
  ADAMK_CHECK(within_workspace(state_->recipe, offset, bytes));
  ADAMK_CHECK(state_->device.fill(state_->workspace + static_cast<DeviceAddress>(offset), 0, bytes));
  return state_->device.synchronize();
}

Result<void> Decoder::poison_outputs() {
  const std::int64_t words = std::int64_t{4} * state_->recipe.max_steps;
  ADAMK_CHECK(state_->device.fill(state_->tokens, 0xFF, words));
  ADAMK_CHECK(state_->device.fill(state_->logits, 0xFF, words * state_->recipe.vocab));
  return state_->device.synchronize();
}

std::uint32_t Decoder::epoch() const { return state_->epoch; }
const Recipe& Decoder::recipe() const { return state_->recipe; }
Device& Decoder::device() const { return state_->device; }
void Decoder::set_watchdog_ms(double milliseconds) { state_->watchdog_ms = milliseconds; }

}  // namespace adamk
