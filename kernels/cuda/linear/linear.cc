#include "kernels/cuda/linear/linear.h"

#include <cublasLt.h>

#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/plain_linear.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/cuda/pass/rope_tensors.h"

namespace coppice::cuda {
namespace {

/// What NVIDIA recommends for Hopper; smaller GPUs want less.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
/// Of x, weights and out. Rows need not be aligned: the library sees their stride.
constexpr std::uint32_t operand_alignment = 16;

void check_blas(cublasStatus_t status, const char* operation) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_failure(cat("cublasLt: ", operation, " failed: ", cublasLtGetStatusString(status), " (",
                    cublasLtGetStatusName(status), ")"));
}

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    (void)destroy(object);
  }
};
template <typename Pointer, auto destroy>
using Owner = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<destroy>>;

using Handle = Owner<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t name, T value) {
  check_blas(cublasLtMatmulDescSetAttribute(operation.get(), name, &value, sizeof(value)),
             "description of a product");
}
template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, T value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof(value)),
             "description of a product");
}

Layout make_layout(cudaDataType type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), rows),
             "description of a matrix");
  return Layout(layout);
}

struct Shape {
  std::int64_t in = 0, out = 0;
  std::int32_t rows = 0;  ///< padded
  bool accumulate = false;
  bool bias = false;
  auto operator<=>(const Shape&) const = default;
};

/// How a shape is computed. The library's matrices are column-major, so that row-major W [out, in]
/// is its transposed [in, out], and out [rows, out] its [out, rows].
struct Product {
  Operation operation;
  Layout weights, x, out;
  bool bias_in_epilogue = false;
  /// None: the library has no code, plain_linear() runs.
  std::optional<cublasLtMatmulAlgo_t> algorithm;
};

class PackedWeights final : public LinearWeights {
 public:
  std::int64_t in_features() const override { return in; }
  std::int64_t out_features() const override { return out; }
  std::size_t bytes() const override { return values.bytes() + bias.bytes(); }
  const void* table(DType& dtype) const override {
    dtype = DType::bf16;
    return values.data();
  }
  bool has_non_finite() const override { return non_finite; }

  const void* owner = nullptr;
  std::int64_t in = 0, out = 0;
  std::int32_t max_rows = 0;
  bool non_finite = false;
  DeviceBuffer values;  ///< [out, in] bf16
  DeviceBuffer bias;    ///< [out] f32, or none
};

}  // namespace

std::int32_t padded_row_count(std::int32_t rows) {
  if (rows <= 16) return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(rows)));
  const std::int32_t step = rows <= 144    ? 16
                            : rows <= 256  ? 32
                            : rows <= 512  ? 64
                            : rows <= 1280 ? 128
                                           : 256;
  return (rows + step - 1) / step * step;
}

struct LinearEngine::Impl {
  Impl(WeightUpload& uploader, Allocate allocator, bool streams)
      : upload(uploader), allocate(std::move(allocator)) {
    cublasLtHandle_t created = nullptr;
    check_blas(cublasLtCreate(&created), "start");
    handle.reset(created);
    workspace = allocate(workspace_bytes, "matrix product workspace");
    if (streams) streaming_blocks = prepare_streamed_linear();
  }

  bool streams(const PackedWeights& packed, std::int32_t rows) const {
    return streaming_blocks > 0 && can_stream(packed.in, packed.out, padded_row_count(rows));
  }
  StreamedProduct streamed(const PackedWeights& packed, const void* x, std::int32_t rows) const {
    return {x,
            packed.values.data(),
            packed.bias.bytes() > 0 ? packed.bias.as<float>() : nullptr,
            padded_row_count(rows),
            packed.in,
            streaming_blocks};
  }

