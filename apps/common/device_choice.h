// --device: which GPU, or an emulated one.
#pragma once

#include <CLI/CLI.hpp>

#include "adamk/dag/target.h"
#include "adamk/profile/emulated_device.h"
#include "common/command.h"

namespace adamk {

struct DeviceChoice {
  bool emulated = false;
  int index = 0;
};

/// `--device N`, or `--device emulated` where the command has a use for that.
void add_device_flag(CLI::App& app, DeviceChoice& choice);

/// Fails (bad_input): `why` there is no use for an emulated device.
Result<void> refuse_emulated(const DeviceChoice& choice, std::string_view why);

/// "emulated l20: 5 launches, 1234567 warp instructions in 0.4 s, no race"
std::string emulation_text(const std::string& device, const EmulationSummary& summary);
Json emulation_to_json(const std::string& device, const EmulationSummary& summary);

}  // namespace adamk
