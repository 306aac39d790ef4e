#include "chat/names_read.h"

#include <vector>

namespace coppice::chat {
namespace {

class NameReader {
 public:
  void read(const Block& body) {
    for (const auto& statement : body) read(*statement);
  }
  std::set<std::string> names;

 private:
  void read(const Statement& s) {
    read(s.value.get());
    for (const auto& [target, value] : s.assignments) read(value.get());
    const std::size_t outer = bound_.size();
    if (s.kind == Statement::Kind::loop) bind(*s.target);
    read(s.condition.get());
    for (const Parameter& parameter : s.macro.parameters) {
      read(parameter.fallback.get());
      bound_.push_back(parameter.name);
    }
    read(s.macro.body);
    read(s.body);
    bound_.resize(outer);
    read(s.other);
  }

  void read(const Expression* e) {
    if (e == nullptr) return;
    if (e->kind == Expression::Kind::name) {
      for (const std::string& name : bound_) {
        if (name == e->text) return;
      }
      names.insert(e->text);
    }
    for (const ExpressionPtr& part : e->parts) read(part.get());
    for (const Argument& argument : e->arguments) read(argument.value.get());
  }

  void bind(const Expression& target) {
    if (target.kind == Expression::Kind::name) bound_.push_back(target.text);
    for (const ExpressionPtr& part : target.parts) bind(*part);
  }

  std::vector<std::string> bound_;
};

}  // namespace

std::set<std::string> names_read(const Block& body) {
  NameReader reader;
  reader.read(body);
  return std::move(reader.names);
}

}  // namespace coppice::chat
