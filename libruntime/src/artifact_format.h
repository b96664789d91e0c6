// Names inside an artifact folder, shared by its writer and reader.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace adamk::artifact_format {

inline constexpr std::string_view format = "adamk.artifact";
inline constexpr int version = 3;   // 1 had no manifest_hash, 2 no certificate
inline constexpr int oldest_validator = 2;   // 1 did not prove that there is no race

inline constexpr const char* manifest = "manifest.json";
inline constexpr const char* source = "kernel.cu";
inline constexpr const char* cubin = "kernel.cubin";
inline constexpr const char* ptx = "kernel.ptx";
inline constexpr const char* packed = "weights.packed";
inline constexpr const char* small_tensors = "small.packed";
inline constexpr const char* embedding = "embedding.bin";

inline constexpr std::array all{manifest, source, cubin, ptx, packed, small_tensors, embedding};

inline bool is_ptx(std::string_view arch) { return arch.starts_with("compute_"); }
/// The name of the kernel's image for an arch.
inline const char* image(std::string_view arch) { return is_ptx(arch) ? ptx : cubin; }

}  // namespace adamk::artifact_format
