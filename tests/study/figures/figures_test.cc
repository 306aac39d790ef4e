// Figures are read back from their SVG: points, intervals and cells must lie where the printed
// ticks say.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <locale>
#include <string>
#include <vector>

#include "base/error.h"
#include "study/figures/axis.h"
#include "study/figures/chart.h"
#include "study/figures/figure_elements.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

using namespace test;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
Chart sizes_chart() {
  Chart chart;
  chart.x = {.label = "tree size", .scale = Scale::log2};
  chart.y = {.label = "accepted length", .low = 0};
  chart.series = {{.name = "dyspec", .points = {{4, 2, 1.5, 2.75}, {16, 3}, {64, 4, 3, 5}}}};
  return chart;
}

// --- text and numbers

TEST(FigureText, EscapesMarkupAndWhatXmlCannotCarry) {
  EXPECT_EQ(escape_markup("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape_markup("naïve 木\n"), "naïve 木\n");
  EXPECT_EQ(escape_markup(std::string("\x01\xff|\xed\xa0\x80", 6)),
            "\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escape_markup("\xef\xbf\xbf"), "\xef\xbf\xbd");
}

TEST(FigureText, NumbersAreShort) {
  EXPECT_EQ(coordinate(12.0), "12");
  EXPECT_EQ(coordinate(12.346), "12.35");
  EXPECT_EQ(coordinate(-0.001), "0");
  EXPECT_EQ(coordinate(nan), "0");
  EXPECT_EQ(coordinate(1e300), "1000000");
  EXPECT_EQ(compact_number(0.8349), "0.835");
  EXPECT_EQ(compact_number(999.6), "1000");
  EXPECT_EQ(compact_number(-12.5), "-12.5");
  EXPECT_EQ(compact_number(123456), "123456");
  EXPECT_EQ(compact_number(32100000), "3.21e+07");
  EXPECT_EQ(compact_number(1250.4), "1250");
  EXPECT_EQ(compact_number(0.25), "0.25");
  EXPECT_EQ(compact_number(1e-5), "1e-05");
  EXPECT_EQ(compact_number(nan), "-");
  EXPECT_EQ(fixed(-0.001, 1), "0.0");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(12288), "12,288");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(1000000), "1,000,000");
}

TEST(FigureText, TextIsCutToItsRoom) {
  const std::string name = "a policy with a long name and naïve options";
  const double room = text_width(name, 12) / 2;
  const std::string cut = fit_text(name, 12, room);
  EXPECT_LE(text_width(cut, 12), room);
  EXPECT_GT(text_width(cut, 12), 0.8 * room);
  EXPECT_TRUE(cut.ends_with("…"));
  EXPECT_EQ(fit_text(name, 12, 1000), name);
}

// Numbers with a comma for their point and points between thousands.
class GermanNumbers : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(FigureText, LocaleChangesNothing) {
  const std::string before = to_svg(sizes_chart());
  const std::locale old = std::locale::global(std::locale(std::locale(), new GermanNumbers));
  const std::string after = to_svg(sizes_chart());
  std::locale::global(old);
  EXPECT_EQ(before, after);
}

// --- axes

Axis axis_over(const AxisSpec& spec, const std::vector<double>& data, double length = 400) {
  DataRange range(spec.scale);
  for (const double v : data) range.include(v);
  return Axis(spec, range, AxisSide::horizontal, 100, 100 + length);
}

TEST(Axis, MapsValuesEvenlyOnItsScale) {
  const Axis linear = axis_over({}, {0, 10});
  EXPECT_NEAR(linear.at(2.5), 200, 1e-9);
  const Axis binary = axis_over({.scale = Scale::log2}, {4, 64});
  EXPECT_NEAR(binary.at(16), 300, 1e-9);
  EXPECT_EQ(binary.at(0), 100) << "the nearer end";
  EXPECT_EQ(linear.at(infinity), 500);
}

TEST(Axis, TicksCoverTheDataAndKeepApart) {
  const std::vector<std::vector<double>> ranges = {
      {0, 1},    {0.13, 0.17}, {-3, 8},         {3, 3.0001},      {1e-7, 2e-7},    {5, 5},
      {0, 0},    {-5, -5},     {-9, -2},        {1, 768},         {4, 4},          {0.9, 1.1},
      {1e-9, 1}, {1, 1e12},    {1e-300, 1e300}, {1e15, 1e15 + 2}, {123456, 987654}};
  for (const Scale scale : {Scale::linear, Scale::log2}) {
    for (const auto& data : ranges) {
      if (scale != Scale::linear && data[0] <= 0) continue;
      for (const double length : {60.0, 400.0, 2000.0}) {
        SCOPED_TRACE(::testing::Message() << "scale " << static_cast<int>(scale) << ", data "
                                          << data[0] << " to " << data[1] << ", " << length);
        const Axis axis = axis_over({.scale = scale}, data, length);
        EXPECT_TRUE(axis.covers(data[0]) && axis.covers(data[1]));
        EXPECT_LT(axis.low(), axis.high());
        const std::vector<Tick>& ticks = axis.ticks();
        ASSERT_GE(ticks.size(), 2u);
        EXPECT_LE(ticks.size(), 60u);
        EXPECT_LE(ticks.front().value, data[0] + 1e-9 * std::abs(data[0]));
        EXPECT_GE(ticks.back().value, data[1] - 1e-9 * std::abs(data[1]));
        double last_end = -1e9;
        for (const Tick& t : ticks) {
          EXPECT_TRUE(axis.covers(t.value));
          const double half = text_width(t.label, tick_font) / 2;
          // With two labels nothing is left to leave out.
          if (ticks.size() > 2) {
            EXPECT_GE(axis.at(t.value) - half, last_end);
          }
          last_end = axis.at(t.value) + half;
        }
      }
    }
  }
}

TEST(Axis, LabelsAreWhatTheySay) {
  for (const auto& data :
       std::vector<std::vector<double>>{{0, 1}, {0.13, 0.17}, {-3, 8}, {0, 5e4}}) {
    const Axis axis = axis_over({}, data);
    for (const Tick& t : axis.ticks()) {
      EXPECT_NEAR(std::stod(t.label), t.value, 1e-9) << t.label;
    }
  }
  const Axis shares = axis_over({.low = 0, .high = 1, .per_cent = true}, {});
  EXPECT_EQ(shares.ticks().front().label, "0%");
  EXPECT_EQ(shares.ticks().back().label, "100%");
  const auto sizes = axis_over({.scale = Scale::log2}, {4, 768});
  EXPECT_EQ(sizes.ticks().front().label, "4");
  EXPECT_EQ(sizes.ticks().back().label, "1024");
  EXPECT_EQ(sizes.ticks().size(), 9u);
  EXPECT_EQ(axis_over({.scale = Scale::log2}, {0x1p-7, 1}).ticks().front().label, "2^-7");
}

TEST(Axis, LabelsTellNeighboursApart) {
  for (const double base : {1.0, 1e6, 1e12, 1e15}) {
    const Axis axis = axis_over({}, {base, base * (1 + 1e-6) + 1}, 1000);
    std::vector<std::string> labels;
    for (const Tick& t : axis.ticks()) labels.push_back(t.label);
    std::sort(labels.begin(), labels.end());
    EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end()) << base;
  }
}

