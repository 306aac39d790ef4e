#include "kernels/cuda/linear/library_products.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/plain_linear.h"
#include "kernels/cuda/linear/product_proposals.h"
#include "kernels/cuda/linear/same_bits.h"

namespace coppice::cuda {
namespace {

/// What NVIDIA recommends for Hopper; smaller GPUs want less.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
/// While codes are timed, its first half is theirs. Behind it are a result that must not go where
/// it belongs, the reference's result, and which codes differ from it.
constexpr std::size_t timing_workspace_bytes = workspace_bytes / 2;
constexpr std::size_t compared_bytes = workspace_bytes / 4 - 256;
constexpr std::size_t reference_at = timing_workspace_bytes + compared_bytes;
constexpr std::size_t differs_at = reference_at + compared_bytes;
/// Alignment of x, weights and out. Rows need not be aligned: the library sees their stride.
constexpr std::uint32_t operand_alignment = 16;

/// With fewer rows the first proposal was never more than 8% slower than the best. Loading the code
/// of the others has a price: a millisecond each, and later products of the shape took about half
/// a microsecond longer.
constexpr std::int32_t least_timed_rows = 145;
constexpr float least_timed_ms = 0.02f;
/// The best of four took 1.004 times the best of eight.
constexpr std::size_t most_candidates = 4;
constexpr int timing_rounds = 3;
constexpr int timed_runs = 2;  ///< of a round, one after the other
/// Part of the first proposal's time that another code may take. By some per cent codes differ in a
/// pass otherwise than alone: in how much power they draw, which slows a card down, and in how the
/// kernels beside them can overlap them.
constexpr float clearly_faster = 0.92f;
constexpr const char* timing_purpose = "timing of products";

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
using TimingEvent = Owner<cudaEvent_t, cudaEventDestroy>;

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

TimingEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "creation of an event");
  return TimingEvent(event);
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "query of a stream");
  return status != cudaStreamCaptureStatusNone;
}

std::int32_t config(const cublasLtMatmulAlgo_t& algorithm,
                    cublasLtMatmulAlgoConfigAttributes_t name) {
  std::int32_t value = 0;
  check_blas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof(value), nullptr),
             "query of an algorithm");
  return value;
}

/// How a shape is computed. The library's matrices are column-major, so that row-major W [out, in]
/// is its transposed [in, out], and out [rows, out] its [out, rows].
struct Product {
  Operation operation;
  Layout weights, x, out;
  bool bias_in_epilogue = false;
  bool settled = false;
  /// The reference, or after timing the fastest alone. None: the library has no code.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates;
};

Product describe(const ProductShape& shape) {
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

}  // namespace

struct LibraryProducts::Impl {
  Impl(const Allocate& allocate, ProductTiming& when, ProductProposals& known)
      : timing(when), proposals(known) {
    cublasLtHandle_t created = nullptr;
    check_blas(cublasLtCreate(&created), "start");
    handle.reset(created);
    workspace = allocate(workspace_bytes, "matrix product workspace");
  }

  Product& product_of(const ProductShape& shape, const float* bias) {
    const auto known = products.find(shape);
    if (known != products.end()) return known->second;
    Product product = describe(shape);
    std::optional<ProductProposals::Proposal> proposal = proposals.find(shape);
    if (!proposal) {
      proposal = ask(product, shape, bias);
      proposals.keep(shape, *proposal);
    }
    product.candidates = std::move(proposal->algorithms);
    product.bias_in_epilogue = proposal->bias_in_epilogue;
    set_epilogue(product, product.bias_in_epilogue ? bias : nullptr);
    return products.emplace(shape, std::move(product)).first->second;
  }

  ProductProposals::Proposal ask(const Product& product, const ProductShape& shape,
                                 const float* bias) const {
    if (shape.bias) {
      set_epilogue(product, bias);
      auto algorithms = propose(product);
      if (!algorithms.empty()) return {std::move(algorithms), true};
    }
    set_epilogue(product, nullptr);
    return {propose(product), false};
  }

