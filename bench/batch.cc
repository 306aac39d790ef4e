// Throughput by the number of texts that are written side by side, in the columns of llama.cpp's
// llama-batched-bench: plain decoding, automatic trees and other settings, and the same texts one
// after the other ("in turns"). In every round each number of texts runs under each setting,
// so that what else the machine does meets all alike; the table gives medians over rounds, and
// medians of each round's ratios.
//
// T_PP is a run of the prompts alone, which yields a token of each text; T the run with TG tokens
// more; T_TG = T - T_PP. Prompts and new tokens may share passes, so that T_TG is what the new
// tokens add. Each text has a prompt of its own. T_prep, a part of both runs: what a GPU's host
// spent on recording passes and on choosing their products' code.
//
// --shared: all texts continue one prompt, whose KV they share, and then copies of it that differ
// in their second token, so that nothing beyond the first one can be shared: one engine, one round.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "batch_table.h"
#include "cli/option_values.h"
#include "cli/terminal.h"
#include "coppice.h"
#include "options.h"
#include "reference/tiny_model.h"
#include "settings.h"
#include "texts.h"

namespace {

using namespace coppice;
namespace po = boost::program_options;
using Prompts = std::span<const std::vector<TokenId>>;
using Clock = double (*)();

/// New tokens of texts with a prompt length of their own.
struct Shape {
  std::int32_t prompt_tokens, new_tokens;
};

struct Options {
  std::string target, draft, prompts_file, device, dtype, settings, npp, ntg, npl, cost_table;
  std::string prompts_out;
  double temperature = 0.0, seconds = 0.0;
  std::int32_t rounds = 0, threads = 0, turn_texts = 0, batch_rows = 0;
  bool shared = false;
};

/// How the texts of a row are written.
enum class Way { apart, in_turns, shared, as_copies };

void count(const Generation& generation, std::int32_t new_tokens, bench::BatchRound& round) {
  if (static_cast<std::int32_t>(generation.tokens.size()) != new_tokens) {
    throw std::runtime_error(cat("a text ended after ", generation.tokens.size(), " of ",
                                 new_tokens, " tokens (", name_of(generation.finish_reason),
                                 "); lower --npp or --ntg"));
  }
  const Statistics& s = generation.statistics;
  const auto steps = static_cast<double>(s.steps);
  round.steps += steps;
  round.judged += steps * s.accepted_length;
  round.drafted += steps * s.tree_size_mean;
  round.shared += steps * s.batch_mean;
  round.draft_seconds += s.seconds.draft;
  round.verify_seconds += s.seconds.verify;
  round.preparing_seconds += s.preparing_seconds;
}

std::vector<Request> requests_of(Prompts prompts, const GenerateOptions& options) {
  std::vector<Request> requests;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    Request request;
    request.tokens = prompts[p];
    request.options = options;
    request.options.stream = p;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Seconds that the texts take side by side, or one after the other.
double seconds_of(Engine& engine, Clock clock, Prompts prompts, const GenerateOptions& options,
                  Way way, bench::BatchRound& round) {
  const std::vector<Request> requests = requests_of(prompts, options);
  const OutcomeCallback finished = [&](std::size_t, Outcome& outcome) {
    if (outcome.error) std::rethrow_exception(outcome.error);
    count(outcome.samples.front(), options.max_new_tokens, round);
  };
  engine.drop_cache();
  const double start = clock();
  if (way == Way::in_turns) {
    for (const Request& request : requests) engine.generate({&request, 1}, finished);
  } else {
    engine.generate(requests, finished);
  }
  return clock() - start;
}

bench::BatchRound measure(Engine& engine, Clock clock, Prompts prompts, GenerateOptions options,
                          std::int32_t new_tokens, Way way) {
  bench::BatchRound round;
  options.max_new_tokens = 1;
  round.prompt_seconds = seconds_of(engine, clock, prompts, options, way, round);
  options.max_new_tokens = 1 + new_tokens;  // the first comes with the prompt
  round.seconds = seconds_of(engine, clock, prompts, options, way, round);
  return round;
}

/// A row's texts, and how they are written.
struct RowPlan {
  Way way;
  std::size_t setting;
  std::size_t plain, other;  ///< rows that its rate is held against
};

/// All rows of a table: of each number of texts every setting, plain decoding first; then those in
/// turns. With shared prompts every number has its rows twice, as copies the second time.
std::vector<RowPlan> plan_rows(std::size_t counts, std::size_t settings, bool shared) {
  std::vector<RowPlan> plans;
  const std::size_t blocks = shared ? 2 * counts : counts + 1;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t plain = block * settings;
    const std::size_t other = (shared ? block | 1 : counts) * settings;
    Way way = block == counts ? Way::in_turns : Way::apart;
    if (shared) way = block % 2 == 0 ? Way::shared : Way::as_copies;
    for (std::size_t s = 0; s < settings; ++s) plans.push_back({way, s, plain, other + s});
  }
  return plans;
}

std::vector<bench::BatchRow> empty_rows(const Shape& shape, const std::vector<RowPlan>& plans,
                                        const std::vector<std::int32_t>& counts,
                                        const std::vector<bench::Setting>& settings,
                                        std::int32_t turn_texts) {
  std::vector<bench::BatchRow> rows;
  for (const RowPlan& plan : plans) {
    const std::size_t block = rows.size() / settings.size();
    bench::BatchRow& row = rows.emplace_back();
    row.setting = settings[plan.setting].name;
    if (plan.way == Way::in_turns) row.setting += ", in turns";
    if (plan.way == Way::shared) row.setting += ", shared";
    if (plan.way == Way::as_copies) row.setting += ", copies";
    row.prompt_tokens = shape.prompt_tokens;
    row.new_tokens = shape.new_tokens;
    const bool pairs = plan.way == Way::shared || plan.way == Way::as_copies;
    row.texts = plan.way == Way::in_turns ? turn_texts : counts[pairs ? block / 2 : block];
  }
  return rows;
}

void add_ratios(std::vector<bench::BatchRow>& rows, const std::vector<RowPlan>& plans,
                std::size_t round) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double rate = rows[r].rate(round);
    rows[r].over_plain.push_back(rate / rows[plans[r].plain].rate(round));
    rows[r].over_other.push_back(rate / rows[plans[r].other].rate(round));
  }
}