TEST(Axis, KeepsFixedLimits) {
  const Axis axis = axis_over({.low = 0.5, .high = 43.5, .whole = true}, {3, 90});
  EXPECT_EQ(axis.low(), 0.5);
  EXPECT_EQ(axis.high(), 43.5);
  for (const Tick& t : axis.ticks()) EXPECT_EQ(t.value, std::round(t.value));
  EXPECT_EQ(axis.at(90), 500);
  EXPECT_FALSE(axis.covers(90));
}

TEST(Axis, PassesOverWhatItCannotShow) {
  const Axis axis = axis_over({.scale = Scale::log2}, {nan, 0, -5, 8, infinity, 1024});
  EXPECT_EQ(axis.low(), 8);
  EXPECT_EQ(axis.high(), 1024);
}

// --- charts

TEST(LineChart, PointsLieWhereTicksSay) {
  const Elements elements = read_xml(to_svg(sizes_chart()));
  Elements circles = named(elements, "circle");
  ASSERT_EQ(circles.size(), 4u);  // the legend's is last
  const std::array<const char*, 3> xs = {"4", "16", "64"}, ys = {"2", "3", "4"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(circles[i].number("cx"), tick_x(elements, xs[i]), print_error);
    EXPECT_NEAR(circles[i].number("cy"), tick_y(elements, ys[i]), print_error);
  }
  EXPECT_TRUE(has_text(elements, "tree size"));
  EXPECT_TRUE(has_text(elements, "accepted length"));
  EXPECT_TRUE(has_text(elements, "dyspec"));
}

