#include "common/device_choice.h"

#include <charconv>

namespace adamk {

void add_device_flag(CLI::App& app, DeviceChoice& choice) {
  const auto read = [&choice](const std::string& text) {
    int index = -1;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), index);
    choice.emulated = text == "emulated";
    if (!choice.emulated && (code != std::errc{} || end != text.data() + text.size() || index < 0))
      throw CLI::ValidationError("--device", fmt::format("'{}' is neither the index of a GPU nor 'emulated'", text));
    choice.index = choice.emulated ? 0 : index;
  };
  app.add_option_function<std::string>("--device", read, "Index of the GPU, or 'emulated': on the CPU, by the emulator (docs/emulator.md)")
      ->default_str("0")
      ->type_name("N|emulated");
}

Result<void> refuse_emulated(const DeviceChoice& choice, std::string_view why) {
  if (choice.emulated) return fail(Errc::bad_input, "--device emulated: {}", why);
  return {};
}

std::string emulation_text(const std::string& device, const EmulationSummary& summary) {
  return fmt::format("{}: {} launch{}, {} warp instructions in {:.1f} s, {}", device, summary.launches,
                     summary.launches == 1 ? "" : "es", summary.warp_instructions, summary.seconds,
                     summary.races == 0 ? "no race" : summary.races == 1 ? "1 race" : fmt::format("{} races", summary.races));
}

Json emulation_to_json(const std::string& device, const EmulationSummary& summary) {
  return {{"device", device},
          {"launches", summary.launches},
          {"warp_instructions", summary.warp_instructions},
          {"seconds", summary.seconds},
          {"races", summary.races}};
}

}  // namespace adamk
