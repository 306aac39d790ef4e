#include "cli/samples.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/generation_text.h"
#include "cli/one_request.h"
#include "cli/terminal.h"
#include "cli/totals.h"

namespace coppice::cli {
namespace {

/// Those that began and did not fail.
std::vector<std::size_t> written_of(const Outcome& outcome) {
  std::vector<std::size_t> written;
  for (std::size_t s = 0; s < outcome.samples.size(); ++s) {
    if (has_begun(outcome.samples[s])) written.push_back(s);
  }
  return written;
}

void print_json(Engine& engine, const Request& request, const Outcome& outcome,
                const std::vector<std::size_t>& written) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::size_t s : written) {
    list.push_back({{"stream", request.options.stream + s}});
    list.back().update(to_json(engine, outcome.samples[s], request.options.logprobs));
  }
  write_out(json_line(list));
}

void print_text(Engine& engine, const Request& request, const Outcome& outcome,
                const std::vector<std::size_t>& written) {
  const char* between = "";
  for (const std::size_t s : written) {
    const Generation& sample = outcome.samples[s];
    const bool stopped = sample.finish_reason == FinishReason::cancelled;
    write_out(cat(std::exchange(between, "\n"), "--- sample ", s + 1, " of ", request.n,
                  ", stream ", request.options.stream + s, stopped ? ", stopped" : "", " ---\n"));
    write_generated(engine.has_tokenizer() ? sample.text : id_list(sample.tokens));
    write_out("\n");
    if (const std::string cut = cut_short(sample); !cut.empty()) {
      tell(cat("sample ", s + 1, ": ", cut));
    }
  }
}

}  // namespace

Samples write_samples(Engine& engine, Request request, bool json, ProgressLine& progress,
                      const std::stop_token& stop) {
  const double all = static_cast<double>(request.options.max_new_tokens) * request.n;
  std::size_t produced = 0;
  request.callback = [&](std::int32_t, const Piece& piece) {
    produced += piece.tokens.size();
    progress.show("generating", static_cast<double>(produced) / all);
    return true;
  };
  Totals totals;
  totals.begin(now_seconds(), engine.load_seconds());
  const Outcome outcome = write_request(engine, request, stop);
  totals.end(now_seconds(), engine.load_seconds());
  progress.clear();
  const std::vector<std::size_t> written = written_of(outcome);
  (json ? print_json : print_text)(engine, request, outcome, written);
  std::size_t failed = 0;
  for (const Generation& sample : outcome.samples) {
    failed += sample.finish_reason == FinishReason::failed ? 1 : 0;
  }
  if (outcome.error) {
    throw_failure(cat(failed, " of ", request.n, " samples failed: ", message_of(outcome.error)));
  }
  std::size_t whole = 0;
  for (const std::size_t s : written) {
    totals.add(outcome.samples[s]);
    whole += outcome.samples[s].finish_reason != FinishReason::cancelled ? 1 : 0;
  }
  Samples samples;
  samples.table = totals.table();
  if (!totals.shortage().empty()) tell(totals.shortage());
  if (whole < outcome.samples.size()) {
    samples.stopped = cat("stopped after ", whole, " of ", request.n, " samples");
    if (written.size() > whole) {
      samples.stopped += cat("; ", written.size() - whole, " more had begun");
    }
  }
  return samples;
}

}  // namespace coppice::cli
