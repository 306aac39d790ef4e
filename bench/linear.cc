// Products of few rows by a model's weights on a GPU: cublasLt and the kernels that stream weights,
// bf16 and packed blocks, in the shapes of a named model's layers, against the time of reading the
// weights once.
//
//   build/bench/linear [--shape llama-2-7b] [--rows 1,4,16] [--format Q4_K] [--json FILE]
//
// Products of one shape follow each other in one recording, over weights that exceed the cache;
// medians, microseconds per product. The read bandwidth is measured in the same run.
#include "kernels/cuda/linear/linear.h"

#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "bench/device_memory.h"
#include "bench/options.h"
#include "bench/random_bf16.h"
#include "bench/read_bandwidth.h"
#include "bench/timing.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/error.h"
#include "kernels/device.h"
#include "reference/quantised.h"

namespace {

using namespace coppice;
using namespace coppice::bench;
namespace po = boost::program_options;

struct Product {
  const char* name;
  std::int64_t out, in;
};
struct Shape {
  const char* name;
  std::vector<Product> products;
};
// Shapes of the folders that bench/widen writes: a vocabulary of 4096, its bytes in the FFN.
const std::vector<Shape> shapes = {
    {"llama-2-7b",
     {{"qkv", 12288, 4096},
      {"output", 4096, 4096},
      {"gate and up", 22656, 4096},
      {"down", 4096, 11328},
      {"head", 4096, 4096}}},
    {"llama-3-8b",
     {{"qkv", 6144, 4096},
      {"output", 4096, 4096},
      {"gate and up", 31232, 4096},
      {"down", 4096, 15616},
      {"head", 4096, 4096}}},
    {"llama-68m",
     {{"qkv", 2304, 768}, {"output", 768, 768}, {"gate and up", 15488, 768}, {"down", 768, 7744}}},
};

constexpr double rotated_bytes = 300e6;

double microseconds(cuda::LinearEngine& engine,
                    const std::vector<std::unique_ptr<LinearWeights>>& sets, std::int32_t rows,
                    cudaStream_t stream) {
  const LinearWeights& first = *sets.front();
  const auto padded = static_cast<std::size_t>(cuda::padded_row_count(rows));
  const std::vector<std::uint16_t> values =
      random_bf16(padded * static_cast<std::size_t>(first.in_features()));
  const DeviceBuffer x = allocate(values.size() * 2, "x");
  cuda::check(cudaMemcpy(x.data(), values.data(), values.size() * 2, cudaMemcpyHostToDevice), "x");
  const DeviceBuffer out =
      allocate(padded * static_cast<std::size_t>(first.out_features()) * sizeof(float), "out");
  return time_replays(
             static_cast<std::int32_t>(sets.size()), 31,
             [&](std::int32_t set) {
               engine.run(*sets[static_cast<std::size_t>(set)], x.data(), rows, out.as<float>(),
                          false, stream);
             },
             stream)
      .in_pass_us;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string shape_name, rows_text, format_name, json_file;
  po::options_description options("bench/linear");
  options.add_options()("help", "print this")(
      "shape", po::value(&shape_name)->default_value("llama-2-7b"),
      "llama-2-7b, llama-3-8b or llama-68m, as bench/widen writes them")(
      "rows", po::value(&rows_text)->default_value("1,2,4,8,16,32,64"), "comma-separated")(
      "format", po::value(&format_name)->default_value("Q4_K"), "of the packed weights")(
      "json", po::value(&json_file), "also write the figures here");
  po::variables_map given;
  if (!parse_options(argc, argv, options, given)) return 0;
  const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                  [&](const Shape& s) { return s.name == shape_name; });
  if (shape == shapes.end()) throw_usage("--shape takes llama-2-7b, llama-3-8b or llama-68m");
  const std::vector<std::int32_t> all_rows = rows_in(rows_text);
  const WeightFormat format = format_in(format_name);
  std::string why_not;
  if (!cuda::has_device(&why_not)) throw_failure(why_not);

  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  const double bandwidth = read_bandwidth();
  std::printf("%s, reads %.2f TB/s\n%-12s %14s %5s %9s %9s %9s %9s %9s %9s\n", shape->name,
              1e-12 * bandwidth, "product", "out x in", "rows", "bytes us", "library", "streamed",
              "of bytes", format_name.c_str(), "of bytes");
  nlohmann::ordered_json report;
  for (const Product& product : shape->products) {
    const std::vector<std::uint16_t> weights =
        random_bf16(static_cast<std::size_t>(product.out * product.in));
    std::mt19937 random(1);
    const auto whole_block = static_cast<std::size_t>(block_shape(format).numbers);
    const std::vector<std::byte> blocks =
        testing::random_blocks(format, weights.size() / whole_block * whole_block, random);
    const auto timed = [&](const LinearPart& part, std::int32_t rows, bool streams,
                           double* packed_bytes) {
      cuda::WeightUpload upload(allocate, stream);
      cuda::LinearEngine engine(upload, allocate, streams);
      std::vector<std::unique_ptr<LinearWeights>> packed;
      double held = 0;
      while (packed.size() < 2 || held < rotated_bytes) {
        packed.push_back(engine.pack({&part, 1}, product.in, {}, rows));
        held += static_cast<double>(packed.back()->bytes());
      }
      *packed_bytes = held / static_cast<double>(packed.size());
      return microseconds(engine, packed, rows, stream);
    };
    for (const std::int32_t rows : all_rows) {
      double us[2], bytes = 0, packed_bytes = 0;
      const LinearPart part{weights.data(), DType::bf16, product.out};
      for (const bool streams : {false, true}) us[streams] = timed(part, rows, streams, &bytes);
      const bool whole = product.in % block_shape(format).numbers == 0;
      const double packed_us =
          whole ? timed({blocks.data(), format, product.out}, rows, true, &packed_bytes) : NAN;
      const double bound = 1e6 * bytes / bandwidth, packed_bound = 1e6 * packed_bytes / bandwidth;
      std::printf("%-12s %6lld x %5lld %5d %9.1f %9.1f %9.1f %8.1f%% %9.1f %8.1f%%\n", product.name,
                  static_cast<long long>(product.out), static_cast<long long>(product.in), rows,
                  bound, us[0], us[1], 100.0 * bound / us[1], packed_us,
                  100.0 * packed_bound / packed_us);
      std::fflush(stdout);
      report.push_back({{"product", product.name},
                        {"rows", rows},
                        {"bytes_us", bound},
                        {"library_us", us[0]},
                        {"streamed_us", us[1]},
                        {"format", format_name},
                        {"packed_us", packed_us}});
    }
  }
  cuda::check(cudaStreamDestroy(stream), "ending");
  if (!json_file.empty()) {
    std::ofstream out(json_file);
    out << report.dump(1) << '\n';
    if (!out.flush()) throw_failure(cat(json_file, " could not be written"));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench/linear: %s\n", error.what());
  return exit_code_of(error);
}
