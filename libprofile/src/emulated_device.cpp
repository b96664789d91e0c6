#include "adamk/profile/emulated_device.h"

#include <chrono>
#include <cstring>
#include <map>
#include <vector>

#include "adamk/codegen/facts.h"
#include "adamk/ptx/module.h"
#include "adamk/runtime/kernel_params.h"
#include "adamk/runtime/watchdog.h"

namespace adamk {
namespace {

constexpr std::size_t kMostWaits = 12, kMostRaces = 3;   // in a message; the report has all

std::string describe_access(const EmulatorRace::Access& access, const EmulationNames& names) {
  const auto line = names.lines.find(access.line);
  std::string text = fmt::format("SM {}, warp {}, lane {}", access.block, access.warp, access.lane);
  if (line != names.lines.end()) {
    text += fmt::format(", role {}", line->second.role);
    if (!line->second.stage.empty()) text += fmt::format(", stage {}", line->second.stage);
    text += fmt::format(": {} in", line->second.opcode);
  } else {
    text += ":";
  }
  return text + fmt::format(" PTX line {}{}", access.line, access.async ? ", by an asynchronous copy" : "");
}

std::string describe_race(const EmulatorRace& race, const EmulationNames& names) {
  std::string address = fmt::format("{} {:#x}", race.shared ? "shared" : "global", race.address);
  for (const auto& [name, begin] : names.buffers) {
    if (race.shared || begin == 0 || race.address < begin || (race.address ^ begin) >> EmulatedMemory::slot_shift != 0) continue;
    address = fmt::format("{} + {:#x} ({})", name, race.address - begin, address);
    break;
  }
  return fmt::format("{} at {}\n  {}\n  is not ordered after\n  {}", race.kind, address, describe_access(race.second, names),
                     describe_access(race.first, names));
}

/// The allocations that a kernel of ours is given.
std::vector<std::pair<std::string, DeviceAddress>> buffers_of(std::span<const std::byte> params) {
  AdamkKernelParams given{};
  if (params.size() != sizeof given) return {};
  std::memcpy(&given, params.data(), sizeof given);
  const auto at = [](const volatile void* pointer) { return reinterpret_cast<DeviceAddress>(pointer); };
  return {{"weights", at(given.weights)}, {"small tensors", at(given.small_tensors)}, {"embedding", at(given.embedding)},
          {"rope", at(given.rope)},       {"KV", at(given.kv)},                       {"workspace", at(given.workspace)},
          {"given", at(given.given)},     {"tokens", at(given.tokens)},               {"logits", at(given.logits)},
          {"report", at(given.report)}};
}

/// Arguments of give_up(params, since, kind, {role, stage, layer, step}, expected, seen) as the report the watchdog would write.
std::string describe_wait(const EmulatorWait& wait) {
  std::string text = fmt::format("SM {}, warp {}, PTX line {}: {}", wait.block, wait.warp, wait.line, wait.what);
  if (wait.arguments.size() != 10) return text;
  const std::vector<std::uint32_t>& a = wait.arguments;
  const std::uint32_t words[ADAMK_REPORT_WORDS] = {a[3], static_cast<std::uint32_t>(wait.block), a[4], a[5], a[6], a[7], a[8], a[9]};
  return fmt::format("{} ({})", describe_report(words), text);
}

class Emulated : public EmulatedDevice {
 public:
  Emulated(const Target& target, const EmulatedDeviceOptions& options) : target_(target), options_(options) {
    info_.name = "emulated " + target.name;
    info_.sm = target.sm;
    info_.sms = target.sms;
    info_.memory_bytes = target.memory_bytes;
    info_.l2_bytes = target.l2_bytes;
    info_.smem_per_block = target.smem_per_block;
    info_.smem_per_sm = target.smem_per_sm;
    info_.smem_reserved = target.smem_reserved;
    info_.registers_per_sm = target.registers_per_sm;
    info_.clock_khz = 1'000'000;
  }

  const DeviceInfo& info() const override { return info_; }

  Result<DeviceAddress> allocate(std::int64_t bytes) override {
    if (bytes < 0) return fail(Errc::bad_input, "an allocation of {} bytes", bytes);
    return memory_.allocate(bytes);
  }
  void release(DeviceAddress address) override { memory_.release(address); }

  Result<void*> allocate_mapped(std::int64_t bytes, DeviceAddress* device) override {
    auto host = std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(bytes));
    *device = memory_.map(host.get(), bytes);
    void* address = host.get();
    mapped_.emplace(address, Mapped{std::move(host), *device});
    return address;
  }
  void release_mapped(void* host) override {
    const auto found = mapped_.find(host);
    if (found == mapped_.end()) return;
    memory_.release(found->second.device);
    mapped_.erase(found);
  }

  Result<void> upload(DeviceAddress to, std::span<const std::byte> from) override { return memory_.write(to, from); }
  Result<void> download(std::span<std::byte> to, DeviceAddress from) override { return memory_.read(to, from); }
  Result<void> fill(DeviceAddress to, std::uint8_t byte, std::int64_t bytes) override { return memory_.fill(to, byte, bytes); }

