// Parts of a stored matrix.
#pragma once

#include <cstdint>

#include "kernels/host_bytes.h"
#include "kernels/weight_format.h"
#include "models/shard.h"

namespace coppice {

/// Some rows of a matrix [out, in] of whole blocks, as a matrix of its own.
HostBytes rows_of(HostBytes matrix, WeightFormat format, std::int64_t in, const Slice& rows);

/// Some columns of it, of whole blocks, likewise. Rows are read as a whole.
HostBytes columns_of(HostBytes matrix, WeightFormat format, std::int64_t in, const Slice& columns);

}  // namespace coppice
