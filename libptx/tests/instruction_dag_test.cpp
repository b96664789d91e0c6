#include "adamk/ptx/instruction_dag.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace adamk {
namespace {

KernelFacts facts() {
  KernelFacts f;
  f.entry = "k";
  f.watchdog = "give_up";
  f.shared = {{"partials", 0, 1024}, {"ring", 1024, 8192}};
  f.parameters = {{"weights", 0, 8, false, true}, {"exchange", 8, 8, false, false}, {"steps", 16, 4, true, false},
                  {"mode", 20, 4, false, false}};
  f.warps = {{"consumer", 8}};
  return f;
}

/// A kernel with these statements; %r, %rd, %f, %p are at hand, %rd1 points to weights and %rd2 to the exchange.
std::string kernel(const std::string& statements, const std::string& target = "sm_90a") {
  return ".version 9.0\n.target " + target + R"(
.address_size 64
.extern .shared .align 128 .b8 shared_memory[];
.func (.param .b32 given_up) give_up(.param .b32 seen)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [seen];
	st.param.b32 [given_up], %r1;
	ret;
}
.visible .entry k(.param .align 8 .b8 p[24])
{
	.reg .pred %p<10>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<20>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [p+8];
	ld.param.u32 %r1, [p+16];
	ld.param.u32 %r2, [p+20];
	mov.u32 %r3, %tid.x;
	mov.u32 %r4, shared_memory;
	// adamk: consumer qkv
)" + statements + "\tret;\n}\n";
}

InstructionDag dag_of(const std::string& statements, const std::string& target = "sm_90a") {
  const auto module = parse_ptx(kernel(statements, target));
  EXPECT_TRUE(module) << (module ? "" : module.error().message);
  if (!module) return {};
  auto dag = make_instruction_dag(*module, facts());
  EXPECT_TRUE(dag) << (dag ? "" : dag.error().message);
  return dag ? *dag : InstructionDag{};
}

const InstructionPiece& piece(const InstructionDag& dag, std::string_view name = "once") {
  static const InstructionPiece none;
  for (const InstructionPiece& each : dag.pieces)
    if (each.role == "consumer" && each.name == name) return each;
  ADD_FAILURE() << "no piece " << name;
  return none;
}

/// Edges as (from, to, hazard, over), by the nodes' numbers.
using EdgeKey = std::tuple<int, int, std::string, std::string>;
std::set<EdgeKey> edges(const InstructionPiece& piece) {
  std::set<EdgeKey> out;
  for (const InstructionEdge& e : piece.edges)
    out.emplace(e.from, e.to, std::string(to_string(e.hazard)), piece.over[static_cast<std::size_t>(e.over)]);
  return out;
}

std::vector<std::string> classes(const InstructionDag& dag) {
  std::vector<std::string> out;
  for (const BranchNote& note : dag.branches)
    if (note.function == "k") out.emplace_back(to_string(note.branch));
  return out;
}
using Classes = std::vector<std::string>;

// ---- costs ---------------------------------------------------------------------------------------------------------------

TEST(LatencyTable, an_sm_without_a_table_gets_the_nearest_below_and_says_so) {
  EXPECT_EQ(latency_table(90).sm, 90);
  EXPECT_TRUE(latency_table(90).exact);
  EXPECT_EQ(latency_table(103).sm, 100);
  EXPECT_FALSE(latency_table(103).exact);
  EXPECT_EQ(latency_table(75).sm, 80);
  EXPECT_FALSE(latency_table(75).exact);
}

TEST(LatencyTable, every_row_of_every_table_names_its_source) {
  for (const int sm : {80, 86, 89, 90, 100, 120})
    for (int kind = 0; kind < cost_kinds; ++kind)
      EXPECT_FALSE(latency_table(sm).row(static_cast<CostKind>(kind)).source.empty()) << sm << " " << kind;
}

