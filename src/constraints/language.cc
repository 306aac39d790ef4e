#include "constraints/language.h"

#include <utility>

#include "base/error.h"
#include "constraints/gbnf.h"
#include "constraints/json_text.h"
#include "constraints/limits.h"
#include "constraints/regex.h"
#include "constraints/schema.h"

namespace coppice::constraints {
namespace {

using Kind = ConstraintSource::Kind;

void require_size(const ConstraintSource& source, const char* what) {
  std::size_t bytes = 0;
  for (const std::string& text : source.texts) bytes += text.size();
  if (bytes <= largest_constraint) return;
  throw_usage(cat(what, ": ", bytes, " bytes; at most ", largest_constraint,
                  " are taken: make it shorter"));
}

Expr language_of(Expressions& expressions, const ConstraintSource& source) {
  switch (source.kind) {
    case Kind::json:
      return JsonText(expressions, source.space).value();
    case Kind::json_schema:
      require_size(source, "JSON schema");
      return compile_schema(expressions, source.texts.at(0), source.space);
    case Kind::regex:
      require_size(source, "regular expression");
      return compile_regex(expressions, source.texts.at(0), RegexUse::whole_text,
                           "regular expression");
    case Kind::grammar:
      require_size(source, "grammar");
      return compile_gbnf(expressions, source.texts.at(0));
    case Kind::choice:
      break;
  }
  require_size(source, "choice");
  std::vector<Expr> all;
  for (const std::string& text : source.texts) all.push_back(expressions.text(text));
  return expressions.either(std::move(all));
}

}  // namespace

std::shared_ptr<const Language> compile(ConstraintSource source) {
  auto language = std::make_shared<Language>();
  language->source = std::move(source);
  Expressions& expressions = language->expressions;
  language->start = expressions.finish(language_of(expressions, language->source));
  if (language->start == nothing) {
    throw_usage("the constraint admits no text at all; correct what contradicts itself");
  }
  if (expressions.nullable(language->start) && expressions.edges(language->start).empty()) {
    throw_usage(
        "the constraint admits the empty text alone; say what text is wanted, or leave it out");
  }
  return language;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::json:
      return "json";
    case Kind::json_schema:
      return "json_schema";
    case Kind::regex:
      return "regex";
    case Kind::choice:
      return "choice";
    case Kind::grammar:
      break;
  }
  return "grammar";
}

}  // namespace coppice::constraints
