#include "study/figures/report_page.h"

#include <cstddef>
#include <string_view>

#include "study/figures/style.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5a5a5a; --paper: #fff; --rule: #d4d4d4;
        --band: #f6f6f6; --link: #0b5394; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a8a8a8; --paper: #16181b; --rule: #3b3f45; --band: #1e2125;
          --link: #8ab8ee; }
}
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 73rem; color: var(--ink);
       background: var(--paper); font: 1rem/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem;
     border-bottom: 1px solid var(--rule); }
h1, h2, p, dd, figcaption, summary { overflow-wrap: anywhere; }
p { margin: 0 0 .9rem; max-width: 46rem; }
a { color: var(--link); }
nav ol { margin: 1rem 0; padding-left: 1.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: 1.25rem 0;
     font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; white-space: pre-wrap; }
figure { margin: 1.5rem 0 2rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 33rem), 1fr));
           gap: 1.5rem; margin: 1.5rem 0 2rem; align-items: start; }
.figures > figure { margin: 0; min-width: 0; }
.picture > svg { display: block; max-width: 100%; height: auto; }
figcaption, summary { font-size: .9rem; color: var(--soft); max-width: 46rem; }
figcaption { margin-top: .5rem; }
figcaption b, summary b { color: var(--ink); }
.tabular > figcaption { margin: 0 0 .5rem; }
.files { white-space: nowrap; }
summary { cursor: pointer; margin: 0 0 .5rem; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
thead { border-top: 1.5px solid var(--ink); border-bottom: 1px solid var(--ink); }
tbody { border-bottom: 1.5px solid var(--ink); }
th, td { padding: .25rem .5rem; text-align: left; vertical-align: top; }
th { font-weight: 600; vertical-align: bottom; }
td { white-space: nowrap; }
.number { text-align: right; }
th button { all: unset; cursor: pointer; text-align: inherit; }
th button:hover { text-decoration: underline; }
th button:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link);
                                                                  outline-offset: 2px; }
th[aria-sort="ascending"] button::after { content: " \25b2"; }
th[aria-sort="descending"] button::after { content: " \25bc"; }
tbody tr { background: var(--paper); }
tbody tr:nth-child(even) { background: var(--band); }
th:first-child, td:first-child { position: sticky; left: 0; background: inherit; }
thead tr { background: var(--paper); }
@media print {
  :root { --ink: #000; --soft: #333; --paper: #fff; --rule: #bbb; --band: #fff; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2, .tabular > figcaption { break-after: avoid; }
  figure:not(.tabular), tr { break-inside: avoid; }
  .figures { display: block; margin-top: 0; }
  .figures > figure { display: inline-block; width: 100%; margin: 0 0 1.25rem; }
  .figures > figure .picture { max-width: 30rem; }
  thead { display: table-header-group; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: .15rem .3rem; }
  td { white-space: normal; }
}
)";

std::string paragraph(const std::string& text) { return "<p>" + escape_markup(text) + "</p>\n"; }

// Figures and tables are numbered in the order in which they are written.
class Writer {
 public:
  std::string write(const ReportPage& page);

 private:
  void write_block(const Figure& block) {
    out_ += "<figure>\n<div class=\"picture\">" + block.svg + "</div>\n<figcaption>" +
            caption("Figure", ++figures_, block.caption) + "</figcaption>\n</figure>\n";
  }
  void write_block(const CaptionedTable& block) {
    const std::string words = caption("Table", ++tables_, block.caption) + links(block.files);
    const std::string table = "<div class=\"scroll\">" + to_html(block.table) + "</div>\n";
    out_ += "<figure class=\"tabular\">\n";
    if (block.table.rows.size() > longest_open_table) {
      out_ += "<details>\n<summary>" + words + " (" + std::to_string(block.table.rows.size()) +
              " rows)</summary>\n" + table + "</details>\n";
    } else {
      out_ += "<figcaption>" + words + "</figcaption>\n" + table;
    }
    out_ += "</figure>\n";
  }
  static std::string caption(const char* kind, int number, const std::string& text) {
    return "<b>" + std::string(kind) + " " + std::to_string(number) + ".</b> " +
           escape_markup(text);
  }
  static std::string links(const std::vector<std::string>& files) {
    std::string out;
    for (const std::string& file : files) {
      out += (out.empty() ? " <span class=\"files\">" : ", ") + std::string("<a href=\"") +
             escape_markup(file) + "\">" + escape_markup(file.substr(file.rfind('.') + 1)) + "</a>";
    }
    return out.empty() ? out : out + "</span>";
  }
  void write_blocks(const std::vector<Block>& blocks);
  void write_contents(const std::vector<Section>& sections);

