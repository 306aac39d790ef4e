// Engines, what they say of themselves, tokens and cache.
#include <cstdlib>
#include <span>
#include <type_traits>
#include <utility>

#include "c/handed_over.h"
#include "c/handles.h"
#include "c/options.h"

using namespace coppice;
using namespace coppice::c;

static_assert(std::is_same_v<TokenId, std::int32_t>);

const char* coppice_version(void) { return version(); }

void coppice_free(void* array) { std::free(array); }

coppice_status coppice_engine_load(const coppice_engine_options* options, coppice_engine** engine) {
  return guarded([&] {
    need(engine, "engine");
    Engine loaded = Engine::load(options_of(options));
    std::string warning = loaded.warning();
    *engine = new coppice_engine{std::move(loaded), std::move(warning)};
  });
}

void coppice_engine_free(coppice_engine* engine) { delete engine; }

int coppice_engine_has_tokenizer(const coppice_engine* engine) {
  return engine->engine.has_tokenizer();
}
int coppice_engine_has_draft(const coppice_engine* engine) { return engine->engine.has_draft(); }
int32_t coppice_engine_context_length(const coppice_engine* engine) {
  return engine->engine.context_length();
}
int64_t coppice_engine_vocab_size(const coppice_engine* engine) {
  return engine->engine.vocab_size();
}
double coppice_engine_load_seconds(const coppice_engine* engine) {
  return engine->engine.load_seconds();
}
const char* coppice_engine_warning(const coppice_engine* engine) { return engine->warning.c_str(); }

coppice_status coppice_tokenize(const coppice_engine* engine, const char* text, size_t bytes,
                                int add_bos, int32_t** tokens, size_t* count) {
  return guarded([&] {
    need(engine, "engine");
    need(tokens, "tokens");
    need(count, "count");
    const std::vector<TokenId> ids =
        engine->engine.tokenize(bytes_of(text, bytes, "text"), add_bos != 0);
    *tokens = handed_over(std::span(ids));
    *count = ids.size();
  });
}

coppice_status coppice_detokenize(const coppice_engine* engine, const int32_t* tokens, size_t count,
                                  char** text, size_t* bytes) {
  return guarded([&] {
    need(engine, "engine");
    need(text, "text");
    const std::string own = engine->engine.detokenize(span_of(tokens, count, "tokens"));
    *text = handed_over(std::span(own));
    if (bytes != nullptr) *bytes = own.size();
  });
}

coppice_status coppice_engine_cache(const coppice_engine* engine,
                                    coppice_cache_statistics* statistics, size_t size) {
  return guarded([&] {
    need(engine, "engine");
    need(statistics, "statistics");
    const CacheStatistics cache = engine->engine.cache();
    const coppice_cache_statistics own{.target_slots = cache.target_slots,
                                       .draft_slots = cache.draft_slots,
                                       .target_free = cache.target_free,
                                       .draft_free = cache.draft_free,
                                       .target_shared = cache.target_shared,
                                       .draft_shared = cache.draft_shared,
                                       .evictable = cache.evictable,
                                       .nodes = cache.nodes,
                                       .prompt_tokens = cache.prompt_tokens,
                                       .cached_tokens = cache.cached_tokens,
                                       .cached_draft_tokens = cache.cached_draft_tokens,
                                       .evicted_tokens = cache.evicted_tokens,
                                       .read_by_text = cache.read_by_text,
                                       .read_by_tree = cache.read_by_tree};
    fill_struct(own, statistics, size);
  });
}

coppice_status coppice_engine_drop_cache(coppice_engine* engine) {
  return guarded([&] {
    need(engine, "engine");
    engine->engine.drop_cache();
  });
}
