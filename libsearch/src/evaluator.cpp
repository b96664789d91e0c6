#include "adamk/search/evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "adamk/base/hash.h"
#include "adamk/base/names.h"

namespace adamk {

namespace {

constexpr std::array kStatuses{std::pair{Status::ok, "ok"},
                               std::pair{Status::infeasible, "infeasible"},
                               std::pair{Status::rejected, "rejected"},
                               std::pair{Status::compile_error, "compile_error"},
                               std::pair{Status::spills, "spills"},
                               std::pair{Status::wrong_result, "wrong_result"},
                               std::pair{Status::timeout, "timeout"},
                               std::pair{Status::crashed, "crashed"}};
constexpr std::array kMethods{std::pair{Method::simulated, "simulated"}, std::pair{Method::cupti, "cupti"},
                              std::pair{Method::events, "events"}, std::pair{Method::emulated, "emulated"}};

template <class Enum, class Names>
Result<Enum> parse(const Names& names, std::string_view text, std::string_view what) {
  if (const auto value = value_of<Enum>(names, text)) return *value;
  return fail(Errc::bad_input, "'{}' is no {}; one of {}", text, what, listed(names));
}

}  // namespace

std::string_view to_string(Status status) { return name_of(kStatuses, status); }
std::string_view to_string(Method method) { return name_of(kMethods, method); }
Result<Status> parse_status(std::string_view text) { return parse<Status>(kStatuses, text, "status"); }
Result<Method> parse_method(std::string_view text) { return parse<Method>(kMethods, text, "method"); }

std::string DeviceIdentity::fingerprint() const {
  return hash_hex(Json{{"name", name}, {"sm", sm}, {"sms", sms}, {"driver", driver}, {"toolkit", toolkit}}.dump(
      -1, ' ', false, Json::error_handler_t::replace));
}

double quantile(std::span<const double> samples, double q) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

double Evaluation::median_us() const { return quantile(samples_us, 0.5); }
double Evaluation::gbps() const { return bytes_per_token / median_us() / 1e3; }

Result<Evaluation> evaluate_one(Evaluator& evaluator, const Deployment& deployment, const Plan& plan) {
  std::optional<Evaluation> result;
  ADAMK_CHECK(evaluator.evaluate(
      deployment, std::span(&plan, 1),
      [&](std::size_t, const Evaluation& evaluation) -> Result<void> {
        result = evaluation;
        return {};
      },
      [] { return false; }));
  if (!result) return fail(Errc::interrupted, "plan {} was not evaluated", plan.hash());
  return std::move(*result);
}

}  // namespace adamk
