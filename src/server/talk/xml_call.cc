#include "server/talk/xml_call.h"

#include <utility>

#include "server/talk/json_values.h"
#include "server/talk/words.h"

namespace coppice::server {
namespace {

bool is_of_name(char c) { return static_cast<unsigned char>(c) > 0x20 && c != '<' && c != '>'; }

constexpr XmlTags qwen{.open = "<tool_call>",
                       .close = "</tool_call>",
                       .call_open = "<function=",
                       .name_end = ">",
                       .key_open = "<parameter=",
                       .key_end = ">",
                       .value_open = "",
                       .value_end = "</parameter>",
                       .call_close = "</function>",
                       .has_one_call = true,
                       .has_lines = true};
constexpr XmlTags seed = [] {
  XmlTags tags = qwen;
  tags.open = "<seed:tool_call>";
  tags.close = "</seed:tool_call>";
  tags.has_lines = false;
  return tags;
}();
constexpr XmlTags glm{.open = "<tool_call>",
                      .close = "",
                      .call_open = "",
                      .name_end = "",
                      .key_open = "<arg_key>",
                      .key_end = "</arg_key>",
                      .value_open = "<arg_value>",
                      .value_end = "</arg_value>",
                      .call_close = "</tool_call>"};
constexpr XmlTags minimax{.open = "<minimax:tool_call>",
                          .close = "</minimax:tool_call>",
                          .call_open = "<invoke name=\"",
                          .name_end = "\">",
                          .key_open = "<parameter name=\"",
                          .key_end = "\">",
                          .value_open = "",
                          .value_end = "</parameter>",
                          .call_close = "</invoke>"};
constexpr XmlTags dsml_functions{.open = "<｜DSML｜function_calls>",
                                 .close = "</｜DSML｜function_calls>",
                                 .call_open = "<｜DSML｜invoke name=\"",
                                 .name_end = "\">",
                                 .key_open = "<｜DSML｜parameter name=\"",
                                 .key_end = "\" string=\"",
                                 .value_open = "",
                                 .value_end = "</｜DSML｜parameter>",
                                 .call_close = "</｜DSML｜invoke>",
                                 .tells_text = true};
constexpr XmlTags dsml_tools = [] {
  XmlTags tags = dsml_functions;
  tags.open = "<｜DSML｜tool_calls>";
  tags.close = "</｜DSML｜tool_calls>";
  return tags;
}();

}  // namespace

const XmlTags* xml_tags(ToolForm form) {
  switch (form) {
    case ToolForm::qwen_xml:
      return &qwen;
    case ToolForm::seed_xml:
      return &seed;
    case ToolForm::glm_xml:
      return &glm;
    case ToolForm::minimax_xml:
      return &minimax;
    case ToolForm::dsml_functions:
      return &dsml_functions;
    case ToolForm::dsml_tools:
      return &dsml_tools;
    default:
      return nullptr;
  }
}

XmlCall::XmlCall(const XmlTags& tags, const ArgumentTypes& types, bool in_name)
    : tags_(tags),
      types_(types),
      part_(in_name || tags.call_open.empty() ? Part::name : Part::open) {}

XmlCall::Status XmlCall::feed(char c) {
  const auto read = [&] {
    switch (part_) {
      case Part::open:
        return expect(c, tags_.call_open, Part::name);
      case Part::name:
        return read_name(c);
      case Part::between:
        return read_between(c);
      case Part::key:
        return read_key(c);
      case Part::text_or_json:
        return read_told(c);
      case Part::value_open:
        return expect(c, tags_.value_open, Part::value);
      case Part::value:
        word_.push_back(c);
        if (word_.ends_with(tags_.value_end)) end_value();
        return true;
      case Part::done:
        break;
    }
    return false;
  };
  if (!read()) return Status::failed;
  return part_ == Part::done ? Status::done : Status::more;
}

// White space, then a tag.
bool XmlCall::expect(char c, std::string_view mark, Part next) {
  if (word_.empty() && is_white(c)) return true;
  word_.push_back(c);
  if (!mark.starts_with(word_)) return false;
  if (word_ == mark) {
    word_.clear();
    part_ = next;
  }
  return true;
}

bool XmlCall::read_name(char c) {
  if (tags_.name_end.empty()) {  // the name ends where white space or a tag begins
    if (word_.empty() && is_white(c)) return true;
    if (is_white(c) || c == '<') {
      if (word_.empty()) return false;
      name_ = std::exchange(word_, {});
      part_ = Part::between;
      return read_between(c);
    }
    word_.push_back(c);
    return is_of_name(c) && word_.size() <= longest_name;
  }
  word_.push_back(c);
  if (word_.ends_with(tags_.name_end)) {
    name_ = word_.substr(0, word_.size() - tags_.name_end.size());
    word_.clear();
    part_ = Part::between;
    return !name_.empty();
  }
  return is_of_name(c) && word_.size() <= longest_name;
}

bool XmlCall::read_between(char c) {
  if (word_.empty() && is_white(c)) return true;
  word_.push_back(c);
  if (word_ == tags_.call_close) {
    word_.clear();
    arguments_ += keys_.empty() ? "{}" : "}";
    part_ = Part::done;
  } else if (word_ == tags_.key_open) {
    word_.clear();
    part_ = Part::key;
  } else {
    return tags_.key_open.starts_with(word_) || tags_.call_close.starts_with(word_);
  }
  return true;
}

bool XmlCall::read_key(char c) {
  word_.push_back(c);
  if (!word_.ends_with(tags_.key_end)) return c != '\n' && word_.size() <= longest_name;
  key_ = word_.substr(0, word_.size() - tags_.key_end.size());
  word_.clear();
  told_ = json_type::any;
  part_ = tags_.tells_text            ? Part::text_or_json
          : !tags_.value_open.empty() ? Part::value_open
                                      : Part::value;
  return !key_.empty();
}

bool XmlCall::read_told(char c) {
  constexpr std::string_view text = "true\">", json = "false\">";
  word_.push_back(c);
  if (word_ == text || word_ == json) {
    told_ = word_ == text ? json_type::string : json_type::any & ~json_type::string;
    word_.clear();
    part_ = Part::value;
    return true;
  }
  return text.starts_with(word_) || json.starts_with(word_);
}

void XmlCall::end_value() {
  part_ = Part::between;
  std::string_view value = word_;
  value.remove_suffix(tags_.value_end.size());
  // A value on lines of its own.
  if (tags_.has_lines) {
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
  }
  const bool is_first = keys_.empty();
  if (keys_.insert(key_).second) {
    const unsigned types = tags_.tells_text ? told_ : types_.of(name_, key_);
    arguments_ += is_first ? "{" : ", ";
    arguments_ += to_text(key_) + ": " + bare_value(value, types);
  }
  word_.clear();
}

std::string XmlCall::take_arguments() { return std::exchange(arguments_, {}); }

}  // namespace coppice::server
