// Looks of figures: colours in light and dark, styles of policies, scales, forest plots.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "study/figures/chart.h"
#include "study/figures/figure_elements.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"

namespace coppice::study {
namespace {

using namespace test;

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

double to_linear(int byte) {
  const double c = byte / 255.0;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

// OKLab of "#rrggbb" by the inverse route: sRGB to the cone responses (Ottosson, 2020).
std::array<double, 3> oklab(const std::string& colour) {
  const double r = to_linear(std::stoi(colour.substr(1, 2), nullptr, 16));
  const double g = to_linear(std::stoi(colour.substr(3, 2), nullptr, 16));
  const double b = to_linear(std::stoi(colour.substr(5, 2), nullptr, 16));
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const double m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const double s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return {0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
          1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
}

TEST(ColourScale, StepsAreEvenAndDarken) {
  constexpr int steps = 16;
  std::vector<double> distances;
  for (int i = 1; i <= steps; ++i) {
    const auto a = oklab(heat_colour((i - 1.0) / steps));
    const auto b = oklab(heat_colour(static_cast<double>(i) / steps));
    EXPECT_LT(b[0], a[0] - 0.015) << i;
    distances.push_back(std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]));
  }
  // Eight bits a channel move a colour by about 0.002; leaving the gamut would cost far more.
  const auto [least, most] = std::minmax_element(distances.begin(), distances.end());
  EXPECT_LT(*most / *least, 1.15);
  EXPECT_GT(oklab(heat_colour(0))[0], 0.9);
  EXPECT_LT(oklab(heat_colour(1))[0], 0.4);
  EXPECT_EQ(heat_colour(-1), heat_colour(0));
  EXPECT_EQ(heat_colour(7), heat_colour(1));
}

TEST(Style, TwelveSeriesDiffer) {
  for (std::size_t i = 0; i < 12; ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const SeriesStyle a = series_style(i), b = series_style(k);
      // Without colour too.
      EXPECT_TRUE(a.marker != b.marker || a.dash != b.dash) << i << " and " << k;
      EXPECT_TRUE(a.colour != b.colour || a.marker != b.marker) << i << " and " << k;
    }
  }
  EXPECT_EQ(ink_on("#ffffff"), "#000");
  EXPECT_EQ(ink_on("#0072b2"), "#fff");
  EXPECT_NE(area_colour(0), area_colour(5));
}

TEST(Style, PoliciesKeepTheirLook) {
  // Whatever else is studied, and in whatever order.
  const std::vector<std::string> few = {"chain", "dyspec"};
  const std::vector<std::string> many = {"mine", "dyspec-plain", "dyspec", "sequoia", "chain"};
  for (const char* policy : {"dyspec", "chain", "sequoia"}) {
    EXPECT_EQ(style_number(policy, few), style_number(policy, many)) << policy;
  }
  std::set<std::size_t> numbers;
  for (const std::string& policy : many) numbers.insert(style_number(policy, many));
  EXPECT_EQ(numbers.size(), many.size());
  EXPECT_EQ(series_style(style_number("dyspec", many)).colour,
            series_style(style_number("dyspec-plain", many)).colour);
  EXPECT_NE(style_number("mine", {"mine", "yours"}), style_number("yours", {"mine", "yours"}));
}

// Relative luminance and contrast of WCAG 2, of "#rgb" or "#rrggbb".
double contrast(std::string a, std::string b) {
  const auto luminance = [](std::string colour) {
    if (colour.size() == 4)
      colour = {'#', colour[1], colour[1], colour[2], colour[2], colour[3], colour[3]};
    const auto channel = [&](std::size_t at) {
      return to_linear(std::stoi(colour.substr(at, 2), nullptr, 16));
    };
    return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5) + 0.05;
  };
  const double x = luminance(std::move(a)), y = luminance(std::move(b));
  return std::max(x, y) / std::min(x, y);
}

TEST(Palette, SeriesStandOutFromPaperInTheDark) {
  const PaletteColour* page = find_role(paper);
  ASSERT_NE(page, nullptr);
  for (std::size_t i = 0; i < 12; ++i) {
    const PaletteColour* colour = find_role(series_style(i).colour);
    ASSERT_NE(colour, nullptr) << i;
    EXPECT_GE(contrast(std::string(colour->dark), std::string(page->dark)), 4.5) << i;
    EXPECT_GE(contrast(std::string(colour->light), std::string(page->light)), 2) << i;
  }
  for (const std::string_view role : {ink, strong_ink}) {
    EXPECT_GE(contrast(std::string(find_role(role)->dark), std::string(page->dark)), 7) << role;
    EXPECT_GE(contrast(std::string(find_role(role)->light), std::string(page->light)), 7) << role;
  }
  EXPECT_EQ(find_role("#ffffff"), nullptr);
}