TEST(InstructionDag, the_critical_path_is_the_longest_chain_of_latencies) {
  const InstructionDag dag = dag_of(
      "ld.global.nc.f32 %f1, [%rd1];\n"
      "ld.global.nc.f32 %f2, [%rd1+4];\n"
      "fma.rn.f32 %f3, %f1, %f2, %f1;\n"
      "fma.rn.f32 %f4, %f3, %f2, %f1;\n"
      "st.relaxed.gpu.global.f32 [%rd2], %f4;\n");
  // 370 clocks from L2, two dependent fmas of 4, and the store's own clock. ld.param and mov before them cost nothing.
  EXPECT_DOUBLE_EQ(piece(dag).critical_clocks, 370 + 4 + 4 + 1);
  EXPECT_DOUBLE_EQ(piece(dag).issue_slots, 6);   // with ret
  EXPECT_EQ(piece(dag).bound, "latency");
}

TEST(InstructionDag, a_pipe_that_all_warps_ask_of_outweighs_the_critical_path) {
  std::string loads;
  for (int i = 0; i < 8; ++i)
    loads += fmt::format("ld.shared.v4.u32 {{%r{}, %r{}, %r{}, %r{}}}, [%r4+2048];\n", 4 * i + 5, 4 * i + 6, 4 * i + 7,
                         4 * i + 8);
  const InstructionDag dag = dag_of(loads);
  // 512 bytes a warp take 4 of the SM's clocks; 8 loads of 8 warps: 256. The latency of one is 29.
  EXPECT_DOUBLE_EQ(piece(dag).pipe_clocks[static_cast<std::size_t>(PtxPipe::memory)], 32);
  EXPECT_DOUBLE_EQ(piece(dag).clocks, 256);
  EXPECT_EQ(piece(dag).bound, "memory");
}

// ---- warps interleaved -----------------------------------------------------------------------------------------------------

std::string loop_of(const std::string& statements) {
  return "mov.u32 %r5, 0;\nTILE:\n" + statements +
         "add.s32 %r5, %r5, 1;\nsetp.lt.s32 %p4, %r5, %r1;\n@%p4 bra TILE;\n";
}

TEST(InterleavedClocks, what_one_time_through_leaves_to_the_next_bounds_a_warp_and_issue_slots_bound_many) {
  std::string chain;
  for (int i = 0; i < 10; ++i) chain += "fma.rn.f32 %f1, %f1, %f2, %f3;\n";
  const InstructionDag dag = dag_of(loop_of(chain));
  // Ten fmas, each 4 clocks behind the last, the first behind the tenth of the time before. Two warps a scheduler fit between.
  EXPECT_DOUBLE_EQ(interleaved_clocks(piece(dag, "loop 1"), 1), 40);
  EXPECT_DOUBLE_EQ(interleaved_clocks(piece(dag, "loop 1"), 8), 40);
  // Eight warps a scheduler: 13 instructions each, one a clock.
  EXPECT_NEAR(interleaved_clocks(piece(dag, "loop 1"), 32), 8 * 13, 4);
}

TEST(InterleavedClocks, shared_memory_is_one_for_all_warps) {
  std::string loads;
  for (int i = 0; i < 8; ++i) loads += fmt::format("ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r4+{}];\n", 2048 + 16 * i);
  const InstructionDag dag = dag_of(loop_of(loads));
  // 8 loads of 512 bytes from each of 8 warps, 128 bytes a clock.
  EXPECT_NEAR(interleaved_clocks(piece(dag, "loop 1"), 8), 256, 2);
  EXPECT_LT(interleaved_clocks(piece(dag, "loop 1"), 2), 128);
}

TEST(InterleavedClocks, a_branch_over_little_is_no_branch_and_one_over_more_is) {
  const auto skipping = [](int skipped) {
    std::string body = "setp.lt.s32 %p1, %r5, 4;\n@%p1 bra L;\n";
    for (int i = 0; i < skipped; ++i) body += "add.s32 %r6, %r6, %r5;\n";
    return dag_of(loop_of(body + "L:\nfma.rn.f32 %f1, %f1, %f2, %f3;\n"));
  };
  const auto ends = [](const InstructionDag& dag) {
    const auto& nodes = piece(dag, "loop 1").nodes;
    return std::count_if(nodes.begin(), nodes.end(), [](const InstructionNode& node) { return node.ends_stretch; });
  };
  EXPECT_EQ(ends(skipping(3)), 1);    // the loop's own
  EXPECT_EQ(ends(skipping(40)), 2);
}

