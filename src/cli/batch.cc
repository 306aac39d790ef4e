#include "cli/batch.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/checked_lines.h"
#include "base/error.h"
#include "base/fingerprint.h"
#include "base/host_memory.h"
#include "base/lost_model.h"
#include "base/stopwatch.h"
#include "chat/json.h"
#include "cli/acceptance_vector.h"
#include "cli/batch_lines.h"
#include "cli/batch_output.h"
#include "cli/conversation.h"
#include "cli/generation_text.h"
#include "cli/length_options.h"
#include "cli/terminal.h"
#include "cli/token_options.h"
#include "cli/totals.h"
#include "conversation/tokens.h"
#include "engine/access.h"
#include "engine/loading.h"
#include "models/config.h"

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t largest_batch_mib = 1024;

/// All that is known before the models are loaded.
struct Batch {
  EngineOptions engine;
  std::uint64_t seed = 0;
  bool follows_seed = false;  ///< whether some line's text does
  std::vector<BatchLine> lines;
  std::vector<chat::Text> conversations;  ///< by line; empty without --chat
  bool raw = false;                       ///< conversations are raw text
  std::vector<std::string> requests;      ///< what tells a line and its settings from others
  std::vector<std::string> recommended;   ///< what generation_config.json set or could not
};

std::string text_of(const po::variable_value& value) {
  const boost::any& any = value.value();
  if (const auto* text = boost::any_cast<std::string>(&any)) return *text;
  if (const auto* whole = boost::any_cast<std::int32_t>(&any)) return cat(*whole);
  if (const auto* number = boost::any_cast<double>(&any)) return Json(*number).dump();
  return Json(value.as<std::vector<std::string>>()).dump();
}

/// Fingerprints the models and all options but those that change no text.
Fingerprint fingerprint_of(const po::variables_map& values, const EngineOptions& engine) {
  const std::vector<std::string> no_matter = {"batch",
                                              "cost-table",
                                              "devices",
                                              "draft",
                                              "draft-gpu-layers",
                                              "draft-tensor-parallel",
                                              "format",
                                              "gpu-layers",
                                              "gpu-memory",
                                              "gpu-memory-fraction",
                                              "host-memory",
                                              "kv-tokens",
                                              "no-cost-cache",
                                              "output",
                                              "parallel",
                                              "progress",
                                              "rank-address",
                                              "rank-key",
                                              "rank-timeout",
                                              "stats",
                                              "stream",
                                              "target",
                                              "threads"};
  Fingerprint print;
  for (const auto& [name, value] : values) {
    if (std::find(no_matter.begin(), no_matter.end(), name) != no_matter.end()) continue;
    print.add(cat(name, '=', text_of(value), '\n'));
  }
  print.add(fingerprint_of_folder(engine.target));
  // LongRoPE is another model beyond its original context.
  const ModelConfig config = read_config(engine.target);
  for (const RopeSpec& rope : config.ropes) {
    if (rope.kind != RopeSpec::Kind::longrope) continue;
    const bool long_factors = loaded_positions(config, engine) > rope.original_context;
    print.add(cat("long factors=", long_factors, '\n'));
  }
  if (!engine.draft.empty()) print.add(fingerprint_of_folder(engine.draft));
  return print;
}

void read_conversations(const po::variables_map& values, const std::string& where, Batch& batch) {
  Conversation conversation(batch.engine.target, values);
  batch.raw = conversation.raw();
  for (const BatchLine& line : batch.lines) {
    conversation.clear();
    const std::string line_name = cat(where, " line ", line.number);
    if (line.is_messages) {
      const chat::Value object = chat::parse_json(line.raw, line_name, true);
      conversation.add_list(*object.as_dict().named("messages"), line_name);
    } else {
      conversation.add("user", line.prompt.text);
    }
    try {
      batch.conversations.push_back(conversation.text());
    } catch (const Error& error) {
      throw_usage(cat(line_name, ": ", error.what()));
    }
  }
}

