#include "study/figures/table_script.h"

namespace coppice::study {

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

}  // namespace coppice::study
