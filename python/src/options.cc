#include "options.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <utility>
#include <variant>

namespace coppice_python {
namespace {

[[noreturn]] void refuse_type(const char* name, const char* wanted, nb::handle value) {
  throw nb::type_error(
      (std::string(name) + ": " + wanted + " is needed, not " + nb::type_name(value.type()).c_str())
          .c_str());
}

template <typename Value>
Value cast(const char* name, const char* wanted, nb::handle value) {
  Value own;
  if (!nb::try_cast(value, own)) refuse_type(name, wanted, value);
  return own;
}

// A text, or a path as os.fspath() takes it.
const char* text_in(const char* name, nb::handle value, Texts& texts) {
  PyObject* const path = PyOS_FSPath(value.ptr());
  if (path == nullptr) {
    PyErr_Clear();
    refuse_type(name, "a text", value);
  }
  const auto owned = nb::steal(path);
  texts.push_back(cast<std::string>(name, "a text", owned));
  if (texts.back().size() != std::strlen(texts.back().c_str())) {
    throw nb::value_error((std::string(name) + ": it holds a zero byte").c_str());
  }
  return texts.back().c_str();
}

template <typename Struct>
struct Flag {
  std::int32_t Struct::*member;
};

template <typename Struct>
struct Member {
  const char* name;
  std::variant<double Struct::*, std::int32_t Struct::*, std::uint64_t Struct::*,
               const char * Struct::*, Flag<Struct>>
      where;

  void read(nb::handle value, Struct& into, Texts& texts) const {
    if (const auto* real = std::get_if<double Struct::*>(&where)) {
      into.** real = cast<double>(name, "a number", value);
    } else if (const auto* whole = std::get_if<std::int32_t Struct::*>(&where)) {
      into.** whole = cast<std::int32_t>(name, "a whole number of 32 bits", value);
    } else if (const auto* large = std::get_if<std::uint64_t Struct::*>(&where)) {
      into.** large = cast<std::uint64_t>(name, "a whole number from 0, of 64 bits", value);
    } else if (const auto* text = std::get_if<const char * Struct::*>(&where)) {
      into.** text = text_in(name, value, texts);
    } else {
      into.*std::get<Flag<Struct>>(where).member = cast<bool>(name, "True or False", value);
    }
  }
};

using E = coppice_engine_options;
const Member<E> engine_members[] = {
    {"target", &E::target},
    {"draft", &E::draft},
    {"target_weights", &E::target_weights},
    {"draft_weights", &E::draft_weights},
    {"device", &E::device},
    {"cpu_dtype", &E::cpu_dtype},
    {"kv_dtype", &E::kv_dtype},
    {"cost_table", &E::cost_table},
    {"threads", &E::threads},
    {"max_tree_size", &E::max_tree_size},
    {"kv_tokens", &E::kv_tokens},
    {"max_sequences", &E::max_sequences},
    {"max_batch_rows", &E::max_batch_rows},
    {"prefix_cache", Flag<E>{&E::prefix_cache}},
    {"gpu_layers", &E::gpu_layers},
    {"draft_gpu_layers", &E::draft_gpu_layers},
    {"streamed_tree_size", &E::streamed_tree_size},
    {"cost_cache", Flag<E>{&E::cost_cache}},
    {"gpu_memory_fraction", &E::gpu_memory_fraction},
    {"gpu_memory", &E::gpu_memory},
    {"host_memory", &E::host_memory},
    {"tensor_parallel", &E::tensor_parallel},
    {"draft_tensor_parallel", &E::draft_tensor_parallel},
    {"devices", &E::devices},
    {"rank_address", &E::rank_address},
    {"rank_key", &E::rank_key},
    {"rank_timeout", &E::rank_timeout},
};

using G = coppice_generate_options;
const Member<G> generate_members[] = {
    {"seed", &G::seed},
    {"stream", &G::stream},
    {"temperature", &G::temperature},
    {"top_p", &G::top_p},
    {"min_p", &G::min_p},
    {"repetition_penalty", &G::repetition_penalty},
    {"presence_penalty", &G::presence_penalty},
    {"frequency_penalty", &G::frequency_penalty},
    {"top_k", &G::top_k},
    {"max_new_tokens", &G::max_new_tokens},
    {"min_new_tokens", &G::min_new_tokens},
    {"top_logprobs", &G::top_logprobs},
    {"ignore_eos", Flag<G>{&G::ignore_eos}},
    {"add_bos", Flag<G>{&G::add_bos}},
    {"logprobs", Flag<G>{&G::logprobs}},
    {"use_draft", Flag<G>{&G::use_draft}},
    {"acceptance", &G::acceptance},
    {"lookup", &G::lookup},
    {"policy", &G::policy},
    {"tree", &G::tree},
    {"threshold", &G::threshold},
    {"tree_size", &G::tree_size},
    {"tree_depth", &G::tree_depth},
    {"beam_width", &G::beam_width},
    {"plain_values", Flag<G>{&G::plain_values}},
    {"sampled_children", Flag<G>{&G::sampled_children}},
};

// False: none of the members has that name.
template <typename Struct, std::size_t count>
bool read_member(const Member<Struct> (&members)[count], const std::string& name, nb::handle value,
                 Struct& into, Texts& texts) {
  for (const Member<Struct>& member : members) {
    if (name != member.name) continue;
    member.read(value, into, texts);
    return true;
  }
  return false;
}

[[noreturn]] void refuse_name(const std::string& name) {
  throw nb::type_error(("there is no option '" + name + "'").c_str());
}

}  // namespace

EngineSettings::EngineSettings(const nb::dict& given) {
  coppice_engine_options_init(&options_, sizeof options_);
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "progress") {
      progress_ = nb::borrow(value);
      options_.progress = report;
      options_.progress_user = this;
    } else if (!read_member(engine_members, name, value, options_, texts_)) {
      refuse_name(name);
    }
  }
}

