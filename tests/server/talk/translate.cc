// Translates recorded answers, for scripts/check-server-shapes: reads a line of JSON with "api",
// "request", "completion" and "chunks", writes one with the answer and the events.
#include <iostream>
#include <string>

#include "server/talk/messages.h"
#include "server/talk/responses.h"

namespace {

using coppice::server::Json;

template <typename Stream>
Json events(Stream stream, const Json& chunks) {
  Json all = Json::array();
  const auto add = [&](const auto& some) {
    for (const auto& event : some) all.push_back({{"name", event.name}, {"data", event.data}});
  };
  for (const Json& chunk : chunks) add(stream.feed(chunk));
  add(stream.finish());
  return all;
}

Json translated(const Json& record) {
  const Json& request = record["request"];
  Json out;
  try {
    if (record["api"] == "messages") {
      out["chat"] = coppice::server::chat_request_of_messages(request);
      out["answer"] = coppice::server::MessagesStream().whole(record["completion"]);
      out["events"] = events(coppice::server::MessagesStream(), record["chunks"]);
    } else {
      out["chat"] = coppice::server::chat_request_of_responses(request);
      out["answer"] = coppice::server::ResponsesStream(request).whole(record["completion"]);
      out["events"] = events(coppice::server::ResponsesStream(request), record["chunks"]);
    }
  } catch (const coppice::server::BadRequest& error) {
    out["refused"] = {{"message", error.what()}, {"param", error.param}};
  }
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << translated(Json::parse(line)).dump() << std::endl;
  }
}