Chart two_policies() {
  Chart chart;
  chart.x = {.label = "tree size", .scale = Scale::log2};
  chart.y = {.label = "accepted length"};
  chart.series = {{.name = "dyspec", .points = {{8, 3, 2, 4}, {16, 4, 3, 5}}},
                  {.name = "chain", .points = {{8, 2.5, 1.5, 3.5}, {16, 3, 2, 4}}}};
  return chart;
}

Chart ratios(const std::vector<double>& cells) {
  Chart map;
  map.x.names = {"1", "2", "3"};
  map.y.names = {"first"};
  map.tiles = tiles_of(cells, 3);
  map.colours = {{}, 1.0};
  return map;
}

Chart differences() {
  Chart plot;
  plot.x = {.label = "difference", .low = -1, .high = 2};
  plot.y.names = {"size 8", "dyspec / chain", "sequoia / chain", "none / chain"};
  plot.references = {{ReferenceLine::Kind::vertical, 0}};
  Series clear{"", {{1, 1.5, 0, 2}}, series_style(0), false}, open = clear;
  open.style->open = true;
  open.points = {{-1, 2.5}, {missing, 3.5}};
  plot.series = {clear, open};
  plot.notes = {"", "p = 0.01", "n = 3", "none"};
  return plot;
}

// In the dark every colour that is drawn has a dark form, but for areas, which are readable on both
// papers, and for scales, which are turned over.
TEST(Dark, ReachesEveryPartOfAFigure) {
  Chart bars;
  bars.y.names = {"a"};
  bars.tiles = {{0, 1, 0, 1, missing, area_colour(0), "100%", "draft"}};
  const std::string rules = dark_rules();
  for (const std::string& svg : {to_svg(two_policies()), to_svg(ratios({0.5, 1, 1.2})),
                                 to_svg(differences()), to_svg(bars)}) {
    const Elements elements = read_xml(svg);
    std::size_t turned_depth = 0;
    bool in_turned = false;
    for (const XmlElement& e : elements) {
      if (in_turned && e.depth <= turned_depth) in_turned = false;
      if (e.has("class", "turned")) {
        in_turned = true;
        turned_depth = e.depth;
      }
      const bool area = e.name == "rect" && e.has("fill", std::string(area_colour(0)));
      const bool on_area = e.name == "text" && (e.has("fill", "#fff") || e.has("fill", "#000"));
      if (in_turned || area || on_area) continue;
      for (const auto& [attribute, form] : {std::pair{"fill", "fill-"}, {"stroke", "line-"}}) {
        const auto found = e.attributes.find(attribute);
        if (found == e.attributes.end() || found->second == "none") continue;
        ASSERT_TRUE(e.attributes.contains("class")) << e.name << " " << found->second;
        const std::string& classes = e.attributes.at("class");
        const std::size_t at = classes.find(form);
        ASSERT_NE(at, std::string::npos) << e.name << " " << classes;
        const std::string one = classes.substr(at, classes.find(' ', at) - at);
        EXPECT_NE(rules.find("." + one + " {"), std::string::npos) << one;
      }
    }
  }
}

