#include "adamk/search/strategy.h"

namespace adamk {

namespace {

class Exhaustive final : public Strategy {
 public:
  explicit Exhaustive(const Space& space) : space_(space) {}

  std::vector<Plan> propose(const std::vector<Tried>&) override {
    constexpr std::size_t kGeneration = 16;
    std::vector<Plan> plans;
    for_each_plan(space_, next_, space_.candidates(), [&](std::uint64_t index, const Plan& plan) {
      plans.push_back(plan);
      next_ = index + 1;
      return plans.size() < kGeneration;
    });
    if (plans.size() < kGeneration) next_ = space_.candidates();
    return plans;
  }
  std::string_view ending() const override { return "space exhausted"; }

 private:
  const Space& space_;
  std::uint64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_exhaustive(const Space& space) { return std::make_unique<Exhaustive>(space); }

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const Space& space, std::uint64_t seed) {
  if (name == "exhaustive") return make_exhaustive(space);
  if (name == "beam") return make_beam(space, seed);
  return fail(Errc::bad_input, "strategy '{}' is not known; exhaustive or beam", name);
}

}  // namespace adamk
