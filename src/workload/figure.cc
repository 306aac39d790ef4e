#include "workload/figure.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tree_order.h"
#include "study/figures/chart.h"
#include "workload/motion.h"

namespace coppice::workload {
namespace {

constexpr std::size_t most_rows = 1024;
constexpr std::size_t most_steps = 128;
constexpr std::string_view pruned_grey = study::faint_fill, unused_grey = pruned_grey;
/// Few rows are parted by gaps, so that each branch is seen.
constexpr std::size_t most_parted_rows = 64;
constexpr double gap_of_rows = 0.15;
/// Few enough for their names to stand below each other.
constexpr std::size_t most_named_rows = 24;
constexpr std::string_view accepted_blue = "#0072b2";

// A tile of a row of the figure.
study::Tile tile(double left, double right, std::int32_t row, double gap = 0.0) {
  study::Tile made;
  made.left = left;
  made.right = right;
  made.low = row;
  made.high = row + 1 - gap;
  return made;
}

/// Rows by node.
std::vector<std::int32_t> depth_first(const std::vector<std::int32_t>& parents) {
  if (parents.size() > most_rows) {
    throw_usage(cat("--svg: a tree of ", parents.size(), " nodes; a figure shows up to ", most_rows,
                    ", leave it out or choose another tree"));
  }
  TokenTree tree;
  tree.reset(0);
  for (std::size_t node = 1; node < parents.size(); ++node) {
    tree.add(parents[node], 0, 0, 1.0f, 1.0);
  }
  TreeOrder order;
  order.assign(tree);
  return order.row_of_node;
}

/// `name_of` names nodes, where rows are few enough.
template <typename NameOf>
study::AxisSpec rows_axis(const std::vector<std::int32_t>& row_of_node, const char* label,
                          NameOf name_of) {
  study::AxisSpec axis;
  if (row_of_node.size() <= most_named_rows) {
    axis.label = label;
    axis.names.resize(row_of_node.size());
    for (std::size_t node = 0; node < row_of_node.size(); ++node) {
      axis.names[static_cast<std::size_t>(row_of_node[node])] = name_of(node);
    }
    return axis;
  }
  axis.label = "row of a node, depth first";
  axis.whole = true;
  axis.low = 0.0;
  axis.high = static_cast<double>(row_of_node.size());
  return axis;
}

study::LegendEntry box(const char* name, std::string_view fill) {
  study::LegendEntry entry;
  entry.name = name;
  entry.fill = fill;
  return entry;
}

}  // namespace

std::string figure_of(const TreeTemplate& tree) {
  std::vector<std::int32_t> parents;
  std::int64_t end = 0;
  for (const TemplateNode& node : tree.nodes) {
    parents.push_back(node.parent);
    end = std::max(end, node.end);
  }
  const std::vector<std::int32_t> row = depth_first(parents);
  study::Chart chart;
  chart.x.label = "iterations";
  chart.x.whole = true;
  chart.x.low = 0.0;
  chart.x.high = static_cast<double>(std::max<std::int64_t>(1, end));
  chart.y = rows_axis(row, "node: tokens",
                      [&](std::size_t node) { return cat(node, ": ", tree.nodes[node].tokens); });
  const double gap = row.size() <= most_parted_rows ? gap_of_rows : 0.0;

  // Runs of spans with as many readers are one tile.
  struct Run {
    std::int64_t begin = 0, end = -1;
    std::int32_t readers = 0;
  };
  std::vector<Run> runs(parents.size());
  std::vector<std::int32_t> readers(parents.size());
  const auto close = [&](std::size_t node) {
    const Run& run = runs[node];
    if (run.readers == 0) return;
    study::Tile made =
        tile(static_cast<double>(run.begin - 1), static_cast<double>(run.end), row[node], gap);
    made.value = run.readers;
    made.tooltip = cat("node ", node, ", ", tree.nodes[node].tokens, " tokens: read by ",
                       run.readers, " in iterations ", run.begin, " to ", run.end);
    chart.tiles.push_back(std::move(made));
  };
  for_each_span(tree, [&](const Span& span) {
    std::fill(readers.begin(), readers.end(), 0);
    for (const std::int32_t leaf : span.writing) {
      for (std::int32_t node = leaf; node >= 0; node = parents[static_cast<std::size_t>(node)]) {
        ++readers[static_cast<std::size_t>(node)];
      }
    }
    for (std::size_t node = 0; node < runs.size(); ++node) {
      Run& run = runs[node];
      if (readers[node] != run.readers || run.end + 1 != span.begin) {
        close(node);
        run = {span.begin, span.end, readers[node]};
      } else {
        run.end = span.end;
      }
    }
  });
  for (std::size_t node = 0; node < runs.size(); ++node) close(node);
  const std::vector<std::int64_t> pruned = pruned_after(tree);
  for (std::size_t node = 0; node < pruned.size(); ++node) {
    if (pruned[node] >= end) continue;
    study::Tile made =
        tile(static_cast<double>(pruned[node]), static_cast<double>(end), row[node], gap);
    made.fill = pruned_grey;
    chart.legend = {box("pruned", pruned_grey)};
    made.tooltip = cat("node ", node, ": pruned after iteration ", pruned[node]);
    chart.tiles.push_back(std::move(made));
  }
  chart.colours.emplace();
  chart.colours->label = "branches";
  chart.colours->whole = true;
  chart.colours->low = 1.0;
  return study::to_svg(chart);
}

std::string figure_of(const TreeShape& tree, const std::vector<std::int32_t>& accepted) {
  const std::size_t steps = std::min(accepted.size(), most_steps);
  const std::int32_t most = tree.height() + 1;
  study::Chart chart;
  chart.x.label = steps < accepted.size() ? cat("step, the first ", steps, " of ", accepted.size())
                                          : std::string("step");
  chart.x.low = 0.0;
  chart.x.high = static_cast<double>(steps);
  chart.y.label = "tokens accepted, the bonus token included";
  chart.y.whole = true;
  chart.y.low = 0.0;
  chart.y.high = static_cast<double>(most);
  // A record has the number of accepted tokens, not which nodes of the tree they were.
  study::Tile all = tile(0.0, static_cast<double>(steps), 0);
  all.high = static_cast<double>(most);
  all.fill = unused_grey;
  chart.tiles.push_back(std::move(all));
  for (std::size_t step = 0; step < steps; ++step) {
    if (accepted[step] == 0) continue;
    const auto left = static_cast<double>(step);
    study::Tile made = tile(left, left + 1, 0);
    made.high = accepted[step];
    made.fill = accepted_blue;
    made.tooltip = cat("step ", step, ": ", accepted[step],
                       accepted[step] == 1 ? " token accepted" : " tokens accepted");
    chart.tiles.push_back(std::move(made));
  }
  chart.colours.emplace();  // tiles lie close together; their colours are given
  chart.legend = {box("accepted", accepted_blue), box("up to the tree's depth", unused_grey)};
  return study::to_svg(chart);
}

}  // namespace coppice::workload
