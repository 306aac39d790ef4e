// One tool call that is written as a JSON object.
#pragma once

#include <cstdint>
#include <string>

#include "server/talk/json_scanner.h"

namespace coppice::server {

/// Reads {"name": ..., "arguments": {...}} byte by byte, members in any order. "parameters" means
/// "arguments", "id" is kept, "type" is passed over.
class CallObject {
 public:
  enum class Status : std::uint8_t { more, done, failed };

  /// Takes one byte, the first of which opens the object. Fails where the text is no JSON or no
  /// call. Other members are passed over if `takes_others`; otherwise the name must come first.
  Status feed(char c, bool takes_others);

  /// The name is known and the arguments have begun, so that nothing but an error keeps it from
  /// being a call.
  bool is_call() const { return has_name() && has_arguments_; }
  bool has_name() const { return !name_.empty(); }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  /// Arguments read since this was last called.
  std::string take_arguments();

 private:
  enum class Member : std::uint8_t { none, name, id, arguments, other };
  bool end_key(bool takes_others);
  bool end_value();

  JsonScanner json_;
  Member member_ = Member::none;
  bool in_value_ = false, has_arguments_ = false, has_id_ = false;
  std::string key_, value_, name_, id_, arguments_;
};

}  // namespace coppice::server
