#include "adamk/profile/latencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "adamk/profile/statistics.h"
#include "probe_kernel.h"

namespace adamk {
namespace {

constexpr int kChain = 128;        // instructions of a warp's chain
constexpr int kFlood = 64, kTurns = 16;   // of a warp of the flood: so many, in four chains, so many times
constexpr int kLaunches = 5;
constexpr std::size_t kRing = 4096;   // cells of a ring of pointers, 16 MB, so that it lies in both halves of L2
constexpr std::int64_t kCell = 4096;

/// One instruction. `$` in the text is the number of a chain, so that four of them can be independent.
struct Probe {
  CostKind kind;
  const char* what;
  const char* text;
  bool latency = true, busy = true;
  double less = 0;                 // latency of what the chain needs besides
};

// At hand: r$ (its own shared word's address, which that word holds), f$, d$ (four floats), g$ (a global address that holds
// the next of a ring), n$ (the same of a ring of one line), rb = 1, zero = 0, fb, fc, bar (a barrier whose parity 1 has passed).
const std::array kProbes = {
    Probe{CostKind::integer, "add.s32, xor.b32",
          "asm volatile(\"add.s32 %0, %0, %1; xor.b32 %0, %0, %2;\" : \"+r\"(r$) : \"r\"(rb), \"r\"(rc));"},
    Probe{CostKind::integer, "selp.b32 behind setp.ne.s32",
          "asm volatile(\"{ .reg .pred q; setp.ne.s32 q, %0, %1; selp.b32 %0, %1, %2, q; }\" : \"+r\"(r$) : \"r\"(rb), \"r\"(rc));"},
    Probe{CostKind::multiply, "mad.lo.s32", "asm volatile(\"mad.lo.s32 %0, %0, %1, %2;\" : \"+r\"(r$) : \"r\"(rb), \"r\"(rc));"},
    Probe{CostKind::float_add, "fma.rn.f32", "asm volatile(\"fma.rn.f32 %0, %0, %1, %2;\" : \"+f\"(f$) : \"f\"(fb), \"f\"(fc));"},
    Probe{CostKind::convert, "cvt.rn.bf16x2.f32",
          "asm volatile(\"{ .reg .b32 t; cvt.rn.bf16x2.f32 t, %0, %1; mov.b32 %0, t; }\" : \"+f\"(f$) : \"f\"(fb));"},
    Probe{CostKind::special, "ex2.approx.ftz.f32", "asm volatile(\"ex2.approx.ftz.f32 %0, %0;\" : \"+f\"(f$));"},
    Probe{CostKind::divide, "div.rn.f32", "asm volatile(\"div.rn.f32 %0, %0, %1;\" : \"+f\"(f$) : \"f\"(fe));"},   // by 1: stays normal
    Probe{CostKind::shuffle, "shfl.sync.bfly.b32",
          "asm volatile(\"shfl.sync.bfly.b32 %0, %0, 1, 31, -1;\" : \"+r\"(r$));"},
    Probe{CostKind::vote, "vote.sync.ballot.b32 behind setp",
          "asm volatile(\"{ .reg .pred q; setp.ne.s32 q, %0, %1; vote.sync.ballot.b32 %0, q, -1; }\" : \"+r\"(r$) : \"r\"(rb));", true,
          true, 4},
    Probe{CostKind::mma, "mma.m16n8k16 bf16",
          "asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%4,%6}, {%0,%1,%2,%3};\""
          " : \"+f\"(d$[0]), \"+f\"(d$[1]), \"+f\"(d$[2]), \"+f\"(d$[3]) : \"r\"(r0), \"r\"(r1), \"r\"(r2), \"r\"(r3));"},
    Probe{CostKind::load_shared, "ld.shared.u32", "asm volatile(\"ld.shared.u32 %0, [%0];\" : \"+r\"(r$));"},
    Probe{CostKind::load_shared, "ld.shared.v4.u32",
          "asm volatile(\"{ .reg .b32 x, y, z; ld.shared.v4.u32 {%0, x, y, z}, [%0]; }\" : \"+r\"(v$));"},
    Probe{CostKind::store_shared, "st.shared.u32", "asm volatile(\"st.shared.u32 [%0], %0;\" ::\"r\"(r$) : \"memory\");", false},
    Probe{CostKind::load_matrix, "ldmatrix.x1", 
          "asm volatile(\"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];\" : \"+r\"(m$));"},
    Probe{CostKind::load_global, "ld.relaxed.gpu.global.u64 (L2)",
          "asm volatile(\"ld.relaxed.gpu.global.u64 %0, [%0];\" : \"+l\"(g$)::\"memory\");"},
    Probe{CostKind::load_global, "ld.global.v4.u32 (L2)",
          "asm volatile(\"{ .reg .b32 z, w, x, y; ld.global.cg.v4.u32 {x, y, z, w}, [%0]; mov.b64 %0, {x, y}; }\" : \"+l\"(g$)::\"memory\");"},
    Probe{CostKind::load_constant, "ld.global.nc.u64 (L1)",
          "asm volatile(\"ld.global.nc.u64 %0, [%0];\" : \"+l\"(n$));"},
    Probe{CostKind::store_global, "st.relaxed.gpu.global.u32",
          "asm volatile(\"st.relaxed.gpu.global.u32 [%0], %1;\" ::\"l\"(own + 1024 * $), \"r\"(rb) : \"memory\");", false, true},
    Probe{CostKind::atomic_shared, "atom.shared.or.b32",
          "asm volatile(\"atom.shared.or.b32 %0, [%0], %1;\" : \"+r\"(r$) : \"r\"(zero) : \"memory\");"},
    Probe{CostKind::atomic_global, "atom.global.or.b64",
          "asm volatile(\"atom.global.or.b64 %0, [%0], %1;\" : \"+l\"(o$) : \"l\"(zero64) : \"memory\");"},
    Probe{CostKind::barrier_test, "mbarrier.try_wait.parity, selp",
          "asm volatile(\"{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %0; selp.b32 %0, %2, %3, q; }\""
          " : \"+r\"(b$) : \"r\"(bar), \"r\"(rb), \"r\"(zero) : \"memory\");", true, true, 4},
    Probe{CostKind::barrier_arrive, "mbarrier.arrive by one lane",
          "if (lane == 0) asm volatile(\"{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }\" ::\"r\"(bar + 8) : \"memory\");"},
    Probe{CostKind::warp_barrier, "bar.warp.sync behind st.shared",
          "asm volatile(\"st.shared.u32 [%0], %0; bar.warp.sync -1;\" ::\"r\"(r$) : \"memory\");", true, false},
    Probe{CostKind::block_barrier, "bar.sync of one warp", "asm volatile(\"bar.sync 0;\" ::: \"memory\");", true, false},
    Probe{CostKind::fence, "fence.acq_rel.gpu", "asm volatile(\"fence.acq_rel.gpu;\" ::: \"memory\");", true, false},
    Probe{CostKind::async_copy, "cp.async.cg 16",
          "asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" ::\"r\"(v$), \"l\"(n$) : \"memory\");", false, true},
    Probe{CostKind::clock, "mov.u32 %clock, add", "asm volatile(\"{ .reg .b32 t; mov.u32 t, %%clock; add.u32 %0, %0, t; }\" : \"+r\"(r$)::\"memory\");",
          true, false},
};

struct Params {
  std::uint64_t out, ring, line, words;
};

std::string numbered(std::string_view text, int chain) {
  std::string out;
  for (const char c : text) c == '$' ? out += std::to_string(chain) : out += c;
  return out;
}

std::string kernel(std::size_t index, const Probe& probe, bool flood) {
  std::string body;
  for (int i = 0; i < (flood ? kFlood : kChain); ++i) body += "      " + numbered(probe.text, flood ? i % 4 : 0) + "\n";
  // A loop that fits the instruction cache next to the scheduler: with long code, fetching it is what warps wait for.
  if (flood) body = fmt::format("#pragma unroll 1\n    for (int turn = 0; turn < {}; ++turn) {{\n{}    }}\n", kTurns, body);
  // A first run brings code and data near; only the second is timed.
  return fmt::format(
      "extern \"C\" __global__ void {}_{}(Params p) {{\n  PROLOGUE\n#pragma unroll 1\n  for (int run = 0; run < 2; ++run) {{\n"
      "    __syncthreads();\n    begin = now();\n{}    end = now();\n  }}\n  EPILOGUE\n}}\n",
      flood ? "flood" : "chain", index, body);
}

std::string source() {
  std::string text = R"(typedef unsigned u32;
typedef unsigned long long u64;
struct Params { u32* out; u64 *ring, *line; u32* words; };
extern __shared__ __align__(128) u32 memory[];
__device__ __forceinline__ u32 now() {
  u32 t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
#define PROLOGUE                                                                                                         \
  const u32 lane = threadIdx.x % 32;                                                                                     \
  const u32 base = (u32)__cvta_generic_to_shared(memory);                                                               \
  for (u32 i = threadIdx.x; i < 4096; i += blockDim.x) memory[i] = base + 4 * i;                                         \
  for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) memory[8192 + i] = base + 4 * 8192;                               \
  for (u32 i = threadIdx.x; i < 4096; i += blockDim.x) memory[4096 + i] = base + 4 * 4096 + 16 * (i / 4);                \
  const u32 bar = base + 4 * 9216, zero = p.words[0], rb = p.words[1], rc = p.words[2];                                  \
  const u64 zero64 = zero;                                                                                               \
  if (threadIdx.x < 2)                                                                                                   \
    asm volatile("mbarrier.init.shared.b64 [%0], 1024;" ::"r"(bar + 8 * threadIdx.x) : "memory");                        \
  u32 r0 = base + 4 * threadIdx.x, r1 = r0 + 4096, r2 = r0 + 8192, r3 = r0 + 12288;                                      \
  u32 v0 = base + 4 * 4096 + 16 * (threadIdx.x % 1024), v1 = v0, v2 = v0, v3 = v0;                                       \
  u32 m0 = base + 4 * 8192, m1 = m0, m2 = m0, m3 = m0, b0 = rb, b1 = rb, b2 = rb, b3 = rb;                               \
  float f0 = zero + 1.5f, f1 = f0, f2 = f0, f3 = f0, fb = rb * 1.25f, fc = rb * 0.5f, fe = rb;                                   \
  float d0[4] = {f0, f0, f0, f0}, d1[4] = {f0, f0, f0, f0}, d2[4] = {f0, f0, f0, f0}, d3[4] = {f0, f0, f0, f0};          \
  u64 g0 = (u64)p.ring, g1 = g0, g2 = g0, g3 = g0, n0 = (u64)p.line, n1 = n0, n2 = n0, n3 = n0;                          \
  u32* own = p.words + 4096 + threadIdx.x;                                                                               \
  u64 o0 = (u64)(p.words + 8192 + 2 * threadIdx.x), o1 = o0, o2 = o0, o3 = o0;                                           \
  *(u64*)o0 = o0;                                                                                                        \
  __syncthreads();                                                                                                       \
  u32 begin = 0, end = 0;
#define EPILOGUE                                                                                                         \
  asm volatile("cp.async.wait_all;" ::: "memory");                                                                       \
  if (lane == 0) p.out[2 * (threadIdx.x / 32)] = begin, p.out[2 * (threadIdx.x / 32) + 1] = end;                         \
  const float f = f0 + f1 + f2 + f3 + d0[0] + d1[0] + d2[0] + d3[0] + d0[3] + d1[3] + d2[3] + d3[3];                     \
  const u64 all = r0 + r1 + r2 + r3 + v0 + v1 + v2 + v3 + m0 + m1 + m2 + m3 + b0 + b1 + b2 + b3 + g0 + g1 + g2 + g3 +    \
                  n0 + n1 + n2 + n3 + o0 + o1 + o2 + o3;                                                                 \
  if (all == 12345 && f == 3.25f) p.out[64] = 1;
)";
  text += "extern \"C\" __global__ void chain_none(Params p) {\n  PROLOGUE\n  for (int run = 0; run < 2; ++run) {\n"
          "    __syncthreads();\n    begin = now();\n    end = now();\n  }\n  EPILOGUE\n}\n";
  for (std::size_t i = 0; i < kProbes.size(); ++i) {
    if (kProbes[i].latency) text += kernel(i, kProbes[i], false);
    if (kProbes[i].busy) text += kernel(i, kProbes[i], true);
  }
  return text;
}

/// Clocks from the first warp's begin to the last one's end; median of the launches.
Result<double> clocks_of(Device& device, std::span<const std::byte> image, const std::string& entry, int warps, const Params& params) {
  ADAMK_TRY(const ProbeKernel loaded, ProbeKernel::load(device, image, entry));
  LaunchShape shape;
  shape.grid = 1;
  shape.threads = 32 * warps;
  shape.smem = 40 * 1024;
  shape.cooperative = false;
  std::vector<double> clocks;
  for (int i = 0; i < kLaunches; ++i) {
    ADAMK_CHECK(loaded.launch(shape, params));
    ADAMK_CHECK(device.synchronize());
    std::array<std::uint32_t, 64> times{};
    ADAMK_CHECK(device.download(std::as_writable_bytes(std::span(times)), params.out));
    std::int32_t first = 0, last = 0;   // from warp 0's begin, as the clock may wrap
    for (std::size_t w = 0; w < static_cast<std::size_t>(warps); ++w) {
      first = std::min(first, static_cast<std::int32_t>(times[2 * w] - times[0]));
      last = std::max(last, static_cast<std::int32_t>(times[2 * w + 1] - times[0]));
    }
    clocks.push_back(last - first);
  }
  return summarise(clocks).median;
}

}  // namespace

