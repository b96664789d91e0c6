// The validator against the explorer: defects of every kind in small plans, each judged by both. Neither a defect may be accepted nor a
// sound plan refuted.
//
// ADAMK_NIGHTLY: 50,000 mutants instead of 5,000. ADAMK_MUTANTS, ADAMK_SEED, ADAMK_MUTATION and ADAMK_INSTANCE: another count, one seed,
// one kind, one plan.
// ADAMK_MUTATION_TABLE: prints a row for each kind.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>

#include "adamk/dag/validator.h"
#include "instances.h"
#include "mutations.h"
#include "protocol_system.h"

namespace adamk::explorer {
namespace {

/// A sound plan, and what it puts out.
class Base {
 public:
  explicit Base(Instance i) : instance(std::move(i)), dag(make_tile_dag(instance.deployment, instance.plan).value()) {}

  const Outputs& outputs(const ProtocolRuns& runs) {
    auto [at, fresh] = outputs_.try_emplace({runs.lanes, runs.steps, runs.positions_per_warp});
    if (fresh) at->second = explore(protocol_system(dag, runs)).outputs;
    return at->second;
  }

  const Instance instance;
  const TileDag dag;

 private:
  std::map<std::tuple<LaneModel, std::vector<int>, int>, Outputs> outputs_;
};

struct Opinion {
  Defect defect = Defect::none;
  std::string what;
};

class Oracle {
 public:
  /// Looks further, the more it takes to find a defect; `thorough` to the end.
  static Opinion judge(Base& base, const TileDag& mutant, bool outputs, bool thorough) {
    // What goes on from launch to launch and what starts again meet differently behind an odd number of steps.
    const std::vector<int> usual = {2, 1}, longer = {4, 2}, odd = {3, 1};
    struct Look {
      LaneModel lanes;
      std::vector<int> steps;
      bool always;
    };
    const std::vector<Look> looks = {{LaneModel::together, usual, true},  {LaneModel::halves, usual, true},   {LaneModel::swapped, usual, false},
                                     {LaneModel::shares, usual, false},   {LaneModel::first, usual, false},     {LaneModel::others, usual, false},
                                     {LaneModel::together, longer, false}, {LaneModel::halves, longer, false},
                                     {LaneModel::together, odd, false},    {LaneModel::halves, odd, false}};
    Opinion opinion;
    for (const Look& look : looks) {
      if (!look.always && !thorough) continue;
      ProtocolRuns runs;
      runs.lanes = look.lanes;
      runs.steps = look.steps;
      // Without a race the lanes' outputs are those that they have together; apart they would depend on which lane takes what.
      const bool with_outputs = outputs && look.lanes == LaneModel::together;
      const Verdict v = explore(protocol_system(mutant, runs), {.executions = 40}, with_outputs ? &base.outputs(runs) : nullptr);
      if (v.defect == Defect::none) continue;
      opinion = {v.defect, v.what};
      if (v.defect != Defect::undecided) return opinion;
    }
    return opinion;
  }
};

struct Row {
  double seconds = 0;
  int mutants = 0, sound = 0, refuted = 0, undecided = 0, by_contract = 0;
  std::map<std::string, int> checks;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_run_check(const std::string& check) { return check == "deadlock_free" || check == "race_free"; }

TEST(Mutation, TheValidatorAndTheExplorerAgree) {
  const bool nightly = !environment("ADAMK_NIGHTLY").empty();
  const std::string count = environment("ADAMK_MUTANTS"), only = environment("ADAMK_MUTATION"), plan = environment("ADAMK_INSTANCE"), one = environment("ADAMK_SEED");
  const int mutants = !count.empty() ? std::stoi(count) : nightly ? 50000 : 5000;
  std::vector<Base> bases;
  for (const char* target : {"l20", "h200"}) {
    for (Instance& instance : instances(target)) {
      instance.name += std::string(", ") + target;
      if (plan.empty() || instance.name == plan) bases.emplace_back(std::move(instance));
    }
  }
  const std::vector<Mutation>& kinds = mutations();
  std::map<std::string, Row> rows;
  int wrong = 0;
  const int from = one.empty() ? 0 : std::stoi(one), to = one.empty() ? mutants : from + 1;
  for (int seed = from; seed < to; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    const std::size_t first = static_cast<std::size_t>(seed);
    for (std::size_t attempt = 0; attempt < kinds.size(); ++attempt) {
      const Mutation& kind = kinds[(first + attempt) % kinds.size()];
      if (!only.empty() && kind.name != only) continue;
      Base& base = bases[random() % bases.size()];
      TileDag mutant = base.dag;
      if (!kind.apply(mutant, base.instance.deployment, random)) continue;
      Row& row = rows[kind.name];
      ++row.mutants;
      const std::clock_t begin = std::clock();
      const Certificate certificate = validate(mutant, base.instance.deployment);
      Opinion opinion;
      if (kind.judge == Judge::unsound) opinion = {Defect::wrong_value, kind.reason};
      else if (kind.judge != Judge::sound) {
        const bool enough = !certificate.ok && kind.judge == Judge::contract && !is_run_check(certificate.failed);
        opinion = Oracle::judge(base, mutant, kind.judge != Judge::schedules, nightly || (!certificate.ok && !enough));
      }
      row.seconds += static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      row.refuted += certificate.ok ? 0 : 1;
      row.sound += opinion.defect == Defect::none ? 1 : 0;
      row.undecided += opinion.defect == Defect::undecided ? 1 : 0;
      if (!certificate.ok) ++row.checks[certificate.failed];
      if (certificate.ok == (opinion.defect == Defect::none)) break;
      if (opinion.defect == Defect::none && kind.judge == Judge::contract && !is_run_check(certificate.failed)) {
        ++row.by_contract;
        break;
      }
      ++wrong;
      ADD_FAILURE() << "seed " << seed << ", '" << kind.name << "' in '" << base.instance.name << "': the validator says "
                    << (certificate.ok ? "sound" : certificate.failed + ": " + certificate.counterexample) << "; the explorer says "
                    << to_string(opinion.defect) << ": " << opinion.what;
      break;
    }
    if (wrong >= 200) break;
  }
  if (environment("ADAMK_MUTATION_TABLE").empty()) return;
  std::string table = fmt::format("{:<48} {:>8} {:>8} {:>8} {:>8}  {}\n", "kind", "mutants", "sound", "refuted", "ms each", "by");
  for (const Mutation& kind : kinds) {
    const Row& row = rows[kind.name];
    std::string by;
    for (const auto& [check, n] : row.checks) by += fmt::format("{}{} {}", by.empty() ? "" : ", ", check, n);
    table += fmt::format("{:<48} {:>8} {:>8} {:>8} {:>8.1f}  {}{}{}\n", kind.name, row.mutants, row.sound, row.refuted, 1000 * row.seconds / std::max(1, row.mutants), by,
                         row.by_contract ? fmt::format(" ({} by contract)", row.by_contract) : "",
                         row.undecided ? fmt::format(" ({} undecided)", row.undecided) : "");
  }
  std::fputs(table.c_str(), stdout);
}

}  // namespace
}  // namespace adamk::explorer
