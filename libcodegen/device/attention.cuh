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

// What QK-norm and rope multiply this lane's 8 elements of a head with, where it lies in global memory.
struct Factors {
  const u8* gains;      // of QK-norm, for one layer
  const float* rope;    // of one position: cos and sin of kHalf pairs

  // Element j pairs with j + head_dim / 2. A lane's two groups of four elements each lie in one half of the head, and so do
  // their partners, in the other group of a lane when head_dim / 2 is no multiple of 8.
  static constexpr int kHalf = kHeadDim / 2;
  static constexpr int kOther = kHalf / 4 % 2;   // 1: a partner lies in the other group of its lane

  // The first of the elements that group g has in common with its angles: alike for both groups when they share a half.
  static __device__ __forceinline__ int element(const Block& b, int g) { return 8 * group_lane(b) + kOther * 4 * g; }

  __device__ __forceinline__ uint4 gain(const Block& b) const {
    return group_lane(b) < kActiveLanes ? load_constant_16(gains + 16 * group_lane(b)) : make_uint4(0, 0, 0, 0);
  }
  // cos, sin, cos, sin of pair i of two in group g.
  __device__ __forceinline__ uint4 angles(const Block& b, int g, int i) const {
    const int first = element(b, g), pair = (first < kHalf ? first : first - kHalf) + (1 - kOther) * 4 * g;
    return group_lane(b) < kActiveLanes ? load_constant_16(rope + 2 * pair + 4 * i) : make_uint4(0, 0, 0, 0);
  }
};

// The same, in registers: 20 of them, so that several heads wait for the loads once.
template <bool kNormed>
struct KeptFactors {
  uint4 gains, rope[2][2];

  __device__ __forceinline__ void take_gains(const Block& b, const Factors& from) {
    if constexpr (kNormed) gains = from.gain(b);
  }
  __device__ __forceinline__ void take_angles(const Block& b, const Factors& from) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rope[i / 2][i % 2] = from.angles(b, i / 2, i % 2);
  }
  __device__ __forceinline__ const uint4& gain(const Block&) const { return gains; }
  __device__ __forceinline__ const uint4& angles(const Block&, int g, int i) const { return rope[g][i]; }
};

// QK-norm where the model has it, then rope.
template <bool kNormed, class F>
__device__ __forceinline__ void norm_and_rotate(const Block& b, const F& factors, u32 (&words)[4]) {
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
    const uint4 g = factors.gain(b);
    const u32 gain_words[4] = {g.x, g.y, g.z, g.w};
    float gain[8];
    unpack8(gain_words, gain);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= scale * gain[i];
  }
  const int group_base = b.lane - group_lane(b);
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    const int element = Factors::element(b, g);
    const bool first_half = element < Factors::kHalf;
    const int partner = first_half ? element + Factors::kHalf : element - Factors::kHalf;
    const int lane = group_base + (active ? partner / 8 : group_lane(b));
    const float sign = first_half ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 a = factors.angles(b, g, i);
      const int from = 4 * (g ^ Factors::kOther) + 2 * i, to = 4 * g + 2 * i;
      const float low = __shfl_sync(~0u, v[from], lane), high = __shfl_sync(~0u, v[from + 1], lane);
      words[2 * g + i] = pack(v[to] * __uint_as_float(a.x) + sign * low * __uint_as_float(a.y),
                              v[to + 1] * __uint_as_float(a.z) + sign * high * __uint_as_float(a.w));
    }
  }
}

// This lane's 8 elements of N rows of what the `qkv` stage made, all on their way at once; rows not needed are zeros.
template <class Edge, int N>
__device__ __forceinline__ void receive_rows(const AdamkKernelParams& p, const Block& b, const int (&rows)[N],
                                             const bool (&needed)[N], u32 tag, u32 (&words)[4 * N], At at) {
  int index[2 * N];
  bool wanted[2 * N];
#pragma unroll
  for (int i = 0; i < 2 * N; ++i) {
    index[i] = rows[i / 2] * kHeadDim + 8 * group_lane(b) + 4 * (i % 2);
    wanted[i] = needed[i / 2] && group_lane(b) < kActiveLanes;
  }
  receive_fours<Edge>(p, index, wanted, tag, words, at);
}
template <class Edge>
__device__ __forceinline__ void receive_row(const AdamkKernelParams& p, const Block& b, int row, u32 tag, u32 (&words)[4],
                                            At at) {
  const int rows[1] = {row};
  const bool needed[1] = {true};
  receive_rows<Edge>(p, b, rows, needed, tag, words, at);
}

// What a warp attends to: every kStride-th unit of one split, starting at its own; unit u is position u * kSplits + split.
struct Share {
  int kv_head, first_head, heads;   // heads: query heads of this pass, at most kPassHeads
  int split, first_unit;            // first_unit: of lane group 0
  bool owns_new, appends;           // this warp takes the new position; this pass writes it to the cache
  int new_group;                    // the lane group of the new position
};

