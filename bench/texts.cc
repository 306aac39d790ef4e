#include "texts.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "reference/tiny_model.h"

namespace coppice::bench {
namespace {

/// Has the target continue what is shorter than `tokens`, side by side.
void lengthen(Engine& engine, std::vector<std::vector<TokenId>>& prompts, std::size_t tokens) {
  std::vector<Request> requests;
  std::vector<std::size_t> place;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    if (prompts[p].size() >= tokens) continue;
    Request request;
    request.tokens = prompts[p];
    request.options.speculation = Plain{};
    request.options.sampling.temperature = 0.8;
    request.options.max_new_tokens = static_cast<std::int32_t>(tokens - prompts[p].size());
    request.options.ignore_eos = true;
    request.options.seed = p;
    requests.push_back(std::move(request));
    place.push_back(p);
  }
  engine.generate(requests, [&](std::size_t r, Outcome& outcome) {
    if (outcome.error) std::rethrow_exception(outcome.error);
    const std::vector<TokenId>& more = outcome.samples.front().tokens;
    prompts[place[r]].insert(prompts[place[r]].end(), more.begin(), more.end());
  });
}

}  // namespace

std::vector<PromptLine> read_prompt_lines(const std::string& file, int per_kind) {
  std::vector<PromptLine> prompts;
  std::map<std::string, int> taken;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    const std::string kind = json.at("kind");
    if (taken[kind]++ < per_kind) prompts.push_back({kind, json.at("prompt")});
  }
  if (prompts.empty()) throw std::runtime_error("no prompts in " + file);
  return prompts;
}

std::vector<std::vector<TokenId>> tokenized(Engine& engine, const std::vector<PromptLine>& prompts,
                                            std::size_t tokens) {
  std::vector<std::vector<TokenId>> all;
  for (const PromptLine& prompt : prompts) {
    all.push_back(engine.tokenize(prompt.text));
    if (tokens > 0 && all.back().size() > tokens) all.back().resize(tokens);
  }
  lengthen(engine, all, tokens);
  return all;
}

std::vector<std::vector<TokenId>> written_prompts(Engine& engine, std::size_t count,
                                                  std::size_t tokens) {
  const auto vocabulary = static_cast<std::size_t>(engine.vocab_size());
  std::vector<std::vector<TokenId>> all;
  for (std::size_t p = 0; p < count; ++p) {
    all.push_back({static_cast<TokenId>((p * 7919 + 1) % vocabulary)});
  }
  lengthen(engine, all, tokens);
  return all;
}

void write_prompts(const std::vector<PromptLine>& prompts,
                   const std::vector<std::vector<TokenId>>& ids, const std::string& file) {
  std::ofstream out(file);
  for (std::size_t p = 0; p < ids.size(); ++p) {
    nlohmann::ordered_json line;
    if (p < prompts.size()) line["kind"] = prompts[p].kind;
    line["tokens"] = ids[p];
    out << line.dump() << '\n';
  }
  if (!out.flush()) throw std::runtime_error(file + " could not be written");
}

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

}  // namespace coppice::bench
