"""A training of a second; and results to report, made up: scores drawn at random, and their run folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.evaluation.methods import expand, parse_method
from sumpool.evaluation.results import MethodResult
from sumpool.training.config import TrainConfig, to_yaml

METRICS = ("p@1", "p@r", "map@r")
NASTY = ["=HYPERLINK(1)", "<script>alert(1)</script>", "50%_of\\x {a} & b|c #1 ~^$", "long" * 40, "two\nlines"]
# A training of a second.
SMALL: dict[str, Any] = {
    "data_settings": {"per_class": 4, "classes": 15},
    "backbone": "tiny",
    "pooling": "gap",
    "dim": 8,
    "loss": "contrastive",
    "augment": "none",
    "classes_per_batch": 2,
    "images_per_class": 2,
    "steps": 2,
    "validate_every": 2,
    "device": "cpu",
}


def made_up(
    folder: Path,
    method: str = "C2",
    name: str | None = None,
    *,
    protocol: str = "fair",
    dataset: str = "cub",
    folds: int = 4,
    repeats: int = 2,
    level: float = 0.5,
    queries: int = 40,
    given: dict[str, Any] | None = None,
) -> MethodResult:
    """A method whose per-query scores lie around `level`, with its run folders."""
    rng = np.random.default_rng(len(method) + int(1000 * level))
    rows = [f"f{fold}r{repeat}" for fold in range(folds) for repeat in range(repeats)]
    runs = [
        _run(folder / f"{method}_{protocol}_{dataset}_{level}" / row, method, protocol, dataset, given or {})
        for row in rows
    ]
    single = {metric: _scores(rng, level, folds, repeats, queries) for metric in METRICS}
    ensemble = {metric: _scores(rng, level + 0.1, folds, repeats, queries) for metric in METRICS}
    return MethodResult(
        method=name or method,
        protocol=protocol,
        dataset=dataset,
        dim=TrainConfig.from_dict(expand(parse_method(method), protocol, {"dataset": dataset, **(given or {})})).dim,
        single=single,
        ensemble=ensemble if folds > 1 else None,
        labels=np.arange(queries) % 8,
        raw=[
            {"fold": 0, "repeat": repeat, "metric": metric, "value": level + repeat / 100}
            for repeat in range(repeats)
            for metric in METRICS
        ],
        runs=runs,
        selected_on_test=protocol == "conventional",
    )


def _scores(rng: np.random.Generator, level: float, folds: int, repeats: int, queries: int) -> Any:
    return level + 0.02 * rng.standard_normal((repeats,) * folds + (1,)) + 0.1 * rng.standard_normal(queries)


def _run(folder: Path, method: str, protocol: str, dataset: str, given: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    config = TrainConfig.from_dict(expand(parse_method(method), protocol, {"dataset": dataset, **given}))
    (folder / "config.yaml").write_text(to_yaml(config))
    entries = [{"step": step, config.score: step / 1000, "best": step / 1000} for step in (100, 200, 300)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder
