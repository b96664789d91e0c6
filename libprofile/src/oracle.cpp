#include "adamk/profile/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracle_dot.h"
#include "worker_pool.h"

namespace adamk {

using Vector = std::vector<double>;

struct ReferenceDecoder::State {
  State(const Model& m, const Weights& w, std::int64_t positions, int threads, Rounding r)
      : model(m), weights(w), context(positions), rounding(r), frequencies(rope_inverse_frequencies(m)),
        dot(dot_function(w.format())), pool(threads) {
    const auto per_layer = static_cast<std::size_t>(model.kv_rows()) * 2 * static_cast<std::size_t>(context);
    kv.assign(static_cast<std::size_t>(model.layers), Vector(per_layer));
  }

  Model model;
  Weights weights;
  std::int64_t context;
  Rounding rounding;
  std::vector<double> frequencies;   // [head_dim / 2]
  DotFunction dot;
  std::vector<Vector> kv;            // per layer [kv_heads, 2, context, head_dim]
  std::int64_t length = 0;
  WorkerPool pool;

  double* kv_row(int layer, int head, int value, std::int64_t position) {
    return kv[static_cast<std::size_t>(layer)].data() + ((head * 2 + value) * context + position) * model.head_dim;
  }
  double number(Half bits) const { return to_float(weights.format(), bits); }
  /// What a kernel would hand on: `value`, or its rounding under Rounding::activations.
  double publish(double value) const {
    if (rounding == Rounding::none) return value;
    return number(from_float(weights.format(), static_cast<float>(value)));
  }

  Vector embed(int token) const;
  Vector normalised(const Vector& x, std::span<const Half> gain) const;
  Vector product(std::span<const Half> matrix, std::span<const Half> bias, const Vector& x);
  void normalise_head(double* head, std::span<const Half> gain) const;
  void rotate(double* head, std::int64_t position) const;
  Vector query_and_append(int layer, const Vector& x, std::int64_t position);
  Vector attention(int layer, const Vector& q, std::int64_t position);
  void add_attention(int layer, Vector& x, std::int64_t position);
  void add_mlp(int layer, Vector& x);
};

Vector ReferenceDecoder::State::embed(int token) const {
  Vector x(static_cast<std::size_t>(model.hidden));
  const auto row = weights.embedding().subspan(static_cast<std::size_t>(token) * x.size(), x.size());
  std::transform(row.begin(), row.end(), x.begin(), [&](Half bits) { return number(bits); });
  return x;
}

/// RMSNorm: x / sqrt(mean(x^2) + eps) x gain. A kernel receives x rounded, and multiplies by the gain before it rounds again.
Vector ReferenceDecoder::State::normalised(const Vector& x, std::span<const Half> gain) const {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + model.norm_eps);
  Vector result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = publish(publish(x[i]) * scale * number(gain[i]));
  return result;
}

Vector ReferenceDecoder::State::product(std::span<const Half> matrix, std::span<const Half> bias, const Vector& x) {
  const auto k = static_cast<std::int64_t>(x.size());
  Vector y(matrix.size() / x.size());
  const std::int64_t worthwhile = std::max<std::int64_t>(1, 32768 / k);   // rows that outweigh waking a thread
  pool.for_ranges(static_cast<std::int64_t>(y.size()), worthwhile, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto row = static_cast<std::size_t>(r);
      y[row] = dot(matrix.data() + r * k, x.data(), k) + (bias.empty() ? 0.0 : number(bias[row]));
    }
  });
  return y;
}

void ReferenceDecoder::State::normalise_head(double* head, std::span<const Half> gain) const {
  const Vector result = normalised(Vector(head, head + model.head_dim), gain);
  std::copy(result.begin(), result.end(), head);
}

/// Half-split pairing: element j turns with j + head_dim / 2.
void ReferenceDecoder::State::rotate(double* head, std::int64_t position) const {
  const int half = model.head_dim / 2;
  for (int j = 0; j < half; ++j) {
    const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(j)];
    const double a = head[j], b = head[j + half], c = std::cos(angle), s = std::sin(angle);
    head[j] = publish(a * c - b * s);
    head[j + half] = publish(a * s + b * c);
  }
}

