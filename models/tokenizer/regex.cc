#include "models/tokenizer/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "base/error.h"
#include "base/utf8.h"
#include "models/tokenizer/counted_pattern.h"

namespace coppice::tokenization {
namespace {

const OnigUChar* bytes(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

std::string reason_of(int code, OnigErrorInfo* info = nullptr) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = onig_error_code_to_str(text, code, info);
  return {reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
}

}  // namespace

struct Regex::Compiled {
  regex_t* regex = nullptr;
  std::string where = "a built-in pattern";
  ~Compiled() { release(); }
  void release() {
    if (regex != nullptr) onig_free(regex);
    regex = nullptr;
  }
};

Regex::Regex(std::string_view pattern, const JsonPlace& place) { compile(pattern, &place); }
Regex::Regex(std::string_view pattern) { compile(pattern, nullptr); }
Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

void Regex::compile(std::string_view pattern, const JsonPlace* place) {
  static std::once_flag started;
  std::call_once(started, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
  compiled_ = std::make_unique<Compiled>();
  if (place != nullptr) {
    compiled_->where = cat(place->file(), ": ", place->path());
    if (pattern.size() > longest_pattern) {
      place->refuse(cat("a pattern of ", pattern.size(), " bytes; at most ", longest_pattern,
                        " are allowed; fetch the file again"));
    }
  }
  read(pattern);  // whatever is wrong is said of the pattern as it was written
  read(counted_pattern(pattern, compiled_->where));
}

void Regex::read(std::string_view pattern) {
  compiled_->release();
  OnigErrorInfo info{};
  const int code =
      onig_new(&compiled_->regex, bytes(pattern.data()), bytes(pattern.data() + pattern.size()),
               ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code == ONIG_NORMAL) return;
  compiled_->regex = nullptr;
  if (code == ONIGERR_MEMORY) throw std::bad_alloc();
  throw_failure(cat(compiled_->where, ": not a regular expression: ", reason_of(code, &info),
                    "; fetch the file again"));
}

struct Regex::Matches::State {
  explicit State(Allowance& given) : allowance(given) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  Allowance& allowance;
  const OnigUChar* seen = nullptr;  ///< where the search was when it was last asked
  OnigRegion* region = onig_region_new();
  OnigMatchParam* limits = onig_new_match_param();

  /// The callout of counted patterns: pays for what a search looked at since the last one.
  static int look(OnigCalloutArgs* search, void* of) {
    State& state = *static_cast<State*>(of);
    const OnigUChar* const now = onig_get_current_by_callout_args(search);
    const std::size_t passed = now > state.seen ? static_cast<std::size_t>(now - state.seen) : 1;
    state.seen = now;
    return state.allowance.look(passed) ? ONIG_CALLOUT_SUCCESS : ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
  }
  ~State() {
    if (region != nullptr) onig_region_free(region, 1);
    if (limits != nullptr) onig_free_match_param(limits);
  }
};

Regex::Matches::Matches(const Regex& regex, std::string_view text, Allowance& allowance)
    : regex_(regex), state_(std::make_unique<State>(allowance)) {
  if (state_->region == nullptr || state_->limits == nullptr) throw std::bad_alloc();
  // A greedy run keeps a few places for each of its characters.
  const std::size_t stack = (std::size_t{1} << 16) + 8 * text.size();
  onig_initialize_match_param(state_->limits);
  onig_set_match_stack_limit_size_of_match_param(
      state_->limits, static_cast<unsigned int>(std::min<std::size_t>(stack, 1u << 31)));
  onig_set_callout_user_data_of_match_param(state_->limits, state_.get());
  onig_set_progress_callout_of_match_param(state_->limits, &State::look);
  restart(text);
}

Regex::Matches::~Matches() = default;

void Regex::Matches::restart(std::string_view text) {
  text_ = text;
  from_ = 0;
  last_end_ = std::string_view::npos;
}

// The library counts a search's steps and does not tell how many they were: it is asked with a
// limit, which grows as long as it is too low. A search that went far is followed by its like.
int Regex::Matches::search() {
  const OnigUChar* const text = bytes(text_.data());
  for (;; limit_ *= 4) {
    onig_set_retry_limit_in_match_of_match_param(state_->limits, limit_);
    onig_set_retry_limit_in_search_of_match_param(state_->limits, limit_);
    onig_region_clear(state_->region);
    state_->seen = text + from_;
    const int found = onig_search_with_param(regex_.compiled_->regex, text, text + text_.size(),
                                             text + from_, text + text_.size(), state_->region,
                                             ONIG_OPTION_NONE, state_->limits);
    const bool over =
        found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER || found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
    if ((over || limit_ > free_steps) && !state_->allowance.step(limit_)) {
      return ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
    }
    if (over) continue;
    const std::size_t passed = found < 0 ? text_.size() : static_cast<std::size_t>(found);
    if (limit_ > free_steps && passed - std::min(passed, from_) < limit_ / 8) limit_ /= 4;
    return found;
  }
}

bool Regex::Matches::next(std::size_t& begin, std::size_t& end) {
  while (from_ <= text_.size()) {
    const int found = search();
    if (found == ONIG_MISMATCH) return false;
    if (found == ONIGERR_MEMORY) throw std::bad_alloc();
    if (found < 0) {
      throw_failure(cat(regex_.compiled_->where, ": the pattern cannot be matched in a text of ",
                        text_.size(), " bytes: ", reason_of(found), "; shorten the text"));
    }
    // \K in what a pattern looks behind at puts the beginning before the match that went before,
    // in what it looks ahead at behind the end.
    end = std::max(static_cast<std::size_t>(state_->region->end[0]), from_);
    begin = std::clamp(static_cast<std::size_t>(state_->region->beg[0]), from_, end);
    if (begin == end && end == last_end_) {
      if (from_ >= text_.size()) return false;
      from_ += static_cast<std::size_t>(std::max(1, utf8_sequence(text_.substr(from_))));
      continue;
    }
    from_ = end;
    last_end_ = end;
    return true;
  }
  return false;
}

}  // namespace coppice::tokenization
