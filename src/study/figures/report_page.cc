#include "study/figures/report_page.h"

#include "base/error.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

// The policy lets a browser enforce that nothing is loaded and no script runs.
constexpr const char* head = R"(<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1b; --soft: #5a5a5a; --rule: #d4d4d4;
        --band: #f6f6f6; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #15171a; --ink: #e3e3e3; --soft: #a5a9ad; --rule: #44484d; --band: #1e2125; }
}
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 73rem; color: var(--ink);
       background: var(--paper);
       font: 1rem/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem;
     border-bottom: 1px solid var(--rule); }
h1, h2, p, dd, figcaption, summary { overflow-wrap: anywhere; }
p { margin: 0 0 .9rem; max-width: 46rem; }
.verdict { margin: 0 0 1.5rem; padding: .1rem 0 .1rem 1rem; border-left: 4px solid var(--rule);
           font-weight: 600; }
.verdict p { margin: .4rem 0; }
nav ol { margin: 1rem 0; padding-left: 1.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: 1.25rem 0;
     font-size: .9rem; }
dt, figcaption, summary { color: var(--soft); }
dd { margin: 0; white-space: pre-wrap; }
figure { margin: 1.5rem 0 2rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 33rem), 1fr));
           gap: 1.5rem; margin: 1.5rem 0 2rem; align-items: start; }
.figures > figure { margin: 0; min-width: 0; }
.picture > svg { display: block; max-width: 100%; height: auto; }
figcaption, summary { font-size: .9rem; max-width: 46rem; margin: .5rem 0; }
figcaption b, summary b { color: var(--ink); }
summary { cursor: pointer; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
thead { border-top: 1.5px solid; border-bottom: 1px solid; }
tbody { border-bottom: 1.5px solid; }
th, td { padding: .25rem .5rem; text-align: left; vertical-align: bottom; }
th { font-weight: 600; }
td > span, td.head { white-space: nowrap; }
.number { text-align: right; }
tr { background: var(--paper); }
tbody tr:nth-child(even) { background: var(--band); }
th:first-child, td:first-child { position: sticky; left: 0; background: inherit; }
@media screen and (max-width: 70rem) {
  .stacks, .stacks thead, .stacks tbody { display: block; }
  .stacks tr { display: flex; flex-wrap: wrap; padding: .2rem 0; }
  .stacks tr::before { content: ""; order: 1; flex: 0 0 100%; }
  .stacks th, .stacks td { order: 2; flex: 0 0 calc((100% - 1px) / var(--columns)); min-width: 0;
                           padding: .1rem .2rem; box-sizing: border-box; position: static;
                           overflow-wrap: break-word; }
  .stacks td > span { display: inline-block; white-space: normal; }
  .stacks th { align-self: flex-end; font-size: .72rem; }
  .stacks .head { order: 0; flex: 0 0 auto; font-weight: 600; }
  .stacks th.head, .stacks .head:empty { display: none; }
  .stacks .head[data-name]::before { content: attr(data-name) " "; color: var(--soft);
                                     font-weight: 400; }
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h1, h2, .tabular > figcaption, summary, thead { break-after: avoid; }
  h2, p, dl > *, figure:not(.long), tr { break-inside: avoid; }
  summary { list-style: none; }
  details::details-content { content-visibility: visible; block-size: auto; opacity: 1; }
  .figures { display: block; }
  .figures > figure { margin: 0 0 1.5rem; }
  .picture > svg { max-width: 30rem; }
  .scroll { overflow: visible; }
  table { font-size: 7pt; line-height: 1.3; max-width: 100%; }
  th, td { padding: .15rem .2rem; }
  th:first-child, td:first-child { position: static; }
  td.head { white-space: normal; }
}
</style>
)";

/// An element of escaped text, and a line's end.
std::string element(const char* name, const std::string& text) {
  return cat("<", name, ">", escape_markup(text), "</", name, ">\n");
}

// Figures and tables are numbered in the order in which they are written.
class Writer {
 public:
  std::string write(const ReportPage& page) {
    std::string out =
        cat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n", head, element("title", page.title),
            "</head>\n<body>\n<main>\n", element("h1", page.title));
    if (!page.verdict.empty()) {
      out += "<div class=\"verdict\">\n";
      for (const std::string& text : page.verdict) out += element("p", text);
      out += "</div>\n";
    }
    for (const std::string& text : page.intro) out += element("p", text);
    if (!page.facts.empty()) {
      out += "<dl>\n";
      for (const auto& [name, value] : page.facts) {
        out += element("dt", name) + element("dd", value);
      }
      out += "</dl>\n";
    }
    std::string contents, sections;
    for (std::size_t i = 0; i < page.sections.size(); ++i) {
      const Section& section = page.sections[i];
      contents += cat("<li><a href=\"#section-", i + 1, "\">", escape_markup(section.heading),
                      "</a></li>\n");
      sections += cat("<section id=\"section-", i + 1, "\">\n", element("h2", section.heading),
                      contents_of(section), "</section>\n");
    }
    if (page.sections.size() > 2) {
      out += cat("<nav aria-label=\"Contents\">\n<ol>\n", contents, "</ol>\n</nav>\n");
    }
    return out + sections + "</main>\n</body>\n</html>\n";
  }

 private:
  std::string contents_of(const Section& section) {
    std::string out;
    if (!section.figures.empty()) out += "<div class=\"figures\">\n";
    for (const Figure& figure : section.figures) out += block(figure);
    if (!section.figures.empty()) out += "</div>\n";
    for (const CaptionedTable& table : section.tables) out += block(table);
    return out;
  }
  std::string block(const Figure& one) {
    return cat("<figure>\n<div class=\"picture\">", one.svg, "</div>\n<figcaption>",
               caption("Figure", ++figures_, one.caption), "</figcaption>\n</figure>\n");
  }
  std::string block(const CaptionedTable& one) {
    const std::string words = caption("Table", ++tables_, one.caption) + links(one.files);
    const std::string table = cat("<div class=\"scroll\">", to_html(one.table), "</div>\n");
    const std::size_t rows = one.table.rows.size();
    const bool folded = rows > longest_open_table;
    return cat("<figure class=\"tabular", folded ? " long" : "", "\">\n",
               folded ? cat("<details>\n<summary>", words, " (", rows, " rows)</summary>\n", table,
                            "</details>\n")
                      : cat("<figcaption>", words, "</figcaption>\n", table),
               "</figure>\n");
  }
  static std::string caption(const char* kind, int number, const std::string& text) {
    return cat("<b>", kind, " ", number, ".</b> ", escape_markup(text));
  }
  static std::string links(const std::vector<std::string>& files) {
    std::string out;
    for (const std::string& file : files) {
      out += cat(out.empty() ? " " : ", ", "<a href=\"", escape_markup(file), "\">",
                 escape_markup(file.substr(file.rfind('.') + 1)), "</a>");
    }
    return out;
  }

  int figures_ = 0, tables_ = 0;
};

}  // namespace

std::string to_html(const ReportPage& page) { return Writer().write(page); }

}  // namespace coppice::study