/// The rotated queries, [q_rows]; K and V of the position enter the cache.
Vector ReferenceDecoder::State::query_and_append(int layer, const Vector& x, std::int64_t position) {
  const LayerWeights& w = weights.layers()[static_cast<std::size_t>(layer)];
  Vector q = product(w.q, w.q_bias, x), k = product(w.k, w.k_bias, x), v = product(w.v, w.v_bias, x);
  for (Vector* rows : {&q, &k, &v}) {
    for (double& value : *rows) value = publish(value);
  }
  for (int head = 0; head < model.heads; ++head) {
    double* values = q.data() + head * model.head_dim;
    if (model.qk_norm) normalise_head(values, w.q_norm);
    rotate(values, position);
  }
  for (int head = 0; head < model.kv_heads; ++head) {
    double* values = k.data() + head * model.head_dim;
    if (model.qk_norm) normalise_head(values, w.k_norm);
    rotate(values, position);
    std::copy_n(values, model.head_dim, kv_row(layer, head, 0, position));
    std::copy_n(v.data() + head * model.head_dim, model.head_dim, kv_row(layer, head, 1, position));
  }
  return q;
}

/// softmax(q k / sqrt(head_dim)) v per query head over positions [0, position], [q_rows].
Vector ReferenceDecoder::State::attention(int layer, const Vector& q, std::int64_t position) {
  const int dim = model.head_dim;
  const std::int64_t count = position + 1;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  Vector result(q.size());
  const std::int64_t worthwhile = std::max<std::int64_t>(1, 16384 / (count * dim));
  pool.for_ranges(model.heads, worthwhile, [&](std::int64_t first, std::int64_t last) {
    Vector weight(static_cast<std::size_t>(count));
    for (std::int64_t h = first; h < last; ++h) {
      const int kv_head = static_cast<int>(h) / model.group();
      const double *query = q.data() + h * dim, *keys = kv_row(layer, kv_head, 0, 0),
                   *values = kv_row(layer, kv_head, 1, 0);
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t t = 0; t < count; ++t) {
        double score = 0;
        for (int j = 0; j < dim; ++j) score += query[j] * keys[t * dim + j];
        weight[static_cast<std::size_t>(t)] = score * scale;
        largest = std::max(largest, score * scale);
      }
      for (double& value : weight) sum += value = std::exp(value - largest);
      double* out = result.data() + h * dim;
      for (std::int64_t t = 0; t < count; ++t) {
        const double share = weight[static_cast<std::size_t>(t)] / sum;
        for (int j = 0; j < dim; ++j) out[j] += share * values[t * dim + j];
      }
      for (int j = 0; j < dim; ++j) out[j] = publish(out[j]);
    }
  });
  return result;
}

