// Exchange: how values pass from the storers of one stage to the consumers of the next, over all SMs. An edge is a type
// with kKind, kValues, kSums, kCounter (offsets in the workspace) and kArrivals.
//
// Tagged: packets of 8 bytes {two values, tag}; a 64-bit access is never torn, so a packet whose tag is right holds the
// right values, and no fence is needed: the tag orders its own packet and nothing else. Counter and barrier: plain values;
// producers add to a counter with release, the controller polls it with acquire and lets its block's consumers go.
// One buffer per edge is enough: an SM that reads phase n publishes in its own stage only after reading, and the next
// write to the edge depends, through the stages between, on everything that stage publishes (docs/kernel.md).

enum Exchange { kTagged, kCounter, kBarrier };

__device__ __forceinline__ u8* workspace(const AdamkKernelParams& p, long long offset) {
  return static_cast<u8*>(p.workspace) + offset;
}

// Tags of a step's layers and of its argmax; distinct across steps and launches, compared for equality only, so the
// counter may wrap.
__device__ __forceinline__ u32 layer_tag(const AdamkKernelParams& p, int step, int layer) {
  return (p.epoch + static_cast<u32>(step)) * (kLayers + 1u) + static_cast<u32>(layer) + 1u;
}
// What an edge's counter reads once phase (step, layer) is complete.
template <class Edge>
__device__ __forceinline__ u32 counter_target(const AdamkKernelParams& p, int step, int layer) {
  return ((p.epoch + static_cast<u32>(step)) * kLayers + static_cast<u32>(layer) + 1u) * Edge::kArrivals;
}

// ---- producer side (storer) ----------------------------------------------------------------------------------------------

// Values `index` and `index + 1` (index even).
template <class Edge>
__device__ __forceinline__ void publish_pair(const AdamkKernelParams& p, int index, u32 pair, u32 tag) {
  if constexpr (Edge::kKind == kTagged)
    store_relaxed_64(workspace(p, Edge::kValues) + 4ll * index, static_cast<u64>(tag) << 32 | pair);
  else
    store_relaxed_32(workspace(p, Edge::kValues) + 2ll * index, pair);
}
// One float beside the values: a sum of squares or a log-sum. Always tagged.
template <class Edge>
__device__ __forceinline__ void publish_sum(const AdamkKernelParams& p, int index, float sum, u32 tag) {
  store_relaxed_64(workspace(p, Edge::kSums) + 8ll * index, static_cast<u64>(tag) << 32 | __float_as_uint(sum));
}
// Once per phase, by the storer warp, after all that this SM publishes. `worked`: this SM had work in the stage. An SM without
// work arrives at a barrier through its controller, which waits for each phase: a storer with nothing to wait for would arrive
// at later phases before others have arrived at this one.
template <class Edge>
__device__ __forceinline__ void publish_done(const AdamkKernelParams& p, const Block& b, bool worked) {
  if constexpr (Edge::kKind != kTagged) {
    __syncwarp();
    if (b.lane == 0 && worked) add_release_32(workspace(p, Edge::kCounter), 1);
  }
}

// ---- controller side -----------------------------------------------------------------------------------------------------

// Waits for the phase and releases this block's consumers. With a barrier every SM waits, with a counter only readers.
// `worked`: this SM's storer arrives itself.
template <class Edge>
__device__ __forceinline__ void control_edge(const AdamkKernelParams& p, const Block& b, bool worked, bool reads, int step,
                                             int layer, At at) {
  if constexpr (Edge::kKind != kTagged) {
    if (b.lane != 0 || (!reads && Edge::kKind != kBarrier)) return;
    if (Edge::kKind == kBarrier && !worked) add_release_32(workspace(p, Edge::kCounter), 1);
    const u32 target = counter_target<Edge>(p, step, layer);
//#    const u32 since = clock_now();
    Patience patience;
    u32 seen = load_acquire_32(workspace(p, Edge::kCounter));
    while (static_cast<int>(seen - target) < 0) {
      if (patience.exhausted(p, kWaitCounter, at, target, seen)) leave();
      seen = load_acquire_32(workspace(p, Edge::kCounter));
    }
//#    note_wait(p, at, kInputWait, since);
    if (reads) barrier_arrive(shared_base() + kInputsReady);
  }
}

