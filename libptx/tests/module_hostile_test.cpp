// Modules that no compiler writes: refused with a line, whatever they do with depth, size and numbers.
#include <gtest/gtest.h>

#include "adamk/ptx/module.h"
#include "adamk/ptx/statistics.h"

namespace adamk {
namespace {

std::string repeated(std::string_view piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece;
  return text;
}

std::string module_of(const std::string& text) { return ".version 9.0\n.target sm_90\n.address_size 64\n" + text; }
std::string kernel_of(const std::string& code) {
  return module_of(".visible .entry k()\n{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n" + code + "\nret;\n}\n");
}

void expect_refused(const std::string& text, const char* says) {
  const auto module = parse_ptx(text);
  ASSERT_FALSE(module) << text.substr(0, 200);
  EXPECT_EQ(module.error().code, Errc::bad_input);
  EXPECT_NE(module.error().message.find("PTX line"), std::string::npos) << module.error().message.substr(0, 200);
  EXPECT_NE(module.error().message.find(says), std::string::npos) << module.error().message.substr(0, 200);
}

TEST(PtxModuleHostile, nested_operands_are_refused_before_they_are_read) {
  expect_refused(kernel_of("mov.b32 %r1, " + repeated("{", 100'000) + "%r1" + repeated("}", 100'000) + ";"),
                 "inside a vector");
  expect_refused(kernel_of("mov.b32 %r1|{" + repeated("{", 100'000) + repeated("}", 100'001) + ", %r1;"), "inside a pair");
  EXPECT_FALSE(parse_ptx(kernel_of("mov.b32 %r1, " + repeated("[", 100'000) + "%r1" + repeated("]", 100'000) + ";")));
  EXPECT_TRUE(parse_ptx(kernel_of(repeated("{", 10'000) + repeated("}", 10'000))));   // blocks nest: they cost nothing
}

TEST(PtxModuleHostile, numbers_that_no_type_holds_are_refused) {
  expect_refused(kernel_of("ld.global.u32 %r1, [9223372036854775807+9223372036854775807];"), "is no offset");
  expect_refused(kernel_of("mov.u64 %rd1, 18446744073709551616;"), "is no operand");
  const auto wide = parse_ptx(module_of(".visible .entry k()\n.maxntid " + repeated("1024, ", 20) + "1024\n{\nret;\n}\n"));
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_EQ(wide->functions[0].max_threads, 1024);
}

TEST(PtxModuleHostile, what_it_takes_is_bounded) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += fmt::format(".global .align 4 .b8 x{}[16777216] = {{1}};\n", i);
  expect_refused(module_of(text), "bytes of initial values");
  expect_refused(kernel_of(".reg .b32 %a<1048577>;"), "more than 1048576 registers");
  for (const char* count : {"1048576", "9223372036854775807", "9223372036854775806"}) {   // with those before them, past any sum
    expect_refused(kernel_of(fmt::format(".reg .b32 %a<3>;\n.reg .b32 %b<{}>;", count)), "more than 1048576 registers");
  }
  for (const char* count : {"1048577", "9223372036854775807"}) {
    EXPECT_FALSE(ptx_statistics(kernel_of(fmt::format(".reg .b32 %a<3>;\n.reg .b32 %b<{}>;", count)))) << count;
  }
  expect_refused(module_of(".global .align 4 .b8 x[99999999999];\n"), "elements");
}

TEST(PtxModuleHostile, headers_without_a_name_are_refused) {
  for (const char* header : {".func", ".func ()", ".visible .entry ()", ".func (.reg .b32 a)"}) {
    expect_refused(module_of(std::string(header) + "\n{\nret;\n}\n"), "");
  }
}

TEST(PtxModuleHostile, no_path_runs_off_the_end_of_a_function) {
  const std::string head = ".visible .entry k()\n{\n.reg .pred %p<2>;\nsetp.eq.s32 %p1, 0, 0;\n";
  for (const char* end : {"bra $end;\nret;\n$end:\n", "@%p1 ret;\n", "@%p1 exit;\n", "$again:\n@%p1 bra $again;\n", "@!%p1 trap;\n"}) {
    const auto module = parse_ptx(module_of(head + end + "}\n"));
    ASSERT_TRUE(module) << module.error().message;
    const std::vector<PtxInstruction>& code = module->functions[0].code;
    EXPECT_EQ(code.back().op, PtxOp::ret) << end;
    EXPECT_LT(code.back().guard, 0) << end;
    for (const PtxInstruction& each : code) EXPECT_LT(each.target, static_cast<int>(code.size())) << end;
  }
}

}  // namespace
}  // namespace adamk
