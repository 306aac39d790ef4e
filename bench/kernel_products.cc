#include "bench/kernel_products.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/stopwatch.h"
#include "bench/onednn_f32.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/device.h"

namespace coppice::bench {
namespace {

constexpr std::int32_t most_rows = 256;

struct Matrix {
  std::int64_t out, in;
};

std::vector<Matrix> matrices(const ModelShape& m) {
  std::vector<Matrix> all;
  for (std::int32_t layer = 0; layer < m.layers; ++layer) {
    all.push_back({(m.heads + 2 * m.kv_heads) * m.head_dim, m.hidden});
    all.push_back({m.hidden, m.heads * m.head_dim});
    all.push_back({2 * m.ffn, m.hidden});
    all.push_back({m.hidden, m.ffn});
  }
  all.push_back({m.vocab, m.hidden});
  return all;
}

std::uint16_t bf16_of(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

/// One way to keep and multiply all matrices.
struct Kind {
  const char* name;
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<LinearWeights>> weights;
  std::vector<double> seconds = {};

  Kind(const char* title, DType compute, int threads)
      : name(title), device(make_cpu_device({.threads = threads, .compute = compute})) {}
  void run(const std::vector<float>& x, std::int32_t rows, std::vector<float>& y) {
    for (const auto& w : weights) device->linear(*w, x.data(), rows, y.data(), false);
  }
};

}  // namespace

void bench_products(const ModelShape& model, int threads, double budget_ms, double fma_rate) {
  struct Pack {
    const char* name;
    DType stored, compute;
  };
  std::vector<Pack> packs = {{"bf16", DType::bf16, DType::f32},
                             {"f16", DType::f16, DType::f32},
                             {"f32", DType::f32, DType::f32}};
  if (cpu::has_native_bf16()) packs.push_back({"bf16, bf16", DType::bf16, DType::bf16});
  std::vector<Kind> kinds;
  for (const Pack& pack : packs) kinds.emplace_back(pack.name, pack.compute, threads);
  cpu::Workers workers(kinds.front().device->threads());
  std::vector<OneDnnProduct> onednn;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  double elements = 0.0;
  for (const auto& [out, in] : matrices(model)) {
    std::vector<float> values(static_cast<std::size_t>(out * in));
    for (float& v : values) v = uniform(random);
    std::vector<std::uint16_t> narrow(values.size());
    // As f16 these are other numbers, as finite and as usual.
    for (std::size_t i = 0; i < values.size(); ++i) narrow[i] = bf16_of(values[i]) & 0xbfffu;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const void* data = packs[k].stored == DType::f32 ? static_cast<const void*>(values.data())
                                                       : static_cast<const void*>(narrow.data());
      const LinearPart part{data, packs[k].stored, out};
      kinds[k].weights.push_back(kinds[k].device->pack_linear({&part, 1}, in, {}, most_rows));
    }
    onednn.emplace_back(values, out, in, workers);
    elements += static_cast<double>(values.size());
  }
  std::printf(
      "\n%s, products of %.1f M weights, %d threads: best ms (median ms); weights, and "
      "activations if not f32\n%5s",
      model.name, elements * 1e-6, workers.threads(), "rows");
  for (const Kind& kind : kinds) std::printf(" %17s", kind.name);
  std::printf(" %17s %23s\n", "oneDNN f32", "GFLOP/s of bf16, of peak");
  const auto widest = static_cast<std::size_t>(
      std::max({2 * model.ffn, model.vocab, (model.heads + 2 * model.kv_heads) * model.head_dim}));
  std::vector<float> x(most_rows * widest), y(most_rows * widest);
  for (float& v : x) v = uniform(random);
  for (const std::int32_t rows :
       {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 17, 20, 24, 32, 48, 64, 128, 256}) {
    std::vector<double> library;
    for (Kind& kind : kinds) kind.seconds.clear();
    const auto time = [](std::vector<double>& into, const auto& body) {
      const double start = now_seconds();
      body();
      into.push_back(now_seconds() - start);
    };
    const double end = now_seconds() + budget_ms * 1e-3;
    // Twice each: the second finds its own weights in the caches, as from pass to pass.
    for (int round = 0; round < 3 || now_seconds() < end; ++round) {
      for (Kind& kind : kinds) {
        kind.run(x, rows, y);
        time(kind.seconds, [&] { kind.run(x, rows, y); });
      }
      const auto run = [&] {
        const float* from = x.data();
        for (OneDnnProduct& product : onednn) product.run(from, rows, y.data());
      };
      run();
      time(library, run);
    }
    const auto print = [](std::vector<double> seconds) {
      std::sort(seconds.begin(), seconds.end());
      std::printf(
          " %8.3f %8s", seconds.front() * 1e3,
          ("(" + std::to_string(seconds[seconds.size() / 2] * 1e3).substr(0, 6) + ")").c_str());
      return seconds.front();
    };
    std::printf("%5d", rows);
    double first = 0.0;
    for (const Kind& kind : kinds) {
      const double best = print(kind.seconds);
      if (&kind == &kinds.front()) first = best;
    }
    print(library);
    const double operations = 2.0 * elements * rows / first;
    std::printf(" %15.0f %6.0f%%\n", 1e-9 * operations, 100 * operations / fma_rate);
    std::fflush(stdout);
  }
}

}  // namespace coppice::bench
