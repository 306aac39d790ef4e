// Speed of whole generations on this machine: plain decoding, chains, DySpec, on the same
// prompts, interleaved.
//
// Every prompt runs under every setting, one after the other, `rounds` times; a setting's time
// for a prompt is the median of its rounds. Speed-up is plain decoding's time over the
// setting's, summed over prompts (decode time: prefill left out, as for plain decoding), with a
// 95% interval by bootstrap over prompts. Automatic sizes are also held against the best fixed one
// of the same run: in hindsight, and as chosen on the other half of the prompts, so that luck in
// the choice does not count. With --cpu-seconds, time is the process's CPU time, prefill included,
// which others on the machine hardly change (for one thread). With --priced-by, time is what a
// table of another device's costs says, while texts and acceptance are real. `hindsight` is then
// what each setting's trees would bring if every step's had ended where that pays best, by one who
// knows which nodes are accepted: the limit of what choosing sizes can bring.
#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/stopwatch.h"
#include "cli/terminal.h"
#include "coppice.h"
#include "engine/engine_impl.h"
#include "median.h"
#include "options.h"
#include "priced_steps.h"
#include "reference/tiny_model.h"
#include "settings.h"
#include "texts.h"

namespace {

using namespace coppice;
namespace po = boost::program_options;

using bench::PromptLine;
using bench::Setting;

/// One prompt under one setting.
struct Run {
  std::vector<double> seconds;  ///< decode, by round
  double steps = 0, judged = 0, tree = 0, passes = 0, decode = 0;
  double draft = 0, verify = 0, sampling = 0, other = 0;  ///< seconds
  std::vector<std::vector<bench::StepEnd>> ends;          ///< where steps are priced
  double median() const { return bench::median(seconds); }
};

double ratio_of_sums(const std::vector<Run>& plain, const std::vector<Run>& other,
                     const std::vector<std::size_t>& which) {
  double a = 0, b = 0;
  for (const std::size_t i : which) {
    a += plain[i].median();
    b += other[i].median();
  }
  return a / b;
}

std::pair<double, double> interval(const std::vector<Run>& plain, const std::vector<Run>& other,
                                   const std::vector<std::size_t>& which) {
  std::mt19937 rng(1);
  std::uniform_int_distribution<std::size_t> pick(0, which.size() - 1);
  std::vector<double> ratios;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::size_t> sample;
    for (std::size_t j = 0; j < which.size(); ++j) sample.push_back(which[pick(rng)]);
    ratios.push_back(ratio_of_sums(plain, other, sample));
  }
  std::sort(ratios.begin(), ratios.end());
  return {ratios[50], ratios[1949]};
}

/// Finds the fixed setting with the least time over `which`; 0, plain decoding, counts too.
std::size_t best_fixed(const std::vector<Setting>& settings,
                       const std::vector<std::vector<Run>>& runs,
                       const std::vector<std::size_t>& which) {
  std::size_t best = 0;
  for (std::size_t s = 1; s < settings.size(); ++s) {
    if (settings[s].tree_size() > 0 && ratio_of_sums(runs[best], runs[s], which) > 1.0) best = s;
  }
  return best;
}

/// Tokens per second of an automatic setting over those of the best fixed one chosen on the other
/// half of the prompts: the mean of both ways.
double against_best_elsewhere(const std::vector<Setting>& settings,
                              const std::vector<std::vector<Run>>& runs, std::size_t automatic) {
  std::array<std::vector<std::size_t>, 2> half;
  for (std::size_t p = 0; p < runs[0].size(); ++p) half[p % 2].push_back(p);
  double sum = 0.0;
  for (const std::size_t h : {0u, 1u}) {
    const std::size_t best = best_fixed(settings, runs, half[1 - h]);
    sum += 0.5 * ratio_of_sums(runs[best], runs[automatic], half[h]);
  }
  return sum;
}

