#include "server/talk/answer_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/talk/call_object.h"
#include "server/talk/pythonic.h"
#include "server/talk/words.h"
#include "server/talk/xml_call.h"

namespace coppice::server {
namespace {

using Kind = AnswerDelta::Kind;

constexpr std::string_view arguments_mark = "[ARGS]", id_mark = "[CALL_ID]";

std::string_view mark_of(ToolForm form) {
  switch (form) {
    case ToolForm::hermes:
      return "<tool_call>";
    case ToolForm::llama:
    case ToolForm::pythonic:
      return "<|python_tag|>";
    case ToolForm::mistral_list:
    case ToolForm::mistral_args:
      return "[TOOL_CALLS]";
    default: {
      const XmlTags* const tags = xml_tags(form);
      return tags != nullptr ? tags->open : std::string_view();
    }
  }
}

/// Bytes at the end of a text with which `mark` may begin; fewer than the whole mark.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
  std::size_t n = std::min(text.size(), mark.empty() ? 0 : mark.size() - 1);
  while (n > 0 && text.substr(text.size() - n) != mark.substr(0, n)) --n;
  return n;
}

}  // namespace

// Undecided text stands in left_ from at_ on. step() decides on some of it, by that text alone, so
// that it does not matter how pieces were cut; it returns false where more text is needed.
class AnswerParser::Reader {
 public:
  explicit Reader(AnswerOptions options) : options_(std::move(options)) {
    if (options_.tools.empty()) options_.form.tools = ToolForm::none;
    if (!options_.new_id) {
      options_.new_id = [n = 0]() mutable { return "call_" + std::to_string(n++); };
    }
    mark_ = mark_of(options_.form.tools);
    tags_ = xml_tags(options_.form.tools);
  }

  std::vector<AnswerDelta> feed(std::string_view text) {
    left_ += text;
    fed_ += text.size();
    return run();
  }
  std::vector<AnswerDelta> finish() {
    is_last_ = true;
    return run();
  }
  int calls() const { return calls_; }
  std::size_t reasoning_bytes() const {
    return mode_ == Mode::reasoning ? fed_ : has_reasoning_ ? reasoning_bytes_ : 0;
  }

 private:
  enum class Mode : std::uint8_t { start, reasoning, content, call };
  enum class Phase : std::uint8_t {
    opening,    ///< behind a mark
    object,     ///< in a call's JSON object
    name,       ///< of mistral_args
    id,         ///< of mistral_args
    arguments,  ///< of mistral_args
    python,     ///< in a list of calls
    xml,        ///< in a call written with tags
    between,    ///< behind a call, where another may follow
    next,       ///< behind a comma, where another must follow
  };

  std::vector<AnswerDelta> run() {
    while (step()) {
    }
    left_.erase(0, at_);
    at_ = 0;
    return std::exchange(out_, {});
  }
  std::string_view rest() const { return std::string_view(left_).substr(at_); }
  bool step() {
    switch (mode_) {
      case Mode::start:
        return step_start();
      case Mode::reasoning:
        return step_reasoning();
      case Mode::content:
        return step_content();
      default:
        return step_call();
    }
  }

  bool step_start() {
    const std::string_view open = options_.form.reasoning.open;
    const std::size_t first = rest().find_first_not_of(white);
    const std::string_view text = first == std::string_view::npos ? "" : rest().substr(first);
    if (!open.empty() && text.size() < open.size() && open.starts_with(text) && !is_last_) {
      return false;
    }
    const bool is_open = !open.empty() && text.starts_with(open);
    if (is_open) at_ += first + open.size();
    mode_ = is_open || options_.in_reasoning ? Mode::reasoning : Mode::content;
    return true;
  }

  bool step_reasoning() {
    const std::string_view close = options_.form.reasoning.close, text = rest();
    const std::size_t end = close.empty() ? std::string_view::npos : text.find(close);
    if (end != std::string_view::npos) {
      emit_trimmed(Kind::reasoning, text.substr(0, end), has_reasoning_);
      at_ += end + close.size();
      reasoning_bytes_ = fed_ - (left_.size() - at_);
      spaces_.clear();
      trims_ = true;
      mode_ = Mode::content;
      return true;
    }
    const std::size_t shown = text.size() - (is_last_ ? 0 : begun_mark(text, close));
    emit_trimmed(Kind::reasoning, text.substr(0, shown), has_reasoning_);
    at_ += shown;
    return false;
  }