TEST(Dark, AFileOfItsOwnCarriesTheRules) {
  const std::string svg = to_svg(two_policies());
  EXPECT_EQ(svg.find("<style>"), std::string::npos) << "in a page they stand once";
  const Elements elements = read_xml(stand_alone(svg));
  ASSERT_GT(elements.size(), 1u);
  EXPECT_EQ(elements[0].name, "svg");
  EXPECT_EQ(elements[1].name, "style");
  EXPECT_NE(elements[1].text.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST(LineChart, IntervalsStandSideBySide) {
  const auto bars_of = [](const Chart& chart) {
    std::vector<double> xs;
    for (const XmlElement& e : named(read_xml(to_svg(chart)), "line")) {
      if (e.attributes.contains("class") && e.attributes.at("class").find("line-series") == 0 &&
          e.number("x1") == e.number("x2")) {
        xs.push_back(e.number("x1"));
      }
    }
    std::sort(xs.begin(), xs.end());
    return xs;
  };
  Chart chart = two_policies();
  const auto together = bars_of(chart);
  ASSERT_EQ(together.size(), 4u);
  EXPECT_EQ(together[0], together[1]);
  chart.side_by_side = true;
  const auto apart = bars_of(chart);
  ASSERT_EQ(apart.size(), 4u);
  EXPECT_GT(apart[1] - apart[0], 4);
  EXPECT_LT(apart[1] - apart[0], 10);
  EXPECT_NEAR((apart[0] + apart[1]) / 2, together[0], 2 * print_error) << "around their place";
}

TEST(ColourScale, DivergesAlikeAroundItsMiddle) {
  for (const double share : {0.25, 0.5, 1.0}) {
    const auto below = oklab(diverging_colour(-share)), above = oklab(diverging_colour(share));
    EXPECT_NEAR(below[0], above[0], 0.02) << share;
    EXPECT_LT(above[0], oklab(diverging_colour(share - 0.25))[0]);
    EXPECT_GT(below[2], 0.0) << "orange";
    EXPECT_LT(above[2], 0.0) << "blue";
  }
  const auto middle = oklab(diverging_colour(0));
  EXPECT_GT(middle[0], 0.94);
  EXPECT_LT(std::hypot(middle[1], middle[2]), 0.01);
}

TEST(HeatMap, RatiosPartAroundOne) {
  const Elements boxes = cell_boxes(read_xml(to_svg(ratios({0.8, 1.0, 1.4}))));
  ASSERT_EQ(boxes.size(), 3u);
  EXPECT_TRUE(boxes[0].has("fill", diverging_colour(-0.5)));
  EXPECT_TRUE(boxes[1].has("fill", diverging_colour(0)));
  EXPECT_TRUE(boxes[2].has("fill", diverging_colour(1)));
  // Ratios have no place below 0: what lies farther above takes the end's colour.
  const Elements far = cell_boxes(read_xml(to_svg(ratios({0.5, 1.0, 7}))));
  EXPECT_TRUE(far[0].has("fill", diverging_colour(-0.5)));
  EXPECT_TRUE(far[2].has("fill", diverging_colour(1)));
  EXPECT_EQ(cell_boxes(read_xml(to_svg(ratios({1, 1, 1})))).size(), 3u);
}

TEST(IntervalPlot, EstimatesAndIntervalsLieWhereTicksSay) {
  const Elements elements = read_xml(to_svg(differences()));
  const auto at = [&](const char* label) { return tick_x(elements, label); };
  const Elements circles = named(elements, "circle");
  ASSERT_EQ(circles.size(), 2u) << "what has no value has no marker";
  EXPECT_NEAR(circles[0].number("cx"), at("1.0"), print_error);
  EXPECT_NEAR(circles[1].number("cx"), at("-1.0"), print_error);
  EXPECT_NE(circles[0].attributes.at("fill"), circles[1].attributes.at("fill"))
      << "only what is clear is filled";
  const Elements lines = named(elements, "line");
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [&](const XmlElement& e) {
                            return e.has("class", "line-series0") &&
                                   std::abs(e.number("x1") - at("0.0")) < print_error &&
                                   std::abs(e.number("x2") - at("2.0")) < print_error;
                          }),
            1);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const XmlElement& e) {
    return e.has("stroke-dasharray", "2 3") && std::abs(e.number("x1") - at("0.0")) < print_error;
  })) << "no difference is marked";
  for (const char* text : {"size 8", "dyspec / chain", "p = 0.01", "none"}) {
    EXPECT_TRUE(has_text(elements, text)) << text;
  }
}

TEST(IntervalPlot, OddDataIsDrawnAllTheSame) {
  Chart plot = differences();
  plot.x = {.label = "ratio", .scale = Scale::log2};
  plot.references[0].at = 1;
  plot.series[0].points[0].low = -5;
  plot.series[1].points[0].x = 0;
  plot.y.names.emplace_back(300, 'w');
  plot.series[1].points.push_back({1e300, 4.5, 1, 1e308});
  plot.notes.emplace_back("<&>");
  EXPECT_NO_THROW(read_xml(to_svg(plot)));
}

}  // namespace
}  // namespace coppice::study
