// Answers questions about constraints, request by request: what the scripts beside it talk to. One
// JSON object per line on standard input, one on standard output for each. The first answer is of
// the vocabulary. A request has "kind" (schema, json, regex, choice, gbnf), "text" (of a choice a
// list) and, for JSON, "space" (any, python, none); and what is asked:
//   "texts": [TEXT, ...]    "accepted": for each whether the language has it
//   "prefix": [TEXT, ...]   "viable": for each whether a text of the language begins so
//   "walks": N, "steps": M, "seed": S    "walks": N random texts, each with its "tokens", whether
//   it
//                           "ended", its "text", the CRC-32 of the mask before each token and the
//                           microseconds that it took, "new" where the state was met first
//   "tokens": [...]         "allowed": the tokens that may follow these; "forced": what must
//   "first": TEXT           "first_us": least of 20 times for the mask behind this text in a
//   constraint
//                           that has computed none, and "compile_us" is the least, too
//   "tree": N               "tree": a random tree of N nodes behind the tokens "before", node 0,
//   with
//                           "parents" and "tokens", and "us" for its states and masks, states known
// Each answer has "compile_us", or "error".
#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "constraints/constraint.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice::constraints {
namespace {

using Json = nlohmann::json;
using Shared = std::shared_ptr<const Vocabulary>;

double microseconds_since(double start) { return (now_seconds() - start) * 1e6; }

std::uint32_t crc32(const std::vector<std::uint32_t>& words) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> all{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value & 1) != 0 ? 0xedb88320u ^ value >> 1 : value >> 1;
      all[i] = value;
    }
    return all;
  }();
  std::uint32_t sum = ~0u;
  for (const std::uint32_t word : words) {
    for (int i = 0; i < 4; ++i) sum = table[(sum ^ word >> (8 * i)) & 255] ^ sum >> 8;
  }
  return ~sum;
}

std::shared_ptr<const Constraint> compiled(const Shared& vocabulary, const Json& request) {
  const auto kind = request.at("kind").get<std::string>();
  const auto space_name = request.value("space", std::string("any"));
  const JsonSpace space = space_name == "python" ? JsonSpace::python
                          : space_name == "none" ? JsonSpace::none
                                                 : JsonSpace::any;
  using Kind = ConstraintSource::Kind;
  static const std::map<std::string, Kind> kinds = {{"json", Kind::json},
                                                    {"choice", Kind::choice},
                                                    {"schema", Kind::json_schema},
                                                    {"regex", Kind::regex},
                                                    {"gbnf", Kind::grammar}};
  const auto found = kinds.find(kind);
  if (found == kinds.end()) throw_usage("unknown kind " + quote(kind));
  ConstraintSource source{found->second, {}, space};
  if (source.kind == Kind::choice) {
    source.texts = request.at("text").get<std::vector<std::string>>();
  } else if (source.kind != Kind::json) {
    source.texts = {request.at("text").get<std::string>()};
  }
  return std::make_shared<const Constraint>(vocabulary, compile(std::move(source)));
}

std::vector<TokenId> allowed_tokens(const Mask& mask) {
  std::vector<TokenId> all;
  for (std::size_t i = 0; i < mask.words.size(); ++i) {
    for (std::uint32_t word = mask.words[i]; word != 0; word &= word - 1) {
      all.push_back(static_cast<TokenId>(32 * i) + std::countr_zero(word));
    }
  }
  return all;
}

// A random text: mostly any token, sometimes a short one, so that strings end now and then.
Json walked(const Constraint& constraint, std::size_t steps, std::mt19937& random,
            std::unordered_set<Constraint::State>& met) {
  const Vocabulary& vocabulary = constraint.vocabulary();
  Json masks = Json::array(), times = Json::array(), fresh = Json::array();
  std::vector<TokenId> tokens;
  std::string text;
  Constraint::State state = constraint.start();
  bool ended = false;
  while (tokens.size() < steps && !ended) {
    fresh.push_back(met.insert(state).second);
    const double start = now_seconds();
    const auto mask = constraint.mask(state);
    times.push_back(microseconds_since(start));
    masks.push_back(crc32(mask->words));
    const std::vector<TokenId> all = allowed_tokens(*mask);
    TokenId token = all[random() % all.size()];
    if (random() % 2 == 0) {
      for (int i = 0; i < 8; ++i) {
        const TokenId other = all[random() % all.size()];
        const std::string_view bytes = vocabulary.bytes(other);
        if (bytes.size() < vocabulary.bytes(token).size() || bytes.ends_with('"')) token = other;
      }
    }
    for (const TokenId closer : all) {
      // As every text goes on for ever otherwise.
      const std::string_view bytes = vocabulary.bytes(closer);
      const bool closes =
          vocabulary.is_end(closer) || bytes == "\"" || bytes == "]" || bytes == "}";
      if (closes && random() % 4 == 0) token = closer;
    }
    ended = vocabulary.is_end(token);
    tokens.push_back(token);
    text += vocabulary.bytes(token);
    state = constraint.advance(state, token);
    if (state == Constraint::nowhere) throw_failure("a token of the mask leads nowhere");
  }
  return {{"tokens", tokens}, {"ended", ended}, {"text", to_valid_utf8(text)},
          {"masks", masks},   {"us", times},    {"new", fresh}};
}

// Any token that may follow but an end; -1 if there is none.
TokenId random_token(const Mask& mask, const Vocabulary& vocabulary, std::mt19937& random) {
  std::vector<TokenId> all = allowed_tokens(mask);
  std::erase_if(all, [&](TokenId token) { return vocabulary.is_end(token); });
  return all.empty() ? -1 : all[random() % all.size()];
}