// ---- consumer side -------------------------------------------------------------------------------------------------------

// N groups of four values on their way; group i starts at value index[i] (a multiple of 4) and is read where wanted[i]. Two
// words each; words of groups not wanted are zero.
template <class Edge, int N>
struct Fours {
  Pair64 packets[N];   // plain edges: the values in .a

  __device__ __forceinline__ void issue(const AdamkKernelParams& p, const int (&index)[N], const bool (&wanted)[N], u32 tag) {
    const u8* from = workspace(p, Edge::kValues);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (Edge::kKind == kTagged) {
        packets[i].a = packets[i].b = static_cast<u64>(tag) << 32;   // what is not wanted reads as zeros, and as there
        if (wanted[i]) packets[i] = load_relaxed_2x64(from + 4ll * index[i]);
      } else {
        packets[i].a = wanted[i] ? load_relaxed_64(from + 2ll * index[i]) : 0ull;
      }
    }
  }

  __device__ __forceinline__ void await(const AdamkKernelParams& p, const int (&index)[N], u32 tag, u32 (&values)[2 * N],
                                        At at) {
//#    const u32 since = clock_now();
    if constexpr (Edge::kKind == kTagged) {
      const u8* from = workspace(p, Edge::kValues);
      const auto ready = [&](int i) {
        return static_cast<u32>(packets[i].a >> 32) == tag && static_cast<u32>(packets[i].b >> 32) == tag;
      };
      Patience patience;
      for (;;) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < N; ++i) all = all && ready(i);
        if (all) break;
        if (patience.exhausted(p, kWaitTagged, at, tag, static_cast<u32>(packets[0].a >> 32))) leave();
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (!ready(i)) packets[i] = load_relaxed_2x64(from + 4ll * index[i]);
      }
    }
//#    __syncwarp();   // the last lane's wait is the warp's
//#    note_wait(p, at, kInputWait, since);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[2 * i] = static_cast<u32>(packets[i].a);
      values[2 * i + 1] = static_cast<u32>(Edge::kKind == kTagged ? packets[i].b : packets[i].a >> 32);
    }
  }
};

template <class Edge, int N>
__device__ __forceinline__ void receive_fours(const AdamkKernelParams& p, const int (&index)[N], const bool (&wanted)[N],
                                              u32 tag, u32 (&values)[2 * N], At at) {
  Fours<Edge, N> fours;
  fours.issue(p, index, wanted, tag);
  fours.await(p, index, tag, values, at);
}

// N sums at index[i]; all loads are issued before the first is waited for.
template <class Edge, int N>
__device__ __forceinline__ void receive_sums(const AdamkKernelParams& p, const int (&index)[N], u32 tag, float (&sums)[N],
                                             At at) {
  const u8* from = workspace(p, Edge::kSums);
  u64 packets[N];
#pragma unroll
  for (int i = 0; i < N; ++i) packets[i] = load_relaxed_64(from + 8ll * index[i]);
//#  const u32 since = clock_now();
  Patience patience;
  for (;;) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < N; ++i) all = all && static_cast<u32>(packets[i] >> 32) == tag;
    if (all) break;
    if (patience.exhausted(p, kWaitTagged, at, tag, static_cast<u32>(packets[0] >> 32))) leave();
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (static_cast<u32>(packets[i] >> 32) != tag) packets[i] = load_relaxed_64(from + 8ll * index[i]);
  }
//#  __syncwarp();
//#  note_wait(p, at, kInputWait, since);
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] = __uint_as_float(static_cast<u32>(packets[i]));
}
