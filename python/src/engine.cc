#include "engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"
#include "results.h"
#include "run.h"

namespace coppice_python {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Engine {
  EngineHandle handle;
};

Engine load(const nb::dict& options) {
  const EngineSettings settings(options);
  coppice_engine* engine = nullptr;
  call(coppice_engine_load, settings.get(), &engine);
  return {std::make_shared<EngineOwner>(engine)};
}

Run* run(const Engine& engine, const nb::list& requests, bool answered) {
  Requests own;
  for (nb::handle request : requests) {
    own.push_back(std::make_unique<RequestSettings>(nb::cast<nb::dict>(request)));
  }
  return new Run(engine.handle, std::move(own), answered);
}

nb::list tokenize(const Engine& engine, const std::string& text, bool add_bos) {
  int32_t* tokens = nullptr;
  size_t count = 0;
  call(coppice_tokenize, engine.handle->get(), text.c_str(), text.size(), int{add_bos}, &tokens,
       &count);
  const std::unique_ptr<int32_t, Free<coppice_free>> owner(tokens);
  return list_of(tokens, count);
}

nb::object detokenize(const Engine& engine, const Tokens& tokens) {
  char* text = nullptr;
  size_t bytes = 0;
  call(coppice_detokenize, engine.handle->get(), tokens.data(), tokens.size(), &text, &bytes);
  const std::unique_ptr<char, Free<coppice_free>> owner(text);
  return nb::str(text, bytes);
}

nb::dict judge_tree(const Engine& engine, const nb::dict& request) {
  const RequestSettings settings(request);
  coppice_tree* tree = nullptr;
  const coppice_status status =
      call_unlocked(coppice_judge_tree, engine.handle->get(), settings.get(), &tree);
  if (status != COPPICE_OK) raise(status, coppice_error_message(), settings.policy_failure());
  const std::unique_ptr<coppice_tree, Free<coppice_tree_free>> owner(tree);
  return dict_of(*tree);
}

nb::dict cache(const Engine& engine) {
  coppice_cache_statistics statistics;
  call(coppice_engine_cache, engine.handle->get(), &statistics, sizeof statistics);
  return dict_of(statistics);
}

nb::dict statistics(const Engine& engine) {
  coppice_engine_counts* counts = nullptr;
  call(coppice_engine_count, engine.handle->get(), &counts);
  const std::unique_ptr<coppice_engine_counts, Free<coppice_engine_counts_free>> owner(counts);
  return dict_of(*counts);
}

struct Chat {
  std::shared_ptr<coppice_chat> handle;
};

/// Nanobind's own shared pointers take Python's lock where they end, which the engine's threads
/// must not wait for.
struct WakerHandle {
  std::shared_ptr<Waker> handle = std::make_shared<Waker>();
};

Chat chat_of_model(const std::string& model, const nb::object& template_name) {
  const auto name = template_name.is_none() ? std::string() : nb::cast<std::string>(template_name);
  coppice_chat* chat = nullptr;
  call(coppice_chat_of_model, model.c_str(), name.c_str(), &chat);
  return {{chat, coppice_chat_free}};
}

Chat chat_of_source(const std::string& jinja, const std::string& model) {
  coppice_chat* chat = nullptr;
  call(coppice_chat_of_source, jinja.c_str(), model.c_str(), &chat);
  return {{chat, coppice_chat_free}};
}

/// What a template is told; of JSON texts, which may be empty.
struct ChatSettings {
  std::string messages, tools, values;
  coppice_chat_options options;

  explicit ChatSettings(const nb::dict& given)
      : messages(nb::cast<std::string>(given["messages"])),
        tools(nb::cast<std::string>(given["tools"])),
        values(nb::cast<std::string>(given["values"])) {
    coppice_chat_options_init(&options, sizeof options);
    options.tools = tools.c_str();
    options.values = values.c_str();
    options.add_generation_prompt = nb::cast<bool>(given["add_generation_prompt"]);
    options.continue_final_message = nb::cast<bool>(given["continue_final_message"]);
  }
  ChatSettings(const ChatSettings&) = delete;
};

nb::list chat_tokens(const Chat& chat, const Engine& engine, const nb::dict& given) {
  const ChatSettings settings(given);
  int32_t* tokens = nullptr;
  size_t count = 0;
  call(coppice_chat_tokens, chat.handle.get(), engine.handle->get(), settings.messages.c_str(),
       &settings.options, &tokens, &count);
  const std::unique_ptr<int32_t, Free<coppice_free>> owner(tokens);
  return list_of(tokens, count);
}

nb::object chat_text(const Chat& chat, const nb::dict& given) {
  const ChatSettings settings(given);
  char* text = nullptr;
  size_t bytes = 0;
  call(coppice_chat_text, chat.handle.get(), settings.messages.c_str(), &settings.options, &text,
       &bytes);
  const std::unique_ptr<char, Free<coppice_free>> owner(text);
  return nb::str(text, bytes);
}

Sequence own(const EngineHandle& engine, coppice_sequence* sequence) {
  return {engine, {sequence, FreeUnlocked<coppice_sequence_free>()}};
}

Sequence new_sequence(const Engine& engine) {
  coppice_sequence* sequence = nullptr;
  call(coppice_sequence_new, engine.handle->get(), &sequence);
  return own(engine.handle, sequence);
}

Sequence fork(const Sequence& sequence) {
  coppice_sequence* other = nullptr;
  call(coppice_sequence_fork, sequence.handle.get(), &other);
  return own(sequence.engine, other);
}

Sequence begin(const Prefix& prefix) {
  coppice_sequence* sequence = nullptr;
  call(coppice_prefix_begin, prefix.handle.get(), &sequence);
  return own(prefix.engine, sequence);
}

Prefix prefix_of_text(const Engine& engine, const std::string& text, bool add_bos) {
  coppice_prefix* prefix = nullptr;
  call(coppice_prefix_of_text, engine.handle->get(), text.c_str(), text.size(), int{add_bos},
       &prefix);
  return {engine.handle, {prefix, FreeUnlocked<coppice_prefix_free>()}};
}

Prefix prefix_of_tokens(const Engine& engine, const Tokens& tokens) {
  coppice_prefix* prefix = nullptr;
  call(coppice_prefix_of_tokens, engine.handle->get(), tokens.data(), tokens.size(), &prefix);
  return {engine.handle, {prefix, FreeUnlocked<coppice_prefix_free>()}};
}

// A constraint that `make` builds of the engine and the arguments.
template <typename Make, typename... Arguments>
Constraint make_constraint(const Engine& engine, Make make, Arguments... arguments) {
  coppice_constraint* constraint = nullptr;
  call(make, engine.handle->get(), arguments..., &constraint);
  return {engine.handle, ConstraintHandle(constraint, coppice_constraint_free)};
}

template <auto make>
Constraint constraint_of_text(const Engine& engine, const std::string& text) {
  return make_constraint(engine, make, text.c_str());
}

Constraint choice(const Engine& engine, const std::vector<std::string>& texts) {
  std::vector<const char*> views;
  for (const std::string& text : texts) views.push_back(text.c_str());
  return make_constraint(engine, coppice_constraint_choice, views.data(), views.size());
}

}  // namespace

