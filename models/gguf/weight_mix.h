// Which format every matrix of a GGUF file takes, by the names that llama.cpp gives to mixes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/weight_format.h"
#include "models/config.h"

namespace coppice {

enum class WeightMix { q8_0, q6_k, q4_k_m, q4_0 };
inline constexpr std::array all_weight_mixes = {WeightMix::q8_0, WeightMix::q4_k_m, WeightMix::q6_k,
                                                WeightMix::q4_0};

/// "q8_0", "q4_k_m", ...
const char* name_of(WeightMix mix);
/// The number that general.file_type gives it.
std::uint32_t file_type_of(WeightMix mix);

/// The format of the matrix that parameter_shapes() calls `name`. As llama.cpp chooses: mixes of 4
/// bits keep the table that makes logits in q6_k, and q4_k_m the value and down projections of
/// some layers, too.
WeightFormat format_in(WeightMix mix, const ModelConfig& config, std::string_view name);

}  // namespace coppice
