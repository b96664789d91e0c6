#include "adamk/ptx/emulator.h"

#include <gtest/gtest.h>

#include <cstring>

namespace adamk {
namespace {

constexpr const char* head = ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 buffer[];\n";

/// A kernel `k` of one pointer, %rd1 (global), with %r1 = thread and %r2 = block.
std::string kernel(const std::string& body) {
  return std::string(head) + ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<16>;\n.reg .f32 %f<16>;\n"
         "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u64 %rd9, buffer;\ncvt.u32.u64 %r9, %rd9;\n" + body + "\nret;\n}\n";
}

struct Outcome {
  EmulatorReport report;
  std::vector<std::uint32_t> words;
};

Outcome run(const std::string& body, int blocks = 1, int threads = 32, std::size_t words = 64, std::uint64_t seed = 1, bool zeroed = true) {
  Outcome out;
  const auto module = parse_ptx(kernel(body));
  EXPECT_TRUE(module) << (module ? "" : module.error().message);
  if (!module) return out;
  const auto made = EmulatedKernel::make(*module, "k");
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  if (!made) return out;
  EmulatedMemory memory;
  const std::uint64_t address = memory.allocate(static_cast<std::int64_t>(4 * words));
  if (zeroed) static_cast<void>(memory.fill(address, 0, static_cast<std::int64_t>(4 * words)));
  EmulatorLaunch launch;
  launch.blocks = blocks;
  launch.threads = threads;
  launch.shared_bytes = 1024;
  launch.params.resize(8);
  std::memcpy(launch.params.data(), &address, 8);
  EmulatorOptions options;
  options.seed = seed;
  auto report = made->run(memory, launch, options);
  EXPECT_TRUE(report) << (report ? "" : report.error().message);
  if (report) out.report = *report;
  out.words.resize(words);
  static_cast<void>(memory.read(std::as_writable_bytes(std::span(out.words)), address));
  return out;
}

TEST(Emulator, EveryLaneComputesItsOwnValue) {
  const Outcome r = run("mul.lo.s32 %r3, %r1, 7;\nadd.s32 %r3, %r3, -3;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r3;");
  EXPECT_TRUE(r.report.completed) << r.report.error;
  EXPECT_TRUE(r.report.races.empty());
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.words[i], 7 * i - 3) << i;
}

TEST(Emulator, LanesOfALoopLeaveItOneByOneAndMeetAgain) {
  const Outcome r = run(
      "mov.u32 %r3, 0;\nmov.u32 %r4, 0;\n$loop:\nadd.s32 %r3, %r3, %r4;\nadd.s32 %r4, %r4, 1;\nsetp.le.u32 %p1, %r4, %r1;\n@%p1 bra $loop;\n"
      "shfl.sync.bfly.b32 %r5|%p2, %r3, 31, 31, -1;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r5;");
  EXPECT_TRUE(r.report.completed) << r.report.error;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.words[i], (31 - i) * (32 - i) / 2) << i;   // 0 + 1 + ... + (31 - i)
}

TEST(Emulator, OutOfBoundsAndNeverWrittenAreNamed) {
  EXPECT_NE(run("st.global.u32 [%rd1+256], %r1;").report.error.find("writes 4 bytes at offset 256 of an allocation of 256"), std::string::npos);
  EXPECT_NE(run("ld.global.u32 %r3, [%rd1];", 1, 32, 64, 1, false).report.error.find("never written"), std::string::npos);
  EXPECT_NE(run("ld.shared.u32 %r3, [%r9];").report.error.find("never written"), std::string::npos);
  EXPECT_NE(run("ld.global.u32 %r3, [%rd1+2];").report.error.find("not aligned"), std::string::npos);
}

