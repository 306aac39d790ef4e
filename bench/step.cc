// What a step costs, by component: draft rounds, verify passes, sampling and acceptance, the
// host; and tokens per second of whole generations, plain and speculative.
//
//   build/bench/step [--target DIR --draft DIR] [--device cuda] [--prefix N] [--rows 1,257]
//                    [--texts 1,8 [--shuffled-slots]] [--products-alone] [--json FILE]
//   build/bench/step --device cuda --target DIR --draft DIR --prefix 65536 --kv-tokens 70000
//                    --max-new-tokens 0                     # a long prompt
//
// Passes are timed by the host's clock from the call to the result in the host's hands (medians),
// and back to back (queued, then waited for once), which is the device's own time; on a CPU one by
// one, all numbers of rows in turn. The share of the read bandwidth is the bytes of the weights
// that a pass reads (not the embedding table's) over that time, the bandwidth being measured in
// the same run; the roofline is that time or, if longer, the time of the pass's multiplications at
// the rate of large bf16 products. --products-alone also times the matrix products of a pass
// without the rest, over as many layers' weights as exceed the cache. Prefill's share of the matrix
// rate is two operations for each of the layers' weights and token, and for each of the head's
// once, over its time (attention, which long prompts spend theirs on, is not counted); on a CPU the
// rate is that of multiply-adds in f32.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/stopwatch.h"
#include "bench/host_bandwidth.h"
#include "bench/host_fma_rate.h"
#include "cli/terminal.h"
#include "coppice.h"
#include "engine/engine_impl.h"
#include "median.h"
#include "model_passes.h"
#include "options.h"
#ifdef COPPICE_HAS_CUDA
#include "matrix_rate.h"
#include "read_bandwidth.h"
#endif

namespace {

using namespace coppice;
using namespace coppice::bench;
namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

template <typename Work>
double median_seconds(int repetitions, Work work) {
  for (int i = 0; i < 4; ++i) work();  // the fourth time is the first that a recording is played
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const double start = now_seconds();
    work();
    times.push_back(now_seconds() - start);
  }
  return median(times);
}

std::vector<TokenId> random_prompt(std::int32_t length, std::int64_t vocab) {
  std::mt19937 random(7);
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(3 + random() % static_cast<unsigned>(vocab - 3)));
  }
  return tokens;
}

struct Bench {
  Engine& engine;
  double bandwidth = 0.0;
  double operations = 0.0;  ///< per second: of large bf16 products on a GPU, of a CPU's f32
  bool products_alone = false;
  std::vector<std::int32_t> texts;  ///< that passes have rows of
  bool shuffled_slots = false;
  Json json;

  // The best possible time of a pass: its weights read once, or its products at the rate of large
  // ones, whichever takes longer.
  double roofline_seconds(const Model& model, std::int32_t rows) const {
    if (bandwidth <= 0.0) return 0.0;
    const double weights = layer_weights(model.config()) + head_weights(model.config());
    const auto ranks = static_cast<double>(model.devices().size());
    return std::max(static_cast<double>(model.weight_bytes_read()) / bandwidth,
                    2.0 * rows * weights / operations) /
           ranks;
  }

  double queued_seconds(Device& device, const std::function<void()>& queue) {
    constexpr int many = 10;
    return median_seconds(5,
                          [&] {
                            for (int i = 0; i < many; ++i) queue();
                            device.synchronize();
                          }) /
           many;
  }