/// `given` without a seed gets `seed`, if there is one, else a random one. Where no text follows
/// it, it is `seed`, or 0, whatever was given, so that requests are the same in every run.
Batch read_batch(const po::variables_map& given, std::string_view contents,
                 const std::string& where, std::optional<std::uint64_t> seed) {
  po::variables_map values = given;
  if (seed && values.count("seed") == 0) {
    values.insert({"seed", po::variable_value(boost::any(std::to_string(*seed)), false)});
  }
  GenerateOptions options = generate_options(values);
  if (values.count("seed") == 0) {
    values.insert({"seed", po::variable_value(boost::any(std::to_string(options.seed)), false)});
  }
  read_length_options(values, options);
  read_token_options(values, options);
  sample_count(values);  // refuses what no line may need
  Batch batch;
  batch.seed = options.seed;
  batch.engine = engine_options(values, Dyspec{});
  const bool chats = values.count("chat") != 0;
  if (chats) batch.recommended = take_recommended(batch.engine.target, values, options);
  options.validate();
  read_acceptance_vector(values, batch.engine, options);
  batch.lines = read_batch_lines(contents, where, {values, batch.engine, options, chats});
  bool speculates = false;
  for (const BatchLine& line : batch.lines) {
    const Speculation& speculation = line.options.speculation;
    speculates = speculates || !std::holds_alternative<Plain>(speculation);
    batch.engine.max_tree_size = std::max(batch.engine.max_tree_size, tree_room(speculation));
  }
  batch.follows_seed =
      std::any_of(batch.lines.begin(), batch.lines.end(), [&](const BatchLine& line) {
        return line.options.sampling.temperature > 0.0 && line.options.seed == batch.seed;
      });
  if (!batch.follows_seed) {
    batch.seed = seed.value_or(0);
    values.at("seed").value() = std::to_string(batch.seed);
  }
  if (!speculates) batch.engine.draft.clear();
  if (chats) read_conversations(values, where, batch);
  const Fingerprint common = fingerprint_of(values, batch.engine);
  for (const BatchLine& line : batch.lines) {
    Fingerprint print = common;
    print.add(line.raw);
    print.add_number(line.options.stream);
    // A file may say something else by now.
    if (line.constraint != nullptr) {
      for (const std::string& text : line.constraint->source.texts) print.add(text);
    }
    batch.requests.push_back(print.text());
  }
  return batch;
}

Room room_of(Engine& engine) {
  return {EngineAccess(engine).target().pool->layout().slots(), engine.context_length()};
}

/// What the options ask for: an engine has no more, and less if memory is short.
Room wanted_room(const EngineOptions& options) {
  const ModelConfig config = read_config(options.target);
  const DType kv_dtype = make_engine_device(options)->kv_dtype();
  return {wanted_kv_tokens(config, options, kv_dtype), loaded_positions(config, options)};
}

/// The batch while it is written.
class Run {
 public:
  Run(const Batch& batch, BatchOutput& output, double progress_seconds)
      : batch_(batch), output_(output), progress_(progress_seconds), shares_(batch.lines.size()) {}

  /// Until all is there, `stop` is asked for, or the model is lost.
  void write(Engine& engine, const std::stop_token& stop) {
    room_ = room_of(engine);
    std::vector<Request> requests;
    std::vector<std::size_t> place;  // of a request in the batch
    for (std::size_t i = 0; i < batch_.lines.size(); ++i) missing_ += output_.has(i) ? 0.0 : 1.0;
    for (std::size_t i = 0; i < batch_.lines.size(); ++i) {
      if (output_.has(i)) continue;
      try {
        requests.push_back(request_of(engine, i));
        place.push_back(i);
      } catch (const Error& error) {
        put(i, {{"error", error.what()}, {"stream", batch_.lines[i].options.stream}},
            lacked_by(std::current_exception()), true);
      }
    }
    totals_.begin(now_seconds(), engine.load_seconds());
    const auto finished = [&](std::size_t request, Outcome& outcome) {
      const Outcome ended = std::move(outcome);
      take(engine, place[request], ended);
      totals_.end(now_seconds(), engine.load_seconds());
    };
    const std::stop_callback on_stop(stop, [this] { stop_.request_stop(); });
    engine.generate(requests, finished, stop_.get_token());
  }

