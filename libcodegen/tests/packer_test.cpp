// The packed layout against an unpacker written from the PTX ISA's fragment tables and the layout stated in dag/schedule.h.
#include "adamk/codegen/packer.h"

#include <gtest/gtest.h>

#include <vector>

#include "adamk/dag/target.h"
#include "codegen_fixture.h"

namespace adamk {
namespace {

/// Value at (row, column) of a packed matrix, in tile-row order. Registers of an m16n8k16 A fragment: a0, a1 hold columns
/// 2q, 2q + 1 of rows g, g + 8, a2, a3 columns 2q + 8, 2q + 9 (PTX ISA, "Matrix Fragments for mma.m16n8k16"). Columns within a K
/// step are permuted, the same way as the activations: fragment column 2q + e is column 4q + e of the step, 2q + 8 + e is 4q + 2 + e.
Half packed_at(const std::vector<std::byte>& packed, const GemvShape& shape, std::int64_t base, int warps, int row, int column) {
  const int tile = row / shape.tile_rows, block = row % shape.tile_rows / 16, r = row % 16;
  const int step = column / 16, c = column % 16;
  const int warp = step / shape.steps, in_warp = step % shape.steps;
  const int chunk = in_warp / shape.chunk_steps, s = in_warp % shape.chunk_steps;
  const std::int64_t blocks = shape.tile_rows / 16;
  std::int64_t at = base + tile * shape.tile_bytes;
  for (int i = 0; i < chunk; ++i) at += std::int64_t{512} * blocks * warps * shape.steps_in_chunk(i);
  at += 512 * ((std::int64_t{warp} * shape.steps_in_chunk(chunk) + s) * blocks + block);
  const int q = c / 4, second = c % 4 / 2, element = c % 2;   // which pair of the step's columns this lane holds
  const int lane = r % 8 * 4 + q;
  const int reg = 2 * second + r / 8;
  at += lane * 16 + reg * 4 + element * 2;
  Half value;
  std::memcpy(&value, packed.data() + at, 2);
  return value;
}

void expect_matrix(const std::vector<std::byte>& packed, const Schedule& schedule, const GemvShape& shape, std::int64_t base,
                   const std::function<Half(int, int)>& want) {
  // Interleaved rows end in the middle of a group of 16, gate before up: `want` knows which are padding.
  const int rows = shape.order == RowOrder::interleaved ? shape.tiles * shape.tile_rows : shape.rows;
  std::int64_t wrong = 0;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < shape.k; ++column)
      wrong += packed_at(packed, shape, base, schedule.plan.consumer_warps, row, column) != want(row, column);
  }
  EXPECT_EQ(wrong, 0) << to_string(shape.kind);
  // Padding multiplies activations that are zero, so it must be finite; it is zero.
  for (int row = 0; row < shape.tiles * shape.tile_rows; ++row) {
    for (int column = 0; column < shape.steps * schedule.plan.consumer_warps * 16; ++column) {
      if (row < rows && column < shape.k) continue;
      wrong += packed_at(packed, shape, base, schedule.plan.consumer_warps, row, column) != 0;
    }
  }
  EXPECT_EQ(wrong, 0) << "padding of " << to_string(shape.kind);
}

void expect_packed(const Deployment& deployment, const Plan& plan) {
  SCOPED_TRACE(plan_to_json(plan).dump());
  const Model& model = deployment.model;
  const auto schedule = make_schedule(deployment, plan);
  ASSERT_TRUE(schedule) << schedule.error().message;
  const auto weights = Weights::random(model, deployment.weights, 5);
  ASSERT_TRUE(weights);
  const std::vector<std::byte> packed = pack_weights(deployment, *schedule, *weights);
  ASSERT_EQ(static_cast<std::int64_t>(packed.size()), schedule->packed_bytes);
  const bool fused_silu = plan.stage(StageKind::gate_up).fused_silu;
  for (int l = 0; l < model.layers; ++l) {
    const LayerWeights& w = weights->layers()[static_cast<std::size_t>(l)];
    const std::int64_t base = l * schedule->layer_bytes;
    const auto at = [](std::span<const Half> m, int row, int k, int column) {
      return m[static_cast<std::size_t>(row) * static_cast<std::size_t>(k) + static_cast<std::size_t>(column)];
    };
    for (const GemvShape& shape : schedule->gemvs) {
      const int k = shape.k;
      if (shape.kind == StageKind::head) continue;
      expect_matrix(packed, *schedule, shape, base + shape.offset, [&](int row, int column) -> Half {
        switch (shape.kind) {
          case StageKind::qkv:
            if (row < model.q_rows()) return at(w.q, row, k, column);
            if (row < model.q_rows() + model.kv_rows()) return at(w.k, row - model.q_rows(), k, column);
            return at(w.v, row - model.q_rows() - model.kv_rows(), k, column);
          case StageKind::output: return at(w.output, row, k, column);
          case StageKind::down: return at(w.down, row, k, column);
          default: break;
        }
        if (!fused_silu) return row < model.ffn ? at(w.gate, row, k, column) : at(w.up, row - model.ffn, k, column);
        const int pair = row / 16 * 8 + row % 8;
        if (pair >= model.ffn) return 0;
        return at(row % 16 < 8 ? w.gate : w.up, pair, k, column);
      });
    }
  }
  const GemvShape& head = schedule->gemv(StageKind::head);
  expect_matrix(packed, *schedule, head, schedule->head_offset, [&](int row, int column) {
    return weights->head()[static_cast<std::size_t>(row) * static_cast<std::size_t>(head.k) + static_cast<std::size_t>(column)];
  });
}

