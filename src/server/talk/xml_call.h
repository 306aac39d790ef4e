// Tool calls written with tags: a tag for the function, and tags around each argument.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "server/talk/answer_form.h"
#include "server/talk/argument_types.h"

namespace coppice::server {

/// How a family spells a call. Between tags white space may stand.
struct XmlTags {
  std::string_view open, close;            ///< of a block of calls; close "": a call's end ends it
  std::string_view call_open, name_end;    ///< around the function's name
  std::string_view key_open, key_end;      ///< around an argument's name
  std::string_view value_open, value_end;  ///< around its value
  std::string_view call_close;
  bool has_one_call = false;  ///< in a block
  bool has_lines = false;     ///< a value stands on lines of its own
  bool tells_text = false;    ///< key_end is followed by true"> for text, or by false"> for JSON
};

/// Null for forms without tags.
const XmlTags* xml_tags(ToolForm form);

/// Reads one call byte by byte. What an argument means depends on its type, which the text does not
/// tell: ArgumentTypes do.
class XmlCall {
 public:
  enum class Status : std::uint8_t { more, done, failed };

  /// `types` outlives this. `in_name`: call_open has been read.
  XmlCall(const XmlTags& tags, const ArgumentTypes& types, bool in_name = false);

  Status feed(char c);
  /// The name is known. Only an error keeps the text from being a call.
  bool has_name() const { return part_ != Part::open && part_ != Part::name; }
  const std::string& name() const { return name_; }
  /// JSON of the arguments, as far as they are whole and were not taken: an object in the end.
  std::string take_arguments();

 private:
  enum class Part : std::uint8_t {
    open,
    name,
    between,
    key,
    text_or_json,
    value_open,
    value,
    done
  };
  bool expect(char c, std::string_view mark, Part next);
  bool read_name(char c);
  bool read_key(char c);
  bool read_told(char c);
  bool read_between(char c);
  void end_value();

  const XmlTags& tags_;
  const ArgumentTypes& types_;
  Part part_;
  std::string word_;  ///< of the part, as far as it was read
  std::string name_, key_, arguments_;
  std::set<std::string> keys_;
  unsigned told_ = json_type::any;  ///< types that the text leaves its argument
};

}  // namespace coppice::server
