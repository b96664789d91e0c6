// Timeline: only in kernels that record where their time goes (Instrument::timeline). Every warp has a record for each step,
// layer and stage: the clock at its end, and the clocks spent waiting, by what was waited for. What is neither lies between
// the end before and this one: work. Records are adds and stores that nothing waits for.

constexpr int kTimelineWarps = kConsumerWarps + 3;

// Word `word` of this warp's record, [step][layer, kLayers: behind the last][stage][SM][warp][word].
__device__ __forceinline__ u8* timeline_word(const AdamkKernelParams& p, At at, u32 word) {
  const u32 place = ((at.step * (kLayers + 1) + at.layer) * 6 + at.stage) * kGrid + blockIdx.x;
  return static_cast<u8*>(p.workspace) + kTimelineOffset +
         4ll * kTimelineWords * (static_cast<long long>(place) * kTimelineWarps + threadIdx.x / 32) + 4 * word;
}
__device__ __forceinline__ bool takes_notes(At at) { return threadIdx.x % 32 == 0 && at.step < kTimelineSteps; }

// A wait for `kind` that began at clock `since` has ended.
__device__ __forceinline__ void note_wait(const AdamkKernelParams& p, At at, WaitedFor kind, u32 since) {
  const u32 waited = clock_now() - since;
  if (takes_notes(at))
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(timeline_word(p, at, 1 + kind)), "r"(waited) : "memory");
}
__device__ __forceinline__ void note_barrier(const AdamkKernelParams& p, At at, u32 barrier, u32 since) {
  const u32 offset = barrier - shared_base();
  const WaitedFor kind = offset < kRingEmpty       ? kWeightsWait
                         : offset < kPartialsFull  ? kSlotWait
                         : offset < kPartialsEmpty ? kTilesWait
                         : offset < kInputsReady   ? kBufferWait
                         : offset < kAttentionFull ? kInputWait
                         : offset < kAttentionEmpty ? kTilesWait
                         : offset < kTokenReady     ? kBufferWait
                                                    : kTokenWait;
  note_wait(p, at, kind, since);
}
__device__ __forceinline__ void note_end(const AdamkKernelParams& p, At at) {
  if (takes_notes(at)) store_relaxed_32(timeline_word(p, at, 0), clock_now());
}

// Once per SM: what the time was, everywhere the same, at which clock. The timer moves in steps; its edge is the same for all.
__device__ __forceinline__ u64 timer_now() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
__device__ __forceinline__ void note_anchor(const AdamkKernelParams& p, int anchor) {
  if (threadIdx.x % 32 != 0) return;
  const u64 before = timer_now();
  u64 now = timer_now();
  while (now == before) now = timer_now();
  u8* to = static_cast<u8*>(p.workspace) + kTimelineAnchors + 16ll * (2 * blockIdx.x + anchor);
  store_relaxed_64(to, now);
  store_relaxed_64(to + 8, clock_now());
}
