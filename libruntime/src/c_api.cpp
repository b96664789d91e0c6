#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "adamk/runtime/arch.h"
#include "c_api_state.h"

namespace adamk::c_api {
namespace {

adamk_status status_of(const Error& error) { return static_cast<adamk_status>(exit_status(error.code)); }

void copy_text(const std::string& text, char* to, std::size_t size) {
  if (to == nullptr || size == 0) return;
  const std::size_t count = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

/// Runs `body` and turns what it could throw (exhaustion) into an Error, so that nothing crosses into C.
template <class Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Errc::machine, "out of memory");
  } catch (const std::exception& exception) {
    return fail(Errc::machine, "internal error: {}", exception.what());
  }
}

/// The caller's options, with members that its version does not have left at zero.
template <class Options>
Result<Options> copy_options(const Options* from, const char* name) {
  Options options{};
  if (from == nullptr) return options;
  if (from->size < sizeof from->size || from->size > 4096) {
    return fail(Errc::bad_input, "{}.size: {}; set it to sizeof({})", name, from->size, name);
  }
  std::memcpy(&options, from, std::min(from->size, sizeof options));
  return options;
}

Result<std::unique_ptr<adamk_model>> open_model(const char* path, const adamk_open_options* given) {
  if (path == nullptr) return fail(Errc::bad_input, "path: null");
  ADAMK_TRY(const adamk_open_options options, copy_options(given, "adamk_open_options"));
  const auto checks = options.skip_weight_hashes != 0 ? ArtifactChecks::skip_weights : ArtifactChecks::all;
  ADAMK_TRY(Artifact artifact, open_artifact(path, checks));
  auto model = std::make_unique<adamk_model>();
  model->state = std::make_shared<ModelState>(std::move(artifact), open_cuda_device);
  return model;
}

/// The weights in the context of `device`: those already there, or a copy made now that later sessions share.
Result<std::shared_ptr<Decoder::DeviceWeights>> shared_weights(ModelState& model, Device& device, int index, void* stream) {
  const std::lock_guard lock(model.mutex);
  for (const SharedWeights& each : model.uploaded) {
    if (each.device->native_context() == device.native_context()) return each.weights;
  }
  // A device of its own holds them, so that they outlive the session that happens to come first. The stream is the
  // session's: only its context matters here, and uploads wait.
  SharedWeights fresh;
  ADAMK_TRY(fresh.device, model.open_device(index, stream));
  ADAMK_TRY(fresh.weights, Decoder::upload_weights(*fresh.device, model.artifact.inputs()));
  model.uploaded.push_back(std::move(fresh));
  return model.uploaded.back().weights;
}

Result<std::shared_ptr<Decoder::DeviceWeights>> bind_weights(ModelState& model, Device& device,
                                                             const adamk_session_options& options) {
  const int given = (options.packed != 0) + (options.small_tensors != 0) + (options.embedding != 0);
  if (given == 0) return shared_weights(model, device, options.device, options.stream);
  if (given != 3) {
    return fail(Errc::bad_input, "packed, small_tensors, embedding: give all three device addresses or none");
  }
  auto borrowed = std::make_shared<Decoder::DeviceWeights>();  // no device: nothing is released
  borrowed->packed = options.packed;
  borrowed->small_tensors = options.small_tensors;
  borrowed->embedding = options.embedding;
  return borrowed;
}

Result<std::unique_ptr<adamk_session>> create_session(adamk_model* model, const adamk_session_options* given) {
  if (model == nullptr) return fail(Errc::bad_input, "model: null");
  ADAMK_TRY(const adamk_session_options options, copy_options(given, "adamk_session_options"));
  if (!(options.watchdog_ms >= 0)) return fail(Errc::bad_input, "watchdog_ms: {} is negative", options.watchdog_ms);
  const Artifact& artifact = model->state->artifact;
  auto session = std::make_unique<adamk_session>();
  session->state = std::make_unique<SessionState>();
  SessionState& state = *session->state;
  state.model = model->state;
  ADAMK_TRY(state.device, state.model->open_device(options.device, options.stream));
  ADAMK_CHECK(check_arch(artifact.recipe.arch, state.device->info()));
  ADAMK_TRY(auto weights, bind_weights(*state.model, *state.device, options));
  ADAMK_TRY(state.decoder, Decoder::create(*state.device, artifact.recipe, artifact.image, std::move(weights),
                                           DecoderOptions{options.kv}));
  if (options.watchdog_ms > 0) state.decoder->set_watchdog_ms(options.watchdog_ms);
  state.sequence.emplace(*state.decoder);
  state.keep_logits = options.keep_logits != 0;
  return session;
}

Result<void> step(SessionState& state, const int* given, std::size_t count, std::int64_t steps) {
  if (given == nullptr && count > 0) return fail(Errc::bad_input, "given: null, given_count: {}", count);
  state.tokens.clear();
  state.logits.clear();
  const std::span<const int> tokens = count > 0 ? std::span(given, count) : std::span<const int>();
  ADAMK_TRY(state.tokens, state.sequence->advance(tokens, steps, state.keep_logits ? &state.logits : nullptr));
  return {};
}

