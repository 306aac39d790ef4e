// Element types of activations, keys and values, and of weights that are plain numbers.
#pragma once

#include <cstddef>

namespace coppice {

enum class DType { f32, f16, bf16 };

std::size_t size_of(DType dtype);
const char* name_of(DType dtype);

}  // namespace coppice