  bool step_content() {
    if (may_be_bare_) {
      const std::size_t first = rest().find_first_not_of(white);
      if (first == std::string_view::npos && !is_last_) return false;
      may_be_bare_ = false;
      const char bare = options_.form.tools == ToolForm::llama      ? '{'
                        : options_.form.tools == ToolForm::pythonic ? '['
                                                                    : '\0';
      if (bare != '\0' && first != std::string_view::npos && rest()[first] == bare) {
        content(rest().substr(0, first));
        at_ += first;
        open_call({}, bare == '{' ? Phase::next : Phase::python);
        return true;
      }
    }
    const std::string_view text = rest();
    const std::size_t at = mark_.empty() ? std::string_view::npos : text.find(mark_);
    if (at != std::string_view::npos) {
      content(text.substr(0, at));
      at_ += at + mark_.size();
      open_call(mark_, Phase::opening);
      return true;
    }
    const std::size_t shown = text.size() - (is_last_ ? 0 : begun_mark(text, mark_));
    content(text.substr(0, shown));
    at_ += shown;
    if (is_last_ && calls_ == 0 && !trims_) emit(Kind::content, std::exchange(spaces_, {}));
    return false;
  }

  void open_call(std::string_view mark, Phase phase) {
    raw_ = mark;
    is_bare_ = mark.empty();
    is_list_ = false;
    phase_ = phase;
    mode_ = Mode::call;
    begin_next();
  }
  void begin_next() {
    object_ = {};
    python_ = {};
    arguments_ = {};
    if (tags_ != nullptr) xml_.emplace(*tags_, options_.types);
    name_.clear();
    id_.clear();
    word_.clear();
    is_begun_ = false;
  }

  bool step_call() {
    while (mode_ == Mode::call) {
      if (at_ == left_.size()) {
        if (!is_last_) return false;
        if (phase_ == Phase::between) {
          look_again();
        } else {
          give_up();
        }
        break;
      }
      read(left_[at_]);
    }
    return true;
  }

  // One byte of a call. What does not fit is not taken: it may begin something else.
  void read(char c) {
    switch (phase_) {
      case Phase::opening:
        if (tags_ != nullptr) return go(Phase::xml, c);
        if (is_white(c)) return take(c);
        if (options_.form.tools == ToolForm::pythonic) return go(Phase::python, c);
        if (options_.form.tools == ToolForm::mistral_list ||
            options_.form.tools == ToolForm::mistral_args) {
          is_list_ = c == '[';
          if (!is_list_) return go(Phase::name, c);
          take(c);
          phase_ = Phase::next;
          return;
        }
        return go(Phase::next, c);
      case Phase::next:
        if (is_white(c)) return take(c);
        if (c != '{') return give_up();
        return go(Phase::object, c);
      case Phase::object:
        return read_object(c);
      case Phase::name:
        return read_name(c);
      case Phase::id:
        return read_id(c);
      case Phase::arguments:
        return read_arguments(c);
      case Phase::python:
        return read_python(c);
      case Phase::xml:
        return read_xml(c);
      case Phase::between:
        return read_between(c);
    }
  }
  void take(char c) {
    raw_.push_back(c);
    ++at_;
  }
  void go(Phase phase, char c) {
    phase_ = phase;
    read(c);
  }

  void read_object(char c) {
    const bool had_name = object_.has_name();
    const CallObject::Status status = object_.feed(c, !is_bare_);
    if (status == CallObject::Status::failed) return give_up();
    if (is_bare_ && !had_name && object_.has_name() && !is_offered(object_.name())) {
      return give_up();
    }
    take(c);
    if (status == CallObject::Status::done) {
      begin_call(object_.id(), object_.name());
      emit_arguments(object_.take_arguments());
      end_call();
    } else if (options_.stream_arguments && object_.is_call()) {
      begin_call(object_.id(), object_.name());
      emit_arguments(object_.take_arguments());
    }
  }