  void passes(const char* what, LoadedModel& loaded, std::int32_t prefix,
              const std::vector<std::int32_t>& of_rows) {
    Model& model = *loaded.model;
    Device& device = model.device();
    std::printf("\n%s: forward passes over a prefix of %d (%.0f MiB of weights read)\n", what,
                prefix, static_cast<double>(model.weight_bytes_read()) / (1 << 20));
    std::printf("%6s %6s %12s %12s %14s %18s %18s\n", "texts", "rows", "us, waited", "us, queued",
                "products alone", "of read bandwidth", "of the roofline");
    std::optional<PassProducts> products;
    if (products_alone) {
      products.emplace(device, model.config(), model.options().max_logit_rows);
    }
    for (const std::int32_t count : texts) {
      Passes work(model, *loaded.pool, prefix, count);
      if (shuffled_slots) work.shuffle_slots();
      for (const std::int32_t rows : of_rows) {
        if (rows > model.options().max_logit_rows || rows < count) continue;
        work.set(rows);
        const double waited = median_seconds(20, [&] {
          work.queue();
          device.synchronize();
        });
        const double queued = queued_seconds(device, [&] { work.queue(); });
        const double alone =
            products ? queued_seconds(device, [&] { products->queue(rows); }) : 0.0;
        const double share = bandwidth > 0.0
                                 ? static_cast<double>(model.weight_bytes_read()) / queued /
                                       bandwidth / static_cast<double>(model.devices().size())
                                 : 0.0;
        const double roofline = roofline_seconds(model, rows) / queued;
        std::printf("%6d %6d %12.1f %12.1f %14.1f %17.1f%% %17.1f%%\n", count, rows, waited * 1e6,
                    queued * 1e6, alone * 1e6, 100 * share, 100 * roofline);
        std::fflush(stdout);
        json["passes"].push_back({{"model", what},
                                  {"rows", rows},
                                  {"prefix", prefix},
                                  {"texts", count},
                                  {"waited_us", waited * 1e6},
                                  {"queued_us", queued * 1e6},
                                  {"products_us", alone * 1e6},
                                  {"bandwidth_share", share},
                                  {"roofline_share", roofline}});
      }
    }
  }

  // What a row count costs when it is met: the first three passes, which are queued kernel by
  // kernel and recorded meanwhile, each over the median of twenty later ones.
  void first_met(const char* what, LoadedModel& loaded, std::int32_t prefix,
                 const std::vector<std::int32_t>& of_rows) {
    Model& model = *loaded.model;
    Passes work(model, *loaded.pool, prefix);
    std::printf(
        "\n%s: passes of a row count when it is met, us over its later ones\n"
        "%6s %12s %12s %12s %12s\n",
        what, "rows", "first", "second", "third", "later, us");
    for (const std::int32_t rows : of_rows) {
      if (rows > model.options().max_logit_rows) continue;
      work.set(rows);
      std::vector<double> times;
      for (int i = 0; i < 24; ++i) {
        const double start = now_seconds();
        work.queue();
        model.device().synchronize();
        times.push_back((now_seconds() - start) * 1e6);
      }
      const double later = median(std::vector(times.begin() + 4, times.end()));
      std::printf("%6d %12.0f %12.0f %12.0f %12.0f\n", rows, times[0] - later, times[1] - later,
                  times[2] - later, later);
      json["first_met"].push_back({{"model", what},
                                   {"rows", rows},
                                   {"first_us", times[0]},
                                   {"second_us", times[1]},
                                   {"third_us", times[2]},
                                   {"later_us", later}});
    }
  }

