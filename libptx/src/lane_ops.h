// Lane operations: what an instruction does to the 32 lanes of a warp, without memory or control flow. Registers lie lane by lane:
// 32 words of 4 bytes (16-bit registers too, zero-extended) or of 8. The same source is compiled twice, plainly and for AVX2.
#pragma once

#include <cstdint>

namespace adamk::ptx {

/// d, a, b, c: 32 lanes each; only lanes in `mask` of d are written. `p`: a predicate, one bit a lane (selp).
using LaneFunction = void (*)(void* d, const void* a, const void* b, const void* c, std::uint32_t p, std::uint32_t mask);
/// One bit a lane; bits outside the active lanes mean nothing.
using CompareFunction = std::uint32_t (*)(const void* a, const void* b);
/// D[16, 8] = A[16, k] x B[k, 8] + C, k = 16 or 8, fragments as in the PTX ISA, "Matrix Fragments for mma". fp32 accumulators.
using MmaFunction = void (*)(void* const d[4], const void* const a[4], const void* const b[2], const void* const c[4]);

/// shfl.sync (PTX ISA, pseudo code there): out[lane] = values[source]. One bit a lane: `valid` where the source is in range,
/// `bad` where it is not in `mask`, both for lanes in `mask` only.
struct Shuffled {
  std::uint32_t valid = 0, bad = 0;
};
using ShuffleFunction = Shuffled (*)(std::uint32_t* out, const void* values, const void* b, const void* c, std::uint32_t mask);

/// out = base + offset, 64 bits wide, for lanes in `mask`; the others take the first one's.
using AddressFunction = void (*)(std::uint64_t* out, const void* base, std::uint64_t offset, std::uint32_t mask);
/// 32 addresses seen as `bytes` bytes each, from `base` on.
struct Spread {
  bool inside = false;    // all within [base, base + size)
  bool aligned = false;   // all to `bytes`
  bool run = false;       // each begins where the one before it ends
  bool same = false;      // all equal
};
using SpreadFunction = Spread (*)(const std::uint64_t* addresses, std::uint64_t base, std::uint64_t size, std::uint64_t bytes);

#define ADAMK_LANE_FUNCTIONS(X)                                                                                            \
  X(mov32) X(mov64) X(add16) X(sub16) X(add32) X(sub32) X(add64) X(sub64) X(mullo16) X(mullo32) X(mullo64) X(mulhi_u32)    \
  X(mulhi_s32) X(mulhi_u64) X(mulhi_s64) X(mulwide_u16) X(mulwide_s16) X(mulwide_u32) X(mulwide_s32) X(madlo32) X(madlo64) \
  X(madwide_u32) X(madwide_s32) X(div_u32) X(div_s32) X(rem_u32) X(rem_s32) X(div_u64) X(div_s64) X(rem_u64) X(rem_s64)    \
  X(neg32) X(neg64) X(abs_s32) X(min_u32) X(min_s32) X(max_u32) X(max_s32) X(min_u64) X(min_s64) X(max_u64) X(max_s64)     \
  X(and32) X(or32) X(xor32) X(not32) X(not16) X(and64) X(or64) X(xor64) X(not64)                                           \
  X(shl16) X(shr_u16) X(shr_s16) X(shl32) X(shr_u32) X(shr_s32) X(shl64) X(shr_u64) X(shr_s64)                             \
  X(shf_l_wrap) X(shf_r_wrap) X(popc32) X(popc64) X(clz32) X(clz64) X(brev32)                                              \
  X(bfe_u32) X(bfe_s32) X(prmt32) X(selp32) X(selp64)                                                                      \
  X(addf) X(subf) X(mulf) X(fmaf_) X(divf) X(rcpf) X(rsqrtf_) X(sqrtf_) X(ex2f) X(ex2f_ftz) X(lg2f) X(sinf_) X(cosf_)      \
  X(tanhf_) X(negf) X(absf) X(minf) X(maxf)                                                                                \
  X(addd) X(subd) X(muld) X(fmad) X(divd)                                                                                  \
  X(sext8_32) X(sext16_32) X(zext8) X(zext16) X(trunc64_32) X(zext32_64) X(sext32_64) X(sext16_64) X(sext8_16)             \
  X(s32_to_f32) X(u32_to_f32) X(s64_to_f32) X(u64_to_f32) X(f32_to_s32_rz) X(f32_to_u32_rz) X(f32_to_s32_rn)               \
  X(f32_rni) X(f32_rzi) X(f32_rmi) X(f32_rpi) X(f32_to_f64) X(f64_to_f32)                                                  \
  X(f32_to_bf16) X(f32_to_f16) X(bf16_to_f32) X(f16_to_f32) X(pack_bf16x2) X(pack_f16x2)

#define ADAMK_COMPARE_FUNCTIONS(X)                                                                                          \
  X(eq16) X(ne16) X(lt_u16) X(le_u16) X(gt_u16) X(ge_u16) X(lt_s16) X(le_s16) X(gt_s16) X(ge_s16)                           \
  X(eq32) X(ne32) X(lt_u32) X(le_u32) X(gt_u32) X(ge_u32) X(lt_s32) X(le_s32) X(gt_s32) X(ge_s32)                           \
  X(eq64) X(ne64) X(lt_u64) X(le_u64) X(gt_u64) X(ge_u64) X(lt_s64) X(le_s64) X(gt_s64) X(ge_s64)                           \
  X(eqf) X(nef) X(ltf) X(lef) X(gtf) X(gef) X(equf) X(neuf) X(ltuf) X(leuf) X(gtuf) X(geuf) X(numf) X(nanf_)                \
  X(eqd) X(ned) X(ltd) X(led) X(gtd) X(ged)

struct LaneOps {
#define ADAMK_FIELD(name) LaneFunction name;
  ADAMK_LANE_FUNCTIONS(ADAMK_FIELD)
#undef ADAMK_FIELD
#define ADAMK_FIELD(name) CompareFunction name;
  ADAMK_COMPARE_FUNCTIONS(ADAMK_FIELD)
#undef ADAMK_FIELD
  LaneFunction bfi32, bfi64;   // a into b, p: unused; c: lanes of {position, length} in 8-byte words
  MmaFunction mma_bf16_k16, mma_f16_k16, mma_bf16_k8, mma_f16_k8;
  ShuffleFunction shuffle[4];  // up, down, bfly, idx
  AddressFunction address32, address64;
  SpreadFunction spread;
};

/// The fastest table this machine can run.
const LaneOps& lane_ops();
const LaneOps& lane_ops_plain();
const LaneOps& lane_ops_avx2();   // only where the machine has AVX2, FMA and F16C

}  // namespace adamk::ptx
