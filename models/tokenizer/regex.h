// Regular expressions over UTF-8, by Oniguruma, which tokenizers are written for.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "models/tokenizer/allowance.h"
#include "models/tokenizer/json_place.h"

namespace coppice::tokenization {

class Regex {
 public:
  /// `place` is what messages name. Throws Error(failure) if the pattern is wrong, too long, or has
  /// what cannot be counted (counted_pattern.h).
  Regex(std::string_view pattern, const JsonPlace& place);
  /// A pattern of coppice's own.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) = delete;

  /// Real patterns take up to 700 bytes; the compiler recurses into nested groups.
  static constexpr std::size_t longest_pattern = 4096;

  /// The matches in one text, first to last, without overlap. An empty match does not follow
  /// another match immediately. Steps back and what is looked at come out of the allowance: beyond,
  /// next() throws Error(failure).
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text, Allowance& allowance);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;
    /// Goes on in another text, of the same or a smaller length than that of the constructor.
    void restart(std::string_view text);
    bool next(std::size_t& begin, std::size_t& end);

   private:
    struct State;
    int search();
    /// Steps back of one search that are not counted: most take less.
    static constexpr std::size_t free_steps = 64;
    const Regex& regex_;
    std::unique_ptr<State> state_;
    std::string_view text_;
    std::size_t from_ = 0;
    std::size_t limit_ = free_steps;  ///< of the next search
    std::size_t last_end_ = std::string_view::npos;
  };

 private:
  void compile(std::string_view pattern, const JsonPlace* place);
  void read(std::string_view pattern);
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace coppice::tokenization
