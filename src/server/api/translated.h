// POST /v1/responses, /v1/messages and /v1/messages/count_tokens: chats in other words.
#pragma once

#include "server/api/chat.h"

namespace coppice::server {

/// Throws as read_chat().
TextsJob read_response(Json request, Backend& backend, const ApiDefaults& defaults);
TextsJob read_message(const Json& request, Backend& backend, const ApiDefaults& defaults);
/// The body of the answer.
Json count_message_tokens(const Json& request, Backend& backend, const ApiDefaults& defaults);

}  // namespace coppice::server
