// The explorer on hand-made protocols whose answers are known, and against itself without reduction on random ones.
#include "explorer.h"

#include <gtest/gtest.h>

#include <random>

namespace adamk::explorer {
namespace {

Op wait(int barrier, int parity) { return {.kind = OpKind::wait, .object = barrier, .argument = parity}; }
Op arrive(int barrier) { return {.kind = OpKind::arrive, .object = barrier, .lanes = Lanes::first}; }
Op expect(int barrier, int transactions) {
  return {.kind = OpKind::expect, .object = barrier, .argument = transactions, .lanes = Lanes::first};
}
Op copy(int cell, int value, int barrier, int engine) {
  return {.kind = OpKind::copy, .object = cell, .argument = barrier, .value = value, .lanes = Lanes::first, .engine = engine};
}
Op read(int cell, int value) { return {.kind = OpKind::read, .object = cell, .value = value}; }
Op write(int cell, int value) { return {.kind = OpKind::write, .object = cell, .value = value}; }
Op load(int cell, int value) { return {.kind = OpKind::load, .object = cell, .value = value}; }
Op store(int cell, int value) { return {.kind = OpKind::store, .object = cell, .value = value}; }
Op publish(int cell, int tag, int value) { return {.kind = OpKind::publish, .object = cell, .argument = tag, .value = value}; }
Op poll(int cell, int tag, int value) { return {.kind = OpKind::poll, .object = cell, .argument = tag, .value = value}; }
Op add(int counter, bool relaxed = false) {
  return {.kind = OpKind::add, .object = counter, .lanes = Lanes::first, .relaxed = relaxed};
}
Op await(int counter, int target, bool relaxed = false) {
  return {.kind = OpKind::await, .object = counter, .argument = target, .relaxed = relaxed};
}
Op sync() { return {.kind = OpKind::sync}; }
Op fence() { return {.kind = OpKind::fence}; }

Defect verdict(const System& system) { return explore(system).defect; }

// ---- a ring of `stages` slots: a loader, consumers ----------------------------------------------------------------------------

struct Ring {
  int stages = 2, window = 2, chunks = 5, consumers = 2;
  int empty_parity = 1, full_parity = 0, empty_arrivals = 2;
  bool wait_empty = true, consumer_syncs = true, early_release = false, consumer_flips = true;

