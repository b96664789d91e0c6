#include "gate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adamk {
namespace {

constexpr int chained_tokens = 4;   // each costs a step of the reference, once

/// An infinite error (an element left unwritten) must survive JSON.
double finite(double value) { return std::isfinite(value) ? value : std::numeric_limits<double>::max(); }

std::string describe(const LogitComparison& c, std::int64_t position, int step, double tolerance) {
  const std::string where = fmt::format("position {}, step {} of the launch", position, step);
  if (c.unwritten > 0) return fmt::format("{}: {} logits were not written or are not finite", where, c.unwritten);
  return fmt::format("{}: logits differ from the reference by {:.2e} (relative L2), allowed {:.2e}; argmax {} instead of {}",
                     where, c.relative_l2, tolerance, c.argmax_got, c.argmax_want);
}

/// One launch, each of its tokens compared.
Result<GateResult> check_launch(Decoder& decoder, ReferenceLogits& reference, const CheckedLaunch& launch, Verdict verdict) {
  const auto [position, steps] = launch;
  GateResult result;
  verdict.checked = true;
  verdict.tolerance = reference.tolerance();
  ADAMK_CHECK(decoder.write_kv(reference.kv()));
  ADAMK_CHECK(decoder.poison_outputs());
  std::vector<int> fed{reference.first_token(position)};
  std::vector<float> logits;
  ADAMK_TRY(const std::vector<int> chosen, decoder.decode_with_logits(position, fed, steps, &logits));
  const auto vocab = static_cast<std::size_t>(decoder.recipe().vocab);
  for (int step = 0; step < steps && result.message.empty(); ++step) {
    const std::size_t first = static_cast<std::size_t>(step) * vocab;
    if (chosen.size() != static_cast<std::size_t>(steps) || logits.size() < first + vocab) {
      return fail(Errc::machine, "a launch of {} steps returned {} tokens and {} logits", steps, chosen.size(), logits.size());
    }
    ADAMK_TRY(const std::vector<double> want, reference.after(position, fed));
    const auto got = std::span<const float>(logits).subspan(first, vocab);
    const LogitComparison comparison = compare_logits(got, want);
    verdict.max_error = std::max(verdict.max_error, finite(comparison.relative_l2));
    const int token = chosen[static_cast<std::size_t>(step)];
    if (!comparison.within(verdict.tolerance)) {
      result.message = describe(comparison, position, step, verdict.tolerance);
    } else if (token != comparison.argmax_got) {
      result.message = fmt::format("position {}, step {} of the launch: chose token {}, its own logits' argmax is {}",
                                   position, step, token, comparison.argmax_got);
    } else {
      ++verdict.tokens;
      if (token != comparison.argmax_want) ++verdict.near_ties;   // within the tolerance, so the two were that close
      fed.push_back(token);
    }
  }
  ++verdict.positions;
  result.passed = result.message.empty();
  result.verdict = verdict;
  return result;
}

}  // namespace

std::vector<CheckedLaunch> checked_launches(std::span<const std::int64_t> positions, const Workload& workload) {
  std::vector<CheckedLaunch> launches;
  std::size_t longest = 0;
  int most = 0;
  for (const std::int64_t position : positions) {
    const std::int64_t room = workload.context - position;
    const auto steps = static_cast<int>(std::min<std::int64_t>({chained_tokens, room, workload.steps_per_launch}));
    if (steps >= most) most = steps, longest = launches.size();
    launches.push_back({position, 1});
  }
  if (!launches.empty()) launches[longest].steps = most;
  return launches;
}

Result<ReferenceLogits> ReferenceLogits::create(const Deployment& deployment, const Weights& weights, WeightsOrigin origin,
                                                std::uint64_t seed) {
  const std::int64_t context = deployment.workload.context;
  ADAMK_TRY(ReferenceDecoder decoder, ReferenceDecoder::create(deployment.model, weights, context));
  ReferenceLogits reference(std::move(decoder), seed, deployment.model.vocab,
                            logit_tolerance(deployment.model, deployment.weights, origin));
  reference.kv_ = random_kv(deployment.model, deployment.weights, context, seed, context);
  return reference;
}

Result<void> ReferenceLogits::prepare(std::span<const CheckedLaunch> launches) {
  for (const CheckedLaunch& launch : launches) {
    std::vector<int> fed{first_token(launch.position)};
    for (int step = 0; step < launch.steps; ++step) {
      ADAMK_TRY(const std::vector<double> logits, after(launch.position, fed));
      fed.push_back(argmax(logits));
    }
  }
  return {};
}

int ReferenceLogits::first_token(std::int64_t position) const {
  constexpr std::uint64_t tokens_stream = 0x746f6b656e;   // "token": apart from the streams of weights and KV
  const double unit = (static_cast<double>(random_unit(seed_, tokens_stream, static_cast<std::uint64_t>(position))) + 1) / 2;
  return std::min(vocab_ - 1, static_cast<int>(unit * vocab_));
}

Result<std::vector<double>> ReferenceLogits::after(std::int64_t position, const std::vector<int>& tokens) {
  const Key wanted{position, tokens};
  if (const auto found = known_.find(wanted); found != known_.end()) return found->second;
  // Go on from what the decoder holds when that is a prefix, else begin again.
  const bool goes_on = state_.first == position && state_.second.size() < tokens.size() &&
                       std::equal(state_.second.begin(), state_.second.end(), tokens.begin());
  if (!goes_on) {
    decoder_.reset();
    ADAMK_CHECK(decoder_.fill_kv(seed_, position));
    state_ = {position, {}};
  }
  while (state_.second.size() < tokens.size()) {
    const std::size_t next = state_.second.size();
    ADAMK_TRY(std::vector<double> logits, decoder_.step(tokens[next], position + static_cast<std::int64_t>(next)));
    state_.second.push_back(tokens[next]);
    known_[state_] = std::move(logits);
  }
  return known_[wanted];
}

Result<GateResult> check_decoder(Decoder& decoder, ReferenceLogits& reference, std::span<const CheckedLaunch> launches) {
  GateResult result;
  for (const CheckedLaunch& launch : launches) {
    ADAMK_TRY(result, check_launch(decoder, reference, launch, result.verdict));
    if (!result.passed) break;
  }
  return result;
}

Result<GateResult> check_again(Decoder& decoder, ReferenceLogits& reference, std::span<const CheckedLaunch> launches) {
  const auto longest = std::max_element(launches.begin(), launches.end(),
                                        [](const CheckedLaunch& a, const CheckedLaunch& b) { return a.steps < b.steps; });
  if (longest == launches.end()) return fail(Errc::bad_input, "nothing was verified before");
  return check_launch(decoder, reference, *longest, {});
}

}  // namespace adamk
