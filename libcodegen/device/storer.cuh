// Storer: one warp finishes tiles. It adds the consumer warps' partial sums in a fixed order (so equal inputs give equal
// bits), applies what the stage's finish says (norm scale, bias, activation, residual, argmax) and publishes.

struct Storer {
  u32 buffer = 0, full_parity = 0;
  u32 attention_parity = 0;
  float norm_scale = 1.0f;   // 1 / rms of the current stage's input
};

__device__ __forceinline__ float* residual_rows() {
  return reinterpret_cast<float*>(shared_memory + kResidualOffset);
}

__device__ __forceinline__ float norm_scale_of(float squares) { return rsqrtf(squares * (1.0f / kHidden) + kNormEps); }

// Sums of one tile: lane l gets row l % kTileRows (both halves of the warp the same when a tile has 16 rows).
template <class S>
__device__ __forceinline__ float tile_sum(const AdamkKernelParams& p, const Block& b, Storer& s, bool take_squares, At at) {
  barrier_wait(p, shared_base() + kPartialsFull + 8 * s.buffer, s.full_parity, at);
  const float* partials =
      reinterpret_cast<const float*>(shared_memory + kPartialsOffset) + s.buffer * kConsumerWarps * (kMaxTileRows + 1);
  float sum = 0.0f;
  if constexpr (S::kTileRows == 16) {
#pragma unroll
    for (int w = 0; w < kConsumerWarps; w += 2)
      if (w + (b.lane >> 4) < kConsumerWarps) sum += partials[(w + (b.lane >> 4)) * kMaxTileRows + (b.lane & 15)];
    sum += __shfl_xor_sync(~0u, sum, 16);
  } else {
#pragma unroll
    for (int w = 0; w < kConsumerWarps; ++w) sum += partials[w * kMaxTileRows + b.lane];
  }
  if (take_squares) {
    const float squares = b.lane < kConsumerWarps ? partials[kConsumerWarps * kMaxTileRows + b.lane] : 0.0f;
    s.norm_scale = norm_scale_of(warp_sum(squares));
  }
  __syncwarp();
  if (b.lane == 0) barrier_arrive(shared_base() + kPartialsEmpty + 8 * s.buffer);
  s.buffer ^= 1;
  if (s.buffer == 0) s.full_parity ^= 1;
  return sum;
}

// The norm's sum of squares from what the producing SMs published beside their rows.
template <class S, class Edge>
__device__ __forceinline__ void receive_norm_scale(const AdamkKernelParams& p, const Block& b, Storer& s, u32 tag, At at) {
  at.stage = S::kStage;
  float squares = 0.0f;
  constexpr int kRounds = (Edge::kProducers + 31) / 32;
  int index[kRounds];
  float sums[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) index[i] = min(32 * i + b.lane, Edge::kProducers - 1);
  receive_sums<Edge>(p, index, tag, sums, at);
#pragma unroll
  for (int i = 0; i < kRounds; ++i) squares += 32 * i + b.lane < Edge::kProducers ? sums[i] : 0.0f;
  s.norm_scale = norm_scale_of(warp_sum(squares));
}

// Start of a step: the rows of the residual stream this SM owns, from the embedding; and, for a first layer whose norm is
// exchanged, the norm of the whole row.
template <class Output>
__device__ __forceinline__ void begin_residual(const AdamkKernelParams& p, const Block& b, Storer& s, int token,
                                               bool needs_norm) {
  const u8* row = static_cast<const u8*>(p.embedding) + 2ll * token * kHidden;
  const int first = first_tile<Output>() * Output::kTileRows;
  const int rows = tile_count<Output>() * Output::kTileRows;
  for (int i = b.lane; i < rows; i += 32)
    residual_rows()[i] = first + i < kHidden ? constant_value(row, first + i) : 0.0f;
  if (needs_norm) {
    float squares = 0.0f;
    for (int i = 2 * b.lane; i < kHidden; i += 64) {
      const float low = constant_value(row, i), high = constant_value(row, i + 1);
      squares += low * low + high * high;
    }
    s.norm_scale = norm_scale_of(warp_sum(squares));
  }
  __syncwarp();
}

// A row's value and its neighbour's as one packet; `valid` must be the same for both rows of a pair.
template <class Edge>
__device__ __forceinline__ void publish_rows(const AdamkKernelParams& p, const Block& b, int row, float v, bool valid,
                                             u32 tag) {
  const float next = __shfl_down_sync(~0u, v, 1);
  if (valid && (b.lane & 1) == 0) publish_pair<Edge>(p, row, pack(v, next), tag);
}

