#include "adamk/runtime/sequence.h"

#include <algorithm>

namespace adamk {

Result<void> Sequence::check(std::span<const int> given, std::int64_t steps) const {
  const std::int64_t context = decoder_->recipe().context;
  if (steps < 1) return fail(Errc::bad_input, "steps: {} is less than 1", steps);
  if (steps > context - position_) {
    return fail(Errc::bad_input, "steps: {} from position {} do not fit a context of {}", steps, position_, context);
  }
  if (static_cast<std::int64_t>(given.size()) > steps) {
    return fail(Errc::bad_input, "given: {} tokens for {} steps; at most one for each step", given.size(), steps);
  }
  if (given.empty() && !last_) return fail(Errc::bad_input, "given: a sequence needs a token to start from");
  return {};
}

Result<std::vector<int>> Sequence::advance(std::span<const int> given, std::int64_t steps, std::vector<float>* logits) {
  ADAMK_CHECK(check(given, steps));
  if (logits != nullptr) logits->clear();
  std::vector<int> chosen, rest;
  std::vector<float> some_logits;
  const std::int64_t end = position_ + steps;
  while (position_ < end) {
    const int now = static_cast<int>(std::min<std::int64_t>(end - position_, decoder_->recipe().max_steps));
    const auto feed = given.first(std::min(given.size(), static_cast<std::size_t>(now)));
    given = given.subspan(feed.size());
    if (feed.empty()) {
      rest.assign(1, *last_);
    } else {
      rest.assign(feed.begin(), feed.end());
    }
    ADAMK_TRY(const std::vector<int> tokens, logits == nullptr
                                                 ? decoder_->decode(position_, rest, now)
                                                 : decoder_->decode_with_logits(position_, rest, now, &some_logits));
    chosen.insert(chosen.end(), tokens.begin(), tokens.end());
    if (logits != nullptr) logits->insert(logits->end(), some_logits.begin(), some_logits.end());
    position_ += now;
    last_ = tokens.back();
  }
  return chosen;
}

Result<void> Sequence::set_position(std::int64_t position) {
  if (position < 0 || position >= decoder_->recipe().context) {
    return fail(Errc::bad_input, "position: {} is not in a context of {}", position, decoder_->recipe().context);
  }
  position_ = position;
  last_.reset();
  return {};
}

}  // namespace adamk