/// Lane 0 copies 64 bytes into shared memory, waits for them, and stores the third word behind them.
std::string bulk_copy(const std::string& fence) {
  return "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $end;\nmov.u32 %r3, 1;\nmov.u32 %r4, 64;\nmbarrier.init.shared.b64 [%r9], %r3;\n" + fence +
         "\nmbarrier.arrive.expect_tx.shared.b64 %rd2, [%r9], %r4;\nadd.s32 %r5, %r9, 64;\n"
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], %r4, [%r9];\nmov.u32 %r6, 0;\n"
         "$wait:\nmbarrier.try_wait.parity.shared.b64 %p2, [%r9], %r6;\n@!%p2 bra $wait;\n"
         "ld.shared.u32 %r7, [%r5+8];\nst.global.u32 [%rd1+128], %r7;\n$end:";
}

TEST(Emulator, ABulkCopyNeedsAWrittenSourceAndAnInitialisationThatItsProxySees) {
  const Outcome good = run(bulk_copy("fence.mbarrier_init.release.cluster;"));
  EXPECT_TRUE(good.report.completed) << good.report.error;
  EXPECT_TRUE(good.report.races.empty());
  EXPECT_TRUE(run(bulk_copy("fence.proxy.async;")).report.races.empty());
  const Outcome blind = run(bulk_copy(""));
  ASSERT_EQ(blind.report.races.size(), 1u);
  EXPECT_EQ(blind.report.races[0].kind, "bulk copy completes an mbarrier whose init is not fenced");
  const Outcome empty = run(bulk_copy("fence.proxy.async;"), 1, 32, 64, 1, false);
  EXPECT_NE(empty.report.error.find("copies 64 bytes at global"), std::string::npos) << empty.report.error;
  EXPECT_NE(empty.report.error.find("never written"), std::string::npos) << empty.report.error;
}

TEST(Emulator, LanesOfOneInstructionMayTouchSharedAndGlobalMemory) {
  // Two warps. Even lanes store into shared memory, odd ones into global; of one kind each warp has words of its own.
  const auto races = [](bool shared_meets) {
    const std::string own = "and.b32 %r4, %r1, 992;\n";   // 32 x warp
    return run("and.b32 %r3, %r1, 31;\n" + own + "add.s32 %r5, %r3, %r4;\n"
               "cvta.shared.u64 %rd2, %rd9;\nmul.wide.u32 %rd3, " + (shared_meets ? "%r3" : "%r5") + ", 4;\nadd.s64 %rd4, %rd2, %rd3;\n"
               "mul.wide.u32 %rd5, " + (shared_meets ? "%r5" : "%r3") + ", 4;\nadd.s64 %rd6, %rd1, %rd5;\n"
               "and.b32 %r6, %r1, 1;\nsetp.eq.s32 %p1, %r6, 0;\nselp.b64 %rd7, %rd4, %rd6, %p1;\nst.u32 [%rd7], %r1;", 1, 64).report;
  };
  for (const bool shared : {true, false}) {
    const EmulatorReport report = races(shared);
    EXPECT_TRUE(report.completed) << report.error;
    ASSERT_EQ(report.races.size(), 1u);
    EXPECT_EQ(report.races[0].kind, "write after write");
    EXPECT_EQ(report.races[0].shared, shared);
    EXPECT_EQ(report.races[0].second.lane % 2, shared ? 0 : 1);
  }
}

/// Block 0 writes a word and then a flag, block 1 waits for the flag and reads the word.
std::string message(const std::string& publish, const std::string& poll) {
  return "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $end;\nsetp.ne.s32 %p2, %r2, 0;\n@%p2 bra $reader;\nmov.u32 %r3, 42;\nst.global.u32 [%rd1], %r3;\n"
         "mov.u32 %r4, 1;\n" + publish + "\nbra $end;\n$reader:\n" + poll + "\nsetp.eq.s32 %p3, %r5, 0;\n@%p3 bra $reader;\n"
         "ld.global.u32 %r6, [%rd1];\nst.global.u32 [%rd1+8], %r6;\n$end:";
}

