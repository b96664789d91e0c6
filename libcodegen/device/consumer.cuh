// Consumers: each warp owns a slice of K. It receives only its slice of the activations, straight into registers, and
// multiplies it with the matching part of every tile; partial sums go to the storer through shared memory.
//
// Lane l of a warp holds, in round i, columns first + 4 (32 i + l) .. + 3 of the slice: the values of K step 8 i + l / 4
// that the B fragment wants in lanes l % 4. K step j puts them in column j % 8 of B and zeros elsewhere, so every lane uses
// just the values it received, and the eight columns of the result are added at the end.

// Parities share a register: a consumer has none to spare.
enum ConsumerBit : u32 { kFullParity = 0, kBuffer, kEmptyParity, kInputsParity, kAttentionParity };

struct Consumer {
  u32 slot = 0;   // of the ring
  u32 bits = 1u << kEmptyParity | 1u << kAttentionParity;   // what is empty at the start lets parity 1 pass

  __device__ __forceinline__ u32 get(ConsumerBit bit) const { return bits >> bit & 1u; }
  __device__ __forceinline__ void flip(ConsumerBit bit) { bits ^= 1u << bit; }
};

// Plain edges: once per phase, before the first read of it.
template <class Edge>
__device__ __forceinline__ void await_inputs(const AdamkKernelParams& p, Consumer& c, At at) {
  if constexpr (Edge::kKind != kTagged) {
    barrier_wait(p, shared_base() + kInputsReady, c.get(kInputsParity), at);
    c.flip(kInputsParity);
  }
}

// The words of activations a lane holds for stage S.
template <class S>
struct Inputs {
  static constexpr int kRounds = (S::kSteps + 7) / 8;
  static constexpr int kWords = 2 * kRounds;
  u32 words[kWords];
};

template <class S>
__device__ __forceinline__ int column_of(const Block& b, int round) {
  return b.warp * (S::kSteps * 16) + 4 * (32 * round + b.lane);
}
template <class S>
__device__ __forceinline__ bool column_exists(const Block& b, int round) {
  return 8 * round + (b.lane >> 2) < S::kSteps && column_of<S>(b, round) < S::kK;
}

template <class S, class Edge>
__device__ __forceinline__ void receive_inputs(const AdamkKernelParams& p, const Block& b, Consumer& c, u32 tag,
                                               Inputs<S>& x, At at) {
  at.stage = S::kStage;
  await_inputs<Edge>(p, c, at);
  int index[Inputs<S>::kRounds];
  bool wanted[Inputs<S>::kRounds];
#pragma unroll
  for (int i = 0; i < Inputs<S>::kRounds; ++i) {
    index[i] = column_of<S>(b, i);
    wanted[i] = column_exists<S>(b, i);
  }
  receive_fours<Edge>(p, index, wanted, tag, x.words, at);
}

// SiLU(gate) x up computed by the reader: gate in values [0, K), up in [K, 2 K).
template <class S, class Edge>
__device__ __forceinline__ void receive_gated(const AdamkKernelParams& p, const Block& b, Consumer& c, u32 tag,
                                              Inputs<S>& x, At at) {
  at.stage = S::kStage;
  await_inputs<Edge>(p, c, at);
#pragma unroll
  for (int i = 0; i < Inputs<S>::kRounds; ++i) {
    const int column = column_of<S>(b, i);
    const int index[2] = {column, S::kK + column};
    const bool exists = column_exists<S>(b, i);
    const bool wanted[2] = {exists, exists};
    u32 v[4];
    receive_fours<Edge>(p, index, wanted, tag, v, at);
    x.words[2 * i] = pack(silu(unpack_low(v[0])) * unpack_low(v[2]), silu(unpack_high(v[0])) * unpack_high(v[2]));
    x.words[2 * i + 1] = pack(silu(unpack_low(v[1])) * unpack_low(v[3]), silu(unpack_high(v[1])) * unpack_high(v[3]));
  }
}