TEST(LineChart, IntervalsAreDrawn) {
  Chart chart = sizes_chart();
  const Elements elements = read_xml(to_svg(chart));
  const double x = tick_x(elements, "4");
  const double zero = tick_y(elements, "0"), one = tick_y(elements, "1");
  const auto y_of = [&](double value) { return zero + value * (one - zero); };
  int bars = 0;
  for (const XmlElement& e : named(elements, "line")) {
    if (!e.has("stroke", "#0072b2") || e.number("x1") != e.number("x2")) continue;
    ++bars;
    if (std::abs(e.number("x1") - x) > print_error) continue;
    EXPECT_NEAR(e.number("y1"), y_of(1.5), 2 * print_error);
    EXPECT_NEAR(e.number("y2"), y_of(2.75), 2 * print_error);
  }
  EXPECT_EQ(bars, 2);  // the point in the middle has none
}

TEST(LineChart, GapsInterruptTheLine) {
  Chart chart = sizes_chart();
  chart.y.low.reset();
  chart.series[0].points = {{4, 2}, {8, 3}, {16, nan}, {0, 4}, {32, 3}, {64, infinity}, {64, 4}};
  const Elements elements = read_xml(to_svg(chart));
  EXPECT_EQ(named(elements, "circle").size(), 4u + 1u);
  EXPECT_EQ(named(elements, "polyline").size(), 1u);  // 4 to 8; 32 and 64 stand alone
}

// Renderers differ in what they make of pictures within pictures: there are none, and what lies
// beyond fixed limits is drawn to the plot's edge.
TEST(LineChart, NothingLeavesThePlot) {
  Chart chart = sizes_chart();
  chart.y = {.low = 1, .high = 3.5};
  chart.series[0].points.push_back({128, 900, 800, 1000});
  const Elements elements = read_xml(to_svg(chart));
  EXPECT_EQ(named(elements, "svg").size(), 1u);
  EXPECT_TRUE(elements[0].has("stroke", "none")) << "nothing is left to what renderers assume";
  for (const XmlElement& e : named(elements, "text")) {
    if (!e.attributes.contains("transform")) continue;
    EXPECT_TRUE(e.attributes.at("transform").ends_with(") rotate(-90)")) << "around no point";
    EXPECT_TRUE(e.has("x", "0") && e.has("y", "0"));
  }
  const double top = tick_y(elements, "3.5"), bottom = tick_y(elements, "1.0");
  const auto inside = [&](double y) { return y >= top - print_error && y <= bottom + print_error; };
  for (const XmlElement& e : named(elements, "polyline")) {
    for (const Xy& point : points_of(e)) EXPECT_TRUE(inside(point.y)) << point.y;
  }
  for (const XmlElement& e : named(elements, "line")) {
    if (!e.has("stroke", "#0072b2") || e.number("x1") != e.number("x2")) continue;
    EXPECT_TRUE(inside(e.number("y1")) && inside(e.number("y2")));
  }
  EXPECT_EQ(named(elements, "circle").size(), 2u + 1u) << "two points outside have no marker";
}

TEST(LineChart, ReferencesReachAcrossThePlot) {
  Chart chart = sizes_chart();
  chart.references = {{1.0, "plain"}};
  const Elements elements = read_xml(to_svg(chart));
  const double wanted = tick_y(elements, "1");
  const Elements lines = named(elements, "line");
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const XmlElement& e) {
    return e.has("stroke-dasharray", "2 3") && std::abs(e.number("y1") - wanted) < print_error &&
           std::abs(e.number("y2") - wanted) < print_error && e.number("x2") - e.number("x1") > 200;
  }));
  EXPECT_TRUE(has_text(elements, "plain"));
}

