// Read ceiling: how fast all SMs together stream a buffer far larger than L2. Two ways, the faster one counts. `read_fill`
// writes the data first: constant data would be compressed by some memory systems. NVRTC compiles this file alone.

struct ReadProbeParams {
  const unsigned char* data;   // 16-byte aligned
  unsigned* sink;              // written only if an impossible value is read, so that loads are not removed
  long long bytes;             // a multiple of `stage_bytes`
  int stages;                  // ring depth (bulk copies)
  int reserved;
};

static const int stage_bytes = 16384;

// splitmix64 (Steele, Lea, Flood 2014)
static __device__ unsigned long long mix(unsigned long long x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

extern "C" __global__ void read_fill(ReadProbeParams p) {
  unsigned long long* out = reinterpret_cast<unsigned long long*>(const_cast<unsigned char*>(p.data));
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < p.bytes / 8; i += stride) {
    out[i] = mix(i);
  }
}

static __device__ uint4 load_once(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

extern "C" __global__ void __launch_bounds__(1024) read_vector(ReadProbeParams p) {
  const uint4* in = reinterpret_cast<const uint4*>(p.data);
  const long long count = p.bytes / 16;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  unsigned seen = 0;
  long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {   // four loads in flight per thread
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = load_once(in + i + j * stride);
#pragma unroll
    for (int j = 0; j < 4; ++j) seen ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = load_once(in + i);
    seen ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (seen == 0x5ca1ab1eu && p.reserved != 0) *p.sink = seen;   // `reserved` is 0
}

#if __CUDA_ARCH__ >= 900
// One thread per SM keeps `stages` bulk copies in flight; nobody reads what arrives. PTX ISA, cp.async.bulk and mbarrier.
static __device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

static __device__ void wait_full(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      "  .reg .pred done;\n"
      "AGAIN:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "  @!done bra AGAIN;\n"
      "}\n" ::"r"(barrier), "r"(parity) : "memory");
}

static __device__ void fetch(unsigned to, const unsigned char* from, unsigned barrier, unsigned long long policy) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(stage_bytes), "r"(barrier), "l"(policy)
      : "memory");
}

extern "C" __global__ void read_bulk(ReadProbeParams p) {
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ unsigned long long full[16];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < p.stages; ++s) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[s])) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");   // the copies see the initialised barriers
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));

  const long long chunks = p.bytes / stage_bytes;
  const long long mine = chunks / gridDim.x + (blockIdx.x < chunks % gridDim.x ? 1 : 0);
  const auto chunk = [&](long long i) { return p.data + (blockIdx.x + i * gridDim.x) * stage_bytes; };
  const auto issue = [&](long long i) {
    const int s = static_cast<int>(i % p.stages);
    fetch(shared_address(ring) + s * stage_bytes, chunk(i), shared_address(&full[s]), policy);
  };
  for (long long i = 0; i < mine && i < p.stages; ++i) issue(i);
  for (long long i = 0; i < mine; ++i) {
    wait_full(shared_address(&full[i % p.stages]), static_cast<unsigned>(i / p.stages) & 1);
    if (i + p.stages < mine) issue(i + p.stages);
  }
}
#endif
