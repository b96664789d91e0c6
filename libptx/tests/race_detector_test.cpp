#include "race_detector.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace adamk::ptx {
namespace {

constexpr std::uint32_t kAll = ~0u;
constexpr std::uint64_t kData = 0x1000000000, kFlag = 0x1000002000, kOther = 0x1000004000;
constexpr std::uint32_t kFull = 0x400, kEmpty = 0x408, kSlot = 0x800;

/// Sequences by hand: two blocks of two warps, 0 and 1, 2 and 3. Each call is an instruction with a line of its own.
struct Launch {
  RaceDetector d{2, 2, 2};
  int line = 0;

  void access(int warp, std::uint32_t lanes, bool shared, std::uint64_t address, int width, AccessKind kind, PtxOrder order,
              int stride = 0, PtxScope scope = PtxScope::gpu, int block = -1, bool constant = false) {
    std::uint64_t addresses[32];
    for (int lane = 0; lane < 32; ++lane) addresses[lane] = address + static_cast<std::uint64_t>(lane * stride);
    d.step(warp);
    d.access(warp, lanes, ++line, shared, block < 0 ? warp / 2 : block, addresses, width, width, kind, order, constant, scope);
  }
  void store(int warp, std::uint64_t at, std::uint32_t lanes = 1, int stride = 0) {
    access(warp, lanes, at < kData, at, 4, AccessKind::write, PtxOrder::weak, stride);
  }
  void load(int warp, std::uint64_t at, std::uint32_t lanes = 1, int stride = 0) {
    access(warp, lanes, at < kData, at, 4, AccessKind::read, PtxOrder::weak, stride);
  }
  void put(int warp, std::uint64_t at, PtxOrder order, int width = 4, PtxScope scope = PtxScope::gpu, std::uint32_t lane = 0) {
    access(warp, 1u << lane, at < kData, at, width, AccessKind::write, order, 0, scope);
  }
  void get(int warp, std::uint64_t at, PtxOrder order, int width = 4, PtxScope scope = PtxScope::gpu, std::uint32_t lane = 0) {
    access(warp, 1u << lane, at < kData, at, width, AccessKind::read, order, 0, scope);
  }
  void add(int warp, std::uint64_t at, PtxOrder order, PtxScope scope = PtxScope::gpu, std::uint32_t lane = 0) {
    access(warp, 1u << lane, at < kData, at, 4, AccessKind::atomic, order, 0, scope);
  }
  void fence(int warp, std::uint32_t lanes = kAll, PtxScope scope = PtxScope::gpu) {
    d.step(warp), d.fence(warp, lanes, scope);
  }
  void warp_sync(int warp, std::uint32_t lanes = kAll) { d.step(warp), d.warp_sync(warp, lanes); }
  void init(int warp, std::uint32_t at, bool fenced = true) {
    d.step(warp), d.barrier_init(warp, 0, ++line, warp / 2, at);
    if (fenced) d.step(warp), d.fence_init(warp, kAll);
  }
  void arrive(int warp, std::uint32_t at, std::uint32_t lanes = 1) {
    d.step(warp), d.barrier_arrive(warp, lanes, ++line, warp / 2, at);
  }
  void complete(int warp, std::uint32_t at) { d.barrier_complete(warp / 2, at); }
  void wait(int warp, std::uint32_t at, std::uint32_t lanes = kAll) {
    d.step(warp), d.barrier_wait(warp, lanes, ++line, warp / 2, at);
  }
  void bar(std::vector<int> warps) {
    for (const int warp : warps) arrive(warp, RaceDetector::kNamedBarrier, kAll);
    complete(warps[0], RaceDetector::kNamedBarrier);
    for (const int warp : warps) wait(warp, RaceDetector::kNamedBarrier);
  }
  int bulk(int warp, std::uint32_t barrier) { return d.step(warp), d.async_begin(warp, 0, ++line, true, warp / 2, barrier); }
  void land(int copy, int warp, std::uint32_t barrier, std::uint64_t from = kOther, std::uint32_t to = kSlot, int bytes = 64) {
    d.async_move(copy, from, to, bytes);
    d.async_complete(copy, warp / 2, barrier);
    d.async_end(copy);
  }
  std::string verdict() const {
    std::string out;
    for (const Race& race : d.races()) out += (out.empty() ? "" : ", ") + race.kind;
    return out;
  }
};

/// Warp 0 writes data and sets a flag, warp 2 of the other block sees it and reads the data.
std::string message(PtxOrder set, PtxOrder seen, bool fence_before, bool fence_behind, PtxScope scope = PtxScope::gpu,
                    int reader = 2) {
  Launch l;
  l.store(0, kData);
  if (fence_before) l.fence(0, kAll, scope);
  l.add(0, kFlag, set, scope);
  l.get(reader, kFlag, seen, 4, scope);
  if (fence_behind) l.fence(reader, kAll, scope);
  l.load(reader, kData);
  return l.verdict();
}

TEST(RaceDetector, AMessageNeedsReleaseAndAcquireOrAFenceOnEachSide) {
  using enum PtxOrder;
  const std::string race = "read after write";
  EXPECT_EQ(message(release, acquire, false, false), "");
  EXPECT_EQ(message(relaxed, acquire, false, false), race);
  EXPECT_EQ(message(release, relaxed, false, false), race);
  EXPECT_EQ(message(release, is_volatile, false, false), race);
  EXPECT_EQ(message(relaxed, relaxed, true, true), "");
  EXPECT_EQ(message(relaxed, acquire, true, false), "");
  EXPECT_EQ(message(release, relaxed, false, true), "");
  EXPECT_EQ(message(relaxed, relaxed, true, false), race);
  EXPECT_EQ(message(relaxed, relaxed, false, true), race);
  // What holds within a block does not hold across blocks.
  EXPECT_EQ(message(release, acquire, false, false, PtxScope::cta, 1), "");
  EXPECT_EQ(message(release, acquire, false, false, PtxScope::cta, 2), race);
  EXPECT_EQ(message(relaxed, relaxed, true, true, PtxScope::cta, 1), "");
  EXPECT_EQ(message(relaxed, relaxed, true, true, PtxScope::cta, 2), race);
  EXPECT_EQ(message(release, acquire, false, false, PtxScope::cluster, 2), "");
}

TEST(RaceDetector, AFenceHandsOnWhatCameBeforeItOfItsOwnLaneOnly) {
  Launch behind;   // the write comes after the fence
  behind.fence(0);
  behind.store(0, kData);
  behind.add(0, kFlag, PtxOrder::relaxed);
  behind.get(2, kFlag, PtxOrder::acquire);
  behind.load(2, kData);
  EXPECT_EQ(behind.verdict(), "read after write");

  for (const bool sync : {true, false}) {   // lane 7 writes, lane 0 sets the flag
    Launch l;
    l.store(0, kData, 1u << 7);
    if (sync) l.warp_sync(0);
    l.fence(0);
    l.add(0, kFlag, PtxOrder::relaxed);
    l.get(2, kFlag, PtxOrder::acquire);
    l.load(2, kData);
    EXPECT_EQ(l.verdict(), sync ? "" : "read after write");
  }
  for (const bool sync : {true, false}) {   // lane 3 sees the flag and fences, lane 0 reads
    Launch l;
    l.store(0, kData);
    l.fence(0);
    l.put(0, kFlag, PtxOrder::relaxed, 8);
    l.get(2, kFlag, PtxOrder::relaxed, 8, PtxScope::gpu, 3);
    l.fence(2);
    if (sync) l.warp_sync(2);
    l.load(2, kData);
    EXPECT_EQ(l.verdict(), sync ? "" : "read after write");
  }
}

TEST(RaceDetector, AtomicsGoOnWithAReleaseAndAStoreEndsIt) {
  Launch chain;
  chain.store(0, kData);
  chain.add(0, kFlag, PtxOrder::release);
  chain.add(1, kFlag, PtxOrder::relaxed);
  chain.get(2, kFlag, PtxOrder::acquire);
  chain.load(2, kData);
  EXPECT_EQ(chain.verdict(), "");

  Launch both;   // two producers of one counter
  both.store(0, kData);
  both.store(1, kData + 4);
  both.add(0, kFlag, PtxOrder::release);
  both.add(1, kFlag, PtxOrder::release);
  both.get(2, kFlag, PtxOrder::acquire);
  both.load(2, kData);
  both.load(2, kData + 4);
  EXPECT_EQ(both.verdict(), "");

  Launch ended;
  ended.store(0, kData);
  ended.add(0, kFlag, PtxOrder::release);
  ended.put(1, kFlag, PtxOrder::is_volatile);
  ended.get(2, kFlag, PtxOrder::acquire);
  ended.load(2, kData);
  EXPECT_EQ(ended.verdict(), "read after write");
}

/// Warp 0 fills a buffer, lane by lane, and lane 0 arrives; warp 1 waits and reads it.
std::string hand_over(bool sync, std::uint32_t mask) {
  Launch l;
  l.store(0, kSlot, kAll, 4);
  if (sync) l.warp_sync(0, mask);
  l.arrive(0, kFull);
  l.complete(0, kFull);
  l.wait(1, kFull);
  l.load(1, kSlot, 0xff, 4);
  return l.verdict();
}

TEST(RaceDetector, ALaneThatArrivesHandsOnWhatItsWarpHasSynchronised) {
  EXPECT_EQ(hand_over(true, kAll), "");
  EXPECT_EQ(hand_over(false, 0), "read after write");
  EXPECT_EQ(hand_over(true, 0xff), "");   // the lanes whose words are read
  EXPECT_EQ(hand_over(true, 0x7f), "read after write");
  Launch each;   // or every lane arrives itself
  each.store(0, kSlot, kAll, 4);
  each.arrive(0, kFull, kAll);
  each.complete(0, kFull);
  each.wait(1, kFull);
  each.load(1, kSlot + 124);
  EXPECT_EQ(each.verdict(), "");
  Launch halves;   // in two instructions
  halves.store(0, kSlot, kAll, 4);
  halves.arrive(0, kFull, 0xffff);
  halves.arrive(0, kFull, 0xffff0000);
  halves.complete(0, kFull);
  halves.wait(1, kFull);
  halves.load(1, kSlot, kAll, 4);
  EXPECT_EQ(halves.verdict(), "");
}

TEST(RaceDetector, OnlyTheLaneThatWaitedKnowsUntilItsWarpSynchronises) {
  for (const bool sync : {true, false}) {
    Launch l;
    l.store(0, kSlot);
    l.arrive(0, kFull);
    l.complete(0, kFull);
    l.wait(1, kFull, 1);
    l.load(1, kSlot);
    EXPECT_EQ(l.verdict(), "");
    if (sync) l.warp_sync(1);
    l.load(1, kSlot, 1u << 9);
    EXPECT_EQ(l.verdict(), sync ? "" : "read after write");
  }
  Launch alone;   // the others have left: it speaks for the warp
  alone.d.lanes_left(1, ~1u);
  alone.store(0, kSlot);
  alone.arrive(0, kFull);
  alone.complete(0, kFull);
  alone.wait(1, kFull, 1);
  alone.load(1, kSlot);
  EXPECT_EQ(alone.verdict(), "");
}

TEST(RaceDetector, AWaitLearnsThePhaseThatHasCompletedAndNotTheOneInProgress) {
  Launch l;
  l.store(0, kSlot);
  l.arrive(0, kFull);
  l.complete(0, kFull);
  l.store(0, kSlot + 4);
  l.arrive(0, kFull);   // not complete yet; a wait for the wrong parity passes on the first
  l.wait(1, kFull);
  l.load(1, kSlot);
  EXPECT_EQ(l.verdict(), "");
  l.load(1, kSlot + 4);
  EXPECT_EQ(l.verdict(), "read after write");
}

TEST(RaceDetector, AnMbarrierIsUsedByThoseWhoKnowThatItWasSetUp) {
  for (const bool sync : {true, false}) {
    Launch l;
    l.init(0, kFull);
    if (sync) l.bar({0, 1});
    l.arrive(1, kFull);
    EXPECT_EQ(l.verdict(), sync ? "" : "mbarrier used after its init");
  }
}

TEST(RaceDetector, ABulkCopyCompletesAnMbarrierWhoseInitWasFencedByTheLaneThatMadeItAndSynchronised) {
  const auto run = [](bool before, int fences, std::uint32_t lanes, bool after) {
    Launch l;
    l.init(0, kFull, false);
    if (before) l.bar({0, 1});
    if (fences >= 0) l.d.step(fences), l.d.fence_init(fences, lanes);
    if (after) l.bar({0, 1});
    l.land(l.bulk(1, kFull), 1, kFull);
    return l.verdict();
  };
  const std::string unfenced = "bulk copy completes an mbarrier whose init is not fenced";
  EXPECT_EQ(run(false, 0, kAll, true), "");
  EXPECT_EQ(run(false, -1, 0, true), unfenced);
  EXPECT_EQ(run(false, 0, kAll & ~1u, true), unfenced);   // other lanes
  EXPECT_EQ(run(true, 1, kAll, false), unfenced);         // another warp
  EXPECT_EQ(run(true, 0, kAll, false), unfenced);         // too late for the copy to know
}

/// A ring of one slot: warp 0 copies, warp 1 reads all of it with all lanes and gives it back, twice.
std::string ring(bool wait_full, bool release_late, bool wait_empty, bool sync = true) {
  Launch l;
  l.init(0, kFull);
  l.init(0, kEmpty);
  l.bar({0, 1});
  for (int turn = 0; turn < 2; ++turn) {
    if (turn > 0 && wait_empty) l.wait(0, kEmpty, 1);
    l.arrive(0, kFull);
    l.land(l.bulk(0, kFull), 0, kFull, kOther + 4096u * static_cast<unsigned>(turn), kSlot, 128);
    l.complete(0, kFull);
    if (wait_full) l.wait(1, kFull);
    if (!release_late) l.arrive(1, kEmpty);
    l.load(1, kSlot, kAll, 4);
    if (sync) l.warp_sync(1);
    if (release_late) l.arrive(1, kEmpty);
    l.complete(1, kEmpty);
  }
  return l.verdict();
}

TEST(RaceDetector, ARingOfBulkCopies) {
  EXPECT_EQ(ring(true, true, true), "");
  EXPECT_NE(ring(false, true, true).find("read after write"), std::string::npos);
  EXPECT_EQ(ring(true, false, true), "write after read");         // early slot release
  EXPECT_EQ(ring(true, true, true, false), "write after read");   // no bar.warp.sync before lane 0 releases
  const std::string blind = ring(true, true, false);              // fills it again at once
  EXPECT_NE(blind.find("write after read"), std::string::npos);
  EXPECT_NE(blind.find("write after write"), std::string::npos);
}

TEST(RaceDetector, ACopyIsNotKnownBeforeItsPhaseCompletesAndReportsSayThatItIsOne) {
  Launch l;
  const int copy = l.bulk(0, kFull);
  l.load(1, kSlot);   // before it lands
  l.land(copy, 0, kFull);
  ASSERT_EQ(l.verdict(), "write after read");
  const Race& race = l.d.races()[0];
  EXPECT_TRUE(race.second_async);
  EXPECT_FALSE(race.first_async);
  EXPECT_TRUE(race.shared);
  EXPECT_EQ(race.address, kSlot);
  EXPECT_EQ(race.first_warp, 1);
  EXPECT_EQ(race.first_line, 2);
  EXPECT_EQ(race.second_warp, 0);
  EXPECT_EQ(race.second_line, 1);

  Launch early;   // two copies on one barrier; the phase completes while the first is on its way
  const int first = early.bulk(0, kFull), second = early.bulk(0, kFull);
  early.d.async_move(second, kOther, kSlot + 64, 64);
  early.d.async_complete(second, 0, kFull);
  early.complete(0, kFull);
  early.wait(1, kFull);
  early.d.async_move(first, kOther, kSlot, 64);
  early.load(1, kSlot);
  EXPECT_EQ(early.verdict(), "read after write");
  EXPECT_TRUE(early.d.races()[0].first_async);
}

TEST(RaceDetector, CpAsyncIsKnownToTheLaneThatWaitsForItsGroup) {
  const auto run = [](int copies, int left, std::uint32_t reader, bool sync) {
    Launch l;
    for (int i = 0; i < copies; ++i) {
      l.d.step(0);
      for (int lane = 0; lane < 2; ++lane) {
        const int copy = l.d.async_begin(0, lane, 100 + i, false, 0, 0);
        l.d.async_move(copy, kOther + 16u * static_cast<unsigned>(lane),
                       kSlot + 64u * static_cast<unsigned>(i) + 16u * static_cast<unsigned>(lane), 16);
        l.d.async_end(copy);
      }
      l.d.async_commit(0, kAll);
    }
    l.d.step(0);
    l.d.async_wait(0, kAll, left);
    if (sync) l.warp_sync(0);
    for (int i = 0; i < copies - std::max(left, 0); ++i) l.load(0, kSlot + 64u * static_cast<unsigned>(i), 1u << reader);
    const std::string landed = l.verdict();
    if (left > 0) l.load(0, kSlot + 64u * static_cast<unsigned>(copies - left), 1u << reader);
    return landed + "|" + l.verdict();
  };
  EXPECT_EQ(run(3, 0, 0, false), "|");
  EXPECT_EQ(run(3, -1, 0, false), "|");
  EXPECT_EQ(run(3, 1, 0, false), "|read after write");                   // the group it left open
  EXPECT_EQ(run(1, 0, 1, false), "read after write|read after write");   // lane 0's bytes
  EXPECT_EQ(run(1, 0, 1, true), "|");
}

TEST(RaceDetector, CpAsyncMayArriveAtAnMbarrierForAllThatTheLaneCopiedBefore) {
  const auto run = [](bool arrival_behind) {
    Launch l;
    const auto copy = [&] {
      l.d.step(0);
      for (int lane = 0; lane < 32; ++lane) {
        const int one = l.d.async_begin(0, lane, 7, false, 0, 0);
        l.d.async_move(one, kOther + 16u * static_cast<unsigned>(lane), kSlot + 16u * static_cast<unsigned>(lane), 16);
        l.d.async_end(one);
      }
    };
    const auto arrive = [&] {
      l.d.step(0);
      for (int lane = 0; lane < 32; ++lane) {
        const int one = l.d.async_begin(0, lane, 8, false, 0, kFull);
        l.d.async_complete(one, 0, kFull);
        l.d.async_end(one);
      }
    };
    if (!arrival_behind) arrive();
    copy();
    if (arrival_behind) arrive();
    l.complete(0, kFull);
    l.wait(1, kFull);
    l.load(1, kSlot, kAll, 16);
    return l.verdict();
  };
  EXPECT_EQ(run(true), "");
  EXPECT_EQ(run(false), "read after write");
}

TEST(RaceDetector, WhatABulkCopyReadsIsOrderedAndFencedAcrossProxies) {
  const auto run = [](bool release, bool writer_fence, bool reader_fence) {
    Launch l;
    l.store(0, kData);
    if (writer_fence) l.d.step(0), l.d.fence_proxy(0);
    l.add(0, kFlag, release ? PtxOrder::release : PtxOrder::relaxed);
    l.get(2, kFlag, PtxOrder::acquire);
    if (reader_fence) l.d.step(2), l.d.fence_proxy(2);
    l.land(l.bulk(2, kFull), 2, kFull, kData);
    return l.verdict();
  };
  EXPECT_EQ(run(true, true, false), "");
  EXPECT_EQ(run(true, false, true), "");
  EXPECT_EQ(run(true, false, false), "read after write without fence.proxy.async");
  EXPECT_EQ(run(false, true, true), "read after write");

  Launch late;   // the fence came before the write
  late.d.step(0), late.d.fence_proxy(0);
  late.store(0, kData);
  late.add(0, kFlag, PtxOrder::release);
  late.get(2, kFlag, PtxOrder::acquire);
  late.land(late.bulk(2, kFull), 2, kFull, kData);
  EXPECT_EQ(late.verdict(), "read after write without fence.proxy.async");

  Launch over;   // written while the copy may still read
  const int copy = over.bulk(0, kFull);
  over.land(copy, 0, kFull, kData);
  over.store(1, kData);
  EXPECT_EQ(over.verdict(), "write after read");
}

TEST(RaceDetector, PacketsOrderNothingButThemselves) {
  Launch l;
  l.put(0, kFlag, PtxOrder::relaxed, 8);
  l.get(2, kFlag, PtxOrder::relaxed, 8);
  l.put(0, kFlag, PtxOrder::relaxed, 8);
  EXPECT_EQ(l.verdict(), "");

  Launch neighbour;   // an untagged word beside it
  neighbour.store(0, kData);
  neighbour.put(0, kFlag, PtxOrder::relaxed, 8);
  neighbour.get(2, kFlag, PtxOrder::relaxed, 8);
  neighbour.load(2, kData);
  EXPECT_EQ(neighbour.verdict(), "read after write");

  Launch halves;   // two 32-bit stores are no packet, though read as one
  halves.put(0, kFlag, PtxOrder::relaxed, 4);
  halves.put(0, kFlag + 4, PtxOrder::relaxed, 4);
  halves.get(2, kFlag, PtxOrder::relaxed, 8);
  EXPECT_EQ(halves.verdict(), "read after write, read after write");

  Launch plain;   // read by a plain load: the two halves of it may be of different writes
  plain.put(0, kFlag, PtxOrder::relaxed, 8);
  plain.load(2, kFlag);
  EXPECT_EQ(plain.verdict(), "read after write");
}

TEST(RaceDetector, RelaxedDataBehindACounterNeedsItsRelease) {
  const auto run = [](PtxOrder add, PtxOrder poll) {
    Launch l;
    l.access(0, kAll, false, kData, 4, AccessKind::write, PtxOrder::relaxed, 4);
    l.warp_sync(0);
    l.add(0, kFlag, add);
    l.get(2, kFlag, poll);   // the controller, lane 0, lets its warps go
    l.arrive(2, kFull);
    l.complete(2, kFull);
    l.wait(3, kFull);
    l.access(3, 0xffff, false, kData, 8, AccessKind::read, PtxOrder::relaxed, 8);
    return l.verdict();
  };
  EXPECT_EQ(run(PtxOrder::release, PtxOrder::acquire), "");
  EXPECT_EQ(run(PtxOrder::relaxed, PtxOrder::acquire), "read after write");
  EXPECT_EQ(run(PtxOrder::release, PtxOrder::relaxed), "read after write");
}

TEST(RaceDetector, ADependencyOrdersAReadBeforeAnOverwriteAndNothingElse) {
  const auto run = [](bool packet, int first,
                      int last) {   // warp 0 does `first` to the data, warp 2 `last`; 0 reads, 1 writes
    Launch l;
    if (first == 0) l.load(0, kData);
    else l.store(0, kData);
    if (packet) {
      l.put(0, kFlag, PtxOrder::relaxed, 8);
      l.get(3, kFlag, PtxOrder::relaxed, 8);
      l.put(3, kFlag + 8, PtxOrder::relaxed, 8);   // through a third
      l.get(2, kFlag + 8, PtxOrder::relaxed, 8);
    }
    if (last == 0) l.load(2, kData);
    else l.store(2, kData);
    return l.verdict();
  };
  EXPECT_EQ(run(true, 0, 1), "");
  EXPECT_EQ(run(false, 0, 1), "write after read");
  EXPECT_EQ(run(true, 1, 0), "read after write");
  EXPECT_EQ(run(true, 1, 1), "write after write");

  Launch behind;   // read after the packet was written: nothing depends on it
  behind.put(0, kFlag, PtxOrder::relaxed, 8);
  behind.load(0, kData);
  behind.get(2, kFlag, PtxOrder::relaxed, 8);
  behind.store(2, kData);
  EXPECT_EQ(behind.verdict(), "write after read");

  for (const bool read :
       {true, false}) {   // a packet of another warp is overwritten by who has seen it, or something behind it
    Launch l;
    l.put(0, kFlag, PtxOrder::relaxed, 8);
    if (read) l.get(2, kFlag, PtxOrder::relaxed, 8);
    l.put(2, kFlag, PtxOrder::relaxed, 8);
    EXPECT_EQ(l.verdict(), read ? "" : "write after write");
  }
  // An mbarrier passes dependencies on, but lane 0 does not speak for lanes it has not synchronised with.
  Launch lanes;
  lanes.load(0, kSlot, kAll, 4);
  lanes.arrive(0, kFull);
  lanes.complete(0, kFull);
  lanes.wait(1, kFull);
  lanes.store(1, kSlot, 0xff, 4);
  EXPECT_EQ(lanes.verdict(), "write after read");
}

TEST(RaceDetector, EveryReaderCounts) {
  const auto run = [](bool first, bool second) {   // warps 0 and 1 read, warp 2 writes after the ones it heard of
    Launch l;
    l.load(0, kData);
    l.load(1, kData);
    l.load(0, kData);
    if (first) l.add(0, kFlag, PtxOrder::release);
    if (second) l.add(1, kFlag, PtxOrder::release);
    if (first || second) l.get(2, kFlag, PtxOrder::acquire);
    l.store(2, kData);
    return l.verdict();
  };
  EXPECT_EQ(run(true, true), "");
  EXPECT_EQ(run(true, false), "write after read");
  EXPECT_EQ(run(false, true), "write after read");
  for (const std::uint32_t later : {1u, kAll}) {   // all lanes read, then some again; then lane 0 arrives
    Launch l;
    l.load(0, kSlot, kAll);
    l.load(0, kSlot, later);
    l.arrive(0, kFull);
    l.complete(0, kFull);
    l.wait(1, kFull);
    l.store(1, kSlot);
    EXPECT_EQ(l.verdict(), "write after read");
  }
}

TEST(RaceDetector, APollIsNoReadOfData) {
  Launch l;   // polled before it is set, by an acquire and by a relaxed load
  l.get(2, kFlag, PtxOrder::acquire);
  l.get(3, kFlag, PtxOrder::relaxed);
  l.add(0, kFlag, PtxOrder::release);
  l.get(1, kFlag, PtxOrder::relaxed);
  EXPECT_EQ(l.verdict(), "");
  l.store(3, kFlag);   // but to clear it by a plain store is no business of a flag
  EXPECT_EQ(l.verdict(), "write after write, write after read");

  Launch seen;   // nor to clear what somebody may still poll
  seen.get(2, kFlag, PtxOrder::acquire);
  seen.store(0, kFlag);
  EXPECT_EQ(seen.verdict(), "write after read");
}

TEST(RaceDetector, BarriersOfABlock) {
  Launch l;
  l.store(0, kSlot, kAll, 4);
  l.bar({0, 1});
  l.load(1, kSlot + 40);
  l.store(1, kSlot + 44);
  EXPECT_EQ(l.verdict(), "");
  l.load(0, kSlot + 44);
  EXPECT_EQ(l.verdict(), "read after write");

  Launch split;   // bar.arrive hands on what came before it, and learns nothing
  split.store(0, kSlot);
  split.arrive(0, RaceDetector::kNamedBarrier + 3, kAll);
  split.store(0, kSlot + 4);
  split.store(1, kSlot + 8);
  split.arrive(1, RaceDetector::kNamedBarrier + 3, kAll);
  split.complete(1, RaceDetector::kNamedBarrier + 3);
  split.wait(1, RaceDetector::kNamedBarrier + 3);
  split.load(1, kSlot);
  EXPECT_EQ(split.verdict(), "");
  split.load(1, kSlot + 4);
  split.load(0, kSlot + 8);
  EXPECT_EQ(split.verdict(), "read after write, read after write");
}

TEST(RaceDetector, AClusterSynchronisesBetweenArriveAndWait) {
  Launch l;
  const auto remote = [&](int warp, std::uint32_t at, AccessKind kind) {
    l.access(warp, 1, true, at, 4, kind, PtxOrder::weak, 0, PtxScope::none, 0);   // block 0's shared memory
  };
  remote(0, kSlot, AccessKind::write);
  for (int warp = 0; warp < 4; ++warp) l.d.step(warp), l.d.barrier_arrive(warp, kAll, 0, 0, RaceDetector::kClusterBarrier);
  remote(0, kSlot + 4, AccessKind::write);   // behind its arrival
  l.d.barrier_complete(0, RaceDetector::kClusterBarrier);
  for (int warp = 0; warp < 4; ++warp) l.d.step(warp), l.d.barrier_wait(warp, kAll, 0, 0, RaceDetector::kClusterBarrier);
  remote(3, kSlot, AccessKind::read);
  EXPECT_EQ(l.verdict(), "");
  remote(3, kSlot + 4, AccessKind::read);
  EXPECT_EQ(l.verdict(), "read after write");
  l.load(2, kSlot + 4);   // the same offset in block 1 is another place
  EXPECT_EQ(l.d.races().size(), 1u);
}

TEST(RaceDetector, PiecesOfAVectorAreToldApartUntilItIsWrittenAsAWhole) {
  Launch l;
  const auto vector = [&](int warp, AccessKind kind) {
    std::uint64_t addresses[32] = {kData};
    l.d.step(warp);
    l.d.access(warp, 1, ++l.line, false, 0, addresses, 4, 16, kind, PtxOrder::weak);
  };
  vector(0, AccessKind::write);
  l.store(0, kData + 4);
  l.add(0, kFlag, PtxOrder::release);
  l.store(1, kData + 8);   // a word that nobody has read
  EXPECT_EQ(l.verdict(), "write after write");
  l.get(2, kFlag, PtxOrder::acquire);
  l.load(2, kData + 4);
  l.load(2, kData + 12);
  EXPECT_EQ(l.d.races().size(), 1u);
  vector(2, AccessKind::read);   // meets warp 1's word
  ASSERT_EQ(l.verdict(), "write after write, read after write");
  EXPECT_EQ(l.d.races()[1].address, kData + 8);
  EXPECT_EQ(l.d.races()[1].first_warp, 1);
  vector(3, AccessKind::write);   // after reads of words and of all: one report for each line that was not waited for
  EXPECT_EQ(l.d.races().size(), 6u);
  vector(3, AccessKind::read);
  EXPECT_EQ(l.d.races().size(), 6u);
  l.load(2, kData + 12);
  EXPECT_EQ(l.verdict().substr(l.verdict().rfind(',') + 2), "read after write");
}

TEST(RaceDetector, AVolatileWordOfSharedMemoryIsDataBehindABarrier) {
  for (const bool wait : {true, false}) {
    Launch l;
    l.put(0, kSlot, PtxOrder::is_volatile);
    l.arrive(0, kFull);
    l.complete(0, kFull);
    if (wait) l.wait(1, kFull);
    l.get(1, kSlot, PtxOrder::is_volatile);
    EXPECT_EQ(l.verdict(), wait ? "" : "read after write");
  }
}

TEST(RaceDetector, BytesOfAWordAreToldApart) {
  Launch l;
  const auto half = [&](int warp, int which, AccessKind kind, std::uint32_t lane = 0) {
    l.access(warp, 1u << lane, false, kData + 2u * static_cast<unsigned>(which), 2, kind, PtxOrder::weak);
  };
  half(0, 0, AccessKind::write, 0);
  half(0, 1, AccessKind::write, 1);   // the other half, by another lane
  half(0, 0, AccessKind::read, 0);
  half(0, 1, AccessKind::read, 1);
  EXPECT_EQ(l.verdict(), "");
  half(2, 1, AccessKind::read);
  EXPECT_EQ(l.verdict(), "read after write");
  Launch whole;
  whole.store(0, kData);
  whole.access(2, 1, false, kData + 3, 1, AccessKind::write, PtxOrder::weak);
  EXPECT_EQ(whole.verdict(), "write after write");
}

TEST(RaceDetector, ReadOnlyLoadsAreOfWhatNobodyWrites) {
  const auto read = [](Launch& l, int warp, std::uint64_t at) {
    l.access(warp, 1, false, at, 4, AccessKind::read, PtxOrder::weak, 0, PtxScope::none, -1, true);
  };
  Launch before;
  read(before, 0, kData);
  before.store(2, kData);
  EXPECT_EQ(before.verdict(), "write after read");
  Launch ordered;
  read(ordered, 0, kData);
  ordered.add(0, kFlag, PtxOrder::release);
  ordered.get(2, kFlag, PtxOrder::acquire);
  ordered.store(2, kData);
  EXPECT_EQ(ordered.verdict(), "");
  read(ordered, 2, kData);   // by the writer itself even
  EXPECT_EQ(ordered.verdict(), "read-only load after write");
}

TEST(RaceDetector, OneReportForEachPairOfLinesAndNoMoreThanAHundred) {
  Launch l;
  l.store(0, kData, kAll, 4);
  l.load(2, kData, kAll, 4);
  EXPECT_EQ(l.d.races().size(), 1u);
  for (int i = 0; i < 200; ++i) l.load(2, kData);
  EXPECT_EQ(l.d.races().size(), 100u);
}

// ---- against an oracle ----------------------------------------------------------------------------------------------------

/// Happens-before thread by thread, and every access of a word kept: what the detector must find and nothing else.
class Oracle {
 public:
  static constexpr int kLanes[3] = {0, 5, 9};
  using Vector = std::array<int, 9>;   // 3 warps of 3 lanes
  void access(int thread, int word, bool write) {
    ++now_[static_cast<std::size_t>(thread)][static_cast<std::size_t>(thread)];
    const Vector& mine = now_[static_cast<std::size_t>(thread)];
    for (const Past& past : past_[word])
      if ((past.write || write) && mine[static_cast<std::size_t>(past.thread)] < past.time) racy_.insert(word);
    past_[word].push_back({thread, mine[static_cast<std::size_t>(thread)], write});
  }
  void release(int thread, int object) { join(object_[object], now_[static_cast<std::size_t>(thread)]); }
  void acquire(int thread, int object) { join(now_[static_cast<std::size_t>(thread)], object_[object]); }
  void warp_sync(int warp) {
    Vector all{};
    for (int i = 0; i < 3; ++i) join(all, now_[static_cast<std::size_t>(3 * warp + i)]);
    for (int i = 0; i < 3; ++i) now_[static_cast<std::size_t>(3 * warp + i)] = all;
  }
  const std::set<int>& racy() const { return racy_; }