TEST(LineChart, DiagonalJoinsEqualValues) {
  Chart chart;
  chart.x = {.low = 0, .high = 1};
  chart.y = {.low = 0, .high = 1};
  chart.references = {{{}, "as reckoned"}};
  const Elements elements = read_xml(to_svg(chart));
  const Elements lines = named(elements, "line");
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const XmlElement& e) {
    return e.has("stroke-dasharray", "2 3") &&
           std::abs(e.number("x1") - tick_x(elements, "0.0")) < print_error &&
           std::abs(e.number("y1") - tick_y(elements, "0.0")) < print_error &&
           std::abs(e.number("x2") - tick_x(elements, "1.0")) < print_error &&
           std::abs(e.number("y2") - tick_y(elements, "1.0")) < print_error;
  }));
}

// Boxes of the names in a chart, by their starts: below the plot, and apart.
void expect_names_apart(const Elements& elements) {
  double bottom = 0;  // of the plot: where its axes meet
  for (const XmlElement& e : named(elements, "line")) {
    const bool axis = e.has("stroke", std::string(ink)) && e.number("x2") - e.number("x1") > 200;
    if (axis) bottom = e.number("y1");
  }
  const XmlElement& svg = elements[0];
  std::vector<XmlElement> names;
  for (const XmlElement& e : named(elements, "text")) {
    if (!e.attributes.contains("text-anchor") && e.text.starts_with("policy")) names.push_back(e);
  }
  EXPECT_EQ(names.size(), 12u);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double right = names[i].number("x") + text_width(names[i].text, tick_font);
    EXPECT_LE(right, svg.number("width"));
    EXPECT_LE(names[i].number("y"), svg.number("height"));
    EXPECT_GT(names[i].number("y") - tick_font, bottom);
    for (std::size_t k = 0; k < i; ++k) {
      const double other = names[k].number("x") + text_width(names[k].text, tick_font);
      EXPECT_TRUE(std::abs(names[i].number("y") - names[k].number("y")) >= tick_font ||
                  names[i].number("x") >= other || names[k].number("x") >= right)
          << names[i].text << " over " << names[k].text;
    }
  }
}

TEST(LineChart, TwelveNamesNeverOverlap) {
  for (const std::string tail :
       {"", " of a middling name", " whose very long name goes on and on",
        " of a name that no picture of this width could ever hold, so that "
        "it has to be cut somewhere before its end, with all its options"}) {
    for (const double spread : {0.0, 0.05, 1.0}) {
      Chart chart;
      for (int p = 0; p < 12; ++p) {
        const std::string name = "policy " + std::to_string(p) + tail;
        chart.series.push_back({.name = name, .points = {{1, 2}, {2, 3 + spread * p}}});
      }
      SCOPED_TRACE(tail + " spread " + std::to_string(spread));
      expect_names_apart(read_xml(to_svg(chart)));
    }
  }
}

TEST(LineChart, OddDataIsDrawnAllTheSame) {
  for (const Scale scale : {Scale::linear, Scale::log2}) {
    for (const auto& points : std::vector<std::vector<Point>>{{},
                                                              {{1, 1}},
                                                              {{5, 5}, {5, 5}},
                                                              {{nan, nan}},
                                                              {{-1, -1}},
                                                              {{0, 0}},
                                                              {{1e-300, 1e300}, {1e300, 1e-300}},
                                                              {{1, 2, -infinity, infinity}},
                                                              {{1, 2, 3, 1}}}) {
      Chart chart;
      chart.x.scale = chart.y.scale = scale;
      chart.series = {{.name = "<&\"'>", .points = points}};
      const std::string svg = to_svg(chart);
      Elements elements;
      ASSERT_NO_THROW(elements = read_xml(svg)) << svg;
      const bool shown = std::any_of(points.begin(), points.end(), [&](const Point& p) {
        return can_show(scale, p.x) && can_show(scale, p.y);
      });
      EXPECT_EQ(has_text(elements, "no data"), !shown);
      EXPECT_TRUE(has_text(elements, "<&\"'>"));
    }
  }
}

// A histogram of two by two bins.
Chart shares_map() {
  Chart chart;
  chart.x = {.low = 0, .high = 2};
  chart.y = {.low = 0, .high = 2};
  chart.tiles = tiles_of(std::vector<double>{0.75, nan, 0.25, 1}, 2);
  chart.colours = {.label = "share", .low = 0, .high = 1};
  return chart;
}