  std::string table() const { return totals_.table(); }
  std::string shortage() const { return totals_.shortage(); }
  ProgressLine& progress() { return progress_; }
  /// How the model was lost; "" if it was not.
  const std::string& loss() const { return loss_; }

 private:
  Request request_of(Engine& engine, std::size_t index) {
    const BatchLine& line = batch_.lines[index];
    Request request;
    request.options = line.options;
    request.options.constraint = constraints_.build(engine, line.constraint);
    request.n = line.samples;
    if (!batch_.conversations.empty()) {
      request.tokens = conversation::tokens_of(engine, batch_.conversations[index], batch_.raw,
                                               line.options.add_bos);
    } else {
      request.prompt = line.prompt.text;
      request.tokens = line.prompt.tokens;
    }
    const double all = static_cast<double>(line.options.max_new_tokens) * line.samples;
    request.callback = [this, index, all](std::int32_t, const Piece& piece) {
      advance(index, static_cast<double>(piece.tokens.size()) / all);
      return true;
    };
    return request;
  }

  /// A text that failed for want of room may do with more; others would fail again.
  Lacked lacked_by(const std::exception_ptr& failure) const {
    try {
      std::rethrow_exception(failure);
    } catch (const RoomError&) {
      return {room_};
    } catch (...) {
      return {{}, lacked_host_memory(failure)};
    }
  }

  void take(Engine& engine, std::size_t index, const Outcome& outcome) {
    const BatchLine& line = batch_.lines[index];
    // The text may be as good as any: it is written by the next run.
    if (const std::string loss = lost_model_message(outcome.error); !loss.empty()) {
      if (loss_.empty()) loss_ = loss;
      stop_.request_stop();
      return;
    }
    for (const Generation& generation : outcome.samples) {
      if (generation.finish_reason == FinishReason::cancelled) return;  // to be written again
    }
    Json samples = Json::array();
    Lacked lacked = outcome.error ? lacked_by(outcome.error) : Lacked{};
    for (std::size_t s = 0; s < outcome.samples.size(); ++s) {
      const Generation& generation = outcome.samples[s];
      if (generation.finish_reason == FinishReason::failed) continue;
      samples.push_back({{"stream", line.options.stream + s}});
      samples.back().update(to_json(engine, generation, line.options.logprobs));
      totals_.add(generation);
      const FinishReason reason = generation.finish_reason;
      if (reason == FinishReason::memory) lacked.room.kv_tokens = room_.kv_tokens;
      if (reason == FinishReason::context) lacked.room.context_length = room_.context_length;
    }
    Json json;
    if (outcome.error) json["error"] = message_of(outcome.error);
    if (line.samples > 1 && !samples.empty()) {
      json["samples"] = std::move(samples);
    } else if (!samples.empty()) {
      json.update(samples.front());
    } else {
      json["stream"] = line.options.stream;
    }
    put(index, json, lacked, outcome.error != nullptr);
  }

  void put(std::size_t index, const Json& text, const Lacked& lacked, bool failed) {
    // What comes first tells BatchOutput that even a torn line is ours.
    Json json = {{"index", index}};
    json["batch_seed"] = batch_.follows_seed ? Json(batch_.seed) : Json();
    json["request"] = batch_.requests[index];
    if (!batch_.lines[index].id.empty()) json["id"] = Json::parse(batch_.lines[index].id);
    json.update(text);
    const Room& room = lacked.room;
    if (room.kv_tokens > 0) json["lacked"]["kv_tokens"] = room.kv_tokens;
    if (room.context_length > 0) json["lacked"]["context_length"] = room.context_length;
    if (lacked.host_memory) json["lacked"]["host_memory"] = true;
    std::string line = json_line(json);
    line.pop_back();
    output_.put(index, with_checksum(line) + "\n", failed);
    advance(index, 1.0);
  }

