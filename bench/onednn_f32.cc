#include "bench/onednn_f32.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>

namespace coppice::bench {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto f32 = dnnl::memory::data_type::f32;
constexpr std::int64_t slice_step = 64;  // output features

struct Slice {
  std::int64_t begin, end;
  dnnl::memory weights;
};
struct Code {
  dnnl::matmul code;
  dnnl::memory x, y;
};

}  // namespace

struct OneDnnProduct::Impl {
  std::int64_t out, in;
  cpu::Workers& workers;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<Slice> slices = {};
  std::map<std::int32_t, std::vector<Code>> codes = {};  ///< by rows; one per slice

  dnnl::matmul::primitive_desc describe(std::int64_t width, std::int32_t rows,
                                        const dnnl::memory::desc& weights) const {
    const dnnl::memory::desc x({rows, in}, f32, Tag::ab);
    const dnnl::memory::desc y({rows, width}, f32, dnnl::memory::dims{out, 1});
#if DNNL_VERSION_MAJOR >= 3
    return {engine, x, weights, y};
#else
    return {dnnl::matmul::desc(x, weights, y), engine};
#endif
  }
};

OneDnnProduct::OneDnnProduct(const std::vector<float>& weights, std::int64_t out, std::int64_t in,
                             cpu::Workers& workers)
    : impl_(new Impl{out, in, workers}) {
  omp_set_num_threads(1);  // as the workers have it; slices are the threads' work
  const std::int64_t units = (out + slice_step - 1) / slice_step;
  const std::int64_t parts = std::min<std::int64_t>(units, workers.threads());
  constexpr std::int32_t reference_rows = 128;
  for (std::int64_t part = 0; part < parts; ++part) {
    const cpu::Share share = cpu::share_of(units, part, parts);
    Slice slice{share.begin * slice_step, std::min(out, share.end * slice_step), {}};
    const std::int64_t width = slice.end - slice.begin;
    const auto packed = impl_->describe(width, reference_rows, {{in, width}, f32, Tag::any});
    slice.weights = dnnl::memory(packed.weights_desc(), impl_->engine);
    dnnl::memory plain({{in, width}, f32, Tag::ba}, impl_->engine,
                       const_cast<float*>(weights.data() + slice.begin * in));
    dnnl::reorder(plain, slice.weights).execute(impl_->stream, plain, slice.weights);
    impl_->slices.push_back(std::move(slice));
  }
}

OneDnnProduct::OneDnnProduct(OneDnnProduct&&) noexcept = default;
OneDnnProduct::~OneDnnProduct() = default;

void OneDnnProduct::run(const float* x, std::int32_t rows, float* y) {
  std::vector<Code>& codes = impl_->codes[rows];
  while (codes.size() < impl_->slices.size()) {
    const Slice& slice = impl_->slices[codes.size()];
    const auto described = impl_->describe(slice.end - slice.begin, rows, slice.weights.get_desc());
    codes.push_back({dnnl::matmul(described),
                     dnnl::memory(described.src_desc(), impl_->engine, DNNL_MEMORY_NONE),
                     dnnl::memory(described.dst_desc(), impl_->engine, DNNL_MEMORY_NONE)});
  }
  const auto parts = std::ssize(impl_->slices);
  impl_->workers.run(parts, static_cast<int>(parts), [&](std::int64_t part, int) {
    const Slice& slice = impl_->slices[static_cast<std::size_t>(part)];
    Code& code = codes[static_cast<std::size_t>(part)];
    code.x.set_data_handle(const_cast<float*>(x));
    code.y.set_data_handle(y + slice.begin);
    code.code.execute(
        impl_->stream,
        {{DNNL_ARG_SRC, code.x}, {DNNL_ARG_WEIGHTS, slice.weights}, {DNNL_ARG_DST, code.y}});
  });
}

}  // namespace coppice::bench
