// Messages of the API as chat templates read them.
#pragma once

#include <string_view>

#include "server/api/json.h"

namespace coppice::server {

/// Parts of text become one text, arguments of tool calls objects, and "developer" "system" where
/// the template does not know it. Throws ApiError for what is no list of messages, and for parts
/// other than text.
Json template_messages(const Json& messages, std::string_view template_source);

}  // namespace coppice::server
