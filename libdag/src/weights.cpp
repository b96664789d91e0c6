#include "adamk/dag/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "adamk/base/half.h"
#include "adamk/base/hash.h"
#include "parallel.h"
#include "weights_slots.h"

namespace adamk {

float to_float(WeightsFormat format, Half bits) {
  return format == WeightsFormat::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

Half from_float(WeightsFormat format, float value) {
  return format == WeightsFormat::bf16 ? float_to_bf16(value) : float_to_fp16(value);
}

std::string Weights::hash() const {
  // Pieces of a fixed size are hashed apart, so that several cores share one large embedding, and joined in order.
  constexpr std::size_t piece = std::size_t{32} << 20;   // elements
  std::vector<std::span<const Half>> pieces;
  std::string layout = fmt::format("adamk.weights 1 {}", format_ == WeightsFormat::bf16 ? "bf16" : "fp16");
  const auto add = [&](std::span<const Half> tensor) {
    layout += fmt::format(" {}", tensor.size());
    for (std::size_t at = 0; at < tensor.size(); at += piece) {
      pieces.push_back(tensor.subspan(at, std::min(piece, tensor.size() - at)));
    }
  };
  add(embedding_);
  for (const LayerWeights& w : layers_) {
    for (std::span<const Half> tensor :
         {w.attention_norm, w.mlp_norm, w.q, w.k, w.v, w.q_bias, w.k_bias, w.v_bias, w.q_norm, w.k_norm, w.output,
          w.output_bias, w.gate, w.up, w.gate_bias, w.up_bias, w.down, w.down_bias}) {
      add(tensor);
    }
  }
  add(final_norm_);
  if (head_.data() == embedding_.data()) {
    layout += " tied";
  } else {
    add(head_);
  }

  std::vector<std::string> digests(pieces.size());
  parallel_for(pieces.size(), [&](std::size_t i) { digests[i] = hash_hex(std::as_bytes(pieces[i])); });
  for (const std::string& digest : digests) layout += "\n" + digest;
  return hash_hex(layout);
}

}  // namespace adamk
