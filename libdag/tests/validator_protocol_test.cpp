// The validator on the protocol: single operations taken out or changed, with the words that must name what is wrong.
#include <gtest/gtest.h>

#include <ctime>

#include "adamk/dag/plan.h"
#include "adamk/dag/validator.h"
#include "dag_fixtures.h"

namespace adamk {
namespace {

using fixtures::deploy;

struct Subject {
  Deployment deployment;
  TileDag dag;

  Protocol& protocol() { return dag.protocol; }
  int barrier(std::string_view name) {
    for (std::size_t i = 0; i < protocol().barriers.size(); ++i)
      if (protocol().barriers[i].name == name) return static_cast<int>(i);
    return -1;
  }
  WarpProgram& program(WarpRole role) {
    return *std::find_if(protocol().programs.begin(), protocol().programs.end(), [&](const WarpProgram& p) { return p.role == role; });
  }
  /// Removes the operations that match; there must be some.
  template <class Match>
  void drop(WarpRole role, Match match) {
    std::size_t dropped = 0;
    for (ProgramSection& section : program(role).sections) dropped += std::erase_if(section.ops, match);
    EXPECT_GT(dropped, 0u);
  }
  void drop(WarpRole role, SyncKind kind, std::string_view of) {
    drop(role, [&](const SyncOp& op) { return op.kind == kind && op.barrier == barrier(of); });
  }
  Storage& storage(std::string_view name) {
    return *std::find_if(protocol().storages.begin(), protocol().storages.end(), [&](const Storage& s) { return s.name == name; });
  }
};

Subject subject(Exchange exchange = Exchange::tagged, bool fused = false, const char* target = "h200") {
  Deployment deployment = deploy(fixtures::tiny_model(), target);
  Plan plan = fixtures::small_plan(2);
  if (fused) {
    plan.stages.erase(plan.stages.begin() + 1);
    plan.stages[1].fused_attention = true;
  }
  for (StagePlan& stage : plan.stages) stage.input = exchange;
  TileDag dag = make_tile_dag(deployment, plan).value();
  return {std::move(deployment), std::move(dag)};
}

void expect_sound(const Subject& s) {
  const Certificate certificate = validate(s.dag, s.deployment);
  EXPECT_TRUE(certificate.ok) << certificate.failed << ": " << certificate.counterexample;
}

void expect_refuted(const Subject& s, const char* check, std::string_view words) {
  const Certificate certificate = validate(s.dag, s.deployment);
  EXPECT_FALSE(certificate.ok);
  EXPECT_EQ(certificate.failed, check) << certificate.counterexample;
  EXPECT_NE(certificate.counterexample.find(words), std::string::npos)
      << "'" << certificate.counterexample << "' does not say '" << words << "'";
}

TEST(ValidatorProtocolTest, EveryExchangeFusedOrNotIsSound) {
  for (const Exchange exchange : {Exchange::tagged, Exchange::counter, Exchange::barrier}) {
    for (const bool fused : {false, true})
      for (const char* target : {"l20", "h200"}) expect_sound(subject(exchange, fused, target));
  }
}

TEST(ValidatorProtocolTest, RefutesReadsThatDoNotWait) {
  const struct {
    WarpRole role;
    const char* barrier;
    const char* words;
  } cases[] = {{WarpRole::consumer, "ring_full", "by an asynchronous copy can be seen"},
               {WarpRole::storer, "partials_full", "reads qkv.partials"},
               {WarpRole::consumer, "token_ready", "reads token and may find what was there before the launch"},
               {WarpRole::storer, "attention_full", "reads attention.partials"}};
  for (const auto& c : cases) {
    Subject s = subject();
    s.drop(c.role, SyncKind::wait, c.barrier);
    expect_refuted(s, "race_free", c.words);
  }
}

TEST(ValidatorProtocolTest, RefutesWritesThatDoNotWaitForReaders) {
  Subject partials = subject();
  partials.drop(WarpRole::consumer, SyncKind::wait, "partials_empty");
  expect_refuted(partials, "race_free", "may still read");
  Subject token = subject();
  token.drop(WarpRole::launcher, SyncKind::wait, "token_taken");
  expect_refuted(token, "race_free", "writes token while");
}

TEST(ValidatorProtocolTest, RefutesALoaderThatOvertakesTheRing) {
  Subject s = subject();
  s.drop(WarpRole::loader, SyncKind::wait, "ring_empty");
  expect_refuted(s, "deadlock_free", "has gone round to turn");
}

TEST(ValidatorProtocolTest, RefutesALaneThatLagsBehindAParity) {
  Subject s = subject();   // the launcher's lanes wait together, and lane 0 alone lets the next turn begin
  std::erase_if(s.program(WarpRole::launcher).sections.front().ops, [](const SyncOp& op) { return op.kind == SyncKind::sync; });
  expect_refuted(s, "deadlock_free", "parity that has gone round twice");
}

TEST(ValidatorProtocolTest, RefutesMissingArrivals) {
  const struct {
    WarpRole role;
    SyncKind kind;
    const char* barrier;
  } cases[] = {{WarpRole::consumer, SyncKind::arrive, "ring_empty"},   {WarpRole::consumer, SyncKind::arrive, "partials_full"},
               {WarpRole::storer, SyncKind::arrive, "partials_empty"}, {WarpRole::storer, SyncKind::arrive, "token_taken"},
               {WarpRole::launcher, SyncKind::arrive, "token_ready"},  {WarpRole::loader, SyncKind::expect, "ring_full"}};
  for (const auto& c : cases) {
    Subject s = subject();
    s.drop(c.role, c.kind, c.barrier);
    expect_refuted(s, "deadlock_free", c.barrier);
  }
}

TEST(ValidatorProtocolTest, RefutesARelaxedHandOver) {
  for (const auto& [role, barrier] : {std::pair{WarpRole::consumer, "partials_full"}, {WarpRole::storer, "attention_empty"}}) {
    Subject s = subject();
    for (ProgramSection& section : s.program(role).sections)
      for (SyncOp& op : section.ops) op.relaxed = op.relaxed || (op.kind == SyncKind::arrive && op.barrier == s.barrier(barrier));
    expect_refuted(s, "race_free", "partials");
  }
  Subject counter = subject(Exchange::counter);
  for (ProgramSection& section : counter.program(WarpRole::storer).sections)
    for (SyncOp& op : section.ops) op.relaxed = op.relaxed || op.kind == SyncKind::add;
  expect_refuted(counter, "race_free", "nothing makes sure that");
}

TEST(ValidatorProtocolTest, RefutesKeysAndValuesThatNoFenceCarries) {
  for (const WarpRole role : {WarpRole::storer, WarpRole::launcher}) {
    Subject s = subject(Exchange::tagged, true);
    s.drop(role, [](const SyncOp& op) { return op.kind == SyncKind::fence; });
    expect_refuted(s, "race_free", "reads kv_cache");
  }
}

TEST(ValidatorProtocolTest, RefutesTagsAndTargets) {
  Subject reused = subject();
  reused.protocol().tag.per_layer = 0;
  expect_refuted(reused, "race_free", "takes qkv[");
  Subject late = subject(Exchange::counter);
  late.protocol().counters[0].target.first += 1;
  expect_refuted(late, "deadlock_free", "waits until counter");
  Subject early = subject(Exchange::counter);
  early.protocol().counters[0].target.first -= 1;
  expect_refuted(early, "race_free", "nothing makes sure that");
}

TEST(ValidatorProtocolTest, RefutesASingleArgmaxBuffer) {
  // Two of six SMs have no tile at all: nothing holds them back but the tokens, and they may still look for a step's entries when
  // the others publish the next step's.
  const Deployment deployment = deploy(fixtures::make_model({2, 32, 2, 1, 16, 32, 48}), "l20");
  Plan plan = fixtures::small_plan();
  plan.grid = 6;
  plan.consumer_warps = 2;
  Subject s{deployment, make_tile_dag(deployment, plan).value()};
  expect_sound(s);
  s.storage("argmax").slots = 1;
  expect_refuted(s, "deadlock_free", "argmax");
}

TEST(ValidatorProtocolTest, RefutesStorageThatLiesOverOther) {
  Subject over = subject();
  over.storage("residual").offset -= 16;
  expect_refuted(over, "fits", "lies over partials");
  Subject small = subject();
  small.storage("ring").slot_bytes /= 2;
  expect_refuted(small, "protocol", "storage ring has");
  Subject past = subject();
  past.protocol().workspace_bytes -= 256;
  expect_refuted(past, "fits", "workspace");
}

TEST(ValidatorProtocolTest, RefutesProgramsThatDoNotDoWhatTheTasksDeclare) {
  Subject dropped = subject();
  dropped.drop(WarpRole::storer, [&](const SyncOp& op) { return op.kind == SyncKind::publish && op.tensor == dropped.dag.find_tensor("ffn"); });
  expect_refuted(dropped, "protocol", "tasks of the storer in stage gate_up write ffn, but its program never does");
  Subject plain = subject();
  for (ProgramSection& section : plain.program(WarpRole::storer).sections)
    for (SyncOp& op : section.ops)
      if (op.kind == SyncKind::publish) op.kind = SyncKind::write;
  expect_refuted(plain, "protocol", "crosses SMs, and needs relaxed accesses");
}

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ValidatorProtocolTest, JudgesASeventyBillionParameterModelInSeconds) {
  Deployment deployment = deploy(fixtures::llama_70b(), "h200");
  deployment.target.memory_bytes = std::int64_t{200} << 30;
  const TileDag dag = make_tile_dag(deployment, default_plan(deployment).value()).value();
  const std::clock_t begin = std::clock();
  const Certificate certificate = validate(dag, deployment);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_TRUE(certificate.ok) << certificate.failed << ": " << certificate.counterexample;
  EXPECT_LT(seconds, 5.0);
  RecordProperty("seconds", std::to_string(seconds));
}
#endif

}  // namespace
}  // namespace adamk
