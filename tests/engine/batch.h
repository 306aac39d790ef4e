// Requests for one call of generate(), and what each of them brings alone.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/pair.h"

namespace coppice::testing {

/// Two children of every node, level by level.
class TwoOfEach final : public CustomPolicy {
 public:
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    std::vector<std::int32_t> level;
    for (const std::int32_t node : evaluated) {
      for (int children = 2; children > 0 && tree.room() > 0; --children) {
        if (const auto child = tree.draw(node)) level.push_back(*child);
      }
    }
    if (tree.room() == 0 || level.empty()) return {};
    return tree.node(level[0]).depth < tree.max_depth() ? level : std::vector<std::int32_t>();
  }
};

inline Custom two_of_each(std::int32_t size) {
  return {[] { return std::make_unique<TwoOfEach>(); }, "two-of-each", size};
}

inline Request request_of(std::vector<TokenId> tokens, const GenerateOptions& options) {
  Request request;
  request.tokens = std::move(tokens);
  request.options = options;
  return request;
}

/// Each request while the engine does nothing else.
inline std::vector<Generation> one_by_one(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Generation> alone;
  for (const Request& request : requests) {
    alone.push_back(request.tokens.empty() ? engine.generate(request.prompt, request.options)
                                           : engine.generate(request.tokens, request.options));
  }
  return alone;
}

/// What the request failed with; "" if it did not.
inline std::string error_of(const Outcome& outcome) {
  if (!outcome.error) return "";
  try {
    std::rethrow_exception(outcome.error);
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// The one sample of a request that did not fail.
inline const Generation& only(const Outcome& outcome) {
  EXPECT_EQ(error_of(outcome), "");
  EXPECT_EQ(outcome.samples.size(), 1u);
  static const Generation none;
  return outcome.samples.size() == 1 ? outcome.samples[0] : none;
}

}  // namespace coppice::testing