 private:
  struct Past {
    int thread, time;
    bool write;
  };
  static void join(Vector& into, const Vector& from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
  }
  std::array<Vector, 9> now_{};
  std::map<int, Vector> object_;
  std::map<int, std::vector<Past>> past_;
  std::set<int> racy_;
};

TEST(RaceDetector, AgreesWithAnOracleOnRandomTraces) {
  int racy = 0, clean = 0;
  for (unsigned seed = 1; seed <= 4000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    const bool whole = seed % 2 == 0;   // warps synchronise before they hand on: nothing may be reported that is no race
    Oracle oracle;
    RaceDetector d(3, 1);
    int line = 0;
    for (int event = 0; event < static_cast<int>(6 + seed / 2 % 55); ++event) {
      const int warp = below(3), i = below(3), lane = Oracle::kLanes[i], thread = 3 * warp + i, object = below(2);
      const std::uint32_t mask = 1u << lane;
      std::uint64_t addresses[32];
      const auto all_lanes = [&] {
        d.step(warp);
        d.warp_sync(warp, kAll);
        oracle.warp_sync(warp);
      };
      switch (below(10)) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const int word = below(4);
          const bool write = below(3) == 0;
          addresses[lane] = kData + 4u * static_cast<unsigned>(word);
          d.step(warp);
          d.access(warp, mask, ++line, false, warp, addresses, 4, 4, write ? AccessKind::write : AccessKind::read,
                   PtxOrder::weak);
          oracle.access(thread, word, write);
          break;
        }
        case 4:
        case 5:
          if (whole) all_lanes();
          addresses[lane] = kFlag + 64u * static_cast<unsigned>(object);
          d.step(warp);
          d.access(warp, mask, ++line, false, warp, addresses, 4, 4, AccessKind::atomic, PtxOrder::release);
          oracle.release(thread, object);
          break;
        case 6:
        case 7:
          addresses[lane] = kFlag + 64u * static_cast<unsigned>(object);
          d.step(warp);
          d.access(warp, mask, ++line, false, warp, addresses, 4, 4, AccessKind::read, PtxOrder::acquire);
          oracle.acquire(thread, object);
          if (whole) all_lanes();
          break;
        case 8: {   // an mbarrier of block 0 on which every arrival completes a phase
          if (whole) all_lanes();
          d.step(warp);
          d.barrier_arrive(warp, mask, ++line, 0, kFull);
          d.barrier_complete(0, kFull);
          oracle.release(thread, 9);
          const int other = below(3);
          d.step(other);
          d.barrier_wait(other, kAll, ++line, 0, kFull);
          for (int k = 0; k < 3; ++k) oracle.acquire(3 * other + k, 9);
          break;
        }
        default: all_lanes();
      }
    }
    std::set<int> found;
    for (const Race& race : d.races()) found.insert(static_cast<int>((race.address - kData) / 4));
    EXPECT_TRUE(std::includes(found.begin(), found.end(), oracle.racy().begin(), oracle.racy().end()))
        << "missed with seed " << seed;
    if (whole) {
      EXPECT_EQ(found, oracle.racy()) << "seed " << seed;
    }
    ++(oracle.racy().empty() ? clean : racy);
  }
  EXPECT_GT(racy, 500);   // both happen often enough to mean something
  EXPECT_GT(clean, 100);
}

}   // namespace
}   // namespace adamk::ptx
