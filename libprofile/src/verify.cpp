#include "adamk/profile/verify.h"

#include <algorithm>

#include "adamk/profile/oracle.h"
#include "adamk/runtime/sequence.h"

namespace adamk {
namespace {

constexpr std::uint64_t token_stream = 0x746f6b656e;  // apart from the streams of weights and KV

int random_token(const Model& model, std::uint64_t seed, std::uint64_t index) {
  const double unit = (static_cast<double>(random_unit(seed, token_stream, index)) + 1.0) / 2.0;
  return std::min(model.vocab - 1, static_cast<int>(unit * model.vocab));
}

Result<void> verify_position(Decoder& decoder, ReferenceDecoder& reference, const Deployment& deployment,
                             std::int64_t position, std::uint64_t seed, VerifyReport& report) {
  const Model& model = deployment.model;
  const std::uint64_t kv_seed = seed + static_cast<std::uint64_t>(position);
  const std::vector<Half> kv = random_kv(model, deployment.weights, decoder.recipe().context, kv_seed, position);
  ADAMK_CHECK(decoder.write_kv(std::as_bytes(std::span(kv))));
  reference.reset();
  ADAMK_CHECK(reference.fill_kv(kv_seed, position));
  const int token = random_token(model, seed, static_cast<std::uint64_t>(position));
  ADAMK_CHECK(decoder.poison_outputs());
  std::vector<float> got;
  ADAMK_TRY(const std::vector<int> chosen, decoder.decode_with_logits(position, std::span(&token, 1), 1, &got));
  ADAMK_TRY(const std::vector<double> want, reference.step(token, position));

  const LogitComparison comparison = compare_logits(got, want);
  report.positions.push_back({position, comparison});
  if (!report.passed()) return {};
  if (comparison.unwritten > 0) {
    report.failure = fmt::format("position {}: {} logits were never written", position, comparison.unwritten);
  } else if (!comparison.within(report.tolerance)) {
    report.failure = fmt::format("position {}: relative error {:.3g} of the logits is above the tolerance {:.3g}", position,
                                 comparison.relative_l2, report.tolerance);
  } else if (chosen.front() != comparison.argmax_got) {
    report.failure = fmt::format("position {}: the kernel chose token {}, the largest of its logits is token {}", position,
                                 chosen.front(), comparison.argmax_got);
  }
  return {};
}

bool in_vocabulary(int token, const Recipe& recipe) { return token >= 0 && token < recipe.vocab; }

/// `steps` choices and their logits, launch by launch; fewer when a launch ends on a token that cannot be fed to the next.
Result<std::vector<int>> greedy_run(Decoder& decoder, std::span<const int> inputs, std::int64_t steps,
                                    std::vector<float>* logits) {
  const Recipe& recipe = decoder.recipe();
  Sequence sequence(decoder);
  std::vector<int> chosen;
  std::vector<float> some;
  while (sequence.position() < steps && (chosen.empty() || in_vocabulary(chosen.back(), recipe))) {
    const std::int64_t now = std::min<std::int64_t>(steps - sequence.position(), recipe.max_steps);
    const auto given = inputs.first(std::min(inputs.size(), static_cast<std::size_t>(now)));
    inputs = inputs.subspan(given.size());
    ADAMK_CHECK(decoder.poison_outputs());
    ADAMK_TRY(const std::vector<int> tokens, sequence.advance(given, now, &some));
    chosen.insert(chosen.end(), tokens.begin(), tokens.end());
    logits->insert(logits->end(), some.begin(), some.end());
  }
  return chosen;
}

Result<void> verify_greedy(Decoder& decoder, ReferenceDecoder& reference, const Deployment& deployment,
                           const VerifyOptions& options, VerifyReport& report) {
  std::vector<int> inputs = options.prompt;
  if (inputs.empty()) inputs.push_back(random_token(deployment.model, options.seed, 0));
  const std::int64_t steps = static_cast<std::int64_t>(inputs.size()) + options.greedy_tokens - 1;
  // No KV of an earlier check may help a kernel that forgets to append its own.
  const std::vector<std::byte> zeros(static_cast<std::size_t>(decoder.recipe().kv_bytes));
  ADAMK_CHECK(decoder.write_kv(zeros));
  std::vector<float> logits;
  ADAMK_TRY(const std::vector<int> chosen, greedy_run(decoder, inputs, steps, &logits));

  const auto vocab = static_cast<std::size_t>(deployment.model.vocab);
  std::vector<GreedyStep> greedy;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    GreedyStep step;
    step.input = i < inputs.size() ? inputs[i] : chosen[i - 1];
    step.position = static_cast<std::int64_t>(i);
    step.chosen = chosen[i];
    step.logits = std::span<const float>(logits).subspan(i * vocab, vocab);
    greedy.push_back(step);
    // It cannot be fed to the reference; check_greedy stops here anyway.
    if (!in_vocabulary(chosen[i], decoder.recipe())) break;
  }
  reference.reset();
  ADAMK_TRY(report.greedy, check_greedy(reference, greedy, report.max_abs_error()));
  if (!report.passed()) return {};
  if (!report.greedy.passed()) {
    report.failure = fmt::format("greedy, position {}: {}", report.greedy.mismatch, report.greedy.reason);
  } else if (!report.greedy.worst.within(report.tolerance)) {
    report.failure = fmt::format("greedy: relative error {:.3g} of the logits is above the tolerance {:.3g}",
                                 report.greedy.worst.relative_l2, report.tolerance);
  }
  return {};
}

Result<void> check_options(const Recipe& recipe, const VerifyOptions& options) {
  for (const std::int64_t position : options.positions) {
    if (position < 0 || position >= recipe.context) {
      return fail(Errc::bad_input, "positions: {} is not in a context of {}", position, recipe.context);
    }
  }
  const std::int64_t prompt = std::max<std::int64_t>(1, static_cast<std::int64_t>(options.prompt.size()));
  if (options.greedy_tokens < 0 || prompt + options.greedy_tokens - 1 > recipe.context) {
    return fail(Errc::bad_input, "greedy tokens: {} after a prompt of {} do not fit a context of {}",
                options.greedy_tokens, prompt, recipe.context);
  }
  return {};
}

}  // namespace

