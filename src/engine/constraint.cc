#include <utility>

#include "engine/access.h"
#include "engine/constraint_impl.h"
#include "engine/engine_impl.h"

namespace coppice {

Constraint ConstraintAccess::make(std::shared_ptr<const constraints::Constraint> rules) {
  Constraint made;
  made.impl_ = std::make_shared<Constraint::Impl>(Constraint::Impl{std::move(rules)});
  return made;
}

Constraint Constraint::json(const Engine& engine) {
  return ConstraintAccess::make(constraints::Constraint::json(inside(engine).vocabulary()));
}

Constraint Constraint::json_schema(const Engine& engine, std::string_view schema) {
  return ConstraintAccess::make(
      constraints::Constraint::json_schema(inside(engine).vocabulary(), schema));
}

Constraint Constraint::regex(const Engine& engine, std::string_view pattern) {
  return ConstraintAccess::make(
      constraints::Constraint::regex(inside(engine).vocabulary(), pattern));
}

Constraint Constraint::choice(const Engine& engine, std::span<const std::string> texts) {
  return ConstraintAccess::make(
      constraints::Constraint::choice(inside(engine).vocabulary(), texts));
}

Constraint Constraint::grammar(const Engine& engine, std::string_view gbnf) {
  return ConstraintAccess::make(constraints::Constraint::gbnf(inside(engine).vocabulary(), gbnf));
}

}  // namespace coppice
