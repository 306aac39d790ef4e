// Where a model's layers are, in words.
#pragma once

#include <string>

#include "coppice.h"
#include "models/model.h"

namespace coppice {

/// Says where a loaded model's layers are, or those of a rank's part of it and of the others like
/// it.
LayerPlacement placement_of(const Model& model, int ranks = 1);
/// Returns "24 of 80 layers stay on the device, the others, 95800.3 MB, are copied to it in every
/// pass", or what is so on the CPU; "" if all stay.
std::string describe(const LayerPlacement& placement);

}  // namespace coppice