TEST(InterleavedClocks, of_nothing_or_of_no_warps_is_nothing) {
  EXPECT_EQ(interleaved_clocks(InstructionPiece{}, 8), 0);
  const InstructionDag dag = dag_of(loop_of("fma.rn.f32 %f1, %f1, %f2, %f3;\n"));
  EXPECT_EQ(interleaved_clocks(piece(dag, "loop 1"), 0), 0);
}

// ---- hazards ---------------------------------------------------------------------------------------------------------------

TEST(InstructionDag, registers_and_predicates_carry_raw_war_and_waw) {
  const InstructionDag dag = dag_of(
      "add.s32 %r5, %r3, 1;\n"         // 0
      "setp.lt.s32 %p1, %r5, %r1;\n"   // 1
      "selp.u32 %r6, 1, 2, %p1;\n"     // 2
      "add.s32 %r5, %r3, 2;\n"         // 3
      "setp.lt.s32 %p1, %r5, %r1;\n"); // 4
  const std::set<EdgeKey> expected = {{0, 1, "raw", "register"}, {1, 2, "raw", "predicate"}, {1, 3, "war", "register"},
                                      {0, 3, "waw", "register"}, {3, 4, "raw", "register"}, {2, 4, "war", "predicate"},
                                      {1, 4, "waw", "predicate"}};
  EXPECT_EQ(edges(piece(dag)), expected);
}

TEST(InstructionDag, shared_memory_is_told_apart_by_area_and_by_constant_offsets) {
  const InstructionDag dag = dag_of(
      "shl.b32 %r5, %r3, 2;\n"           // 0
      "add.s32 %r6, %r4, %r5;\n"         // 1
      "st.shared.u32 [%r6], %r3;\n"      // 2: partials, somewhere
      "ld.shared.u32 %r7, [%r6+2048];\n" // 3: ring: not what was written
      "ld.shared.u32 %r8, [%r4+16];\n"   // 4: partials: perhaps what was written
      "st.shared.u32 [%r4+32], %r3;\n"   // 5: partials: perhaps what 2 wrote, not what 4 read
      "ld.shared.u32 %r9, [%r6+4];\n");  // 6: partials: the same base as 2, another word; perhaps what 5 wrote
  std::set<EdgeKey> memory;
  for (const EdgeKey& edge : edges(piece(dag)))
    if (std::get<3>(edge) != "register") memory.insert(edge);
  const std::set<EdgeKey> expected = {{2, 4, "raw", "partials"}, {2, 5, "waw", "partials"}, {5, 6, "raw", "partials"}};
  EXPECT_EQ(memory, expected);
  EXPECT_EQ(piece(dag).memory.at("partials"), 4);
  EXPECT_EQ(piece(dag).memory.at("ring"), 1);
}

TEST(InstructionDag, what_nobody_writes_waits_for_nothing) {
  const InstructionDag dag = dag_of(
      "st.relaxed.gpu.global.u32 [%rd2], %r3;\n"        // 0
      "ld.global.u32 %r5, [%rd1];\n"                    // 1: weights are read-only
      "ld.relaxed.gpu.global.u32 %r6, [%rd2+8];\n"      // 2: another word behind the same pointer
      "ld.relaxed.gpu.global.u32 %r7, [%rd2];\n");      // 3
  EXPECT_EQ(edges(piece(dag)), (std::set<EdgeKey>{{0, 3, "raw", "exchange"}}));
}

