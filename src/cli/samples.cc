#include "cli/samples.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/generation_text.h"

namespace coppice::cli {
namespace {

std::string listed(const std::vector<TokenId>& tokens) {
  std::string ids;
  for (const TokenId token : tokens) ids += (ids.empty() ? "" : ",") + std::to_string(token);
  return ids;
}

}  // namespace

std::vector<Generation> write_samples(Engine& engine, Request request, bool json,
                                      ProgressLine& progress) {
  const double all = static_cast<double>(request.options.max_new_tokens) * request.n;
  std::size_t produced = 0;
  request.callback = [&](std::int32_t, const Piece& piece) {
    produced += piece.tokens.size();
    progress.show("generating", static_cast<double>(produced) / all);
    return !InterruptWatch::interrupted();
  };
  Outcome outcome = std::move(engine.generate({&request, 1}).front());
  progress.clear();
  if (outcome.error) std::rethrow_exception(outcome.error);
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (std::size_t s = 0; s < outcome.samples.size(); ++s) {
      list.push_back({{"stream", request.options.stream + s}});
      list.back().update(to_json(outcome.samples[s], request.options.logprobs));
    }
    write_out(json_line(list));
    return std::move(outcome.samples);
  }
  for (std::size_t s = 0; s < outcome.samples.size(); ++s) {
    const Generation& sample = outcome.samples[s];
    write_out(cat(s > 0 ? "\n" : "", "--- sample ", s + 1, " of ", request.n, ", stream ",
                  request.options.stream + s, " ---\n"));
    write_generated(engine.has_tokenizer() ? sample.text : listed(sample.tokens));
    write_out("\n");
  }
  return std::move(outcome.samples);
}

}  // namespace coppice::cli
