// What growing a tree further costs and brings.
#pragma once

#include <cstdint>

namespace coppice {

/// Prices in tokens, of one tree or of all that grow together. They are fixed while these grow.
class GrowthEconomics {
 public:
  virtual ~GrowthEconomics() = default;
  /// Returns the cost of each node beyond `size`, at the number of them that makes it least.
  virtual double least_node_cost(std::int32_t size) const = 0;
  /// Returns the cost of the draft pass of this number, from 0, over `rows` rows.
  virtual double pass_cost(std::int32_t rows, std::int32_t pass) const = 0;
  /// Returns the cost of a verify pass over `size` nodes, as measured: with the steps that
  /// products' buckets have.
  virtual double verify_cost(std::int32_t size) const = 0;
};

}  // namespace coppice
