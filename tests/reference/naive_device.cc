#include "reference/naive_device.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace coppice::testing {
namespace {

class NaiveLinear final : public LinearWeights {
 public:
  NaiveLinear(std::span<const LinearPart> parts, std::int64_t in_features,
              std::span<const float> bias_values)
      : in(in_features), bias(bias_values.begin(), bias_values.end()) {
    for (const LinearPart& part : parts) {
      const auto numbers = static_cast<std::uint64_t>(part.out_features * in);
      std::vector<std::byte> bytes(bytes_of(part.format, numbers));
      part.data.read(0, bytes);
      std::vector<float> values(numbers);
      dequantise(part.format, bytes, values.data());
      for (const float value : values) finite = finite && std::isfinite(value);
      weight.insert(weight.end(), values.begin(), values.end());
      out += part.out_features;
    }
    if (bias.empty()) bias.assign(static_cast<std::size_t>(out), 0.0f);
  }
  std::int64_t in_features() const override { return in; }
  std::int64_t out_features() const override { return out; }
  std::size_t bytes() const override { return weight.size() * sizeof(float); }
  bool has_non_finite() const override { return !finite; }

  bool finite = true;
  std::int64_t in = 0, out = 0;
  std::vector<float> weight, bias;
};

class NaivePass final : public Pass {
 public:
  PassShape begin(const PassInputs& inputs) override {
    rows = static_cast<std::int32_t>(inputs.tokens.size());
    tokens.assign(inputs.tokens.begin(), inputs.tokens.end());
    positions.assign(inputs.positions.begin(), inputs.positions.end());
    slots.assign(inputs.write_slots.begin(), inputs.write_slots.end());
    logit_rows.assign(inputs.logit_rows.begin(), inputs.logit_rows.end());
    seen.clear();
    for (const KvSegment& segment : inputs.segments) {
      std::int32_t position = segment.first_position;
      for (const KvSlot slot : segment.slots) {
        if (slot != no_slot) seen.push_back({slot, segment.q_begin, segment.q_end, position});
        ++position;
      }
    }
    return {rows, static_cast<std::int32_t>(logit_rows.size())};
  }
  void run(const PassVariant&, const std::function<void()>& body) override { body(); }

  std::int32_t rows = 0;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions, logit_rows;
  std::vector<KvSlot> slots;
  std::vector<VisibleKv> seen;
};

const NaivePass& naive(const Pass& pass) { return dynamic_cast<const NaivePass&>(pass); }

class NaiveDevice final : public Device {
 public:
  std::string name() const override { return "naive"; }
  DType compute_dtype() const override { return DType::f32; }
  int threads() const override { return 1; }

  DeviceBuffer allocate(std::size_t bytes, const char*) override {
    auto* memory = new char[bytes + 1]();
    return {memory, bytes, [](void* data, void*) { delete[] static_cast<char*>(data); }, nullptr};
  }
  void upload(void* device, const HostBytes& host, std::size_t bytes) override {
    host.read(0, {static_cast<std::byte*>(device), bytes});
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void synchronize() override {}

  bool embeds(WeightFormat) const override { return true; }
  std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                             std::int64_t in_features, std::span<const float> bias,
                                             std::int32_t) override {
    return std::make_unique<NaiveLinear>(parts, in_features, bias);
  }

  std::unique_ptr<Pass> make_pass(const PassLimits&) override {
    return std::make_unique<NaivePass>();
  }
  void embed(const Pass& pass, const EmbeddingTable& table, std::int64_t hidden, float scale,
             float* out) override {
    const std::uint64_t row_bytes = bytes_of(table.format, static_cast<std::uint64_t>(hidden));
    for (const TokenId token : naive(pass).tokens) {
      const auto* const rows = static_cast<const std::byte*>(table.rows);
      dequantise(table.format, {rows + static_cast<std::uint64_t>(token) * row_bytes, row_bytes},
                 out);
      for (std::int64_t i = 0; i < hidden; ++i) *out++ *= scale;
    }
  }

  void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                std::int64_t hidden, void* out) override {
    auto* result = static_cast<float*>(out);
    for (std::int32_t r = 0; r < rows; ++r, x += hidden, result += hidden) {
      double squares = 0.0;
      for (std::int64_t i = 0; i < hidden; ++i) squares += double{x[i]} * x[i];
      const double norm = std::sqrt(squares / static_cast<double>(hidden) + epsilon);
      for (std::int64_t i = 0; i < hidden; ++i) {
        result[i] = static_cast<float>(x[i] / norm * weight[i]);
      }
    }
  }