// Grows a random tree behind a random text; least time of 20 rounds for all its states and masks.
Json timed_tree(const Constraint& constraint, std::size_t nodes, std::mt19937& random) {
  const Vocabulary& vocabulary = constraint.vocabulary();
  std::vector<Constraint::State> states = {constraint.start()};
  std::vector<std::pair<std::size_t, TokenId>> edges;
  std::vector<TokenId> before;
  for (int i = 0; i < 12; ++i) {  // not at the text's beginning, where all is spelt out
    const TokenId token = random_token(*constraint.mask(states.front()), vocabulary, random);
    const auto after = token < 0 ? Constraint::nowhere : constraint.advance(states.front(), token);
    if (token < 0 || random_token(*constraint.mask(after), vocabulary, random) < 0) break;
    before.push_back(token);
    states.front() = after;
  }
  for (std::size_t tries = 0; edges.size() < nodes && tries < 100 * nodes; ++tries) {
    const std::size_t parent = random() % states.size();
    const TokenId token = random_token(*constraint.mask(states[parent]), vocabulary, random);
    if (token < 0) continue;
    edges.emplace_back(parent, token);
    states.push_back(constraint.advance(states[parent], token));
    constraint.mask(states.back());
  }
  if (edges.size() < nodes || before.empty()) return nullptr;
  double least = 1e9;
  for (int round = 0; round < 20; ++round) {
    std::int64_t allowed = 0;
    const double start = now_seconds();
    for (std::size_t i = 0; i < nodes; ++i) {
      states[i + 1] = constraint.advance(states[edges[i].first], edges[i].second);
      allowed += constraint.mask(states[i + 1])->allowed;
    }
    if (allowed > 0) least = std::min(least, microseconds_since(start));
  }
  Json parents = Json::array(), tokens = Json::array();
  for (const auto& [parent, token] : edges) {
    parents.push_back(parent);
    tokens.push_back(token);
  }
  return {{"us", least}, {"before", before}, {"parents", parents}, {"tokens", tokens}};
}

Json answer(const Shared& vocabulary, const Json& request) {
  const double start = now_seconds();
  const auto constraint = compiled(vocabulary, request);
  Json result = {{"compile_us", microseconds_since(start)}};
  if (request.contains("texts")) {
    Json accepted = Json::array();
    for (const auto& text : request["texts"]) {
      const auto end = constraint->advance(constraint->start(), text.get_ref<const std::string&>());
      accepted.push_back(constraint->accepting(end));
    }
    result["accepted"] = accepted;
  }
  if (request.contains("prefix")) {
    Json viable = Json::array();
    for (const auto& text : request["prefix"]) {
      viable.push_back(
          constraint->advance(constraint->start(), text.get_ref<const std::string&>()) !=
          Constraint::nowhere);
    }
    result["viable"] = viable;
  }
  std::mt19937 random(request.value("seed", 1u));
  if (request.contains("walks")) {
    std::unordered_set<Constraint::State> met;
    Json walks = Json::array();
    for (int i = 0; i < request["walks"].get<int>(); ++i) {
      walks.push_back(walked(*constraint, request.value("steps", std::size_t{100}), random, met));
    }
    result["walks"] = walks;
  }
  if (request.contains("tokens")) {
    Constraint::State state = constraint->start();
    for (const auto& token : request["tokens"])
      state = constraint->advance(state, token.get<TokenId>());
    result["allowed"] = allowed_tokens(*constraint->mask(state));
    result["forced"] = constraint->forced(state);
  }
  if (request.contains("first")) {
    const auto text = request["first"].get<std::string>();
    double least = 1e12, least_compile = 1e12;
    for (int round = 0; round < 20; ++round) {
      const double start_compile = now_seconds();
      const auto fresh = compiled(vocabulary, request);
      least_compile = std::min(least_compile, microseconds_since(start_compile));
      const auto state = fresh->advance(fresh->start(), text);
      const double start_mask = now_seconds();
      fresh->mask(state);
      least = std::min(least, microseconds_since(start_mask));
    }
    result["first_us"] = least;
    result["compile_us"] = least_compile;
  }
  if (request.contains("tree")) {
    result["tree"] = timed_tree(*constraint, request["tree"].get<std::size_t>(), random);
  }
  const Constraint::Usage usage = constraint->usage();
  result["usage"] = {{"states", usage.states}, {"bytes", usage.bytes}, {"masks", usage.masks}};
  return result;
}

}  // namespace
}  // namespace coppice::constraints

int main(int argc, char** argv) try {
  using namespace coppice;
  if (argc < 2) {
    std::cerr << "usage: constraints FOLDER|FILE.gguf [END_TOKEN ...] < requests.jsonl\n";
    return 2;
  }
  std::vector<TokenId> ends;
  for (int i = 2; i < argc; ++i) ends.push_back(std::stoi(argv[i]));
  const auto tokenizer = Tokenizer::load(argv[1]);
  const double start = now_seconds();
  const auto vocabulary = std::make_shared<const constraints::Vocabulary>(*tokenizer, ends);
  nlohmann::json first = {{"tokens", vocabulary->size()},
                          {"nodes", vocabulary->nodes().size() - 1},
                          {"seconds", now_seconds() - start}};
  // Bytes of all tokens, in hexadecimal, for other programs' vocabularies.
  for (TokenId token = 0; token < vocabulary->size(); ++token) {
    std::string hex;
    for (const char c : vocabulary->bytes(token)) {
      constexpr char digits[] = "0123456789abcdef";
      hex += digits[static_cast<unsigned char>(c) >> 4];
      hex += digits[static_cast<unsigned char>(c) & 15];
    }
    first["bytes"].push_back(hex);
  }
  std::cout << first << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json result;
    try {
      result = constraints::answer(vocabulary, nlohmann::json::parse(line));
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "constraints: " << error.what() << "\n";
  return 1;
}