Result<void> read_tokens(const SessionState& state, int* tokens, std::size_t count) {
  if (count > state.tokens.size()) {
    return fail(Errc::bad_input, "count: {}; the last adamk_step made {} tokens", count, state.tokens.size());
  }
  if (tokens == nullptr && count > 0) return fail(Errc::bad_input, "tokens: null");
  std::copy_n(state.tokens.begin(), count, tokens);
  return {};
}

Result<void> read_logits(const SessionState& state, std::int64_t step, float* logits, std::size_t count) {
  if (!state.keep_logits) return fail(Errc::bad_input, "the session was created without keep_logits");
  const auto vocab = static_cast<std::size_t>(state.model->artifact.recipe.vocab);
  const auto steps = static_cast<std::int64_t>(state.logits.size() / vocab);
  if (step < 0 || step >= steps) return fail(Errc::bad_input, "step: {}; the last adamk_step made {} steps", step, steps);
  if (count != vocab) return fail(Errc::bad_input, "count: {}; the vocabulary has {}", count, vocab);
  if (logits == nullptr) return fail(Errc::bad_input, "logits: null");
  std::copy_n(state.logits.begin() + step * static_cast<std::int64_t>(vocab), vocab, logits);
  return {};
}

/// Hands a new object to the caller, or the error's text.
template <class Handle>
adamk_status hand_over(Result<std::unique_ptr<Handle>> made, Handle** to, char* error, std::size_t error_size) {
  *to = nullptr;
  copy_text(made ? "" : made.error().message, error, error_size);
  if (!made) return status_of(made.error());
  *to = made->release();
  return ADAMK_OK;
}

/// A call on a session: keeps the error's text.
template <class Body>
adamk_status on_session(adamk_session* session, const Body& body) {
  if (session == nullptr) return ADAMK_BAD_INPUT;
  Result<void> result = guarded([&]() -> Result<void> { return body(*session->state); });
  session->state->error = result ? std::string() : std::move(result.error().message);
  return result ? ADAMK_OK : status_of(result.error());
}

}  // namespace
}  // namespace adamk::c_api

using namespace adamk::c_api;

adamk_status adamk_open(const char* path, const adamk_open_options* options, adamk_model** model, char* error,
                        size_t error_size) {
  if (model == nullptr) {
    copy_text("model: null", error, error_size);
    return ADAMK_BAD_INPUT;
  }
  return hand_over(guarded([&] { return open_model(path, options); }), model, error, error_size);
}

void adamk_close(adamk_model* model) { delete model; }

adamk_status adamk_info(const adamk_model* model, adamk_model_info* info) {
  if (model == nullptr || info == nullptr || info->size < sizeof info->size) return ADAMK_BAD_INPUT;
  const adamk::Recipe& recipe = model->state->artifact.recipe;
  adamk_model_info filled{};
  filled.layers = recipe.layers;
  filled.hidden = recipe.hidden;
  filled.heads = recipe.heads;
  filled.kv_heads = recipe.kv_heads;
  filled.head_dim = recipe.head_dim;
  filled.ffn = recipe.ffn;
  filled.vocab = recipe.vocab;
  filled.max_steps = recipe.max_steps;
  filled.context = recipe.context;
  filled.kv_bytes = recipe.kv_bytes;
  filled.packed_bytes = recipe.packed_bytes;
  filled.small_bytes = recipe.small_bytes;
  filled.embedding_bytes = recipe.embedding_bytes;
  filled.format = recipe.format.c_str();
  filled.arch = recipe.arch.c_str();
  filled.plan = recipe.plan_hash.c_str();
  filled.deployment = recipe.deployment_key.c_str();
  filled.size = info->size;
  std::memcpy(info, &filled, std::min(info->size, sizeof filled));
  return ADAMK_OK;
}

adamk_status adamk_session_create(adamk_model* model, const adamk_session_options* options, adamk_session** session,
                                  char* error, size_t error_size) {
  if (session == nullptr) {
    copy_text("session: null", error, error_size);
    return ADAMK_BAD_INPUT;
  }
  return hand_over(guarded([&] { return create_session(model, options); }), session, error, error_size);
}

void adamk_session_destroy(adamk_session* session) { delete session; }

const char* adamk_session_error(const adamk_session* session) {
  return session == nullptr ? "session: null" : session->state->error.c_str();
}

adamk_status adamk_step(adamk_session* session, const int* given, size_t given_count, int64_t steps) {
  return on_session(session, [&](SessionState& state) { return step(state, given, given_count, steps); });
}

adamk_status adamk_read_tokens(adamk_session* session, int* tokens, size_t count) {
  return on_session(session, [&](SessionState& state) { return read_tokens(state, tokens, count); });
}

adamk_status adamk_read_logits(adamk_session* session, int64_t step, float* logits, size_t count) {
  return on_session(session, [&](SessionState& state) { return read_logits(state, step, logits, count); });
}

int64_t adamk_position(const adamk_session* session) {
  return session == nullptr ? -1 : session->state->sequence->position();
}

adamk_status adamk_set_position(adamk_session* session, int64_t position) {
  return on_session(session, [&](SessionState& state) { return state.sequence->set_position(position); });
}

adamk_status adamk_reset(adamk_session* session) {
  return on_session(session, [&](SessionState& state) {
    state.tokens.clear();
    state.logits.clear();
    return state.sequence->set_position(0);
  });
}
