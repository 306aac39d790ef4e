// Replays trees of texts: few-shot prompts, steps of reasoning, recorded speculation.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/terminal.h"
#include "cli/workload_output.h"
#include "cli/workload_prompts.h"
#include "engine/access.h"
#include "engine/check_speculation.h"
#include "engine/loading.h"
#include "workload/figure.h"
#include "workload/speculation_replay.h"

namespace coppice::cli {
namespace {

using workload::TreeTemplate;

constexpr std::int32_t most_trees = 10000;
constexpr auto most_tokens = static_cast<std::int32_t>(workload::most_tokens);

/// What is to be replayed, all known before a model is loaded.
struct Job {
  std::string kind, file;
  std::vector<TreeTemplate> trees;  ///< few-shot and reasoning
  // speculation:
  TreeShape shape;
  std::vector<workload::AcceptanceRecord> records;  ///< with the steps to be taken
  std::vector<std::int32_t> recorded;  ///< the first record's steps, as the file has them
  std::int64_t record_prompt = 0;

  std::int32_t divisor = 1;  ///< by which the trees are shrunk

  std::size_t left_out = 0;
  workload::Reads reads;
  std::vector<workload::Reads> of_trees;
  bool speculates() const { return kind == "speculation"; }
  std::size_t size() const { return speculates() ? records.size() : trees.size(); }
};

/// Which kinds take an option that not all take.
struct Takers {
  const char* option;
  std::vector<std::string> kinds;
};
const std::vector<std::string> tree_kinds = {"few-shot", "reasoning", "speculation"};
const std::vector<std::string> prompt_kinds = {"toolbench", "loogle"};

void check_options(const po::variables_map& values, const std::string& kind) {
  const std::vector<std::string> branching = {"few-shot", "reasoning"},
                                 drafting = {"few-shot", "reasoning", "toolbench", "loogle"};
  const std::vector<Takers> takers = {{"trees", {"reasoning", "speculation"}},
                                      {"branches", {"few-shot"}},
                                      {"iterations", {"few-shot"}},
                                      {"new-tokens", {"speculation", "toolbench", "loogle"}},
                                      {"shrink", branching},
                                      {"no-sharing", branching},
                                      {"plan", branching},
                                      {"policy", drafting},
                                      {"tree-size", drafting},
                                      {"svg", tree_kinds},
                                      {"warm-up", tree_kinds},
                                      {"groups", prompt_kinds},
                                      {"group-prompts", prompt_kinds},
                                      {"parallel", prompt_kinds},
                                      {"calls", prompt_kinds},
                                      {"output", prompt_kinds},
                                      {"file", tree_kinds}};
  for (const auto& [option, kinds] : takers) {
    if (values.count(option) == 0 || values[option].defaulted()) continue;
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    const bool file = std::string(option) == "file";
    throw_usage(cat(file ? "FILE" : cat("--", option), " does nothing for workload ", kind,
                    "; leave it out"));
  }
}

/// The first --trees of `all`, which `what` names; says if there are fewer.
template <typename Trees>
void take_first(const po::variables_map& values, std::int32_t usual, const char* what, Trees& all) {
  const auto wanted = static_cast<std::size_t>(count_or(values, "trees", usual, most_trees));
  if (all.size() > wanted) {
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(wanted), all.end());
  } else if (all.size() < wanted && !values["trees"].defaulted()) {
    tell(cat("the file has ", all.size(), " ", what, ", not ", wanted));
  }
}

std::int64_t prompt_tokens(const po::variables_map& values, std::int64_t usual) {
  return count_or(values, "prompt-tokens", usual, most_tokens);
}

void read_reasoning_job(const po::variables_map& values, Job& job) {
  workload::ReasoningFile file = workload::read_reasoning(job.file);
  job.left_out = file.incomplete;
  take_first(values, 10, "complete trees", file.trees);
  if (file.trees.empty()) {
    throw_failure(cat(quote(job.file),
                      job.left_out == 0 ? ": it holds no templates"
                                        : ": it holds no complete template: each is "
                                          "flagged so, or has fewer than two nodes",
                      "; name another file"));
  }
  for (TreeTemplate& tree : file.trees) {
    tree = with_prompt(std::move(tree), prompt_tokens(values, tree.prompt_tokens()));
  }
  job.trees = std::move(file.trees);
}

void read_few_shot_job(const po::variables_map& values, Job& job) {
  job.trees.push_back(workload::few_shot(prompt_tokens(values, workload::few_shot_prompt_tokens),
                                         count_in(values, "branches", 1),
                                         count_in(values, "iterations", 2)));
  if (!job.file.empty()) job.trees.back().prompt = prompt_in_file(job.file);
}

void read_speculation_job(const po::variables_map& values, Job& job) {
  workload::SpeculationFile file = workload::read_speculation(job.file);
  job.shape = std::move(file.tree);
  job.records = std::move(file.records);
  take_first(values, 1, "records", job.records);
  job.recorded = job.records.front().accepted;
  job.record_prompt = prompt_tokens(values, workload::recorded_prompt_tokens);
  const std::int64_t wanted = count_or(values, "new-tokens", std::int64_t{0}, most_tokens);
  for (workload::AcceptanceRecord& record : job.records) {
    record.accepted = workload::steps_of(record, wanted, 0);
    const workload::Reads reads = workload::reads_of(job.shape, job.record_prompt, record.accepted);
    job.of_trees.push_back(reads);
    job.reads += reads;
  }
}

Job read_job(const po::variables_map& values, const std::string& kind) {
  Job job;
  job.kind = kind;
  job.file = text_in(values, "file");
  if (kind != "few-shot" && job.file.empty()) {
    throw_usage(cat("workload ", kind, ": name the file of ",
                    kind == "speculation" ? "records" : "templates", " (see --help)"));
  }
  if (job.speculates()) {
    read_speculation_job(values, job);
    return job;
  }
  job.kind == "few-shot" ? read_few_shot_job(values, job) : read_reasoning_job(values, job);
  job.divisor = count_in(values, "shrink", 1);
  for (TreeTemplate& tree : job.trees) {
    if (job.divisor > 1) tree = shrunk(tree, job.divisor);
    workload::Reads reads = reads_of(tree);
    if (kind == "few-shot") ++reads.iterations;  // the prompt's, as the papers count
    job.of_trees.push_back(reads);
    job.reads += reads;
  }
  return job;
}

EngineOptions engine_for(const po::variables_map& values, const Job& job,
                         const Speculation& speculation, bool read_together) {
  EngineOptions options = engine_options(values, speculation);
  if (!job.speculates())
    options.max_sequences =
        static_cast<std::int32_t>(std::min<std::int64_t>(job.reads.most_branches, most_sequences));
  if (job.shape.size() > largest_tree_size) {
    throw_failure(cat(job.file, ": \"Tree_Structure\" has ", job.shape.size(),
                      " nodes; an engine judges up to ", largest_tree_size,
                      ", cut it or use --count-only"));
  }
  options.max_tree_size = std::max(options.max_tree_size, job.shape.size());
  if (options.kv_tokens == 0) {
    // What is live at most (a pass reads no more than there is room for), a twentieth more, and
    // what steps have in flight.
    const std::int64_t live =
        job.speculates() || read_together ? job.reads.peak_by_tree : job.reads.peak_per_query;
    const std::int64_t in_flight = 64 * (options.max_sequences + 1) + options.max_tree_size;
    options.kv_tokens = static_cast<std::int32_t>(
        std::min<std::int64_t>(live + live / 20 + in_flight, std::int64_t{1} << 30) / 16 * 16 + 16);
  }
  return options;
}

/// Until all trees are written, or Ctrl-C. What `warm_up` does first is in no figure.
void replay_all(Engine& engine, const Job& job, const GenerateOptions& options, bool warm_up,
                WorkloadFigures& figures) {
  for (const TreeTemplate& tree : job.trees) require_context(engine, tree, job.divisor);
  const InterruptWatch interrupts;
  ProgressLine progress;
  const auto all = static_cast<double>(job.reads.generated);
  std::int64_t before = 0;
  workload::ReplaySettings settings;
  settings.options = options;
  settings.sharing = figures.sharing;
  settings.stop = interrupts.token();
  settings.progress = [&](std::int64_t tokens) {
    progress.show("replaying", static_cast<double>(before + tokens) / all);
  };
  const auto replay_one = [&](std::size_t i, workload::ReplayReport& report) {
    if (job.speculates()) {
      const workload::AcceptanceRecord& record = job.records[i];
      const auto prompt =
          workload::prompt_of_length(engine, record.prompt, job.record_prompt, options.seed);
      replay(engine, job.shape, prompt, record.accepted, settings, report);
    } else {
      const TreeTemplate& tree = job.trees[i];
      const auto prompt =
          workload::prompt_of_length(engine, tree.prompt, tree.prompt_tokens(), options.seed);
      replay(engine, tree, prompt, settings, report);
    }
  };
  workload::ReplayReport& report = figures.replay.emplace();
  if (warm_up) {
    workload::ReplayReport unseen;
    replay_one(0, unseen);
    report.finished = unseen.finished;
  }
  for (std::size_t i = 0; i < job.size() && report.finished; ++i) {
    replay_one(i, report);
    before += job.of_trees[i].generated;
  }
}

void describe(Engine& engine, WorkloadFigures& figures) {
  const EngineAccess access(engine);
  const KvPool& pool = *access.target().pool;
  figures.kv_bytes = static_cast<double>(pool.bytes()) / static_cast<double>(pool.layout().slots());
  figures.device = access.device().name();
  figures.dtype = compute_name(*access.target().model);
  figures.kv_dtype = name_of(access.device().kv_dtype());
}

/// Has the engine divide its attention by the plan where its device can, else by its own.
void divide(Engine& engine, workload::Plan plan, WorkloadFigures& figures) {
  EngineAccess access(engine);
  if (division_of(plan) != AttentionDivision::flatten && !access.device().shares_host_memory()) {
    tell(cat("a GPU divides its attention by its own plan, flatten; the groups of ", name_of(plan),
             " are counted alone"));
    plan = workload::Plan::flatten;
  }
  access.divide(division_of(plan));
  figures.engine_plan = plan;
}

po::options_description workload_options() {
  po::options_description d("Workload");
  d.add_options()(
      "trees", po::value<std::int32_t>()->default_value(10, "10, speculation 1")->value_name("N"),
      "the first N complete templates, or records")(
      "prompt-tokens",
      po::value<std::int32_t>()->default_value(0, "the template's")->value_name("N"),
      "length of the prompt; few-shot: 4000, speculation: 1016, toolbench, loogle: 1835 and 23474 "
      "in "
      "the mean")("branches", po::value<std::int32_t>()->default_value(20)->value_name("N"),
                  "few-shot: texts behind the prompt, which is FILE's, or random")(
      "iterations",
      po::value<std::int32_t>()->default_value(workload::few_shot_iterations)->value_name("N"),
      "few-shot: passes, the prompt's among them")(
      "new-tokens", po::value<std::int32_t>()->default_value(0, "the record's")->value_name("N"),
      "speculation: tokens to reach; a record that is too short goes on with accepted lengths "
      "drawn "
      "between its least and its most")(
      "shrink", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "few-shot, reasoning: all lengths divided by N, those given here too, for small models")(
      "no-sharing", "few-shot, reasoning: every branch is a copy of its path and shares nothing")(
      "plan",
      po::value<std::string>()->default_value("flatten")->value_name(any_of(workload::all_plans)),
      "few-shot, reasoning: whose groups of KV are counted, and by which the engine divides its "
      "attention on a CPU; flatten is its own plan and a GPU's only one, and radix the same with "
      "what branches share read once for each")(
      "warm-up",
      "replay the first tree once before, in no figure: on a GPU an engine's first "
      "passes of a kind "
      "are recorded, and products of many rows timed")(
      "count-only", "count what the workload reads; load no model");
  return d;
}

int replay_workload(const po::variables_map& values, const std::string& kind) {
  const bool json = wants_json(values), count_only = values.count("count-only") != 0;
  const GenerateOptions options = generate_options(values);
  options.validate();
  const std::string svg = written_file_in(values, "svg", text_in(values, "file"));
  if (!svg.empty()) require_writable(svg);
  const Job job = read_job(values, kind);

  WorkloadFigures figures;
  figures.kind = job.kind;
  figures.file = job.file;
  figures.trees = job.size();
  figures.left_out = job.left_out;
  figures.reads = job.reads;
  for (std::size_t i = 0; i < job.size(); ++i) {
    const std::string& name = job.speculates() ? job.records[i].name : job.trees[i].name;
    figures.of_trees.emplace_back(name, job.of_trees[i]);
  }
  figures.sharing = values.count("no-sharing") == 0;
  if (!job.speculates()) {
    figures.plan = named("plan", text_in(values, "plan"), workload::all_plans);
    for (const TreeTemplate& tree : job.trees) {
      figures.plan_reads += reads_by(*figures.plan, tree, !figures.sharing);
    }
  }
  if (!svg.empty()) {
    write_file(svg, job.speculates() ? workload::figure_of(job.shape, job.recorded)
                                     : workload::figure_of(job.trees.front()));
  }
  const bool by_text = figures.plan == workload::Plan::radix;
  if (!count_only) {
    if (job.reads.most_branches > most_sequences && !job.speculates()) {
      throw_usage(cat("workload: ", job.reads.most_branches,
                      " branches side by side; an engine "
                      "writes up to ",
                      most_sequences, ", use fewer or --count-only"));
    }
    ProgressLine loading;
    EngineOptions engine_request =
        engine_for(values, job, options.speculation, figures.sharing && !by_text);
    tell_of_plain(values, engine_request);
    engine_request.progress = [&](const LoadEvent& event) { loading.show(event); };
    Engine engine = Engine::load(engine_request);
    loading.clear();
    EngineAccess(engine).read_by_text(by_text);
    if (figures.plan) divide(engine, *figures.plan, figures);
    describe(engine, figures);
    replay_all(engine, job, options, values.count("warm-up") != 0, figures);
  }
  write_out(json ? workload_json(figures) : workload_text(figures));
  return figures.replay && !figures.replay->finished ? interrupted_exit : 0;
}

}  // namespace

