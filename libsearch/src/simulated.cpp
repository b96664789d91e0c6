#include "adamk/search/simulated.h"

#include "adamk/base/hash.h"
#include "adamk/cost/model.h"
#include "adamk/dag/schedule.h"

namespace adamk {

namespace {

DeviceIdentity identity_of(const Target& target) {
  DeviceIdentity device;
  device.name = "simulated " + target.name;
  device.sm = target.sm;
  device.sms = target.sms;
  const std::string figures = hash_hex(fmt::format("{} {} {}", target.read_gbps, target.hop_us, target.clock_mhz));
  device.toolkit = fmt::format("{} {}", cost_model_version(), figures.substr(0, 8));
  device.memory_bytes = target.memory_bytes;
  device.clock_mhz = target.clock_mhz;
  device.read_gbps = target.read_gbps;
  device.hop_us = target.hop_us;
  return device;
}

class SimulatedEvaluator final : public Evaluator {
 public:
  explicit SimulatedEvaluator(const Target& target) : device_(identity_of(target)) {}
  const DeviceIdentity& device() const override { return device_; }
  Method method() const override { return Method::simulated; }

  Result<void> evaluate(const Deployment& deployment, std::span<const Plan> plans, const Finished& finished,
                        const Stop& stop) override {
    for (std::size_t i = 0; i < plans.size() && !stop(); ++i)
      ADAMK_CHECK(finished(i, simulate(deployment, plans[i])));
    return {};
  }

 private:
  Evaluation simulate(const Deployment& deployment, const Plan& plan) const {
    Evaluation out;
    out.ceiling_gbps = device_.read_gbps;
    const Result<Schedule> schedule = make_schedule(deployment, plan);
    if (!schedule) {
      out.status = Status::infeasible;
      out.message = schedule.error().message;
      return out;
    }
    out.samples_us = {predict(deployment, *schedule).us_per_token};
    out.bytes_per_token = necessary_bytes(deployment);
    out.resources.threads = schedule->threads;
    out.resources.smem_bytes = schedule->smem.total();
    return out;
  }

  DeviceIdentity device_;
};

}  // namespace

std::unique_ptr<Evaluator> make_simulated_evaluator(const Target& target) {
  return std::make_unique<SimulatedEvaluator>(target);
}

}  // namespace adamk