/// Prompts in an order that takes one of each kind in turn, so that the first few are of all kinds.
std::vector<std::size_t> alternating(const std::vector<PromptLine>& prompts) {
  std::map<std::string, std::size_t> seen;
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t p = 0; p < prompts.size(); ++p) order.emplace_back(seen[prompts[p].kind]++, p);
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> prompt;
  for (const auto& [turn, p] : order) prompt.push_back(p);
  return prompt;
}

/// Those of `all` that are at `places`, in rising order.
template <typename T>
void keep_only(std::vector<T>& all, std::vector<std::size_t> places) {
  std::sort(places.begin(), places.end());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] != i) all[i] = std::move(all[places[i]]);
  }
  all.resize(places.size());
}

void use_prices(const StepSeconds& steps, Statistics& st) {
  st.seconds = {};
  st.seconds.draft = steps.draft;
  st.seconds.verify = steps.verify;
  st.seconds.sampling = steps.judging;
  st.seconds.total = steps.draft + steps.verify + steps.judging;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string target, draft, prompts_file, dtype, device, settings_text, cost_table, prompts_out;
  std::string priced_by, target_weights, draft_weights;
  int per_kind = 0, new_tokens = 0, rounds = 0, threads = 0, prompt_tokens = 0, seeds = 0;
  std::int32_t tensor_parallel = 1;
  double temperature = 0, most_seconds = 0;
  std::optional<double> draft_temperature;
  po::options_description options("bench/generate");
  const std::string models = COPPICE_SOURCE_DIR "/models/stories/";
  options.add_options()("help", "print this")(
      "target", po::value(&target)->default_value(models + "target"), "model folder")(
      "draft", po::value(&draft)->default_value(models + "draft"), "model folder, or random")(
      "target-weights", po::value(&target_weights)->default_value("keep"), "as coppice's")(
      "draft-weights", po::value(&draft_weights)->default_value("keep"), "as coppice's")(
      "tensor-parallel", po::value(&tensor_parallel)->default_value(1),
      "GPUs that share the target")(
      "prompts",
      po::value(&prompts_file)->default_value(COPPICE_SOURCE_DIR "/bench/prompts/prompts.jsonl"),
      "JSON lines with kind and prompt")("per-kind", po::value(&per_kind)->default_value(6),
                                         "prompts of each kind")(
      "prompt-tokens", po::value(&prompt_tokens)->default_value(0),
      "cut prompts to this many tokens, and have the target continue shorter ones; 0: as they are")(
      "prompts-out", po::value(&prompts_out),
      "also write the prompts' token ids here, as JSON lines")(
      "max-new-tokens", po::value(&new_tokens)->default_value(128), "")(
      "device", po::value(&device)->default_value("cpu"), "cpu, cuda or auto")(
      "rounds", po::value(&rounds)->default_value(3), "")(
      "seconds", po::value(&most_seconds)->default_value(0),
      "begin no round that would end later than this, and cut the first one short, but not below a "
      "prompt of each kind; 0: no limit")(
      "race", "after the first round, go on with the fixed sizes within 15% of the best one alone")(
      "seeds", po::value(&seeds)->default_value(1),
      "texts of each prompt, with seeds of their own")(
      "priced-by", po::value(&priced_by),
      "price steps, and choose automatic sizes, by this table of another device's costs, not by "
      "the clock (bench/costs)")("threads", po::value(&threads)->default_value(2), "")(
      "dtype", po::value(&dtype)->default_value("f32"), "f32 or bf16: of activations")(
      "temperature", po::value(&temperature)->default_value(0.0), "")(
      "draft-temperature",
      po::value<double>()->notifier([&](double given) { draft_temperature = given; }),
      "")("cost-table", po::value(&cost_table), "")(
      "settings",
      po::value(&settings_text)
          ->default_value("chain:2,chain:3,chain:4,chain:6,chain:8,chain:0,dyspec:4,dyspec:8,"
                          "dyspec:16,dyspec:0,dyspec:0:coupled"),
      "policy:size[:coupled|:auto][:plain], comma-separated; size 0 is auto; plain decoding is "
      "always there")("cpu-seconds", "time by the process's CPU time, not the clock")(
      "json", po::value<std::string>(), "file for the figures");
  po::variables_map values;
  if (!bench::parse_options(argc, argv, options, values)) return 0;

  std::vector<PromptLine> prompts = bench::read_prompt_lines(prompts_file, per_kind);
  std::vector<std::string> kinds;
  for (const PromptLine& prompt : prompts) {
    if (std::find(kinds.begin(), kinds.end(), prompt.kind) == kinds.end()) {
      kinds.push_back(prompt.kind);
    }
  }
  if (new_tokens < 2) throw std::runtime_error("--max-new-tokens: the first comes with the prompt");
  const std::size_t texts = prompts.size();

  const std::vector<Setting> settings = bench::plain_and(settings_text);
  testing::TemporaryFolder temporary;
  if (draft == "random") {
    draft = temporary.path() / "draft";
    bench::write_useless_draft(models + "draft", draft);
  }
  EngineOptions load;
  load.max_sequences = 1;
  load.tensor_parallel = tensor_parallel;
  load.target = target;
  load.draft = draft;
  load.target_weights = bench::rounding_in(target_weights);
  load.draft_weights = bench::rounding_in(draft_weights);
  load.device = bench::device_in(device);
  load.cpu_dtype = bench::cpu_dtype_in(dtype);
  load.prefix_cache = false;  // a prompt that comes again is computed again
  load.threads = threads;
  load.cost_table = cost_table;
  Engine engine = Engine::load(load);

  std::vector<std::vector<TokenId>> prompt_ids =
      bench::tokenized(engine, prompts, static_cast<std::size_t>(prompt_tokens));
  if (!prompts_out.empty()) bench::write_prompts(prompts, prompt_ids, prompts_out);
  // Every seed of a prompt is a prompt of its own from here.
  for (std::size_t i = texts; i < texts * static_cast<std::size_t>(seeds); ++i) {
    prompts.push_back(prompts[i - texts]);
    prompt_ids.push_back(prompt_ids[i - texts]);
  }
  std::unique_ptr<bench::PricedSteps> priced;
  if (!priced_by.empty()) {
    priced = std::make_unique<bench::PricedSteps>(priced_by);
    inside(engine).costs = priced->costs();
    inside(engine).costs_are_saved = true;
    inside(engine).observer = [&](const StepView& step) { priced->add(step); };
    rounds = 1;
  }
  std::vector<std::vector<Run>> runs(settings.size(), std::vector<Run>(prompts.size()));
  cli::ProgressLine progress(true);
  const std::size_t all = static_cast<std::size_t>(rounds) * prompts.size() * settings.size();
  std::size_t done = 0;
  std::string dtype_used;
  const double start = now_seconds();
  double last_round = 0.0;
  std::vector<bool> dropped(settings.size(), false);
  std::vector<std::size_t> order = alternating(prompts), everything;
  for (int round = -1; round < rounds; ++round) {
    const double round_start = now_seconds();
    if (round > 0 && most_seconds > 0 && round_start + last_round > start + most_seconds) {
      rounds = round;
      break;
    }
    for (std::size_t turn = 0; turn < order.size(); ++turn) {
      const std::size_t p = order[turn];
      if (round < 0 && turn > 0) continue;  // warm-up
      const double each =
          turn > 0 ? (now_seconds() - round_start) / static_cast<double>(turn) : 0.0;
      if (round == 0 && most_seconds > 0 && turn >= kinds.size() &&
          now_seconds() + each > start + most_seconds) {
        order.resize(turn);
        keep_only(prompts, order);
        keep_only(prompt_ids, order);
        for (auto& of_setting : runs) keep_only(of_setting, order);
        order = alternating(prompts);
        rounds = 1;
        break;
      }
      for (std::size_t s = 0; s < settings.size(); ++s) {
        if (round > 0 && dropped[s]) continue;
        GenerateOptions request = bench::request_of(settings[s], temperature);
        request.draft_temperature = draft_temperature;
        request.max_new_tokens = new_tokens;
        request.seed = p;
        const double cpu_before = bench::cpu_seconds();
        Generation g = engine.generate(prompt_ids[p], request);
        const double cpu = bench::cpu_seconds() - cpu_before;
        Statistics& st = g.statistics;
        if (priced) use_prices(priced->take(), st);
        if (priced && round < 0) (void)priced->take_ends();
        if (round < 0) continue;
        dtype_used = g.used.dtype;
        Run& run = runs[s][p];
        const bool by_cpu = values.count("cpu-seconds") != 0;
        const double decode =
            by_cpu ? cpu : st.seconds.total - st.seconds.load - st.seconds.prefill;
        const auto decoded =
            static_cast<double>(g.tokens.size()) - (by_cpu ? 0 : st.prefill_tokens);
        run.seconds.push_back(decode * new_tokens / decoded);
        run.decode += decode;
        run.steps += static_cast<double>(st.steps);
        run.judged += st.accepted_length * static_cast<double>(st.steps);
        run.tree += st.tree_size_mean * static_cast<double>(st.steps);
        run.passes += static_cast<double>(st.draft_passes);
        run.draft += st.seconds.draft;
        run.verify += st.seconds.verify;
        run.sampling += st.seconds.sampling;
        run.other += st.seconds.other;
        if (priced) run.ends = priced->take_ends();
        progress.show("measuring", static_cast<double>(++done) / static_cast<double>(all));
      }
    }
    last_round = now_seconds() - round_start;
    everything.resize(prompts.size());
    std::iota(everything.begin(), everything.end(), std::size_t{0});
    if (round != 0 || values.count("race") == 0) continue;
    const std::size_t best = best_fixed(settings, runs, everything);
    for (std::size_t s = 1; s < settings.size(); ++s) {
      dropped[s] =
          settings[s].tree_size() > 0 && ratio_of_sums(runs[best], runs[s], everything) < 1 / 1.15;
    }
    last_round *= static_cast<double>(std::count(dropped.begin(), dropped.end(), false)) /
                  static_cast<double>(settings.size());
  }
  progress.clear();

  std::printf(
      "coppice %s, %s, %s, %d threads, temperature %g, %zu prompts x %d tokens, %d rounds\n",
      version(), device.c_str(), dtype_used.c_str(), threads, temperature, prompts.size(),
      new_tokens, rounds);
  if (priced) std::printf("priced by %s\n", priced->costs().fingerprint.c_str());
  std::printf("%-32s %8s %-21s %8s %6s %7s %7s %7s %8s", "setting", "tok/s", "speed-up [95%]",
              "accepted", "tree", "passes", "draft%", "verify%", "outside%");
  if (priced) std::printf(" %9s", "hindsight");
  for (const auto& kind : kinds) std::printf(" %20s", kind.c_str());
  std::printf("\n");
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < settings.size(); ++s) {
    Run sum;
    double median_seconds = 0;
    for (const Run& r : runs[s]) {
      median_seconds += r.median();
      sum.steps += r.steps;
      sum.judged += r.judged;
      sum.tree += r.tree;
      sum.passes += r.passes;
      sum.sampling += r.sampling;
      sum.other += r.other;
      sum.decode += r.decode;
      sum.draft += r.draft;
      sum.verify += r.verify;
      sum.ends.insert(sum.ends.end(), r.ends.begin(), r.ends.end());
    }
    const double speed = static_cast<double>(prompts.size()) * new_tokens / median_seconds;
    const double ratio = ratio_of_sums(runs[0], runs[s], everything);
    const auto [low, high] = interval(runs[0], runs[s], everything);
    std::printf("%-32s %8.0f %5.3f [%5.3f, %5.3f]  %8.2f %6.1f %7.2f %7.1f %7.1f %8.1f",
                settings[s].name.c_str(), speed, ratio, low, high, sum.judged / sum.steps,
                sum.tree / sum.steps, sum.passes / sum.steps, 100 * sum.draft / sum.decode,
                100 * sum.verify / sum.decode, 100 * (sum.sampling + sum.other) / sum.decode);
    nlohmann::ordered_json row = {{"setting", settings[s].name},
                                  {"tokens_per_second", speed},
                                  {"speedup", ratio},
                                  {"low", low},
                                  {"high", high},
                                  {"accepted_length", sum.judged / sum.steps},
                                  {"tree_size_mean", sum.tree / sum.steps},
                                  {"passes_per_step", sum.passes / sum.steps},
                                  {"us_per_step",
                                   {{"draft", 1e6 * sum.draft / sum.steps},
                                    {"verify", 1e6 * sum.verify / sum.steps},
                                    {"sampling", 1e6 * sum.sampling / sum.steps},
                                    {"other", 1e6 * sum.other / sum.steps}}},
                                  {"outside_share", (sum.sampling + sum.other) / sum.decode}};
    if (priced) {
      const double hindsight = bench::best_rate(sum.ends);
      std::printf(" %9.0f", hindsight);
      row["hindsight"] = hindsight;
    }
    for (const auto& kind : kinds) {
      std::vector<std::size_t> which;
      for (std::size_t p = 0; p < prompts.size(); ++p) {
        if (prompts[p].kind == kind) which.push_back(p);
      }
      const double r = ratio_of_sums(runs[0], runs[s], which);
      const auto [l, h] = interval(runs[0], runs[s], which);
      std::printf(" %5.2f [%5.2f, %5.2f]", r, l, h);
      row["kinds"][kind] = {{"speedup", r}, {"low", l}, {"high", h}};
    }
    std::printf("\n");
    report.push_back(row);
  }
  std::printf("\n%-32s %8s %8s %8s %8s %8s   us per step\n", "setting", "draft", "verify",
              "sampling", "other", "all");
  for (const auto& row : report) {
    const auto& us = row.at("us_per_step");
    const double draft_us = us.at("draft"), verify_us = us.at("verify");
    const double sampling_us = us.at("sampling"), other_us = us.at("other");
    std::printf("%-32s %8.0f %8.0f %8.0f %8.0f %8.0f\n",
                row.at("setting").get<std::string>().c_str(), draft_us, verify_us, sampling_us,
                other_us, draft_us + verify_us + sampling_us + other_us);
  }
  const std::size_t best = best_fixed(settings, runs, everything);
  if (prompts.size() >= 2 && best > 0) {
    std::printf("\nagainst the best fixed setting, %s\n", settings[best].name.c_str());
    for (std::size_t s = 1; s < settings.size(); ++s) {
      if (settings[s].tree_size() > 0) continue;
      const double r = ratio_of_sums(runs[best], runs[s], everything);
      const auto [l, h] = interval(runs[best], runs[s], everything);
      const double elsewhere = against_best_elsewhere(settings, runs, s);
      std::printf("%-32s %5.3f [%5.3f, %5.3f], chosen on other prompts %5.3f\n",
                  settings[s].name.c_str(), r, l, h, elsewhere);
      report[s]["against_best"] = {{"setting", settings[best].name},
                                   {"ratio", r},
                                   {"low", l},
                                   {"high", h},
                                   {"chosen_elsewhere", elsewhere}};
    }
  }
  if (values.count("json") != 0) {
    std::ofstream out(values["json"].as<std::string>());
    out << report.dump(1) << '\n';
    if (!out) throw std::runtime_error("the figures could not be written");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench/generate: %s\n", error.what());
  return bench::exit_code_of(error);
}