// What a pass needs of the new position, normed and rotated: its heads' queries, and key and value, which only the warp that
// takes it needs. A last pass that lacks heads works on its first one instead, and nothing comes of it.
template <int kPassHeads>
struct NewPosition {
  u32 queries[kPassHeads][4], key[4], value[4];

  static __device__ __forceinline__ int query_row(const Share& share, int h) {
    constexpr bool kAll = kHeads / kKvHeads % kPassHeads == 0;
    return share.first_head + (kAll || h < share.heads ? h : 0);
  }

  // All rows on their way together, behind their factors.
  template <class Edge>
  __device__ __forceinline__ void receive(const AdamkKernelParams& p, const Block& b, const Share& share,
                                          const Factors& of_query, const Factors& of_key, u32 tag, At at) {
    KeptFactors<kQkNorm> query_factors, key_factors;
    query_factors.take_gains(b, of_query);
    key_factors.take_gains(b, of_key);
    int rows[kPassHeads + 2];
    bool needed[kPassHeads + 2];
    u32 words[4 * (kPassHeads + 2)];
#pragma unroll
    for (int h = 0; h < kPassHeads; ++h) {
      rows[h] = query_row(share, h);
      needed[h] = true;
    }
    rows[kPassHeads] = kHeads + share.kv_head;
    rows[kPassHeads + 1] = kHeads + kKvHeads + share.kv_head;
    needed[kPassHeads] = needed[kPassHeads + 1] = share.owns_new;
    receive_rows<Edge>(p, b, rows, needed, tag, words, at);
#pragma unroll
    for (int i = 0; i < 4 * kPassHeads; ++i) queries[i / 4][i % 4] = words[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      key[i] = words[4 * kPassHeads + i];
      value[i] = words[4 * kPassHeads + 4 + i];
    }
    query_factors.take_angles(b, of_query);   // in L1 since the last layer: earlier, they would only take registers
#pragma unroll
    for (int i = 0; i < 4; ++i) key_factors.rope[i / 2][i % 2] = query_factors.rope[i / 2][i % 2];
#pragma unroll
    for (int h = 0; h < kPassHeads; ++h) norm_and_rotate<kQkNorm>(b, query_factors, queries[h]);
    if (share.owns_new) norm_and_rotate<kQkNorm>(b, key_factors, key);
  }

  // One row after the other, for kernels whose threads have no registers for more.
  template <class Edge>
  __device__ __forceinline__ void receive_queries(const AdamkKernelParams& p, const Block& b, const Share& share,
                                                  const Factors& of_query, u32 tag, At at) {
#pragma unroll
    for (int h = 0; h < kPassHeads; ++h) {
      receive_row<Edge>(p, b, query_row(share, h), tag, queries[h], at);
      norm_and_rotate<kQkNorm>(b, of_query, queries[h]);
    }
  }
  template <class Edge>
  __device__ __forceinline__ void receive_position(const AdamkKernelParams& p, const Block& b, const Share& share,
                                                   const Factors& of_key, u32 tag, At at) {
    receive_row<Edge>(p, b, kHeads + share.kv_head, tag, key, at);
    receive_row<Edge>(p, b, kHeads + kKvHeads + share.kv_head, tag, value, at);
    norm_and_rotate<kQkNorm>(b, of_key, key);
  }
};

// Adds N positions per lane group to the softmax, together: their scores need not wait for one another. A position that does not
// exist is not `valid`. `reload_keys` and `reload_values` are called where the lane's part of them is no longer needed.
template <int kPassHeads, int N, class ReloadKeys, class ReloadValues>
__device__ __forceinline__ void attend_positions(const u32 (&queries)[kPassHeads][4], const uint4 (&keys)[N],
                                                 const uint4 (&values)[N], const bool (&valid)[N], Softmax<kPassHeads>& s,
                                                 ReloadKeys reload_keys, ReloadValues reload_values) {
  float scores[N][kPassHeads] = {};
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const u32 words[4] = {keys[n].x, keys[n].y, keys[n].z, keys[n].w};
    float k[8];
    unpack8(words, k);
#pragma unroll
    for (int h = 0; h < kPassHeads; ++h) {
      float q[8];
      unpack8(queries[h], q);
#pragma unroll
      for (int i = 0; i < 8; ++i) scores[n][h] += q[i] * k[i];
    }
  }
  reload_keys();
#pragma unroll
  for (int offset = kGroupLanes / 2; offset > 0; offset >>= 1) {
#pragma unroll
    for (int i = 0; i < N * kPassHeads; ++i)
      scores[i / kPassHeads][i % kPassHeads] += __shfl_xor_sync(~0u, scores[i / kPassHeads][i % kPassHeads], offset);
  }
