// Primitives: memory accesses with explicit ordering, mbarriers, asynchronous copies, mma, number formats, the watchdog.
// Part of every generated kernel; expects the generated constants (kFp16, kAbortFlag, ...) above it.

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

// ---- watchdog -------------------------------------------------------------------------------------------------------

enum Role { kLoader = 0, kConsumer = 1, kStorer = 2, kController = 3, kLauncher = 4 };
enum WaitKind { kWaitTagged = 1, kWaitCounter = 2, kWaitBarrier = 3, kWaitToken = 4 };

// Where a warp is, for the report.
struct At {
  u32 role, stage, layer, step;
};

__device__ __forceinline__ void leave() { asm volatile("exit;"); }

//#enum WaitedFor {   // by whom
//#  kInputWait,      // activations: consumer, storer (norm sums), controller
//#  kWeightsWait,    // a ring stage that is to land: consumer; loader, for its window
//#  kSlotWait,       // a free ring stage: loader
//#  kTurnWait,       // its turn to copy: loader with pace
//#  kTilesWait,      // partial sums, or attention's: storer
//#  kBufferWait,     // room for them: consumer
//#  kTokenWait       // the step's token: all; of the other SMs' rows: launcher
//#};
//#__device__ __forceinline__ void note_wait(const AdamkKernelParams& p, At at, WaitedFor kind, u32 since);
//#__device__ __forceinline__ void note_barrier(const AdamkKernelParams& p, At at, u32 barrier, u32 since);
//#__device__ __forceinline__ void note_end(const AdamkKernelParams& p, At at);

// In 1024 clocks, so that a register holds it.
__device__ __forceinline__ u32 watchdog_time() { return static_cast<u32>(clock64() >> 10); }

// Called now and then by a wait that has not been satisfied. True: some wait of the grid has timed out, leave the kernel.
// The first to time out writes the report; the flag in the workspace is what every other wait reads.
__device__ __noinline__ bool give_up(const AdamkKernelParams& p, u32 since, WaitKind kind, At at, u32 expected,
                                     u32 seen) {
  u32* flag = reinterpret_cast<u32*>(static_cast<u8*>(p.workspace) + kAbortFlag);
  if (*static_cast<volatile u32*>(flag) != 0) return true;
  if (static_cast<long long>(watchdog_time() - since) << 10 < p.watchdog_clocks) return false;
  if (atomicCAS(flag, 0u, 1u) == 0u) {
    volatile u32* report = p.report;
    report[1] = blockIdx.x;
    report[2] = at.role;
    report[3] = at.stage;
    report[4] = at.layer;
    report[5] = at.step;
    report[6] = expected;
    report[7] = seen;
    __threadfence_system();
    report[0] = kind;
    __threadfence_system();
  }
  return true;
}

// Counts unsuccessful polls; every 256th asks the watchdog.
struct Patience {
  u32 polls = 0, since = 0;
  __device__ __forceinline__ bool exhausted(const AdamkKernelParams& p, WaitKind kind, At at, u32 expected, u32 seen) {
    if (polls == 0) since = watchdog_time();
    if ((++polls & 255u) != 0) return false;
    return give_up(p, since, kind, at, expected, seen);
  }
};

// ---- shared memory and mbarriers (PTX ISA, "Parallel Synchronization: mbarrier") --------------------------------------

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ uint4 load_shared_16(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  u64 state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
}
__device__ __forceinline__ bool barrier_passed(u32 barrier, u32 parity) {
  u32 passed;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
#endif
  return passed != 0;
}
// Returns false when the watchdog says leave.
__device__ __forceinline__ bool barrier_wait_or_fail(const AdamkKernelParams& p, u32 barrier, u32 parity, At at) {
//#  const u32 since = clock_now();
  Patience patience;
  while (!barrier_passed(barrier, parity))
    if (patience.exhausted(p, kWaitBarrier, at, barrier, parity)) return false;
//#  note_barrier(p, at, barrier, since);
  return true;
}
__device__ __forceinline__ void barrier_wait(const AdamkKernelParams& p, u32 barrier, u32 parity, At at) {
  if (!barrier_wait_or_fail(p, barrier, parity, at)) leave();
}

// ---- global memory across SMs: relaxed, gpu scope; 64-bit accesses are single-copy atomic ----------------------------

__device__ __forceinline__ u32 load_relaxed_32(const void* address) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ u64 load_relaxed_64(const void* address) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(address) : "memory");
  return v;
}
struct Pair64 {
  u64 a, b;
};
__device__ __forceinline__ Pair64 load_relaxed_2x64(const void* address) {
  Pair64 v;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ u32 load_acquire_32(const void* address) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_relaxed_32(void* address, u32 v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store_relaxed_64(void* address, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(v) : "memory");
}
__device__ __forceinline__ void store_relaxed_2x64(void* address, u64 a, u64 b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1,%2};" ::"l"(address), "l"(a), "l"(b) : "memory");
}
__device__ __forceinline__ void add_release_32(void* address, u32 v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Read-only for the whole launch.
__device__ __forceinline__ uint2 load_constant_8(const void* address) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
  return v;
}
__device__ __forceinline__ uint4 load_constant_16(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
  return v;
}
__device__ __forceinline__ u32 load_constant_half(const void* address) {
  u16 v;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(address));
  return v;
}
// The KV cache: written and read by this kernel.
__device__ __forceinline__ uint4 load_kv_16(const void* address) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_kv_16(void* address, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// ---- asynchronous copies into shared memory ---------------------------------------------------------------------------

// Weights are read once per token and do not fit L2: let them be evicted first.
__device__ __forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#if __CUDA_ARCH__ >= 900
constexpr u32 kFullArrivals = 1;
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  u64 state;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
          to), "l"(from), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}
#else
constexpr u32 kFullArrivals = 32;
__device__ __forceinline__ void async_copy_16(u32 to, const void* from, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
               : "memory");
}
// Arrives when all earlier cp.async of this thread have landed; counted in the barrier's expected arrivals.
__device__ __forceinline__ void arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
#endif

// ---- numbers ------------------------------------------------------------------------------------------------------------

// Two values of the weights format in one word, the first in the low half.
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 v;
  if constexpr (kFp16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}
__device__ __forceinline__ float unpack_low(u32 v) {
  if constexpr (kFp16) {
    float f;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(f) : "r"(v));
    return f;
  } else {
    return __uint_as_float(v << 16);
  }
}
__device__ __forceinline__ float unpack_high(u32 v) {
  if constexpr (kFp16) {
    float f;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "r"(v));
    return f;
  } else {
    return __uint_as_float(v & 0xffff0000u);
  }
}
__device__ __forceinline__ float constant_value(const u8* tensor, long long index) {
  return unpack_low(load_constant_half(tensor + 2 * index));
}

// D += A x B, m16n8k16, fp32 accumulation (PTX ISA, "Matrix Fragments for mma.m16n8k16").
__device__ __forceinline__ void mma(float (&d)[4], uint4 a, u32 b0, u32 b1) {
  if constexpr (kFp16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  else
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

// Sums, or the largest, over the 32 lanes: the same bits in every lane. Several values at once take hardly longer than one.
template <int N>
__device__ __forceinline__ void warp_sum(float (&v)[N]) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += __shfl_xor_sync(~0u, v[i], offset);
  }
}
__device__ __forceinline__ float warp_sum(float v) {
  float one[1] = {v};
  warp_sum(one);
  return one[0];
}
template <int N>
__device__ __forceinline__ void warp_max(float (&v)[N]) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = fmaxf(v[i], __shfl_xor_sync(~0u, v[i], offset));
  }
}
