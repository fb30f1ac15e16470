"""Results in groups within which methods may be compared: same dataset, protocol and queries."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sumpool.errors import InputError
from sumpool.evaluation.results import MethodResult, load_results
from sumpool.evaluation.summary import summarise
from sumpool.registry import nearest
from sumpool.training.loop import METRICS

KINDS = ("single", "ensemble")


def metrics(result: MethodResult) -> list[str]:
    """Names of the metrics, in their usual order."""
    return sorted(result.single, key=lambda name: METRICS.index(name) if name in METRICS else len(METRICS))


@dataclass(frozen=True)
class Group:
    """Methods that answered the same queries under one protocol; the first is the reference of the others."""

    results: list[MethodResult]
    summary: dict[str, Any]
    """What `summarise` says about the results."""

    @property
    def first(self) -> MethodResult:
        """The reference; whatever all methods of the group share can be asked of it."""
        return self.results[0]

    @property
    def title(self) -> str:
        """Dataset, which of its images, and protocol."""
        protocol = "single trainings" if self.first.protocol == "train" else f"{self.first.protocol} protocol"
        choice = f" ({self.first.choice})" if self.first.images else ""
        return f"{self.first.dataset}{choice}, {protocol}"

    @property
    def kinds(self) -> list[str]:
        """Which embeddings were scored: of single models, and of ensembles where there are several folds."""
        return [kind for kind in KINDS if getattr(self.first, kind) is not None]

    @property
    def repeats(self) -> int:
        """Fewest trainings of a fold of any method; with one, intervals reflect the choice of queries only."""
        return min(int(min(next(iter(result.single.values())).shape[:-1])) for result in self.results)

    @property
    def methods(self) -> list[dict[str, Any]]:
        """The summary of every method, in the order of the results."""
        found: list[dict[str, Any]] = self.summary["methods"]
        return found


def load_groups(folders: Iterable[Path], reference: str | None = None) -> list[Group]:
    """The groups of everything in some folders of runs and protocols; methods of one name get their folder's too."""
    found = [(folder, result) for folder in folders for result in load_results(folder)]
    names = [(_key(result), result.method) for _, result in found]
    return group_results(
        [
            replace(result, method=f"{result.method} ({folder})") if names.count(name) > 1 else result
            for (folder, result), name in zip(found, names, strict=True)
        ],
        reference,
    )


def group_results(results: Sequence[MethodResult], reference: str | None = None) -> list[Group]:
    """The groups in the order of their first results; `reference` names the method that others are compared with."""
    if reference is not None and reference not in (known := {result.method for result in results}):
        raise InputError(f"no method is called {reference!r}: {nearest(reference, known)}")
    groups: dict[object, list[MethodResult]] = {}
    for result in results:
        groups.setdefault(_key(result), []).append(result)
    ordered = [sorted(group, key=lambda result: result.method != reference) for group in groups.values()]
    return [Group(group, summarise(group)) for group in ordered]


def _key(result: MethodResult) -> object:
    """What methods must share to be compared."""
    # Other images may have the same labels.
    queries = json.dumps(result.images, sort_keys=True), hashlib.sha256(result.labels.tobytes()).digest()
    kinds = [getattr(result, kind) is not None for kind in KINDS]
    return result.dataset, result.protocol, result.scored_on, result.selected_on_test, tuple(kinds), queries
