// The reference decoder: one token at a time, in double precision, on the CPU, from the same rounded weights a kernel reads.
// It shares no code with the generator, the packer or the schedule, so agreement means something.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/model.h"
#include "adamk/dag/weights.h"

namespace adamk {

/// What the reference rounds besides the weights.
enum class Rounding {
  none,         // the reference proper
  activations,  // every value a kernel publishes or stores is rounded to the weights' format: how far from the reference a
                // correct kernel may end up (accumulation stays in double)
};

/// Holds the KV cache in double: layers x kv_heads x 2 x context x head_dim values. Not thread-safe; uses several threads.
class ReferenceDecoder {
 public:
  /// `threads` 0: one per core. Refuses (infeasible) a context beyond max_positions or the sliding window, (unsupported)
  /// quantised models, (bad_input) weights of another model.
  static Result<ReferenceDecoder> create(const Model& model, const Weights& weights, std::int64_t context,
                                         int threads = 0, Rounding rounding = Rounding::none);
  ReferenceDecoder(ReferenceDecoder&&) noexcept;
  ReferenceDecoder& operator=(ReferenceDecoder&&) noexcept;
  ~ReferenceDecoder();

  /// Appends `token` at `position` and returns the logits after it, [vocab]. `position` may be any in [0, length()]; an
  /// earlier one forgets what lay behind it. Refuses (bad_input) tokens outside the vocabulary and positions outside the
  /// filled part or the context.
  Result<std::vector<double>> step(int token, std::int64_t position);

  /// Positions whose KV is there.
  std::int64_t length() const;
  std::int64_t context() const;
  void reset();

  /// Random KV for positions [0, positions), the values of random_kv(); length() becomes `positions`.
  Result<void> fill_kv(std::uint64_t seed, std::int64_t positions);

 private:
  struct State;
  explicit ReferenceDecoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The fill of ReferenceDecoder::fill_kv as a device holds it: [layers, kv_heads, 2 (K, V), context, head_dim] in `format`;
/// positions from `positions` on are zero. A value depends on seed, layer, head, K or V, position and element only.
std::vector<Half> random_kv(const Model& model, WeightsFormat format, std::int64_t context, std::uint64_t seed,
                            std::int64_t positions);

/// Index of the largest value, the first one of equals; NaN never wins. 0 when there is none.
int argmax(std::span<const double> values);
int argmax(std::span<const float> values);

/// Bytes are the tokens of models without a tokenizer (examples/tiny).
std::vector<int> bytes_to_tokens(std::string_view text);
/// The inverse; tokens beyond 255 become '?'.
std::string tokens_to_bytes(std::span<const int> tokens);

}  // namespace adamk
