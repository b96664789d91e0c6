#include "adamk/search/strategy.h"

#include <array>
#include <numeric>

namespace adamk {

namespace {

/// Near `count` over the golden ratio and without a common divisor: steps of this size, around the corner at the end, meet
/// every index once, and any number of them lies spread over the range.
std::uint64_t golden_stride(std::uint64_t count) {
  if (count <= 2) return 1;
  auto stride = static_cast<std::uint64_t>(static_cast<double>(count) * 0.6180339887498949);
  while (std::gcd(stride, count) != 1) ++stride;
  return stride;
}

class Exhaustive final : public Strategy {
 public:
  explicit Exhaustive(const Space& space) : space_(space), count_(space.candidates()), stride_(golden_stride(count_)) {}

  std::vector<Plan> propose(const std::vector<Tried>&) override {
    constexpr std::size_t kGeneration = 16;
    std::vector<Plan> plans;
    for (; visited_ < count_ && plans.size() < kGeneration; ++visited_) {
      if (Result<Plan> plan = plan_at(space_, index_)) plans.push_back(std::move(*plan));
      index_ = index_ >= count_ - stride_ ? index_ - (count_ - stride_) : index_ + stride_;
    }
    return plans;
  }
  std::string_view ending() const override { return "space exhausted"; }

 private:
  const Space& space_;
  std::uint64_t count_, stride_;
  std::uint64_t visited_ = 0, index_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_exhaustive(const Space& space) { return std::make_unique<Exhaustive>(space); }

namespace {

constexpr std::array kStrategies{
    StrategyInfo{"beam", "the neighbours of the best plans so far, the most promising by the cost model first"},
    StrategyInfo{"exhaustive", "every plan of the space, spread so that any number of trials sees all of it"}};

}  // namespace

std::span<const StrategyInfo> strategies() { return kStrategies; }

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const Space& space, std::uint64_t seed) {
  if (name == "exhaustive") return make_exhaustive(space);
  if (name == "beam") return make_beam(space, seed);
  return fail(Errc::bad_input, "strategy '{}' is not known; exhaustive or beam", name);
}

}  // namespace adamk
