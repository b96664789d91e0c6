// Attention for one position of one sequence. Work items are (KV head, split); position p belongs to split p % kSplits, and
// within it to one lane group of one warp, always the same: whoever appends a key or value is who reads it later, so the
// KV cache needs no ordering between SMs (the fused variant, where all SMs read it, orders once per token; see launcher).
//
// A lane group of kGroupLanes lanes shares a position, 8 elements a lane; a warp works on kPositions positions at once.

constexpr int kPositions = 32 / kGroupLanes;
constexpr int kActiveLanes = kHeadDim / 8;

// kHeads query heads that share a KV head, in the base 2: scores are scaled by log2(e) / sqrt(head_dim).
template <int kPassHeads>
struct Softmax {
  float maximum[kPassHeads], total[kPassHeads], values[kPassHeads][8];
};

__device__ __forceinline__ int group_lane(const Block& b) { return b.lane % kGroupLanes; }

__device__ __forceinline__ void unpack8(const u32 (&words)[4], float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = unpack_low(words[i]);
    v[2 * i + 1] = unpack_high(words[i]);
  }
}

// QK-norm where the model has it, then rope: element j pairs with j + head_dim / 2. A lane's two groups of four elements each
// lie in one half of the head, and so do their partners, in the other group of a lane when head_dim / 2 is no multiple of 8.
template <bool kNormed>
__device__ __forceinline__ void norm_and_rotate(const AdamkKernelParams& p, const Block& b, const u8* gains,
                                                long long position, u32 (&words)[4]) {
  float v[8];
  unpack8(words, v);
  const bool active = group_lane(b) < kActiveLanes;
  if constexpr (kNormed) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += v[i] * v[i];
#pragma unroll
    for (int offset = kGroupLanes / 2; offset > 0; offset >>= 1) squares += __shfl_xor_sync(~0u, squares, offset);
    const float scale = rsqrtf(squares * (1.0f / kHeadDim) + kNormEps);
    const uint4 g = active ? load_constant_16(gains + 16 * group_lane(b)) : make_uint4(0, 0, 0, 0);
    const u32 gain_words[4] = {g.x, g.y, g.z, g.w};
    float gain[8];
    unpack8(gain_words, gain);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= scale * gain[i];
  }
  constexpr int kHalf = kHeadDim / 2;
  constexpr int kOther = kHalf / 4 % 2;   // 1: a partner lies in the other group of its lane
  const int group_base = b.lane - group_lane(b);
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    const int element = 8 * group_lane(b) + kOther * 4 * g;   // alike for both groups when they share a half
    const bool first_half = element < kHalf;
    const int pair = (first_half ? element : element - kHalf) + (1 - kOther) * 4 * g;
    const int partner = first_half ? element + kHalf : element - kHalf;
    const int lane = group_base + (active ? partner / 8 : group_lane(b));
    const float* angles = p.rope + (position * kHalf + pair) * 2;
    const float sign = first_half ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 a = active ? load_constant_16(angles + 4 * i) : make_uint4(0, 0, 0, 0);   // cos, sin, cos, sin
      const int from = 4 * (g ^ kOther) + 2 * i, to = 4 * g + 2 * i;
      const float low = __shfl_sync(~0u, v[from], lane), high = __shfl_sync(~0u, v[from + 1], lane);
      words[2 * g + i] = pack(v[to] * __uint_as_float(a.x) + sign * low * __uint_as_float(a.y),
                              v[to + 1] * __uint_as_float(a.z) + sign * high * __uint_as_float(a.w));
    }
  }
}

// This lane's 8 elements of the row of `qkv` outputs that starts at value `row`.
template <class Edge>
__device__ __forceinline__ void receive_row(const AdamkKernelParams& p, const Block& b, int row, u32 tag, u32 (&words)[4],
                                            At at) {
  const bool active = group_lane(b) < kActiveLanes;
  const int index[2] = {row + 8 * group_lane(b), row + 8 * group_lane(b) + 4};
  const bool wanted[2] = {active, active};
  receive_fours<Edge>(p, index, wanted, tag, words, at);
}

// Adds one position per lane group to the softmax; a group whose position does not exist passes valid = false.
template <int kPassHeads>
__device__ __forceinline__ void attend_position(const u32 (&queries)[kPassHeads][4], const uint4& key, const uint4& value,
                                                bool valid, Softmax<kPassHeads>& s) {
  const u32 key_words[4] = {key.x, key.y, key.z, key.w}, value_words[4] = {value.x, value.y, value.z, value.w};
  float k[8], v[8];
  unpack8(key_words, k);
  unpack8(value_words, v);
#pragma unroll
  for (int h = 0; h < kPassHeads; ++h) {
    float q[8], score = 0.0f;
    unpack8(queries[h], q);
#pragma unroll
    for (int i = 0; i < 8; ++i) score += q[i] * k[i];
#pragma unroll
    for (int offset = kGroupLanes / 2; offset > 0; offset >>= 1) score += __shfl_xor_sync(~0u, score, offset);
    score = valid ? score * kScoreScale : -1e30f;
    const float maximum = fmaxf(s.maximum[h], score);
    const float correction = exp2_fast(s.maximum[h] - maximum);
    const float weight = valid ? exp2_fast(score - maximum) : 0.0f;
    s.maximum[h] = maximum;
    s.total[h] = s.total[h] * correction + weight;
#pragma unroll
    for (int i = 0; i < 8; ++i) s.values[h][i] = s.values[h][i] * correction + weight * v[i];
  }
}

