#include "chat/interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "chat/python_text.h"

namespace coppice::chat {

/// A level of recursion, and the place in the source for messages.
class Interpreter::Level {
 public:
  Level(Interpreter& owner, int line) : owner_(owner) {
    Budget::spend_steps(1);
    if (++owner_.depth_ > 800) {
      --owner_.depth_;
      throw TemplateError("calls and blocks nest too deep; a macro may call itself without end");
    }
    if (line > 0) owner_.line_ = line;
  }
  ~Level() { --owner_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& owner_;
};

namespace {

// Puts another scope in force while it lives.
class ScopeChange {
 public:
  ScopeChange(std::shared_ptr<Scope>& current, std::shared_ptr<Scope> inner)
      : current_(current), outer_(std::exchange(current, std::move(inner))) {}
  ~ScopeChange() { current_ = std::move(outer_); }
  ScopeChange(const ScopeChange&) = delete;
  ScopeChange& operator=(const ScopeChange&) = delete;

 private:
  std::shared_ptr<Scope>& current_;
  std::shared_ptr<Scope> outer_;
};

std::shared_ptr<Scope> inside(const std::shared_ptr<Scope>& scope) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  return inner;
}

/// What `loop` knows.
struct LoopState {
  std::vector<Value> items;
  std::size_t index = 0;
  int depth = 0;
  Text last_changed;
  bool has_changed = false;
};

Value loop_attribute(const std::shared_ptr<LoopState>& state, std::string_view name) {
  const std::size_t i = state->index, n = state->items.size();
  if (name == "index") return Value(i + 1);
  if (name == "index0") return Value(i);
  if (name == "revindex") return Value(n - i);
  if (name == "revindex0") return Value(n - i - 1);
  if (name == "first") return Value(i == 0);
  if (name == "last") return Value(i + 1 == n);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(state->depth + 1);
  if (name == "depth0") return Value(state->depth);
  if (name == "previtem") {
    return i > 0 ? state->items[i - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return i + 1 < n ? state->items[i + 1] : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return Value(Callable{"cycle",
                          [state](Interpreter&, const Arguments& given) {
                            if (given.positional.empty()) {
                              throw TemplateError("no items for cycling given");
                            }
                            return given.positional[state->index % given.positional.size()];
                          },
                          {},
                          1});
  }
  if (name == "changed") {
    return Value(Callable{"changed",
                          [state](Interpreter&, const Arguments& given) {
                            // As text, so that no loop holds values that hold loops.
                            Text now;
                            for (const Value& value : given.positional) {
                              now.append(repr(value));
                              now.append(",");
                            }
                            const bool changed =
                                !state->has_changed || !(now == state->last_changed);
                            state->has_changed = true;
                            state->last_changed = std::move(now);
                            return Value(changed);
                          },
                          {},
                          1});
  }
  return Value::undefined(cat("'loop object' has no attribute '", name, "'"));
}

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    spend_search(1 + scope->names.size(), name);
    for (const auto& [key, value] : scope->names) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  spend_search(names.size(), name);
  for (auto& [key, old] : names) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const Dict& context, std::time_t now)
    : scope_(std::make_shared<Scope>()), now_(now) {
  for (const auto& [name, value] : context.items) {
    scope_->names.emplace_back(text_of(name, "a name").bytes(), value);
  }
  scope_ = inside(scope_);
}

Text Interpreter::render(const Block& block) {
  Text out;
  execute(block, out);
  return out;
}

Namespace* Interpreter::new_namespace() {
  Budget::spend_steps(4);
  return &namespaces_.emplace_back();
}

void Interpreter::write(const Value& value, Text& out) { append_str(value, out); }

Interpreter::Flow Interpreter::execute(const Block& block, Text& out) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, out);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& node, Text& out) {
  const Level level(*this, node.line);
  switch (node.kind) {
    case Statement::Kind::text:
      out.append(node.text);
      return Flow::normal;
    case Statement::Kind::output:
      write(evaluate(*node.value), out);
      return Flow::normal;
    case Statement::Kind::conditional:
      return execute(is_true(evaluate(*node.value)) ? node.body : node.other, out);
    case Statement::Kind::loop:
      return loop(node, evaluate(*node.value), 0, out);
    case Statement::Kind::assign:
      assign(*node.target, evaluate(*node.value));
      return Flow::normal;
    case Statement::Kind::assign_block: {
      Value value;
      if (const Flow flow = capture(node.body, value); flow != Flow::normal) return flow;
      if (node.value != nullptr) value = filtered(*node.value, &value);
      assign(*node.target, value);
      return Flow::normal;
    }
    case Statement::Kind::macro:
      scope_->set(node.macro.name, macro(node.macro));
      return Flow::normal;
    case Statement::Kind::call: {
      const Value callee = evaluate(*node.value->parts[0]);
      Arguments arguments = evaluate(node.value->arguments);
      arguments.add("caller", macro(node.macro));
      write(call(callee, arguments), out);
      return Flow::normal;
    }
    case Statement::Kind::filter: {
      Value text;
      if (const Flow flow = capture(node.body, text); flow != Flow::normal) return flow;
      write(filtered(*node.value, &text), out);
      return Flow::normal;
    }
    case Statement::Kind::with: {
      auto inner = inside(scope_);
      for (const auto& [target, value] : node.assignments) {
        inner->set(target->text, evaluate(*value));
      }
      const ScopeChange change(scope_, std::move(inner));
      return execute(node.body, out);
    }
    case Statement::Kind::scope: {
      const ScopeChange change(scope_, inside(scope_));
      return execute(node.body, out);
    }
    case Statement::Kind::break_loop:
      return Flow::broke;
    case Statement::Kind::continue_loop:
      return Flow::continued;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::loop(const Statement& node, const Value& values, int depth,
                                    Text& out) {
  const auto state = std::make_shared<LoopState>();
  state->depth = depth;
  state->items = items_of(values);
  Budget::spend_steps(state->items.size());
  if (node.condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : state->items) {
      const ScopeChange change(scope_, inside(scope_));
      assign(*node.target, item);
      if (is_true(evaluate(*node.condition))) kept.push_back(item);
    }
    state->items = std::move(kept);
  }
  Callable self{"loop", {}, {}, std::max(1, values.depth() + 1)};
  self.attribute = [state](std::string_view name) { return loop_attribute(state, name); };
  // The scope of the whole loop, in which a recursive call runs; weak, or it would own itself.
  const std::weak_ptr<Scope> around = scope_;
  const Statement* statement = &node;
  self.call = [statement, depth, around](Interpreter& interpreter, const Arguments& given) {
    const auto scope = around.lock();
    if (!statement->recursive || scope == nullptr || given.positional.size() != 1) {
      throw TemplateError("loop() takes one list, in a recursive loop only");
    }
    const ScopeChange change(interpreter.scope_, scope);
    const Level level(interpreter, 0);
    Text text;
    interpreter.loop(*statement, given.positional[0], depth + 1, text);
    return Value(std::move(text));
  };
  const Value loop_value(std::move(self));
  bool completed = false;  // Jinja's else is for loops of which no round came to its end
  for (; state->index < state->items.size(); ++state->index) {
    const ScopeChange change(scope_, inside(scope_));
    scope_->set("loop", loop_value);
    assign(*node.target, state->items[state->index]);
    const Flow flow = execute(node.body, out);
    if (flow == Flow::broke) break;
    completed = completed || flow == Flow::normal;
  }
  if (completed) return Flow::normal;
  const ScopeChange change(scope_, inside(scope_));
  return execute(node.other, out);
}

Interpreter::Flow Interpreter::capture(const Block& body, Value& text) {
  const ScopeChange change(scope_, inside(scope_));
  Text out;
  const Flow flow = execute(body, out);
  text = Value(std::move(out));
  return flow;
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::name) {
    scope_->set(target.text, value);
  } else if (target.kind == Expression::Kind::attribute) {
    const Value owner = evaluate(*target.parts[0]);
    if (!owner.is_namespace()) {
      throw TemplateError("cannot assign attribute on non-namespace object");
    }
    auto& items = owner.as_namespace().items;
    spend_search(items.size(), target.text);
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const auto& item) { return item.first == target.text; });
    if (found != items.end()) {
      found->second = value;
    } else {
      items.emplace_back(target.text, value);
    }
  } else {
    const std::vector<Value> values = items_of(defined(value));
    if (values.size() != target.parts.size()) {
      throw TemplateError(cat(values.size() < target.parts.size() ? "not enough" : "too many",
                              " values to unpack (expected ", target.parts.size(), ", got ",
                              values.size(), ")"));
    }
    for (std::size_t i = 0; i < values.size(); ++i) assign(*target.parts[i], values[i]);
  }
}

