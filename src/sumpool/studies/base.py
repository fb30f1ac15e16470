"""What all studies share: how they are called, and what they leave behind.

A study is a function `study(call) -> Outcome` in a file of its own, with the command, the claim of the text, the
setting and what was measured at the head of that file. `run_study` calls it and writes, next to the study's figures,

results.json   the numbers: per method `{"map@r": {"mean": …, "ci95": [low, high]}, …}` and `"difference"`, of the two
               methods that the claim is about, likewise; `"differences"` where more are compared
README.md      one page: the head of the file, the result, the verdict, command and duration
"""

import inspect
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from sumpool.errors import InputError
from sumpool.evaluation.tally import spell
from sumpool.registry import lookup

SCALES = ("smoke", "cpu", "paper")
Verdict: TypeAlias = Literal["reproduced", "partly reproduced", "not reproduced"]


@dataclass(frozen=True)
class Call:
    """How a study is called: its size, where it writes, where data lies, and how many trainings run side by side."""

    scale: str
    out: Path
    data_root: str | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        lookup("scale", dict.fromkeys(SCALES), self.scale)
        if self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")

    @property
    def work(self) -> Path:
        """Folder of the trainings, which a second call continues; not among the pages, except for a smoke run."""
        return (self.out if self.scale == "smoke" else Path("out") / self.out.name / self.scale) / "runs"

    def pick(self, smoke: Any, cpu: Any, paper: Any) -> Any:
        """What belongs to the scale."""
        return {"smoke": smoke, "cpu": cpu, "paper": paper}[self.scale]


class Outcome(NamedTuple):
    """What a study found: numbers, a page body in Markdown (tables, figures), and how that compares with the claim."""

    results: dict[str, Any]
    body: str
    verdict: Verdict
    reason: str


Study: TypeAlias = Callable[[Call], Outcome]


def run_study(study: Study, call: Call) -> Outcome:
    """Run a study; write its numbers and its page."""
    call.out.mkdir(parents=True, exist_ok=True)
    with timed(call.work / "seconds.txt") as clock:
        outcome = study(call)
    seconds = float(clock.read_text())
    about = {"scale": call.scale, "seconds": round(seconds), "verdict": outcome.verdict, "reason": outcome.reason}
    text = json.dumps({**outcome.results, **about}, indent=1, ensure_ascii=False, allow_nan=False)
    (call.out / "results.json").write_text(text + "\n")
    (call.out / "README.md").write_text(page(study, call.scale, outcome, seconds))
    return outcome


@contextmanager
def timed(clock: Path) -> Iterator[Path]:
    """Add the time spent inside to a file: a study that was interrupted and continued took both times."""
    before, started = float(clock.read_text()) if clock.exists() else 0.0, time.perf_counter()
    try:
        yield clock
    finally:
        clock.parent.mkdir(parents=True, exist_ok=True)
        clock.write_text(f"{before + time.perf_counter() - started:.1f}")


def page(study: Study, scale: str, outcome: Outcome, seconds: float) -> str:
    """The page of a study: what its file says at the head, then what this run found."""
    title, _, head = inspect.cleandoc(inspect.getmodule(study).__doc__ or "").partition("\n")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, PyTorch {torch.__version__.split('+')[0]}"
    return f"""# {title}

{head.strip()}

## Result at scale `{scale}`

{outcome.body.strip()}

**Verdict: {outcome.verdict}.** {outcome.reason}

It took {spell(seconds)} ({machine}); its numbers are in [results.json](results.json).
"""


def overview(folder: Path) -> str:
    """A page over the studies in a folder: what each found, how it compares with the claim, and how long it took."""
    rows = []
    for path in sorted(folder.glob("*/results.json")):
        found, name = json.loads(path.read_text()), path.parent.name
        entry = {"study": f"[{name}]({name}/README.md)", "verdict": found["verdict"], "found": found["reason"]}
        rows.append({**entry, "scale": found["scale"], "took": spell(found["seconds"])})
    return f"# Studies\n\n{markdown_table(rows)}\n"


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of one form as a Markdown table.

    >>> print(markdown_table([{"method": "GAP", "map@r": 0.25}]))
    | method | map@r |
    |---|---|
    | GAP | 0.25 |
    """
    lines = [list(rows[0]), ["---"] * len(rows[0]), *[[str(value) for value in row.values()] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines)