  const PackedWeights& own(const LinearWeights& weights, std::int32_t rows) const {
    const auto& packed = static_cast<const PackedWeights&>(weights);
    if (packed.owner != this || rows < 1 || rows > padded_row_count(packed.max_rows)) {
      throw_failure(cat("linear layer of ", packed.out, " x ", packed.in, ": ", rows,
                        " rows, packed for 1 to ", packed.max_rows,
                        packed.owner == this ? "" : " on another device"));
    }
    return packed;
  }

  Product& product_of(const PackedWeights& packed, std::int32_t rows, bool accumulate) {
    const bool bias = packed.bias.bytes() > 0;
    const Shape shape{packed.in, packed.out, padded_row_count(rows), accumulate, bias};
    const auto known = products.find(shape);
    if (known != products.end()) return known->second;
    Product product = describe(shape);
    if (bias) {
      set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, packed.bias.data());
      product.algorithm = choose(product);
      product.bias_in_epilogue = product.algorithm.has_value();
    }
    if (!product.algorithm) {
      set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
      product.algorithm = choose(product);
    }
    return products.emplace(shape, std::move(product)).first->second;
  }

  static Product describe(const Shape& shape) {
    Product product;
    cublasLtMatmulDesc_t operation = nullptr;
    check_blas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "description of a product");
    product.operation.reset(operation);
    set(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(product.operation, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    product.weights = make_layout(CUDA_R_16BF, shape.in, shape.out);
    product.x = make_layout(CUDA_R_16BF, shape.in, shape.rows);
    product.out = make_layout(CUDA_R_32F, shape.out, shape.rows);
    return product;
  }

  /// The library's first choice among the algorithms that add in a fixed order. Never by timing,
  /// which could choose another one in the next run.
  std::optional<cublasLtMatmulAlgo_t> choose(const Product& product) const {
    cublasLtMatmulPreference_t created = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&created), "choice of an algorithm");
    const Preference preference(created);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                      CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE});
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(preference, name, operand_alignment);
    }
    std::array<cublasLtMatmulHeuristicResult_t, 8> results = {};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle.get(), product.operation.get(), product.weights.get(), product.x.get(),
        product.out.get(), product.out.get(), preference.get(), static_cast<int>(results.size()),
        results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    check_blas(status, "choice of an algorithm");
    for (int i = 0; i < count; ++i) {
      const auto& result = results[static_cast<std::size_t>(i)];
      if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes) {
        return result.algo;
      }
    }
    return std::nullopt;
  }

  WeightUpload& upload;
  const Allocate allocate;
  Handle handle;
  DeviceBuffer workspace;
  std::int32_t streaming_blocks = 0;  ///< 0: no product is streamed
  std::map<Shape, Product> products;
};

LinearEngine::LinearEngine(WeightUpload& upload, Allocate allocate, bool streams)
    : impl_(std::make_unique<Impl>(upload, std::move(allocate), streams)) {}

LinearEngine::~LinearEngine() = default;

std::unique_ptr<LinearWeights> LinearEngine::pack(std::span<const LinearPart> parts,
                                                  std::int64_t in_features,
                                                  std::span<const float> bias,
                                                  std::int32_t max_rows) {
  std::int64_t out_features = 0;
  for (const LinearPart& part : parts) out_features += part.out_features;
  constexpr std::int64_t most_features = std::numeric_limits<std::int32_t>::max();
  if (in_features < 1 || out_features < 1 || max_rows < 1 || in_features > most_features ||
      out_features > most_features) {
    throw_failure(cat("linear layer of ", out_features, " x ", in_features, " for ", max_rows,
                      " rows: all must be at least 1 and at most ", most_features));
  }
  if (!bias.empty() && std::ssize(bias) != out_features) {
    throw_failure(
        cat("linear layer of ", out_features, " outputs has ", bias.size(), " bias values"));
  }
  auto packed = std::make_unique<PackedWeights>();
  packed->owner = impl_.get();
  packed->in = in_features;
  packed->out = out_features;
  packed->max_rows = max_rows;
  const std::int64_t count = out_features * in_features;
  packed->values =
      impl_->allocate(static_cast<std::size_t>(count) * size_of(DType::bf16), "weights");
  auto* to = packed->values.as<std::uint16_t>();
  for (const LinearPart& part : parts) {
    impl_->upload.upload_bf16(to, part.data, part.dtype, part.out_features * in_features);
    to += part.out_features * in_features;
  }
  if (!bias.empty()) {
    packed->bias = impl_->allocate(bias.size_bytes(), "biases");
    impl_->upload.upload(packed->bias.data(), bias.data(), bias.size_bytes());
  }
  packed->non_finite = impl_->upload.has_non_finite(packed->values.data(), count);
  return packed;
}

