#include "common/timeline_views.h"

#include <fmt/format.h>

namespace adamk {
namespace {

double waited(const std::array<double, wait_causes>& us, WaitCause cause) { return us[static_cast<std::size_t>(cause)]; }

Table stage_table(const TimelineReport& report) {
  const TimelineSummary& summary = report.summary;
  Table table{{{"stage"}, {"us a step", true}, {"%", true}, {"us each", true}, {"at ceiling", true}, {"more", true},
               {"consumers: input", true}, {"weights", true}, {"buffer", true}, {"token", true}, {"work", true}},
              {}};
  double floor_of_all = 0;
  for (const StageTime& s : summary.stages) {
    const double floor = s.bytes_each / report.ceiling_gbps / 1e3;
    floor_of_all += s.us_each > 0 ? floor * s.us / s.us_each : 0;
    const auto us = [&](double value) { return s.consumers_us > 0 ? Cell(value, 2) : Cell(); };
    table.rows.push_back({s.name, Cell(s.us, 1), Cell(100 * s.us / summary.step_us, 1), Cell(s.us_each, 2), Cell(floor, 2),
                          Cell(s.us_each - floor, 2), us(waited(s.consumers_waited_us, WaitCause::input)),
                          us(waited(s.consumers_waited_us, WaitCause::weights)), us(waited(s.consumers_waited_us, WaitCause::buffer)),
                          us(waited(s.consumers_waited_us, WaitCause::token)), us(s.consumers_worked_us)});
  }
  table.rows.push_back({"step", Cell(summary.step_us, 1), Cell(100.0, 1), Cell(), Cell(floor_of_all, 1),
                        Cell(summary.step_us - floor_of_all, 1), Cell(), Cell(), Cell(), Cell(), Cell()});
  return table;
}

Table role_table(const TimelineReport& report) {
  Table table{{{"role, % of a step"}, {"input", true}, {"weights", true}, {"slot", true}, {"turn", true}, {"tiles", true},
               {"buffer", true}, {"token", true}, {"work", true}},
              {}};
  for (const RoleTime& role : report.summary.roles) {
    std::vector<Cell> row = {role.name};
    for (const double us : role.waited_us) row.push_back(Cell(100 * us / report.summary.step_us, 1));
    row.push_back(Cell(100 * role.worked_us / report.summary.step_us, 1));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Result<void> print_timeline(const TimelineReport& report, const CommonOptions& options) {
  const TimelineSummary& summary = report.summary;
  if (options.json) {
    return print_json({{"device", report.device}, {"plan_hash", report.plan_hash}, {"position", report.position},
                       {"clock_mhz", report.clock_mhz}, {"plain_us_per_token", report.plain_us},
                       {"read_ceiling_gbps", report.ceiling_gbps}, {"summary", timeline_summary_to_json(summary)}});
  }
  ADAMK_CHECK(print_table(stage_table(report), TableFormat::text, options));
  ADAMK_CHECK(print_table(role_table(report), TableFormat::text, options));
  return print(fmt::format("{}, plan {}: {} steps from position {} at {:.0f} MHz; a step of the plan's own kernel takes {:.1f} us, of "
                           "the instrumented one {:.1f} ({:+.1f} %); ceiling {:.0f} GB/s",
                           report.device, report.plan_hash, summary.steps, report.position, report.clock_mhz, report.plain_us,
                           summary.step_us, 100 * (summary.step_us / report.plain_us - 1), report.ceiling_gbps));
}

}  // namespace adamk