// Merges the lane groups of a warp; lane group 0 then holds the warp's softmax.
template <int kPassHeads>
__device__ __forceinline__ void merge_groups(Softmax<kPassHeads>& s) {
#pragma unroll
  for (int offset = kGroupLanes; offset < 32; offset <<= 1) {
#pragma unroll
    for (int h = 0; h < kPassHeads; ++h) {
      const float other = __shfl_xor_sync(~0u, s.maximum[h], offset);
      const float maximum = fmaxf(s.maximum[h], other);
      const float mine = exp2_fast(s.maximum[h] - maximum), theirs = exp2_fast(other - maximum);
      s.maximum[h] = maximum;
      s.total[h] = s.total[h] * mine + __shfl_xor_sync(~0u, s.total[h], offset) * theirs;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        s.values[h][i] = s.values[h][i] * mine + __shfl_xor_sync(~0u, s.values[h][i], offset) * theirs;
    }
  }
}

// What one warp attends to: every kStride-th unit of one split, starting at its own; unit u is position u * kSplits + split.
struct Share {
  int kv_head, first_head, heads;   // heads: query heads of this pass, at most kPassHeads
  int split, first_unit;            // first_unit: of lane group 0
  bool owns_new, appends;           // this warp takes the new position; this pass writes it to the cache
  int new_group;                    // the lane group of the new position
};

template <class Edge, int kPassHeads, int kSplits, int kStride>
__device__ __forceinline__ void attend(const AdamkKernelParams& p, const Block& b, const Share& share, int layer,
                                       long long position, u32 tag, Softmax<kPassHeads>& s, At at) {
  const int group = b.lane / kGroupLanes;
  const bool active = group_lane(b) < kActiveLanes;
  const long long cache = (static_cast<long long>(layer) * kKvHeads + share.kv_head) * 2 * kContext * kHeadDim;
  u8* keys = static_cast<u8*>(p.kv) + 2 * cache + 16 * group_lane(b);
  const int last = static_cast<int>(position);   // positions fit 32 bits, their addresses do not

  int at_position = (share.first_unit + group) * kSplits + share.split;
  uint4 key, value;
  const auto load = [&] {
    key = value = make_uint4(0, 0, 0, 0);
    if (active && at_position < last) {
      key = load_kv_16(keys + static_cast<long long>(at_position) * (2 * kHeadDim));
      value = load_kv_16(keys + (kContext + at_position) * (2 * kHeadDim));
    }
  };
  load();   // the cache does not depend on this token: in flight while the queries are waited for

  const u8* small = static_cast<const u8*>(p.small_tensors);
  u32 queries[kPassHeads][4];
#pragma unroll
  for (int h = 0; h < kPassHeads; ++h) {
    const int head = share.first_head + (h < share.heads ? h : 0);
    receive_row<Edge>(p, b, head * kHeadDim, tag, queries[h], at);
    norm_and_rotate<kQkNorm>(p, b, small + kQNormOffset + 2ll * layer * kHeadDim, position, queries[h]);
    s.maximum[h] = -1e30f;
    s.total[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) s.values[h][i] = 0.0f;
  }
  if (share.owns_new) {
    u32 key_words[4], value_words[4];
    receive_row<Edge>(p, b, (kHeads + share.kv_head) * kHeadDim, tag, key_words, at);
    receive_row<Edge>(p, b, (kHeads + kKvHeads + share.kv_head) * kHeadDim, tag, value_words, at);
    norm_and_rotate<kQkNorm>(p, b, small + kKNormOffset + 2ll * layer * kHeadDim, position, key_words);
    const uint4 new_key = make_uint4(key_words[0], key_words[1], key_words[2], key_words[3]);
    const uint4 new_value = make_uint4(value_words[0], value_words[1], value_words[2], value_words[3]);
    if (share.appends && active && group == share.new_group) {
      store_kv_16(keys + position * (2 * kHeadDim), new_key);
      store_kv_16(keys + (kContext + position) * (2 * kHeadDim), new_value);
    }
    attend_position<kPassHeads>(queries, new_key, new_value, group == share.new_group, s);
  }
//@  Stamp stamp(p, b, at.stage);
#pragma unroll 1
  while (at_position - group * kSplits < last) {   // the same for all lane groups
//@    ++stamp.waited;   // not of clocks here: how often the loop ran
    attend_position<kPassHeads>(queries, key, value, at_position < last, s);
    at_position += kStride * kSplits;
    load();
  }
//@  stamp.take_walk(b);
  merge_groups<kPassHeads>(s);
}

