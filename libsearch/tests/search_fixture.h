// A small deployment, records in memory, and an evaluator whose order of completion can be shuffled.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "adamk/dag/space.h"
#include "adamk/search/records.h"
#include "adamk/search/simulated.h"

namespace adamk::testing_search {

inline Deployment small_deployment() {
  Deployment d;
  Model& model = d.model;
  model.family = "llama";
  model.layers = 4;
  model.hidden = 512;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.ffn = 1536;
  model.vocab = 4096;
  model.max_positions = 2048;
  model.norm_eps = 1e-5;
  Target& target = d.target;
  target.name = "l20";
  target.product = "NVIDIA L20";
  target.sm = 89;
  target.sms = 92;
  target.smem_per_block = 101376;
  target.smem_per_sm = 102400;
  target.smem_reserved = 1024;
  target.l2_bytes = 96 << 20;
  target.memory_bytes = std::int64_t{48} << 30;
  target.read_gbps = 780;
  target.hop_us = 1.2;
  target.clock_mhz = 2520;
  d.workload.context = 256;
  return d;
}

inline RunKey key_of(const Evaluator& evaluator) {
  return {evaluator.device(), evaluator.method(), "beam", 1, "20", "", "test"};
}

/// What TuningDb does, without a file.
class MemoryRecords final : public Records {
 public:
  struct Candidate {
    std::int64_t run;
    int ordinal;
    Plan plan;
    Evaluation evaluation;
  };

  Result<RunRecord> open_run(const Deployment& deployment, const RunKey& key, const std::string&) override {
    const std::string text = fmt::format("{} {} {} {} {}", deployment.key(), key.device.fingerprint(), key.strategy, key.seed,
                                         key.budget);
    auto [entry, added] = ids.try_emplace(text, static_cast<std::int64_t>(runs.size()) + 1);
    if (added) runs[entry->second].id = entry->second;
    return runs[entry->second];
  }
  Result<std::optional<Evaluation>> find(const Deployment&, const RunKey&, const std::string& hash) override {
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].plan.hash() == hash) {
        Evaluation found = candidates[i].evaluation;
        found.record = static_cast<std::int64_t>(i) + 1;
        return std::optional<Evaluation>(found);
      }
    return std::optional<Evaluation>();
  }
  Result<void> store(std::int64_t run, int ordinal, const Deployment&, const Plan& plan,
                     const Evaluation& evaluation) override {
    if (full) return fail(Errc::io, "disk full");
    for (const Candidate& known : candidates)
      if (known.run == run && known.plan == plan) return {};
    candidates.push_back({run, ordinal, plan, evaluation});
    return {};
  }
  Result<void> close_run(std::int64_t run, RunState state, const std::string& ended_by, const std::string& best) override {
    runs[run].state = state;
    runs[run].ended_by = ended_by;
    runs[run].best_plan = best;
    return {};
  }
  Result<Plan> plan(const std::string& hash) override {
    for (const Candidate& known : candidates)
      if (known.plan.hash() == hash) return known.plan;
    return fail(Errc::not_found, "no plan {}", hash);
  }

  std::vector<std::string> hashes() const {
    std::vector<const Candidate*> sorted;
    for (const Candidate& each : candidates) sorted.push_back(&each);
    std::stable_sort(sorted.begin(), sorted.end(), [](const Candidate* a, const Candidate* b) { return a->ordinal < b->ordinal; });
    std::vector<std::string> out;
    for (const Candidate* each : sorted) out.push_back(each->plan.hash());
    return out;
  }

  std::map<std::string, std::int64_t> ids;
  std::map<std::int64_t, RunRecord> runs;
  std::vector<Candidate> candidates;
  bool full = false;
};

/// The simulation, reporting a batch last plan first; counts what it evaluated.
class BackwardEvaluator final : public Evaluator {
 public:
  explicit BackwardEvaluator(const Target& target) : inner_(make_simulated_evaluator(target)) {}
  const DeviceIdentity& device() const override { return inner_->device(); }
  Method method() const override { return inner_->method(); }
  Result<void> evaluate(const Deployment& deployment, std::span<const Plan> plans, const Finished& finished,
                        const Stop& stop) override {
    for (std::size_t i = plans.size(); i-- > 0;) {
      if (stop()) return {};
      if (evaluated == broken_after) return fail(Errc::machine, "the device is gone");
      ++evaluated;
      ADAMK_TRY(const Evaluation evaluation, evaluate_one(*inner_, deployment, plans[i]));
      ADAMK_CHECK(finished(i, evaluation));
    }
    return {};
  }
  int evaluated = 0;
  int broken_after = -1;

 private:
  std::unique_ptr<Evaluator> inner_;
};

}  // namespace adamk::testing_search