void EngineSettings::report(void* self, const char* what, double fraction) {
  const nb::gil_scoped_acquire locked;
  try {
    static_cast<EngineSettings*>(self)->progress_(what, fraction);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("coppice's progress");  // loading goes on
  }
}

RequestSettings::RequestSettings(const nb::dict& given) {
  coppice_request_init(&request_, sizeof request_);
  coppice_generate_options_init(&options_, sizeof options_);
  request_.options = &options_;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "prompt") {
      prompt_ = cast<std::string>("prompt", "a text, or a list of token ids,", value);
      request_.prompt = prompt_.c_str();
      request_.prompt_bytes = prompt_.size();
    } else if (name == "tokens") {
      tokens_ = cast<std::vector<std::int32_t>>("prompt", "a text, or a list of token ids,", value);
      request_.tokens = tokens_.data();
      request_.token_count = tokens_.size();
    } else if (name == "n") {
      request_.n = cast<std::int32_t>("n", "a whole number", value);
    } else if (name == "sequence") {
      sequence_ = nb::cast<Sequence&>(value).handle;
      request_.sequence = sequence_.get();
    } else if (name == "listened") {
      listened_ = nb::cast<bool>(value);
    } else if (name == "options") {
      read_options(nb::cast<nb::dict>(value));
    } else {
      refuse_name(name);
    }
  }
}

void RequestSettings::read_options(const nb::dict& given) {
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "stop") {
      const bool one = nb::isinstance<nb::str>(value);
      for (nb::handle text : one ? nb::object(nb::make_tuple(value)) : nb::borrow(value)) {
        stop_.push_back(text_in("stop", text, texts_));
      }
      options_.stop = stop_.data();
      options_.stop_count = stop_.size();
    } else if (name == "constraint") {
      constraint_ = cast<Constraint>("constraint", "a Constraint", value).handle;
      options_.constraint = constraint_.get();
    } else if (name == "policy" && PyCallable_Check(value.ptr()) != 0) {
      policy_ = std::make_unique<OwnPolicy>(nb::borrow(value));
    } else if (name == "stop_tokens") {
      stop_tokens_ = cast<std::vector<std::int32_t>>("stop_tokens", "a list of token ids", value);
      options_.stop_tokens = stop_tokens_.data();
      options_.stop_token_count = stop_tokens_.size();
    } else if (name == "logit_bias") {
      const nb::object items =
          nb::isinstance<nb::dict>(value) ? value.attr("items")() : nb::borrow(value);
      for (const auto& [token, bias] : cast<std::vector<std::pair<std::int32_t, double>>>(
               "logit_bias", "a dictionary of token ids and numbers", nb::list(items))) {
        bias_tokens_.push_back(token);
        biases_.push_back(bias);
      }
      options_.bias_tokens = bias_tokens_.data();
      options_.biases = biases_.data();
      options_.bias_count = biases_.size();
    } else if (name == "draft_temperature") {
      draft_temperature_ = cast<double>("draft_temperature", "a number", value);
      options_.draft_temperature = &draft_temperature_;
    } else if (name == "widths") {
      widths_ = cast<std::vector<std::int32_t>>("widths", "a list of whole numbers", value);
      options_.widths = widths_.data();
      options_.width_count = widths_.size();
    } else if (name == "acceptance_vector") {
      acceptance_vector_ =
          cast<std::vector<double>>("acceptance_vector", "a list of numbers", value);
      options_.acceptance_vector = acceptance_vector_.data();
      options_.acceptance_vector_count = acceptance_vector_.size();
    } else if (!read_member(generate_members, name, value, options_, texts_)) {
      refuse_name(name);
    }
  }
  if (policy_ != nullptr) {
    options_.own_policy = policy_->take_limits(std::exchange(options_.tree_size, 0),
                                               std::exchange(options_.tree_depth, 0));
  }
}

}  // namespace coppice_python
