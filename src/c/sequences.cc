// Sequences and prefixes.
#include <span>

#include "c/handles.h"
#include "c/options.h"

using namespace coppice;
using namespace coppice::c;

namespace {

const std::int32_t* view_of(std::span<const TokenId> tokens, size_t* count) {
  if (count != nullptr) *count = tokens.size();
  return tokens.data();
}

}  // namespace

coppice_status coppice_sequence_new(coppice_engine* engine, coppice_sequence** sequence) {
  return guarded([&] {
    need(engine, "engine");
    need(sequence, "sequence");
    *sequence = new coppice_sequence{engine->engine.new_sequence()};
  });
}

const int32_t* coppice_sequence_tokens(const coppice_sequence* sequence, size_t* count) {
  return view_of(sequence->sequence.tokens(), count);
}

coppice_status coppice_sequence_fork(const coppice_sequence* sequence, coppice_sequence** fork) {
  return guarded([&] {
    need(sequence, "sequence");
    need(fork, "fork");
    *fork = new coppice_sequence{sequence->sequence.fork()};
  });
}

coppice_status coppice_sequence_rewind(coppice_sequence* sequence, int32_t length) {
  return guarded([&] {
    need(sequence, "sequence");
    sequence->sequence.rewind(length);
  });
}

void coppice_sequence_free(coppice_sequence* sequence) { delete sequence; }

coppice_status coppice_prefix_of_text(coppice_engine* engine, const char* text, size_t bytes,
                                      int add_bos, coppice_prefix** prefix) {
  return guarded([&] {
    need(engine, "engine");
    need(prefix, "prefix");
    *prefix =
        new coppice_prefix{engine->engine.prefix(bytes_of(text, bytes, "text"), add_bos != 0)};
  });
}

coppice_status coppice_prefix_of_tokens(coppice_engine* engine, const int32_t* tokens, size_t count,
                                        coppice_prefix** prefix) {
  return guarded([&] {
    need(engine, "engine");
    need(prefix, "prefix");
    *prefix = new coppice_prefix{engine->engine.prefix(span_of(tokens, count, "tokens"))};
  });
}

coppice_status coppice_prefix_begin(const coppice_prefix* prefix, coppice_sequence** sequence) {
  return guarded([&] {
    need(prefix, "prefix");
    need(sequence, "sequence");
    *sequence = new coppice_sequence{prefix->prefix.begin()};
  });
}

const int32_t* coppice_prefix_tokens(const coppice_prefix* prefix, size_t* count) {
  return view_of(prefix->prefix.tokens(), count);
}

void coppice_prefix_free(coppice_prefix* prefix) { delete prefix; }