  /// A text has come on by `share` of itself.
  void advance(std::size_t index, double share) {
    double& done = shares_[index];
    const double before = std::exchange(done, std::min(1.0, done + share));
    done_ += done - before;
    const double fraction = done_ / missing_;
    progress_.show("writing", fraction);
  }

  const Batch& batch_;
  Constraints constraints_;
  BatchOutput& output_;
  ProgressLine progress_;
  Room room_;
  std::vector<double> shares_;  ///< of each text: how much of it was written now
  double done_ = 0.0;           ///< sum of shares_
  double missing_ = 0.0;        ///< what it comes to
  Totals totals_;
  std::stop_source stop_;
  std::string loss_;
};

void tell_of_equal_samples(const Batch& batch) {
  const auto equal =
      std::count_if(batch.lines.begin(), batch.lines.end(), [](const BatchLine& line) {
        return line.samples > 1 && line.options.sampling.temperature == 0.0;
      });
  if (equal == 0) return;
  tell(cat(equal, equal == 1 ? " line asks" : " lines ask",
           " for several samples at temperature 0, which are the same text; a temperature above 0 "
           "makes them differ"));
}

/// The seed that was drawn, if texts that are to be written follow it.
void tell_seed(const po::variables_map& given, const Batch& batch, const BatchOutput& output) {
  if (given.count("seed") != 0) return;
  for (std::size_t i = 0; i < batch.lines.size(); ++i) {
    const GenerateOptions& options = batch.lines[i].options;
    if (output.has(i) || options.sampling.temperature == 0.0 || options.seed != batch.seed)
      continue;
    std::cerr << "seed " << batch.seed << '\n';
    return;
  }
}

void require_batch_alone(const po::variables_map& values) {
  for (const char* name : {"prompt", "prompt-file", "prompt-ids", "messages"}) {
    if (values.count(name) != 0) {
      throw_usage(cat("give only one of --batch and --", name));
    }
  }
  if (!wants_json(values) && !values["format"].defaulted()) {
    throw_usage("--batch writes JSON lines; leave out --format text");
  }
}

}  // namespace

po::options_description batch_options() {
  po::options_description d("Many texts");
  d.add_options()(
      "batch", po::value<std::string>()->value_name("FILE|-"),
      "texts to write side by side: a prompt a line, or (if the first character is {) JSON objects "
      "like {\"prompt\": \"Once\", \"id\": 7, \"temperature\": 0.8}, with \"tokens\" or, with "
      "--chat, \"messages\" in place of \"prompt\", and options of their own, written with _ for "
      "-. "
      "Writes JSON lines in the same order. Line i, from 0, has stream --stream + i if it gives "
      "none, so that equal prompts get different texts. Blank lines are skipped")(
      "parallel", po::value<std::int32_t>()->default_value(64)->value_name("N"),
      "with --batch or --n: texts that are written side by side at most; memory for keys and "
      "values may allow fewer")(
      "output", po::value<std::string>()->value_name("FILE"),
      "with --batch: write here. What is there already stays, and the batch goes on behind it; "
      "FILE.waiting keeps texts that ended before one in front of them")(
      "progress", po::value<double>()->default_value(30.0, "30")->value_name("SECONDS"),
      "with --batch: between lines of progress where standard error is no terminal; 0: none");
  return d;
}

std::int32_t parallel_texts(const po::variables_map& values, std::int64_t texts) {
  const std::int64_t most = count_in(values, "parallel", 1, most_sequences);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(texts, 1, most));
}

