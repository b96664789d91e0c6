// Random weights: docs/random-weights.md states the generator and the scales.
#include <algorithm>
#include <cmath>
#include <map>

#include "adamk/dag/weights.h"
#include "parallel.h"
#include "random_bits.h"
#include "weights_slots.h"

namespace adamk {
namespace {

/// Values of one tensor lie in centre + [-amplitude, amplitude].
struct Range {
  double centre = 0, amplitude = 0;
  auto operator<=>(const Range&) const = default;
};

Range range_of(const TensorSlot& slot, int layers) {
  if (slot.shape.size() == 1) {
    const bool gain = slot.role == TensorRole::attention_norm || slot.role == TensorRole::mlp_norm ||
                      slot.role == TensorRole::final_norm || slot.role == TensorRole::q_norm ||
                      slot.role == TensorRole::k_norm;
    return {gain ? 1.0 : 0.0, 0.1};
  }
  // Uniform on [-a, a] has variance a^2 / 3; 1 / k makes a product with a unit vector unit again.
  double amplitude = std::sqrt(3.0 / static_cast<double>(slot.shape[1]));
  // Two matrices per layer add to the residual stream: together, over all layers, about one unit of variance.
  if (slot.role == TensorRole::output || slot.role == TensorRole::down) amplitude /= std::sqrt(2.0 * layers);
  return {0.0, amplitude};
}

/// The value of each 16-bit draw in `format`: a lookup is faster than rounding, and there are few distinct ranges.
std::vector<Half> value_table(Range range, WeightsFormat format) {
  std::vector<Half> table(std::size_t{1} << 16);
  for (std::size_t draw = 0; draw < table.size(); ++draw) {
    const double unit = (static_cast<double>(draw) - 32767.5) / 32768.0;   // symmetric, never quite +-1
    table[draw] = from_float(format, static_cast<float>(range.centre + range.amplitude * unit));
  }
  return table;
}

/// Values [first, last) of the tensor, four to a draw of 64 bits; `first` is a multiple of four.
void fill(Half* values, std::int64_t first, std::int64_t last, std::uint64_t key, const Half* table) {
  std::int64_t i = first;
  for (; i + 4 <= last; i += 4) {
    const std::uint64_t bits = random_bits(key, static_cast<std::uint64_t>(i) / 4);
    values[i] = table[bits & 0xffff];
    values[i + 1] = table[(bits >> 16) & 0xffff];
    values[i + 2] = table[(bits >> 32) & 0xffff];
    values[i + 3] = table[bits >> 48];
  }
  if (i == last) return;
  const std::uint64_t bits = random_bits(key, static_cast<std::uint64_t>(i) / 4);
  for (int field = 0; i < last; ++i, ++field) values[i] = table[(bits >> (16 * field)) & 0xffff];
}

struct Piece {
  Half* values;
  std::int64_t first, last;
  std::uint64_t key;
  const Half* table;
};

}  // namespace

float random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const std::uint64_t bits = random_bits(stream_key(seed, stream), index);
  return static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (std::int64_t{1} << 23)) * 0x1p-23f;
}

Result<Weights> Weights::random(const Model& model, WeightsFormat format, std::uint64_t seed) {
  if (model.quantization) {
    return fail(Errc::unsupported, "random weights: quantised models ({}) cannot be generated; remove "
                "quantization_config from the model to get bf16 or fp16 weights", model.quantization->method);
  }
  Weights weights;
  weights.format_ = format;
  weights.storage_ = std::make_shared<Storage>();
  const std::vector<TensorSlot> slots =
      tensor_slots(model, {&weights.embedding_, &weights.head_, &weights.final_norm_, &weights.layers_});

  constexpr std::int64_t piece_elements = std::int64_t{1} << 20;
  std::map<Range, std::vector<Half>> tables;
  std::vector<Piece> pieces;
  for (const TensorSlot& slot : slots) {
    const std::int64_t elements = slot.elements();
    const Range range = range_of(slot, model.layers);
    auto [table, added] = tables.try_emplace(range);
    if (added) table->second = value_table(range, format);
    // Roles are far fewer than 64, so no two tensors share a stream.
    const auto stream = static_cast<std::uint64_t>(slot.layer + 1) * 64 + static_cast<std::uint64_t>(slot.role);
    auto values = std::make_unique_for_overwrite<Half[]>(static_cast<std::size_t>(elements));
    for (std::int64_t first = 0; first < elements; first += piece_elements) {
      pieces.push_back({values.get(), first, std::min(first + piece_elements, elements), stream_key(seed, stream),
                        table->second.data()});
    }
    *slot.target = {values.get(), static_cast<std::size_t>(elements)};
    weights.storage_->converted.push_back(std::move(values));
  }
  parallel_for(pieces.size(), [&](std::size_t i) {
    const Piece& piece = pieces[i];
    fill(piece.values, piece.first, piece.last, piece.key, piece.table);
  });
  if (model.tied_head) weights.head_ = weights.embedding_;
  return weights;
}

}  // namespace adamk
