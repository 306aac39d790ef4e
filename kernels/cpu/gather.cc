#include "kernels/cpu/gather.h"

#include <cstring>
#include <iterator>

#include "kernels/cpu/workers.h"

namespace coppice::cpu {

void gather_rows(const float* x, std::int64_t width, std::span<const std::int32_t> rows, float* out,
                 Workers& workers) {
  workers.run_rows(std::ssize(rows), width, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(out + r * width, x + rows[static_cast<std::size_t>(r)] * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    }
  });
}

}  // namespace coppice::cpu