Value Interpreter::macro(const Macro& macro) {
  const std::weak_ptr<Scope> closure = scope_;
  const Macro* definition = &macro;
  Callable callable{cat("macro ", macro.name), {}, {}, 1};
  callable.call = [definition, closure](Interpreter& interpreter, const Arguments& given) {
    const auto scope = closure.lock();
    if (scope == nullptr) {
      throw TemplateError(cat("macro ", quote(definition->name), " is called outside its block"));
    }
    return interpreter.call_macro(*definition, scope, given);
  };
  callable.attribute = [definition](std::string_view name) {
    if (name == "name") return Value(definition->name);
    return Value::undefined(cat("'Macro object' has no attribute '", name, "'"));
  };
  return Value(std::move(callable));
}

Value Interpreter::call_macro(const Macro& macro, const std::shared_ptr<Scope>& closure,
                              const Arguments& given) {
  const Level level(*this, 0);
  const int line = line_;
  auto inner = inside(closure);
  const std::size_t most = macro.parameters.size();
  if (given.positional.size() > most && !macro.uses_varargs) {
    throw TemplateError(cat("macro '", macro.name, "' takes not more than ", most, " argument(s)"));
  }
  std::vector<Value> rest;
  for (std::size_t i = most; i < given.positional.size(); ++i) rest.push_back(given.positional[i]);
  std::vector<std::pair<Value, Value>> other_names;
  Value caller = Value::undefined("No caller defined");
  for (const auto& [key, value] : given.named) {
    const std::string_view name = key.view();
    spend_search(most, name);
    const auto parameter = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                        [&](const Parameter& p) { return p.name == name; });
    if (parameter != macro.parameters.end()) {
      if (parameter - macro.parameters.begin() <
          static_cast<std::ptrdiff_t>(given.positional.size())) {
        throw TemplateError(
            cat("macro '", macro.name, "' got multiple values for argument '", name, "'"));
      }
      continue;
    }
    if (name == "caller") {
      caller = value;
      if (macro.uses_caller) continue;
    }
    if (!macro.uses_kwargs) {
      throw TemplateError(cat("macro '", macro.name, "' takes no keyword argument '", name, "'"));
    }
    other_names.emplace_back(Value(key), value);
  }
  if (macro.uses_caller) inner->set("caller", caller);
  if (macro.uses_varargs) inner->set("varargs", Value::tuple(std::move(rest)));
  if (macro.uses_kwargs) inner->set("kwargs", Value::dict(std::move(other_names)));
  const ScopeChange change(scope_, std::move(inner));
  for (std::size_t i = 0; i < most; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (i < given.positional.size()) {
      scope_->set(parameter.name, given.positional[i]);
    } else if (const Value* value = given.find(parameter.name)) {
      scope_->set(parameter.name, *value);
    } else if (parameter.fallback != nullptr) {
      scope_->set(parameter.name, evaluate(*parameter.fallback));
    } else {
      scope_->set(parameter.name,
                  Value::undefined(cat("parameter '", parameter.name, "' was not provided")));
    }
  }
  Text text;
  execute(macro.body, text);
  line_ = line;
  return Value(std::move(text));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (!defined(callee).is_callable()) {
    throw TemplateError(cat("a ", callee.type_name(), " is not callable"));
  }
  if (!callee.as_callable().call) throw TemplateError("this object is not callable");
  return callee.as_callable().call(*this, arguments);
}

}  // namespace coppice::chat