void define_engine(nb::module_& module) {
  nb::class_<Constraint>(module, "Constraint")
      .def_static(
          "json",
          [](const Engine& engine) { return make_constraint(engine, coppice_constraint_json); })
      .def_static("json_schema", constraint_of_text<coppice_constraint_json_schema>)
      .def_static("regex", constraint_of_text<coppice_constraint_regex>)
      .def_static("grammar", constraint_of_text<coppice_constraint_grammar>)
      .def_static("choice", choice);

  nb::class_<Sequence>(module, "Sequence")
      .def("fork", fork)
      .def("rewind",
           [](const Sequence& sequence, std::int32_t length) {
             call(coppice_sequence_rewind, sequence.handle.get(), length);
           })
      .def("tokens",
           [](const Sequence& sequence) {
             size_t count = 0;
             const int32_t* const tokens = coppice_sequence_tokens(sequence.handle.get(), &count);
             return list_of(tokens, count);
           })
      .def("length", [](const Sequence& sequence) {
        size_t count = 0;
        coppice_sequence_tokens(sequence.handle.get(), &count);
        return count;
      });

  nb::class_<Prefix>(module, "Prefix").def("begin", begin).def("tokens", [](const Prefix& prefix) {
    size_t count = 0;
    const int32_t* const tokens = coppice_prefix_tokens(prefix.handle.get(), &count);
    return list_of(tokens, count);
  });

  nb::class_<Chat>(module, "Chat")
      .def_static("of_model", chat_of_model, nb::arg(), nb::arg().none())
      .def_static("of_source", chat_of_source)
      .def("tokens", chat_tokens)
      .def("text", chat_text)
      .def("takes",
           [](const Chat& chat, const std::string& name) {
             return coppice_chat_takes(chat.handle.get(), name.c_str()) != 0;
           })
      .def("source", [](const Chat& chat) { return coppice_chat_source(chat.handle.get()); });

  nb::class_<Run>(module, "Run")
      .def("next", &Run::next)
      .def("poll", &Run::poll)
      .def("watch", [](Run& run, const WakerHandle& waker,
                       std::uint64_t key) { return run.watch(waker.handle, key); })
      .def("answer", &Run::answer)
      .def("skip_pieces", &Run::skip_pieces)
      .def("stop", &Run::stop)
      .def("close", &Run::close);

  note_main_thread();
  nb::class_<WakerHandle>(module, "Waker")
      .def(nb::init<>())
      .def("fileno", [](const WakerHandle& waker) { return waker.handle->fileno(); })
      .def("drain", [](const WakerHandle& waker) { return waker.handle->drain(); });

  nb::class_<Engine>(module, "Engine", nb::is_weak_referenceable())
      .def_static("load", load)
      .def("run", run)
      .def("end_all", [](const Engine& engine) { engine.handle->end_all(); })
      .def("tokenize", tokenize)
      .def("detokenize", detokenize)
      .def("judge_tree", judge_tree)
      .def("cache", cache)
      .def("statistics", statistics)
      .def("drop_cache",
           [](const Engine& engine) { call(coppice_engine_drop_cache, engine.handle->get()); })
      .def("new_sequence", new_sequence)
      .def("prefix_of_text", prefix_of_text)
      .def("prefix_of_tokens", prefix_of_tokens)
      .def_prop_ro(
          "has_tokenizer",
          [](const Engine& e) { return coppice_engine_has_tokenizer(e.handle->get()) != 0; })
      .def_prop_ro("has_draft",
                   [](const Engine& e) { return coppice_engine_has_draft(e.handle->get()) != 0; })
      .def_prop_ro("context_length",
                   [](const Engine& e) { return coppice_engine_context_length(e.handle->get()); })
      .def_prop_ro("vocab_size",
                   [](const Engine& e) { return coppice_engine_vocab_size(e.handle->get()); })
      .def_prop_ro("load_seconds",
                   [](const Engine& e) { return coppice_engine_load_seconds(e.handle->get()); })
      .def_prop_ro("warning",
                   [](const Engine& e) { return coppice_engine_warning(e.handle->get()); });
}

}  // namespace coppice_python