TEST(InstructionDag, barriers_and_copy_groups_order_memory) {
  const InstructionDag dag = dag_of(
      "st.shared.u32 [%r4], %r3;\n"                               // 0
      "bar.warp.sync -1;\n"                                       // 1
      "ld.shared.u32 %r5, [%r4+4];\n"                             // 2
      "cp.async.cg.shared.global [%r4+1024], [%rd1], 16;\n"       // 3
      "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4+512];\n");  // 4
  const std::set<EdgeKey> all = edges(piece(dag));
  EXPECT_TRUE(all.contains({0, 1, "barrier", "order"}));
  EXPECT_TRUE(all.contains({1, 2, "barrier", "order"}));
  EXPECT_TRUE(all.contains({3, 4, "async", "copy group"}));
  EXPECT_FALSE(all.contains({0, 2, "raw", "partials"}));
}

TEST(InstructionDag, both_writes_of_a_register_reach_a_read_behind_a_branch) {
  const InstructionDag dag = dag_of(
      "mov.u32 %r5, 1;\n"               // 0
      "setp.lt.s32 %p1, %r3, 4;\n"      // 1
      "@%p1 bra L;\n"                   // 2
      "mov.u32 %r5, 2;\n"               // 3
      "L:\nadd.s32 %r6, %r5, 1;\n");    // 4
  const std::set<EdgeKey> all = edges(piece(dag));
  EXPECT_TRUE(all.contains({0, 4, "raw", "register"}));
  EXPECT_TRUE(all.contains({3, 4, "raw", "register"}));
  // One instruction is skipped: ptxas predicates it, and what follows need not wait for the branch.
  EXPECT_TRUE(all.contains({2, 3, "control", "branch"}));
  EXPECT_FALSE(all.contains({2, 4, "control", "branch"}));
}

// ---- pieces ----------------------------------------------------------------------------------------------------------------

constexpr const char* wait =
    "WAIT:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], %r3;\n"
    "@%p1 bra DONE;\n"
    "add.s32 %r30, %r30, 1;\n"
    "setp.lt.s32 %p2, %r30, 256;\n"
    "@%p2 bra WAIT;\n"
    "{ .param .b32 a;\n.param .b32 r;\nst.param.b32 [a], %r30;\ncall.uni (r), give_up, (a);\nld.param.b32 %r31, [r]; }\n"
    "setp.eq.s32 %p3, %r31, 0;\n"
    "@%p3 bra WAIT;\n"
    "exit;\n"
    "DONE:\n";

TEST(InstructionDag, a_loop_is_a_piece_and_a_wait_is_one_look) {
  const InstructionDag dag = dag_of("mov.u32 %r5, 0;\nmov.u32 %r30, 0;\nTILE:\nadd.s32 %r8, %r5, 7;\n" + std::string(wait) +
                                    "ld.shared.u32 %r6, [%r4+2048];\n"
                                    "add.s32 %r5, %r5, 1;\n"
                                    "setp.lt.s32 %p4, %r5, %r1;\n"
                                    "@%p4 bra TILE;\n"
                                    "// adamk: storer qkv\n"
                                    "mov.u32 %r7, %r6;\n");
  const InstructionPiece& tile = piece(dag, "loop 1");
  std::vector<std::string> opcodes;
  for (const InstructionNode& node : tile.nodes) opcodes.push_back(node.opcode);
  EXPECT_EQ(opcodes, (std::vector<std::string>{"add.s32", "mbarrier.try_wait.parity.shared::cta.b64", "bra",
                                               "ld.shared.u32", "add.s32", "setp.lt.s32", "bra"}));
  EXPECT_EQ(tile.warps, 8);
  EXPECT_EQ(dag.tile("consumer", "qkv"), &tile);
  ASSERT_NE(dag.tile("storer", "qkv"), nullptr);
  EXPECT_EQ(dag.tile("storer", "qkv")->nodes.size(), 2u);   // mov, ret
  EXPECT_EQ(classes(dag), (Classes{"poll", "watchdog", "watchdog", "loop"}));
}

