// Weights that are rounded to a quantised format as they are read.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "models/weight_source.h"

namespace coppice {

/// Matrices in 16 or 32 bits, or in FP8, are read in `format`, one that quantise() makes; the rest
/// is read as stored. As llama.cpp does, where rows are no whole blocks of 256, matrices take q5_0
/// in place of q4_k and q8_0 in place of q6_k; where they are not even of 32, they stay. With q4_k,
/// output and embedding tables are of q6_k.
std::unique_ptr<WeightSource> requantised(std::unique_ptr<WeightSource> source,
                                          WeightFormat format);

/// The same with a format for every matrix by its name. Others are read as stored.
std::unique_ptr<WeightSource> requantised(std::unique_ptr<WeightSource> source,
                                          const std::map<std::string, WeightFormat>& formats);

}  // namespace coppice
