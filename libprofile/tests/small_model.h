// The models of small_model.py as checkpoints in a temporary folder, for tests of everything that decodes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "adamk/base/half.h"
#include "adamk/base/safetensors.h"
#include "adamk/dag/model.h"
#include "adamk/dag/weights.h"

namespace adamk::small {

inline Model plain_model() {
  Model m;
  m.family = "llama";
  m.layers = 2;
  m.hidden = 12;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 20;
  m.vocab = 11;
  m.max_positions = 64;
  m.norm_eps = 1e-5;
  m.rope.theta = 10000.0;
  m.tied_head = true;
  return m;
}

inline Model full_model() {
  Model m;
  m.family = "qwen3";
  m.layers = 3;
  m.hidden = 20;
  m.heads = 6;
  m.kv_heads = 2;
  m.head_dim = 8;
  m.ffn = 28;
  m.vocab = 13;
  m.max_positions = 512;
  m.norm_eps = 1e-6;
  m.rope = {RopeKind::llama3, 500.0, 8.0, 1.0, 4.0, 64};
  m.qkv_bias = m.output_bias = m.mlp_bias = m.qk_norm = true;
  return m;
}

/// small_model.py's value(name, i), and 1 + value / 2 for the gains of norms.
inline float value(const std::string& name, std::int64_t i) {
  std::int64_t t = 0;
  for (const char c : name) t += static_cast<unsigned char>(c);
  const float v = static_cast<float>((3 * i * i + 7 * i + 13 * t) % 31 - 15) / 32;
  return name.find("norm.weight") == std::string::npos ? v : 1 + v / 2;
}

class CheckpointWriter {
 public:
  explicit CheckpointWriter(WeightsFormat format) : format_(format) {}

  void add(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const auto extent : shape) count *= extent;
    auto& values = values_.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) values.push_back(from_float(format_, value(name, i)));
    list_.push_back({name, format_ == WeightsFormat::bf16 ? "BF16" : "F16", std::move(shape),
                     std::as_bytes(std::span<const Half>(values))});
  }
  const std::vector<TensorToWrite>& list() const { return list_; }

 private:
  WeightsFormat format_;
  std::deque<std::vector<Half>> values_;
  std::vector<TensorToWrite> list_;
};

inline Result<Weights> weights_of(const Model& m, WeightsFormat format) {
  CheckpointWriter out(format);
  const std::int64_t d = m.hidden, q = m.q_rows(), kv = m.kv_rows(), ffn = m.ffn;
  out.add("model.embed_tokens.weight", {m.vocab, d});
  for (int i = 0; i < m.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    const auto linear = [&](const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
      out.add(at + name + ".weight", {rows, columns});
      if (bias) out.add(at + name + ".bias", {rows});
    };
    out.add(at + "input_layernorm.weight", {d});
    linear("self_attn.q_proj", q, d, m.qkv_bias);
    linear("self_attn.k_proj", kv, d, m.qkv_bias);
    linear("self_attn.v_proj", kv, d, m.qkv_bias);
    if (m.qk_norm) out.add(at + "self_attn.q_norm.weight", {m.head_dim});
    if (m.qk_norm) out.add(at + "self_attn.k_norm.weight", {m.head_dim});
    linear("self_attn.o_proj", d, q, m.output_bias);
    out.add(at + "post_attention_layernorm.weight", {d});
    linear("mlp.gate_proj", ffn, d, m.mlp_bias);
    linear("mlp.up_proj", ffn, d, m.mlp_bias);
    linear("mlp.down_proj", d, ffn, m.mlp_bias);
  }
  out.add("model.norm.weight", {d});
  if (!m.tied_head) out.add("lm_head.weight", {m.vocab, d});

  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = std::filesystem::path(::testing::TempDir()) / (std::string("adamk_small_") + test->name());
  std::filesystem::create_directories(folder);
  ADAMK_CHECK(write_safetensors(folder / "model.safetensors", out.list()));
  auto weights = Weights::load(m, folder, format);
  std::filesystem::remove_all(folder);   // the mapping keeps the content
  return weights;
}

}  // namespace adamk::small
