#include "models/gguf/ggml_types.h"

#include <algorithm>
#include <iterator>

namespace coppice {
namespace {

using F = WeightFormat;
constexpr GgmlType known_types[] = {
    {0, "F32", 1, 4, F::f32},
    {1, "F16", 1, 2, F::f16},
    {2, "Q4_0", 32, 18, F::q4_0},
    {3, "Q4_1", 32, 20, F::q4_1},
    {6, "Q5_0", 32, 22, F::q5_0},
    {7, "Q5_1", 32, 24, F::q5_1},
    {8, "Q8_0", 32, 34, F::q8_0},
    {9, "Q8_1", 32, 40, {}},
    {10, "Q2_K", 256, 84, F::q2_k},
    {11, "Q3_K", 256, 110, F::q3_k},
    {12, "Q4_K", 256, 144, F::q4_k},
    {13, "Q5_K", 256, 176, F::q5_k},
    {14, "Q6_K", 256, 210, F::q6_k},
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, F::iq4_nl},
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, F::iq4_xs},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    {30, "BF16", 1, 2, F::bf16},
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
    {40, "NVFP4", 64, 36, {}},
    {41, "Q1_0", 128, 18, {}},
};

}  // namespace

const GgmlType* ggml_type(std::uint32_t number) {
  const auto* const found =
      std::find_if(std::begin(known_types), std::end(known_types),
                   [&](const GgmlType& type) { return type.number == number; });
  return found == std::end(known_types) ? nullptr : found;
}

const GgmlType& ggml_type(WeightFormat format) {
  return *std::find_if(std::begin(known_types), std::end(known_types),
                       [&](const GgmlType& type) { return type.format == format; });
}

}  // namespace coppice