std::vector<std::string> workload_kinds() {
  std::vector<std::string> kinds = tree_kinds;
  kinds.insert(kinds.end(), prompt_kinds.begin(), prompt_kinds.end());
  return kinds;
}

int workload(const std::vector<std::string>& arguments) {
  po::options_description output("Output"), all, hidden;
  output.add_options()("format",
                       po::value<std::string>()->default_value("text")->value_name("text|json"),
                       "json is one object")("svg", po::value<std::string>()->value_name("FILE"),
                                             "a figure of the first tree: its nodes over "
                                             "iterations, live and pruned; of the first record: "
                                             "tokens accepted by step, as recorded");
  const UsualValues usual = {.temperature = 1.0, .seed = "0", .policy = "none"};
  all.add(workload_options())
      .add(shared_prompt_options())
      .add(output)
      .add(sampling_options(usual))
      .add(drafting_options(usual));
  all.add(model_options());
  hidden.add_options()("kind", po::value<std::string>())("file", po::value<std::string>());
  po::positional_options_description positional;
  positional.add("kind", 1).add("file", 1);
  po::variables_map values;
  if (!parse(
          arguments, all,
          "coppice workload KIND [FILE]: replay trees of texts, as DeFT's benchmarks have them\n\n"
          "  coppice workload few-shot --shrink 40        one prompt, many texts behind it\n"
          "  coppice workload reasoning sorting.json      templates of tree search\n"
          "  coppice workload speculation medusa.json     a token tree, accepted lengths forced\n"
          "  coppice workload toolbench --groups 20       prompts that share what they begin with\n"
          "  coppice workload loogle --output batch.jsonl --count-only\n"
          "\n"
          "The shipped pair's context is 512 tokens: reasoning takes --shrink 20 there, "
          "speculation\n"
          "--prompt-tokens 200 --new-tokens 100, toolbench and loogle --prompt-tokens 200.\n"
          "\n"
          "Lengths, forks and prunes are the template's, tokens are sampled. Prints iterations,\n"
          "KV tokens that attention reads (counted: query by query, and each node once), and\n"
          "what the engine took: seconds by part and peak KV. Of prompts, random tokens with the\n"
          "lengths and shares of those sets, it prints how many were computed, and how many "
          "differ.\n",
          values, hidden, positional)) {
    return 0;
  }
  const std::string kind = text_in(values, "kind");
  if (kind.empty()) {
    throw_usage(
        "workload: name few-shot, reasoning, speculation, toolbench or loogle (see --help)");
  }
  choice_in("workload", kind, workload_kinds());
  check_options(values, kind);
  if (values.count("seed") == 0) {
    values.insert({"seed", po::variable_value(boost::any(std::string("0")), false)});
  }
  if (values["policy"].defaulted()) values.at("policy").value() = std::string("none");
  const bool prompts =
      std::find(prompt_kinds.begin(), prompt_kinds.end(), kind) != prompt_kinds.end();
  return prompts ? answer_shared_prompts(values, kind) : replay_workload(values, kind);
}

}  // namespace coppice::cli
