// Tree sizes of texts that share their passes.
#include <gtest/gtest.h>

#include <vector>

#include "engine/batch.h"
#include "engine/endless_pair.h"
#include "engine/engine_impl.h"

namespace coppice::testing {
namespace {

// A row more costs little up to 16 of them, and much beyond. Nothing follows the clock.
void plant_costs(Engine& engine) {
  CostTable costs;
  costs.target =
      PassCosts(1, 100, {{1, 1.0, 1.0}, {16, 1.1, 1.1}, {17, 2.0, 2.0}, {512, 90.0, 90.0}});
  costs.draft = PassCosts(1, 100, {{1, 1e-3, 1e-3}, {512, 1e-3, 1e-3}});
  inside(engine).costs = costs;
  inside(engine).costs_are_saved = true;
}

std::vector<Request> requests_of(std::size_t count, const Speculation& speculation) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    GenerateOptions options = greedy(60);
    options.speculation = speculation;
    options.stream = i;
    requests.push_back(request_of({1, 7, 3, static_cast<TokenId>(9 + i)}, options));
  }
  return requests;
}

double mean_tree(Engine& engine, const std::vector<Request>& requests) {
  double nodes = 0.0;
  for (const Outcome& outcome : engine.generate(requests)) {
    nodes += only(outcome).statistics.tree_size_mean;
  }
  return nodes / static_cast<double>(requests.size());
}

TEST(BatchSizes, AutomaticOnesShareTheCheapRows) {
  const TinyPair pair(endless(), 0.0);  // the draft equals the target
  Engine engine = Engine::load(pair.options());
  plant_costs(engine);
  EXPECT_GE(mean_tree(engine, requests_of(1, Dyspec{})), 6.0);
  const double of_four = mean_tree(engine, requests_of(4, Dyspec{}));
  EXPECT_GE(of_four, 1.0);
  EXPECT_LE(of_four, 4.5);
  EXPECT_LE(mean_tree(engine, requests_of(8, Dyspec{})), 2.0);
  EXPECT_LE(mean_tree(engine, requests_of(16, Dyspec{})), 0.5);
}

TEST(BatchSizes, GivenOnesStay) {
  const TinyPair pair(endless(), 0.0);
  Engine engine = Engine::load(pair.options());
  plant_costs(engine);
  std::vector<Request> requests = requests_of(4, Dyspec{6});
  const double alone = mean_tree(engine, {requests[0]});
  for (const Request& other : requests_of(8, Dyspec{})) requests.push_back(other);
  const std::vector<Outcome> outcomes = engine.generate(requests);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(only(outcomes[i]).statistics.tree_size_mean, alone, 0.5);
  }
}

}  // namespace
}  // namespace coppice::testing