  System system() const {
    System s;
    s.engines = stages;
    std::vector<int> full, empty;
    for (int i = 0; i < stages; ++i) full.push_back(s.add_barrier(1));
    for (int i = 0; i < stages; ++i) empty.push_back(s.add_barrier(empty_arrivals));
    const int slots = s.add_cells(stages);
    Thread loader{"loader", {}};
    for (int c = 0; c < chunks; ++c) {
      const int slot = c % stages;
      if (c >= window) loader.ops.push_back(wait(full[static_cast<std::size_t>((c - window) % stages)], (c - window) / stages % 2));
      if (wait_empty) loader.ops.push_back(wait(empty[static_cast<std::size_t>(slot)], (c / stages + empty_parity) % 2));
      loader.ops.push_back(expect(full[static_cast<std::size_t>(slot)], 1));
      loader.ops.push_back(copy(slots + slot, c + 1, full[static_cast<std::size_t>(slot)], slot));
    }
    s.threads.push_back(loader);
    for (int w = 0; w < consumers; ++w) {
      Thread consumer{"consumer " + std::to_string(w), {}};
      for (int c = 0; c < chunks; ++c) {
        const int slot = c % stages;
        const Op release = arrive(empty[static_cast<std::size_t>(slot)]);
        consumer.ops.push_back(wait(full[static_cast<std::size_t>(slot)], ((consumer_flips ? c / stages : 0) + full_parity) % 2));
        if (early_release) consumer.ops.push_back(release);
        consumer.ops.push_back(read(slots + slot, c + 1));
        if (consumer_syncs) consumer.ops.push_back(sync());
        if (!early_release) consumer.ops.push_back(release);
      }
      s.threads.push_back(consumer);
    }
    return s;
  }
};

TEST(Explorer, RingIsSoundInOneExecution) {
  const Verdict v = explore(Ring{}.system());
  EXPECT_EQ(v.defect, Defect::none) << v.what;
  EXPECT_EQ(v.executions, 1);
  EXPECT_EQ(verdict(Ring{.stages = 3, .window = 2, .chunks = 10, .consumers = 3, .empty_arrivals = 3}.system()), Defect::none);
  EXPECT_EQ(verdict(Ring{.stages = 2, .window = 1, .chunks = 7}.system()), Defect::none);
}

TEST(Explorer, RingDefects) {
  EXPECT_EQ(verdict(Ring{.empty_parity = 0}.system()), Defect::deadlock);
  EXPECT_NE(verdict(Ring{.full_parity = 1}.system()), Defect::none);
  EXPECT_NE(verdict(Ring{.wait_empty = false}.system()), Defect::none);
  EXPECT_EQ(verdict(Ring{.consumer_syncs = false}.system()), Defect::race);
  EXPECT_EQ(verdict(Ring{.early_release = true}.system()), Defect::race);
  EXPECT_NE(verdict(Ring{.consumer_flips = false}.system()), Defect::none);
  EXPECT_EQ(verdict(Ring{.empty_arrivals = 3}.system()), Defect::deadlock);
  // Two consumers, one of which is enough: the other one's chunk may be overwritten, and its arrival counts for the next phase.
  EXPECT_NE(verdict(Ring{.empty_arrivals = 1}.system()), Defect::none);
  // A window larger than the ring waits for a turn that is over.
  EXPECT_NE(verdict(Ring{.window = 3}.system()), Defect::none);
}

TEST(Explorer, ALaggingWaiterMissesTwoTurns) {
  // One thread completes three phases of a barrier; nothing keeps it back for a waiter that has other things to do first.
  System s;
  const int barrier = s.add_barrier(1);
  s.threads = {{"fast", {arrive(barrier), arrive(barrier), arrive(barrier)}}, {"lagging", {wait(barrier, 0)}}};
  EXPECT_EQ(verdict(s), Defect::missed_turn);
  s.threads[0].ops.pop_back();   // two phases: the waiter may find the wrong parity for ever
  EXPECT_EQ(verdict(s), Defect::deadlock);
  s.threads[0].ops.pop_back();
  EXPECT_EQ(verdict(s), Defect::none);
}

TEST(Explorer, AHastyWaiterMeetsTheParityOfTwoTurnsAgo) {
  // The waiter's second turn looks like none at all, and nothing makes it wait for the first.
  System s;
  const int barrier = s.add_barrier(1);
  Op second = wait(barrier, 1);
  second.turn = 2;
  s.threads = {{"fast", {arrive(barrier), arrive(barrier)}}, {"hasty", {second}}};
  EXPECT_EQ(verdict(s), Defect::missed_turn);
  s.threads[1].ops.insert(s.threads[1].ops.begin(), wait(barrier, 0));
  EXPECT_EQ(verdict(s), Defect::deadlock);   // now it may be late
  s.threads[1].ops.insert(s.threads[1].ops.begin() + 1, arrive(barrier));
  s.threads[0].ops.pop_back();
  EXPECT_EQ(verdict(s), Defect::none);
}

// ---- tags -------------------------------------------------------------------------------------------------------------------

TEST(Explorer, ATagOrdersItsOwnPacketOnly) {
  System s;
  const int packet = s.add_cells(1), plain = s.add_cells(1);
  s.threads = {{"writer", {write(plain, 7), sync(), publish(packet, 1, 5)}}, {"reader", {poll(packet, 1, 5)}}};
  EXPECT_EQ(verdict(s), Defect::none);
  s.threads[1].ops.push_back(read(plain, 7));
  EXPECT_EQ(verdict(s), Defect::race);
  s.threads[0].ops.insert(s.threads[0].ops.end() - 1, fence());
  EXPECT_EQ(verdict(s), Defect::race);   // released, not acquired
  s.threads[1].ops.insert(s.threads[1].ops.begin() + 1, fence());
  EXPECT_EQ(verdict(s), Defect::none);
  s.threads[0].ops.erase(s.threads[0].ops.begin() + 2);
  EXPECT_EQ(verdict(s), Defect::race);   // acquired, not released
}

TEST(Explorer, AFenceOfOneLaneIsNoFenceOfTheOthers) {
  System s;
  const int packet = s.add_cells(1), plain = s.add_cells(1), go = s.add_barrier(1);
  Op by_others = poll(packet, 1, 5);
  by_others.lanes = Lanes::others;
  s.threads = {{"writer", {write(plain, 7), sync(), fence(), publish(packet, 1, 5)}},
               {"launcher", {by_others, fence(), sync(), arrive(go)}},
               {"consumer", {wait(go, 0), read(plain, 7)}}};
  EXPECT_EQ(verdict(s), Defect::none);
  s.threads[1].ops.erase(s.threads[1].ops.begin() + 2);   // lane 0 arrives without what the others acquired
  EXPECT_EQ(verdict(s), Defect::race);
}

/// Two SMs, `layers` turns of two edges, one buffer each: A published, read by all, then B, read by all.
System two_edges(int layers, bool idle_reads, int tag_of_layer) {
  System s;
  const int a = s.add_cells(2), b = s.add_cells(2);
  for (int sm = 0; sm < 2; ++sm) {
    Thread t{"SM " + std::to_string(sm), {}};
    for (int layer = 0; layer < layers; ++layer) {
      const int tag = layer * tag_of_layer + 1;
      if (layer > 0) t.ops.push_back(poll(b, (layer - 1) * tag_of_layer + 1, layer));
      if (layer > 0 && !idle_reads) t.ops.push_back(poll(b + 1, (layer - 1) * tag_of_layer + 1, layer));
      t.ops.push_back(publish(a + sm, tag, layer + 1));
      for (int from = 0; from < 2; ++from) t.ops.push_back(poll(a + from, tag, layer + 1));
      if (sm == 0 || !idle_reads) t.ops.push_back(publish(b + sm, tag, layer + 1));
    }
    s.threads.push_back(t);
  }
  return s;
}

TEST(Explorer, OneTaggedBufferForEachEdgeIsEnough) {
  const Verdict v = explore(two_edges(4, false, 1));
  EXPECT_EQ(v.defect, Defect::none) << v.what;
  EXPECT_EQ(v.executions, 1);
  EXPECT_EQ(verdict(two_edges(4, true, 1)), Defect::deadlock);   // SM 1 reads A and publishes nothing that A's writer waits for
  EXPECT_NE(verdict(two_edges(2, false, 0)), Defect::none);      // the same tag in every layer
}

TEST(Explorer, AnEntryThatIsOverwrittenEarlyLeavesItsReaderWaiting) {
  // Found only in executions where the reader is late.
  System s;
  const int entry = s.add_cells(1);
  s.threads = {{"reader", {poll(entry, 1, 1)}}, {"writer", {publish(entry, 1, 1), publish(entry, 2, 2)}}};
  EXPECT_EQ(verdict(s), Defect::deadlock);
}

// ---- counters ---------------------------------------------------------------------------------------------------------------

/// `sms` producers store a value each and add; readers await the target and load some values.
System counter_edge(int sms, int target, std::vector<int> loads, bool relaxed_add, bool relaxed_await) {
  System s;
  const int values = s.add_cells(sms), counter = s.add_counter();
  for (int sm = 0; sm < sms; ++sm)
    s.threads.push_back({"producer " + std::to_string(sm), {store(values + sm, sm + 1), sync(), add(counter, relaxed_add)}});
  Thread reader{"reader", {await(counter, target, relaxed_await)}};
  for (int sm : loads) reader.ops.push_back(load(values + sm, sm + 1));
  s.threads.push_back(reader);
  return s;
}

TEST(Explorer, Counters) {
  const Verdict v = explore(counter_edge(3, 3, {0, 1, 2}, false, false));
  EXPECT_EQ(v.defect, Defect::none) << v.what;
  EXPECT_EQ(v.executions, 1);
  EXPECT_EQ(verdict(counter_edge(3, 3, {0, 1, 2}, true, false)), Defect::race);
  EXPECT_EQ(verdict(counter_edge(3, 3, {0, 1, 2}, false, true)), Defect::race);
  EXPECT_EQ(verdict(counter_edge(3, 4, {0}, false, false)), Defect::deadlock);
  // One arrival too few: which value is missing depends on the order of the adds, and any of them can be.
  for (int sm = 0; sm < 3; ++sm) EXPECT_NE(verdict(counter_edge(3, 2, {sm}, false, false)), Defect::none) << sm;
  EXPECT_EQ(verdict(counter_edge(3, 1, {}, false, false)), Defect::none);
}

TEST(Explorer, RelaxedValuesMayBeOverwrittenOnceTheirReaderHasSaidSo) {
  System s;
  const int value = s.add_cells(1), answer = s.add_cells(1), counter = s.add_counter();
  s.threads = {{"writer", {store(value, 1), sync(), add(counter), poll(answer, 1, 9), store(value, 2)}},
               {"reader", {await(counter, 1), load(value, 1), publish(answer, 1, 9)}}};
  EXPECT_EQ(verdict(s), Defect::none);
  std::swap(s.threads[1].ops[1], s.threads[1].ops[2]);   // the answer comes before the load
  EXPECT_NE(verdict(s), Defect::none);
}

TEST(Explorer, ValuesThatNobodyWroteAreWrong) {
  System s;
  const int cells = s.add_cells(2), barrier = s.add_barrier(1);
  s.threads = {{"writer", {write(cells, 1), sync(), arrive(barrier)}}, {"reader", {wait(barrier, 0), read(cells, 1), read(cells + 1, 1)}}};
  EXPECT_EQ(verdict(s), Defect::wrong_value);
}

TEST(Explorer, ReportsNameThreadsAndSteps) {
  System s;
  s.barrier_names = {"inputs ready"};
  const int barrier = s.add_barrier(2);
  s.threads = {{"SM 0 controller", {arrive(barrier)}}, {"SM 0 consumer 1", {wait(barrier, 0)}}};
  const Verdict v = explore(s);
  EXPECT_EQ(v.defect, Defect::deadlock);
  EXPECT_EQ(v.what, "all that is left waits: SM 0 consumer 1 in wait barrier inputs ready parity 0");
  ASSERT_EQ(v.trace.size(), 1u);
  EXPECT_EQ(v.trace[0], "SM 0 controller: arrive barrier inputs ready");
}

// ---- against itself -----------------------------------------------------------------------------------------------------------

/// A few threads with a few ops on few objects: mostly unsound, in many ways.
System random_system(std::mt19937_64& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  System s;
  const int barriers = 1 + below(2), cells = s.add_cells(2), counter = s.add_counter(), threads = 2 + below(2);
  for (int b = 0; b < barriers; ++b) s.add_barrier(1 + below(2));
  std::vector<int> tags(2, 1);
  for (int t = 0; t < threads; ++t) {
    Thread thread{"thread " + std::to_string(t), {}};
    for (int i = 0, n = 1 + below(threads == 2 ? 5 : 3); i < n; ++i) {
      const int barrier = below(barriers), cell = cells + below(2);
      switch (below(9)) {
        case 0: thread.ops.push_back(wait(barrier, below(2))); break;
        case 1:
        case 2: thread.ops.push_back(arrive(barrier)); break;
        case 3: thread.ops.push_back(poll(cell, 1 + below(2), 0)); break;
        case 4: thread.ops.push_back(publish(cell, 1 + below(2), 0)); break;
        case 5: thread.ops.push_back(add(counter)); break;
        case 6: thread.ops.push_back(await(counter, 1 + below(2))); break;
        case 7: thread.ops.push_back(below(2) ? store(cell, below(2)) : load(cell, 0)); break;
        default: thread.ops.push_back(below(2) ? write(cell, 0) : read(cell, 0)); break;
      }
    }
    s.threads.push_back(thread);
  }
  return s;
}

/// Small sound protocols, one change each: defects that hide in few of many orders, and changes that do no harm.
System random_mutant(std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  System s;
  switch (below(5)) {
    case 0: s = Ring{.stages = 2, .window = 2, .chunks = 3, .consumers = 1, .empty_arrivals = 1}.system(); break;
    case 1: s = Ring{.stages = 1, .window = 1, .chunks = 2, .consumers = 2}.system(); break;
    case 2: s = two_edges(2, false, 1); break;
    case 3: {   // two turns of a counter edge, the readers' answers by tag
      const int values = s.add_cells(2), answers = s.add_cells(2), counter = s.add_counter();
      for (int sm = 0; sm < 2; ++sm) {
        Thread t{"SM", {}};
        for (int turn = 1; turn <= 2; ++turn) {
          for (const Op& op : {store(values + sm, turn), sync(), add(counter), await(counter, 2 * turn), load(values + 1 - sm, turn),
                               publish(answers + sm, turn, turn), poll(answers + 1 - sm, turn, turn)})
            t.ops.push_back(op);
        }
        s.threads.push_back(t);
      }
      break;
    }
    default: {   // a word handed to two warps, three times
      const int ready = s.add_barrier(1), taken = s.add_barrier(2), word = s.add_cells(1);
      s.threads.resize(3);
      for (int turn = 0; turn < 3; ++turn) {
        for (const Op& op : {wait(taken, 1 - turn % 2), write(word, turn), sync(), arrive(ready)}) s.threads[0].ops.push_back(op);
        for (std::size_t w = 1; w < 3; ++w) {
          for (const Op& op : {wait(ready, turn % 2), read(word, turn), sync(), arrive(taken)}) s.threads[w].ops.push_back(op);
        }
      }
      break;
    }
  }
  std::vector<Op>& ops = s.threads[below(s.threads.size())].ops;
  const std::size_t at = below(ops.size());
  Op& op = ops[at];
  switch (below(6)) {
    case 0: ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: std::swap(op, ops[(at + 1) % ops.size()]); break;
    case 2: std::swap(op, ops[below(ops.size())]); break;
    case 3:
      if (op.kind == OpKind::wait)
        op.argument = 1 - op.argument;
      else if (op.kind == OpKind::await || op.kind == OpKind::poll || op.kind == OpKind::publish)
        op.argument = std::max(1, op.argument + (below(2) ? 1 : -1));
      else
        op.relaxed = true;
      break;
    case 4: {
      const Op again = op;
      ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at), again);
      break;
    }
    default:
      if (!s.barriers.empty()) s.barriers[below(s.barriers.size())] = 1 + static_cast<int>(below(2));
      break;
  }
  return s;
}

