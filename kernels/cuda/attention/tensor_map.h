// Descriptions of tensors for the copy engine (TMA) of GPUs of compute capability 9.0 and later.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

namespace coppice::cuda {

/// A bf16 tensor in device memory, its innermost dimension contiguous, copied by boxes whose
/// innermost extent is 64 elements; in shared memory each 128 bytes' 16-byte vectors are permuted,
/// vector c of 128 bytes r lying at place c ^ (r % 8). Elements outside are zeros.
///   sizes    elements by dimension, innermost first; 2 to 5 of them
///   strides  bytes from one index to the next of dimensions 1, 2, ...; multiples of 16
///   box      elements that a copy takes
/// Throws Error(failure) naming `what`.
CUtensorMap make_tensor_map(const void* base, std::span<const std::uint64_t> sizes,
                            std::span<const std::uint64_t> strides,
                            std::span<const std::uint32_t> box, const char* what);

/// The same of words of 8 bytes, which lie in shared memory as they come, the innermost dimension's
/// box having an even number of at most 256.
CUtensorMap make_word_map(const void* base, std::span<const std::uint64_t> sizes,
                          std::span<const std::uint64_t> strides,
                          std::span<const std::uint32_t> box, const char* what);

}  // namespace coppice::cuda
