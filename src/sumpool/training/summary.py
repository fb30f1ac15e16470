"""A run on one page: best scores, curves and configuration, in a file that needs nothing besides itself."""

from collections.abc import Sequence
from html import escape
from typing import Any

from sumpool.training.curves import curve

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #68707a; --line: #d8dde3; --paper: #fff; --curve: #0b6bcb }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --faint: #98a2ad; --line: #343b44; --paper: #14171b; --curve: #6cb2ff }
}
body { margin: 0 auto; max-width: 74rem; padding: 1rem; font: 16px/1.45 system-ui, sans-serif;
  color: var(--ink); background: var(--paper) }
h1 { font-size: 1.4rem; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin-top: 2rem }
p { color: var(--faint) }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0 }
dt { color: var(--faint); font-size: .85rem } dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums }
section { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0 } figcaption { color: var(--faint); font-size: .9rem } svg { width: 100%; height: auto }
svg line { stroke: var(--line) } svg text { fill: var(--faint); font-size: 11px }
svg polyline { fill: none; stroke: var(--curve); stroke-width: 1.5 } svg circle { fill: var(--curve) }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; font-size: .85rem }
"""


def summary_page(name: str, score: str, entries: Sequence[dict[str, Any]], config: str, environment: str) -> str:
    """The page of a run; `score` names the metric that selects the model, `config` and `environment` are shown."""
    improved = [entry for entry in entries if score in entry and entry[score] == entry["best"]]
    best = improved[-1] if improved else {}
    names = list(dict.fromkeys(key for entry in entries for key in entry if key not in ("step", "best")))
    numbers = [key for key in names if any(isinstance(entry.get(key), int | float) for entry in entries)]
    # The score first, then the other metrics, then what the training logged.
    numbers.sort(key=lambda key: (key != score, "@" not in key))
    figures = [
        curve(key, [(entry["step"], entry[key]) for entry in entries if key in entry], best.get("step"))
        for key in numbers
    ]
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(name)}</title>
<style>{STYLE}</style>
<h1>{escape(name)}</h1>
<p>{_status(entries, best, score)}</p>
<dl>{"".join(_score(key, best[key]) for key in numbers if "@" in key and key in best)}</dl>
<h2>Curves over the steps</h2>
<section>{"".join(figures)}</section>
<h2>Configuration</h2>
<pre>{escape(config)}</pre>
<details><summary>Environment</summary><pre>{escape(environment)}</pre></details>
</html>
"""


def _status(entries: Sequence[dict[str, Any]], best: dict[str, Any], score: str) -> str:
    if not best:
        return "Not validated yet."
    return f"Best {escape(score)} at step {best['step']}; last validation at step {entries[-1]['step']}."


def _score(name: str, value: float) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{value:.4f}</dd></div>"
