// Stamps: only in kernels that are to be timed tile by tile (Instrument::tiles). A consumer warp reads the clock at the end
// of each tile and leaves {clocks since the last, of them spent waiting} behind the workspace: [stage][SM][warp][tile], the
// latest layer and step over earlier ones. In attention one entry a walk over positions: {clocks, times through the loop}.

struct Stamp {
  u8* to;
  u32 last, waited = 0;

  __device__ __forceinline__ Stamp(const AdamkKernelParams& p, const Block& b, u32 stage) {
    to = static_cast<u8*>(p.workspace) + kStampsOffset +
         8ll * kStampTiles * ((stage * kGrid + blockIdx.x) * kConsumerWarps + b.warp);
    last = clock_now();
  }
  // A look that does not block: a barrier that is passed already costs what it always costs, the rest is time waited.
  __device__ __forceinline__ void wait(const AdamkKernelParams& p, u32 barrier, u32 parity, At at) {
    u32 passed;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    if (passed != 0) return;
    const u32 begin = clock_now();
    barrier_wait(p, barrier, parity, at);
    waited += clock_now() - begin;
  }
  __device__ __forceinline__ void write(const Block& b, int tile, u32 clocks) {
    if (b.lane == 0 && tile < kStampTiles) *reinterpret_cast<uint2*>(to + 8 * tile) = make_uint2(clocks, waited);
  }
  __device__ __forceinline__ void take(const Block& b, int tile) {
    const u32 now = clock_now();
    write(b, tile, now - last);
    last = now;
    waited = 0;
  }
  __device__ __forceinline__ void take_walk(const Block& b) { write(b, 0, clock_now() - last); }
};
