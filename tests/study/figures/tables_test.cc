// Tables in their forms, and the report page.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "study/figures/chart.h"
#include "study/figures/report_page.h"
#include "study/figures/table.h"
#include "study/figures/xml_reader.h"

namespace coppice::study {
namespace {

using test::read_xml;
using test::XmlElement;

Table awkward_table() {
  return {{{"policy", Align::left}, {"tokens/s"}},
          {{"chain, \"best\"", "916"}, {"naïve | a\nb", "1.5"}, {"<b>&"}}};
}

// What RFC 4180 says a reader makes of a file, lines ending with LF.
std::vector<std::vector<std::string>> parse_csv(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string cell;
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    if (quoted) {
      if (c != '"') {
        cell += c;
      } else if (i + 1 < csv.size() && csv[i + 1] == '"') {
        cell += '"';
        ++i;
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      EXPECT_TRUE(cell.empty()) << "a quote inside an unquoted cell";
      quoted = true;
    } else if (c == ',' || c == '\n') {
      row.push_back(cell);
      cell.clear();
      if (c == '\n') {
        rows.push_back(row);
        row.clear();
      }
    } else {
      cell += c;
    }
  }
  EXPECT_FALSE(quoted);
  EXPECT_TRUE(row.empty() && cell.empty()) << "no line end at the end";
  return rows;
}

TEST(Table, CsvComesBackAsItWas) {
  const Table table = awkward_table();
  const auto rows = parse_csv(to_csv(table));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"policy", "tokens/s"}));
  EXPECT_EQ(rows[1], table.rows[0]);
  EXPECT_EQ(rows[2], table.rows[1]);
  EXPECT_EQ(rows[3], (std::vector<std::string>{"<b>&", ""}));
}

TEST(Table, CsvQuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(to_csv({{{"a"}, {"b"}}, {{"x y", "1,5"}, {"\"", "\r"}}}),
            "a,b\nx y,\"1,5\"\n\"\"\"\", \n");
}

// A spreadsheet would run it, or split it.
TEST(Table, CsvCellsAreNoFormulas) {
  EXPECT_EQ(to_csv({{{"=a"}, {"b"}},
                    {{"-1.5", "+2e3"},
                     {"=HYPERLINK(\"x\")", "@sum"},
                     {"-1+cmd", "+x"},
                     {std::string("a\0\x1b[31m\tb\x7f", 10), "-"}}}),
            "'=a,b\n-1.5,+2e3\n\"'=HYPERLINK(\"\"x\"\")\",'@sum\n'-1+cmd,'+x\na  [31m b ,'-\n");
}

TEST(Table, TextIsAligned) {
  EXPECT_EQ(
      to_text({{{"policy", Align::left}, {"tokens/s"}}, {{"naïve", "9"}, {"a\tb", "1000"}, {}}}),
      "policy  tokens/s\n"
      "------  --------\n"
      "naïve          9\n"
      "a b         1000\n"
      "\n");
}

TEST(Table, HtmlIsEscapedAndAligned) {
  const auto elements = read_xml(to_html(awkward_table()));
  std::vector<std::string> cells;
  for (const XmlElement& e : elements) {
    if (e.name != "td" && e.name != "th") continue;
    EXPECT_EQ(e.has("class", "number"), cells.size() % 2 == 1) << e.text;
    cells.push_back(e.text);
  }
  EXPECT_EQ(cells, (std::vector<std::string>{"policy", "tokens/s", "chain, \"best\"", "916",
                                             "naïve | a\nb", "1.5", "<b>&", ""}));
}

