#include "adamk/codegen/packer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <thread>

namespace adamk {
namespace {

std::span<const Half> row_of(std::span<const Half> matrix, int row, int k) {
  return matrix.subspan(static_cast<std::size_t>(row) * k, k);
}

/// Concatenated matrices: q, k, v; or gate, up.
std::span<const Half> plain_row(const Model& model, const LayerWeights& layer, const GemvShape& shape, int row) {
  if (row >= shape.rows) return {};
  switch (shape.kind) {
    case StageKind::qkv:
      if (row < model.q_rows()) return row_of(layer.q, row, shape.k);
      row -= model.q_rows();
      if (row < model.kv_rows()) return row_of(layer.k, row, shape.k);
      return row_of(layer.v, row - model.kv_rows(), shape.k);
    case StageKind::output: return row_of(layer.output, row, shape.k);
    case StageKind::gate_up:
      return row < model.ffn ? row_of(layer.gate, row, shape.k) : row_of(layer.up, row - model.ffn, shape.k);
    case StageKind::down: return row_of(layer.down, row, shape.k);
    case StageKind::attention:
    case StageKind::head: break;
  }
  return {};
}

/// Per 16 rows: 8 of gate, then the 8 of up that they meet in SiLU(gate) x up.
std::span<const Half> interleaved_row(const Model& model, const LayerWeights& layer, const GemvShape& shape, int row) {
  const int index = row / 16 * 8 + row % 8;
  if (index >= model.ffn) return {};
  return row_of(row % 16 < 8 ? layer.gate : layer.up, index, shape.k);
}

/// One 16 x 16 fragment: lane (g, q) holds columns 4q .. 4q + 3 of rows g and g + 8, as registers a0 (row g, first pair),
/// a1 (row g + 8, first pair), a2, a3 (second pairs). See docs/kernel.md for why the columns may be permuted so.
void pack_fragment(const std::span<const Half> (&rows)[16], int first_column, int k, Half* out) {
  for (int g = 0; g < 8; ++g) {
    for (int q = 0; q < 4; ++q) {
      const int column = first_column + 4 * q;
      Half* lane = out + (g * 4 + q) * 8;
      for (int half = 0; half < 2; ++half) {
        const std::span<const Half>& row = rows[g + 8 * half];
        for (int pair = 0; pair < 2; ++pair) {
          Half* to = lane + 4 * pair + 2 * half;
          const int at = column + 2 * pair;
          if (!row.empty() && at + 1 < k) {
            std::memcpy(to, row.data() + at, 4);
          } else {
            to[0] = !row.empty() && at < k ? row[at] : Half{0};
            to[1] = 0;
          }
        }
      }
    }
  }
}

/// One tile: chunk, warp, step, 16-row block.
template <class RowAt>
void pack_tile(const GemvShape& shape, int warps, int tile, const RowAt& row_at, Half* out) {
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const int steps = shape.steps_in_chunk(chunk);
    for (int block = 0; block < shape.tile_rows / 16; ++block) {
      std::span<const Half> rows[16];
      for (int r = 0; r < 16; ++r) rows[r] = row_at(tile * shape.tile_rows + block * 16 + r);
      for (int warp = 0; warp < warps; ++warp) {
        for (int s = 0; s < steps; ++s) {
          const int step = warp * shape.steps + chunk * shape.chunk_steps + s;
          Half* fragment = out + ((warp * steps + s) * (shape.tile_rows / 16) + block) * 256;
          pack_fragment(rows, step * 16, shape.k, fragment);
        }
      }
    }
    out += static_cast<std::ptrdiff_t>(warps) * steps * (shape.tile_rows / 16) * 256;
  }
}

/// Runs job(i) for i in [0, count) on all cores; every job writes its own bytes, so the result has no order.
template <class Job>
void in_parallel(std::int64_t count, const Job& job) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i; (i = next.fetch_add(1)) < count;) job(i);
  };
  std::vector<std::jthread> threads;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned t = 1; t < cores; ++t) threads.emplace_back(work);
  work();
}

void pack_layer_stage(const Model& model, const GemvShape& shape, int warps, const LayerWeights& layer, int tile,
                      Half* out) {
  const auto row_at = [&](int row) {
    return shape.order == RowOrder::interleaved ? interleaved_row(model, layer, shape, row)
                                                : plain_row(model, layer, shape, row);
  };
  pack_tile(shape, warps, tile, row_at, out);
}

}  // namespace