int generate_batch(const po::variables_map& given) {
  require_batch_alone(given);
  const double every = progress_seconds(given);
  const std::string file = text_in(given, "batch");
  const std::string where = file == "-" ? "standard input" : cat("batch ", quote(file));
  const std::string contents = file == "-" ? read_all(std::cin, where, largest_batch_mib)
                                           : read_all_of(file, where, largest_batch_mib);
  Batch batch = read_batch(given, contents, where, std::nullopt);
  BatchOutput output(written_file_in(given, "output"));
  if (output.seed() && *output.seed() != batch.seed &&
      (given.count("seed") == 0 || !batch.follows_seed)) {
    batch = read_batch(given, contents, where, output.seed());
  }
  output.require(batch.requests);
  const std::size_t texts = batch.lines.size(), there = output.lines();
  std::size_t written = there;
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < texts; ++i) samples += output.has(i) ? 0 : batch.lines[i].samples;
  const Room any = {std::numeric_limits<std::int64_t>::max(),
                    std::numeric_limits<std::int64_t>::max()};
  const std::vector<std::size_t> ended_early = output.longer_in(any);
  const std::vector<std::size_t> lost = output.of_lost_model();
  const std::vector<std::size_t> short_of_memory = output.of_host_memory();
  for (const auto* const again : {&ended_early, &lost, &short_of_memory}) {
    for (const std::size_t i : *again) samples += batch.lines[i].samples;
  }
  batch.engine.max_sequences = parallel_texts(given, samples);
  const bool may_go_on =
      !lost.empty() || !short_of_memory.empty() ||
      (!ended_early.empty() && !output.longer_in(wanted_room(batch.engine)).empty());

  Run run(batch, output, every);
  for (const std::string& line : batch.recommended) tell(line);
  tell_of_plain(given, batch.engine);
  tell_of_equal_samples(batch);
  if (there > 0) tell(cat(there, " of ", texts, " lines are there already"));
  if (there < texts || may_go_on) {
    batch.engine.progress = [&](const LoadEvent& event) { run.progress().show(event); };
    Engine engine = Engine::load(batch.engine);
    run.progress().clear();
    const bool texts_given = std::any_of(batch.lines.begin(), batch.lines.end(),
                                         [](const BatchLine& line) { return !line.prompt.ids; });
    if (texts_given && !engine.has_tokenizer()) engine.detokenize({});  // throws, and says why
    const auto write_again = [&](const std::vector<std::size_t>& some, const std::string& why) {
      if (some.empty()) return;
      tell(cat(some.size(), some.size() == 1 ? " of them is" : " of them are",
               " written again: ", why));
      output.write_again(some);
    };
    write_again(output.longer_in(room_of(engine)), "there is more room now");
    write_again(lost, cat("the model was lost when ", lost.size() == 1 ? "it was" : "they were",
                          " to be written"));
    write_again(short_of_memory, "the host's memory ran out before");
    tell_seed(given, batch, output);
    const InterruptWatch interrupts;
    run.write(engine, interrupts.token());
    run.progress().clear();
    written = output.lines();
    output.finish();
  }
  if (given.count("stats") != 0 || stderr_is_terminal()) std::cerr << run.table();
  if (!run.shortage().empty()) tell(run.shortage());
  const char* const goes_on =
      given.count("output") != 0 ? "; start it again with the same options to go on" : "";
  if (!run.loss().empty()) {
    tell(cat("stopped after ", written, " of ", texts, " lines: ", run.loss(), goes_on));
    return 1;
  }
  if (written < texts) {
    tell(cat("stopped after ", written, " of ", texts, " lines", goes_on));
    return interrupted_exit;
  }
  if (output.failed() == 0) return 0;
  tell(cat(output.failed(), " of ", texts, " lines failed; \"error\" in them says why"));
  return 1;
}

}  // namespace coppice::cli