TEST(InstructionDag, where_paths_of_two_stages_meet_counts_what_both_had_before) {
  const InstructionDag dag = dag_of(
      "setp.lt.s32 %p1, %r3, 4;\n"
      "@%p1 bra A;\n"
      "// adamk: consumer output\n"
      "add.s32 %r5, %r3, 1;\n"
      "bra.uni JOIN;\n"
      "A:\n"
      "// adamk: consumer down\n"
      "add.s32 %r5, %r3, 2;\n"
      "JOIN:\n"
      "add.s32 %r6, %r5, 3;\n");
  std::vector<std::pair<std::string, std::size_t>> sizes;
  for (const InstructionPiece& each : dag.pieces) sizes.emplace_back(each.stage, each.nodes.size());
  // Before any marker: 6. qkv: setp, bra, and behind the join add, ret.
  EXPECT_EQ(sizes, (std::vector<std::pair<std::string, std::size_t>>{{"", 6}, {"qkv", 4}, {"output", 2}, {"down", 1}}));
}

TEST(InstructionDag, live_registers_and_bytes_in_flight_follow_the_order_of_the_text) {
  const InstructionDag dag = dag_of(
      "ld.global.nc.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1];\n"
      "ld.global.nc.v4.u32 {%r9, %r10, %r11, %r12}, [%rd1+16];\n"
      "add.s32 %r13, %r5, %r9;\n"
      "ld.global.nc.u32 %r14, [%rd1+32];\n"
      "add.s32 %r13, %r13, %r14;\n"
      "st.relaxed.gpu.global.u32 [%rd2], %r13;\n");
  EXPECT_EQ(piece(dag).bytes_in_flight, 2 * 32 * 16);
  // Behind the first load %rd1, %rd2 and %r5 are wanted, 5 words; behind the second %r9 too; %r6 and the others never are.
  EXPECT_EQ(piece(dag).live_registers, 6);
}

// ---- the census ---------------------------------------------------------------------------------------------------------

TEST(BranchCensus, threads_blocks_and_the_callers_counts_may_steer) {
  const InstructionDag dag = dag_of(
      "mov.u32 %r5, 0;\n"
      "LOOP:\n"
      "add.s32 %r5, %r5, 1;\n"
      "setp.lt.s32 %p1, %r5, %r1;\n"
      "@%p1 bra LOOP;\n"
      "mov.u32 %r6, %ctaid.x;\n"
      "setp.gt.s32 %p2, %r6, 7;\n"
      "@%p2 bra END;\n"
      "st.shared.u32 [%r4], %r6;\n"
      "END:\n");
  EXPECT_EQ(classes(dag), (Classes{"loop", "bounds"}));
  EXPECT_TRUE(dag.decides_nothing());
}

TEST(BranchCensus, a_parameter_that_is_no_count_may_not) {
  const InstructionDag dag = dag_of("setp.eq.s32 %p1, %r2, 1;\n@%p1 bra END;\nst.shared.u32 [%r4], %r3;\nEND:\n");
  EXPECT_EQ(classes(dag), (Classes{"other"}));
  EXPECT_FALSE(dag.decides_nothing());
}

// A queue of tasks: the wait for one is a wait, what is done with its kind is a decision.
TEST(BranchCensus, a_task_taken_from_a_queue_is_a_decision) {
  const InstructionDag dag = dag_of(
      "WAIT:\n"
      "ld.acquire.gpu.global.u32 %r5, [%rd2];\n"
      "setp.eq.s32 %p1, %r5, 0;\n"
      "@%p1 bra WAIT;\n"
      "setp.eq.s32 %p2, %r5, 3;\n"
      "@%p2 bra END;\n"
      "st.shared.u32 [%r4], %r3;\n"
      "END:\n");
  EXPECT_EQ(classes(dag), (Classes{"poll", "other"}));
}

TEST(BranchCensus, a_ticket_drawn_from_a_counter_is_a_decision) {
  const InstructionDag dag = dag_of(
      "NEXT:\n"
      "atom.global.add.u32 %r5, [%rd2], 1;\n"
      "setp.ge.s32 %p1, %r5, 100;\n"
      "@%p1 bra END;\n"
      "st.shared.u32 [%r4], %r5;\n"
      "bra.uni NEXT;\n"
      "END:\n");
  EXPECT_EQ(classes(dag), (Classes{"other"}));
}