TEST(PackerTest, EveryElementLiesWhereTheFragmentWantsIt) {
  for (const Model& model : {codegen::even_model(), codegen::ragged_model()}) {
    const Deployment deployment = codegen::deploy(model);
    auto plan = default_plan(deployment);
    ASSERT_TRUE(plan) << plan.error().message;
    expect_packed(deployment, *plan);
    for (StagePlan& stage : plan->stages) {
      stage.tile_rows = 32;
      stage.chunk_steps = 1;
      if (stage.kind == StageKind::gate_up) stage.fused_silu = false;
    }
    plan->consumer_warps = 3;
    plan->ring_stages = 2;
    plan->window = 1;
    plan->grid = 3;
    expect_packed(deployment, *plan);
  }
}

TEST(PackerTest, EqualKeysPackAlike) {
  const Deployment deployment = codegen::deploy(codegen::ragged_model());
  auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  const auto weights = Weights::random(deployment.model, deployment.weights, 5);
  ASSERT_TRUE(weights);
  const auto first = make_schedule(deployment, *plan);
  Plan other = *plan;   // another exchange, grid and window: the same bytes
  other.window = 1;
  other.grid = 5;
  for (StagePlan& stage : other.stages) stage.input = Exchange::counter;
  const auto second = make_schedule(deployment, other);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(packed_layout_key(*first), packed_layout_key(*second));
  EXPECT_EQ(pack_weights(deployment, *first, *weights), pack_weights(deployment, *second, *weights));
  for (StagePlan& stage : other.stages)
    if (stage.kind == StageKind::gate_up) stage.tile_rows = 32;
  const auto third = make_schedule(deployment, other);
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_NE(packed_layout_key(*first), packed_layout_key(*third));
}

TEST(PackerTest, SmallTensorsLieAtTheirOffsets) {
  Model model = codegen::even_model();
  model.qkv_bias = model.output_bias = model.mlp_bias = model.qk_norm = true;
  const Deployment deployment = codegen::deploy(model);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  const auto schedule = make_schedule(deployment, *plan);
  const auto weights = Weights::random(model, deployment.weights, 5);
  ASSERT_TRUE(schedule && weights);
  const std::vector<std::byte> packed = pack_small_tensors(deployment, *schedule, *weights);
  const auto expect_at = [&](std::int64_t offset, std::int64_t element, std::span<const Half> values) {
    ASSERT_GE(offset, 0);
    ASSERT_FALSE(values.empty());
    EXPECT_EQ(std::memcmp(packed.data() + offset + 2 * element, values.data(), values.size_bytes()), 0);
  };
  const SmallTensors& small = schedule->small;
  for (int l = 0; l < model.layers; ++l) {
    const LayerWeights& w = weights->layers()[static_cast<std::size_t>(l)];
    const int qkv = model.q_rows() + 2 * model.kv_rows();
    expect_at(small.attention_norm, std::int64_t{l} * model.hidden, w.attention_norm);
    expect_at(small.mlp_norm, std::int64_t{l} * model.hidden, w.mlp_norm);
    expect_at(small.q_norm, std::int64_t{l} * model.head_dim, w.q_norm);
    expect_at(small.k_norm, std::int64_t{l} * model.head_dim, w.k_norm);
    expect_at(small.qkv_bias, std::int64_t{l} * qkv, w.q_bias);
    expect_at(small.qkv_bias, std::int64_t{l} * qkv + model.q_rows(), w.k_bias);
    expect_at(small.qkv_bias, std::int64_t{l} * qkv + model.q_rows() + model.kv_rows(), w.v_bias);
    expect_at(small.output_bias, std::int64_t{l} * model.hidden, w.output_bias);
    expect_at(small.gate_up_bias, std::int64_t{l} * 2 * model.ffn, w.gate_bias);
    expect_at(small.gate_up_bias, std::int64_t{l} * 2 * model.ffn + model.ffn, w.up_bias);
    expect_at(small.down_bias, std::int64_t{l} * model.hidden, w.down_bias);
  }
  expect_at(small.attention_norm, std::int64_t{model.layers} * model.hidden, weights->final_norm());
}

}  // namespace
}  // namespace adamk
