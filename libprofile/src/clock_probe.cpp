// ClockProbe (timing.h) and what compiles our small kernels.
#include <array>

#include "adamk/codegen/kernel.h"
#include "adamk/profile/probe.h"
#include "adamk/profile/timing.h"
#include "embedded/clock_probe.h"
#include "probe_kernel.h"

namespace adamk {
namespace {

/// Layout of ClockProbeParams in clock_probe.cuh.
struct Params {
  std::uint64_t result;
  std::uint64_t nanoseconds;
};

constexpr std::uint64_t watched_ns = 500'000;   // the global timer ticks once in up to 1 us: an error of 0.2 %

}  // namespace

Result<std::vector<std::byte>> compile_probe(std::string_view source, const DeviceInfo& info) {
  ADAMK_TRY(const Kernel kernel, compile(std::string(source), device_arch(info)));
  return kernel.image();
}

struct ClockProbe::State {
  Device& device;
  ProbeKernel kernel;
  DeviceBuffer result;
};

ClockProbe::ClockProbe(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClockProbe::ClockProbe(ClockProbe&&) noexcept = default;
ClockProbe::~ClockProbe() = default;

Result<ClockProbe> ClockProbe::create(Device& device) {
  ADAMK_TRY(const std::vector<std::byte> image, compile_probe(embedded_clock_probe, device.info()));
  ADAMK_TRY(ProbeKernel kernel, ProbeKernel::load(device, image, "clock_probe"));
  ADAMK_TRY(DeviceBuffer result, DeviceBuffer::allocate(device, 2 * sizeof(std::uint64_t)));
  return ClockProbe(std::unique_ptr<State>(new State{device, std::move(kernel), std::move(result)}));
}

Result<double> ClockProbe::mhz() {
  LaunchShape shape;
  shape.grid = 1;
  shape.threads = 1;
  shape.cooperative = false;
  ADAMK_CHECK(state_->kernel.launch(shape, Params{state_->result.address(), watched_ns}));
  ADAMK_CHECK(state_->device.synchronize());
  std::array<std::uint64_t, 2> counted{};
  ADAMK_CHECK(state_->device.download(std::as_writable_bytes(std::span(counted)), state_->result.address()));
  if (counted[1] == 0) return fail(Errc::machine, "the GPU's global timer stands still");
  return static_cast<double>(counted[0]) * 1000.0 / static_cast<double>(counted[1]);
}

}  // namespace adamk
