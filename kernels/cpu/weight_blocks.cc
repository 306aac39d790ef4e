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
    const auto offset = bytes_of(part.format, static_cast<std::uint64_t>(row * in_));
    const auto bytes = bytes_of(part.format, static_cast<std::uint64_t>(count));
    const std::optional<DType> plain = dtype_of(part.format);
    if (plain == type_) {
      part.data.read(offset, {to, bytes});
      return;
    }
    stored_.resize(bytes);
    part.data.read(offset, stored_);
    // Before it is widened, too: without F16C an infinite f16 comes out finite.
    non_finite_ = (plain && has_non_finite(stored_, *plain)) || non_finite_;
    float* widened = reinterpret_cast<float*>(to);
    if (type_ != DType::f32) {
      widened_.resize(static_cast<std::size_t>(count));
      widened = widened_.data();
    }
    if (plain) {
      // One row of a table that is as wide as there are values.
      const TokenId table_row = 0;
      embed(stored_.data(), part.format, count, {&table_row, 1}, 1.0f, widened, alone_);
    } else {
      dequantise(part.format, stored_, widened);
    }
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

/// Packs blocks; whether one of the weights is not finite.
bool pack_plain(std::span<const LinearPart> parts, DType type, Share blocks, WeightBlocks& packed) {
  Rows rows(parts, packed.in, type);
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    pack_block(rows.read(block * block_width), type, packed.in,
               packed.data.as<std::byte>() + block * packed.block_bytes());
  }
  return rows.non_finite();
}

bool pack_strips(std::span<const LinearPart> parts, Share blocks, WeightBlocks& packed) {
  const WeightFormat format = packed.format;
  const auto row_bytes =
      static_cast<std::int64_t>(bytes_of(format, static_cast<std::uint64_t>(packed.in)));
  const std::int64_t bytes = strip_bytes(format, packed.in);
  std::vector<std::byte> stored(static_cast<std::size_t>(block_width * row_bytes));
  bool non_finite = false;
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    const std::int64_t first = block * block_width;
    std::int64_t part_begin = 0, filled = 0;
    for (const LinearPart& part : parts) {
      const std::int64_t begin = std::max(first, part_begin);
      const std::int64_t end = std::min(first + block_width, part_begin + part.out_features);
      if (begin < end) {
        part.data.read(
            static_cast<std::size_t>((begin - part_begin) * row_bytes),
            std::span(stored).subspan(static_cast<std::size_t>((begin - first) * row_bytes),
                                      static_cast<std::size_t>((end - begin) * row_bytes)));
        filled = end - first;
      }
      part_begin += part.out_features;
    }
    for (std::int64_t strip = 0; strip < block_width / strip_width; ++strip) {
      const std::byte* rows[strip_width];
      for (std::int64_t o = 0; o < strip_width; ++o) {
        const std::int64_t row = strip * strip_width + o;
        rows[o] = row < filled ? stored.data() + row * row_bytes : nullptr;
      }
      pack_strip(format, rows, packed.in,
                 packed.data.as<std::byte>() + block * packed.block_bytes() + strip * bytes);
    }
    non_finite = non_finite ||
                 has_non_finite_scale(
                     format, std::span(stored).first(static_cast<std::size_t>(filled * row_bytes)));
  }
  return non_finite;
}

}  // namespace

WeightFormat common_format(std::span<const LinearPart> parts) {
  const bool same = std::all_of(parts.begin(), parts.end(), [&](const LinearPart& part) {
    return part.format == parts.front().format;
  });
  return same && !parts.empty() ? parts.front().format : WeightFormat::f32;
}

WeightBlocks pack_blocks(std::span<const LinearPart> parts, std::int64_t in, WeightFormat format,
                         Workers& workers) {
  WeightBlocks packed;
  packed.format = format;
  packed.in = in;
  for (const LinearPart& part : parts) packed.out += part.out_features;
  packed.data =
      allocate(static_cast<std::size_t>(packed.count() * packed.block_bytes()), "packed weights");
  const std::int64_t count = packed.count();
  const std::int64_t shares = std::min<std::int64_t>(count, workers.threads());
  const std::optional<DType> plain = dtype_of(format);
  std::mutex mutex;
  std::exception_ptr failed;
  workers.run(shares, static_cast<int>(shares), [&](std::int64_t item, int) {
    try {
      const Share share = share_of(count, item, shares);
      const bool non_finite =
          plain ? pack_plain(parts, *plain, share, packed) : pack_strips(parts, share, packed);
      const std::lock_guard lock(mutex);
      packed.non_finite = packed.non_finite || non_finite;
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
  return packed;
}

void unpack_row(const WeightBlocks& weights, std::int64_t row, float* out) {
  const std::int64_t in_block = row % block_width;
  if (weights.format == WeightFormat::f32) {
    const float* from =
        weights.data.as<const float>() + row / block_width * block_width * weights.in + in_block;
    for (std::int64_t i = 0; i < weights.in; ++i) out[i] = from[i * block_width];
    return;
  }
  unpack_row(weights.format,
             weights.data.as<const std::byte>() + row / block_width * weights.block_bytes() +
                 in_block / strip_width * strip_bytes(weights.format, weights.in),
             weights.in, in_block % strip_width, out);
}

}  // namespace coppice::cpu
