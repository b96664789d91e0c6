// Defects seeded in the PTX of real kernels: each must be found, as a race, a deadlock, a fault or a wrong result.
#include <algorithm>
#include <map>

#include "defects.h"
#include "kernel_fixture.h"

namespace adamk::emulated {
namespace {

struct Outcome {
  std::string found;   // "race", "deadlock", "fault", "wrong"; empty: nothing
  std::string words;
};

struct Logits {
  std::vector<float> first, second;
  bool operator==(const Logits&) const = default;
};

/// Two launches of two steps each from an empty cache.
Result<Logits> decode(Running& running) {
  Logits logits;
  const std::vector<int> prompt{'O', 'n'};
  ADAMK_TRY(const std::vector<int> first, running.decoder->decode_with_logits(0, prompt, 2, &logits.first));
  ADAMK_CHECK(running.decoder->decode_with_logits(2, std::span(first).last(1), 2, &logits.second));
  return logits;
}

/// What the kernel does when nothing is wrong with it: how much, and which bits.
struct Sound {
  Logits logits;
  std::uint64_t warp_instructions = 0;
};
const Sound& sound(const Variant& variant) {
  static std::map<std::string, Sound> known;
  const auto found = known.find(variant.name);
  if (found != known.end()) return found->second;
  auto running = start(subject(variant), 1);
  EXPECT_TRUE(running) << running.error().message;
  auto logits = decode(*running);
  EXPECT_TRUE(logits) << logits.error().message;
  return known.emplace(variant.name, Sound{logits.value_or(Logits{}), running->device->summary().warp_instructions}).first->second;
}

/// The first thing that shows under any of so many seeds.
Outcome run_defect(const Variant& variant, const std::string& ptx, int seeds) {
  const Sound& expected = sound(variant);
  for (int seed = 1; seed <= seeds; ++seed) {
    auto running = start(subject(variant), static_cast<std::uint64_t>(seed), ptx,
                         [&](EmulatedDeviceOptions& options) { options.most_instructions = 20 * expected.warp_instructions; });
    if (!running) return {"refused", running.error().message};
    const auto logits = decode(*running);
    if (logits && *logits == expected.logits) continue;
    if (logits) return {"wrong", "logits differ"};
    const std::string& words = logits.error().message;
    if (words.starts_with("data race")) return {"race", words};
    if (words.starts_with("deadlock") || words.starts_with("watchdog")) return {"deadlock", words};
    return {"fault", words};
  }
  return {};
}

/// The kernels that are made wrong. Those of one name are compiled once, here and where they decode.
const Variant& sweep_variant(const std::string& name) {
  const auto bf16 = WeightsFormat::bf16;
  static const std::vector<Variant> all = {{"counter_sm90a", "h200", 2, bf16, every_input(Exchange::counter)},
                                           {"barrier_sm89", "l20", 2, bf16, every_input(Exchange::barrier)},
                                           {"tagged_sm89", "l20", 2, bf16, every_input(Exchange::tagged)},
                                           {"fused_attention_sm89", "l20", 2, bf16, attention_fused}};
  return *std::find_if(all.begin(), all.end(), [&](const Variant& each) { return each.name == name; });
}

std::map<int, PtxLine> lines_of(const Variant& variant) {
  const auto module = parse_ptx(subject(variant).kernel.ptx);
  EXPECT_TRUE(module) << module.error().message;
  return module ? list_lines(*module) : std::map<int, PtxLine>{};
}

std::string region(const PtxLine& line) { return line.stage.empty() ? line.role : line.role + " " + line.stage; }

/// The first site of a kind in the code of a role and stage, and what it must be found as.
struct Seeded {
  std::string variant, kind, where, found;
};
void PrintTo(const Seeded& seeded, std::ostream* out) { *out << seeded.variant << ": " << seeded.kind << " in " << seeded.where; }

class Defects : public KernelTest, public ::testing::WithParamInterface<Seeded> {};

TEST_P(Defects, AreFound) {
  const Seeded& seeded = GetParam();
  const Variant& variant = sweep_variant(seeded.variant);
  const std::map<int, PtxLine> lines = lines_of(variant);
  for (const Defect& defect : defects_of(subject(variant).kernel.ptx, seeded.kind)) {
    if (region(lines.at(defect.line)) != seeded.where) continue;
    const Outcome outcome = run_defect(variant, defect.ptx, 3);
    EXPECT_EQ(outcome.found, seeded.found) << "line " << defect.line << ": " << defect.instruction << "\n" << outcome.words;
    if (outcome.found == "race") {
      EXPECT_NE(outcome.words.find(" is not ordered after"), std::string::npos) << outcome.words;
      EXPECT_NE(outcome.words.find("SM "), std::string::npos) << outcome.words;
      EXPECT_NE(outcome.words.find("role "), std::string::npos) << outcome.words;
      EXPECT_NE(outcome.words.find("PTX line "), std::string::npos) << outcome.words;
    }
    return;
  }
  ADD_FAILURE() << "no such site in " << variant.name;
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, Defects,
    ::testing::Values(
        Seeded{"fused_attention_sm89", "fence deleted", "storer head", "race"}, Seeded{"fused_attention_sm89", "fence deleted", "launcher head", "race"},
        Seeded{"counter_sm90a", "block barrier deleted", "entry", "fault"},
        Seeded{"counter_sm90a", "warp barrier deleted", "consumer qkv", "race"}, Seeded{"counter_sm90a", "warp barrier deleted", "storer gate_up", "race"},
        Seeded{"counter_sm90a", "release deleted", "storer qkv", "deadlock"}, Seeded{"counter_sm90a", "release made relaxed", "storer down", "race"},
        Seeded{"barrier_sm89", "release made relaxed", "storer attention", "race"},
        Seeded{"tagged_sm89", "packet torn", "storer qkv", "race"}, Seeded{"tagged_sm89", "packet with a stale tag", "storer down", "deadlock"},
        Seeded{"tagged_sm89", "packet stored weakly", "storer output", "race"}, Seeded{"tagged_sm89", "packet loaded weakly", "consumer down", "race"},
        Seeded{"counter_sm90a", "parity swapped", "consumer down", "race"}, Seeded{"tagged_sm89", "parity swapped", "storer output", "deadlock"},
        Seeded{"counter_sm90a", "arrival dropped", "consumer gate_up", "deadlock"},
        Seeded{"tagged_sm89", "arrival after copies dropped", "loader head", "deadlock"},
        Seeded{"counter_sm90a", "ring stage released early", "consumer output", "race"},
        Seeded{"tagged_sm89", "ring stage released early", "consumer qkv", "race"},
        Seeded{"counter_sm90a", "copy 16 bytes short", "loader down", "deadlock"}, Seeded{"counter_sm90a", "copy 16 bytes long", "loader qkv", "deadlock"},
        Seeded{"counter_sm90a", "copy from 16 bytes on", "loader output", "wrong"}, Seeded{"tagged_sm89", "piece from 16 bytes on", "loader down", "wrong"},
        Seeded{"tagged_sm89", "piece to 16 bytes on", "loader gate_up", "race"},
        Seeded{"counter_sm90a", "16 bytes fewer expected", "loader qkv", "deadlock"}, Seeded{"counter_sm90a", "16 bytes more expected", "loader head", "deadlock"},
        Seeded{"counter_sm90a", "expectation dropped", "loader gate_up", "deadlock"},
        Seeded{"counter_sm90a", "fence after initialisation deleted", "entry", "race"},
        Seeded{"counter_sm90a", "initialisation missing", "entry", "fault"}, Seeded{"tagged_sm89", "initialised for one more", "entry", "deadlock"}));

// ---- every site ------------------------------------------------------------------------------------------------------------

/// Sites whose defect does no harm to these kernels, or none that these runs can show: how many at most, and why.
struct Harmless {
  std::string kernel, kind, where;   // empty: any; `kernel` is the start of its name
  int most;
  const char* why;
};
const std::vector<Harmless>& harmless() {
  constexpr const char* token = "the next token depends on what every warp of an SM with rows of the head did before: only an SM without needs this";
  constexpr const char* again = "between the accesses stands another barrier of the warp";
  constexpr const char* converge = "brings the lanes together; none reads what another wrote";
  constexpr const char* twice = "two barriers stand between the polls and the hand-over; either is enough";
  constexpr const char* window = "the window bounds what is in flight, for speed; what a ring stage holds is kept by its own barriers";
  constexpr const char* drain = "copies are awaited by who reads them; the loader needs to only when the watchdog calls those away";
  constexpr const char* few_steps = "shows after more steps of one launch than are run here";
  constexpr const char* rare = "a first look that finds all there, which few interleavings have";
  constexpr const char* unused = "barriers of plain inputs and of an attention stage, which this kernel does not use";
  static const std::vector<Harmless> all = {
      {"", "warp barrier deleted", "consumer step", 1, token},
      {"", "warp barrier deleted", "consumer attention", 1, again},
      {"", "warp barrier deleted", "storer step", 2, token},
      {"", "warp barrier deleted", "storer attention", 1, again},
      {"", "warp barrier deleted", "storer output", 1, again},
      {"", "warp barrier deleted", "storer down", 1, again},
      {"", "warp barrier deleted", "launcher step", 2, twice},
      {"fused", "warp barrier deleted", "launcher head", 1, twice},
      {"fused", "warp barrier deleted", "consumer output", 1, again},
      {"", "warp barrier deleted", "controller layer", 1, converge},
      {"", "counter target one too far", "controller layer", 6, "a first look that fails is followed by another, which is as it was"},
      {"", "counter target one short", "controller layer", 1, rare},
      {"", "acquire made relaxed", "controller layer", 2, rare},
      {"counter", "packet loaded weakly", "", 12, "plain values, ordered by the counter"},
      {"barrier", "packet loaded weakly", "", 12, "plain values, ordered by the counter"},
      {"", "parity swapped", "_Z5drainjjj", 1, drain},
      {"", "wait left out", "_Z5drainjjj", 1, drain},
      {"", "wait left out", "loader qkv", 1, window},
      {"", "wait left out", "loader output", 1, window},
      {"", "wait left out", "loader gate_up", 1, window},
      {"", "wait left out", "loader down", 1, window},
      {"", "wait left out", "loader head", 1, window},
      {"", "wait left out", "launcher step", 1, token},
      {"", "arrival doubled", "consumer step", 1, few_steps},
      {"", "arrival doubled", "storer step", 1, few_steps},
      {"", "initialised for one fewer", "entry", 1, few_steps},
      {"tagged", "initialisation missing", "entry", 1, unused},
      {"tagged", "initialised for one more", "entry", 1, unused},
      {"fused", "initialisation missing", "entry", 3, unused},
      {"fused", "initialised for one fewer", "entry", 1, unused},
      {"fused", "initialised for one more", "entry", 3, unused},
  };
  return all;
}

constexpr int kSeeds = 4;   // of what is not found at once

class SweepNightly : public KernelTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(SweepNightly, EverySiteOfEveryKindIsFoundOrHarmless) {
  const Variant& variant = sweep_variant(GetParam());
  const std::map<int, PtxLine> lines = lines_of(variant);
  const std::string& ptx = subject(variant).kernel.ptx;
  std::map<int, bool> reached;
  const auto stops = [&](int line) {
    const auto known = reached.find(line);
    if (known != reached.end()) return known->second;
    for (const Defect& defect : defects_of(ptx, unreached))
      if (defect.line == line) return reached[line] = run_defect(variant, defect.ptx, kSeeds).found == "fault";
    return true;
  };
  fmt::print("{}: kind | sites | race | deadlock | fault | wrong | not reached | harmless\n", variant.name);
  for (const std::string& kind : defect_kinds()) {
    std::map<std::string, int> counts, missed;
    int sites = 0;
    for (const Defect& defect : defects_of(ptx, kind)) {
      ++sites;
      Outcome outcome = run_defect(variant, defect.ptx, kSeeds);
      if (outcome.found.empty() && !stops(defect.line)) outcome.found = "not reached";
      ++counts[outcome.found];
      const std::string where = region(lines.at(defect.line));
      if (!outcome.found.empty()) continue;
      fmt::print("  missed: {} in {}, line {}: {}\n", kind, where, defect.line, defect.instruction);
      ++missed[where];
    }
    if (sites == 0) continue;
    fmt::print("{} | {} | {} | {} | {} | {} | {} | {}\n", kind, sites, counts["race"], counts["deadlock"], counts["fault"], counts["wrong"],
               counts["not reached"], counts[""]);
    std::fflush(stdout);
    EXPECT_EQ(counts["refused"], 0) << kind;
    for (const auto& [where, count] : missed) {
      int most = 0;
      for (const Harmless& each : harmless())
        if (variant.name.starts_with(each.kernel) && each.kind == kind && (each.where.empty() || each.where == where)) most += each.most;
      EXPECT_LE(count, most) << kind << " in " << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SweepNightly, ::testing::Values("counter_sm90a", "barrier_sm89", "tagged_sm89", "fused_attention_sm89"),
                         [](const ::testing::TestParamInfo<std::string>& each) { return each.param; });

}  // namespace
}  // namespace adamk::emulated
