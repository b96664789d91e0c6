// A small consistent recipe and inputs of the sizes it states.
#pragma once

#include <vector>

#include "adamk/runtime/decoder.h"

namespace adamk::testing {

inline Recipe sample_recipe() {
  Recipe recipe;
  recipe.deployment_key = "00000000000000000000000000000001";
  recipe.plan_hash = "00000000000000000000000000000002";
  recipe.arch = "sm_90a";
  recipe.weights_hash = "00000000000000000000000000000003";
  recipe.grid = 4;
  recipe.threads = 128;
  recipe.smem = 1024;
  recipe.max_steps = 4;
  recipe.format = "bf16";
  recipe.layers = 2;
  recipe.hidden = 8;
  recipe.heads = 2;
  recipe.kv_heads = 1;
  recipe.head_dim = 4;
  recipe.ffn = 16;
  recipe.vocab = 10;
  recipe.context = 16;
  recipe.packed_bytes = 64;
  recipe.small_bytes = 32;
  recipe.embedding_bytes = 160;   // 10 x 8 x 2
  recipe.kv_bytes = 512;          // 2 x 1 x 2 x 16 x 4 x 2
  recipe.workspace_bytes = 256;
  recipe.bytes_per_step = 200;
  recipe.rope_inverse_frequencies = {1.0, 0.01};
  recipe.registers = 100;
  recipe.code_bytes = 4096;
  return recipe;
}

struct SampleInputs {
  using Bytes = std::vector<std::byte>;
  Bytes image = Bytes(16, std::byte{1});
  Bytes packed = Bytes(64, std::byte{2});
  Bytes small = Bytes(32, std::byte{3});
  Bytes embedding = Bytes(160, std::byte{4});
  DecoderInputs view() const { return {image, packed, small, embedding}; }
};

}  // namespace adamk::testing
