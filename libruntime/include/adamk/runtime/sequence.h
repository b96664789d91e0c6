// Sequence: where one Decoder is in its text. Splits long requests into launches and feeds its own choices on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/runtime/decoder.h"

namespace adamk {

/// Not thread-safe; the decoder must outlive it and not be used by others in between.
class Sequence {
 public:
  explicit Sequence(Decoder& decoder) : decoder_(&decoder) {}

  /// Runs `steps` steps, feeding `given` first and then the decoder's own choices; without `given` it goes on from the
  /// last choice. Returns the choice after each step. `logits`, unless null, receives [steps, vocab]. Fails (bad_input)
  /// without a token to start from, and when the steps do not fit the context. After a failure position() counts the
  /// steps that were done.
  Result<std::vector<int>> advance(std::span<const int> given, std::int64_t steps, std::vector<float>* logits = nullptr);

  /// Where the next step goes.
  std::int64_t position() const { return position_; }
  /// Goes on at `position`, over KV that is already there; the next advance() needs a given token.
  Result<void> set_position(std::int64_t position);

 private:
  Result<void> check(std::span<const int> given, std::int64_t steps) const;
  Decoder* decoder_;
  std::int64_t position_ = 0;
  std::optional<int> last_;
};

}  // namespace adamk
