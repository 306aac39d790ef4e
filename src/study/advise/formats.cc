// Which weights of a draft are worth trying, and which of them to take.
#include <array>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "engine/cpu_type.h"
#include "study/advise/advise.h"

namespace coppice::study {
namespace {

/// Half and a quarter of the bytes of 16 bits, about: what passes of few rows cost goes by them.
constexpr std::array tried_roundings = {WeightRounding::q8_0, WeightRounding::q4_k};

}  // namespace

std::vector<DraftFormat> draft_formats(const EngineOptions& pair) {
  std::vector<DraftFormat> formats = {{.name = "as stored", .pair = pair}};
  if (!is_stored_quantised(pair.draft)) {
    for (const WeightRounding rounding : tried_roundings) {
      formats.push_back({.name = name_of(rounding), .pair = pair});
      formats.back().pair.draft_weights = rounding;
    }
  }
  std::error_code ignored;
  const bool is_own = std::filesystem::equivalent(pair.target, pair.draft, ignored);
  if (!is_own && pair.target_weights == WeightRounding::keep && !is_stored_quantised(pair.target)) {
    constexpr WeightRounding own = WeightRounding::q4_k;
    formats.push_back({.name = cat("self:", name_of(own)), .pair = pair});
    formats.back().pair.draft = pair.target;
    formats.back().pair.draft_weights = own;
  }
  return formats;
}

std::size_t best_format(const std::vector<DraftFormat>& formats) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < formats.size(); ++i) {
    const double least = formats[best].speedup() * (best == 0 ? least_speedup : 1.0);
    if (formats[i].speedup() > least) best = i;
  }
  return best;
}

}  // namespace coppice::study
