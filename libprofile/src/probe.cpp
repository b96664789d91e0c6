#include "adamk/profile/probe.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <vector>

#include "adamk/profile/statistics.h"
#include "adamk/profile/timing.h"
#include "embedded/hop_probe.h"
#include "embedded/read_probe.h"
#include "probe_kernel.h"

namespace adamk {
namespace {

/// Layouts of the structs in libprofile/device.
struct ReadParams {
  std::uint64_t data, sink;
  std::int64_t bytes;
  int stages, reserved;
};
struct HopParams {
  std::uint64_t packets, stuck;
  std::int64_t limit;
  std::uint32_t first_tag;
  int phases;
};

constexpr std::int64_t stage_bytes = 16384;   // as in read_probe.cuh
constexpr std::int64_t gib = std::int64_t{1} << 30;
constexpr int repetitions = 5;
constexpr int packets_per_block = 8;          // as in hop_probe.cuh
constexpr int hop_phases = 4000;

LaunchShape shape_of(int grid, int threads, std::int64_t smem, bool cooperative) {
  LaunchShape shape;
  shape.grid = grid;
  shape.threads = threads;
  shape.smem = smem;
  shape.cooperative = cooperative;
  return shape;
}

/// The largest of 4 GiB, 2 GiB, ... that the device gives, and never more than half of its memory.
Result<DeviceBuffer> allocate_large(Device& device) {
  std::int64_t bytes = 4 * gib;
  while (bytes > device.info().memory_bytes / 2 && bytes > gib / 4) bytes /= 2;
  while (true) {
    auto buffer = DeviceBuffer::allocate(device, bytes);
    if (buffer || bytes <= gib / 4) return buffer;
    bytes /= 2;
  }
}

/// Median of several launches after one that is not counted, in GB/s.
Result<double> streaming_gbps(const ProbeKernel& kernel, const LaunchShape& shape, const ReadParams& params) {
  std::vector<double> us;
  for (int i = 0; i <= repetitions; ++i) {
    ADAMK_TRY(const double one, kernel.time_us(shape, params));
    if (i > 0) us.push_back(one);
  }
  return static_cast<double>(params.bytes) / summarise(us).median / 1000.0;
}

Result<double> bulk_gbps(Device& device, std::span<const std::byte> image, ReadParams params) {
  // Two KB stay free for the barriers and what the compiler adds.
  params.stages = static_cast<int>(std::min<std::int64_t>(8, (device.info().smem_per_block - 2048) / stage_bytes));
  if (params.stages < 1) return fail(Errc::machine, "a block has no shared memory for one stage of {} bytes", stage_bytes);
  ADAMK_TRY(const ProbeKernel kernel, ProbeKernel::load(device, image, "read_bulk"));
  return streaming_gbps(kernel, shape_of(device.info().sms, 32, params.stages * stage_bytes, false), params);
}

}  // namespace

std::string device_arch(const DeviceInfo& info) {
  Target target;
  target.sm = info.sm;
  return target.arch();
}

Result<ReadCeiling> measure_read_ceiling(Device& device) {
  ADAMK_TRY(const std::vector<std::byte> image, compile_probe(embedded_read_probe, device.info()));
  ADAMK_TRY(const DeviceBuffer data, allocate_large(device));
  ADAMK_TRY(const DeviceBuffer sink, DeviceBuffer::allocate(device, 16));
  const ReadParams params{data.address(), sink.address(), data.bytes(), 0, 0};
  const int sms = device.info().sms;
  {
    ADAMK_TRY(const ProbeKernel fill, ProbeKernel::load(device, image, "read_fill"));
    ADAMK_CHECK(fill.launch(shape_of(8 * sms, 256, 0, false), params));
    ADAMK_CHECK(device.synchronize());
  }
  ReadCeiling ceiling;
  ceiling.bytes = data.bytes();
  ADAMK_TRY(const ProbeKernel vector, ProbeKernel::load(device, image, "read_vector"));
  // 2048 threads an SM where it holds them; the hardware queues the rest elsewhere.
  ADAMK_TRY(ceiling.vector_gbps, streaming_gbps(vector, shape_of(2 * sms, 1024, 0, false), params));
  ceiling.gbps = ceiling.vector_gbps;
  ceiling.method = "vector loads";
  if (device.info().sm >= 90) {
    ADAMK_TRY(ceiling.bulk_gbps, bulk_gbps(device, image, params));
    if (ceiling.bulk_gbps > ceiling.gbps) {
      ceiling.gbps = ceiling.bulk_gbps;
      ceiling.method = "bulk copies";
    }
  }
  return ceiling;
}

Result<double> read_ceiling_gbps(Device& device) {
  ADAMK_TRY(const ReadCeiling ceiling, measure_read_ceiling(device));
  return ceiling.gbps;
}

Result<double> measure_hop_us(Device& device) {
  ADAMK_TRY(const std::vector<std::byte> image, compile_probe(embedded_hop_probe, device.info()));
  ADAMK_TRY(const ProbeKernel kernel, ProbeKernel::load(device, image, "hop_probe"));
  const int sms = device.info().sms;
  const std::int64_t packet_bytes = std::int64_t{2} * sms * packets_per_block * 8;
  ADAMK_TRY(const DeviceBuffer packets, DeviceBuffer::allocate(device, packet_bytes));
  ADAMK_TRY(const DeviceBuffer stuck, DeviceBuffer::allocate(device, 16));
  ADAMK_CHECK(device.fill(packets.address(), 0, packet_bytes));
  ADAMK_CHECK(device.fill(stuck.address(), 0, 16));

  HopParams params{packets.address(), stuck.address(), std::int64_t{2'000'000'000}, 2, hop_phases};   // about a second
  std::vector<double> us;
  for (int i = 0; i <= repetitions; ++i) {
    ADAMK_TRY(const double one, kernel.time_us(shape_of(sms, 512, 0, true), params));
    params.first_tag += hop_phases;
    if (i > 0) us.push_back(one / hop_phases);
    std::uint32_t flag = 0;
    ADAMK_CHECK(device.download(std::as_writable_bytes(std::span(&flag, 1)), stuck.address()));
    if (flag != 0) return fail(Errc::machine, "the hop probe waited for a packet that never came; the device is not usable");
  }
  return summarise(us).median;
}

std::string target_name(std::string_view product) {
  std::string lower;
  for (char c : product) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (std::string_view noise : {"nvidia ", "geforce ", "tesla "}) {
    if (const std::size_t at = lower.find(noise); at != std::string::npos) lower.erase(at, noise.size());
  }
  // What follows a data-centre product's name is its board and memory: "a100-sxm4-80gb".
  lower = lower.substr(0, lower.find("-sxm"));
  lower = lower.substr(0, lower.find("-pcie"));
  lower = lower.substr(0, lower.find(" pcie"));
  for (char& c : lower) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  return lower.empty() ? "gpu" : lower;
}

Result<Target> probe_target(Device& device, const std::string& name) {
  const DeviceInfo& info = device.info();
  Target target;
  target.name = name.empty() ? target_name(info.name) : name;
  target.product = info.name;
  target.sm = info.sm;
  target.sms = info.sms;
  target.smem_per_block = info.smem_per_block;
  target.smem_per_sm = info.smem_per_sm;
  target.smem_reserved = info.smem_reserved;
  target.registers_per_sm = info.registers_per_sm;
  target.l2_bytes = info.l2_bytes;
  target.memory_bytes = info.memory_bytes;
  ADAMK_TRY(const ReadCeiling ceiling, measure_read_ceiling(device));
  ADAMK_TRY(const double hop_us, measure_hop_us(device));
  ADAMK_TRY(ClockProbe clock, ClockProbe::create(device));
  ADAMK_TRY(const double mhz, clock.mhz());
  // Figures a person compares: more digits are noise.
  target.read_gbps = std::round(ceiling.gbps);
  target.hop_us = std::round(hop_us * 100) / 100;
  target.clock_mhz = std::round(mhz);
  target.measured = true;
  return target;
}

}  // namespace adamk