// ---- attention as a stage of its own: all consumer warps share an item, the storer merges and publishes --------------------

constexpr int kScratchHead = kHeadDim + 2;   // values, maximum, total

template <class A, class Edge>
__device__ __forceinline__ void attend_items(const AdamkKernelParams& p, const Block& b, Consumer& c, int layer,
                                             long long position, u32 tag, At at) {
  at.stage = 1;
  if (static_cast<int>(blockIdx.x) >= A::kItems) return;
  await_inputs<Edge>(p, c, at);
  constexpr int kStride = kConsumerWarps * kPositions;
  const int new_unit = static_cast<int>(position / A::kSplits);
#pragma unroll 1
  for (int item = blockIdx.x; item < A::kItems; item += kGrid) {
    Share share;
    share.kv_head = item / A::kSplits;
    share.split = item % A::kSplits;
    share.first_unit = b.warp * kPositions;
    share.owns_new = static_cast<int>(position % A::kSplits) == share.split &&
                     new_unit / kPositions % kConsumerWarps == b.warp;
    share.new_group = new_unit % kPositions;
#pragma unroll 1
    for (int pass = 0; pass < A::kPasses; ++pass) {
      share.first_head = share.kv_head * (kHeads / kKvHeads) + pass * A::kPassHeads;
      share.heads = min(A::kPassHeads, kHeads / kKvHeads - pass * A::kPassHeads);
      share.appends = pass == 0;
      Softmax<A::kPassHeads> s;
      attend<Edge, A::kPassHeads, A::kSplits, kStride>(p, b, share, layer, position, tag, s, at);
      barrier_wait(p, shared_base() + kAttentionEmpty, c.get(kAttentionParity), at);
      c.flip(kAttentionParity);
      float* scratch = reinterpret_cast<float*>(shared_memory + kAttentionOffset) + b.warp * A::kPassHeads * kScratchHead;
#pragma unroll
      for (int h = 0; h < A::kPassHeads; ++h) {
        if (b.lane < kActiveLanes) {
#pragma unroll
          for (int i = 0; i < 8; i += 2)
            *reinterpret_cast<float2*>(scratch + h * kScratchHead + 8 * b.lane + i) =
                make_float2(s.values[h][i], s.values[h][i + 1]);
        }
        if (b.lane == 0)
          *reinterpret_cast<float2*>(scratch + h * kScratchHead + kHeadDim) = make_float2(s.maximum[h], s.total[h]);
      }
      __syncwarp();
      if (b.lane == 0) barrier_arrive(shared_base() + kAttentionFull);
    }
  }
  __syncwarp();   // what a lane appended is read by its lane group at the next step
}

// ---- attention recomputed by the readers of its projection: each warp the whole heads of its K slice ------------------------

template <class S, class Edge>
__device__ __forceinline__ void attend_for_projection(const AdamkKernelParams& p, const Block& b, Consumer& c, int layer,
                                                      long long position, u32 tag, Inputs<S>& x, At at) {
  at.stage = S::kStage;
  await_inputs<Edge>(p, c, at);
  constexpr int kWarpHeads = S::kSteps * 16 / kHeadDim;
  constexpr int kReaders = S::kTiles < kGrid ? S::kTiles : kGrid;   // SMs that take part
  u8* scratch = shared_memory + kAttentionOffset + 2 * b.warp * (S::kSteps * 16);
#pragma unroll 1
  for (int h = 0; h < kWarpHeads; ++h) {
    const int head = b.warp * kWarpHeads + h;
    if (head >= kHeads) break;
    Share share;
    share.kv_head = head / (kHeads / kKvHeads);
    share.first_head = head;
    share.heads = 1;
    share.split = 0;
    share.first_unit = 0;
    share.owns_new = true;
    share.new_group = 0;
    share.appends = head % (kHeads / kKvHeads) == 0 && share.kv_head % kReaders == static_cast<int>(blockIdx.x);
    Softmax<1> s;
    attend<Edge, 1, 1, kPositions>(p, b, share, layer, position, tag, s, at);
    if (b.lane < kActiveLanes) {
      const float scale = 1.0f / s.total[0];
      uint4 v;
      v.x = pack(s.values[0][0] * scale, s.values[0][1] * scale);
      v.y = pack(s.values[0][2] * scale, s.values[0][3] * scale);
      v.z = pack(s.values[0][4] * scale, s.values[0][5] * scale);
      v.w = pack(s.values[0][6] * scale, s.values[0][7] * scale);
      *reinterpret_cast<uint4*>(scratch + 2 * (h * kHeadDim + 8 * b.lane)) = v;
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < Inputs<S>::kRounds; ++i) {
    uint2 v = make_uint2(0, 0);
    if (column_exists<S>(b, i)) v = *reinterpret_cast<const uint2*>(scratch + 8 * (32 * i + b.lane));
    x.words[2 * i] = v.x;
    x.words[2 * i + 1] = v.y;
  }
  __syncwarp();
}
