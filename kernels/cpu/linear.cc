#include "kernels/linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/linear_stream.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/threads.h"
#include "kernels/embedding.h"

namespace coppice::cpu {
namespace {

using Tag = dnnl::memory::format_tag;

constexpr std::array<std::int32_t, 24> small_buckets = {1,  2,  3,  4,  5,  6,  7,  8,
                                                        10, 12, 14, 16, 20, 24, 28, 32,
                                                        40, 48, 56, 64, 80, 96, 112, 128};
constexpr std::int32_t bucket_step = 32;

/// Up to so many rows the streaming kernels are the faster ones (bench/kernels).
constexpr std::int32_t stream_rows = 16;
/// Weights that are worth a thread of their own.
constexpr std::int64_t stream_grain = 1 << 15;

std::size_t bucket_of(std::int32_t rows) {
  if (rows <= small_buckets.back()) {
    return static_cast<std::size_t>(
        std::lower_bound(small_buckets.begin(), small_buckets.end(), rows) -
        small_buckets.begin());
  }
  return small_buckets.size() - 1 +
         static_cast<std::size_t>((rows - small_buckets.back() + bucket_step - 1) / bucket_step);
}

std::int32_t rows_of_bucket(std::size_t bucket) {
  if (bucket < small_buckets.size()) return small_buckets[bucket];
  return small_buckets.back() +
         static_cast<std::int32_t>(bucket + 1 - small_buckets.size()) * bucket_step;
}

/// oneDNN reads its thread count from OpenMP's setting of the calling thread.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadScope() { omp_set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

/// One product at one row count; its memories are pointed at the operands before every call.
struct Product {
  dnnl::matmul code;
  dnnl::memory x, bias, y, scratch;
  std::string implementation;
};

/// What products of equal shape share.
struct Shape {
  std::int64_t in = 0, out = 0;
  bool bias = false;
  dnnl::memory::desc weights;
  bool streamable = false;
  /// [bucket][accumulate]
  std::vector<std::array<std::unique_ptr<Product>, 2>> products;
};

class PackedWeights final : public LinearWeights {
 public:
  std::int64_t in_features() const override { return shape->in; }
  std::int64_t out_features() const override { return shape->out; }
  std::size_t bytes() const override { return packed.bytes(); }

  const void* owner = nullptr;
  Shape* shape = nullptr;
  std::int32_t max_rows = 0;
  DeviceBuffer packed;
  dnnl::memory weights;  ///< view of packed
  std::vector<float> bias;
};

void to_f32(const LinearPart& part, std::int64_t count, float* to) {
  const TokenId row = 0;
  embed(part.data, part.dtype, count, {&row, 1}, to, 1);
}

}  // namespace

std::int32_t padded_row_count(std::int32_t rows) { return rows_of_bucket(bucket_of(rows)); }

bool has_native_bf16() {
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) &
          static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16)) ==
         static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
}

struct LinearEngine::Impl {
  DType compute;
  int threads;
  bool streams;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<std::array<std::int64_t, 3>, std::unique_ptr<Shape>> shapes;
  DeviceBuffer scratchpad;

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
    if (!shape.bias) return {dnnl::matmul::desc(x, weights, y), attributes, engine};
    const dnnl::memory::desc bias({1, shape.out}, f32, Tag::ab);
    return {dnnl::matmul::desc(x, weights, bias, y), attributes, engine};
  }

  Shape* shape_of(std::int64_t in, std::int64_t out, bool bias) {
    auto& found = shapes[{in, out, bias}];
    if (found) return found.get();
    auto shape = std::make_unique<Shape>();
    shape->in = in;
    shape->out = out;
    shape->bias = bias;
    // The format that oneDNN picks for a typical tree serves all other row counts.
    constexpr std::int32_t reference_rows = 32;
    const dnnl::memory::desc any({in, out}, type(), Tag::any);
    shape->weights = describe(*shape, any, reference_rows, false).weights_desc();
    const Tag blocks = compute == DType::bf16 ? Tag::BA16a64b2a : Tag::BA16a64b;
    shape->streamable = shape->weights == dnnl::memory::desc({in, out}, type(), blocks);
    found = std::move(shape);
    return found.get();
  }

  Product& product_of(Shape& shape, std::int32_t rows, bool accumulate) {
    const std::size_t bucket = bucket_of(rows);
    if (shape.products.size() <= bucket) shape.products.resize(bucket + 1);
    auto& found = shape.products[bucket][accumulate ? 1 : 0];
    if (found) return *found;
    const auto described = describe(shape, shape.weights, rows_of_bucket(bucket), accumulate);
    auto product = std::make_unique<Product>();
    product->code = dnnl::matmul(described);
    product->x = dnnl::memory(described.src_desc(), engine, DNNL_MEMORY_NONE);
    product->y = dnnl::memory(described.dst_desc(), engine, DNNL_MEMORY_NONE);
    if (shape.bias) product->bias = dnnl::memory(described.bias_desc(), engine, DNNL_MEMORY_NONE);
    product->scratch = dnnl::memory(described.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    product->implementation = described.impl_info_str();
    const std::size_t scratch_bytes = described.scratchpad_desc().get_size();
    if (scratch_bytes > scratchpad.bytes()) {
      scratchpad = allocate(scratch_bytes, "matrix product scratch");
    }
    found = std::move(product);
    return *found;
  }

  bool streams_rows(const Shape& shape, std::int32_t rows) const {
    return streams && shape.streamable && rows <= stream_rows;
  }
};

