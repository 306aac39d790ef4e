// Encodes and decodes by one tokenizer, request by request: what compare.py talks to. One JSON
// object per line on standard input, one on standard output for each:
//   {"text": TEXT}   {"ids": [...], "framed": [...], "decoded": TEXT of "ids",
//                     "shown": TEXT, "streamed": TEXT}; decoded with special tokens, shown without;
//                     streamed: their bytes joined
//   {"ids": [...]}   {"decoded": TEXT}
//   {"file": PATH}   {"seconds": S, "tokens": N} for the whole file as one text; with "lines":
//                    true, each line is a text of its own
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

Json encoded(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  std::string streamed;
  for (const TokenId id : ids) streamed += tokenizer.bytes_of(id);
  return {{"ids", ids},
          {"framed", tokenizer.framed(ids)},
          {"decoded", to_valid_utf8(tokenizer.decode(ids, true))},
          {"shown", to_valid_utf8(tokenizer.decode(ids))},
          {"streamed", to_valid_utf8(streamed)}};
}

Json timed(const Tokenizer& tokenizer, const Json& request) {
  const auto path = request.at("file").get<std::string>();
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_failure(cat(path, ": cannot be read"));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string_view> texts;
  if (request.value("lines", false)) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      texts.push_back(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
  } else {
    texts.push_back(text);
  }
  const double start = now_seconds();
  std::size_t tokens = 0;
  for (const std::string_view one : texts) tokens += tokenizer.encode(one).size();
  return {{"seconds", now_seconds() - start}, {"tokens", tokens}};
}

Json answer(const Tokenizer& tokenizer, const Json& request) {
  if (request.contains("file")) return timed(tokenizer, request);
  if (request.contains("text")) return encoded(tokenizer, request.at("text").get<std::string>());
  const auto ids = request.at("ids").get<std::vector<TokenId>>();
  return {{"decoded", to_valid_utf8(tokenizer.decode(ids, true))}};
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: tokenize FOLDER < requests.jsonl > answers.jsonl\n";
    return 2;
  }
  const double start = coppice::now_seconds();
  const auto tokenizer = coppice::Tokenizer::load(argv[1]);
  std::cout << coppice::Json{{"seconds", coppice::now_seconds() - start},
                             {"pieces", tokenizer->pieces()}}
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    coppice::Json result;
    try {
      result = coppice::answer(*tokenizer, coppice::Json::parse(line));
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "tokenize: " << error.what() << "\n";
  return 1;
}
