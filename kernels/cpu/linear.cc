#include "kernels/linear.h"

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
#include "kernels/cpu/linear_stream.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/workers.h"
#include "kernels/embedding.h"

namespace coppice::cpu {
namespace {

using Tag = dnnl::memory::format_tag;

constexpr std::array<std::int32_t, 24> small_buckets = {
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128};
constexpr std::int32_t bucket_step = 32;

/// Weights that are worth a thread of their own.
constexpr std::int64_t stream_grain = 1 << 15;
/// Parts of a streamed product per thread, so that a thread that comes late does less.
constexpr std::int64_t stream_parts = 4;
/// Row slices of a oneDNN product are multiples of this.
constexpr std::int32_t slice_rows = 16;

std::size_t bucket_of(std::int32_t rows) {
  if (rows <= small_buckets.back()) {
    return static_cast<std::size_t>(
        std::lower_bound(small_buckets.begin(), small_buckets.end(), rows) - small_buckets.begin());
  }
  return small_buckets.size() - 1 +
         static_cast<std::size_t>((rows - small_buckets.back() + bucket_step - 1) / bucket_step);
}

std::int32_t rows_of_bucket(std::size_t bucket) {
  if (bucket < small_buckets.size()) return small_buckets[bucket];
  return small_buckets.back() +
         static_cast<std::int32_t>(bucket + 1 - small_buckets.size()) * bucket_step;
}

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
struct Product {
  /// What a worker runs it with; pointed at the operands before every call.
  struct Operands {
    dnnl::memory x, bias, y, scratch;
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
  std::int32_t stream_rows = 0;  ///< up to this many rows are streamed, more run in oneDNN
  std::map<std::pair<std::int32_t, bool>, Product> products;  ///< by rows, accumulate
};

class PackedWeights final : public LinearWeights {
 public:
  std::int64_t in_features() const override { return shape->in; }
  std::int64_t out_features() const override { return shape->out; }
  std::size_t bytes() const override { return packed.bytes(); }
  bool has_non_finite() const override { return non_finite; }

  const void* owner = nullptr;
  Shape* shape = nullptr;
  std::int32_t max_rows = 0;
  DeviceBuffer packed;
  dnnl::memory weights;  ///< view of packed
  std::vector<float> bias;
  bool non_finite = false;
};

// Without an early exit, so that it vectorises.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t exponent = 0x7f800000u;
  std::uint32_t found = 0;
  for (const float value : values) {
    found |=
        static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & exponent) == exponent);
  }
  return found == 0;
}

// False if one of the values is NaN or infinite.
bool to_f32(const LinearPart& part, std::int64_t count, float* to) {
  constexpr std::int64_t block = 1 << 18;  // values; stays in the caches between the steps
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(block, count)) *
                               size_of(part.dtype));
  Workers alone(1);
  bool finite = true;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t values = std::min(block, count - begin);
    const auto some =
        std::span(bytes).first(static_cast<std::size_t>(values) * size_of(part.dtype));
    part.data.read(static_cast<std::size_t>(begin) * size_of(part.dtype), some);
    // One row of a table that is as wide as the block is long.
    const TokenId row = 0;
    embed(some.data(), part.dtype, values, {&row, 1}, to + begin, alone);
    finite = all_finite({to + begin, static_cast<std::size_t>(values)}) && finite;
  }
  return finite;
}

}  // namespace

std::int32_t padded_row_count(std::int32_t rows) { return rows_of_bucket(bucket_of(rows)); }

struct LinearEngine::Impl {
  DType compute;
  Workers& workers;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<std::array<std::int64_t, 3>, Shape> shapes;
  DeviceBuffer scratchpads;  ///< a part per worker
  std::size_t scratchpad_bytes = 0;

  Impl(DType type, Workers& team) : compute(type), workers(team) {}

  dnnl::memory::data_type type() const {
    return compute == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  }