  // On a CPU: all numbers of rows in turn, so that others on the machine slow them alike.
  void host_passes(const char* what, LoadedModel& loaded, std::int32_t prefix) {
    Model& model = *loaded.model;
    const auto bytes = static_cast<double>(model.weight_bytes_read());
    const double layers = layer_weights(model.config()), head = head_weights(model.config());
    std::vector<std::int32_t> rows = {1, 2, 4, 8, 16, 17, 33, 65};
    std::erase_if(rows, [&](std::int32_t r) { return r > model.options().max_logit_rows; });
    Passes work(model, *loaded.pool, prefix);
    std::vector<std::vector<double>> times(rows.size()), ratios(rows.size());
    const double end = now_seconds() + 20.0;
    while (times[0].size() < 5 || now_seconds() < end) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        work.set(rows[i]);
        const double start = now_seconds();
        work.queue();
        model.device().synchronize();
        times[i].push_back(now_seconds() - start);
        ratios[i].push_back(times[i].back() / times[0].back());
      }
    }
    std::printf(
        "\n%s: forward passes over a prefix of %d (%.0f MiB of weights read)\n"
        "%6s %12s %12s %16s %18s %18s\n",
        what, prefix, bytes / (1 << 20), "rows", "best, us", "median, us", "over 1 row's",
        "of read bandwidth", "of multiplications");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double best = *std::min_element(times[i].begin(), times[i].end());
      const double share = 2.0 * rows[i] * (layers + head) / best / operations;
      std::printf("%6d %12.1f %12.1f %16.2f %17.1f%% %17.1f%%\n", rows[i], best * 1e6,
                  median(times[i]) * 1e6, median(ratios[i]), 100 * bytes / best / bandwidth,
                  100 * share);
      json["passes"].push_back({{"model", what},
                                {"rows", rows[i]},
                                {"prefix", prefix},
                                {"best_us", best * 1e6},
                                {"median_us", median(times[i]) * 1e6},
                                {"over_one_row", median(ratios[i])},
                                {"bandwidth_share", bytes / best / bandwidth},
                                {"multiplication_share", share}});
    }
  }

  // Draft rounds with drawing, and verify passes with judging, as the host sees them.
  void sampled(std::int32_t prefix, double temperature) {
    Engine::Impl& impl = inside(engine);
    const SamplingParams params{temperature, 0, 1.0, 0.0, 1.0};
    SequenceState state = impl.new_state();
    for (const TokenId token : random_prompt(prefix, engine.vocab_size())) state.append(token);
    if (!impl.target_runner->prefill(state)) throw_failure("step: too few KV slots");
    DraftPrompt prompt{&state, params};
    if (!impl.draft_runner->prefill(prompt)) throw_failure("step: too few KV slots");
    const bool greedy = temperature == 0.0;
    const DraftRunner::Setting setting = {
        {greedy ? 0.45 : temperature, 0, 1.0, 0.0, 1.0},
        greedy ? AcceptanceRule::greedy : AcceptanceRule::rejection};
    const StepKey key{1, 0, 0, static_cast<std::uint64_t>(prefix)};
    std::printf("\nwith sampling, temperature %g: medians, us\n%6s %14s %14s\n", temperature,
                "rows", "draft round", "verify, judged");
    for (const std::int32_t rows : {1, 4, 16, 64, 128}) {
      if (rows + 64 > impl.options.max_tree_size) break;
      const double round = draft_round(state, key, setting, rows);
      const double verify = judged_pass(state, key, params, setting, rows);
      std::printf("%6d %14.1f %14.1f\n", rows, round * 1e6, verify * 1e6);
      json["sampled"].push_back({{"temperature", temperature},
                                 {"rows", rows},
                                 {"draft_round_us", round * 1e6},
                                 {"verify_us", verify * 1e6}});
    }
  }

  // A tree of `size` nodes: the root's children first, then theirs.
  TokenTree bush(DraftStep& draft, SequenceState& state, std::int32_t size) {
    TokenTree tree;
    tree.reset(state.tokens.back());
    std::vector<std::int32_t> layer = {0};
    while (tree.size() < size) {
      draft.evaluate(tree, layer);
      std::vector<std::int32_t> next;
      for (std::int32_t rank = 0; rank < 24 && tree.size() < size; ++rank) {
        for (const std::int32_t node : layer) {
          if (tree.size() >= size) break;
          if (const auto child = draft.child(tree, node, rank)) {
            next.push_back(tree.add(node, child->token, rank, child->prob, 1.0));
          }
        }
      }
      if (next.empty()) throw_failure("step: the draft draws too few children for this tree");
      layer = next;
    }
    return tree;
  }

  double draft_round(SequenceState& state, const StepKey& key, const DraftRunner::Setting& setting,
                     std::int32_t rows) {
    DraftRunner& draft = *inside(engine).draft_runner;
    std::vector<double> times;
    for (int i = 0; i < 13; ++i) {
      const DraftRunner::Step step = draft.begin(state, key, setting);
      // All leaves of a bush whose last layer has `rows` nodes, or nearly so.
      TokenTree tree = bush(*step, state, rows <= 24 ? rows : rows + 24);
      std::vector<std::int32_t> last;
      std::vector<char> inner(static_cast<std::size_t>(tree.nodes()), 0);
      for (std::size_t n = 1; n < inner.size(); ++n) {
        inner[static_cast<std::size_t>(tree.parent[n])] = 1;
      }
      for (std::int32_t n = 1; n <= tree.size(); ++n) {
        if (inner[static_cast<std::size_t>(n)] == 0) last.push_back(n);
      }
      const double start = now_seconds();
      step->evaluate(tree, last);
      if (i >= 3) times.push_back(now_seconds() - start);
      state.cut(state.length());  // the root's draft KV goes too
    }
    return median(times);
  }

  double judged_pass(SequenceState& state, const StepKey& key, const SamplingParams& params,
                     const DraftRunner::Setting& setting, std::int32_t size) {
    Engine::Impl& impl = inside(engine);
    const auto judge = impl.make_judge();
    const DraftRunner::Step step = impl.draft_runner->begin(state, key, setting);
    const TokenTree tree = bush(*step, state, size);
    Verdict verdict;
    StepSeconds unused;
    const TextTree text{
        &state,  &tree,
        params,  params.temperature == 0.0 ? AcceptanceRule::greedy : AcceptanceRule::rejection,
        key,     &step->sampler(),
        &verdict};
    const double seconds = median_seconds(20, [&] {
      if (!judge->judge({&text, 1}, unused)) {
        throw_failure("step: too few KV slots");
      }
    });
    state.cut(state.length());
    return seconds;
  }

  // The first token comes with the prompt's prefill. Prompts beyond 2048 tokens run once.
  void first_tokens(std::int32_t longest) {
    const Model& model = *inside(engine).target.model;
    std::printf("\nplain decoding: medians\n%14s %16s %15s %14s\n", "prompt tokens",
                "first token, us", "in plain steps", "of matrix rate");
    for (const std::int32_t length : {128, 512, 2048, 8192, 32768, 65536, 131072}) {
      if (length + 3 > engine.context_length() || length > std::max(2048, longest)) break;
      GenerateOptions options;
      options.speculation = Plain{};
      options.max_new_tokens = 3;
      options.ignore_eos = true;
      const auto prompt = random_prompt(length, engine.vocab_size());
      std::vector<double> prefills, steps;
      const int rounds = length > 2048 ? 1 : 8;
      for (int round = 0; round < rounds; ++round) {
        const Statistics s = engine.generate(prompt, options).statistics;
        if (round < 3 && rounds > 3) continue;
        prefills.push_back(s.seconds.prefill);
        steps.push_back(s.decode_seconds() / 2);
      }
      const double prefill = median(prefills), step = median(steps);
      const double work =
          2.0 * (layer_weights(model.config()) * length + head_weights(model.config()));
      const double share = operations > 0.0 ? work / prefill / operations : 0.0;
      std::printf("%14d %16.0f %15.2f %13.1f%%\n", length, prefill * 1e6, prefill / step,
                  100 * share);
      json["prefill"].push_back({{"tokens", length},
                                 {"first_token_us", prefill * 1e6},
                                 {"plain_steps", prefill / step},
                                 {"matrix_share", share}});
    }
  }

  void generations(std::int32_t prefix, std::int32_t new_tokens) {
    struct Setting {
      const char* name;
      Speculation speculation;
    };
    std::printf(
        "\nwhole generations: %d-token prompt, %d new tokens; us per step by component\n"
        "%-12s %5s %8s %9s %9s %9s %9s %9s %9s\n",
        prefix, new_tokens, "policy", "T", "tok/s", "accepted", "rounds", "draft", "verify",
        "sampling", "host");
    const auto prompt = random_prompt(prefix, engine.vocab_size());
    for (const double temperature : {0.0, 0.8}) {
      for (const Setting& s :
           {Setting{"none", Plain{}}, Setting{"chain 4", Chain{4}},
            Setting{"dyspec 64", Dyspec{64}}, Setting{"dyspec auto", Dyspec{}}}) {
        GenerateOptions options;
        options.max_new_tokens = new_tokens;
        options.ignore_eos = true;
        options.sampling.temperature = temperature;
        options.speculation = s.speculation;
        options.lookup = Lookup::none;
        options.seed = 1;
        std::vector<Statistics> runs;
        for (int round = 0; round < 4; ++round) {
          const Statistics run = engine.generate(prompt, options).statistics;
          if (round > 0) runs.push_back(run);
        }
        std::sort(runs.begin(), runs.end(), [](const Statistics& a, const Statistics& b) {
          return a.decode_tokens_per_second < b.decode_tokens_per_second;
        });
        const Statistics& m = runs[runs.size() / 2];
        const auto steps = static_cast<double>(m.steps);
        const auto us = [&](double seconds) { return seconds / steps * 1e6; };
        const double rounds = static_cast<double>(m.draft_passes) / steps;
        std::printf("%-12s %5.1f %8.1f %9.2f %9.2f %9.1f %9.1f %9.1f %9.1f\n", s.name, temperature,
                    m.decode_tokens_per_second, m.accepted_length, rounds, us(m.seconds.draft),
                    us(m.seconds.verify), us(m.seconds.sampling), us(m.seconds.other));
        json["generations"].push_back({{"policy", s.name},
                                       {"temperature", temperature},
                                       {"tokens_per_second", m.decode_tokens_per_second},
                                       {"accepted_length", m.accepted_length},
                                       {"draft_rounds", rounds},
                                       {"draft_us", us(m.seconds.draft)},
                                       {"verify_us", us(m.seconds.verify)},
                                       {"sampling_us", us(m.seconds.sampling)},
                                       {"host_us", us(m.seconds.other)},
                                       {"prefill_s", m.seconds.prefill}});
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) try {
  EngineOptions load;
  std::string target, draft, device, dtype, json_file, target_weights, draft_weights;
  bool passes_only = false, products_alone = false, shuffled_slots = false, first_met = false;
  std::string rows_text, texts_text;
  std::int32_t prefix = 0, new_tokens = 0;
  po::options_description options("bench/step");
  const std::string models = COPPICE_SOURCE_DIR "/models/stories/";
  options.add_options()("help", "print this")(
      "target", po::value(&target)->default_value(models + "target"), "model folder")(
      "draft", po::value(&draft)->default_value(models + "draft"), "model folder")(
      "device", po::value(&device)->default_value("auto"), "auto, cpu or cuda")(
      "threads", po::value(&load.threads)->default_value(0), "CPU threads")(
      "cpu-dtype", po::value(&dtype)->default_value("auto"), "auto, f32 or bf16")(
      "target-weights", po::value(&target_weights)->default_value("keep"), "as coppice's")(
      "draft-weights", po::value(&draft_weights)->default_value("keep"), "as coppice's")(
      "prefix", po::value(&prefix)->default_value(128), "tokens of text")(
      "max-new-tokens", po::value(&new_tokens)->default_value(128), "of generations; 0: none")(
      "kv-tokens", po::value(&load.kv_tokens)->default_value(0), "")(
      "tensor-parallel", po::value(&load.tensor_parallel)->default_value(1),
      "GPUs that share the target")("max-tree-size",
                                    po::value(&load.max_tree_size)->default_value(256), "")(
      "rows",
      po::value(&rows_text)->default_value("1,2,4,8,16,17,33,65,97,129,193,257,321,385,449,512"),
      "on a GPU: passes of these many rows, up to max-tree-size + 1")(
      "texts", po::value(&texts_text)->default_value("1"),
      "on a GPU: these many texts share the rows out, each with --prefix tokens before; more than "
      "one with --passes-only")("shuffled-slots", po::bool_switch(&shuffled_slots),
                                "their KV lies in no order")(
      "products-alone", po::bool_switch(&products_alone),
      "on a GPU: the passes' matrix products without the rest, too")(
      "first-met", po::bool_switch(&first_met),
      "on a GPU: what passes of a row count cost when they come for the first time, and nothing "
      "else")("passes-only", po::bool_switch(&passes_only), "no sampling, no generations")(
      "json", po::value(&json_file), "also write the figures here");
  po::variables_map values;
  if (!bench::parse_options(argc, argv, options, values)) return 0;
  const std::vector<std::int32_t> rows = rows_in(rows_text);
  const std::vector<std::int32_t> texts = rows_in(texts_text);
  load.max_sequences = *std::max_element(texts.begin(), texts.end());
  if (load.max_sequences > 1 && !passes_only) throw_usage("--texts needs --passes-only");
  load.target = target;
  load.draft = draft;
  load.device = bench::device_in(device);
  load.cpu_dtype = bench::cpu_dtype_in(dtype);
  load.target_weights = bench::rounding_in(target_weights);
  load.draft_weights = bench::rounding_in(draft_weights);
  cli::ProgressLine progress(true);
  load.progress = [&](const LoadEvent& event) {
    progress.show(cat("loading ", event.what), event.fraction);
    if (event.fraction >= 1.0) progress.clear();
  };
  double bandwidth = 0.0, operations = 0.0;
#ifdef COPPICE_HAS_CUDA
  if (load.device != DeviceKind::cpu) bandwidth = bench::read_bandwidth();
  if (bandwidth > 0.0) operations = bench::matrix_rate(nullptr);
#endif
  Engine engine = Engine::load(load);
  Engine::Impl& impl = inside(engine);
  if (impl.device->shares_host_memory()) {
    bandwidth = bench::host_read_bandwidth(impl.device->threads());
    operations = bench::host_fma_rate(impl.device->threads());
  }
  Bench bench{engine, bandwidth, operations, products_alone, texts, shuffled_slots, {}};
  std::printf("%s, %s, loaded in %.1f s", impl.device->description().c_str(),
              name_of(impl.device->compute_dtype()), engine.load_seconds());
  std::printf(", reads %.1f GB/s", bandwidth * 1e-9);
  std::printf(", multiplies %.3g TFLOP/s", operations * 1e-12);
  std::printf("\n");
  for (const MemoryUse& use : impl.device->memory_use()) {
    if (use.bytes < 16u << 20) continue;
    std::printf("  %-28s %8.0f MiB\n", use.purpose.c_str(),
                static_cast<double>(use.bytes) / (1 << 20));
    bench.json["memory"][use.purpose] = use.bytes;
  }
  bench.json["device"] = impl.device->description();
  bench.json["read_bandwidth"] = bandwidth;
  bench.json["matrix_rate"] = operations;
  bench.json["load_seconds"] = engine.load_seconds();
  bench.json["target"] = target;
  bench.json["draft"] = draft;
  const bool on_host = impl.device->shares_host_memory();
  for (const auto& [what, loaded] : {std::pair{"target", &impl.target}, {"draft", &impl.draft}}) {
    if (first_met) {
      bench.first_met(what, *loaded, prefix, rows);
    } else if (on_host) {
      bench.host_passes(what, *loaded, prefix);
    } else {
      bench.passes(what, *loaded, prefix, rows);
    }
  }
  if (!passes_only && !first_met) {
    bench.first_tokens(prefix);
    bench.sampled(prefix, 0.0);
    bench.sampled(prefix, 0.8);
    if (new_tokens > 0) bench.generations(prefix, new_tokens);
  }
  if (!json_file.empty()) std::ofstream(json_file) << bench.json.dump(2) << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "step: " << error.what() << "\n";
  return bench::exit_code_of(error);
}
