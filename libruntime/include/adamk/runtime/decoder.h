// Decoder: one sequence decoded by one generated kernel on one Device. Owns the device memory; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/runtime/device.h"
#include "adamk/runtime/recipe.h"

namespace adamk {

/// What a caller may provide instead of the decoder.
struct DecoderOptions {
  DeviceAddress kv = 0;   // recipe.kv_bytes of device memory kept by the caller, used as it is; 0: allocated and cleared
};

/// Host bytes of what a kernel reads, in the layouts the recipe states. Borrowed during create() only.
struct DecoderInputs {
  std::span<const std::byte> image;       // cubin, or PTX ending in a zero byte
  std::span<const std::byte> packed, small_tensors, embedding;
};

class Decoder {
 public:
  /// Device weights that several decoders of the same packed layout may share.
  struct DeviceWeights {
    Device* device = nullptr;
    DeviceAddress packed = 0, small_tensors = 0, embedding = 0;
    ~DeviceWeights();
  };

  /// Loads the image, checks that the grid is co-resident, uploads weights, allocates and clears KV and workspace.
  /// The device must outlive the decoder.
  static Result<Decoder> create(Device& device, const Recipe& recipe, const DecoderInputs& inputs,
                                const DecoderOptions& options = {});
  static Result<Decoder> create(Device& device, const Recipe& recipe, std::span<const std::byte> image,
                                std::shared_ptr<DeviceWeights> weights, const DecoderOptions& options = {});
  static Result<std::shared_ptr<DeviceWeights>> upload_weights(Device& device, const DecoderInputs& inputs);

  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  /// Runs `steps` steps from `position`, feeding `given` (at least one token) and then its own choices. Waits. Returns the
  /// argmax of each step. Fails (machine) with the watchdog's report when a wait inside the kernel timed out; the decoder
  /// is then unusable.
  Result<std::vector<int>> decode(std::int64_t position, std::span<const int> given, int steps);
  /// The same and the logits of every step, [steps, vocab].
  Result<std::vector<int>> decode_with_logits(std::int64_t position, std::span<const int> given, int steps,
                                              std::vector<float>* logits);
  /// Queues a launch without waiting; results with finish(). One launch can be outstanding: a second is refused
  /// (bad_input), and so is finish() without one.
  Result<void> enqueue(std::int64_t position, std::span<const int> given, int steps);
  Result<std::vector<int>> finish();
  /// Device time in us of one launch of `steps` steps, by events.
  Result<double> time_launch_us(std::int64_t position, std::span<const int> given, int steps);
  /// The same over `launches` equal launches queued back to back: us of all of them together.
  Result<double> time_launches_us(std::int64_t position, std::span<const int> given, int steps, int launches);

  /// Whole KV cache, [layers, kv_heads, 2, context, head_dim] in the recipe's format.
  Result<void> write_kv(std::span<const std::byte> kv);
  Result<void> read_kv(std::span<std::byte> kv);
  /// Bytes of the exchange workspace from `offset` on.
  Result<void> read_workspace(std::int64_t offset, std::span<std::byte> to);
  /// Makes `bytes` of them zeros: of an instrumented kernel's own part, which the exchange does not use.
  Result<void> clear_workspace(std::int64_t offset, std::int64_t bytes);
  /// Fills logits and tokens with a pattern no kernel writes, so that an element left unwritten is seen.
  Result<void> poison_outputs();
  /// Steps decoded with the present workspace, modulo 2^32: the epoch of the next launch.
  std::uint32_t epoch() const;

  const Recipe& recipe() const;
  Device& device() const;
  void set_watchdog_ms(double milliseconds);   // default 2000

 private:
  struct State;
  explicit Decoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace adamk