double VerifyReport::max_abs_error() const {
  double largest = 0;
  for (const PositionVerdict& each : positions) largest = std::max(largest, each.logits.max_abs_error);
  return largest;
}

Result<VerifyReport> verify_decoder(Decoder& decoder, const Deployment& deployment, const Weights& weights,
                                    const VerifyOptions& options) {
  ADAMK_CHECK(check_options(decoder.recipe(), options));
  VerifyReport report;
  report.tolerance = logit_tolerance(deployment.model, deployment.weights, options.origin);
  ADAMK_TRY(ReferenceDecoder reference,
            ReferenceDecoder::create(deployment.model, weights, decoder.recipe().context));
  for (const std::int64_t position : options.positions) {
    ADAMK_CHECK(verify_position(decoder, reference, deployment, position, options.seed, report));
  }
  if (options.greedy_tokens > 0) ADAMK_CHECK(verify_greedy(decoder, reference, deployment, options, report));
  return report;
}

Json verify_report_to_json(const VerifyReport& report) {
  Json positions = Json::array(), ties = Json::array();
  for (const auto& [position, logits] : report.positions) {
    positions.push_back({{"position", position},
                         {"relative_error", logits.relative_l2},
                         {"max_error", logits.max_abs_error},
                         {"unwritten", logits.unwritten},
                         {"top2_gap", logits.top2_gap}});
  }
  for (const NearTie& tie : report.greedy.near_ties) {
    ties.push_back({{"position", tie.position},
                    {"reference", tie.reference},
                    {"kernel", tie.chosen},
                    {"gap", tie.gap},
                    {"error", tie.error}});
  }
  return Json{{"passed", report.passed()},
              {"failure", report.failure},
              {"tolerance", report.tolerance},
              {"positions", positions},
              {"greedy",
               {{"compared", report.greedy.compared}, {"equal", report.greedy.equal}, {"near_ties", ties}}}};
}

}  // namespace adamk
