// Perplexity of a model on a text, as it is stored and rounded, with activations of 32 and of 8
// bits: what quantised formats cost.
//
//   build/bench/perplexity --model DIR|FILE.gguf --text FILE [--weights keep,q8_0,q4_k]
//                          [--window 512] [--tokens 20000] [--threads 2]
//
// The text is cut into windows without overlap, each scored from its first token on.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/files.h"
#include "base/stopwatch.h"
#include "bench/options.h"
#include "models/kv/kv_pool.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"

namespace {

using namespace coppice;
namespace po = boost::program_options;

std::optional<WeightFormat> rounding_in(const std::string& text) {
  if (text == "keep") return std::nullopt;
  for (const WeightFormat format : all_weight_formats) {
    std::string name(name_of(format));
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    if (name == text) return format;
  }
  throw_usage(cat("--weights ", text, ": use keep, q8_0, q6_k, q4_k, q4_0, fp8 or int4"));
}

struct Score {
  double nats = 0.0, seconds = 0.0;
  std::int64_t tokens = 0;
};

Score score(const std::string& path, std::optional<WeightFormat> rounding, bool integers,
            int threads, const std::vector<TokenId>& text, std::int32_t window) {
  const auto device = make_cpu_device({.threads = threads, .integer_products = integers});
  const auto model = Model::load(path, *device,
                                 {.max_rows = window,
                                  .max_logit_rows = window,
                                  .max_positions = window,
                                  .rounding = rounding});
  KvPool pool(*device, model->kv_layout(window, 16));
  const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
  std::vector<KvSlot> slots(static_cast<std::size_t>(window));  // every window's
  if (!pool.take(slots)) throw_failure("perplexity: too few KV slots");
  Score total;
  const double start = now_seconds();
  for (std::size_t begin = 0; begin + 1 < text.size(); begin += static_cast<std::size_t>(window)) {
    const std::size_t count = std::min(static_cast<std::size_t>(window), text.size() - begin);
    std::vector<KvSegment> seen;
    std::vector<std::int32_t> rows;
    for (std::size_t r = 0; r < count; ++r) {
      const auto row = static_cast<std::int32_t>(r);
      seen.push_back(
          {std::span(slots).subspan(r, 1), row, static_cast<std::int32_t>(count), false, row});
      rows.push_back(row);
    }
    const float* logits = model->forward(
        {std::span(text).subspan(begin, count), rows, std::span(slots).first(count), seen, rows},
        pool);
    for (std::size_t r = 0; r + 1 < count; ++r) {
      const float* const row = logits + r * vocab;
      const float most = *std::max_element(row, row + vocab);
      double sum = 0.0;
      for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i] - most));
      total.nats += most + std::log(sum) - row[static_cast<std::size_t>(text[begin + r + 1])];
      ++total.tokens;
    }
  }
  total.seconds = now_seconds() - start;
  return total;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string path, file, weights;
  std::int32_t window = 0, tokens = 0;
  int threads = 0;
  po::options_description options("perplexity");
  options.add_options()("help", "this")("model", po::value(&path), "a folder or a GGUF file")(
      "text", po::value(&file), "UTF-8")("weights", po::value(&weights)->default_value("keep"),
                                         "what to round to, one after another")(
      "window", po::value(&window)->default_value(512), "tokens that are scored together")(
      "tokens", po::value(&tokens)->default_value(20000), "of the text, at most")(
      "threads", po::value(&threads)->default_value(2), "of the CPU");
  po::variables_map values;
  if (!bench::parse_options(argc, argv, options, values)) return 0;
  if (path.empty() || file.empty() || window < 2) {
    throw_usage("name --model and --text; a window has at least 2 tokens");
  }
  std::vector<TokenId> text = Tokenizer::load(path)->encode(
      read_file(file, "name a text", std::uintmax_t{64} << 20)
          .substr(0, std::size_t{6} * static_cast<std::size_t>(tokens)));
  text.resize(std::min(text.size(), static_cast<std::size_t>(tokens)));
  std::printf("%-10s %-12s %12s %10s %10s\n", "weights", "activations", "perplexity", "tokens",
              "tokens/s");
  std::stringstream list(weights);
  for (std::string word; std::getline(list, word, ',');) {
    for (const bool integers : {false, true}) {
      const Score s = score(path, rounding_in(word), integers, threads, text, window);
      std::printf("%-10s %-12s %12.4f %10lld %10.0f\n", word.c_str(), integers ? "auto" : "f32",
                  std::exp(s.nats / static_cast<double>(s.tokens)),
                  static_cast<long long>(s.tokens), static_cast<double>(s.tokens) / s.seconds);
      std::fflush(stdout);
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "perplexity: " << error.what() << '\n';
  return coppice::bench::exit_code_of(error);
}
