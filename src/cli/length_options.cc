#include "cli/length_options.h"

#include <string>
#include <vector>

#include "cli/option_values.h"

namespace coppice::cli {
namespace {

constexpr std::int32_t most_samples = 100000;

}  // namespace

po::options_description length_options() {
  po::options_description d("Length, end and samples");
  d.add_options()("max-new-tokens", po::value<std::int32_t>()->default_value(128)->value_name("N"),
                  "most new tokens")(
      "stop", po::value<std::vector<std::string>>()->composing()->value_name("TEXT"),
      "end before this text, which may spell special tokens (may be given several times)")(
      "ignore-eos", "go on after an end token")(
      "logprobs", "with --format json: log-probabilities of each token and the most probable ones")(
      "top-logprobs", po::value<std::int32_t>()->default_value(5)->value_name("N"),
      "how many of these, at most 20")(
      "stream", po::value<std::string>()->default_value("0")->value_name("N"),
      "same seed, other stream: an independent text")(
      "n", po::value<std::int32_t>()->default_value(1)->value_name("K"),
      "samples of the text, written side by side: sample i has --stream plus i, and with a "
      "--tree-size or --acceptance coupled is that stream's text; with --format json an array");
  return d;
}

void read_length_options(const po::variables_map& values, GenerateOptions& options) {
  options.max_new_tokens = values["max-new-tokens"].as<std::int32_t>();
  options.stop.clear();
  if (values.count("stop") != 0) options.stop = values["stop"].as<std::vector<std::string>>();
  options.ignore_eos = values.count("ignore-eos") != 0;
  options.logprobs = values.count("logprobs") != 0;
  options.top_logprobs = values["top-logprobs"].as<std::int32_t>();
  if (!values["top-logprobs"].defaulted() && !options.logprobs) {
    throw_usage("--top-logprobs needs --logprobs");
  }
  options.stream = number_in<std::uint64_t>("stream", values["stream"].as<std::string>());
}

std::int32_t sample_count(const po::variables_map& values) {
  return count_in(values, "n", 1, most_samples);
}

}  // namespace coppice::cli