/// The prompts of a row; copies part behind their first token.
std::vector<std::vector<TokenId>> prompts_for(const Engine& engine, Way way, Prompts prompts,
                                              const bench::BatchRow& row) {
  const auto texts = static_cast<std::size_t>(row.texts),
             tokens = static_cast<std::size_t>(row.prompt_tokens);
  std::vector<std::vector<TokenId>> cut;
  for (std::size_t p = 0; p < texts; ++p) {
    const bool own = way == Way::apart || way == Way::in_turns;
    const std::vector<TokenId>& prompt = prompts[own ? p : 0];
    cut.emplace_back(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
    if (way != Way::as_copies) continue;
    TokenId& second = cut.back()[1];
    second = static_cast<TokenId>((second + static_cast<std::int64_t>(p)) % engine.vocab_size());
  }
  return cut;
}

std::vector<std::int32_t> counts_in(const char* option, const std::string& list) {
  return cli::numbers_in<std::int32_t>(option, list, 1);
}

std::vector<std::vector<TokenId>> prompts_of(Engine& engine, const Options& options,
                                             std::size_t texts, std::size_t tokens) {
  if (!engine.has_tokenizer()) return bench::written_prompts(engine, texts, tokens);
  std::vector<bench::PromptLine> lines =
      bench::read_prompt_lines(options.prompts_file, static_cast<int>(texts));
  // Beyond the file's prompts each comes again; its continuation has a seed of its own.
  for (std::size_t p = 0; lines.size() < texts; ++p) lines.push_back(lines[p]);
  lines.resize(texts);
  return bench::tokenized(engine, lines, tokens);
}

bool parse(int argc, char** argv, Options& o, po::variables_map& values) {
  const std::string models = COPPICE_SOURCE_DIR "/models/stories/";
  po::options_description options("bench/batch");
  options.add_options()("help", "print this")(
      "target", po::value(&o.target)->default_value(models + "target"), "model folder")(
      "draft", po::value(&o.draft)->default_value(models + "draft"), "model folder, or random")(
      "npp", po::value(&o.npp)->default_value("128"), "tokens of a prompt; a list is run in turn")(
      "ntg", po::value(&o.ntg)->default_value("128"), "new tokens of a text; a list likewise")(
      "npl", po::value(&o.npl)->default_value("1,2,4,8,16,32,64"), "texts side by side")(
      "temperature", po::value(&o.temperature)->default_value(0.6), "")(
      "settings", po::value(&o.settings)->default_value("dyspec:0,dyspec:0:coupled"),
      "policy:size[:coupled|:auto][:plain], comma-separated; size 0 is auto; plain decoding is "
      "always there")("turn-texts", po::value(&o.turn_texts)->default_value(4),
                      "texts that are written one after the other; their rate is that of any "
                      "number")("rounds", po::value(&o.rounds)->default_value(3), "")(
      "seconds", po::value(&o.seconds)->default_value(0),
      "begin no round that would end later than this; 0: no limit")(
      "prompts",
      po::value(&o.prompts_file)->default_value(COPPICE_SOURCE_DIR "/bench/prompts/prompts.jsonl"),
      "JSON lines with kind and prompt; cut, or continued by the target. Models without a "
      "tokenizer "
      "write their own")("device", po::value(&o.device)->default_value("cpu"), "cpu, cuda or auto")(
      "threads", po::value(&o.threads)->default_value(2), "")(
      "dtype", po::value(&o.dtype)->default_value("f32"), "f32 or bf16: of activations")(
      "max-batch-rows", po::value(&o.batch_rows)->default_value(0),
      "rows of a pass that are judged; 0: automatic")(
      "cost-table", po::value(&o.cost_table), "measured costs: read if there, else written")(
      "prompts-out", po::value(&o.prompts_out),
      "also write the prompts' token ids here, as JSON lines")(
      "shared", po::bool_switch(&o.shared),
      "all texts continue one prompt and share its KV, then copies of it; none in turns")(
      "cpu-seconds", "time by the process's CPU time, which others hardly change (one thread)")(
      "json", po::value<std::string>(), "file for the figures");
  return bench::parse_options(argc, argv, options, values);
}

EngineOptions engine_options(const Options& o, std::int32_t most_texts, std::int32_t longest) {
  EngineOptions load;
  load.target = o.target;
  load.draft = o.draft;
  load.device = bench::device_in(o.device);
  load.cpu_dtype = bench::cpu_dtype_in(o.dtype);
  load.prefix_cache = o.shared;  // a prompt that comes again is computed again
  load.threads = o.threads;
  load.cost_table = o.cost_table;
  load.max_sequences = most_texts;
  load.max_batch_rows = o.batch_rows;
  constexpr std::int32_t page = 16, trees = 1024;
  load.kv_tokens = most_texts * ((longest / page + 2) * page) + trees;
  return load;
}

/// Shapes: every prompt length with every number of new tokens.
std::vector<Shape> shapes_of(const Options& o) {
  std::vector<Shape> shapes;
  for (const std::int32_t prompt : counts_in("npp", o.npp)) {
    for (const std::int32_t more : counts_in("ntg", o.ntg)) shapes.push_back({prompt, more});
  }
  return shapes;
}

}  // namespace