  void read_name(char c) {
    const bool in_mark = !word_.empty();
    if (in_mark || c == '[') {
      word_.push_back(c);
      if (!arguments_mark.starts_with(word_) && !id_mark.starts_with(word_)) return give_up();
    } else if (c == '{' && !name_.empty()) {
      return go(Phase::arguments, c);
    } else if (is_white(c) || static_cast<unsigned char>(c) < 0x20 || name_.size() > longest_name) {
      return give_up();
    } else {
      name_.push_back(c);
    }
    if (in_mark && name_.empty()) return give_up();
    take(c);
    if (word_ == arguments_mark) phase_ = Phase::arguments;
    if (word_ == id_mark) phase_ = Phase::id;
    if (phase_ != Phase::name) word_.clear();
  }

  void read_id(char c) {
    if (!word_.empty() || c == '[') {
      word_.push_back(c);
      if (!arguments_mark.starts_with(word_)) return give_up();
    } else if (id_.size() > longest_name) {
      return give_up();
    } else {
      id_.push_back(c);
    }
    take(c);
    if (word_ == arguments_mark) phase_ = Phase::arguments;
  }

  void read_arguments(char c) {
    const bool is_before = arguments_.depth() == 0;
    if (is_before && is_white(c)) return take(c);
    if ((is_before && c != '{') || !arguments_.feed(c)) return give_up();
    take(c);
    if (options_.stream_arguments) {
      begin_call(id_, name_);
      emit_arguments({&c, 1});
    } else {
      argument_text_.push_back(c);
    }
    if (!arguments_.done()) return;
    begin_call(id_, name_);
    emit_arguments(std::exchange(argument_text_, {}));
    end_call();
  }

  void read_python(char c) {
    const bool had_name = python_.has_name();
    if (!python_.feed(c)) return give_up();
    if (!had_name && python_.has_name() && !is_offered(python_.name())) return give_up();
    take(c);
    if (!python_.done()) return;
    const auto all = parse_pythonic(std::string_view(raw_).substr(raw_.find('[')));
    if (!all) return give_up();
    for (const PythonicCall& call : *all) {
      begin_call({}, call.name);
      emit_arguments(call.arguments);
      is_begun_ = false;
    }
    raw_.clear();
    mode_ = Mode::content;
  }

  void read_xml(char c) {
    const XmlCall::Status status = xml_->feed(c);
    if (status == XmlCall::Status::failed) return give_up();
    take(c);
    const bool is_done = status == XmlCall::Status::done;
    if (is_done || (options_.stream_arguments && xml_->has_name())) {
      begin_call({}, xml_->name());
      emit_arguments(xml_->take_arguments());
    }
    if (!is_done) return;
    end_call();
    if (tags_->close.empty()) mode_ = Mode::content;
  }

  // Behind a call written with tags: the block's end, or another call.
  void read_tag_between(char c) {
    word_.push_back(c);
    if (!tags_->close.starts_with(word_) && !tags_->call_open.starts_with(word_)) {
      return look_again();
    }
    take(c);
    if (word_ == tags_->close) {
      end_list();
    } else if (word_ == tags_->call_open) {
      word_.clear();
      xml_.emplace(*tags_, options_.types, true);
      phase_ = Phase::xml;
    }
  }

  void read_between(char c) {
    if (is_white(c) && word_.empty()) return take(c);
    if (tags_ != nullptr) return read_tag_between(c);
    switch (options_.form.tools) {
      case ToolForm::hermes: {
        constexpr std::string_view close = "</tool_call>";
        if (c == '{' && word_.empty()) return go(Phase::object, c);
        word_.push_back(c);
        if (!close.starts_with(word_)) return look_again();
        take(c);
        if (word_ == close) end_list();
        return;
      }
      case ToolForm::llama:
        if (c != ';') return look_again();
        take(c);
        phase_ = Phase::next;
        return;
      case ToolForm::mistral_list:
      case ToolForm::mistral_args:
        if (c != ',' && c != ']') return look_again();
        take(c);
        if (c == ',') phase_ = Phase::next;
        if (c == ']') end_list();
        return;
      default:
        return look_again();
    }
  }

