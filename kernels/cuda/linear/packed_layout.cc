#include "kernels/cuda/linear/packed_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/block_fields.h"

namespace coppice::cuda {
namespace {

/// Packs a side whose rows are `rows`, nullptr: zeros.
class SidePacker {
 public:
  SidePacker(WeightFormat format, std::int64_t in, std::atomic<bool>& non_finite)
      : format_(format),
        layout_(packed_layout(format).value()),
        shape_(block_shape(format)),
        in_(in),
        non_finite_(non_finite) {}

  void pack(std::int64_t output, const std::byte* row, std::byte* side) const {
    if (layout_.e4m3()) return pack_e4m3(output, row, side);
    block_fields::Numbers numbers{};
    block_fields::Scales scales;
    std::array<std::uint8_t, packed_part> part{};
    // Formats of 4 bits without minima have numbers around 0.
    const int shift = layout_.bits == 4 && !layout_.minima ? 8 : 0;
    for (std::int64_t first = 0; first < in_; first += shape_.numbers) {
      const std::byte* block = row + first / shape_.numbers * shape_.bytes;
      block_fields::read_numbers(format_, block, numbers);
      block_fields::read_scales(format_, block, scales);
      for (std::int64_t i = 0; i < shape_.numbers; i += run) {
        const std::int64_t in_part = (first + i) % packed_part;
        for (std::int64_t k = 0; k < run; ++k) {
          part[static_cast<std::size_t>(in_part + k)] =
              static_cast<std::uint8_t>(numbers[static_cast<std::size_t>(i + k)] + shift);
        }
        if (in_part + run == packed_part) put_part(part, output, part_of(side, first + i));
      }
      for (std::int64_t i = 0; i < shape_.numbers; i += layout_.group) {
        const std::int64_t group = i / scales.group;
        put_scales(side, output, first + i, scales.scale_of(group),
                   scales.has_minima ? scales.minimum_of(group) : 0.0f);
      }
    }
  }

 private:
  /// Every block is a multiple of these numbers.
  static constexpr std::int64_t run = 32;

  std::byte* part_of(std::byte* side, std::int64_t input) const {
    return side + input / packed_part * layout_.part_bytes();
  }
  void pack_e4m3(std::int64_t output, const std::byte* row, std::byte* side) const {
    std::array<std::uint8_t, packed_part> part{};
    for (std::int64_t first = 0; first < in_; first += shape_.numbers, row += shape_.bytes) {
      std::byte* const words = part_of(side, first);
      std::memcpy(words + layout_.number_bytes() + output * 4, row, 4);
      std::memcpy(part.data(), row + 4, part.size());
      put_part(part, output, words);
      if (has_non_finite_scale(format_, {row, static_cast<std::size_t>(shape_.bytes)})) {
        non_finite_ = true;
      }
    }
  }
  /// Of 16 inputs a lane has two and the two that are 8 further.
  void put_part(const std::array<std::uint8_t, packed_part>& numbers, std::int64_t output,
                std::byte* words) const {
    for (std::size_t pair = 0; pair < 4; ++pair) {
      const auto four = [&](std::size_t step, int distance) {
        const std::uint8_t* const at = numbers.data() + 16 * step + 2 * pair;
        const std::uint32_t low = at[0], high = at[8], second = at[1], both = at[9];
        return low | high << distance | second << 16 | both << (16 + distance);
      };
      const std::int64_t lane = 4 * output + static_cast<std::int64_t>(pair);
      std::array<std::uint32_t, 4> made{};
      if (layout_.bits == 8) {
        for (std::size_t step = 0; step < 4; ++step) made[step] = four(step, 8);
        std::memcpy(words + lane * 16, made.data(), 16);
      } else {
        for (std::size_t step = 0; step < 4; step += 2) {
          made[step / 2] = four(step, 4) | four(step + 1, 4) << 8;
        }
        std::memcpy(words + lane * 8, made.data(), 8);
      }
    }
  }
  void put_scales(std::byte* side, std::int64_t output, std::int64_t input, float scale,
                  float minimum) const {
    const std::int64_t groups = packed_part / layout_.group;
    std::byte* at = part_of(side, input) + layout_.number_bytes() +
                    (output * groups + input % packed_part / layout_.group) * 2;
    const auto put = [this](std::byte* to, float value) {
      if (!std::isfinite(value)) non_finite_ = true;
      const std::uint16_t rounded = rounded_to_bf16(value);
      std::memcpy(to, &rounded, sizeof rounded);
    };
    put(at, scale);
    if (layout_.minima) put(at + layout_.scale_bytes(), minimum);
  }

  WeightFormat format_;
  PackedLayout layout_;
  BlockShape shape_;
  std::int64_t in_;
  std::atomic<bool>& non_finite_;
};

}  // namespace

std::optional<PackedLayout> packed_layout(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0:
      return PackedLayout{4, 32, false};
    case WeightFormat::q4_1:
    case WeightFormat::q4_k:
    case WeightFormat::int4:
      return PackedLayout{4, 32, true};
    case WeightFormat::q8_0:
    case WeightFormat::q5_0:
    case WeightFormat::iq4_nl:
    case WeightFormat::iq4_xs:
      return PackedLayout{8, 32, false};
    case WeightFormat::q5_1:
    case WeightFormat::q5_k:
      return PackedLayout{8, 32, true};
    case WeightFormat::q6_k:
    case WeightFormat::q3_k:
      return PackedLayout{8, 16, false};
    case WeightFormat::fp8:
      return PackedLayout{8, 64, false};
    case WeightFormat::q2_k:
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
  return std::nullopt;
}

std::int64_t packed_bytes(const PackedLayout& layout, std::int64_t outputs, std::int64_t in) {
  return (outputs + packed_side - 1) / packed_side * (in / packed_part) * layout.part_bytes();
}

HostBytes packed_bytes_of(const LinearPart& part, std::int64_t in, std::atomic<bool>& non_finite) {
  return HostBytes::Read([&part, in, &non_finite](std::size_t offset, std::span<std::byte> to) {
    const SidePacker packer(part.format, in, non_finite);
    const std::int64_t row_bytes =
        in / block_shape(part.format).numbers * block_shape(part.format).bytes;
    const auto side_bytes =
        static_cast<std::size_t>(packed_bytes(packed_layout(part.format).value(), packed_side, in));
    std::vector<std::byte> rows(static_cast<std::size_t>(packed_side * row_bytes));
    std::vector<std::byte> side(side_bytes);
    // What is asked for may begin and end within a side.
    for (std::size_t done = 0; done < to.size();) {
      const std::size_t number = (offset + done) / side_bytes, from = (offset + done) % side_bytes;
      const std::int64_t first = static_cast<std::int64_t>(number) * packed_side;
      const std::int64_t outputs = std::min(packed_side, part.out_features - first);
      part.data.read(static_cast<std::size_t>(first * row_bytes),
                     std::span(rows).first(static_cast<std::size_t>(outputs * row_bytes)));
      std::fill(side.begin(), side.end(), std::byte{0});
      for (std::int64_t output = 0; output < outputs; ++output) {
        packer.pack(output, rows.data() + output * row_bytes, side.data());
      }
      const std::size_t count = std::min(side_bytes - from, to.size() - done);
      std::memcpy(to.data() + done, side.data() + from, count);
      done += count;
    }
  });
}

}  // namespace coppice::cuda