TEST(HeatMap, TilesLieBetweenTheirEdges) {
  const Elements elements = read_xml(to_svg(shares_map()));
  const Elements boxes = cell_boxes(elements);
  ASSERT_EQ(boxes.size(), 3u);  // one is empty
  const double left = tick_x(elements, "0.0"), right = tick_x(elements, "2.0");
  const double bottom = tick_y(elements, "0.0"), top = tick_y(elements, "2.0");
  EXPECT_NEAR(boxes[0].number("x"), left, print_error);
  EXPECT_NEAR(boxes[0].number("y"), (top + bottom) / 2, 2 * print_error);
  EXPECT_NEAR(boxes[0].number("width"), (right - left) / 2, 2 * print_error);
  EXPECT_NEAR(boxes[2].number("x"), (left + right) / 2, 2 * print_error);
  EXPECT_NEAR(boxes[2].number("y"), top, print_error);
  EXPECT_NEAR(boxes[2].number("height"), (bottom - top) / 2, 2 * print_error);
  EXPECT_TRUE(boxes[0].has("fill", heat_colour(0.75)));
  EXPECT_TRUE(boxes[1].has("fill", heat_colour(0.25)));
  EXPECT_TRUE(boxes[2].has("fill", heat_colour(1)));
}

TEST(HeatMap, PrintsWordsWhereTheyFit) {
  Chart map;
  map.x.names = {"1", "2"};
  map.y.names = {"first", "second"};
  map.tiles = tiles_of(std::vector<double>{0.8, 0.257, nan, 0.1}, 2);
  map.colours.emplace();
  for (Tile& tile : map.tiles) tile.words = fixed(tile.value, 3);
  Elements elements = read_xml(to_svg(map));
  EXPECT_TRUE(has_text(elements, "0.800"));
  EXPECT_TRUE(has_text(elements, "0.257"));
  // The first row is on top.
  EXPECT_LT(tick_y(elements, "first"), tick_y(elements, "second"));
  const Elements boxes = cell_boxes(elements);
  ASSERT_EQ(boxes.size(), 3u);
  EXPECT_LT(boxes[0].number("y"), tick_y(elements, "first"));
  map.x.names.assign(60, "1");
  map.tiles = tiles_of(std::vector<double>(120, 0.5), 60);
  for (Tile& tile : map.tiles) tile.words = "0.500";
  EXPECT_FALSE(has_text(read_xml(to_svg(map)), "0.500"));
}

TEST(HeatMap, EmptyAndEqual) {
  Chart map = shares_map();
  map.tiles.clear();
  EXPECT_TRUE(has_text(read_xml(to_svg(map)), "no data"));
  EXPECT_TRUE(has_text(read_xml(to_svg(Chart{})), "no data"));
  map.tiles = tiles_of(std::vector<double>(4, 7.0), 2);
  EXPECT_EQ(cell_boxes(read_xml(to_svg(map))).size(), 4u);
}

// Tiles of a colour of their own lie beside those of the scale, and the legend names them.
TEST(HeatMap, TilesMayHaveColoursOfTheirOwn) {
  Chart map = shares_map();
  map.tiles.push_back({1, 2, 0, 1, nan, "#0072b2", "", "left out"});
  map.legend = {{"gone", {}, "#0072b2"}};
  const Elements elements = read_xml(to_svg(map));
  const Elements boxes = cell_boxes(elements);
  ASSERT_EQ(boxes.size(), 4u);
  EXPECT_TRUE(boxes[3].has("fill", "#0072b2"));
  EXPECT_TRUE(has_text(elements, "gone"));
}

TEST(XmlReader, RefusesWhatIsNotWellFormed) {
  EXPECT_EQ(read_xml("<a b=\"&lt;\"><c/>x&amp;y</a>").at(0).text, "x&y");
  for (const char* wrong :
       {"<a>", "<a></b>", "<a b=c/>", "<a b=\"<\"/>", "<a>&</a>", "<a/><b/>",
        "<a b=\"1\" b=\"2\"/>", "<a b=\"1\"c=\"2\"/>", "<a>\xff</a>", "<a>&nbsp;</a>"}) {
    EXPECT_THROW(read_xml(wrong), std::runtime_error) << wrong;
  }
}

}  // namespace
}  // namespace coppice::study
