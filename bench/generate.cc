// Speed of whole generations on this machine: plain decoding, chains, DySpec, on the same
// prompts, interleaved.
//
// Every prompt runs under every setting, one after the other, `rounds` times; a setting's time
// for a prompt is the median of its rounds. Speed-up is plain decoding's time over the
// setting's, summed over prompts (decode time: prefill left out, as for plain decoding), with a
// 95% interval by bootstrap over prompts.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/terminal.h"
#include "coppice.h"
#include "reference/tiny_model.h"

namespace {

using namespace coppice;
namespace po = boost::program_options;

struct PromptLine {
  std::string kind, text;
};

struct Setting {
  std::string name;
  Policy policy;
  std::int32_t tree_size;
  Acceptance acceptance;
};

/// One prompt under one setting.
struct Run {
  std::vector<double> seconds;  ///< decode, by round
  double tokens = 0, steps = 0, judged = 0, tree = 0, passes = 0, outside = 0, decode = 0;
  double draft = 0, verify = 0;
  double median() const {
    auto s = seconds;
    std::nth_element(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(s.size() / 2), s.end());
    return s[s.size() / 2];
  }
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

// A draft of the shipped draft's shape with random weights: what speculation must survive.
void write_useless_draft(const std::filesystem::path& like, const std::filesystem::path& dir) {
  const auto config = nlohmann::json::parse(std::ifstream(like / "config.json"));
  testing::TinyModel model;
  model.vocab_size = config.at("vocab_size");
  model.hidden_size = config.at("hidden_size");
  model.intermediate_size = config.at("intermediate_size");
  model.layers = config.at("num_hidden_layers");
  model.heads = config.at("num_attention_heads");
  model.kv_heads = config.at("num_key_value_heads");
  model.head_dim = config.at("head_dim");
  model.context_length = config.at("max_position_embeddings");
  model.tie_word_embeddings = true;
  model.dtype = DType::bf16;
  model.logit_scale = 3.0;
  testing::write_tiny_model(dir, model);
  std::filesystem::copy_file(like / "tokenizer.model", dir / "tokenizer.model");
}

}  // namespace

int main(int argc, char** argv) try {
  std::string target, draft, prompts_file, dtype, settings_text, cost_table;
  int per_kind = 0, new_tokens = 0, rounds = 0, threads = 0;
  double temperature = 0, draft_temperature = -1;
  po::options_description options("bench/generate");
  const std::string models = COPPICE_SOURCE_DIR "/models/stories/";
  options.add_options()("help", "print this")(
      "target", po::value(&target)->default_value(models + "target"), "model folder")(
      "draft", po::value(&draft)->default_value(models + "draft"), "model folder, or random")(
      "prompts",
      po::value(&prompts_file)->default_value(COPPICE_SOURCE_DIR "/bench/prompts/prompts.jsonl"),
      "JSON lines with kind and prompt")("per-kind", po::value(&per_kind)->default_value(6),
                                         "prompts of each kind")(
      "max-new-tokens", po::value(&new_tokens)->default_value(128), "")(
      "rounds", po::value(&rounds)->default_value(3), "")(
      "threads", po::value(&threads)->default_value(2), "")(
      "dtype", po::value(&dtype)->default_value("auto"), "auto, f32 or bf16")(
      "temperature", po::value(&temperature)->default_value(0.0), "")(
      "draft-temperature", po::value(&draft_temperature), "")("cost-table", po::value(&cost_table),
                                                              "")(
      "settings",
      po::value(&settings_text)
          ->default_value("chain:2,chain:3,chain:4,chain:6,chain:8,chain:0,dyspec:4,dyspec:8,"
                          "dyspec:16,dyspec:0,dyspec:0:coupled"),
      "policy:size[:coupled], comma-separated; size 0 is auto; plain decoding is always there")(
      "json", po::value<std::string>(), "file for the figures");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, options), values);
  po::notify(values);
  if (values.count("help") != 0) {
    std::cout << options;
    return 0;
  }

  std::vector<PromptLine> prompts;
  std::map<std::string, int> taken;
  std::vector<std::string> kinds;
  std::ifstream in(prompts_file);
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    const std::string kind = json.at("kind");
    if (taken[kind]++ >= per_kind) continue;
    if (taken[kind] == 1) kinds.push_back(kind);
    prompts.push_back({kind, json.at("prompt")});
  }
  if (prompts.empty()) throw std::runtime_error("no prompts in " + prompts_file);

  std::vector<Setting> settings = {{"plain", Policy::none, 0, Acceptance::rejection}};
  std::stringstream list(settings_text);
  for (std::string word; std::getline(list, word, ',');) {
    std::stringstream parts(word);
    std::string policy, size, acceptance;
    std::getline(parts, policy, ':');
    std::getline(parts, size, ':');
    std::getline(parts, acceptance, ':');
    Setting s;
    s.policy = policy == "chain"       ? Policy::chain
               : policy == "threshold" ? Policy::dyspec_threshold
                                       : Policy::dyspec;
    s.tree_size = std::stoi(size);
    s.acceptance = acceptance == "coupled" ? Acceptance::coupled : Acceptance::rejection;
    s.name = policy + " " + (s.tree_size == 0 ? "auto" : size) +
             (acceptance == "coupled" ? " coupled" : "");
    settings.push_back(s);
  }

  testing::TemporaryFolder temporary;
  if (draft == "random") {
    draft = temporary.path() / "draft";
    write_useless_draft(models + "draft", draft);
  }
  EngineOptions load;
  load.target = target;
  load.draft = draft;
  load.cpu_dtype = dtype;
  load.threads = threads;
  load.cost_table = cost_table;
  Engine engine = Engine::load(load);

  std::vector<std::vector<Run>> runs(settings.size(), std::vector<Run>(prompts.size()));
  cli::ProgressLine progress(true);
  const std::size_t all = static_cast<std::size_t>(rounds) * prompts.size() * settings.size();
  std::size_t done = 0;
  std::string dtype_used;
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      if (round < 0 && p > 0) continue;  // warm-up
      const auto tokens = engine.tokenize(prompts[p].text);
      for (std::size_t s = 0; s < settings.size(); ++s) {
        GenerateOptions request;
        request.policy = settings[s].policy;
        request.tree_size = settings[s].tree_size;
        request.acceptance = settings[s].acceptance;
        request.temperature = temperature;
        request.draft_temperature = draft_temperature;
        request.max_new_tokens = new_tokens;
        request.ignore_eos = true;
        request.seed = p;
        const Generation g = engine.generate(tokens, request);
        if (round < 0) continue;
        const Statistics& st = g.statistics;
        dtype_used = st.dtype;
        Run& run = runs[s][p];
        const double decode = st.seconds.total - st.seconds.load - st.seconds.prefill;
        run.seconds.push_back(decode * new_tokens / static_cast<double>(g.tokens.size()));
        run.decode += decode;
        run.tokens += static_cast<double>(g.tokens.size());
        run.steps += static_cast<double>(st.steps);
        run.judged += st.accepted_length * static_cast<double>(st.steps);
        run.tree += st.tree_size_mean * static_cast<double>(st.steps);
        run.passes += static_cast<double>(st.draft_passes);
        run.draft += st.seconds.draft;
        run.verify += st.seconds.verify;
        run.outside += st.seconds.sampling + st.seconds.other;
        progress.show("measuring", static_cast<double>(++done) / static_cast<double>(all));
      }
    }
  }
  progress.clear();

  std::printf("coppice %s, %s, %d threads, temperature %g, %zu prompts x %d tokens, %d rounds\n",
              version(), dtype_used.c_str(), threads, temperature, prompts.size(), new_tokens,
              rounds);
  std::printf("%-22s %8s %-21s %8s %6s %7s %7s %7s %8s", "setting", "tok/s", "speed-up [95%]",
              "accepted", "tree", "passes", "draft%", "verify%", "outside%");
  for (const auto& kind : kinds) std::printf(" %20s", kind.c_str());
  std::printf("\n");
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  std::vector<std::size_t> everything(prompts.size());
  for (std::size_t i = 0; i < everything.size(); ++i) everything[i] = i;
  for (std::size_t s = 0; s < settings.size(); ++s) {
    Run sum;
    double seconds = 0;
    for (const Run& r : runs[s]) {
      seconds += r.median();
      sum.steps += r.steps;
      sum.judged += r.judged;
      sum.tree += r.tree;
      sum.passes += r.passes;
      sum.outside += r.outside;
      sum.decode += r.decode;
      sum.draft += r.draft;
      sum.verify += r.verify;
    }
    const double speed = static_cast<double>(prompts.size()) * new_tokens / seconds;
    const double ratio = ratio_of_sums(runs[0], runs[s], everything);
    const auto [low, high] = interval(runs[0], runs[s], everything);
    std::printf("%-22s %8.0f %5.3f [%5.3f, %5.3f]  %8.2f %6.1f %7.2f %7.1f %7.1f %8.1f",
                settings[s].name.c_str(), speed, ratio, low, high, sum.judged / sum.steps,
                sum.tree / sum.steps, sum.passes / sum.steps, 100 * sum.draft / sum.decode,
                100 * sum.verify / sum.decode, 100 * sum.outside / sum.decode);
    nlohmann::ordered_json row = {{"setting", settings[s].name},
                                  {"tokens_per_second", speed},
                                  {"speedup", ratio},
                                  {"low", low},
                                  {"high", high},
                                  {"accepted_length", sum.judged / sum.steps},
                                  {"tree_size_mean", sum.tree / sum.steps},
                                  {"passes_per_step", sum.passes / sum.steps},
                                  {"outside_share", sum.outside / sum.decode}};
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
  if (values.count("json") != 0) {
    std::ofstream out(values["json"].as<std::string>());
    out << report.dump(1) << '\n';
    if (!out) throw std::runtime_error("the figures could not be written");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench/generate: %s\n", error.what());
  return 1;
}