  dnnl::matmul::primitive_desc describe(const Shape& shape, const dnnl::memory::desc& weights,
                                        std::int32_t rows, bool accumulate) const {
    const auto f32 = dnnl::memory::data_type::f32;
    const dnnl::memory::desc x({rows, shape.in}, type(), Tag::ab);
    const dnnl::memory::desc y({rows, shape.out}, f32, Tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0f);
      attributes.set_post_ops(post);
    }
    const dnnl::memory::desc bias({1, shape.out}, f32, Tag::ab);
    // oneDNN 3 took the operation descriptors out (Debian 12 has version 2).
#if DNNL_VERSION_MAJOR >= 3
    if (!shape.bias) return {engine, x, weights, y, attributes};
    return {engine, x, weights, bias, y, attributes};
#else
    if (!shape.bias) return {dnnl::matmul::desc(x, weights, y), attributes, engine};
    return {dnnl::matmul::desc(x, weights, bias, y), attributes, engine};
#endif
  }

  Shape& shape_of(std::int64_t in, std::int64_t out, bool bias) {
    const std::array<std::int64_t, 3> key = {in, out, bias ? 1 : 0};
    if (const auto known = shapes.find(key); known != shapes.end()) return known->second;
    Shape shape;
    shape.in = in;
    shape.out = out;
    shape.bias = bias;
    const Tag blocks = compute == DType::bf16 ? Tag::BA16a64b2a : Tag::BA16a64b;
    shape.weights = dnnl::memory::desc({in, out}, type(), blocks);
    // oneDNN serves what it would pack the same way itself; anything else it would run in
    // its reference code.
    constexpr std::int32_t reference_rows = 128;
    const dnnl::memory::desc any({in, out}, type(), Tag::any);
    const OneThread scope;
    const bool prepared = prepare([&] {
      return describe(shape, any, reference_rows, false).weights_desc() == shape.weights;
    });
    shape.stream_rows =
        prepared ? most_streamed_rows(shape) : std::numeric_limits<std::int32_t>::max();
    return shapes.emplace(key, std::move(shape)).first->second;
  }

  /// Both are equally fast at 64 rows and more where a block of weights stays in a core's
  /// second-level cache while groups of rows pass over it, and streaming is ahead below
  /// (bench/kernels). oneDNN blocks longer sums, and knows matrix units.
  std::int32_t most_streamed_rows(const Shape& shape) const {
    constexpr std::int64_t cached_bytes = 512 << 10;
    const std::int64_t block_bytes =
        shape.in * stream_block * static_cast<std::int64_t>(size_of(compute));
    const bool matrix_units = compute == DType::bf16 && instruction_set() >= InstructionSet::amx;
    return matrix_units || block_bytes > cached_bytes ? 16 : 64;
  }

  Product& product_of(Shape& shape, std::int32_t rows, bool accumulate) {
    const std::pair key = {rows, accumulate};
    if (const auto known = shape.products.find(key); known != shape.products.end()) {
      return known->second;
    }
    Product product;
    const OneThread scope;
    const auto described =
        prepare([&] { return describe(shape, shape.weights, rows, accumulate); });
    product.code = prepare([&] { return dnnl::matmul(described); });
    product.implementation = described.impl_info_str();
    product.by_worker.resize(static_cast<std::size_t>(workers.threads()));
    for (Product::Operands& operands : product.by_worker) {
      operands.x = dnnl::memory(described.src_desc(), engine, DNNL_MEMORY_NONE);
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
    return shape.products.emplace(key, std::move(product)).first->second;
  }

  dnnl_status_t execute(Product& product, int worker, const PackedWeights& packed, const void* x,
                        float* y) {
    const auto index = static_cast<std::size_t>(worker);
    Product::Operands& operands = product.by_worker[index];
    std::array<dnnl_exec_arg_t, 5> arguments;
    int count = 0;
    const auto add = [&](int name, const dnnl::memory& memory) {
      arguments[static_cast<std::size_t>(count++)] = {name, memory.get()};
    };
    const auto point = [&](int name, dnnl::memory& memory, const void* at) {
      memory.set_data_handle(const_cast<void*>(at));
      add(name, memory);
    };
    point(DNNL_ARG_SRC, operands.x, x);
    point(DNNL_ARG_DST, operands.y, y);
    point(DNNL_ARG_SCRATCHPAD, operands.scratch, scratchpads.as<char>() + index * scratchpad_bytes);
    if (packed.shape->bias) point(DNNL_ARG_BIAS, operands.bias, packed.bias.data());
    add(DNNL_ARG_WEIGHTS, packed.weights);
    // The C call takes the arguments as they are; the C++ one allocates.
    return dnnl_primitive_execute(product.code.get(), stream.get(), count, arguments.data());
  }

  void run_streamed(const PackedWeights& packed, const void* x, std::int32_t rows, float* y,
                    bool accumulate) {
    const Shape& shape = *packed.shape;
    const StreamProduct product{packed.packed.data(),
                                shape.bias ? packed.bias.data() : nullptr,
                                x,
                                rows,
                                shape.in,
                                shape.out,
                                y,
                                accumulate};
    const auto stream_blocks = compute == DType::bf16 ? stream_bf16 : stream_f32;
    const std::int64_t blocks = (shape.out + stream_block - 1) / stream_block;
    const int team = workers.worth(shape.in * shape.out, stream_grain);
    const std::int64_t parts = std::min<std::int64_t>(blocks, team == 1 ? 1 : team * stream_parts);
    workers.run(parts, team, [&](std::int64_t part, int) {
      const Share share = share_of(blocks, part, parts);
      stream_blocks(product, share.begin, share.end);
    });
  }

  /// Rows in equal slices, one per thread: the last one holds the padding.
  void run_sliced(const PackedWeights& packed, const void* x, std::int32_t rows, float* y,
                  bool accumulate) {
    Shape& shape = *packed.shape;
    const std::int32_t padded = padded_row_count(rows);
    if (padded % slice_rows != 0) {
      run_slice(packed, product_of(shape, padded, accumulate), 0, x, y);
      return;
    }
    const std::int64_t units = padded / slice_rows;
    const std::int64_t parts = std::min<std::int64_t>(units, workers.threads());
    const auto rows_of = [&](Share share) {
      return static_cast<std::int32_t>(share.end - share.begin) * slice_rows;
    };
    for (std::int64_t part = 0; part < parts; ++part) {
      product_of(shape, rows_of(share_of(units, part, parts)), accumulate);
    }
    const OneThread scope;
    const std::int64_t x_bytes = shape.in * static_cast<std::int64_t>(size_of(compute));
    workers.run(parts, workers.threads(), [&](std::int64_t part, int worker) {
      const Share share = share_of(units, part, parts);
      Product& product = shape.products.find({rows_of(share), accumulate})->second;
      const std::int64_t row = share.begin * slice_rows;
      run_slice(packed, product, worker, static_cast<const char*>(x) + row * x_bytes,
                y + row * shape.out);
    });
  }

  void run_slice(const PackedWeights& packed, Product& product, int worker, const void* x,
                 float* y) {
    if (execute(product, worker, packed, x, y) != dnnl_success) failed.store(true);
  }
  std::atomic<bool> failed{false};
};