  Result<KernelHandle> load(std::span<const std::byte> image, const std::string& entry) override {
    std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
    if (text.starts_with("\x7f" "ELF"))
      return fail(Errc::bad_input, "the emulated device runs PTX, but the kernel is machine code; compile it for {}", ptx_arch(target_));
    while (text.ends_with('\0')) text.remove_suffix(1);
    ADAMK_TRY(PtxModule module, parse_ptx(text));
    ADAMK_TRY(EmulatedKernel kernel, EmulatedKernel::make(module, entry));
    kernels_.push_back(std::make_unique<Loaded>(Loaded{std::move(kernel), std::move(module)}));
    return KernelHandle{kernels_.back().get(), kernels_.back().get()};
  }
  void unload(KernelHandle kernel) override {
    std::erase_if(kernels_, [&](const auto& each) { return each.get() == kernel.module; });
  }
  Result<KernelAttributes> attributes(KernelHandle) override { return KernelAttributes{}; }

  /// As on the target: by threads and shared memory. Registers are the compiler's business, which has not run.
  Result<int> resident_blocks(KernelHandle, const LaunchShape& shape) override {
    if (shape.threads > target_.max_threads_per_block || shape.smem > target_.smem_per_block) return 0;
    const std::int64_t by_memory = target_.smem_per_sm / std::max<std::int64_t>(1, shape.smem + target_.smem_reserved);
    const std::int64_t by_threads = 2048 / std::max(1, shape.threads);
    return static_cast<int>(std::max<std::int64_t>(1, std::min(by_memory, by_threads)));
  }

  Result<void> launch(KernelHandle kernel, const LaunchShape& shape, std::span<const std::byte> params) override {
    if (!failure_.empty()) return fail(Errc::machine, "{}", failure_);
    if (shape.smem > target_.smem_per_block)
      return fail(Errc::infeasible, "{} bytes of shared memory, but a block on {} may have {}", shape.smem, target_.name, target_.smem_per_block);
    ADAMK_TRY(const int resident, resident_blocks(kernel, shape));
    if (shape.cooperative && shape.grid > resident * target_.sms)
      return fail(Errc::infeasible, "{} blocks cannot be resident at once on {}", shape.grid, info_.name);
    EmulatorLaunch launch;
    launch.blocks = shape.grid;
    launch.threads = shape.threads;
    launch.shared_bytes = shape.smem;
    launch.params.assign(params.begin(), params.end());
    EmulatorOptions options;
    options.seed = options_.seed + 0x9e3779b97f4a7c15ull * summary_.launches;
    options.detect_races = options_.detect_races;
    options.most_instructions = options_.most_instructions;
    options.watchdog = kernel_watchdog;
    const auto begin = std::chrono::steady_clock::now();
    const Loaded& loaded = *static_cast<const Loaded*>(kernel.function);
    ADAMK_TRY(report_, loaded.kernel.run(memory_, launch, options));
    summary_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++summary_.launches;
    summary_.warp_instructions += report_.warp_instructions;
    summary_.races += report_.races.size();
    failure_ = describe_emulation(report_);
    if (!report_.races.empty()) failure_ = describe_emulation(report_, {list_lines(loaded.module), buffers_of(params)});
    return {};
  }
  Result<void> synchronize() override {
    if (!failure_.empty()) return fail(Errc::machine, "{}", failure_);
    return {};
  }
  Result<double> time_us(const std::vector<std::pair<KernelHandle, std::span<const std::byte>>>&, const LaunchShape&) override {
    return fail(Errc::machine, "an emulated device has no time; measure on a GPU");
  }

  EmulationSummary summary() const override { return summary_; }
  const EmulatorReport& report() const override { return report_; }

 private:
  struct Loaded {
    EmulatedKernel kernel;
    PtxModule module;
  };
  struct Mapped {
    std::unique_ptr<std::uint8_t[]> host;
    DeviceAddress device = 0;
  };
  Target target_;
  EmulatedDeviceOptions options_;
  DeviceInfo info_;
  EmulatedMemory memory_;
  std::map<void*, Mapped> mapped_;
  std::vector<std::unique_ptr<Loaded>> kernels_;
  EmulatorReport report_;
  EmulationSummary summary_;
  std::string failure_;   // of an earlier launch: nothing runs after it
};

}  // namespace

std::unique_ptr<EmulatedDevice> EmulatedDevice::make(const Target& target, const EmulatedDeviceOptions& options) {
  return std::make_unique<Emulated>(target, options);
}

std::string ptx_arch(const Target& target) { return "compute_" + target.arch().substr(std::string_view("sm_").size()); }

std::string describe_emulation(const EmulatorReport& report, const EmulationNames& names) {
  if (!report.error.empty()) return report.error;
  if (!report.deadlock.empty()) {
    std::string text = fmt::format("deadlock: {} waits can never end", report.deadlock.size());
    for (std::size_t i = 0; i < std::min(report.deadlock.size(), kMostWaits); ++i) text += "\n  " + describe_wait(report.deadlock[i]);
    if (report.deadlock.size() > kMostWaits) text += fmt::format("\n  and {} more", report.deadlock.size() - kMostWaits);
    return text;
  }
  if (!report.races.empty()) {
    std::string text = fmt::format("data race: {}", describe_race(report.races.front(), names));
    for (std::size_t i = 1; i < std::min(report.races.size(), kMostRaces); ++i) text += "\nand " + describe_race(report.races[i], names);
    if (report.races.size() > kMostRaces) text += fmt::format("\nand {} more", report.races.size() - kMostRaces);
    return text;
  }
  return report.completed ? "" : "the kernel did not complete";
}

}  // namespace adamk
