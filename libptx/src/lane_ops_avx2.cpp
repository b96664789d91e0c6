#include "lane_ops.inc"

namespace adamk::ptx {

const LaneOps& lane_ops_avx2() { return table; }

}  // namespace adamk::ptx