// The outputs of kSplits partial attentions, combined in split order: each weighted by its share of the softmax sum. As many splits
// of as many columns of the lane as registers allow are on their way together; all have arrived once the first have.
template <class S, class Edge, int kSplits>
__device__ __forceinline__ void receive_splits(const AdamkKernelParams& p, const Block& b, Consumer& c, u32 tag,
                                               Inputs<S>& x, At at) {
  at.stage = S::kStage;
  await_inputs<Edge>(p, c, at);
  constexpr int kRounds = Inputs<S>::kRounds, kTogether = kRoomy && kRounds <= 2 ? kRounds : 1;
  constexpr int kBatch = kSplits < 4 ? kSplits : 4, kMany = kBatch * kTogether;
#pragma unroll
  for (int round = 0; round < kRounds; round += kTogether) {
    float largest[kTogether], total[kTogether], sum[kTogether][4];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      largest[i] = -1e30f;
      total[i] = sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;
    }
#pragma unroll
    for (int first = 0; first < kSplits; first += kBatch) {
      int index[kMany], sum_index[kMany];   // [column][split]; past the last split that one is read again
      bool wanted[kMany];
      u32 words[2 * kMany];
      float log_sums[kMany];
#pragma unroll
      for (int n = 0; n < kMany; ++n) {
        const int column = column_of<S>(b, round + n / kBatch), split = min(first + n % kBatch, kSplits - 1);
        wanted[n] = column_exists<S>(b, round + n / kBatch);
        index[n] = split * (kHeads * kHeadDim) + column;
        sum_index[n] = split * kHeads + (wanted[n] ? column / kHeadDim : 0);
      }
      Fours<Edge, kMany> fours;
      fours.issue(p, index, wanted, tag);
      receive_sums<Edge>(p, sum_index, tag, log_sums, at);
      fours.await(p, index, tag, words, at);
#pragma unroll
      for (int n = 0; n < kMany; ++n) {
        const int i = n / kBatch;
        const bool real = kSplits % kBatch == 0 || first + n % kBatch < kSplits;
        const float share = real ? log_sums[n] : -1e30f;
        const float maximum = fmaxf(largest[i], share);
        const float correction = exp2_fast(largest[i] - maximum), weight = real ? exp2_fast(share - maximum) : 0.0f;
        largest[i] = maximum;
        total[i] = total[i] * correction + weight;
        sum[i][0] = sum[i][0] * correction + weight * unpack_low(words[2 * n]);
        sum[i][1] = sum[i][1] * correction + weight * unpack_high(words[2 * n]);
        sum[i][2] = sum[i][2] * correction + weight * unpack_low(words[2 * n + 1]);
        sum[i][3] = sum[i][3] * correction + weight * unpack_high(words[2 * n + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float scale = 1.0f / total[i];
      x.words[2 * (round + i)] = pack(sum[i][0] * scale, sum[i][1] * scale);
      x.words[2 * (round + i) + 1] = pack(sum[i][2] * scale, sum[i][3] * scale);
    }
  }
}

// This lane's columns of a constant row: norm gains, loaded before the activations are waited for, or the embedding of the
// step's token, which is the first layer's input.
template <class S>
__device__ __forceinline__ void load_columns(const Block& b, const u8* row, Inputs<S>& x) {
#pragma unroll
  for (int i = 0; i < Inputs<S>::kRounds; ++i) {
    uint2 v = make_uint2(0, 0);
    if (column_exists<S>(b, i)) v = load_constant_8(row + 2 * column_of<S>(b, i));
    x.words[2 * i] = v.x;
    x.words[2 * i + 1] = v.y;
  }
}

// RMSNorm but for the factor 1 / rms, which the storer applies to the finished sums. Returns the warp's sum of squares.
template <class S>
__device__ __forceinline__ float apply_gains(Inputs<S>& x, const Inputs<S>& gains) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 2 * Inputs<S>::kRounds; ++i) {
    const float low = unpack_low(x.words[i]), high = unpack_high(x.words[i]);
    squares += low * low + high * high;
    x.words[i] = pack(low * unpack_low(gains.words[i]), high * unpack_high(gains.words[i]));
  }
  return warp_sum(squares);
}

// K steps `first` to `first` + `steps` of a tile, whose weights lie at `from`: one turn of the inner loop. kFragments loads are in
// flight ahead of their mma. Steps take turns at two accumulators, from `parity` on, so that one mma need not wait for the last.
// `low` to `high`: the rounds of x that the ring stage touches. A first step known only at run time chooses among them by masks: an
// index, or what the compiler makes of a conditional, would put x into local memory.
template <class S, int kWords>
__device__ __forceinline__ void multiply_steps(const Block& b, const u32 (&x)[kWords], float (&sums)[S::kBlocks][2][4], u32 from,
                                               int first, int steps, int parity, int low, int high) {
  constexpr u32 kStepBytes = 512u * S::kBlocks;
  uint4 ahead[kFragments];
  const int fragments = steps * S::kBlocks;
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
    if (f < fragments) ahead[f] = load_shared_16(from + f / S::kBlocks * kStepBytes + f % S::kBlocks * 512);
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    const int step = first + s;
    u32 b0 = 0, b1 = 0;
    if (kUnroll == 0 || low == high) {
      const int round = kUnroll == 0 ? step >> 3 : low;
      const bool mine = (b.lane >> 2) == (step & 7);
      b0 = mine ? x[2 * round] : 0u;
      b1 = mine ? x[2 * round + 1] : 0u;
    } else {
#pragma unroll
      for (int round = low; round <= high; ++round) {
        const u32 mask = 8 * round + (b.lane >> 2) == step ? ~0u : 0u;
        b0 |= x[2 * round] & mask;
        b1 |= x[2 * round + 1] & mask;
      }
    }
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block) {
      const int f = s * S::kBlocks + block, next = f + kFragments;
      mma(sums[block][(parity + s) & 1], ahead[f % kFragments], b0, b1);
      if (next < fragments)
        ahead[f % kFragments] = load_shared_16(from + next / S::kBlocks * kStepBytes + next % S::kBlocks * 512);
    }
  }
}