  static void set_epilogue(const Product& product, const float* bias) {
    set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
        bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS);
    if (bias != nullptr) set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  /// Algorithms that add in a fixed order, the library's first choice first.
  std::vector<cublasLtMatmulHeuristicResult_t> propose(const Product& product) const {
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
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle.get(), product.operation.get(), product.weights.get(), product.x.get(),
        product.out.get(), product.out.get(), preference.get(), static_cast<int>(results.size()),
        results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    check_blas(status, "choice of an algorithm");
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const cublasLtMatmulHeuristicResult_t& result) {
      return result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes;
    });
    return results;
  }

  void multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm, bool accumulate,
                const ProductOperands& operands, float* to, std::size_t workspace_used,
                cudaStream_t stream) const {
    const float alpha = 1.0f;
    const float beta = accumulate ? 1.0f : 0.0f;
    check_blas(cublasLtMatmul(handle.get(), product.operation.get(), &alpha, operands.weights,
                              product.weights.get(), operands.x, product.x.get(), &beta,
                              operands.out, product.out.get(), to, product.out.get(), &algorithm,
                              workspace.data(), workspace_used, stream),
               "matrix product");
  }

  /// Leaves product.candidates with the one to use. `out` keeps what is to be added to; else it is
  /// overwritten.
  void settle(Product& product, const ProductShape& shape, const ProductOperands& operands,
              cudaStream_t stream) const {
    product.settled = true;
    auto& candidates = product.candidates;
    const std::size_t bytes =
        static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(shape.out) * sizeof(float);
    const auto fits = [](const cublasLtMatmulHeuristicResult_t& candidate) {
      return candidate.workspaceSize <= timing_workspace_bytes;
    };
    if (shape.rows < least_timed_rows || !fits(candidates.front()) ||
        (shape.accumulate && bytes > compared_bytes)) {
      candidates.resize(1);
      return;
    }
    std::erase_if(candidates, [&](const auto& candidate) { return !fits(candidate); });
    candidates.resize(std::min(candidates.size(), most_candidates));
    if (candidates.size() < 2) return;

    float* const to = shape.accumulate ? spare(timing_workspace_bytes) : operands.out;
    const auto run = [&](std::size_t i) {
      multiply(product, candidates[i].algo, shape.accumulate, operands, to, timing_workspace_bytes,
               stream);
    };
    if (least_times(1, {true}, run, stream)[0] < least_timed_ms) {
      candidates.resize(1);
      return;
    }
    const auto same =
        have_bits_of_reference(candidates.size(), run, to, std::min(bytes, compared_bytes), stream);
    const auto times = least_times(candidates.size(), same, run, stream);
    std::size_t best = 0;
    float limit = clearly_faster * times[0];
    for (std::size_t i = 1; i < candidates.size(); ++i) {
      if (!same[i] || times[i] > limit) continue;
      best = i;
      limit = times[i];
    }
    candidates = {candidates[best]};
  }

  float* spare(std::size_t at) const { return reinterpret_cast<float*>(workspace.as<char>() + at); }

  using Chosen = std::array<bool, most_candidates>;

  template <typename Run>
  Chosen have_bits_of_reference(std::size_t candidates, const Run& run, const float* result,
                                std::size_t bytes, cudaStream_t stream) const {
    auto* const found = reinterpret_cast<std::int32_t*>(spare(differs_at));
    std::array<std::int32_t, most_candidates> differs = {};
    check(cudaMemsetAsync(found, 0, sizeof(differs), stream), timing_purpose);
    for (std::size_t i = 0; i < candidates; ++i) {
      run(i);
      if (i == 0) {
        check(cudaMemcpyAsync(spare(reference_at), result, bytes, cudaMemcpyDeviceToDevice, stream),
              timing_purpose);
      } else {
        find_difference(result, spare(reference_at),
                        static_cast<std::int64_t>(bytes / sizeof(float)), found + i, stream);
      }
    }
    check(cudaMemcpyAsync(differs.data(), found, sizeof(differs), cudaMemcpyDeviceToHost, stream),
          timing_purpose);
    check(cudaStreamSynchronize(stream), timing_purpose);
    Chosen same;
    std::transform(differs.begin(), differs.end(), same.begin(),
                   [](std::int32_t differ) { return differ == 0; });
    return same;
  }

  /// Milliseconds. One after the other, the runs find x in the cache, as in a pass, and of large
  /// weights nothing.
  template <typename Run>
  std::array<float, most_candidates> least_times(std::size_t candidates, const Chosen& timed,
                                                 const Run& run, cudaStream_t stream) const {
    std::array<float, most_candidates> least;
    least.fill(std::numeric_limits<float>::infinity());
    std::array<TimingEvent, most_candidates> start, stop;
    for (std::size_t i = 0; i < candidates; ++i) {
      start[i] = make_event();
      stop[i] = make_event();
    }
    for (int round = 0; round < timing_rounds; ++round) {
      run(0);  // keeps the card busy while the host queues the others
      for (std::size_t i = 0; i < candidates; ++i) {
        if (!timed[i]) continue;
        check(cudaEventRecord(start[i].get(), stream), timing_purpose);
        for (int n = 0; n < timed_runs; ++n) run(i);
        check(cudaEventRecord(stop[i].get(), stream), timing_purpose);
      }
      check(cudaStreamSynchronize(stream), timing_purpose);
      for (std::size_t i = 0; i < candidates; ++i) {
        if (!timed[i]) continue;
        float milliseconds = 0.0f;
        check(cudaEventElapsedTime(&milliseconds, start[i].get(), stop[i].get()), timing_purpose);
        least[i] = std::min(least[i], milliseconds / timed_runs);
      }
    }
    return least;
  }

  ProductTiming& timing;
  ProductProposals& proposals;
  Handle handle;
  DeviceBuffer workspace;
  std::map<ProductShape, Product> products;
};

