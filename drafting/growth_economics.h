// What growing a tree further costs and brings.
#pragma once

#include <cstdint>

namespace coppice {

/// Prices in tokens. They are fixed while a tree grows.
class GrowthEconomics {
 public:
  virtual ~GrowthEconomics() = default;
  /// Of one more node than `size`; not decreasing in it, infinite where there is no room.
  virtual double node_cost(std::int32_t size) const = 0;
  /// Of each further node, at the number of them that makes it least.
  virtual double least_node_cost(std::int32_t size) const = 0;
  /// Of the tree's draft pass of this number, from 0, over `rows` rows.
  virtual double pass_cost(std::int32_t rows, std::int32_t pass) const = 0;
  /// Of a verify pass over a tree of `size` nodes, as measured: with the steps that node_cost
  /// smooths.
  virtual double verify_cost(std::int32_t size) const = 0;
};

}  // namespace coppice
