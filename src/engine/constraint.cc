#include <array>
#include <span>
#include <string>
#include <utility>

#include "constraints/language.h"
#include "engine/access.h"
#include "engine/constraint_impl.h"
#include "engine/engine_impl.h"
#include "engine/open_sequence.h"

namespace coppice {
namespace {

using Kind = constraints::ConstraintSource::Kind;

template <typename Texts = std::span<const std::string>>
Constraint compiled(const Engine& engine, Kind kind, const Texts& texts = {}) {
  return in_words("constraint", [&] {
    return ConstraintAccess::make(engine,
                                  constraints::compile({kind, {texts.begin(), texts.end()}}));
  });
}

}  // namespace

Constraint ConstraintAccess::make(const Engine& engine,
                                  std::shared_ptr<const constraints::Language> language) {
  Constraint made;
  made.impl_ = std::make_shared<Constraint::Impl>(inside(engine).vocabulary(), std::move(language));
  return made;
}

Constraint Constraint::json(const Engine& engine) { return compiled(engine, Kind::json); }

Constraint Constraint::json_schema(const Engine& engine, std::string_view schema) {
  return compiled(engine, Kind::json_schema, std::array{schema});
}

Constraint Constraint::regex(const Engine& engine, std::string_view pattern) {
  return compiled(engine, Kind::regex, std::array{pattern});
}

Constraint Constraint::choice(const Engine& engine, std::span<const std::string> texts) {
  return compiled(engine, Kind::choice, texts);
}

Constraint Constraint::grammar(const Engine& engine, std::string_view gbnf) {
  return compiled(engine, Kind::grammar, std::array{gbnf});
}

}  // namespace coppice