LibraryProducts::LibraryProducts(const Allocate& allocate, ProductTiming& timing,
                                 ProductProposals& proposals)
    : impl_(std::make_unique<Impl>(allocate, timing, proposals)) {}

LibraryProducts::~LibraryProducts() = default;

bool LibraryProducts::run(const ProductShape& shape, const ProductOperands& operands,
                          cudaStream_t stream) {
  Product& product = impl_->product_of(shape, operands.bias);
  if (product.candidates.empty()) return false;
  // Products are shared by layers of equal shape.
  if (product.bias_in_epilogue) {
    set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (!product.settled && !is_captured(stream)) {
    if (impl_->timing.allowed || shape.rows < least_timed_rows) {
      impl_->settle(product, shape, operands, stream);
    } else {
      ++impl_->timing.put_off;
    }
  }
  impl_->multiply(product, product.candidates.front().algo, shape.accumulate, operands,
                  operands.out, workspace_bytes, stream);
  if (shape.bias && !product.bias_in_epilogue) {
    add_bias(operands.bias, shape.rows, shape.out, operands.out, stream);
  }
  return true;
}

namespace {

/// Outputs that code is loaded with: the operands are a model's in rows and inputs alone.
std::int64_t loaded_outputs(const ProductShape& shape) {
  return std::min<std::int64_t>(shape.out, 512);
}

std::size_t aligned(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
}

struct LoadedOperands {
  std::size_t x, weights, bias, out;
  explicit LoadedOperands(const ProductShape& shape)
      : x(aligned(shape.rows * shape.in * 2)),
        weights(aligned(loaded_outputs(shape) * shape.in * 2)),
        bias(aligned(loaded_outputs(shape) * 4)),
        out(aligned(shape.rows * loaded_outputs(shape) * 4)) {}
};

}  // namespace

std::size_t LibraryProducts::bytes_to_load(const ProductShape& shape) {
  const LoadedOperands bytes(shape);
  return bytes.x + bytes.weights + bytes.bias + bytes.out;
}

void LibraryProducts::load_code(const ProductShape& shape, void* memory, cudaStream_t stream) {
  const LoadedOperands bytes(shape);
  auto* const x = static_cast<char*>(memory);
  char* const weights = x + bytes.x;
  char* const bias = weights + bytes.weights;
  char* const out = bias + bytes.bias;
  const auto* const bias_values = reinterpret_cast<const float*>(bias);
  Product& product = impl_->product_of(shape, bias_values);
  if (product.candidates.empty()) return;
  product.weights = make_layout(CUDA_R_16BF, shape.in, loaded_outputs(shape));
  product.out = make_layout(CUDA_R_32F, loaded_outputs(shape), shape.rows);
  impl_->multiply(product, product.candidates.front().algo, shape.accumulate,
                  {x, weights, bias_values, reinterpret_cast<float*>(out)},
                  reinterpret_cast<float*>(out), workspace_bytes, stream);
}

std::string LibraryProducts::implementation(const ProductShape& shape, const float* bias) {
  const Product& product = impl_->product_of(shape, bias);
  if (product.candidates.empty()) return {};
  const cublasLtMatmulAlgo_t& algorithm = product.candidates.front().algo;
  return cat("cublasLt ", cublasLtGetVersion(), ", algorithm ",
             config(algorithm, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
             config(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID), ", split ",
             config(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), ", reduction ",
             config(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
             shape.bias && !product.bias_in_epilogue ? ", bias added after" : "");
}

}  // namespace coppice::cuda
