"""Results of methods, read from the folder of a protocol or of one training: what tables and reports are made of."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sumpool.data import DATASETS
from sumpool.data.record import Array
from sumpool.errors import InputError
from sumpool.evaluation.protocol import PROTOCOL, Protocol, load_protocol
from sumpool.evaluation.scores import SCORES, Scores, compute_scores, method_scores
from sumpool.evaluation.statistics import collections
from sumpool.evaluation.trial import TEST, Embedded, Part, embed_part, load_embedded
from sumpool.training.config import TrainConfig
from sumpool.training.processes import join
from sumpool.training.run import BEST, CONFIG

ELSEWHERE = ("root", "verify", "in_memory")  # settings of a dataset that say where its images lie, not which they are


@dataclass(frozen=True)
class MethodResult:
    """The scores of one method on one dataset: F folds, R repeats of each, Q queries."""

    method: str
    protocol: str
    dataset: str
    dim: int
    """Length of one model's embedding."""
    single: dict[str, Array]
    """Metric → (R,)*F + (Q,): mean of the F models of a collection."""
    ensemble: dict[str, Array] | None
    """Metric → the same shape: the F models concatenated; None where there is one fold."""
    labels: Array
    """(Q,) class of each query."""
    raw: list[dict[str, Any]]
    """One entry {fold, repeat, metric, value} per training and metric."""
    runs: list[Path]
    """Folders of the trainings, fold after fold."""
    selected_on_test: bool
    """Whether models were selected on the test classes: then the scores are too good."""
    scored_on: Part = "test"
    """Which classes the scores are of: "test", or "validation" when settings are tuned."""
    images: dict[str, Any] = field(default_factory=dict)
    """The settings, without those at their defaults, that decide which images of the dataset are scored."""

    @property
    def choice(self) -> str:
        """Which images of the dataset are scored, for people; empty for the usual ones."""
        return ", ".join(f"{name} {value}" for name, value in sorted(self.images.items()))

    @property
    def ensemble_dim(self) -> int:
        """Length of the concatenated embedding."""
        return self.dim * (next(iter(self.single.values())).ndim - 1)


def load_results(folder: Path) -> list[MethodResult]:
    """The results in the folder of a protocol, in the order of its methods, or of one `sumpool train` run."""
    if (folder / PROTOCOL).exists():
        return _of_protocol(folder, load_protocol(folder))
    if (folder / CONFIG).exists():
        return [_of_run(folder)]
    raise InputError(f"{folder} holds neither a protocol ({PROTOCOL}) nor a training run ({CONFIG})")


def embedded_test(folder: Path) -> Embedded:
    """The test embeddings of a run; computed with its best model if the run is not part of a protocol."""
    if (folder / TEST).exists():
        return load_embedded(folder)
    if not (folder / BEST).exists():
        raise InputError(f"{folder} has no model yet: continue it with sumpool train --resume {folder}")
    config = run_config(folder)
    return embed_part(config, folder, join(config.device))


def run_config(folder: Path) -> TrainConfig:
    """The configuration of a run."""
    return TrainConfig.from_dict(yaml.safe_load((folder / CONFIG).read_text()))


def _of_protocol(folder: Path, protocol: Protocol) -> list[MethodResult]:
    missing = [str(run.relative_to(folder)) for _, run in protocol.missing(folder)]
    if missing:
        total = len(list(protocol.trials(folder)))
        raise InputError(
            f"{len(missing)} of {total} trainings in {folder} are not complete "
            f"({', '.join([*missing[:4], *(['…'] if len(missing) > 4 else [])])}): continue with {protocol.command}"
        )
    return [_of_method(folder, protocol, name) for name in protocol.methods]


def _of_method(folder: Path, protocol: Protocol, method: str) -> MethodResult:
    grid = protocol.runs(folder, method)
    runs = [run for fold in grid for run in fold]
    store = grid[0][0].parent / SCORES
    scores = method_scores(grid, store, protocol.scored_on, protocol.methods[method]["distance"])
    return MethodResult(
        method=method,
        protocol=protocol.kind,
        dataset=protocol.dataset,
        **_arrays(scores),
        runs=runs,
        selected_on_test=protocol.selected_on_test,
        scored_on=protocol.scored_on,
        images=_images(protocol.methods[method], protocol.scored_on),
    )


def _of_run(folder: Path) -> MethodResult:
    config = run_config(folder)
    arrays = _arrays(compute_scores([[embedded_test(folder)]], config.distance))
    return MethodResult(
        method=folder.resolve().name,
        protocol="train",
        dataset=config.dataset,
        **arrays,
        runs=[folder],
        selected_on_test=config.validate_on == "test",
        images=_images(asdict(config), "test"),
    )


def _images(settings: Mapping[str, Any], part: Part) -> dict[str, Any]:
    """Of the settings of a training, those that decide the images of a part."""
    usual = signature(DATASETS.get(settings["dataset"], DATASETS["folder"])).parameters
    own = {
        name: value
        for name, value in settings["data_settings"].items()
        if name not in ELSEWHERE and (name not in usual or usual[name].default != value)
    }
    return own if part == "test" else {**own, "folds": settings["folds"]}


def _arrays(scores: Scores) -> dict[str, Any]:
    """The fields of a result that are scores."""
    raw = [
        {"fold": fold, "repeat": repeat, "metric": metric, "value": float(value)}
        for metric, values in scores.single.items()
        for (fold, repeat), value in np.ndenumerate(np.nanmean(values, axis=2))
    ]
    single = {metric: collections(values) for metric, values in scores.single.items()}
    return {
        "dim": scores.dim,
        "single": single,
        "ensemble": scores.ensemble or None,
        "labels": scores.labels,
        "raw": raw,
    }
