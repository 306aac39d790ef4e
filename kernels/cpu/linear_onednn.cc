#include "kernels/cpu/linear_onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <dnnl.hpp>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/workers.h"

namespace coppice::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

/// Row slices of a product are multiples of this.
constexpr std::int32_t slice_rows = 16;

/// Makes oneDNN prepare and run code for one thread: it asks OpenMP, whose setting belongs to
/// the calling thread. (The helpers of Workers are set once and for all.)
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// Runs `make`, which has oneDNN prepare code. oneDNN does not look at whether memory for that was
/// given to it (2.6 takes blocks of 256 KiB and crashes without).
template <typename Make>
auto prepare(const Make& make) {
  constexpr std::size_t preparing_bytes = std::size_t{8} << 20;
  require_room(preparing_bytes, "preparing matrix products");
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw_failure(cat("oneDNN could not prepare a matrix product: ", error.what(),
                      "; free memory, or use a smaller model"));
  }
}

/// oneDNN's code for one shape and row count.
struct Code {
  /// What a worker runs it with; pointed at the operands before every call.
  struct Operands {
    dnnl::memory x, weights, bias, y, scratch;
  };
  dnnl::matmul code;
  std::vector<Operands> by_worker;
  std::string implementation;
};

/// What products of equal shape share.
struct Shape {
  std::int64_t in = 0, out = 0;
  bool bias = false;
  dnnl::memory::desc weights;
  std::int32_t stream_rows = 0;
  std::map<std::pair<std::int32_t, bool>, Code> codes;  ///< by rows, accumulate
};

}  // namespace

struct OneDnnProducts::Impl {
  Workers& workers;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<std::array<std::int64_t, 3>, Shape> shapes;
  DeviceBuffer scratchpads;  ///< a part per worker
  std::size_t scratchpad_bytes = 0;
  std::atomic<bool> failed{false};

  explicit Impl(Workers& team) : workers(team) {}

