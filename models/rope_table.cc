#include "models/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coppice {
namespace {

/// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
float llama3_scaled(float frequency, const RopeSpec& rope) {
  const auto context = static_cast<double>(rope.original_context);
  const auto longest_kept = static_cast<float>(context / rope.high_freq_factor);
  const auto shortest_stretched = static_cast<float>(context / rope.low_freq_factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
  const auto factor = static_cast<float>(rope.factor);
  if (wavelength > shortest_stretched) return frequency / factor;
  if (wavelength < longest_kept) return frequency;
  const float smooth =
      (static_cast<float>(context) / wavelength - static_cast<float>(rope.low_freq_factor)) /
      static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/// YaRN: frequencies that turn more than beta_fast times in the original context are kept, those
/// that turn less than beta_slow times stretched, and between them a ramp over the index blends.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeSpec& rope) {
    const auto index_of = [&](double turns) {
      return rope.rotated *
             std::log(static_cast<double>(rope.original_context) /
                      (turns * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(rope.theta));
    };
    double low = index_of(rope.beta_fast), high = index_of(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low_ = std::max(low, 0.0);
    const double end = std::min(high, rope.rotated - 1.0);
    width_ = static_cast<float>(end == low_ ? 0.001 : end - low_);
  }
  /// How much of frequency i is kept.
  float kept(std::int32_t i) const {
    return 1.0f -
           std::clamp((static_cast<float>(i) - static_cast<float>(low_)) / width_, 0.0f, 1.0f);
  }

 private:
  double low_ = 0.0;
  float width_ = 0.0f;
};

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& rope, std::int32_t positions) {
  using Kind = RopeSpec::Kind;
  const std::vector<double>& stretch =
      positions > rope.original_context ? rope.long_factors : rope.short_factors;
  const auto theta = static_cast<float>(rope.theta), factor = static_cast<float>(rope.factor);
  std::vector<float> frequencies;
  for (std::int32_t i = 0; i < rope.rotated / 2; ++i) {
    const float wave =
        std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(rope.rotated));
    float frequency = 1.0f / wave;
    if (rope.kind == Kind::linear) {
      frequency /= factor;
    } else if (rope.kind == Kind::llama3) {
      frequency =
          rope.frequency_factors.empty()
              ? llama3_scaled(frequency, rope)
              : frequency / static_cast<float>(rope.frequency_factors[static_cast<std::size_t>(i)]);
    } else if (rope.kind == Kind::yarn) {
      const float kept = YarnRamp(rope).kept(i);
      frequency = 1.0f / (factor * wave) * (1.0f - kept) + frequency * kept;
    } else if (rope.kind == Kind::longrope) {
      frequency = 1.0f / (static_cast<float>(stretch[static_cast<std::size_t>(i)]) * wave);
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::size_t rope_table_bytes(const RopeSpec& rope, std::int32_t positions) {
  return static_cast<std::size_t>(positions) * static_cast<std::size_t>(rope.rotated) *
         sizeof(float);
}

RopeTable make_rope_table(const RopeSpec& rope, std::int32_t positions, Device& device) {
  constexpr std::size_t block = 4096;  // positions computed on the host at a time
  const std::vector<float> frequencies = rope_frequencies(rope, positions);
  const std::size_t half = frequencies.size(), all = static_cast<std::size_t>(positions);
  RopeTable table;
  table.positions = positions;
  table.half_dim = static_cast<std::int32_t>(half);
  table.cosine = device.allocate(rope_table_bytes(rope, positions) / 2, "rotary cosines");
  table.sine = device.allocate(rope_table_bytes(rope, positions) / 2, "rotary sines");
  std::vector<float> cosine(std::min(all, block) * half), sine(cosine.size());
  for (std::size_t begin = 0; begin < all; begin += block) {
    const std::size_t count = std::min(block, all - begin);
    for (std::size_t p = 0; p < count; ++p) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(begin + p) * double{frequencies[i]};
        cosine[p * half + i] = static_cast<float>(rope.attention_factor * std::cos(angle));
        sine[p * half + i] = static_cast<float>(rope.attention_factor * std::sin(angle));
      }
    }
    const std::size_t bytes = count * half * sizeof(float);
    device.upload(table.cosine.as<float>() + begin * half, cosine.data(), bytes);
    device.upload(table.sine.as<float>() + begin * half, sine.data(), bytes);
  }
  return table;
}

}  // namespace coppice