TEST(Emulator, ReleaseAndAcquireOrderAMessageAndTheirAbsenceIsARace) {
  const std::string release = "red.release.gpu.global.add.u32 [%rd1+4], %r4;", relaxed = "red.relaxed.gpu.global.add.u32 [%rd1+4], %r4;";
  const std::string acquire = "ld.acquire.gpu.global.u32 %r5, [%rd1+4];", weak = "ld.relaxed.gpu.global.u32 %r5, [%rd1+4];";
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const Outcome sound = run(message(release, acquire), 2, 32, 64, seed);
    EXPECT_TRUE(sound.report.completed) << sound.report.error;
    EXPECT_TRUE(sound.report.races.empty()) << sound.report.races.front().kind;
    EXPECT_EQ(sound.words[2], 42u);
    EXPECT_FALSE(run(message(relaxed, acquire), 2, 32, 64, seed).report.races.empty());
    EXPECT_FALSE(run(message(release, weak), 2, 32, 64, seed).report.races.empty());
  }
}

TEST(Emulator, SomeSeedsHaveAWarpLagFarBehindTheOthers) {
  // Block 0 sets a flag after 20,000 instructions; block 1 looks once, at once.
  const std::string body = "setp.ne.s32 %p2, %r2, 0;\n@%p2 bra $look;\nmov.u32 %r4, 0;\n$again:\nadd.s32 %r4, %r4, 1;\nsetp.lt.s32 %p1, %r4, 7000;\n"
                           "@%p1 bra $again;\nst.relaxed.gpu.global.u32 [%rd1], %r4;\nbra $end;\n$look:\nld.relaxed.gpu.global.u32 %r5, [%rd1];\n"
                           "st.global.u32 [%rd1+8], %r5;\n$end:";
  int set = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) set += run(body, 2, 32, 64, seed).words[2] == 7000;
  EXPECT_GT(set, 4);    // a half of the launches, or a little less, let the one warp of block 1 lag
  EXPECT_LT(set, 36);
}

TEST(Emulator, AWaitThatNobodyEndsIsADeadlockThatIsNamed) {
  const Outcome r = run("mov.u32 %r3, 2;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra $wait;\nmbarrier.init.shared.b64 [%r9], %r3;\n$wait:\nbar.sync 0;\n$again:\n"
                    "mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0;\n@!%p2 bra $again;");
  EXPECT_FALSE(r.report.completed);
  ASSERT_FALSE(r.report.deadlock.empty());
  EXPECT_NE(r.report.deadlock[0].what.find("2 of 2 arrivals"), std::string::npos) << r.report.deadlock[0].what;
}

TEST(Emulator, ALaneHandsOnOnlyWhatItsWarpHasSynchronised) {
  const auto body = [](const std::string& sync) {
    return "setp.ne.s32 %p1, %r1, 0;\nmov.u32 %r3, 1;\n@%p1 bra $go;\nmbarrier.init.shared.b64 [%r9], %r3;\n$go:\nbar.sync 0;\n"
           "setp.ge.u32 %p2, %r1, 32;\n@%p2 bra $second;\nshl.b32 %r4, %r1, 2;\nadd.s32 %r4, %r4, %r9;\nst.shared.u32 [%r4+64], %r1;\n" + sync +
           "\n@%p1 bra $end;\nmbarrier.arrive.shared.b64 %rd4, [%r9];\nbra $end;\n$second:\n"
           "mbarrier.try_wait.parity.shared.b64 %p3, [%r9], 0;\n@!%p3 bra $second;\nld.shared.u32 %r6, [%r9+68];\n$end:";
  };
  const Outcome sound = run(body("bar.warp.sync -1;"), 1, 64);
  EXPECT_TRUE(sound.report.completed) << sound.report.error;
  EXPECT_TRUE(sound.report.races.empty()) << sound.report.races.front().kind;
  EXPECT_FALSE(run(body(""), 1, 64).report.races.empty());
}

TEST(Emulator, UnknownFormsAreRefusedByLine) {
  const auto module = parse_ptx(kernel("add.sat.f32 %f1, %f1, %f1;"));
  ASSERT_TRUE(module);
  const auto made = EmulatedKernel::make(*module, "k");
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("PTX line 16: 'add.sat.f32'"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace adamk
