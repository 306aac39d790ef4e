#include "cli/batch_lines.h"

#include <algorithm>
#include <boost/any.hpp>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json_file.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "cli/acceptance_vector.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/length_options.h"
#include "cli/other_names.h"
#include "cli/token_options.h"

namespace coppice::cli {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
constexpr std::string_view blanks = " \t\r\n";

/// Those options that a line may give.
po::options_description line_options() {
  po::options_description d;
  const po::options_description groups[] = {length_options(), token_options(), sampling_options(),
                                            drafting_options(), constraint_options()};
  for (const po::options_description& group : groups) {
    for (const auto& option : group.options()) {
      const std::string& name = option->long_name();
      if (name != "tree" && name != "acceptance-vector") d.add(option);  // files of the command
    }
  }
  d.add_options()("no-bos", "");
  return d;
}

std::string key_of(std::string option) {
  for (char& c : option) c = c == '-' ? '_' : c;
  return option;
}

/// The key that other programs' files call so; "" for others.
std::string_view key_called(std::string_view typed) {
  constexpr std::pair<std::string_view, std::string_view> others[] = {
      {"text", "prompt"},       {"input", "prompt"},     {"question", "prompt"},
      {"prompt_ids", "tokens"}, {"input_ids", "tokens"}, {"token_ids", "tokens"}};
  for (const auto& [other, ours] : others) {
    if (typed == other) return ours;
  }
  return "";
}

/// The option that a key probably means, by its own name or another program's, without dashes.
std::string option_called(const std::string& key) {
  std::string typed = "--" + key;
  for (char& c : typed) c = c == '_' ? '-' : c;
  if (const std::string_view alias = aliased(typed); !alias.empty()) return std::string(alias);
  if (const std::string_view near = translated(typed).option; !near.empty())
    return std::string(near);
  return typed.substr(2);
}

std::string listed(const nlohmann::json& list) {
  std::string text;
  for (const nlohmann::json& item : list) text += cat(text.empty() ? "" : ",", item.dump());
  return text;
}

/// {"15": -100} as "15=-100".
std::vector<std::string> pairs_in(const nlohmann::json& object) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : object.items()) pairs.push_back(cat(key, "=", value.dump()));
  return pairs;
}

bool all_of(const nlohmann::json& value, bool (nlohmann::json::*is)() const noexcept) {
  for (const nlohmann::json& item : value) {
    if (!(item.*is)()) return false;
  }
  return value.is_array() && !value.empty();
}

/// A value as the option's words would give it. Throws Error(usage) for another type.
boost::any value_of(const po::option_description& option, const std::string& key,
                    const nlohmann::json& value) {
  const auto refuse = [&](const char* use) {
    throw_usage(cat('"', key, "\" is ", shown(value), "; give ", use));
  };
  const auto* typed = dynamic_cast<const po::typed_value_base*>(option.semantic().get());
  const std::type_info& type = typed->value_type();
  if (type == typeid(double)) {
    if (!value.is_number()) refuse("a number");
    return value.get<double>();
  }
  if (type == typeid(std::int32_t)) {
    const bool fits = value.is_number_integer() &&
                      value >= std::numeric_limits<std::int32_t>::min() &&
                      value <= std::numeric_limits<std::int32_t>::max();
    if (!fits && value.is_number_integer()) {
      refuse(value < 0 ? "a whole number of at least -2147483648"
                       : "a whole number of at most 2147483647");
    }
    if (!fits) refuse("a whole number");
    return value.get<std::int32_t>();
  }
  if (type == typeid(std::vector<std::string>)) {
    if (value.is_string()) return std::vector<std::string>{value.get<std::string>()};
    if (value.is_object() && option.long_name() == "logit-bias") return pairs_in(value);
    const bool is_empty_list = value.is_array() && value.empty();
    if (!is_empty_list && !all_of(value, &nlohmann::json::is_string)) {
      refuse("a text or a list of texts");
    }
    return value.get<std::vector<std::string>>();
  }
  if (option.long_name() == "json-schema" && !value.is_string()) refuse("a schema");
  const bool is_number = value.is_number_integer();
  if (!value.is_string() && !is_number && !all_of(value, &nlohmann::json::is_number_integer)) {
    refuse("a text or a whole number, as the option takes it");
  }
  if (value.is_string()) return value.get<std::string>();
  return is_number ? value.dump() : listed(value);
}

class Reader {
 public:
  explicit Reader(const LineDefaults& defaults) : defaults_(defaults) {
    if (defaults.chats) recommended_.emplace(defaults.engine.target);
  }

