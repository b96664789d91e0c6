#include "lane_ops.inc"

namespace adamk::ptx {

const LaneOps& lane_ops_plain() { return table; }

const LaneOps& lane_ops() {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (wide) return lane_ops_avx2();
#endif
  return lane_ops_plain();
}

}  // namespace adamk::ptx
