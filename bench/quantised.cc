// Products with quantised weights on the CPU by rows, against reading the packed weights once.
//
//   build/bench/quantised [--formats Q4_K,Q8_0] [--rows 1,8,64] [--threads 2] [--hidden 2048]
//                         [--ffn 5632] [--layers 4] [--ms 400]
//
// A pass is every product of some layers, which together exceed the caches as a whole model does;
// best and median milliseconds, the best over one row's, and weights read in GB/s.
#include "reference/quantised.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <random>
#include <vector>

#include "base/stopwatch.h"
#include "bench/options.h"
#include "kernels/device.h"
#include "models/weight_source.h"

namespace {

using namespace coppice;
namespace po = boost::program_options;

struct Shape {
  std::int64_t hidden, ffn, layers;
};

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    all.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

void measure(WeightFormat format, const Shape& shape, const std::vector<std::int32_t>& rows,
             int threads, double budget) {
  const std::int32_t most = *std::max_element(rows.begin(), rows.end());
  const auto device = make_cpu_device({.threads = threads, .integer_products = true});
  std::mt19937 random(1);
  std::vector<std::unique_ptr<LinearWeights>> weights;
  const double start = now_seconds();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const auto& [out, in] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{shape.hidden, shape.hidden},
                                                            {shape.hidden, shape.hidden},
                                                            {2 * shape.ffn, shape.hidden},
                                                            {shape.hidden, shape.ffn}}) {
      const std::vector<std::byte> blocks =
          testing::random_blocks(format, static_cast<std::uint64_t>(out * in), random);
      const LinearPart part{blocks.data(), format, out};
      weights.push_back(device->pack_linear({&part, 1}, in, {}, most));
    }
  }
  double bytes = 0.0;
  for (const auto& w : weights) bytes += static_cast<double>(w->bytes());
  std::printf("%s, %.1f MB packed in %.2f s, %d threads\n%5s %9s %9s %8s %8s\n",
              std::string(name_of(format)).c_str(), bytes * 1e-6, now_seconds() - start, threads,
              "rows", "best ms", "median", "of one", "GB/s");
  std::vector<float> x(static_cast<std::size_t>(most * std::max(shape.ffn, shape.hidden)));
  std::vector<float> y(static_cast<std::size_t>(most * 2 * shape.ffn));
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  double one = 0.0;
  for (const std::int32_t count : rows) {
    std::vector<double> seconds;
    const double end = now_seconds() + budget;
    while (seconds.size() < 3 || now_seconds() < end) {
      const double begin = now_seconds();
      for (const auto& w : weights) device->linear(*w, x.data(), count, y.data(), false);
      seconds.push_back(now_seconds() - begin);
    }
    std::sort(seconds.begin(), seconds.end());
    const double best = seconds.front();
    if (one == 0.0) one = best;
    std::printf("%5d %9.3f %9.3f %8.2f %8.1f\n", count, best * 1e3,
                seconds[seconds.size() / 2] * 1e3, best / one, bytes * 1e-9 / best);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::string formats, rows;
  Shape shape{};
  int threads = 0;
  double ms = 0.0;
  po::options_description options("quantised");
  options.add_options()("help", "this")(
      "formats", po::value(&formats)->default_value("Q4_K,Q6_K,Q8_0,Q4_0"), "as GGUF names them")(
      "rows", po::value(&rows)->default_value("1,2,4,8,16,32,64,128,512"),
      "the first is compared with")("threads", po::value(&threads)->default_value(2), "of the CPU")(
      "hidden", po::value(&shape.hidden)->default_value(2048), "width, a multiple of 256")(
      "ffn", po::value(&shape.ffn)->default_value(5632), "likewise")(
      "layers", po::value(&shape.layers)->default_value(4), "how many")(
      "ms", po::value(&ms)->default_value(400.0), "for each row count");
  po::variables_map values;
  if (!bench::parse_options(argc, argv, options, values)) return 0;
  const std::vector<std::int32_t> counts = bench::rows_in(rows);
  for (const std::string& word : words(formats)) {
    measure(bench::format_in(word), shape, counts, threads, ms * 1e-3);
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "quantised: " << error.what() << '\n';
  return coppice::bench::exit_code_of(error);
}