Result<std::vector<MeasuredCost>> measure_latencies(Device& device) {
  ADAMK_TRY(const std::vector<std::byte> image, compile_probe(source(), device.info()));
  ADAMK_TRY(const DeviceBuffer out, DeviceBuffer::allocate(device, 4096));
  ADAMK_TRY(const DeviceBuffer ring, DeviceBuffer::allocate(device, kRing * kCell));
  ADAMK_TRY(const DeviceBuffer line, DeviceBuffer::allocate(device, 128));
  ADAMK_TRY(const DeviceBuffer words, DeviceBuffer::allocate(device, 1 << 16));
  std::vector<std::uint64_t> cells(kRing * kCell / 8);
  for (std::size_t c = 0; c < kRing; ++c)
    cells[c * kCell / 8] = ring.address() + (c + 1237) % kRing * kCell;
  ADAMK_CHECK(device.upload(ring.address(), std::as_bytes(std::span(cells))));
  std::vector<std::uint64_t> same(16, line.address());
  ADAMK_CHECK(device.upload(line.address(), std::as_bytes(std::span(same))));
  ADAMK_CHECK(device.fill(words.address(), 0, words.bytes()));
  const std::array<std::uint32_t, 3> constants{0, 1, 3};
  ADAMK_CHECK(device.upload(words.address(), std::as_bytes(std::span(constants))));
  const Params params{out.address(), ring.address(), line.address(), words.address()};

  ADAMK_TRY(const double nothing, clocks_of(device, image, "chain_none", 1, params));
  const LatencyTable table = latency_table(device.info().sm);
  std::vector<MeasuredCost> costs;
  for (std::size_t i = 0; i < kProbes.size(); ++i) {
    const Probe& probe = kProbes[i];
    MeasuredCost cost{probe.kind, probe.what};
    const int per_text = probe.kind == CostKind::integer ? 2 : 1;   // instructions that count
    if (probe.latency) {
      ADAMK_TRY(const double clocks, clocks_of(device, image, fmt::format("chain_{}", i), 1, params));
      cost.latency = (clocks - nothing) / kChain / per_text - probe.less;
    }
    if (probe.busy) {
      ADAMK_TRY(const double clocks, clocks_of(device, image, fmt::format("flood_{}", i), 32, params));
      const int sharing = is_shared(table.row(probe.kind).pipe) ? 32 : 8;   // warps on one pipe
      cost.busy = (clocks - nothing) / (kFlood * kTurns) / sharing / per_text;
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace adamk