void ReferenceDecoder::State::add_attention(int layer, Vector& x, std::int64_t position) {
  const LayerWeights& w = weights.layers()[static_cast<std::size_t>(layer)];
  const Vector q = query_and_append(layer, normalised(x, w.attention_norm), position);
  const Vector y = product(w.output, w.output_bias, attention(layer, q, position));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void ReferenceDecoder::State::add_mlp(int layer, Vector& x) {
  const LayerWeights& w = weights.layers()[static_cast<std::size_t>(layer)];
  const Vector input = normalised(x, w.mlp_norm);
  Vector gate = product(w.gate, w.gate_bias, input);
  const Vector up = product(w.up, w.up_bias, input);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = publish(gate[i] / (1.0 + std::exp(-gate[i])) * up[i]);
  const Vector y = product(w.down, w.down_bias, gate);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

namespace {

Result<void> check_weights(const Model& model, const Weights& weights) {
  const auto hidden = static_cast<std::size_t>(model.hidden), vocab = static_cast<std::size_t>(model.vocab);
  bool same = weights.layers().size() == static_cast<std::size_t>(model.layers) &&
              weights.embedding().size() == vocab * hidden && weights.head().size() == vocab * hidden &&
              weights.final_norm().size() == hidden;
  const std::size_t q = static_cast<std::size_t>(model.q_rows()), kv = static_cast<std::size_t>(model.kv_rows()),
                    ffn = static_cast<std::size_t>(model.ffn), dim = static_cast<std::size_t>(model.head_dim);
  for (const LayerWeights& w : weights.layers()) {
    same = same && w.q.size() == q * hidden && w.k.size() == kv * hidden && w.v.size() == kv * hidden &&
           w.output.size() == hidden * q && w.gate.size() == ffn * hidden && w.up.size() == ffn * hidden &&
           w.down.size() == hidden * ffn && w.attention_norm.size() == hidden && w.mlp_norm.size() == hidden &&
           w.q_norm.size() == (model.qk_norm ? dim : 0) && w.q_bias.size() == (model.qkv_bias ? q : 0);
  }
  if (!same) return fail(Errc::bad_input, "reference: the weights are not those of this model (shapes differ)");
  return {};
}

/// One stream of the generator per layer, KV head, and K or V.
std::uint64_t kv_stream(const Model& model, int layer, int head, int value) {
  return (static_cast<std::uint64_t>(layer) * static_cast<std::uint64_t>(model.kv_heads) +
          static_cast<std::uint64_t>(head)) * 2 + static_cast<std::uint64_t>(value);
}

}  // namespace

ReferenceDecoder::ReferenceDecoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReferenceDecoder::ReferenceDecoder(ReferenceDecoder&&) noexcept = default;
ReferenceDecoder& ReferenceDecoder::operator=(ReferenceDecoder&&) noexcept = default;
ReferenceDecoder::~ReferenceDecoder() = default;

Result<ReferenceDecoder> ReferenceDecoder::create(const Model& model, const Weights& weights, std::int64_t context,
                                                  int threads, Rounding rounding) {
  if (model.quantization) {
    return fail(Errc::unsupported, "reference: {} weights are not decoded; use a bf16 or fp16 checkpoint",
                model.quantization->method);
  }
  if (context < 1 || context > model.max_positions) {
    return fail(Errc::infeasible, "reference: context {} is outside 1 to max_positions {}", context,
                model.max_positions);
  }
  if (model.sliding_window && context > *model.sliding_window) {
    return fail(Errc::infeasible, "reference: context {} is beyond the sliding window {}; use a context within it",
                context, *model.sliding_window);
  }
  ADAMK_CHECK(check_weights(model, weights));
  return ReferenceDecoder(std::make_unique<State>(model, weights, context, threads, rounding));
}

Result<std::vector<double>> ReferenceDecoder::step(int token, std::int64_t position) {
  State& s = *state_;
  if (token < 0 || token >= s.model.vocab) {
    return fail(Errc::bad_input, "reference: token {} is outside the vocabulary of {}", token, s.model.vocab);
  }
  if (position < 0 || position >= s.context) {
    return fail(Errc::bad_input, "reference: position {} is outside the context of {}", position, s.context);
  }
  if (position > s.length) {
    return fail(Errc::bad_input, "reference: position {} comes after {} filled positions; decode or fill those between",
                position, s.length);
  }
  Vector x = s.embed(token);
  for (int layer = 0; layer < s.model.layers; ++layer) {
    s.add_attention(layer, x, position);
    s.add_mlp(layer, x);
  }
  s.length = position + 1;
  return s.product(s.weights.head(), {}, s.normalised(x, s.weights.final_norm()));
}

std::int64_t ReferenceDecoder::length() const { return state_->length; }
std::int64_t ReferenceDecoder::context() const { return state_->context; }
void ReferenceDecoder::reset() { state_->length = 0; }

Result<void> ReferenceDecoder::fill_kv(std::uint64_t seed, std::int64_t positions) {
  State& s = *state_;
  if (positions < 0 || positions > s.context) {
    return fail(Errc::bad_input, "reference: cannot fill {} positions of a context of {}", positions, s.context);
  }
  const std::vector<Half> fill = random_kv(s.model, s.weights.format(), s.context, seed, positions);
  std::size_t next = 0;
  for (Vector& layer : s.kv) {
    for (double& value : layer) value = s.number(fill[next++]);   // both are [kv_heads, 2, context, head_dim] per layer
  }
  s.length = positions;
  return {};
}

std::vector<Half> random_kv(const Model& model, WeightsFormat format, std::int64_t context, std::uint64_t seed,
                            std::int64_t positions) {
  const std::int64_t row = context * model.head_dim, filled = std::min(positions, context) * model.head_dim;
  std::vector<Half> kv(static_cast<std::size_t>(std::int64_t{model.layers} * model.kv_heads * 2 * row));
  Half* out = kv.data();
  for (int layer = 0; layer < model.layers; ++layer) {
    for (int head = 0; head < model.kv_heads; ++head) {
      for (int value = 0; value < 2; ++value, out += row) {
        const std::uint64_t stream = kv_stream(model, layer, head, value);
        for (std::int64_t i = 0; i < filled; ++i) {
          out[i] = from_float(format, random_unit(seed, stream, static_cast<std::uint64_t>(i)));
        }
      }
    }
  }
  return kv;
}

}  // namespace adamk
