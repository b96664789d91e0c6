// SM clock: cycles of one SM over nanoseconds of the global timer. NVRTC compiles this file alone.

struct ClockProbeParams {
  unsigned long long* result;      // [2] cycles, nanoseconds
  unsigned long long nanoseconds;  // how long to watch
};

extern "C" __global__ void clock_probe(ClockProbeParams p) {
  unsigned long long begin, now;
  // The global timer ticks in steps of up to a microsecond: start on a tick.
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now == begin);
  const long long cycles = clock64();
  begin = now;
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < p.nanoseconds);
  p.result[0] = static_cast<unsigned long long>(clock64() - cycles);
  p.result[1] = now - begin;
}