  bool is_offered(const std::string& name) const {
    return std::ranges::find(options_.tools, name) != options_.tools.end();
  }

  void begin_call(const std::string& id, const std::string& name) {
    if (is_begun_) return;
    is_begun_ = true;
    spaces_.clear();
    out_.push_back({Kind::call, {}, calls_, id.empty() ? options_.new_id() : id, name});
    ++calls_;
  }
  void end_call() {
    begin_next();
    raw_.clear();
    phase_ = Phase::between;
    if (options_.form.tools == ToolForm::mistral_args && !is_list_) mode_ = Mode::content;
  }
  void end_list() {
    raw_.clear();
    mode_ = Mode::content;
  }
  // What was read is no call: content. A call whose arguments were handed over stays as it is.
  void give_up() {
    argument_text_.clear();
    mode_ = Mode::content;
    if (!is_begun_) content(raw_);
    raw_.clear();
  }
  // What was read behind a call belongs to no other.
  void look_again() {
    left_.replace(0, at_, raw_);
    at_ = 0;
    raw_.clear();
    mode_ = Mode::content;
  }

  void content(std::string_view text) {
    emit_trimmed(Kind::content, text, has_content_);
    if (has_content_) trims_ = false;
  }
  // Holds white space at the end back. Before the first text it is dropped with reasoning and
  // behind it.
  void emit_trimmed(Kind kind, std::string_view text, bool& has_some) {
    const std::size_t last = text.find_last_not_of(white);
    if (last == std::string_view::npos) {
      spaces_ += text;
      return;
    }
    const std::string_view shown = text.substr(0, last + 1);
    if (!has_some && (kind == Kind::reasoning || trims_)) {
      spaces_.clear();
      emit(kind, shown.substr(shown.find_first_not_of(white)));
    } else {
      emit(kind, std::exchange(spaces_, {}));
      emit(kind, shown);
    }
    spaces_ = text.substr(last + 1);
    has_some = true;
  }
  void emit(Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!out_.empty() && out_.back().kind == kind) {
      out_.back().text += text;
    } else {
      out_.push_back({kind, std::string(text), -1, {}, {}});
    }
  }
  void emit_arguments(std::string_view text) {
    if (text.empty()) return;
    if (!out_.empty() && out_.back().kind == Kind::arguments && out_.back().call == calls_ - 1) {
      out_.back().text += text;
    } else {
      out_.push_back({Kind::arguments, std::string(text), calls_ - 1, {}, {}});
    }
  }

  AnswerOptions options_;
  std::string_view mark_;
  const XmlTags* tags_ = nullptr;
  Mode mode_ = Mode::start;
  std::string left_;
  std::size_t at_ = 0;
  bool is_last_ = false;
  std::size_t fed_ = 0, reasoning_bytes_ = 0;

  std::string spaces_;  ///< white space that is shown if more of the same kind follows
  bool has_reasoning_ = false, has_content_ = false;
  bool trims_ = false;       ///< content has not begun yet behind reasoning
  bool may_be_bare_ = true;  ///< calls without a mark may begin

  Phase phase_ = Phase::opening;
  std::string raw_;        ///< read since the mark, or since the last call
  bool is_bare_ = false;   ///< calls without a mark
  bool is_list_ = false;   ///< of Mistral's, in brackets
  bool is_begun_ = false;  ///< the call was handed over
  CallObject object_;
  PythonicScanner python_;
  std::optional<XmlCall> xml_;
  JsonScanner arguments_;
  std::string argument_text_, name_, id_;
  std::string word_;  ///< the beginning of a mark within a call
  int calls_ = 0;
  std::vector<AnswerDelta> out_;
};

AnswerParser::AnswerParser(AnswerOptions options)
    : reader_(std::make_unique<Reader>(std::move(options))) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

std::vector<AnswerDelta> AnswerParser::feed(std::string_view text) { return reader_->feed(text); }
std::vector<AnswerDelta> AnswerParser::finish() { return reader_->finish(); }
int AnswerParser::calls() const { return reader_->calls(); }
std::size_t AnswerParser::reasoning_bytes() const { return reader_->reasoning_bytes(); }

}  // namespace coppice::server