  std::string out_;
  int figures_ = 0;
  int tables_ = 0;
};

void Writer::write_contents(const std::vector<Section>& sections) {
  if (sections.size() < 3) return;
  out_ += "<nav aria-label=\"Contents\">\n<ol>\n";
  for (std::size_t i = 0; i < sections.size(); ++i) {
    out_ += "<li><a href=\"#section-" + std::to_string(i + 1) + "\">" +
            escape_markup(sections[i].heading) + "</a></li>\n";
  }
  out_ += "</ol>\n</nav>\n";
}

// Figures that follow each other stand side by side where there is room.
void Writer::write_blocks(const std::vector<Block>& blocks) {
  bool in_figures = false;
  for (const Block& block : blocks) {
    const bool is_figure = std::holds_alternative<Figure>(block);
    if (is_figure && !in_figures) out_ += "<div class=\"figures\">\n";
    if (!is_figure && in_figures) out_ += "</div>\n";
    in_figures = is_figure;
    std::visit([&](const auto& content) { write_block(content); }, block);
  }
  if (in_figures) out_ += "</div>\n";
}

std::string Writer::write(const ReportPage& page) {
  const std::string title = escape_markup(page.title);
  // The policy lets a browser enforce that nothing is loaded and no other script runs.
  out_ =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src '" +
      std::string(table_script_hash) + "'\"/>\n<title>" + title + "</title>\n<style>" +
      std::string(style_sheet) + dark_rules() + "</style>\n</head>\n<body>\n<main>\n<h1>" + title +
      "</h1>\n";
  for (const std::string& text : page.intro) out_ += paragraph(text);
  if (!page.facts.empty()) {
    out_ += "<dl>\n";
    for (const auto& [name, value] : page.facts) {
      out_ += "<dt>" + escape_markup(name) + "</dt><dd>" + escape_markup(value) + "</dd>\n";
    }
    out_ += "</dl>\n";
  }
  write_contents(page.sections);
  for (std::size_t i = 0; i < page.sections.size(); ++i) {
    out_ += "<section id=\"section-" + std::to_string(i + 1) + "\">\n<h2>" +
            escape_markup(page.sections[i].heading) + "</h2>\n";
    write_blocks(page.sections[i].blocks);
    out_ += "</section>\n";
  }
  out_ += "</main>\n";
  if (tables_ > 0) out_ += "<script>" + std::string(table_script) + "</script>\n";
  return out_ + "</body>\n</html>\n";
}

}  // namespace

const std::string_view table_script = R"(
"use strict";
const valueOf = (row, column) => {
  const cell = row.cells[column];
  const text = cell ? cell.textContent.trim() : "";
  const number = parseFloat(text.replace(/^\u003c\s*/, ""));
  return { text, number, empty: text === "" || text === "-" || text === "\u2013" };
};
const compare = (a, b) =>
  Number.isNaN(a.number) - Number.isNaN(b.number) || a.number - b.number ||
  a.text.localeCompare(b.text, "en", { numeric: true });
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const original = Array.from(body.rows);
  const headings = Array.from(table.tHead.rows[0].cells);
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.title = "Sort by this column";
    heading.append(button);
    button.addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      const next = now === "ascending" ? "descending" : now === "descending" ? null : "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      let rows = original;
      if (next) {
        heading.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const keyed = original.map((row) => ({ row, key: valueOf(row, column) }));
        keyed.sort((a, b) => a.key.empty - b.key.empty || sign * compare(a.key, b.key));
        rows = keyed.map((entry) => entry.row);
      }
      body.append(...rows);
    });
  });
}
)";

const std::string_view table_script_hash = "sha256-Si5OWJK6A7m2cmRAFLZzpVQQfO8NUS0Hcknfm68mFVE=";

std::string to_html(const ReportPage& page) { return Writer().write(page); }

}  // namespace coppice::study