  BatchLine plain(std::string_view line) {
    BatchLine out;
    out.prompt.text = line;
    out.options = defaults_.options;
    out.constraint = constraint_;
    out.samples = sample_count(defaults_.values);
    number_streams(out, false);
    return out;
  }

  BatchLine object(std::string_view line) {
    const JsonObject parsed = parse_json_object(line, "");
    BatchLine out;
    po::variables_map values = defaults_.values;
    bool drafts = false, has_own = false, has_stream = false, constrains = false;
    for (const auto& [key, value] : parsed->items()) {
      if (read_prompt_key(key, value, out)) continue;
      const po::option_description& option = option_of(key);
      const std::string& name = option.long_name();
      values.erase(name);
      const bool is_flag = option.semantic()->max_tokens() == 0;
      if (is_flag && !value.is_boolean()) {
        throw_usage(cat('"', key, "\" is ", shown(value), "; give true or false"));
      }
      boost::any given;
      if (name == "json-schema" && (value.is_object() || value.is_boolean())) {
        // A schema's properties have an order.
        given = parse_typed_json(line, "")->at(key).dump();
      } else {
        given = is_flag ? boost::any(std::string()) : value_of(option, key, value);
      }
      if (!is_flag || value.get<bool>()) {
        values.insert({name, po::variable_value(std::move(given), false)});
      }
      has_own = true;
      has_stream = has_stream || name == "stream";
      drafts = drafts || drafting_.find_nothrow(name, false) != nullptr;
      if (!constrains && constraints_.find_nothrow(name, false) != nullptr) {
        constrains = true;  // instead of the command's
        for (const auto& other : constraints_.options()) {
          if (other->long_name() != name) values.erase(other->long_name());
        }
      }
    }
    const int prompts = int{out.prompt.ids} + int{out.is_messages} + int{!out.prompt.text.empty()};
    if (prompts != 1) {
      throw_usage(cat(prompts == 0 ? "no prompt" : "more than one prompt",
                      R"(; give one of "prompt", "tokens" and, with --chat, "messages")"));
    }
    out.options = has_own ? options_of(values, drafts) : defaults_.options;
    out.constraint = constrains ? reader_.read(values, false) : constraint_;
    out.samples = sample_count(values);
    number_streams(out, has_stream);
    return out;
  }

 private:
  /// False: it is the key of an option.
  bool read_prompt_key(const std::string& key, const nlohmann::json& value, BatchLine& out) {
    if (key == "prompt") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
        throw_usage(cat("\"prompt\" is ", shown(value), "; give a text"));
      }
      out.prompt.text = value.get<std::string>();
    } else if (key == "tokens") {
      if (value.is_array() && value.empty()) {
        throw_usage("\"tokens\" is empty; give at least one token id");
      }
      if (!all_of(value, &nlohmann::json::is_number_unsigned)) {
        throw_usage(R"("tokens" must be a list of token ids like [1, 2])");
      }
      if (defaults_.chats) throw_usage("\"tokens\" are no message; leave out --chat");
      for (const nlohmann::json& token : value) {
        if (token > std::numeric_limits<TokenId>::max()) {
          throw_usage(cat("\"tokens\" holds ", shown(token), ", which is no token id"));
        }
        out.prompt.tokens.push_back(token.get<TokenId>());
      }
      out.prompt.ids = true;
    } else if (key == "messages") {
      if (!defaults_.chats) throw_usage("\"messages\" need --chat");
      out.is_messages = true;  // the conversation checks them
    } else if (key == "id") {
      if (!value.is_string() && !value.is_number_integer()) {
        throw_usage(cat("\"id\" is ", shown(value), "; give a text or a whole number"));
      }
      out.id = value.dump();
    } else if (key == "kind" || key == "category") {  // of prompts as studies take them
      if (!value.is_string()) throw_usage(cat("\"", key, "\" is ", shown(value), "; give a text"));
    } else {
      return false;
    }
    return true;
  }

  const po::option_description& option_of(const std::string& key) const {
    std::vector<std::string> known = {"prompt", "tokens", "messages", "id"};
    for (const auto& option : allowed_.options()) {
      known.push_back(key_of(option->long_name()));
      if (known.back() == key) return *option;
    }
    if (const std::string_view other = key_called(key); !other.empty()) {
      throw_usage(cat("key ", quote(key), " is unknown; coppice calls it ", other));
    }
    const std::string ours = option_called(key);
    if (std::find(known.begin(), known.end(), key_of(ours)) != known.end()) {
      throw_usage(cat("key ", quote(key), " is unknown; coppice calls it ", key_of(ours)));
    }
    const CommandHelp command = help_of(generate);
    if (!ours.empty() && command.options.find_nothrow(ours, false) != nullptr) {
      throw_usage(cat("key ", quote(key),
                      " holds for all lines; give it on the command line, as --", ours));
    }
    const std::string meant = nearest(key, known);
    throw_usage(cat("key ", quote(key), " is unknown; ",
                    meant.empty() ? "keys" : cat("did you mean ", meant, "? Keys"),
                    " are options of the command with _ for - (src/cli/README.md)"));
  }

  GenerateOptions options_of(const po::variables_map& values, bool drafts) const {
    GenerateOptions options = sampling_request(values);
    read_length_options(values, options);
    read_token_options(values, options);
    options.sampled_children = values.count("sampled-children") != 0;
    options.speculation =
        drafts ? speculation_of(policy_options(values)) : defaults_.options.speculation;
    options.lookup = drafts ? lookup_in(values) : defaults_.options.lookup;
    if (recommended_) {
      take_recommended(defaults_.engine.target, values, options, &*recommended_);
    }
    options.validate();
    if (drafts) read_acceptance_vector(values, defaults_.engine, options);
    return options;
  }

  void number_streams(BatchLine& line, bool given) {
    if (!given) line.options.stream = defaults_.options.stream + samples_;
    samples_ += static_cast<std::uint64_t>(line.samples);
  }

  const LineDefaults& defaults_;
  std::optional<GenerationSettings> recommended_;
  po::options_description allowed_ = line_options();
  po::options_description drafting_ = drafting_options();
  po::options_description constraints_ = constraint_options();
  ConstraintReader reader_;
  const std::shared_ptr<const constraints::Language> constraint_ = reader_.read(defaults_.values);
  std::uint64_t samples_ = 0;
};

