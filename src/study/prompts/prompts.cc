#include "study/prompts/prompts.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/fingerprint.h"
#include "base/json_file.h"
#include "base/utf8.h"
#include "engine/access.h"

namespace coppice::study {

namespace {

constexpr std::uintmax_t largest_prompt_file = std::uintmax_t{256} << 20;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
constexpr std::string_view blanks = " \t\r";

bool is_blank(std::string_view line) { return line.find_first_not_of(blanks) == line.npos; }

std::string text_in(const nlohmann::json& value, const char* key, const std::string& where) {
  if (!value.is_string()) {
    throw_failure(cat(where, ": \"", key, "\" is ", shown(value), "; give a text"));
  }
  auto text = value.get<std::string>();
  if (text.empty()) throw_failure(cat(where, ": \"", key, "\" is empty; give a text or drop it"));
  return text;
}

std::vector<TokenId> tokens_in(const nlohmann::json& value, const std::string& where) {
  if (!value.is_array() || value.empty()) {
    throw_failure(cat(where, ": \"tokens\" must be a list of token ids like [1, 2]"));
  }
  std::vector<TokenId> tokens;
  for (const nlohmann::json& token : value) {
    if (!token.is_number_unsigned() ||
        token.get<std::uint64_t>() > std::numeric_limits<TokenId>::max()) {
      throw_failure(cat(where, ": \"tokens\" holds ", shown(token), "; give whole numbers from 0"));
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

StudyPrompt prompt_in(std::string_view line, const std::string& where) {
  const JsonObject parsed = parse_json_object(line, where);
  const nlohmann::json& object = *parsed;
  StudyPrompt prompt;
  for (const char* key : {"kind", "category"}) {
    if (!object.contains(key) || object[key].is_null()) continue;
    prompt.kind = text_in(object[key], key, where);
    break;
  }
  if (object.contains("turns")) {
    const nlohmann::json& turns = object["turns"];
    if (!turns.is_array() || turns.empty()) {
      throw_failure(cat(where, ": \"turns\" is ", shown(turns), "; give a list of texts"));
    }
    for (const nlohmann::json& turn : turns) {
      prompt.turns.push_back(text_in(turn, "turns", where));
    }
    return prompt;
  }
  for (const char* key : {"prompt", "question", "text"}) {
    if (!object.contains(key)) continue;
    prompt.turns = {text_in(object[key], key, where)};
    return prompt;
  }
  if (!object.contains("tokens")) {
    throw_failure(cat(where,
                      ": no prompt; an object needs \"prompt\", \"text\", \"turns\", "
                      "\"question\" or \"tokens\""));
  }
  prompt.tokens = tokens_in(object["tokens"], where);
  return prompt;
}

bool is_json(const std::filesystem::path& file, std::string_view text) {
  if (file.extension() == ".jsonl" || file.extension() == ".json") return true;
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && (text[first] == '{' || text[first] == '[');
}

std::string id_of(const StudyPrompt& prompt) {
  Fingerprint fingerprint;
  for (const std::string& turn : prompt.turns) {
    fingerprint.add_number(turn.size());
    fingerprint.add(turn);
  }
  for (const TokenId token : prompt.tokens) {
    fingerprint.add_number(static_cast<std::uint64_t>(token));
  }
  return fingerprint.text();
}

std::vector<TokenId> cut(std::vector<TokenId> tokens, const PromptUse& use) {
  if (use.most > 0 && std::cmp_greater(tokens.size(), use.most)) {
    tokens.resize(static_cast<std::size_t>(use.most));
  }
  return tokens;
}

}  // namespace

Room room_of(Engine& engine, bool with_draft) {
  const EngineAccess access(engine);
  std::int32_t room = std::min(engine.context_length(), access.target().pool->layout().slots());
  const auto& draft = access.draft().pool;
  if (with_draft && draft) room = std::min(room, draft->layout().slots());
  return {room, room < access.target().model->config().context_length};
}

std::string print_of(const StudyPrompt& prompt) {
  Fingerprint print;
  for (const std::string& turn : prompt.turns) print.add(turn);
  for (const TokenId token : prompt.tokens) print.add_number(static_cast<std::uint64_t>(token));
  return print.text();
}

std::vector<PromptName> names_of(const std::vector<StudyPrompt>& prompts) {
  std::vector<PromptName> names;
  std::map<std::string, int> seen;
  for (const StudyPrompt& prompt : prompts) {
    std::string id = id_of(prompt);
    const int times = ++seen[id];
    if (times > 1) id += cat('-', times);
    names.push_back({std::move(id), prompt.kind});
  }
  return names;
}

std::uint64_t stream_of(const std::string& prompt_id) { return fnv1a(prompt_id); }

std::vector<StudyPrompt> read_prompts(const std::filesystem::path& file) {
  const std::string contents = read_file(file, "prompts", largest_prompt_file);
  std::string_view text = contents;
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  const bool json = is_json(file, text);
  std::vector<StudyPrompt> prompts;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (is_blank(line)) continue;
    const std::string where = cat("prompts ", quote(file.string()), " line ", number);
    if (!is_valid_utf8(line)) {
      throw_failure(cat(where, ": not valid UTF-8; convert the file to UTF-8"));
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (json) {
      prompts.push_back(prompt_in(line, where));
    } else {
      prompts.push_back({"", {std::string(line)}, {}, 0});
    }
    prompts.back().line = number;
  }
  if (prompts.empty()) {
    throw_failure(cat("prompts ", quote(file.string()), ": it holds none; give one a line"));
  }
  return prompts;
}

std::string to_jsonl(const std::vector<StudyPrompt>& prompts) {
  const std::vector<PromptName> names = names_of(prompts);
  std::string text;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const StudyPrompt& prompt = prompts[p];
    nlohmann::ordered_json line = {{"id", names[p].id}};
    if (!prompt.kind.empty()) line["kind"] = prompt.kind;
    if (prompt.turns.empty()) {
      line["tokens"] = prompt.tokens;
    } else {
      line["turns"] = prompt.turns;
    }
    text += line.dump() + "\n";
  }
  return text;
}

std::vector<StudyPrompt> spread(std::vector<StudyPrompt> prompts, std::int32_t count) {
  const auto wanted = static_cast<std::size_t>(std::max(count, 0));
  if (wanted == 0 || wanted >= prompts.size()) return prompts;
  std::vector<StudyPrompt> some;
  for (std::size_t i = 0; i < wanted; ++i) {
    some.push_back(std::move(prompts[i * prompts.size() / wanted]));
  }
  return some;
}

std::vector<StudyPrompt> left_out(const std::vector<StudyPrompt>& all,
                                  const std::vector<StudyPrompt>& some) {
  std::set<std::string> used;
  for (const StudyPrompt& prompt : some) used.insert(print_of(prompt));
  std::vector<StudyPrompt> others;
  for (const StudyPrompt& prompt : all) {
    if (!used.contains(print_of(prompt))) others.push_back(prompt);
  }
  return others;
}

namespace {

const char* whose(const Room& room) {
  return room.memory_is_short ? " that the KV memory holds" : " of the model's context";
}
std::string remedy_of(const PromptUse& use, const Room& room) {
  return cat("; ", use.remedy, room.memory_is_short ? ", or raise --kv-tokens" : "");
}

/// Refuses a text before it is encoded, which takes hundreds of bytes of memory for each of its
/// bytes. Throws Error(usage), which begins with `where`.
void check_bytes(Engine& engine, const std::string& text, const PromptUse& use,
                 const std::string& where) {
  const auto refuse_more_than = [&](std::uint64_t most, const std::string& what) {
    if (text.size() <= most) return;
    throw_usage(cat(where, ": ", text.size(), " bytes are more than the ", what));
  };
  if (use.most > 0) {
    constexpr std::uint64_t most = std::uint64_t{16} << 20;  // a long book
    return refuse_more_than(most, cat(most, " that one to be cut may have; shorten it"));
  }
  const Room room = room_of(engine);
  refuse_more_than(
      EngineAccess(engine).tokenizer().most_bytes(static_cast<std::uint64_t>(room.tokens)),
      cat(room.tokens, " tokens", whose(room), " can spell", remedy_of(use, room)));
}

}  // namespace

std::vector<std::vector<TokenId>> to_tokens(Engine& engine, const std::filesystem::path& file,
                                            const std::vector<StudyPrompt>& prompts,
                                            const PromptUse& use) {
  const Room room = room_of(engine);
  std::vector<std::vector<TokenId>> all;
  for (const StudyPrompt& prompt : prompts) {
    const std::string where = cat("prompts ", quote(file.string()), " line ", prompt.line);
    if (prompt.tokens.empty()) check_bytes(engine, prompt.turns[0], use, where);
    std::vector<TokenId> tokens = cut(
        prompt.tokens.empty() ? engine.tokenize(prompt.turns[0], use.add_bos) : prompt.tokens, use);
    if (tokens.empty()) throw_usage(cat(where, ": it holds no tokens; give at least one"));
    for (const TokenId token : tokens) {
      if (token >= 0 && token < engine.vocab_size()) continue;
      throw_usage(cat(where, ": token ", token, " is outside the target's vocabulary; give 0 to ",
                      engine.vocab_size() - 1));
    }
    if (std::cmp_greater(tokens.size() + static_cast<std::size_t>(use.new_tokens), room.tokens)) {
      throw_usage(cat(where, ": ", tokens.size(), " tokens and ", use.new_tokens, " new ",
                      use.new_tokens == 1 ? "one" : "ones", " are more than the ", room.tokens,
                      whose(room), remedy_of(use, room)));
    }
    all.push_back(std::move(tokens));
  }
  return all;
}

std::vector<Turns> to_turns(Engine& engine, const std::filesystem::path& file,
                            const std::vector<StudyPrompt>& prompts, const PromptUse& use) {
  std::vector<Turns> all;
  for (std::vector<TokenId>& first : to_tokens(engine, file, prompts, use)) {
    const std::vector<std::string>& turns = prompts[all.size()].turns;
    all.push_back({std::move(first)});
    for (std::size_t t = 1; t < turns.size(); ++t) {
      check_bytes(engine, turns[t], use,
                  cat("prompts ", quote(file.string()), " line ", prompts[all.size() - 1].line));
      const std::string text = cat("\n\n", turns[t], "\n\n");
      const Tokenizer& tokenizer = EngineAccess(engine).tokenizer();
      all.back().push_back(cut(tokenizer.encode(text, Tokenizer::after_text), use));
    }
  }
  return all;
}

std::vector<std::vector<TokenId>> draw_prompts(Engine& engine, std::int32_t count,
                                               std::int32_t length, std::uint64_t seed,
                                               const std::stop_token& stop,
                                               const std::function<void(double)>& progress) {
  const auto [room, memory_is_short] = room_of(engine);
  if (length >= room) {
    throw_usage(cat("--prompt-tokens ", length, ": ",
                    memory_is_short ? "KV memory holds " : "the context holds ", room,
                    " tokens; use ", room - 1, " or fewer",
                    memory_is_short ? ", or raise --kv-tokens" : ""));
  }
  const TokenId bos = EngineAccess(engine).target().model->config().bos_token;
  const std::vector<TokenId> start = {std::max(0, bos)};
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.speculation = Plain{};
  options.ignore_eos = true;
  options.max_new_tokens = length - 1;
  options.seed = seed;
  std::vector<std::vector<TokenId>> prompts;
  double written = 0.0;
  const auto goes_on = [&](const Piece& piece) {
    written += static_cast<double>(piece.tokens.size());
    if (progress) progress(written / (static_cast<double>(count) * (length - 1)));
    return !stop.stop_requested();
  };
  for (std::int32_t i = 0; i < count && !stop.stop_requested(); ++i) {
    options.stream = static_cast<std::uint64_t>(i);
    std::vector<TokenId> prompt = start;
    if (length > 1) {
      const Generation text = engine.generate(start, options, goes_on);
      if (text.finish_reason == FinishReason::cancelled) break;
      if (text.finish_reason != FinishReason::length) {
        throw_failure(cat("prompts: ", name_of(text.finish_reason), " ended one that the target ",
                          "wrote after ", text.tokens.size() + 1, " of ", length,
                          " tokens; lower --prompt-tokens or raise --kv-tokens"));
      }
      prompt.insert(prompt.end(), text.tokens.begin(), text.tokens.end());
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace coppice::study