// All of this SM's tiles of stage S times the warp's slice. `squares` travels with the partial sums.
template <class S, int kWords>
__device__ __forceinline__ void multiply(const AdamkKernelParams& p, const Block& b, Consumer& c, const u32 (&x)[kWords],
                                         float squares, At at) {
  static_assert(kWords == Inputs<S>::kWords, "the K slices of stage and inputs differ");
  at.stage = S::kStage;
  const int tiles = tile_count<S>();
//@  Stamp stamp(p, b, S::kStage);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    float sums[S::kBlocks][2][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < S::kChunks; ++chunk) {
      constexpr u32 kStepBytes = 512u * S::kBlocks;
      const u32 steps = chunk_steps<S>(chunk);
//@!      stamp.wait(p, shared_base() + kRingFull + 8 * c.slot, c.get(kFullParity) & p.reserved, at);   // 0: of the first turn
      barrier_wait(p, shared_base() + kRingFull + 8 * c.slot, c.get(kFullParity), at);
      const u32 from = shared_base() + kRingOffset + c.slot * kRingStageBytes + b.warp * steps * kStepBytes + b.lane * 16;
      const int first = chunk * S::kChunkSteps, turn = kUnroll == 0 ? static_cast<int>(steps) : kUnroll;
      const int turns = static_cast<int>(steps) / turn, rest = static_cast<int>(steps) % turn;
      const int low = first >> 3, high = (first + static_cast<int>(steps) - 1) >> 3;
#pragma unroll 1
      for (int t = 0; t < turns; ++t)
        multiply_steps<S>(b, x, sums, from + t * turn * kStepBytes, first + t * turn, turn, first, low, high);
      multiply_steps<S>(b, x, sums, from + turns * turn * kStepBytes, first + turns * turn, rest, first, low, high);
      __syncwarp();
      if (b.lane == 0) barrier_arrive(shared_base() + kRingEmpty + 8 * c.slot);
      if (++c.slot == kRingStages) {
        c.slot = 0;
        c.flip(kFullParity);
      }
    }
//@!    stamp.wait(p, shared_base() + kPartialsEmpty + 8 * c.get(kBuffer), c.get(kEmptyParity), at);
    barrier_wait(p, shared_base() + kPartialsEmpty + 8 * c.get(kBuffer), c.get(kEmptyParity), at);
    float* partials = reinterpret_cast<float*>(shared_memory + kPartialsOffset) +
                      c.get(kBuffer) * kConsumerWarps * (kMaxTileRows + 1) + b.warp * kMaxTileRows;
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block) {
      float top = sums[block][0][0] + sums[block][0][1] + sums[block][1][0] + sums[block][1][1];
      float bottom = sums[block][0][2] + sums[block][0][3] + sums[block][1][2] + sums[block][1][3];
      top += __shfl_xor_sync(~0u, top, 1);
      bottom += __shfl_xor_sync(~0u, bottom, 1);
      top += __shfl_xor_sync(~0u, top, 2);
      bottom += __shfl_xor_sync(~0u, bottom, 2);
      if ((b.lane & 3) == 0) {
        partials[block * 16 + (b.lane >> 2)] = top;
        partials[block * 16 + 8 + (b.lane >> 2)] = bottom;
      }
    }
    if (b.lane == 0)  // the block's sums of squares lie behind its rows, one per warp
      partials[kConsumerWarps * kMaxTileRows - b.warp * kMaxTileRows + b.warp] = squares;
    __syncwarp();
    if (b.lane == 0) barrier_arrive(shared_base() + kPartialsFull + 8 * c.get(kBuffer));
    c.flip(kBuffer);
    if (c.get(kBuffer) == 0) c.flip(kEmptyParity);
//@    stamp.take(b, tile);
  }
//#  note_end(p, at);
}

// The token of a step, handed over by the launcher.
template <class Parity>
__device__ __forceinline__ int take_token(const AdamkKernelParams& p, const Block& b, Parity& parity, At at) {
  barrier_wait(p, shared_base() + kTokenReady, parity, at);
  parity ^= 1;
  const int token = *reinterpret_cast<volatile int*>(shared_memory + kTokenWord);
  __syncwarp();
  if (b.lane == 0) barrier_arrive(shared_base() + kTokenTaken);
  return token;
}
