#include "kernels/cpu/weight_blocks.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "kernels/cpu/embedding.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/workers.h"
#include "kernels/finite.h"

namespace coppice::cpu {
namespace {

std::uint16_t rounded_to_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  bits += 0x7fffu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// Rows of the stacked parts, read and converted into row-major memory.
class Rows {
 public:
  Rows(std::span<const LinearPart> parts, std::int64_t in, DType type)
      : parts_(parts), in_(in), type_(type) {
    bytes_.resize(static_cast<std::size_t>(block_width * in) * size_of(type));
  }

  /// [64][in]; rows past the last one are zeros.
  std::span<const std::byte> read(std::int64_t first) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
    std::int64_t part_begin = 0;
    for (const LinearPart& part : parts_) {
      const std::int64_t begin = std::max(first, part_begin);
      const std::int64_t end = std::min(first + block_width, part_begin + part.out_features);
      if (begin < end) {
        const auto to = static_cast<std::size_t>((begin - first) * in_) * size_of(type_);
        read(part, begin - part_begin, end - begin, bytes_.data() + to);
      }
      part_begin += part.out_features;
    }
    non_finite_ = has_non_finite(bytes_, type_) || non_finite_;
    return bytes_;
  }
  /// Whether a value was NaN or infinite as read, or is as converted.
  bool non_finite() const { return non_finite_; }

 private:
  void read(const LinearPart& part, std::int64_t row, std::int64_t rows, std::byte* to) {
    const std::int64_t count = rows * in_;
    const std::size_t size = size_of(part.dtype);
    const std::size_t offset = static_cast<std::size_t>(row * in_) * size;
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    if (part.dtype == type_) {
      part.data.read(offset, {to, bytes});
      return;
    }
    stored_.resize(bytes);
    part.data.read(offset, stored_);
    // Before it is widened, too: without F16C an infinite f16 comes out finite.
    non_finite_ = has_non_finite(stored_, part.dtype) || non_finite_;
    float* widened = reinterpret_cast<float*>(to);
    if (type_ != DType::f32) {
      widened_.resize(static_cast<std::size_t>(count));
      widened = widened_.data();
    }
    // One row of a table that is as wide as there are values.
    const TokenId table_row = 0;
    embed(stored_.data(), part.dtype, count, {&table_row, 1}, 1.0f, widened, alone_);
    if (type_ == DType::f32) return;
    auto* rounded = reinterpret_cast<std::uint16_t*>(to);
    for (std::int64_t i = 0; i < count; ++i) rounded[i] = rounded_to_bf16(widened[i]);
  }

  std::span<const LinearPart> parts_;
  std::int64_t in_;
  DType type_;
  Workers alone_{1};
  std::vector<std::byte> bytes_, stored_;
  std::vector<float> widened_;
  bool non_finite_ = false;
};

/// rows [64][count] to [count][64]; in squares, so that the lines of both stay in the caches.
template <typename T>
void transpose(const T* rows, std::int64_t stride, std::int64_t count, T* to) {
  constexpr std::int64_t square = 16;
  for (std::int64_t begin = 0; begin < count; begin += square) {
    const std::int64_t end = std::min(count, begin + square);
    for (std::int64_t row = 0; row < block_width; row += square) {
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t r = row; r < row + square; ++r) {
          to[i * block_width + r] = rows[r * stride + i];
        }
      }
    }
  }
}

void pack_block(std::span<const std::byte> rows, DType type, std::int64_t in, std::byte* block) {
  if (type == DType::f32) {
    transpose(reinterpret_cast<const float*>(rows.data()), in, in, reinterpret_cast<float*>(block));
    return;
  }
  const auto* values = reinterpret_cast<const std::uint16_t*>(rows.data());
  auto* to = reinterpret_cast<std::uint16_t*>(block);
  if (type == DType::f16) {
    transpose(values, in, in, to);
    return;
  }
  for (std::int64_t i = 0; i < in; i += 2) {
    for (std::int64_t r = 0; r < block_width; ++r) {
      std::uint16_t* pair = to + i * block_width + 2 * r;
      pair[0] = values[r * in + i];
      if (i + 1 < in) pair[1] = values[r * in + i + 1];
    }
  }
}

}  // namespace

DType common_type(std::span<const LinearPart> parts) {
  const bool same = std::all_of(parts.begin(), parts.end(), [&](const LinearPart& part) {
    return part.dtype == parts.front().dtype;
  });
  return same && !parts.empty() ? parts.front().dtype : DType::f32;
}

WeightBlocks pack_blocks(std::span<const LinearPart> parts, std::int64_t in, DType type,
                         Workers& workers) {
  WeightBlocks packed;
  packed.type = type;
  packed.in = in;
  for (const LinearPart& part : parts) packed.out += part.out_features;
  packed.data =
      allocate(static_cast<std::size_t>(packed.count() * packed.block_bytes()), "packed weights");
  const std::int64_t count = packed.count();
  const std::int64_t shares = std::min<std::int64_t>(count, workers.threads());
  std::mutex mutex;
  std::exception_ptr failed;
  workers.run(shares, static_cast<int>(shares), [&](std::int64_t item, int) {
    try {
      Rows rows(parts, in, type);
      const Share share = share_of(count, item, shares);
      for (std::int64_t block = share.begin; block < share.end; ++block) {
        const auto values = rows.read(block * block_width);
        pack_block(values, type, in, packed.data.as<std::byte>() + block * packed.block_bytes());
      }
      const std::lock_guard lock(mutex);
      packed.non_finite = packed.non_finite || rows.non_finite();
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
  return packed;
}

}  // namespace coppice::cpu