  void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                    std::int64_t hidden, float* into) override {
    std::vector<float> normed(static_cast<std::size_t>(rows * hidden));
    rms_norm(x, weight, epsilon, rows, hidden, normed.data());
    for (const float value : normed) *into++ += value;
  }

  void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
              bool accumulate) override {
    const auto& w = dynamic_cast<const NaiveLinear&>(weights);
    const auto* input = static_cast<const float*>(x);
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < w.out; ++o) {
        double sum = w.bias[static_cast<std::size_t>(o)];
        for (std::int64_t i = 0; i < w.in; ++i) {
          sum += double{w.weight[static_cast<std::size_t>(o * w.in + i)]} * input[r * w.in + i];
        }
        float& place = out[r * w.out + o];
        place = static_cast<float>(accumulate ? place + sum : sum);
      }
    }
  }
  std::int32_t padded_rows(std::int32_t rows) const override { return rows; }

  void rope_write_kv(const Pass& pass, float* qkv, const QkvOutput& to) override {
    const auto& [positions, slots] = std::tie(naive(pass).positions, naive(pass).slots);
    const KvLayout& layout = to.layout;
    const RopeTable& rope = *to.rope;
    const std::int32_t heads = to.heads;
    auto* keys = static_cast<float*>(to.keys);
    auto* values = static_cast<float*>(to.values);
    const std::int64_t d = layout.head_dim, half = rope.half_dim;
    const std::int64_t stride = (heads + 2 * layout.kv_heads) * d;
    for (std::size_t r = 0; r < positions.size(); ++r) {
      float* row = qkv + static_cast<std::int64_t>(r) * stride;
      const float* cosine = rope.cosine.as<float>() + std::int64_t{positions[r]} * rope.half_dim;
      const float* sine = rope.sine.as<float>() + std::int64_t{positions[r]} * rope.half_dim;
      for (std::int32_t head = 0; head < heads + layout.kv_heads; ++head) {
        float* x = row + head * d;
        const float* norm = head < heads ? to.norms.query : to.norms.key;
        if (norm != nullptr) rms_norm(x, norm, to.norms.epsilon, 1, d, x);
        for (std::int64_t i = 0; i < half; ++i) {
          const double a = x[i], b = x[i + half];
          x[i] = static_cast<float>(a * cosine[i] - b * sine[i]);
          x[i + half] = static_cast<float>(b * cosine[i] + a * sine[i]);
        }
      }
      for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
        const std::int64_t place = place_of(layout, to.layer, slots[r], head);
        std::memcpy(keys + place, row + (heads + head) * d, static_cast<std::size_t>(d) * 4);
        std::memcpy(values + place, row + (heads + layout.kv_heads + head) * d,
                    static_cast<std::size_t>(d) * 4);
      }
    }
  }

  void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
           void* out) override {
    auto* result = static_cast<float*>(out);
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < n; ++i) {
        const double gate = gate_up[r * 2 * n + i], up = gate_up[r * 2 * n + n + i];
        const double cubic = gate + 0.044715 * gate * gate * gate;
        const double active =
            activation == Activation::silu
                ? gate / (1.0 + std::exp(-gate))
                : gate / 2 * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * cubic));
        result[r * n + i] = static_cast<float>(active * up);
      }
    }
  }

  void tree_attention(const Pass& pass, const float* q, std::int64_t q_stride, std::int32_t heads,
                      const AttentionRule& rule, const KvLayout& layout, const void* key_pool,
                      const void* value_pool, std::int32_t layer, void* out) override {
    const auto* keys = static_cast<const float*>(key_pool);
    const auto* values = static_cast<const float*>(value_pool);
    const std::vector<VisibleKv>& seen = naive(pass).seen;
    const std::int64_t d = layout.head_dim;
    auto* result = static_cast<float*>(out);
    for (std::int32_t query = 0; query < naive(pass).rows; ++query) {
      const std::int32_t position = naive(pass).positions[static_cast<std::size_t>(query)];
      for (std::int32_t head = 0; head < heads; ++head) {
        const float* row = q + query * q_stride + head * d;
        const std::int32_t kv_head = head / (heads / layout.kv_heads);
        std::vector<double> scores;
        std::vector<std::int64_t> places;
        double largest = -INFINITY;
        for (const VisibleKv& token : seen) {
          if (query < token.q_begin || query >= token.q_end) continue;
          if (rule.window > 0 && token.position <= position - rule.window) continue;
          const std::int64_t place = place_of(layout, layer, token.slot, kv_head);
          double score = 0.0;
          for (std::int64_t i = 0; i < d; ++i) score += double{row[i]} * keys[place + i];
          score *= rule.scale;
          if (rule.soft_cap > 0) score = rule.soft_cap * std::tanh(score / rule.soft_cap);
          scores.push_back(score);
          places.push_back(place);
          largest = std::max(largest, scores.back());
        }
        if (scores.empty()) throw std::logic_error("a query that sees nothing");
        double mass = 0.0;
        std::vector<double> sum(static_cast<std::size_t>(d), 0.0);
        for (std::size_t t = 0; t < scores.size(); ++t) {
          const double weight = std::exp(scores[t] - largest);
          mass += weight;
          for (std::int64_t i = 0; i < d; ++i) {
            sum[static_cast<std::size_t>(i)] += weight * values[places[t] + i];
          }
        }
        for (std::int64_t i = 0; i < d; ++i) {
          result[(query * heads + head) * d + i] =
              static_cast<float>(sum[static_cast<std::size_t>(i)] / mass);
        }
      }
    }
  }

  void gather_logit_rows(const Pass& pass, const float* x, std::int64_t width,
                         float* out) override {
    for (const std::int32_t row : naive(pass).logit_rows) {
      std::memcpy(out, x + row * width, static_cast<std::size_t>(width) * sizeof(float));
      out += width;
    }
  }
  void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap) override {
    for (std::int64_t i = 0; i < rows * width; ++i) {
      logits[i] = static_cast<float>(cap * std::tanh(double{logits[i]} / cap));
    }
  }

 private:
  static std::int64_t place_of(const KvLayout& layout, std::int32_t layer, KvSlot slot,
                               std::int32_t head) {
    const std::int64_t page = slot / layout.page_size, offset = slot % layout.page_size;
    return (((std::int64_t{layer} * layout.pages + page) * layout.kv_heads + head) *
                layout.page_size +
            offset) *
           layout.head_dim;
  }
};

}  // namespace

std::unique_ptr<Device> make_naive_device() { return std::make_unique<NaiveDevice>(); }

}  // namespace coppice::testing
