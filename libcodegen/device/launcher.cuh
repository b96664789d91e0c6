// Launcher: owns start and end of a step. It hands each step's token to its block's warps and, from all SMs' best rows,
// finds the next one; every SM does so for itself, which saves the hop of announcing it.

__device__ __forceinline__ void hand_over_token(const AdamkKernelParams& p, const Block& b, int token, u32& taken_parity,
                                                At at) {
  // Nobody may still need the last token's turn of the barrier: a warp without work could otherwise miss two turns.
  barrier_wait(p, shared_base() + kTokenTaken, taken_parity, at);
  taken_parity ^= 1;
  __syncwarp();   // lane 0 lets the next turn begin: no lane may still be testing the parity of this one
  if (b.lane == 0) {
    *reinterpret_cast<volatile int*>(shared_memory + kTokenWord) = token;
    barrier_arrive(shared_base() + kTokenReady);
  }
  __syncwarp();
//#  note_end(p, at);
}

__device__ __forceinline__ int next_token(const AdamkKernelParams& p, const Block& b, int step, u32 tag, At at) {
  at.role = kLauncher;
  at.stage = 5;
//#  at.layer = kLayers;
//#  const u32 since = clock_now();
  Best best = {-__int_as_float(0x7f800000), 0x7fffffff};
  for (int sm = b.lane; sm < kGrid; sm += 32) {
    const u8* entry = argmax_entry(p, step, sm);
    Patience patience;
    Pair64 packets = load_relaxed_2x64(entry);
    while (static_cast<u32>(packets.a >> 32) != tag || static_cast<u32>(packets.b >> 32) != tag) {
      if (patience.exhausted(p, kWaitToken, at, tag, static_cast<u32>(packets.a >> 32))) leave();
      packets = load_relaxed_2x64(entry);
    }
    take_better(best, __uint_as_float(static_cast<u32>(packets.a)), static_cast<int>(static_cast<u32>(packets.b)));
  }
//#  __syncwarp();
//#  note_wait(p, at, kTokenWait, since);
  best = warp_best(best);
  if constexpr (kOrderKvPerToken) {
    fence_gpu();    // acquires what the other SMs appended
    __syncwarp();   // for lane 0 too, which hands it on with the next token: each lane has polled entries of its own
  }
  // A step of NaN logits has no best row; any row of the table will do, the tokens are meaningless anyway.
  const int token = static_cast<u32>(best.index) < static_cast<u32>(kVocab) ? best.index : 0;
  if (blockIdx.x == 0 && b.lane == 0) p.tokens[step] = token;
//#  note_end(p, at);
  return token;
}