// A prompt, too, may begin with a bracket.
bool is_json_array(std::string_view contents) {
  const auto first = contents.find_first_not_of(blanks);
  if (contents[first] != '[') return false;
  const auto second = contents.find_first_not_of(blanks, first + 1);
  return (second != contents.npos && contents[second] == '{') || nlohmann::json::accept(contents);
}

/// Throws Error(usage) for a line of another kind than the first one's: it would be a prompt that
/// nobody meant, or no JSON.
void check_kind(std::string_view line, bool json) {
  const bool object = is_json_lines(line);
  if (json && !object) {
    throw_usage("not a JSON object, as the first line is; write {\"prompt\": \"...\"}");
  }
  if (!json && object && line.find("\"prompt\"") != line.npos && nlohmann::json::accept(line)) {
    throw_usage("a JSON object, which the first line is not; make every line one");
  }
}

}  // namespace

bool is_json_lines(std::string_view contents) {
  if (contents.starts_with(byte_order_mark)) contents.remove_prefix(byte_order_mark.size());
  const auto first = contents.find_first_not_of(blanks);
  return first != contents.npos && contents[first] == '{';
}

std::vector<BatchLine> read_batch_lines(std::string_view contents, const std::string& where,
                                        const LineDefaults& defaults) {
  const bool json = is_json_lines(contents);
  if (contents.starts_with(byte_order_mark)) contents.remove_prefix(byte_order_mark.size());
  if (contents.find_first_not_of(blanks) == contents.npos) {
    throw_usage(cat(where, contents.empty() ? ": it is empty" : ": it has blank lines only",
                    "; give a prompt a line"));
  }
  if (is_json_array(contents)) {
    throw_usage(cat(where,
                    ": a JSON array; give one JSON object a line instead, as jq -c '.[]' "
                    "writes them"));
  }
  Reader reader(defaults);
  std::vector<BatchLine> lines;
  for (std::int64_t number = 1; !contents.empty(); ++number) {
    const auto end = contents.find('\n');
    std::string_view line = contents.substr(0, end);
    contents.remove_prefix(end == contents.npos ? contents.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    try {
      if (line.find_first_not_of(blanks) == line.npos) continue;
      if (!is_valid_utf8(line)) throw_usage("not valid UTF-8; convert the file to UTF-8");
      check_kind(line, json);
      BatchLine read = json ? reader.object(line) : reader.plain(line);
      read.number = number;
      read.raw = line;
      lines.push_back(std::move(read));
    } catch (const Error& error) {
      std::string_view what = error.what();
      if (what.starts_with(": ")) what.remove_prefix(2);
      throw_usage(cat(where, " line ", number, ": ", what));
    }
  }
  return lines;
}

}  // namespace coppice::cli
