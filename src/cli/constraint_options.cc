#include "cli/constraint_options.h"

#include <array>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "constraints/constraint.h"

namespace coppice::cli {
namespace {

// What is wrong with a constraint is wrong over any vocabulary: said before models are loaded.
// `where` begins the line.
void check(const ConstraintSource& source, const std::string& where) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  const TokenId end = 256;
  bytes.emplace_back();
  static const auto vocabulary =
      std::make_shared<const constraints::Vocabulary>(bytes, std::span(&end, 1));
  try {
    switch (source.kind) {
      case ConstraintSource::Kind::json_schema:
        constraints::Constraint::json_schema(vocabulary, source.texts[0]);
        break;
      case ConstraintSource::Kind::regex:
        constraints::Constraint::regex(vocabulary, source.texts[0]);
        break;
      case ConstraintSource::Kind::choice:
        constraints::Constraint::choice(vocabulary, source.texts);
        break;
      case ConstraintSource::Kind::grammar:
        constraints::Constraint::gbnf(vocabulary, source.texts[0]);
        break;
      case ConstraintSource::Kind::json:
      case ConstraintSource::Kind::none:
        break;
    }
  } catch (const Error& error) {
    throw Error(error.kind(), cat(where, error.what()));
  }
}

using Kind = ConstraintSource::Kind;

struct Option {
  const char* name;
  Kind kind;
};
constexpr std::array all = {Option{"json", Kind::json}, Option{"json-schema", Kind::json_schema},
                            Option{"regex", Kind::regex}, Option{"choice", Kind::choice},
                            Option{"grammar", Kind::grammar}};
constexpr std::size_t most_bytes = std::size_t{16} << 20;

// A schema is an object or a boolean, a grammar has a rule: no file is called so.
bool is_text(Kind kind, const std::string& value) {
  if (kind == Kind::grammar) return value.find("::=") != value.npos;
  const auto first = value.find_first_not_of(" \t\r\n");
  return first != value.npos && (value[first] == '{' || value == "true" || value == "false");
}

}  // namespace

po::options_description constraint_options() {
  po::options_description d("Constraint: what the new text may be");
  d.add_options()("json", "any JSON value")(
      "json-schema", po::value<std::string>()->value_name("FILE|TEXT"),
      "JSON that the schema admits (draft 2020-12; src/constraints/README.md lists the keywords)")(
      "regex", po::value<std::string>()->value_name("TEXT"),
      "a text that the expression matches as a whole")(
      "choice", po::value<std::vector<std::string>>()->composing()->value_name("TEXT"),
      "this text, or one of those of further --choice")(
      "grammar", po::value<std::string>()->value_name("FILE|TEXT"),
      "a text of the rule \"root\" of a grammar, as llama.cpp writes them (GBNF)");
  return d;
}

ConstraintSource constraint_in(const po::variables_map& values, bool files) {
  ConstraintSource source;
  const char* given = nullptr;
  std::string where;
  for (const Option& option : all) {
    if (values.count(option.name) == 0) continue;
    if (given != nullptr) {
      throw_usage(
          cat("--", given, " and --", option.name, ": a text has one constraint; give one"));
    }
    given = option.name;
    source.kind = option.kind;
    if (option.kind == Kind::json) continue;
    if (option.kind == Kind::choice) {
      source.texts = values[option.name].as<std::vector<std::string>>();
      continue;
    }
    std::string text = values[option.name].as<std::string>(), file;
    if (option.kind != Kind::regex && !is_text(option.kind, text)) {
      if (!files) {
        throw_usage(cat(option.kind == Kind::grammar ? "\"grammar\"" : "\"json_schema\"",
                        ": a line holds the text itself, not a file's name"));
      }
      file = text;
      text = read_file(file, option.name, most_bytes);
    }
    source.texts.push_back(std::move(text));
    where = file.empty() ? "" : cat(file, ": ");
  }
  check(source, where);
  return source;
}

Constraint Constraints::build(const Engine& engine, const ConstraintSource& source) {
  if (source.kind == Kind::none) return {};
  const auto found = built_.find(source);
  if (found != built_.end()) return found->second;
  Constraint made;
  switch (source.kind) {
    case Kind::json:
      made = Constraint::json(engine);
      break;
    case Kind::json_schema:
      made = Constraint::json_schema(engine, source.texts[0]);
      break;
    case Kind::regex:
      made = Constraint::regex(engine, source.texts[0]);
      break;
    case Kind::choice:
      made = Constraint::choice(engine, source.texts);
      break;
    case Kind::grammar:
      made = Constraint::grammar(engine, source.texts[0]);
      break;
    case Kind::none:
      break;
  }
  return built_[source] = made;
}

}  // namespace coppice::cli