LinearEngine::LinearEngine(DType compute, Workers& workers) {
  instruction_set();  // before oneDNN is used
  impl_ = std::make_unique<Impl>(compute, workers);
}

LinearEngine::~LinearEngine() = default;

std::unique_ptr<LinearWeights> LinearEngine::pack(std::span<const LinearPart> parts,
                                                  std::int64_t in_features,
                                                  std::span<const float> bias,
                                                  std::int32_t max_rows) {
  std::int64_t out_features = 0;
  for (const LinearPart& part : parts) out_features += part.out_features;
  if (in_features < 1 || out_features < 1 || max_rows < 1) {
    throw_failure(cat("linear layer of ", out_features, " x ", in_features, " for ", max_rows,
                      " rows: all must be at least 1"));
  }
  if (!bias.empty() && std::ssize(bias) != out_features) {
    throw_failure(
        cat("linear layer of ", out_features, " outputs has ", bias.size(), " bias values"));
  }
  auto packed = std::make_unique<PackedWeights>();
  packed->owner = impl_.get();
  packed->shape = &impl_->shape_of(in_features, out_features, !bias.empty());
  packed->max_rows = max_rows;
  packed->bias.assign(bias.begin(), bias.end());
  packed->packed = allocate(packed->shape->weights.get_size(), "packed weights");
  packed->weights = dnnl::memory(packed->shape->weights, impl_->engine, packed->packed.data());

  // Parts go through f32: widening is exact, so each weight is rounded at most once.
  const DeviceBuffer plain = allocate(
      static_cast<std::size_t>(out_features * in_features) * sizeof(float), "weights to pack");
  float* to = plain.as<float>();
  for (const LinearPart& part : parts) {
    if (!to_f32(part, part.out_features * in_features, to)) packed->non_finite = true;
    to += part.out_features * in_features;
  }
  dnnl::memory from({{in_features, out_features}, dnnl::memory::data_type::f32, Tag::ba},
                    impl_->engine, plain.data());
  const OneThread scope;
  prepare([&] {
    return dnnl::reorder(from, packed->weights);
  }).execute(impl_->stream, from, packed->weights);
  impl_->stream.wait();
  return packed;
}

void LinearEngine::run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                       bool accumulate) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  Shape& shape = *packed.shape;
  if (packed.owner != impl_.get() || rows < 1 || rows > packed.max_rows) {
    throw_failure(cat("linear layer of ", shape.out, " x ", shape.in, ": ", rows,
                      " rows, packed for 1 to ", packed.max_rows,
                      packed.owner == impl_.get() ? "" : " on another device"));
  }
  if (rows <= shape.stream_rows) {
    impl_->run_streamed(packed, x, rows, out, accumulate);
    return;
  }
  impl_->run_sliced(packed, x, rows, out, accumulate);
  if (impl_->failed.exchange(false)) {
    throw_failure(cat("linear layer of ", shape.out, " x ", shape.in, " at ", rows,
                      " rows: oneDNN could not run it"));
  }
}

std::string LinearEngine::implementation(const LinearWeights& weights, std::int32_t rows) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  if (rows <= packed.shape->stream_rows) return "stream";
  return impl_->product_of(*packed.shape, padded_row_count(rows), false).implementation;
}

}  // namespace coppice::cpu
