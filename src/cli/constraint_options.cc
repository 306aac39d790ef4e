#include "cli/constraint_options.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "engine/constraint_impl.h"

namespace coppice::cli {
namespace {

using Kind = constraints::ConstraintSource::Kind;

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

bool asks_for_constraint(const po::variables_map& values) {
  return std::ranges::any_of(all,
                             [&](const Option& option) { return values.count(option.name) != 0; });
}

std::shared_ptr<const constraints::Language> ConstraintReader::read(const po::variables_map& values,
                                                                    bool files) {
  constraints::ConstraintSource source;
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
  if (given == nullptr) return nullptr;
  std::shared_ptr<const constraints::Language>& known = known_[source];
  if (known != nullptr) return known;
  try {
    known = compile(source);
  } catch (const Error& error) {
    throw Error(error.kind(), cat(where, error.what()));
  }
  return known;
}

Constraint Constraints::build(const Engine& engine,
                              const std::shared_ptr<const constraints::Language>& language) {
  if (language == nullptr) return {};
  const auto [place, is_new] = built_.try_emplace(language.get());
  if (is_new) place->second = ConstraintAccess::make(engine, language);
  return place->second;
}

}  // namespace coppice::cli
