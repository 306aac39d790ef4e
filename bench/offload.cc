// A target larger than the card: what a pass costs whose layers are copied from the host, and what
// speculation makes of it.
//
//   build/bench/offload --target DIR [--draft DIR|self:TYPE] --gpu-memory 8GiB [--gpu-layers N]
//                       [--rows 1,65,257,769] [--prompts FILE [--per-kind N]]
//                       [--settings dyspec:64,dyspec:768,dyspec:0] [--temperature T]
//                       [--new-tokens N] [--plain-tokens N]
//
// A pass of few rows cannot take less than its copies: the bytes that it copies at the rate of
// plain copies from page-locked memory, measured in the same run. Passes are queued one after the
// other, as plain decoding has them. Texts are written by each setting in turn; speed-up is over
// plain decoding's tokens per second, prefill left out.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>

#include "base/stopwatch.h"
#include "cli/option_values.h"
#include "cli/terminal.h"
#include "coppice.h"
#include "copy_rate.h"
#include "engine/engine_impl.h"
#include "engine/layer_plan.h"
#include "model_passes.h"
#include "options.h"
#include "settings.h"
#include "texts.h"

namespace {

using namespace coppice;
using namespace coppice::bench;
namespace po = boost::program_options;

void time_passes(Engine& engine, const std::vector<std::int32_t>& of_rows, double rate) {
  Engine::Impl& impl = inside(engine);
  Model& model = *impl.target.model;
  const double least = static_cast<double>(model.streamed_bytes()) / rate;
  std::printf("\n%6s %12s %12s %10s\n", "rows", "ms a pass", "ms of copies", "ratio");
  const std::lock_guard lock(impl.mutex);
  const DeviceScope scope(*impl.device);
  Passes work(model, *impl.target.pool, 128);
  for (const std::int32_t rows : of_rows) {
    if (rows > model.options().max_logit_rows) continue;
    work.set(rows);
    constexpr int warming = 2, timed = 6;
    double start = 0.0;
    for (int pass = 0; pass < warming + timed; ++pass) {
      if (pass == warming) {
        model.device().synchronize();
        start = now_seconds();
      }
      work.queue();
    }
    model.device().synchronize();
    const double seconds = (now_seconds() - start) / timed;
    std::printf("%6d %12.2f %12.2f %10.3f\n", rows, seconds * 1e3, least * 1e3,
                least > 0.0 ? seconds / least : 0.0);
    std::fflush(stdout);
  }
}

void time_texts(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                const std::vector<Setting>& settings, double temperature, std::int32_t most_tokens,
                std::int32_t plain_tokens) {
  std::printf("\ntemperature %g, %zu prompts, %d new tokens\n%-24s %10s %9s %9s %8s %10s %10s\n",
              temperature, prompts.size(), most_tokens, "setting", "tokens/s", "speed-up",
              "accepted", "tree", "draft, ms", "verify, ms");
  double plain = 0.0;
  for (const Setting& setting : settings) {
    double tokens = 0.0, seconds = 0.0, steps = 0.0, kept = 0.0, nodes = 0.0, draft = 0.0,
           verify = 0.0;
    const bool is_plain = plain == 0.0;
    const std::int32_t new_tokens = is_plain ? plain_tokens : most_tokens;
    for (const std::vector<TokenId>& prompt : prompts) {
      GenerateOptions request = request_of(setting, temperature);
      request.max_new_tokens = new_tokens;
      request.ignore_eos = true;
      const Statistics s = engine.generate(prompt, request).statistics;
      const auto passes = static_cast<double>(s.steps);
      tokens += new_tokens - s.prefill_tokens;
      seconds += s.decode_seconds();
      steps += passes;
      kept += s.accepted_length * passes;
      nodes += s.tree_size_mean * passes;
      draft += s.seconds.draft;
      verify += s.seconds.verify;
    }
    const double speed = tokens / seconds;
    if (is_plain) plain = speed;
    std::printf("%-24s %10.2f %9.2f %9.2f %8.1f %10.1f %10.1f\n", setting.name.c_str(), speed,
                speed / plain, kept / steps, nodes / steps, 1e3 * draft / steps,
                1e3 * verify / steps);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::string target, draft, target_weights, gpu_memory, host_memory, gpu_layers, rows;
  std::string prompts_file, settings;
  int per_kind = 0, new_tokens = 0, plain_tokens = 0;
  std::int32_t kv_tokens = 0;
  double temperature = 0.0;
  po::options_description options("options");
  options.add_options()("help", "print this")("target", po::value(&target), "model folder")(
      "draft", po::value(&draft), "model folder, or self:TYPE; none: passes and plain texts")(
      "target-weights", po::value(&target_weights)->default_value("keep"), "as coppice's")(
      "gpu-memory", po::value(&gpu_memory), "so much of the card, such as 24GiB")(
      "host-memory", po::value(&host_memory), "so much of the host's, whatever is free")(
      "gpu-layers", po::value(&gpu_layers)->default_value("auto"), "that stay on the card")(
      "kv-tokens", po::value(&kv_tokens)->default_value(2048), "KV of each model")(
      "rows", po::value(&rows)->default_value("1,65,257,769"), "of the passes that are timed")(
      "prompts", po::value(&prompts_file), "JSON lines with kind and prompt; none: no texts")(
      "per-kind", po::value(&per_kind)->default_value(1), "prompts of each kind")(
      "new-tokens", po::value(&new_tokens)->default_value(64), "of each text")(
      "plain-tokens", po::value(&plain_tokens)->default_value(0),
      "of each plain text, whose speed hardly depends on it; 0: as of the others")(
      "temperature", po::value(&temperature)->default_value(0.0), "of the texts")(
      "settings", po::value(&settings)->default_value("chain:8,dyspec:64,dyspec:768,dyspec:0"),
      "beside plain decoding");
  po::variables_map values;
  if (!parse_options(argc, argv, options, values)) return 0;
  if (target.empty()) throw_usage("offload: name a --target");
  const double rate = copy_rate();
  if (rate <= 0.0) throw_failure("offload: it needs a GPU and 1 GiB of page-locked memory");
  EngineOptions load;
  load.target = target;
  load.device = DeviceKind::cuda;
  load.kv_tokens = kv_tokens;
  load.max_sequences = 1;
  load.max_tree_size = 768;
  load.gpu_layers = cli::layers_in("gpu-layers", gpu_layers);
  if (!gpu_memory.empty()) load.gpu_memory = cli::bytes_in("gpu-memory", gpu_memory);
  if (!host_memory.empty()) load.host_memory = cli::bytes_in("host-memory", host_memory);
  load.target_weights = rounding_in(target_weights);
  if (draft.starts_with("self:")) {
    load.draft = target;
    load.draft_weights = rounding_in(draft.substr(5));
  } else {
    load.draft = draft;
  }
  const double start = now_seconds();
  Engine engine = Engine::load(load);
  Engine::Impl& impl = inside(engine);
  const LayerPlacement placement = placement_of(*impl.target.model);
  const std::string layers = describe(placement);
  std::printf("%s\nloaded in %.1f s; copies from page-locked memory: %.1f GB/s\n%s\n",
              target.c_str(), now_seconds() - start, rate / 1e9,
              layers.empty() ? "all layers stay on the card" : layers.c_str());
  time_passes(engine, rows_in(rows), rate);
  if (prompts_file.empty()) return 0;
  const auto prompts = tokenized(engine, read_prompt_lines(prompts_file, per_kind), 0);
  time_texts(engine, prompts, plain_and(draft.empty() ? "" : settings), temperature, new_tokens,
             plain_tokens > 0 ? plain_tokens : new_tokens);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "offload: " << error.what() << "\n";
  return coppice::bench::exit_code_of(error);
}
