#include "reference/model_reference.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "models/checkpoint.h"
#include "models/config.h"
#include "models/rope_table.h"

namespace coppice::testing {
namespace {

double element(std::span<const std::byte> bytes, const std::string& dtype, std::size_t index) {
  if (dtype == "F32") {
    float value;
    std::memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * index, 2);
  if (dtype == "BF16") {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  const int exponent = (bits >> 10) & 31;
  const double magnitude = exponent == 0 ? std::ldexp(bits & 1023, -24)
                                         : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

std::vector<double> all_of(const Checkpoint& checkpoint, const std::string& name, bool wanted) {
  std::vector<double> values;
  const StoredTensor* tensor = wanted ? checkpoint.find(name) : nullptr;
  if (tensor == nullptr) return values;
  const std::vector<std::byte> bytes = checkpoint.file_of(name).read(*tensor);
  for (std::size_t i = 0; i < tensor->elements(); ++i) {
    values.push_back(element(bytes, tensor->dtype, i));
  }
  return values;
}

}  // namespace

ModelReference::ModelReference(const std::filesystem::path& dir) {
  const ModelConfig config = read_config(dir);
  const Checkpoint checkpoint(dir);
  heads_ = static_cast<std::size_t>(config.heads);
  kv_heads_ = static_cast<std::size_t>(config.kv_heads);
  head_dim_ = static_cast<std::size_t>(config.head_dim);
  vocab_ = config.vocab_size;
  epsilon_ = config.rms_norm_eps;
  frequencies_ = rope_frequencies(config);
  const auto linear = [&](const std::string& name, bool bias) {
    return Linear{all_of(checkpoint, name + ".weight", true),
                  all_of(checkpoint, name + ".bias", bias)};
  };
  const auto width = static_cast<std::size_t>(config.hidden_size);
  const std::vector<double> table = all_of(checkpoint, "model.embed_tokens.weight", true);
  for (std::size_t begin = 0; begin < table.size(); begin += width) {
    embedding_.emplace_back(table.begin() + static_cast<std::ptrdiff_t>(begin),
                            table.begin() + static_cast<std::ptrdiff_t>(begin + width));
  }
  for (std::int32_t i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    layers_.push_back({all_of(checkpoint, prefix + "input_layernorm.weight", true),
                       all_of(checkpoint, prefix + "post_attention_layernorm.weight", true),
                       linear(attention + "q_proj", config.qkv_bias),
                       linear(attention + "k_proj", config.qkv_bias),
                       linear(attention + "v_proj", config.qkv_bias),
                       linear(attention + "o_proj", config.output_bias),
                       linear(mlp + "gate_proj", config.mlp_bias),
                       linear(mlp + "up_proj", config.mlp_bias),
                       linear(mlp + "down_proj", config.mlp_bias)});
  }
  final_norm_ = all_of(checkpoint, "model.norm.weight", true);
  head_ = linear(config.tie_word_embeddings ? "model.embed_tokens" : "lm_head", false);
}

std::vector<double> ModelReference::Linear::apply(const std::vector<double>& x) const {
  std::vector<double> y(weight.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = bias.empty() ? 0.0 : bias[o];
    for (std::size_t i = 0; i < x.size(); ++i) sum += weight[o * x.size() + i] * x[i];
    y[o] = sum;
  }
  return y;
}

std::vector<double> ModelReference::normed(const std::vector<double>& x,
                                           const std::vector<double>& w) const {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double norm = std::sqrt(squares / static_cast<double>(x.size()) + epsilon_);
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / norm * w[i];
  return y;
}

void ModelReference::rotate(std::vector<double>& x, std::size_t position) const {
  const std::size_t half = head_dim_ / 2;
  for (std::size_t base = 0; base < x.size(); base += head_dim_) {
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies_[i];
      const double c = std::cos(double{angle}), s = std::sin(double{angle});
      const double a = x[base + i], b = x[base + i + half];
      x[base + i] = a * c - b * s;
      x[base + i + half] = b * c + a * s;
    }
  }
}

std::vector<std::vector<double>> ModelReference::logits(std::span<const TokenId> tokens) const {
  const std::size_t n = tokens.size();
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  std::vector<std::vector<double>> x;
  for (const TokenId token : tokens) x.push_back(embedding_[static_cast<std::size_t>(token)]);
  for (const Layer& layer : layers_) {
    std::vector<std::vector<double>> keys, values;
    for (std::size_t t = 0; t < n; ++t) {
      const std::vector<double> h = normed(x[t], layer.attention_norm);
      std::vector<double> q = layer.q.apply(h);
      keys.push_back(layer.k.apply(h));
      values.push_back(layer.v.apply(h));
      rotate(q, t);
      rotate(keys.back(), t);
      std::vector<double> attended(q.size(), 0.0);
      for (std::size_t head = 0; head < heads_; ++head) {
        const std::size_t kv = head / (heads_ / kv_heads_) * head_dim_;
        std::vector<double> weights(t + 1);
        double mass = 0.0, largest = -INFINITY;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0.0;
          for (std::size_t i = 0; i < head_dim_; ++i) {
            score += q[head * head_dim_ + i] * keys[s][kv + i];
          }
          weights[s] = score * scale;
          largest = std::max(largest, weights[s]);
        }
        for (double& weight : weights) mass += weight = std::exp(weight - largest);
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < head_dim_; ++i) {
            attended[head * head_dim_ + i] += weights[s] / mass * values[s][kv + i];
          }
        }
      }
      const std::vector<double> update = layer.o.apply(attended);
      for (std::size_t i = 0; i < update.size(); ++i) x[t][i] += update[i];
    }
    for (std::size_t t = 0; t < n; ++t) {
      const std::vector<double> h = normed(x[t], layer.ffn_norm);
      std::vector<double> gate = layer.gate.apply(h);
      const std::vector<double> up = layer.up.apply(h);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
      }
      const std::vector<double> update = layer.down.apply(gate);
      for (std::size_t i = 0; i < update.size(); ++i) x[t][i] += update[i];
    }
  }
  std::vector<std::vector<double>> out;
  for (const auto& state : x) out.push_back(head_.apply(normed(state, final_norm_)));
  return out;
}

}  // namespace coppice::testing
