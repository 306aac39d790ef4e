// What a GGUF file calls the tensors that parameter_shapes() names, and how it keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/config.h"

namespace coppice {

/// The stored name of the parameter `name`, e.g. blk.3.attn_q.weight of
/// model.layers.3.self_attn.q_proj.weight.
std::string gguf_tensor_name(const ModelConfig& config, std::string_view name);

/// Whether a file of that general.architecture stores the parameter's rows in the order of
/// stored_row().
bool has_permuted_rows(std::string_view architecture, std::string_view name);

/// Which stored row is row `row` of a query or key projection (or element of its bias). A head's
/// rows i and i + head_dim / 2, which are rotated together, are stored as neighbours.
std::int64_t stored_row(std::int64_t row, std::int64_t head_dim);
/// Its inverse: which row is stored as row `stored`.
std::int64_t row_stored_as(std::int64_t stored, std::int64_t head_dim);

}  // namespace coppice
