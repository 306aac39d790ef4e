#include "reference/model_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "models/rope_table.h"
#include "models/weight_source.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

std::vector<double> all_of(const WeightSource& source, const std::string& name, bool wanted) {
  const StoredTensor* const tensor = wanted ? source.find(name) : nullptr;
  if (tensor == nullptr) return {};
  std::vector<std::byte> bytes(tensor->bytes);
  source.read(name, 0, bytes);
  std::vector<float> values(tensor->elements());
  dequantise(format_named(tensor->dtype).value(), bytes, values.data());
  return {values.begin(), values.end()};
}

}  // namespace

ModelReference::ModelReference(const std::filesystem::path& dir, std::int32_t positions,
                               std::optional<WeightFormat> rounding)
    : config_(read_config(dir)) {
  const std::unique_ptr<WeightSource> source = open_weights(dir, config_, rounding);
  for (const RopeSpec& rope : config_.ropes) {
    frequencies_.push_back(rope_frequencies(rope, std::min(positions, config_.context_length)));
  }
  const auto linear = [&](const std::string& name, bool bias) {
    return Linear{all_of(*source, name + ".weight", true), all_of(*source, name + ".bias", bias)};
  };
  const auto norm = [&](const std::string& name, bool wanted = true) {
    Vector weights = all_of(*source, name + ".weight", wanted);
    for (double& weight : weights) weight += config_.one_based_norms ? 1.0 : 0.0;
    return weights;
  };
  // Rows [begin, end) of a matrix with inputs of `width`.
  const auto rows_of = [](const Linear& whole, std::size_t width, std::size_t begin,
                          std::size_t end) {
    const auto at = [&](std::size_t row) {
      return whole.weight.begin() + static_cast<std::ptrdiff_t>(row * width);
    };
    return Linear{Vector(at(begin), at(end)), {}};
  };
  const auto width = static_cast<std::size_t>(config_.hidden_size);
  const auto q_width = static_cast<std::size_t>(config_.heads * config_.head_dim);
  const auto kv_width = static_cast<std::size_t>(config_.kv_heads * config_.head_dim);
  const auto ffn = static_cast<std::size_t>(config_.intermediate_size);
  const std::string table_name = "model.embed_tokens.weight";
  const Vector table = all_of(*source, table_name, true);
  if (config_.scaled_embeddings) {
    const double scale = std::sqrt(static_cast<double>(config_.hidden_size));
    embedding_scale_ = source->find(table_name)->dtype == "BF16"
                           ? rounded_to(static_cast<float>(scale), DType::bf16)
                           : static_cast<double>(static_cast<float>(scale));
  }
  for (std::size_t begin = 0; begin < table.size(); begin += width) {
    embedding_.emplace_back(table.begin() + static_cast<std::ptrdiff_t>(begin),
                            table.begin() + static_cast<std::ptrdiff_t>(begin + width));
  }
  for (std::int32_t i = 0; i < config_.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    Layer layer;
    layer.spec = config_.layer_specs[static_cast<std::size_t>(i)];
    layer.attention_norm = norm(prefix + "input_layernorm");
    layer.query_norm = norm(attention + "q_norm", layer.spec.head_norms);
    layer.key_norm = norm(attention + "k_norm", layer.spec.head_norms);
    const bool four = layer.spec.output_norms;
    layer.attended_norm = norm(prefix + "post_attention_layernorm", four);
    layer.ffn_norm =
        norm(prefix + (four ? "pre_feedforward_layernorm" : "post_attention_layernorm"));
    layer.fed_norm = norm(prefix + "post_feedforward_layernorm", four);
    if (config_.fused_projections) {
      const Linear qkv = linear(attention + "qkv_proj", false);
      layer.q = rows_of(qkv, width, 0, q_width);
      layer.k = rows_of(qkv, width, q_width, q_width + kv_width);
      layer.v = rows_of(qkv, width, q_width + kv_width, q_width + 2 * kv_width);
      const Linear gate_up = linear(mlp + "gate_up_proj", false);
      layer.gate = rows_of(gate_up, width, 0, ffn);
      layer.up = rows_of(gate_up, width, ffn, 2 * ffn);
    } else {
      layer.q = linear(attention + "q_proj", config_.qkv_bias);
      layer.k = linear(attention + "k_proj", config_.qkv_bias);
      layer.v = linear(attention + "v_proj", config_.qkv_bias);
      layer.gate = linear(mlp + "gate_proj", config_.mlp_bias);
      layer.up = linear(mlp + "up_proj", config_.mlp_bias);
    }
    layer.o = linear(attention + "o_proj", config_.output_bias);
    layer.down = linear(mlp + "down_proj", config_.mlp_bias);
    layers_.push_back(std::move(layer));
  }
  final_norm_ = norm("model.norm");
  head_ = linear(config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head", false);
}

ModelReference::Vector ModelReference::Linear::apply(const Vector& x) const {
  Vector y(weight.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = bias.empty() ? 0.0 : bias[o];
    for (std::size_t i = 0; i < x.size(); ++i) sum += weight[o * x.size() + i] * x[i];
    y[o] = sum;
  }
  return y;
}

ModelReference::Vector ModelReference::normed(const Vector& x, const Vector& w) const {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double norm =
      std::sqrt(squares / static_cast<double>(x.size()) + double{config_.rms_norm_eps});
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / norm * w[i];
  return y;
}

ModelReference::Vector ModelReference::heads_normed(const Vector& x, const Vector& w) const {
  if (w.empty()) return x;
  Vector y;
  for (auto head = x.begin(); head != x.end(); head += config_.head_dim) {
    const Vector one = normed(Vector(head, head + config_.head_dim), w);
    y.insert(y.end(), one.begin(), one.end());
  }
  return y;
}

void ModelReference::rotate(Vector& x, std::int32_t rope, std::size_t position) const {
  if (rope == LayerSpec::no_rope) return;
  const std::vector<float>& frequencies = frequencies_[static_cast<std::size_t>(rope)];
  const double factor = config_.ropes[static_cast<std::size_t>(rope)].attention_factor;
  const std::size_t half = frequencies.size();
  for (std::size_t base = 0; base < x.size(); base += static_cast<std::size_t>(config_.head_dim)) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * double{frequencies[i]};
      const double c = factor * std::cos(angle), s = factor * std::sin(angle);
      const double a = x[base + i], b = x[base + i + half];
      x[base + i] = a * c - b * s;
      x[base + i + half] = b * c + a * s;
    }
  }
}

