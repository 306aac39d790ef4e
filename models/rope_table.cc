#include "models/rope_table.h"

#include <cmath>
#include <numbers>

namespace coppice {
namespace {

/// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
float llama3_scaled(float frequency, const RopeScaling& scaling) {
  const auto context = static_cast<double>(scaling.original_context);
  const auto longest_kept = static_cast<float>(context / scaling.high_freq_factor);
  const auto shortest_stretched = static_cast<float>(context / scaling.low_freq_factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
  const auto factor = static_cast<float>(scaling.factor);
  if (wavelength > shortest_stretched) return frequency / factor;
  if (wavelength < longest_kept) return frequency;
  const float smooth =
      (static_cast<float>(context) / wavelength - static_cast<float>(scaling.low_freq_factor)) /
      static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& config) {
  const std::int32_t half = config.head_dim / 2;
  const auto theta = static_cast<float>(config.rope_theta);
  std::vector<float> frequencies(static_cast<std::size_t>(half));
  for (std::int32_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    float frequency = 1.0f / std::pow(theta, exponent);
    if (config.rope_scaling.kind == RopeScaling::Kind::linear) {
      frequency /= static_cast<float>(config.rope_scaling.factor);
    } else if (config.rope_scaling.kind == RopeScaling::Kind::llama3) {
      frequency = llama3_scaled(frequency, config.rope_scaling);
    }
    frequencies[static_cast<std::size_t>(i)] = frequency;
  }
  return frequencies;
}

RopeTable make_rope_table(const ModelConfig& config, std::int32_t positions, Device& device) {
  const std::vector<float> frequencies = rope_frequencies(config);
  const std::size_t half = frequencies.size();
  const std::size_t entries = static_cast<std::size_t>(positions) * half;
  std::vector<float> cosine(entries), sine(entries);
  for (std::size_t position = 0; position < static_cast<std::size_t>(positions); ++position) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * frequencies[i];
      cosine[position * half + i] = static_cast<float>(std::cos(angle));
      sine[position * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  RopeTable table;
  table.positions = positions;
  table.half_dim = static_cast<std::int32_t>(half);
  table.cosine = device.allocate(entries * sizeof(float), "rotary cosines");
  table.sine = device.allocate(entries * sizeof(float), "rotary sines");
  device.upload(table.cosine.data(), cosine.data(), entries * sizeof(float));
  device.upload(table.sine.data(), sine.data(), entries * sizeof(float));
  return table;
}

}  // namespace coppice