LinearEngine::LinearEngine(DType compute, int threads) : impl_(std::make_unique<Impl>()) {
  impl_->compute = compute;
  impl_->threads = threads;
  impl_->streams = compute == DType::f32 || can_stream_bf16();
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
    throw_failure(cat("linear layer of ", out_features, " outputs has ", bias.size(),
                      " bias values"));
  }
  const ThreadScope scope(impl_->threads);
  auto packed = std::make_unique<PackedWeights>();
  packed->owner = impl_.get();
  packed->shape = impl_->shape_of(in_features, out_features, !bias.empty());
  packed->max_rows = max_rows;
  packed->bias.assign(bias.begin(), bias.end());
  packed->packed = allocate(packed->shape->weights.get_size(), "packed weights");
  packed->weights =
      dnnl::memory(packed->shape->weights, impl_->engine, packed->packed.data());

  // Parts go through f32: widening is exact, so each weight is rounded at most once.
  const DeviceBuffer plain = allocate(
      static_cast<std::size_t>(out_features * in_features) * sizeof(float), "weights to pack");
  float* to = plain.as<float>();
  for (const LinearPart& part : parts) {
    to_f32(part, part.out_features * in_features, to);
    to += part.out_features * in_features;
  }
  dnnl::memory from({{in_features, out_features}, dnnl::memory::data_type::f32, Tag::ba},
                    impl_->engine, plain.data());
  dnnl::reorder(from, packed->weights).execute(impl_->stream, from, packed->weights);
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
  if (impl_->streams_rows(shape, rows)) {
    const StreamProduct product{packed.packed.data(),
                                shape.bias ? packed.bias.data() : nullptr,
                                x, rows, shape.in, shape.out, out, accumulate};
    const std::int64_t blocks = (shape.out + stream_block - 1) / stream_block;
    const auto stream = impl_->compute == DType::bf16 ? stream_bf16 : stream_f32;
    parallel(worth_threads(shape.in * shape.out, stream_grain, impl_->threads),
             [&](int index, int workers) {
               const Share share = share_of(blocks, index, workers);
               stream(product, share.begin, share.end);
             });
    return;
  }
  const ThreadScope scope(impl_->threads);
  Product& product = impl_->product_of(shape, rows, accumulate);
  product.x.set_data_handle(const_cast<void*>(x));
  product.y.set_data_handle(out);
  product.scratch.set_data_handle(impl_->scratchpad.data());
  std::array<dnnl_exec_arg_t, 5> arguments;
  int count = 0;
  const auto add = [&](int name, const dnnl::memory& memory) {
    arguments[static_cast<std::size_t>(count++)] = {name, memory.get()};
  };
  add(DNNL_ARG_SRC, product.x);
  add(DNNL_ARG_WEIGHTS, packed.weights);
  add(DNNL_ARG_DST, product.y);
  add(DNNL_ARG_SCRATCHPAD, product.scratch);
  if (shape.bias) {
    product.bias.set_data_handle(const_cast<float*>(packed.bias.data()));
    add(DNNL_ARG_BIAS, product.bias);
  }
  // The C call takes the arguments as they are; the C++ one allocates.
  const dnnl_status_t status = dnnl_primitive_execute(product.code.get(), impl_->stream.get(),
                                                      count, arguments.data());
  if (status != dnnl_success) {
    throw_failure(cat("linear layer of ", shape.out, " x ", shape.in, " at ", rows,
                      " rows: oneDNN answers status ", static_cast<int>(status)));
  }
  impl_->stream.wait();
}

std::string LinearEngine::implementation(const LinearWeights& weights, std::int32_t rows) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  if (impl_->streams_rows(*packed.shape, rows)) return "stream";
  const ThreadScope scope(impl_->threads);
  return impl_->product_of(*packed.shape, rows, false).implementation;
}

}  // namespace coppice::cpu