void LinearEngine::run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                       bool accumulate, cudaStream_t stream) {
  const PackedWeights& packed = impl_->own(weights, rows);
  const std::int32_t padded = padded_row_count(rows);
  if (impl_->streams(packed, rows)) {
    return streamed_linear(impl_->streamed(packed, x, rows), packed.out, out, accumulate, stream);
  }
  Product& product = impl_->product_of(packed, rows, accumulate);
  if (product.algorithm) {
    // Products are shared by layers of equal shape.
    if (product.bias_in_epilogue) {
      set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, packed.bias.data());
    }
    const float alpha = 1.0f;
    const float beta = accumulate ? 1.0f : 0.0f;
    check_blas(
        cublasLtMatmul(impl_->handle.get(), product.operation.get(), &alpha, packed.values.data(),
                       product.weights.get(), x, product.x.get(), &beta, out, product.out.get(),
                       out, product.out.get(), &*product.algorithm, impl_->workspace.data(),
                       workspace_bytes, stream),
        "matrix product");
  } else {
    plain_linear(x, packed.values.data(), padded, packed.in, packed.out, out, accumulate, stream);
  }
  if (packed.bias.bytes() > 0 && !product.bias_in_epilogue) {
    add_bias(packed.bias.as<float>(), padded, packed.out, out, stream);
  }
}

bool LinearEngine::run_qkv(const LinearWeights& weights, const void* x, std::int32_t rows,
                           const RopeTensors& qkv, cudaStream_t stream) {
  const PackedWeights& packed = impl_->own(weights, rows);
  if (!impl_->streams(packed, rows) || !can_rotate(2 * qkv.half_dim)) return false;
  streamed_qkv(impl_->streamed(packed, x, rows), qkv, stream);
  return true;
}

bool LinearEngine::run_gated(const LinearWeights& weights, const void* x, std::int32_t rows,
                             void* out, cudaStream_t stream) {
  const PackedWeights& packed = impl_->own(weights, rows);
  if (!impl_->streams(packed, rows)) return false;
  streamed_gated_linear(impl_->streamed(packed, x, rows), packed.out / 2, out, stream);
  return true;
}

std::string LinearEngine::implementation(const LinearWeights& weights, std::int32_t rows,
                                         bool accumulate) {
  const PackedWeights& packed = impl_->own(weights, rows);
  if (impl_->streams(packed, rows)) return "streamed";
  const Product& product = impl_->product_of(packed, rows, accumulate);
  if (!product.algorithm) return "plain";
  const auto attribute = [&](cublasLtMatmulAlgoConfigAttributes_t name) {
    std::int32_t value = 0;
    check_blas(cublasLtMatmulAlgoConfigGetAttribute(&*product.algorithm, name, &value,
                                                    sizeof(value), nullptr),
               "query of an algorithm");
    return value;
  };
  return cat("cublasLt ", cublasLtGetVersion(), ", algorithm ", attribute(CUBLASLT_ALGO_CONFIG_ID),
             ", tile ", attribute(CUBLASLT_ALGO_CONFIG_TILE_ID), ", split ",
             attribute(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), ", reduction ",
             attribute(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
             packed.bias.bytes() > 0 && !product.bias_in_epilogue ? ", bias added after" : "");
}

}  // namespace coppice::cuda