  dnnl::matmul::primitive_desc describe(const Shape& shape, const dnnl::memory::desc& weights,
                                        std::int32_t rows, bool accumulate) const {
    const dnnl::memory::desc x({rows, shape.in}, Type::bf16, Tag::ab);
    const dnnl::memory::desc y({rows, shape.out}, Type::f32, Tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0f);
      attributes.set_post_ops(post);
    }
    const dnnl::memory::desc bias({1, shape.out}, Type::f32, Tag::ab);
    // oneDNN 3 took the operation descriptors out (Debian 12 has version 2).
#if DNNL_VERSION_MAJOR >= 3
    if (!shape.bias) return {engine, x, weights, y, attributes};
    return {engine, x, weights, bias, y, attributes};
#else
    if (!shape.bias) return {dnnl::matmul::desc(x, weights, y), attributes, engine};
    return {dnnl::matmul::desc(x, weights, bias, y), attributes, engine};
#endif
  }

  Shape& shape_of(const WeightBlocks& blocks, bool bias) {
    const std::array<std::int64_t, 3> key = {blocks.in, blocks.out, bias ? 1 : 0};
    if (const auto known = shapes.find(key); known != shapes.end()) return known->second;
    Shape shape;
    shape.in = blocks.in;
    shape.out = blocks.out;
    shape.bias = bias;
    shape.weights = dnnl::memory::desc({shape.in, shape.out}, Type::bf16, Tag::BA16a64b2a);
    // oneDNN serves what it would pack the same way itself; anything else it would run in
    // its reference code.
    constexpr std::int32_t reference_rows = 128;
    const dnnl::memory::desc any({shape.in, shape.out}, Type::bf16, Tag::any);
    const OneThread scope;
    const bool prepared = prepare([&] {
      return describe(shape, any, reference_rows, false).weights_desc() == shape.weights &&
             shape.weights.get_size() == blocks.data.bytes();
    });
    shape.stream_rows = prepared ? most_streamed_rows(blocks.block_bytes())
                                 : std::numeric_limits<std::int32_t>::max();
    return shapes.emplace(key, std::move(shape)).first->second;
  }

  /// Both are equally fast at 64 rows and more where a block of weights stays in a core's
  /// second-level cache while groups of rows pass over it, and streaming is ahead below
  /// (bench/kernels). oneDNN blocks longer sums, and knows matrix units.
  static std::int32_t most_streamed_rows(std::int64_t block_bytes) {
    constexpr std::int64_t cached_bytes = 512 << 10;
    const bool matrix_units = instruction_set() >= InstructionSet::amx;
    return matrix_units || block_bytes > cached_bytes ? 16 : 64;
  }

  Code& code_of(Shape& shape, std::int32_t rows, bool accumulate) {
    const std::pair key = {rows, accumulate};
    if (const auto known = shape.codes.find(key); known != shape.codes.end()) return known->second;
    Code made;
    const OneThread scope;
    const auto described =
        prepare([&] { return describe(shape, shape.weights, rows, accumulate); });
    made.code = prepare([&] { return dnnl::matmul(described); });
    made.implementation = described.impl_info_str();
    made.by_worker.resize(static_cast<std::size_t>(workers.threads()));
    for (Code::Operands& operands : made.by_worker) {
      operands.x = dnnl::memory(described.src_desc(), engine, DNNL_MEMORY_NONE);
      operands.weights = dnnl::memory(shape.weights, engine, DNNL_MEMORY_NONE);
      operands.y = dnnl::memory(described.dst_desc(), engine, DNNL_MEMORY_NONE);
      operands.scratch = dnnl::memory(described.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
      if (shape.bias) {
        operands.bias = dnnl::memory(described.bias_desc(), engine, DNNL_MEMORY_NONE);
      }
    }
    const std::size_t bytes = (described.scratchpad_desc().get_size() + 63) / 64 * 64;
    if (bytes > scratchpad_bytes) {
      scratchpads =
          allocate(bytes * static_cast<std::size_t>(workers.threads()), "matrix product scratch");
      scratchpad_bytes = bytes;
    }
    return shape.codes.emplace(key, std::move(made)).first->second;
  }

  /// Rows [row, row + those of the code).
  void run_slice(const LinearProduct& product, Code& code, int worker, std::int64_t row) {
    const auto index = static_cast<std::size_t>(worker);
    Code::Operands& operands = code.by_worker[index];
    std::array<dnnl_exec_arg_t, 5> arguments;
    int count = 0;
    const auto point = [&](int name, dnnl::memory& memory, const void* at) {
      memory.set_data_handle(const_cast<void*>(at));
      arguments[static_cast<std::size_t>(count++)] = {name, memory.get()};
    };
    const WeightBlocks& weights = product.weights;
    point(DNNL_ARG_SRC, operands.x,
          static_cast<const std::uint16_t*>(product.x) + row * weights.in);
    point(DNNL_ARG_DST, operands.y, product.y + row * weights.out);
    point(DNNL_ARG_SCRATCHPAD, operands.scratch, scratchpads.as<char>() + index * scratchpad_bytes);
    point(DNNL_ARG_WEIGHTS, operands.weights, weights.data.data());
    if (product.bias != nullptr) point(DNNL_ARG_BIAS, operands.bias, product.bias);
    // The C call takes the arguments as they are; the C++ one allocates.
    if (dnnl_primitive_execute(code.code.get(), stream.get(), count, arguments.data()) !=
        dnnl_success) {
      failed = true;
    }
  }

  /// Rows in equal slices, one per thread: the last one holds the padding.
  void run(const LinearProduct& product) {
    Shape& shape = shape_of(product.weights, product.bias != nullptr);
    const std::int32_t padded = padded_row_count(product.rows);
    if (padded % slice_rows != 0) {
      run_slice(product, code_of(shape, padded, product.accumulate), 0, 0);
      return;
    }
    const std::int64_t units = padded / slice_rows;
    const std::int64_t parts = std::min<std::int64_t>(units, workers.threads());
    const auto rows_of = [&](Share share) {
      return static_cast<std::int32_t>(share.end - share.begin) * slice_rows;
    };
    for (std::int64_t part = 0; part < parts; ++part) {
      code_of(shape, rows_of(share_of(units, part, parts)), product.accumulate);
    }
    const OneThread scope;
    workers.run(parts, workers.threads(), [&](std::int64_t part, int worker) {
      const Share share = share_of(units, part, parts);
      Code& code = shape.codes.find({rows_of(share), product.accumulate})->second;
      run_slice(product, code, worker, share.begin * slice_rows);
    });
  }
};

OneDnnProducts::OneDnnProducts(Workers& workers) : impl_(std::make_unique<Impl>(workers)) {}
OneDnnProducts::~OneDnnProducts() = default;

std::int32_t OneDnnProducts::most_streamed_rows(const WeightBlocks& weights, bool bias) {
  return impl_->shape_of(weights, bias).stream_rows;
}

void OneDnnProducts::run(const LinearProduct& product) {
  impl_->run(product);
  if (impl_->failed.exchange(false)) {
    throw_failure(cat("linear layer of ", product.weights.out, " x ", product.weights.in, " at ",
                      product.rows, " rows: oneDNN could not run it"));
  }
}

std::string OneDnnProducts::implementation(const WeightBlocks& weights, bool bias,
                                           std::int32_t rows) {
  return impl_->code_of(impl_->shape_of(weights, bias), padded_row_count(rows), false)
      .implementation;
}

}  // namespace coppice::cpu
