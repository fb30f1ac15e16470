"""A run on one page: best scores, curves and configuration, in a file that needs nothing besides itself."""

from collections.abc import Sequence
from html import escape
from typing import Any

import yaml

from sumpool.training.curves import curve
from sumpool.training.page import page

WARNING = (
    "Models were selected on the test set: these scores are too good, and only comparable with others of their kind."
)


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
    scores = "".join(_score(key, best[key]) for key in numbers if "@" in key and key in best)
    flattered = (yaml.safe_load(config) or {}).get("validate_on") == "test"
    sections = [
        *([f'<p class="warning">{WARNING}</p>'] if flattered else []),
        f"<p>{_status(entries, best, score)}</p>",
        f"<dl>{scores}</dl>",
        f'<h2>Curves over the steps</h2>\n<div class="grid">{"".join(figures)}</div>',
        f"<h2>Configuration</h2>\n<pre>{escape(config)}</pre>",
        f"<details><summary>Environment</summary><pre>{escape(environment)}</pre></details>",
    ]
    return page(name, sections)


def _status(entries: Sequence[dict[str, Any]], best: dict[str, Any], score: str) -> str:
    if not best:
        return "Not validated yet."
    return f"Best {escape(score)} at step {best['step']}; last validation at step {entries[-1]['step']}."


def _score(name: str, value: float) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{value:.4f}</dd></div>"