TEST(BranchCensus, choosing_a_value_is_no_decision_but_branching_on_it_is) {
  const std::string choice =
      "ld.shared.u32 %r5, [%r4];\n"
      "mov.u32 %r6, 1;\n"
      "setp.gt.s32 %p1, %r5, 0;\n"
      "@%p1 bra A;\n"
      "mov.u32 %r6, 2;\n"
      "A:\n";
  EXPECT_EQ(classes(dag_of(choice + "st.shared.u32 [%r4+4], %r6;\n")), (Classes{"select"}));
  EXPECT_EQ(classes(dag_of(choice + "setp.eq.s32 %p2, %r6, 1;\n@%p2 bra END;\nst.shared.u32 [%r4+4], %r3;\nEND:\n")),
            (Classes{"select", "other"}));
}

TEST(BranchCensus, how_often_a_wait_looked_may_not_steer_what_follows) {
  const InstructionDag dag = dag_of("mov.u32 %r30, 0;\n" + std::string(wait) +
                                    "setp.gt.s32 %p4, %r30, 10;\n@%p4 bra END;\nst.shared.u32 [%r4+2048], %r3;\nEND:\n");
  EXPECT_EQ(classes(dag), (Classes{"poll", "watchdog", "watchdog", "other"}));
}

TEST(BranchCensus, the_clock_and_the_place_of_a_block_may_not_steer_work) {
  const std::string work = "@%p1 bra END;\nst.shared.u32 [%r4], %r3;\nEND:\n";
  EXPECT_EQ(classes(dag_of("mov.u64 %rd3, %clock64;\nsetp.gt.s64 %p1, %rd3, 9;\n" + work)), (Classes{"other"}));
  EXPECT_EQ(classes(dag_of("mov.u32 %r5, %smid;\nsetp.gt.s32 %p1, %r5, 9;\n" + work)), (Classes{"other"}));
}

TEST(BranchCensus, an_access_under_a_predicate_counts_as_a_branch) {
  EXPECT_EQ(classes(dag_of("setp.eq.s32 %p1, %r3, 0;\n@%p1 st.shared.u32 [%r4], %r3;\n")), (Classes{"bounds"}));
  EXPECT_EQ(classes(dag_of("ld.shared.u32 %r5, [%r4];\nsetp.eq.s32 %p1, %r5, 0;\n@%p1 st.shared.u32 [%r4], %r3;\n")),
            (Classes{"other"}));
}

TEST(InstructionDag, a_kernel_that_is_not_there_is_an_error) {
  const auto module = parse_ptx(kernel(""));
  ASSERT_TRUE(module);
  KernelFacts other = facts();
  other.entry = "give_up";   // a function, not a kernel
  const auto dag = make_instruction_dag(*module, other);
  ASSERT_FALSE(dag);
  EXPECT_EQ(dag.error().message, "PTX: there is no kernel 'give_up'");
}

// ---- markers -------------------------------------------------------------------------------------------------------------

TEST(PtxMarkers, are_comments_on_their_own_lines_and_nothing_else) {
  const auto module = parse_ptx(kernel("add.s32 %r5, // adamk: no marker\n %r3, 1;\n// adamk:neither\n"
                                       "\t// adamk: storer head \nadd.s32 %r6, %r3, 1;\n"));
  ASSERT_TRUE(module) << module.error().message;
  const PtxBody& body = *module->find("k");
  ASSERT_EQ(body.markers.size(), 2u);
  EXPECT_EQ(body.markers[0].text, "consumer qkv");
  EXPECT_EQ(body.markers[0].at, 6);
  EXPECT_EQ(body.markers[1].text, "storer head");
  EXPECT_EQ(body.markers[1].at, 7);
}

}  // namespace
}  // namespace adamk
