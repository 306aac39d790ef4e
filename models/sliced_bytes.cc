#include "models/sliced_bytes.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace coppice {
namespace {

std::size_t bytes(WeightFormat format, std::int64_t numbers) {
  return static_cast<std::size_t>(bytes_of(format, static_cast<std::uint64_t>(numbers)));
}

}  // namespace

HostBytes rows_of(HostBytes matrix, WeightFormat format, std::int64_t in, const Slice& rows) {
  if (rows.begin == 0) return matrix;
  const std::size_t first = bytes(format, rows.begin * in);
  return HostBytes::Read(
      [whole = std::move(matrix), first](std::size_t offset, std::span<std::byte> to) {
        whole.read(first + offset, to);
      });
}

HostBytes columns_of(HostBytes matrix, WeightFormat format, std::int64_t in, const Slice& columns) {
  if (columns.count == in) return matrix;
  const std::size_t row_bytes = bytes(format, in), first = bytes(format, columns.begin),
                    width = bytes(format, columns.count);
  return HostBytes::Read([whole = std::move(matrix), row_bytes, first, width](
                             std::size_t offset, std::span<std::byte> to) {
    // About a megabyte at a time, however much is asked for.
    const std::size_t most_rows = std::max<std::size_t>(1, (std::size_t{1} << 20) / row_bytes);
    std::vector<std::byte> some;
    while (!to.empty()) {
      const std::size_t row = offset / width, skipped = offset % width;
      const std::size_t rows = std::min(most_rows, (skipped + to.size() + width - 1) / width);
      some.resize(rows * row_bytes);
      whole.read(row * row_bytes, some);
      std::size_t from = skipped;
      for (std::size_t r = 0; r < rows && !to.empty(); ++r, from = 0) {
        const std::size_t count = std::min(width - from, to.size());
        std::memcpy(to.data(), some.data() + r * row_bytes + first + from, count);
        to = to.subspan(count);
        offset += count;
      }
    }
  });
}

}  // namespace coppice
