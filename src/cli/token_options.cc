#include "cli/token_options.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/option_values.h"

namespace coppice::cli {
namespace {

// TOKEN=BIAS
std::pair<TokenId, double> bias_in(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos) {
    throw_usage(cat("--logit-bias ", quote(text), ": use TOKEN=BIAS, as in 15=-100"));
  }
  return {number_in<TokenId>("logit-bias", text.substr(0, sign), 0),
          number_in<double>("logit-bias", text.substr(sign + 1))};
}

}  // namespace

po::options_description token_options() {
  po::options_description d("Tokens");
  d.add_options()("presence-penalty", po::value<double>()->default_value(0.0, "0")->value_name("F"),
                  "taken off the logits of tokens that the new text holds; -2 to 2")(
      "frequency-penalty", po::value<double>()->default_value(0.0, "0")->value_name("F"),
      "taken off as often as the new text holds the token; -2 to 2")(
      "logit-bias", po::value<std::vector<std::string>>()->composing()->value_name("TOKEN=BIAS"),
      "added to a token's logit before all else; -100 to 100 (may be given several times)")(
      "stop-tokens", po::value<std::string>()->value_name("ID,ID"),
      "end before one of these tokens, too")(
      "min-new-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "no end token and none of --stop-tokens before so many new tokens");
  return d;
}

void read_token_options(const po::variables_map& values, GenerateOptions& options) {
  options.sampling.presence_penalty = values["presence-penalty"].as<double>();
  options.sampling.frequency_penalty = values["frequency-penalty"].as<double>();
  if (values.count("logit-bias") != 0) {
    for (const std::string& text : values["logit-bias"].as<std::vector<std::string>>()) {
      options.logit_bias.push_back(bias_in(text));
    }
  }
  if (values.count("stop-tokens") != 0) {
    options.stop_tokens =
        numbers_in<TokenId>("stop-tokens", values["stop-tokens"].as<std::string>(), 0);
  }
  options.min_new_tokens = values["min-new-tokens"].as<std::int32_t>();
}

}  // namespace coppice::cli
