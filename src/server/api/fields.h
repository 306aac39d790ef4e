// The members of a JSON object from a client, read by name; none is passed over in silence.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "server/api/json.h"

namespace coppice::server {

/// A member that is null counts as absent. What is wrong is an ApiError that names the member.
class Fields {
 public:
  /// `object` outlives this. `where` is put before names: "stream_options.".
  explicit Fields(const Json& object, std::string where = {});

  /// Null if it is absent.
  const Json* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  /// Nothing but finite numbers from `least` to `most`.
  std::optional<double> number(std::string_view name,
                               double least = -std::numeric_limits<double>::max(),
                               double most = std::numeric_limits<double>::max());
  std::optional<std::int64_t> integer(std::string_view name,
                                      std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                                      std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// An object; its members are read by a Fields of its own.
  const Json* object(std::string_view name);
  const Json* list(std::string_view name);

  /// Takes members that change no text and need no action.
  void ignore(std::initializer_list<std::string_view> names);
  /// Throws for a member that nobody has asked for, as OpenAI does.
  void refuse_others() const;

  /// The name as messages say it.
  std::string path(std::string_view name) const { return where_ + std::string(name); }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace coppice::server