// q, k and v rows, published as they come; bias added.
template <class S, class Edge>
__device__ __forceinline__ void store_rows(const AdamkKernelParams& p, const Block& b, Storer& s, const u8* bias, u32 tag,
                                           bool take_squares, At at) {
  at.stage = S::kStage;
  const int tiles = tile_count<S>(), first = first_tile<S>();
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int lane_row = b.lane % S::kTileRows;
    const int row = (first + tile) * S::kTileRows + lane_row;
    const bool valid = b.lane < S::kTileRows && row < S::kRows;
    const float add = bias != nullptr && row < S::kRows ? constant_value(bias, row) : 0.0f;
    float v = tile_sum<S>(p, b, s, take_squares && tile == 0, at);
    v = v * s.norm_scale + add;
    publish_rows<Edge>(p, b, row, v, valid, tag);
  }
  publish_done<Edge>(p, b, tiles > 0);
//#  note_end(p, at);
}

// Rows of the residual stream: added to what this SM holds in fp32, published rounded.
template <class S, class Edge, bool kPublishSquares>
__device__ __forceinline__ void store_residual(const AdamkKernelParams& p, const Block& b, Storer& s, const u8* bias,
                                               u32 tag, At at) {
  at.stage = S::kStage;
  const int tiles = tile_count<S>(), first = first_tile<S>();
  float squares = 0.0f;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int lane_row = b.lane % S::kTileRows;
    const int row = (first + tile) * S::kTileRows + lane_row;
    const bool valid = b.lane < S::kTileRows && row < S::kRows;
    const float add = bias != nullptr && row < S::kRows ? constant_value(bias, row) : 0.0f;
    float* owned = residual_rows() + tile * S::kTileRows + lane_row;
    float v = tile_sum<S>(p, b, s, false, at);
    v += *owned + add;
    __syncwarp();
    if (valid) {
      *owned = v;
      const float rounded = unpack_low(pack(v, 0.0f));   // what the readers of this row see
      squares += rounded * rounded;
    }
    publish_rows<Edge>(p, b, row, v, valid, tag);
  }
  if constexpr (kPublishSquares) {
    squares = warp_sum(squares);
    if (b.lane == 0 && tiles > 0) publish_sum<Edge>(p, blockIdx.x, squares, tag);
  }
  publish_done<Edge>(p, b, tiles > 0);
  __syncwarp();
//#  note_end(p, at);
}

// SiLU(gate) x up: in each block of 16 rows the first 8 are gate, the last 8 the matching up.
template <class S, class Edge>
__device__ __forceinline__ void store_gated(const AdamkKernelParams& p, const Block& b, Storer& s, const u8* bias, u32 tag,
                                            bool take_squares, At at) {
  at.stage = S::kStage;
  const int tiles = tile_count<S>(), first = first_tile<S>();
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int lane_row = b.lane % S::kTileRows;
    const int index = (first + tile) * (S::kTileRows / 2) + lane_row / 16 * 8 + lane_row % 8;
    const bool is_up = lane_row % 16 >= 8;
    const bool valid = b.lane < S::kTileRows && !is_up && index < kFfn;
    const float add = bias != nullptr && index < kFfn ? constant_value(bias, is_up ? kFfn + index : index) : 0.0f;
    float v = tile_sum<S>(p, b, s, take_squares && tile == 0, at);
    v = v * s.norm_scale + add;
    const float up = __shfl_down_sync(~0u, v, 8);
    publish_rows<Edge>(p, b, index, silu(v) * up, valid, tag);
  }
  publish_done<Edge>(p, b, tiles > 0);
//#  note_end(p, at);
}

