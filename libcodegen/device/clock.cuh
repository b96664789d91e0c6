// This SM's clock, modulo 2^32. Only in kernels that time themselves.
__device__ __forceinline__ unsigned clock_now() {
  unsigned now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}