void compare(const std::vector<System>& systems, int least_sound, int least_unsound) {
  int sound = 0, unsound = 0;
  std::int64_t reduced_steps = 0, all_steps = 0;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const Verdict reduced = explore(systems[i]), all = explore(systems[i], {.executions = 2000, .reduce = false});
    ASSERT_NE(reduced.defect, Defect::undecided) << i;
    if (all.defect == Defect::undecided) continue;
    ASSERT_EQ(reduced.defect == Defect::none, all.defect == Defect::none)
        << "system " << i << ": " << to_string(reduced.defect) << ", " << reduced.what << "; without reduction "
        << to_string(all.defect) << ", " << all.what;
    (all.defect == Defect::none ? sound : unsound) += 1;
    if (all.defect == Defect::none) {
      reduced_steps += reduced.steps;
      all_steps += all.steps;
    }
  }
  EXPECT_GE(sound, least_sound);
  EXPECT_GE(unsound, least_unsound);
  EXPECT_LT(reduced_steps, all_steps);
}

TEST(Explorer, ReductionLosesNoDefect) {
  std::mt19937_64 random(20261201);
  std::vector<System> systems;
  for (int i = 0; i < 20000; ++i) systems.push_back(random_system(random));
  compare(systems, 500, 10000);
}

TEST(Explorer, ReductionLosesNoDefectOfAlmostSoundProtocols) {
  std::mt19937_64 random(20261202);
  std::vector<System> systems;
  for (int i = 0; i < 1000; ++i) systems.push_back(random_mutant(random));
  compare(systems, 50, 300);
}

}  // namespace
}  // namespace adamk::explorer
