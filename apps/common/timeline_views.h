// The summary of an in-kernel timeline as tables.
#pragma once

#include "adamk/base/result.h"
#include "adamk/profile/timeline.h"
#include "common/command.h"

namespace adamk {

struct TimelineReport {
  std::string device, plan_hash;
  std::int64_t position = 0;
  double clock_mhz = 0;
  double plain_us = 0;             // a token of the plan's own kernel, same process and data
  double ceiling_gbps = 0;         // what the device reads at most, same process
  TimelineSummary summary;
};

/// Stages (a row each, adding up to the step) and roles; with --json one document.
Result<void> print_timeline(const TimelineReport& report, const CommonOptions& options);

}  // namespace adamk