int main(int argc, char** argv) try {
  Options o;
  po::variables_map values;
  if (!parse(argc, argv, o, values)) return 0;
  const std::vector<std::int32_t> counts = counts_in("npl", o.npl);
  const std::vector<Shape> shapes = shapes_of(o);
  const std::vector<bench::Setting> settings = bench::plain_and(o.settings);
  if (o.rounds < 1 || o.turn_texts < 1) {
    throw std::runtime_error("--rounds and --turn-texts: use 1 or more");
  }
  if (o.shared) o.turn_texts = 1;  // there are none
  std::int32_t longest = 0, longest_prompt = 0;
  for (const Shape& shape : shapes) {
    longest = std::max(longest, shape.prompt_tokens + shape.new_tokens + 1);
    longest_prompt = std::max(longest_prompt, shape.prompt_tokens);
    if (o.shared && shape.prompt_tokens < 2) {
      throw std::runtime_error("--npp: prompts that are shared need 2 tokens or more");
    }
  }
  const std::int32_t most = std::max(*std::max_element(counts.begin(), counts.end()), o.turn_texts);

  testing::TemporaryFolder temporary;
  if (o.draft == "random") {
    o.draft = temporary.path() / "draft";
    bench::write_useless_draft(COPPICE_SOURCE_DIR "/models/stories/draft", o.draft);
  }
  cli::ProgressLine progress(true);
  EngineOptions load = engine_options(o, most, longest);
  load.progress = [&](const LoadEvent& event) { progress.show(event); };
  Engine engine = Engine::load(load);
  std::vector<std::vector<TokenId>> prompts =
      prompts_of(engine, o, o.shared ? 1 : static_cast<std::size_t>(most),
                 static_cast<std::size_t>(longest_prompt));

  if (!o.prompts_out.empty()) bench::write_prompts({}, prompts, o.prompts_out);

  const std::vector<RowPlan> plans = plan_rows(counts.size(), settings.size(), o.shared);
  std::vector<std::vector<bench::BatchRow>> tables;
  for (const Shape& shape : shapes) {
    tables.push_back(empty_rows(shape, plans, counts, settings, o.turn_texts));
  }
  const Clock clock = values.count("cpu-seconds") != 0 ? bench::cpu_seconds : now_seconds;
  const double start = now_seconds();
  double last_round = 0.0;
  const std::size_t all = static_cast<std::size_t>(o.rounds + 1) * shapes.size() * plans.size();
  std::size_t done = 0;
  std::int32_t rounds = 0;
  constexpr std::int32_t warm_up_tokens = 16;
  for (std::int32_t round = -1; round < o.rounds; ++round) {  // -1: warm-up
    const double round_start = now_seconds();
    if (round > 0 && o.seconds > 0 && round_start + last_round > start + o.seconds) break;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const Shape& shape = shapes[t];
      for (std::size_t r = 0; r < tables[t].size(); ++r) {
        bench::BatchRow& row = tables[t][r];
        const RowPlan& plan = plans[r];
        GenerateOptions request = bench::request_of(settings[plan.setting], o.temperature);
        request.seed = static_cast<std::uint64_t>(round + 1);
        const std::int32_t tokens =
            round < 0 ? std::min(warm_up_tokens, shape.new_tokens) : shape.new_tokens;
        const bench::BatchRound measured = measure(
            engine, clock, prompts_for(engine, plan.way, prompts, row), request, tokens, plan.way);
        if (round >= 0) row.rounds.push_back(measured);
        progress.show("measuring", static_cast<double>(++done) / static_cast<double>(all));
      }
      if (round >= 0) {
        add_ratios(tables[t], plans, static_cast<std::size_t>(round));
      }
    }
    if (round >= 0) ++rounds;
    last_round = now_seconds() - round_start;
  }
  progress.clear();

  std::printf("coppice %s, %s, %d threads, temperature %g, medians of %d rounds\n\n", version(),
              o.device.c_str(), o.threads, o.temperature, rounds);
  const char* const other = o.shared ? "copies" : "turns";
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (const std::vector<bench::BatchRow>& rows : tables) {
    std::printf("%s\n", bench::table_of(rows, other).c_str());
    for (auto& row : bench::json_of(rows, other)) report.push_back(std::move(row));
  }
  if (values.count("json") != 0) {
    std::ofstream out(values["json"].as<std::string>());
    out << report.dump(1) << '\n';
    if (!out.flush()) throw std::runtime_error("the figures could not be written");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench/batch: %s\n", error.what());
  return bench::exit_code_of(error);
}
