#include <gtest/gtest.h>

#include <limits>

#include "common/command.h"
#include "common/progress.h"
#include "common/table.h"

namespace adamk {
namespace {

Table sample() {
  return {{{"plan"}, {"us", true}},
          {{Cell("a|b"), Cell(7.25, 1)}, {Cell("long, name"), Cell(std::numeric_limits<double>::quiet_NaN(), 1)}}};
}

TEST(Table, TextAlignsNumbersRightAndLeavesNoTrailingBlanks) {
  EXPECT_EQ(render(sample(), TableFormat::text),
            "plan         us\n"
            "----------  ---\n"
            "a|b         7.2\n"
            "long, name    -\n");
}

TEST(Table, MarkdownEscapesPipes) {
  EXPECT_EQ(render(sample(), TableFormat::markdown),
            "| plan | us |\n|---|---:|\n| a\\|b | 7.2 |\n| long, name | - |\n");
}

TEST(Table, CsvQuotesCommasAndLeavesMissingValuesEmpty) {
  EXPECT_EQ(render(sample(), TableFormat::csv), "plan,us\na|b,7.25\n\"long, name\",\n");
}

TEST(Table, JsonKeepsFullPrecisionAndNulls) {
  const Json parsed = Json::parse(render(sample(), TableFormat::json));
  EXPECT_EQ(parsed.at(0).at("us"), 7.25);
  EXPECT_TRUE(parsed.at(1).at("us").is_null());
}

TEST(Table, WidthCountsCodePointsNotBytes) {
  EXPECT_EQ(display_width("\xC2\xB5s"), 2u);   // micro sign
  EXPECT_EQ(display_width(""), 0u);
}

TEST(Progress, DurationsAreShortAndNeverSixtySeconds) {
  EXPECT_EQ(duration_text(0.44), "0.4s");
  EXPECT_EQ(duration_text(42.2), "42s");
  EXPECT_EQ(duration_text(125), "2m05s");
  EXPECT_EQ(duration_text(3780), "1h03m");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
}

TEST(Progress, TimeLeftFollowsTheRate) {
  ProgressState state;
  state.done = 12;
  state.total = 200;
  state.seconds = 8;   // 1.5 a second, 188 / 1.5 = 125.3 s left
  state.note = "best 712.3 us";
  EXPECT_EQ(progress_line(state), "12/200 trials, 1.5/s, 2m05s left, best 712.3 us");
  state.finished = true;
  EXPECT_EQ(progress_line(state), "12/200 trials, 1.5/s, best 712.3 us");
}

TEST(Progress, NothingDoneYetShowsNoRate) { EXPECT_EQ(progress_line({}), "0 trials"); }

int run(Command& command, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "adamk-x");
  return command.run(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Command, ErrorsBecomeTheDocumentedExitStatus) {
  const std::vector<std::pair<Errc, int>> expected = {{Errc::bad_input, 2},    {Errc::unsupported, 2}, {Errc::infeasible, 2},
                                                      {Errc::check_failed, 1}, {Errc::not_found, 1},   {Errc::io, 3},
                                                      {Errc::machine, 3},      {Errc::interrupted, 130}};
  for (const auto& [code, status] : expected) {
    Command command("adamk-x", "test");
    command.add("go", "go", [failure = code] { return Result<void>(tl::unexpected<Error>(Error{failure, "no"})); });
    testing::internal::CaptureStderr();
    EXPECT_EQ(run(command, {"go"}), status);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "adamk-x: error: no\n");
  }
}

TEST(Command, WrongUsageIsTwoAndNamesTheProgram) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{}, {"unknown"}, {"go", "--nonsense"}, {"go", "--format", "xml"}}) {
    Command command("adamk-x", "test");
    TableFormat format = TableFormat::text;
    add_table_format(command.add("go", "go", [] { return Result<void>(); }), format);
    testing::internal::CaptureStderr();
    EXPECT_EQ(run(command, arguments), 2);
    EXPECT_EQ(testing::internal::GetCapturedStderr().rfind("adamk-x: error: ", 0), 0u);
  }
}

TEST(Command, HelpAndVersionSucceedOnStandardOutput) {
  for (const char* flag : {"--help", "--version"}) {
    Command command("adamk-x", "test");
    command.add("go", "go", [] { return Result<void>(); });
    testing::internal::CaptureStdout();
    EXPECT_EQ(run(command, {flag}), 0);
    EXPECT_NE(testing::internal::GetCapturedStdout().find("adamk-x"), std::string::npos);
  }
}

TEST(Command, FormatAndSharedFlagsReachTheBody) {
  Command command("adamk-x", "test");
  TableFormat format = TableFormat::text;
  bool ran = false;
  CLI::App& go = command.add("go", "go", [&] {
    ran = command.options().json && command.options().quiet && format == TableFormat::markdown;
    return Result<void>();
  });
  add_table_format(go, format);
  EXPECT_EQ(run(command, {"go", "--json", "-q", "--format", "markdown"}), 0);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace adamk
