"""How our pages look, and how their tables are sorted: inside every page, since a page loads nothing."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #5f6771; --line: #d8dde3; --paper: #fff; --tint: #f3f5f8;
  --curve: #0b6bcb; --other: #9a5b00; --right: #1a7f37; --wrong: #c4202b }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --faint: #a0aab5; --line: #343b44; --paper: #14171b; --tint: #1d2228;
    --curve: #6cb2ff; --other: #f0b35b; --right: #57d37f; --wrong: #ff8080 }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 74rem; padding: 1rem; font: 16px/1.45 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); overflow-wrap: anywhere }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } h3 { font-size: 1rem; margin-top: 1.5rem }
p { color: var(--faint) } p.warning { color: var(--ink); border-left: 4px solid var(--other); padding-left: .75rem }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0 }
dt { color: var(--faint); font-size: .85rem } dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem;
  margin-bottom: 1.25rem }
figure { margin: 0; min-width: 0 } figcaption { color: var(--faint); font-size: .9rem }
img { max-width: 100%; height: auto } svg { width: 100%; height: auto }
svg line { stroke: var(--line) } svg text { fill: var(--faint); font-size: 11px }
svg polyline { fill: none; stroke: var(--curve); stroke-width: 1.5 } svg circle { fill: var(--curve) }
.example { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding-bottom: .75rem;
  border-bottom: 1px solid var(--line) }
.example figure { width: 6rem }
.example img { display: block; width: 6rem; height: 6rem; border: 3px solid var(--line) }
.example .right img { border: 3px solid var(--right) } .example .wrong img { border: 3px dashed var(--wrong) }
.example figcaption { font-size: .8rem; line-height: 1.3 }
svg .zero { stroke: var(--faint); stroke-dasharray: 3 3 } svg .interval { stroke: var(--curve); stroke-width: 2 }
svg .name { fill: var(--ink); font-size: 12px } svg .open { fill: var(--paper); stroke: var(--curve); stroke-width: 2 }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; font-size: .85rem;
  overflow-wrap: normal }
.scroll { overflow-x: auto; margin: .35rem 0 1.25rem; border: 1px solid var(--line); border-radius: .4rem }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal }
th, td { padding: .4rem .75rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line) }
tr > :first-child { position: sticky; left: 0; min-width: 8.5rem; max-width: 20rem; background: var(--paper);
  overflow-wrap: anywhere }
thead th, thead th:first-child { border-top: 0; font-weight: 600; vertical-align: bottom; background: var(--tint) }
.number { text-align: right; white-space: nowrap } th.number { white-space: normal }
td small { display: block; color: var(--faint); font-size: .8rem }
.apart { background: var(--tint); font-style: italic } th.apart { min-width: 7rem }
th button { all: unset; cursor: pointer }
th button:focus-visible { outline: 2px solid var(--curve); outline-offset: 2px }
th button::after { content: "\\a0↕"; color: var(--faint); font-style: normal }
th[aria-sort=ascending] button::after { content: "\\a0↑"; color: var(--ink) }
th[aria-sort=descending] button::after { content: "\\a0↓"; color: var(--ink) }
"""

# Numbers start with the largest, words with A; cells without a number stay at the end.
SORT = """
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.closest("th"), body = head.closest("table").tBodies[0];
  const number = head.classList.contains("number"), last = head.getAttribute("aria-sort");
  const order = last ? (last === "ascending" ? "descending" : "ascending") : (number ? "descending" : "ascending");
  const sign = order === "ascending" ? 1 : -1, cell = row => row.cells[head.cellIndex];
  const value = row => cell(row).dataset.value, missing = row => number && value(row) === undefined;
  const compare = (a, b) => number ? value(a) - value(b)
    : cell(a).textContent.localeCompare(cell(b).textContent, undefined, {numeric: true});
  const rows = [...body.rows].sort((a, b) =>
    missing(a) || missing(b) ? missing(a) - missing(b) : sign * compare(a, b));
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  body.append(...rows);
});
"""
