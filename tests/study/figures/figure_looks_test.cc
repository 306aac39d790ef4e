// Looks of figures: colours, styles of policies, scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "study/figures/chart.h"
#include "study/figures/figure_elements.h"
#include "study/figures/svg.h"

namespace coppice::study {
namespace {

using namespace test;

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
}

TEST(Style, PoliciesKeepTheirLook) {
  const std::vector<std::string> many = {
      "dyspec",       "dyspec-threshold", "chain",
      "static",       "specinfer",        "sequoia",
      "mine",         "dyspec-plain",     "dyspec-threshold-plain",
      "expand-rerank"};
  std::set<std::size_t> numbers;
  for (const std::string& policy : many) numbers.insert(style_number(policy));
  EXPECT_EQ(numbers.size(), many.size());
  for (const std::string policy : {"dyspec", "dyspec-threshold"}) {
    EXPECT_EQ(series_style(style_number(policy)).colour,
              series_style(style_number(policy + "-plain")).colour);
  }
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

TEST(Style, SeriesStandOutFromPaper) {
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_GE(contrast(std::string(series_style(i).colour), std::string(paper)), 2) << i;
  }
  EXPECT_GE(contrast(std::string(ink), std::string(paper)), 7);
}

/// The colour that the figure's style gives `light` as a fill in a dark window.
std::string on_dark(const std::string& style, std::string_view light) {
  const std::string rule = "[fill=\"" + std::string(light) + "\"] { fill: ";
  const auto at = style.find(rule);
  if (at == style.npos) return {};
  return style.substr(at + rule.size(), style.find(';', at) - at - rule.size());
}

TEST(Style, DarkWindowsHaveLightInk) {
  Chart chart;
  chart.tiles = tiles_of(std::vector<double>{1.0}, 1);
  chart.tiles[0].words = "1";
  chart.colours = {.low = 0.0, .high = 1.0};
  const Elements elements = read_xml(to_svg(chart));
  const Elements styles = named(elements, "style");
  ASSERT_EQ(styles.size(), 1u);
  const std::string& style = styles[0].text;
  EXPECT_TRUE(style.starts_with("@media screen and (prefers-color-scheme: dark) {"));
  EXPECT_EQ(std::ranges::count(style, '{'), std::ranges::count(style, '}'));
  const std::string dark_paper = on_dark(style, paper);
  ASSERT_FALSE(dark_paper.empty());
  EXPECT_GE(contrast(on_dark(style, ink), dark_paper), 7);
  EXPECT_GE(contrast(on_dark(style, soft_ink), dark_paper), 4.5);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_GE(contrast(std::string(series_style(i).colour), dark_paper), 3) << i;
  }
  // Words on a tile are white for the tile's sake, whatever the window.
  EXPECT_NE(style.find(":not(text)[fill=\"" + std::string(paper) + "\"]"), std::string::npos);
  EXPECT_TRUE(std::ranges::any_of(named(elements, "text"), [](const XmlElement& e) {
    return e.text == "1" && e.has("fill", "#fff");
  }));
}

Chart two_policies() {
  Chart chart;
  chart.x = {.label = "tree size", .scale = Scale::log2};
  chart.y = {.label = "accepted length"};
  chart.series = {{.name = "dyspec", .points = {{8, 3, 2, 4}, {16, 4, 3, 5}}},
                  {.name = "chain", .points = {{8, 2.5, 1.5, 3.5}, {16, 3, 2, 4}}}};
  return chart;
}

TEST(LineChart, NoteStandsBelowAll) {
  Chart chart = two_policies();
  const double height = read_xml(to_svg(chart))[0].number("height");
  chart.note = "n: 24 prompts";
  const Elements elements = read_xml(to_svg(chart));
  EXPECT_GT(elements[0].number("height"), height);
  double lowest = 0.0, note = 0.0;
  for (const XmlElement& e : named(elements, "text")) {
    (e.text == chart.note ? note : lowest) = std::max(lowest, e.number("y"));
  }
  EXPECT_GE(note, lowest + tick_font);
  EXPECT_LE(note, elements[0].number("height"));
  chart.note = std::string(300, 'n');
  EXPECT_FALSE(has_text(read_xml(to_svg(chart)), chart.note)) << "cut to its room";
}

TEST(LineChart, IntervalsStandSideBySide) {
  const auto bars_of = [](const Chart& chart) {
    std::vector<double> xs;
    for (const XmlElement& e : named(read_xml(to_svg(chart)), "line")) {
      const bool of_series = e.has("stroke", std::string(series_style(0).colour)) ||
                             e.has("stroke", std::string(series_style(1).colour));
      if (of_series && e.number("x1") == e.number("x2")) {
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

}  // namespace
}  // namespace coppice::study