#pragma unroll
  for (int h = 0; h < kPassHeads; ++h) {
    float maximum = s.maximum[h];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      scores[n][h] = valid[n] ? scores[n][h] * kScoreScale : -1e30f;
      maximum = fmaxf(maximum, scores[n][h]);
    }
    const float correction = exp2_fast(s.maximum[h] - maximum);
    s.maximum[h] = maximum;
    s.total[h] *= correction;
#pragma unroll
    for (int i = 0; i < 8; ++i) s.values[h][i] *= correction;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      scores[n][h] = valid[n] ? exp2_fast(scores[n][h] - maximum) : 0.0f;
      s.total[h] += scores[n][h];
    }
  }
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const u32 words[4] = {values[n].x, values[n].y, values[n].z, values[n].w};
    float v[8];
    unpack8(words, v);
#pragma unroll
    for (int h = 0; h < kPassHeads; ++h) {
#pragma unroll
      for (int i = 0; i < 8; ++i) s.values[h][i] += scores[n][h] * v[i];
    }
  }
  reload_values();
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

template <class Edge, int kPassHeads, int kSplits, int kStride>
__device__ __forceinline__ void attend(const AdamkKernelParams& p, const Block& b, const Share& share, int layer,
                                       long long position, u32 tag, Softmax<kPassHeads>& s, At at) {
  const int group = b.lane / kGroupLanes;
  const bool active = group_lane(b) < kActiveLanes;
  const long long cache = (static_cast<long long>(layer) * kKvHeads + share.kv_head) * 2 * kContext * kHeadDim;
  u8* keys = static_cast<u8*>(p.kv) + 2 * cache + 16 * group_lane(b);
  const int last = static_cast<int>(position);   // positions fit 32 bits, their addresses do not

  // Cached positions are taken kTogether a turn, those of the next turn on their way meanwhile.
  constexpr int kTogether = kPositionsTogether, kStep = kStride * kSplits;
  int at_position = (share.first_unit + group) * kSplits + share.split;
  uint4 cached_keys[kTogether], cached_values[kTogether];
  const auto load = [&](uint4 (&to)[kTogether], const u8* from, int first) {
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const int cached = first + n * kStep;
      to[n] = make_uint4(0, 0, 0, 0);
      if (active && cached < last) to[n] = load_kv_16(from + static_cast<long long>(cached) * (2 * kHeadDim));
    }
  };
  const u8* values = keys + kContext * (2 * kHeadDim);
  load(cached_keys, keys, at_position);   // the cache does not depend on this token
  load(cached_values, values, at_position);

  const u8* small = static_cast<const u8*>(p.small_tensors);
  const float* rope = p.rope + position * kHeadDim;
  const Factors of_query{small + kQNormOffset + 2ll * layer * kHeadDim, rope};
  const Factors of_key{small + kKNormOffset + 2ll * layer * kHeadDim, rope};
  NewPosition<kPassHeads> now;
  if constexpr (kRoomy) now.template receive<Edge>(p, b, share, of_query, of_key, tag, at);
  else now.template receive_queries<Edge>(p, b, share, of_query, tag, at);
#pragma unroll
  for (int h = 0; h < kPassHeads; ++h) {
    s.maximum[h] = -1e30f;
    s.total[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) s.values[h][i] = 0.0f;
  }
  if (share.owns_new) {
    if constexpr (!kRoomy) now.template receive_position<Edge>(p, b, share, of_key, tag, at);
    const uint4 new_key[1] = {make_uint4(now.key[0], now.key[1], now.key[2], now.key[3])};
    const uint4 new_value[1] = {make_uint4(now.value[0], now.value[1], now.value[2], now.value[3])};
    const bool mine[1] = {group == share.new_group};
    if (share.appends && active && mine[0]) {
      store_kv_16(keys + position * (2 * kHeadDim), new_key[0]);
      store_kv_16(keys + (kContext + position) * (2 * kHeadDim), new_value[0]);
    }
    attend_positions<kPassHeads, 1>(now.queries, new_key, new_value, mine, s, [] {}, [] {});
  }
//@  Stamp stamp(p, b, at.stage);
#pragma unroll 1
  while (at_position - group * kSplits < last) {   // the same for all lane groups
//@    ++stamp.waited;   // not of clocks here: how often the loop ran
    bool valid[kTogether];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) valid[n] = at_position + n * kStep < last;
    at_position += kTogether * kStep;
    attend_positions<kPassHeads, kTogether>(now.queries, cached_keys, cached_values, valid, s,
                                            [&] { load(cached_keys, keys, at_position); },
                                            [&] { load(cached_values, values, at_position); });
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
//#  note_end(p, at);
}

// ---- attention recomputed by the readers of its projection: each warp the whole heads of its K slice -----------------------

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
