// Block: the shared state of one thread block, and the loader. Offsets of shared memory come from the Schedule.

// Barriers, in this order from the start of shared memory.
constexpr u32 kRingFull = 0;
constexpr u32 kRingEmpty = kRingFull + 8 * kRingStages;
constexpr u32 kPartialsFull = kRingEmpty + 8 * kRingStages;
constexpr u32 kPartialsEmpty = kPartialsFull + 16;
constexpr u32 kInputsReady = kPartialsEmpty + 16;
constexpr u32 kAttentionFull = kInputsReady + 8;
constexpr u32 kAttentionEmpty = kAttentionFull + 8;
constexpr u32 kTokenReady = kAttentionEmpty + 8;
constexpr u32 kTokenTaken = kTokenReady + 8;
constexpr u32 kTokenWord = kTokenTaken + 8;

extern __shared__ __align__(128) u8 shared_memory[];   // its address is known at compile time: no register holds it
__device__ __forceinline__ u32 shared_base() { return shared_address(shared_memory); }

// One warp's place in its block.
struct Block {
  int warp, lane;

  // Keeps the compiler from working out addresses of later stages ahead of the layer loop, and then spilling them.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(warp), "+r"(lane)); }
};

__device__ __forceinline__ void init_barriers(const Block& b) {
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < kRingStages; ++i) {
      barrier_init(shared_base() + kRingFull + 8 * i, kFullArrivals);
      barrier_init(shared_base() + kRingEmpty + 8 * i, kConsumerWarps);
    }
    for (u32 i = 0; i < 2; ++i) {
      barrier_init(shared_base() + kPartialsFull + 8 * i, kConsumerWarps);
      barrier_init(shared_base() + kPartialsEmpty + 8 * i, 1);
    }
    barrier_init(shared_base() + kInputsReady, 1);
    barrier_init(shared_base() + kAttentionFull, kConsumerWarps);
    barrier_init(shared_base() + kAttentionEmpty, 1);
    barrier_init(shared_base() + kTokenReady, 1);
    barrier_init(shared_base() + kTokenTaken, kConsumerWarps + 1);
#if __CUDA_ARCH__ >= 900
    // Makes the barriers known to the asynchronous proxy that completes bulk copies.
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __syncthreads();
}

// Tiles of stage S that this SM owns: as even as whole tiles allow, contiguous.
template <class S>
__device__ __forceinline__ int tile_count() {
  return S::kTiles / kGrid + (static_cast<int>(blockIdx.x) < S::kTiles % kGrid ? 1 : 0);
}
template <class S>
__device__ __forceinline__ int first_tile() {
  const int sm = static_cast<int>(blockIdx.x);
  return sm * (S::kTiles / kGrid) + (sm < S::kTiles % kGrid ? sm : S::kTiles % kGrid);
}
template <class S>
__device__ constexpr int chunk_steps(int chunk) {
  return chunk + 1 < S::kChunks ? S::kChunkSteps : S::kSteps - S::kChunkSteps * (S::kChunks - 1);
}

__device__ __forceinline__ void advance(u32& slot, u32& parity) {
  if (++slot == kRingStages) {
    slot = 0;
    parity ^= 1;
  }
}

// ---- loader: one warp (one lane with bulk copies) streams this SM's weights in plan order, bounded only by the ring and
// the window; it never waits for activations --------------------------------------------------------------------------

struct Loader {
  u32 slot = 0, empty_parity = 1;    // the next ring stage to fill; a fresh barrier lets parity 1 pass
  u32 tail_slot = 0, tail_parity = 0;  // the oldest fill that may still be in flight
  u32 in_flight = 0;
  long long next_copy = 0;
  u64 policy = 0;
//@  u32 fills = 0;
};

// Asynchronous copies write shared memory that must outlive them: the loader waits for all before it leaves, also at its end,
// since the watchdog may call the other warps away.
__device__ __noinline__ void drain(u32 tail_slot, u32 tail_parity, u32 in_flight) {
  for (; in_flight > 0; --in_flight) {
    while (!barrier_passed(shared_base() + kRingFull + 8 * tail_slot, tail_parity)) {}
    advance(tail_slot, tail_parity);
  }
}
__device__ __forceinline__ void drain_and_leave(const Loader& loader) {
  drain(loader.tail_slot, loader.tail_parity, loader.in_flight);
  leave();
}

// Pacing: one piece of at most 8 KB every kPace clocks keeps the memory queue short; late pieces do not bunch up.
__device__ __forceinline__ void await_turn(Loader& loader) {
  long long now = clock64();
  while (now < loader.next_copy) now = clock64();
  loader.next_copy = (loader.next_copy + 2 * kPace < now ? now - kPace : loader.next_copy) + kPace;
}

__device__ __forceinline__ void fill(const AdamkKernelParams& p, const Block& b, Loader& loader, const u8* from,
                                     u32 bytes, At at) {
//@  // Consumers are to be timed, not memory: the ring is filled once, and stays full for them.
//@  if (loader.fills++ == kRingStages) drain_and_leave(loader);
//@  from = static_cast<const u8*>(p.weights) + loader.slot * kRingStageBytes;
//@  bytes = kRingStageBytes;
  if (loader.in_flight == kWindow) {
    if (!barrier_wait_or_fail(p, shared_base() + kRingFull + 8 * loader.tail_slot, loader.tail_parity, at))
      drain_and_leave(loader);
    advance(loader.tail_slot, loader.tail_parity);
    --loader.in_flight;
  }
  if (!barrier_wait_or_fail(p, shared_base() + kRingEmpty + 8 * loader.slot, loader.empty_parity, at))
    drain_and_leave(loader);
  const u32 full = shared_base() + kRingFull + 8 * loader.slot;
  const u32 to = shared_base() + kRingOffset + loader.slot * kRingStageBytes;
#if __CUDA_ARCH__ >= 900
  barrier_expect(full, bytes);
  if constexpr (kPace == 0) {
    bulk_copy(to, from, bytes, full, loader.policy);
  } else {
    for (u32 at_byte = 0; at_byte < bytes; at_byte += 8192) {
//#      const u32 since = clock_now();
      await_turn(loader);
//#      note_wait(p, at, kTurnWait, since);
      bulk_copy(to + at_byte, from + at_byte, bytes - at_byte < 8192u ? bytes - at_byte : 8192u, full, loader.policy);
    }
  }
#else
  for (u32 at_byte = 16u * b.lane; at_byte < bytes; at_byte += 512) {
    if constexpr (kPace > 0) {
//#      const u32 since = clock_now();
      if ((at_byte & 8191u) < 512u) await_turn(loader);
//#      note_wait(p, at, kTurnWait, since);
    }
    async_copy_16(to + at_byte, from + at_byte, loader.policy);
  }
  arrive_after_copies(full);
#endif
  ++loader.in_flight;
  advance(loader.slot, loader.empty_parity);
}

template <class S>
__device__ __forceinline__ void load_stage(const AdamkKernelParams& p, const Block& b, Loader& loader,
                                           const u8* stage_weights, At at) {
  at.stage = S::kStage;
  const u8* from = stage_weights + static_cast<long long>(first_tile<S>()) * S::kTileBytes;
  for (int tile = tile_count<S>(); tile > 0; --tile) {
#pragma unroll 1
    for (int chunk = 0; chunk < S::kChunks; ++chunk) {
      const u32 bytes = static_cast<u32>(chunk_steps<S>(chunk)) * (512u * S::kBlocks * kConsumerWarps);
      fill(p, b, loader, from, bytes, at);
      from += bytes;
    }
  }
//#  note_end(p, at);
}
