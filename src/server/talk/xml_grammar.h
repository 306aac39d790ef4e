// The grammar of a call that is written with tags.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/talk/xml_call.h"

namespace coppice::server {

/// A call of `function` ({"name", "parameters"}), without its block, in GBNF. Arguments come in
/// the schema's order. Throws Error(usage) for what a schema asks of bare text, unless
/// `takes_any_arguments`: then arguments have any names and any text.
std::string xml_call_grammar(const XmlTags& tags, const nlohmann::ordered_json& function,
                             bool takes_any_arguments);

/// What stands between two of a call's tags.
std::string xml_space(const XmlTags& tags);

}  // namespace coppice::server
