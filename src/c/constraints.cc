#include <string>
#include <utility>
#include <vector>

#include "c/handles.h"
#include "c/options.h"

using namespace coppice;
using namespace coppice::c;

namespace {

// `make` builds it from the engine and what else it needs.
template <typename Make>
coppice_status make_constraint(const coppice_engine* engine, coppice_constraint** constraint,
                               Make make) noexcept {
  return guarded([&] {
    need(engine, "engine");
    need(constraint, "constraint");
    *constraint = new coppice_constraint{make(engine->engine)};
  });
}

}  // namespace

coppice_status coppice_constraint_json(const coppice_engine* engine,
                                       coppice_constraint** constraint) {
  return make_constraint(engine, constraint, [](const Engine& of) { return Constraint::json(of); });
}

coppice_status coppice_constraint_json_schema(const coppice_engine* engine, const char* schema,
                                              coppice_constraint** constraint) {
  return make_constraint(engine, constraint, [&](const Engine& of) {
    need(schema, "schema");
    return Constraint::json_schema(of, schema);
  });
}

coppice_status coppice_constraint_regex(const coppice_engine* engine, const char* pattern,
                                        coppice_constraint** constraint) {
  return make_constraint(engine, constraint, [&](const Engine& of) {
    need(pattern, "pattern");
    return Constraint::regex(of, pattern);
  });
}

coppice_status coppice_constraint_choice(const coppice_engine* engine, const char* const* texts,
                                         size_t count, coppice_constraint** constraint) {
  return make_constraint(engine, constraint, [&](const Engine& of) {
    std::vector<std::string> own;
    for (const char* const text : span_of(texts, count, "texts")) {
      need(text, "texts");
      own.emplace_back(text);
    }
    return Constraint::choice(of, own);
  });
}

coppice_status coppice_constraint_grammar(const coppice_engine* engine, const char* gbnf,
                                          coppice_constraint** constraint) {
  return make_constraint(engine, constraint, [&](const Engine& of) {
    need(gbnf, "gbnf");
    return Constraint::grammar(of, gbnf);
  });
}

void coppice_constraint_free(coppice_constraint* constraint) { delete constraint; }
