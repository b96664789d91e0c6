// Latency of one tagged exchange: every block publishes eight packets, waits for everyone's, publishes again. Packets are
// {32-bit value, 32-bit tag} in one relaxed 8-byte access, as in generated kernels. NVRTC compiles this file alone.

struct HopProbeParams {
  unsigned long long* packets;   // [2][grid * 8], zeroed before the first launch
  unsigned* stuck;               // set when a packet did not come within `limit`
  long long limit;               // clocks
  unsigned first_tag;            // above every tag of earlier launches; even
  int phases;
};

static const int packets_per_block = 8;   // 64 bytes: what 16 rows of 16-bit values make

static __device__ unsigned long long load_packet(const unsigned long long* at) {
  unsigned long long packet;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(packet) : "l"(at) : "memory");
  return packet;
}

static __device__ void store_packet(unsigned long long* at, unsigned long long packet) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(packet) : "memory");
}

// A block publishes phase p + 2 over p only after it has everyone's p + 1, and those were published after their blocks had
// read all of p: two buffers suffice.
extern "C" __global__ void hop_probe(HopProbeParams p) {
  const int total = gridDim.x * packets_per_block;
  for (int phase = 0; phase < p.phases; ++phase) {
    const unsigned tag = p.first_tag + phase;
    unsigned long long* buffer = p.packets + (tag & 1) * total;
    if (threadIdx.x < packets_per_block) {
      store_packet(buffer + blockIdx.x * packets_per_block + threadIdx.x,
                   (static_cast<unsigned long long>(tag) << 32) | blockIdx.x);
    }
    int late = 0;
    const long long begin = clock64();
    for (int i = threadIdx.x; i < total && !late; i += blockDim.x) {
      while (static_cast<unsigned>(load_packet(buffer + i) >> 32) != tag) {
        if (clock64() - begin > p.limit) {
          late = 1;
          break;
        }
      }
    }
    if (__syncthreads_or(late)) {   // every block runs into the same limit, so none is left waiting
      if (threadIdx.x == 0) *p.stuck = 1;
      return;
    }
  }
}