// The attention scratch of all consumer warps, merged in warp order and published: normalised values, and with several
// splits the log-sum (base 2) that weighs them.
template <class A, class Edge>
__device__ __forceinline__ void store_attention(const AdamkKernelParams& p, const Block& b, Storer& s, u32 tag, At at) {
  at.stage = 1;
  constexpr int kWarpScratch = A::kPassHeads * kScratchHead;
  const float* scratch = reinterpret_cast<const float*>(shared_memory + kAttentionOffset);
  float* weights = reinterpret_cast<float*>(shared_memory + kAttentionOffset) + kConsumerWarps * kWarpScratch;
#pragma unroll 1
  for (int item = blockIdx.x; item < A::kItems; item += kGrid) {
    const int kv_head = item / A::kSplits, split = item % A::kSplits;
#pragma unroll 1
    for (int pass = 0; pass < A::kPasses; ++pass) {
      const int first_head = kv_head * (kHeads / kKvHeads) + pass * A::kPassHeads;
      const int heads = min(A::kPassHeads, kHeads / kKvHeads - pass * A::kPassHeads);
      barrier_wait(p, shared_base() + kAttentionFull, s.attention_parity, at);
      s.attention_parity ^= 1;
      // Heads that a last pass lacks are worked out from what consumers left for them, and not published.
      const bool mine = b.lane < kConsumerWarps;
      float maximum[A::kPassHeads], largest[A::kPassHeads], scale[A::kPassHeads], total[A::kPassHeads];
#pragma unroll
      for (int h = 0; h < A::kPassHeads; ++h) {
        const float* left = scratch + (mine ? b.lane : 0) * kWarpScratch + h * kScratchHead + kHeadDim;
        const float2 of_warp = *reinterpret_cast<const float2*>(left);
        maximum[h] = largest[h] = mine ? of_warp.x : -1e30f;
        total[h] = mine ? of_warp.y : 0.0f;
      }
      warp_max(largest);
#pragma unroll
      for (int h = 0; h < A::kPassHeads; ++h) {
        scale[h] = exp2_fast(maximum[h] - largest[h]);
        total[h] *= scale[h];
      }
      warp_sum(total);
#pragma unroll
      for (int h = 0; h < A::kPassHeads; ++h) {
        if (mine) weights[h * kConsumerWarps + b.lane] = total[h] > 0.0f ? scale[h] / total[h] : 0.0f;
        if (A::kSplits > 1 && b.lane == 0 && h < heads)
          publish_sum<Edge>(p, split * kHeads + first_head + h, total[h] > 0.0f ? largest[h] + log2f(total[h]) : -1e30f, tag);
      }
      __syncwarp();
#pragma unroll(kRoomy ? 2 : 1)
      for (int pair = b.lane; pair < heads * (kHeadDim / 2); pair += 32) {
        const int h = pair / (kHeadDim / 2), element = 2 * (pair % (kHeadDim / 2));
        float low = 0.0f, high = 0.0f;
#pragma unroll
        for (int w = 0; w < kConsumerWarps; ++w) {
          const float2 v = *reinterpret_cast<const float2*>(scratch + w * kWarpScratch + h * kScratchHead + element);
          const float weight = weights[h * kConsumerWarps + w];
          low += weight * v.x;
          high += weight * v.y;
        }
        publish_pair<Edge>(p, (split * kHeads + first_head + h) * kHeadDim + element, pack(low, high), tag);
      }
      __syncwarp();
      if (b.lane == 0) barrier_arrive(shared_base() + kAttentionEmpty);
    }
  }
  publish_done<Edge>(p, b, static_cast<int>(blockIdx.x) < A::kItems);
//#  note_end(p, at);
}

// Logits: the best of this SM's rows (ties to the lowest index; padding rows never take part), one packet pair per SM.
__device__ __forceinline__ u8* argmax_entry(const AdamkKernelParams& p, int step, int sm) {
  // Double-buffered by step: an SM without work may still be reading step n while others already publish n + 1.
  const u32 parity = (p.epoch + static_cast<u32>(step)) & 1u;
  return workspace(p, kArgmaxOffset) + 16ll * (parity * kGrid + sm);
}

struct Best {
  float value;
  int index;
};
__device__ __forceinline__ void take_better(Best& best, float value, int index) {
  if (value > best.value || (value == best.value && index < best.index)) best = {value, index};
}
__device__ __forceinline__ Best warp_best(Best best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const float value = __shfl_xor_sync(~0u, best.value, offset);
    const int index = __shfl_xor_sync(~0u, best.index, offset);
    take_better(best, value, index);
  }
  return best;
}

template <class S>
__device__ __forceinline__ void store_logits(const AdamkKernelParams& p, const Block& b, Storer& s, int step, u32 tag,
                                             bool take_squares, At at) {
  at.stage = S::kStage;
  const int tiles = tile_count<S>(), first = first_tile<S>();
  Best best = {-__int_as_float(0x7f800000), 0x7fffffff};
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int row = (first + tile) * S::kTileRows + b.lane % S::kTileRows;
    const float v = tile_sum<S>(p, b, s, take_squares && tile == 0, at) * s.norm_scale;
    if (b.lane < S::kTileRows && row < kVocab) {
      take_better(best, v, row);
      if (p.logits != nullptr) p.logits[static_cast<long long>(step) * kVocab + row] = v;
    }
  }
  best = warp_best(best);
  if constexpr (kOrderKvPerToken) fence_gpu();   // releases the keys and values this SM appended, see attend_for_projection
  if (b.lane == 0)
    store_relaxed_2x64(argmax_entry(p, step, blockIdx.x), static_cast<u64>(tag) << 32 | __float_as_uint(best.value),
                       static_cast<u64>(tag) << 32 | static_cast<u32>(best.index));
//#  note_end(p, at);
}