void pack_weights(const Deployment& deployment, const Schedule& schedule, const Weights& weights,
                  std::span<std::byte> packed) {
  const Model& model = deployment.model;
  const int warps = schedule.plan.consumer_warps;
  std::int64_t layer_tiles = 0;
  for (const GemvShape& shape : schedule.gemvs)
    if (shape.kind != StageKind::head) layer_tiles += shape.tiles;
  const GemvShape& head = schedule.gemv(StageKind::head);

  in_parallel(layer_tiles * model.layers + head.tiles, [&](std::int64_t job) {
    if (job >= layer_tiles * model.layers) {
      const int tile = static_cast<int>(job - layer_tiles * model.layers);
      const auto row_at = [&](int row) {
        return row < head.rows ? row_of(weights.head(), row, head.k) : std::span<const Half>{};
      };
      pack_tile(head, warps, tile, row_at, reinterpret_cast<Half*>(packed.data() + head.offset + tile * head.tile_bytes));
      return;
    }
    const std::int64_t layer = job / layer_tiles;
    int tile = static_cast<int>(job % layer_tiles);
    for (const GemvShape& shape : schedule.gemvs) {
      if (tile < shape.tiles) {
        std::byte* out = packed.data() + layer * schedule.layer_bytes + shape.offset + tile * shape.tile_bytes;
        pack_layer_stage(model, shape, warps, weights.layers()[layer], tile, reinterpret_cast<Half*>(out));
        return;
      }
      tile -= shape.tiles;
    }
  });
}

std::vector<std::byte> pack_weights(const Deployment& deployment, const Schedule& schedule, const Weights& weights) {
  std::vector<std::byte> packed(schedule.packed_bytes);
  pack_weights(deployment, schedule, weights, packed);
  return packed;
}

std::vector<std::byte> pack_small_tensors(const Deployment& deployment, const Schedule& schedule, const Weights& weights) {
  const Model& model = deployment.model;
  const SmallTensors& small = schedule.small;
  std::vector<std::byte> out(small.bytes);
  const auto put = [&](std::int64_t offset, std::int64_t element, std::span<const Half> values) {
    if (offset >= 0 && !values.empty())
      std::memcpy(out.data() + offset + 2 * element, values.data(), values.size_bytes());
  };
  for (int l = 0; l < model.layers; ++l) {
    const LayerWeights& layer = weights.layers()[l];
    const std::int64_t qkv = std::int64_t{l} * (model.q_rows() + 2 * model.kv_rows());
    put(small.attention_norm, std::int64_t{l} * model.hidden, layer.attention_norm);
    put(small.mlp_norm, std::int64_t{l} * model.hidden, layer.mlp_norm);
    put(small.q_norm, std::int64_t{l} * model.head_dim, layer.q_norm);
    put(small.k_norm, std::int64_t{l} * model.head_dim, layer.k_norm);
    put(small.qkv_bias, qkv, layer.q_bias);
    put(small.qkv_bias, qkv + model.q_rows(), layer.k_bias);
    put(small.qkv_bias, qkv + model.q_rows() + model.kv_rows(), layer.v_bias);
    put(small.output_bias, std::int64_t{l} * model.hidden, layer.output_bias);
    put(small.gate_up_bias, std::int64_t{l} * 2 * model.ffn, layer.gate_bias);
    put(small.gate_up_bias, std::int64_t{l} * 2 * model.ffn + model.ffn, layer.up_bias);
    put(small.down_bias, std::int64_t{l} * model.hidden, layer.down_bias);
  }
  put(small.attention_norm, std::int64_t{model.layers} * model.hidden, weights.final_norm());
  return out;
}

std::string packed_layout_key(const Schedule& schedule) {
  std::string key = fmt::format("w{}", schedule.plan.consumer_warps);
  for (const GemvShape& shape : schedule.gemvs)
    key += fmt::format("/{}.{}.{}.{}", to_string(shape.kind), shape.tile_rows, shape.chunk_steps,
                       shape.order == RowOrder::interleaved ? "i" : "p");
  return key;
}

}  // namespace adamk