TEST(Table, LatexIsEscapedAndAligned) {
  const Table table = {{{"policy", Align::left}, {"share %"}},
                       {{"a_b & {c}", "-0.5 [-0.6, 0.1]"}, {"[x] <1> ~\\^#$", "1"}, {"*"}}};
  // Runs of blanks align the source and mean one.
  std::string latex = to_latex(table);
  latex.erase(
      std::unique(latex.begin(), latex.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      latex.end());
  EXPECT_EQ(latex, R"(\begin{tabular}{@{}lr@{}}
\toprule
policy & share \% \\
\midrule
a\_b \& \{c\} & $-$0.5 [$-$0.6, 0.1] \\
{[}x] $<$1$>$ \textasciitilde{}\textbackslash{}\textasciicircum{}\#\$ & 1 \\
{*} & \\
\bottomrule
\end{tabular}
)");
}

TEST(Table, RefusesCellsWithoutColumn) {
  const Table table = {{{"a"}}, {{"1"}, {"1", "2"}}};
  for (auto* form : {&to_text, &to_csv, &to_latex}) EXPECT_THROW((*form)(table), Error);
  EXPECT_THROW(static_cast<void>(to_html(table)), Error);
}

TEST(Table, NoRowsAndNoColumns) {
  EXPECT_EQ(to_csv({{{"a"}}, {}}), "a\n");
  EXPECT_EQ(to_text({{{"a"}}, {}}), "a\n-\n");
  EXPECT_NO_THROW(read_xml(to_html(Table{})));
}

// What a narrow window needs: which cells head a row, their names, and how many others there are.
TEST(Table, HeadsOfRowsStackInNarrowWindows) {
  const Table table = {{{"policy", Align::left, true}, {"tree", Align::right, true}, {"speed"}},
                       {{"a<b", "16", "1.50 [1.2, 1.8] *"}}};
  const auto elements = read_xml(to_html(table));
  const XmlElement& outer = elements.at(0);
  EXPECT_TRUE(outer.has("class", "stacks"));
  EXPECT_TRUE(outer.has("style", "--columns: 1"));
  std::vector<XmlElement> cells, spans;
  for (const XmlElement& e : elements) {
    if (e.name == "td") cells.push_back(e);
    if (e.name == "span") spans.push_back(e);
  }
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_TRUE(cells[0].has("class", "head") && !cells[0].attributes.contains("data-name"));
  EXPECT_TRUE(cells[1].has("class", "head number") && cells[1].has("data-name", "tree"));
  EXPECT_TRUE(cells[2].has("class", "number") && !cells[2].attributes.contains("data-name"));
  ASSERT_EQ(spans.size(), 1u) << "an interval is not broken";
  EXPECT_EQ(spans[0].text, "[1.2, 1.8] *");
  EXPECT_EQ(cells[2].text, "1.50 ");
  EXPECT_FALSE(read_xml(to_html(awkward_table())).at(0).attributes.contains("class"));
}

ReportPage sample_page() {
  Chart chart;
  chart.series = {{.name = "dyspec", .points = {{4, 2}, {8, 3}}}};
  const Figure figure = {"a", to_svg(chart), "A & B"};
  return {.title = "Study <1>",
          .intro = {"<script>alert(1)</script>"},
          .facts = {{"target", "a\"b"}},
          .sections = {{"One", {figure, figure}},
                       {"Two", {}, {{"all", "All", awkward_table()}}},
                       {"Three", {figure}}}};
}

TEST(ReportPage, IsWellFormedAndEscaped) {
  const auto elements = read_xml(to_html(sample_page()));
  const auto count = [&](const std::string& name) {
    return std::count_if(elements.begin(), elements.end(),
                         [&](const XmlElement& e) { return e.name == name; });
  };
  EXPECT_EQ(count("script"), 0);
  EXPECT_EQ(count("figure"), 4);
  EXPECT_EQ(count("section"), 3);
  for (const XmlElement& e : elements) {
    if (e.name == "h1" || e.name == "title") {
      // Tooltips of figures are titles too.
      EXPECT_TRUE(e.text == "Study <1>" || e.depth > 3) << e.text;
    }
  }
}

TEST(ReportPage, NumbersFiguresAndTablesThrough) {
  std::vector<std::string> captions;
  const auto elements = read_xml(to_html(sample_page()));
  for (std::size_t i = 0; i + 1 < elements.size(); ++i) {
    if (elements[i].name == "figcaption") {
      captions.push_back(elements[i + 1].text + elements[i].text);
    }
  }
  EXPECT_EQ(captions, (std::vector<std::string>{"Figure 1. A & B", "Figure 2. A & B",
                                                "Table 1. All", "Figure 3. A & B"}));
}

TEST(ReportPage, VerdictStandsAboveAll) {
  ReportPage page = sample_page();
  page.verdict = {"a < b", "second"};
  const std::string html = to_html(page);
  EXPECT_LT(html.find("<p>a &lt; b</p>"), html.find("<p>second</p>"));
  EXPECT_LT(html.find("<p>second</p>"), html.find("alert(1)"));
  EXPECT_EQ(to_html(sample_page()).find("class=\"verdict\""), std::string::npos);
}

/// The rules between the braces behind `condition`.
std::string rules_of(const std::string& page, const std::string& condition) {
  const auto begin = page.find(condition);
  if (begin == page.npos) return {};
  std::size_t end = page.find('{', begin), open = 0;
  do {
    open += page[end] == '{' ? 1 : 0;
    open -= page[end] == '}' ? 1 : 0;
  } while (++end < page.size() && open > 0);
  return page.substr(begin, end - begin);
}

// What browsers made of it was looked at; here it is kept.
TEST(ReportPage, PrintsWholeAndSuitsDarkAndNarrowWindows) {
  const std::string page = to_html(sample_page());
  const std::string print = rules_of(page, "@media print");
  EXPECT_NE(print.find("h1, h2, .tabular > figcaption, summary, thead { break-after: avoid; }"),
            std::string::npos)
      << print;
  EXPECT_NE(print.find("details::details-content { content-visibility: visible;"),
            std::string::npos);
  EXPECT_NE(print.find("figure:not(.long), tr { break-inside: avoid; }"), std::string::npos);
  EXPECT_NE(rules_of(page, "@media screen and (max-width").find(".stacks tr { display: flex;"),
            std::string::npos);
  const std::string dark = rules_of(page, "@media screen and (prefers-color-scheme: dark)");
  for (const char* name : {"--paper", "--ink", "--soft", "--rule", "--band"}) {
    EXPECT_NE(dark.find(name), std::string::npos) << name;
  }
}

TEST(ReportPage, LongTablesFold) {
  ReportPage page;
  CaptionedTable table{"all", "All", {{{"a"}}, {}}, {"tables/all.csv", "tables/all.tex"}};
  table.table.rows.assign(longest_open_table, {"1"});
  page.sections = {{"One", {}, {table}}};
  table.table.rows.emplace_back();
  page.sections.push_back({"Two", {}, {table}});
  const auto elements = read_xml(to_html(page));
  std::vector<std::string> folds, links;
  for (const XmlElement& e : elements) {
    if (e.name == "details") folds.push_back(e.attributes.contains("open") ? "open" : "closed");
    if (e.name == "summary") folds.push_back(e.text);
    if (e.name == "a") links.push_back(e.attributes.at("href") + " " + e.text);
  }
  EXPECT_EQ(folds, (std::vector<std::string>{"closed", " All ,  (17 rows)"}));
  EXPECT_EQ(links, (std::vector<std::string>{"tables/all.csv csv", "tables/all.tex tex",
                                             "tables/all.csv csv", "tables/all.tex tex"}));
}

TEST(ReportPage, LoadsNothingAndRepeatsNoId) {
  const auto elements = read_xml(to_html(sample_page()));
  std::vector<std::string> ids, links;
  for (const XmlElement& e : elements) {
    EXPECT_FALSE(e.attributes.contains("src") || e.name == "link" || e.name == "image") << e.name;
    if (e.attributes.contains("id")) ids.push_back(e.attributes.at("id"));
    if (e.attributes.contains("href")) links.push_back(e.attributes.at("href"));
    if (e.name == "style") {
      EXPECT_EQ(e.text.find("url("), std::string::npos);
      EXPECT_EQ(e.text.find("@import"), std::string::npos);
    }
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  ASSERT_EQ(links.size(), 3u);
  for (const std::string& link : links) {
    EXPECT_EQ(link.front(), '#');
    EXPECT_TRUE(std::binary_search(ids.begin(), ids.end(), link.substr(1))) << link;
  }
}

}  // namespace
}  // namespace coppice::study