ModelReference::Vector ModelReference::attend(const Layer& layer, const Vector& q,
                                              const std::vector<Vector>& keys,
                                              const std::vector<Vector>& values) const {
  const AttentionRule& rule = layer.spec.attention;
  const auto dim = static_cast<std::size_t>(config_.head_dim);
  const auto group = static_cast<std::size_t>(config_.heads / config_.kv_heads);
  const std::size_t seen = keys.size(), window = static_cast<std::size_t>(rule.window);
  const std::size_t first = window > 0 && seen > window ? seen - window : 0;
  Vector attended(q.size(), 0.0);
  for (std::size_t head = 0; head < static_cast<std::size_t>(config_.heads); ++head) {
    const std::size_t kv = head / group * dim;
    Vector weights(seen, 0.0);
    double mass = 0.0;
    for (std::size_t s = first; s < seen; ++s) {
      double score = 0.0;
      for (std::size_t i = 0; i < dim; ++i) score += q[head * dim + i] * keys[s][kv + i];
      score *= rule.scale;
      if (rule.soft_cap > 0.0f) score = rule.soft_cap * std::tanh(score / rule.soft_cap);
      mass += weights[s] = std::exp(score);  // scores of tests are small
    }
    for (std::size_t s = first; s < seen; ++s) {
      for (std::size_t i = 0; i < dim; ++i) {
        attended[head * dim + i] += weights[s] / mass * values[s][kv + i];
      }
    }
  }
  return attended;
}

std::vector<std::vector<double>> ModelReference::logits(std::span<const TokenId> tokens) const {
  const auto add = [&](Vector& x, const Vector& update, const Vector& norm) {
    const Vector added = norm.empty() ? update : normed(update, norm);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += added[i];
  };
  std::vector<Vector> x;
  for (const TokenId token : tokens) {
    x.push_back(embedding_[static_cast<std::size_t>(token)]);
    for (double& value : x.back()) value *= embedding_scale_;
  }
  for (const Layer& layer : layers_) {
    const std::int32_t rope = layer.spec.rope;
    std::vector<Vector> keys, values;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Vector h = normed(x[t], layer.attention_norm);
      Vector q = heads_normed(layer.q.apply(h), layer.query_norm);
      keys.push_back(heads_normed(layer.k.apply(h), layer.key_norm));
      values.push_back(layer.v.apply(h));
      rotate(q, rope, t);
      rotate(keys.back(), rope, t);
      add(x[t], layer.o.apply(attend(layer, q, keys, values)), layer.attended_norm);
    }
    for (Vector& row : x) {
      const Vector h = normed(row, layer.ffn_norm);
      Vector gate = layer.gate.apply(h);
      const Vector up = layer.up.apply(h);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double g = gate[i];
        const double activated = layer.spec.activation == Activation::silu
                                     ? g / (1.0 + std::exp(-g))
                                     : 0.5 * g *
                                           (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) *
                                                            (g + 0.044715 * g * g * g)));
        gate[i] = activated * up[i];
      }
      add(row, layer.down.apply(gate), layer.fed_norm);
    }
  }
  std::vector<Vector> out;
  for (const Vector& state : x) {
    out.push_back(head_.apply(normed(state, final_norm_)));
    const double cap = config_.final_soft_cap;
    for (double& logit : out.back()) logit = cap > 0.0 ? cap * std::tanh(logit / cap) : logit;
  }
  return out;
}

}  // namespace coppice::testing
