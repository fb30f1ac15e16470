"""Many trainings of one kind: every named configuration with several seeds, their scores, and which differences hold.

Equal configurations are trained once, whatever they are called: a point where two sweeps cross costs nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.data.record import Array
from sumpool.evaluation.engines import run_trials
from sumpool.evaluation.statistics import Comparison, compare, estimate, holm
from sumpool.evaluation.trial import Part, load_embedded
from sumpool.studies.base import Verdict
from sumpool.studies.collage import run_folder
from sumpool.studies.comparison import per_query
from sumpool.training.config import TrainConfig


class Grid:
    """Per-query scores of named configurations on the same images."""

    def __init__(self, scores: Mapping[str, Mapping[str, Array]], classes: Array) -> None:
        self.scores, self.classes = scores, classes

    def results(self) -> dict[str, Any]:
        """Name → metric → mean with its interval over seeds and classes."""
        return {
            name: {metric: estimate(values, self.classes).json() for metric, values in found.items()}
            for name, found in self.scores.items()
        }

    def differences(self, pairs: Iterable[tuple[str, str]], metric: str) -> dict[str, Any]:
        """ "candidate − baseline" → difference, its p-value, and that value by Holm for all the pairs together.

        Trainings with the same seed share initial weights and batches, so differences are taken seed by seed.
        """
        found = {
            f"{candidate} − {baseline}": self.paired(self.scores[candidate][metric] - self.scores[baseline][metric])
            for candidate, baseline in pairs
        }
        return adjusted(found)

    def paired(self, difference: Array) -> Comparison:
        """Differences (R,Q) of trainings with the same seed, compared with none."""
        return compare(difference, np.zeros((1, difference.shape[1])), self.classes)


def adjusted(found: Mapping[str, Comparison]) -> dict[str, Any]:
    """Comparisons in the form of results, with their p-values by Holm."""
    by_holm = holm([comparison.p for comparison in found.values()])
    return {
        name: {**comparison.difference.json(), "p": comparison.p, "p by Holm": float(value)}
        for (name, comparison), value in zip(found.items(), by_holm, strict=True)
    }


def train_grid(
    configs: Mapping[str, TrainConfig],
    seeds: int,
    work: Path,
    jobs: int,
    metrics: tuple[str, ...],
    part: Part = "test",
) -> Grid:
    """Train every configuration with the seeds 0, 1, …, or take what is complete in `work`; score the part."""
    folders = {name: folders_of(config, seeds, work) for name, config in configs.items()}
    trials = {folder: config for some in folders.values() for folder, config in some.items()}
    run_trials([(config, folder) for folder, config in trials.items()], jobs, part)
    embedded = {name: [load_embedded(folder, part) for folder in some] for name, some in folders.items()}
    first = next(iter(embedded.values()))[0]
    scores = {name: per_query(some, metrics) for name, some in embedded.items()}
    return Grid(scores, first.labels[first.query].numpy())


def folders_of(config: TrainConfig, seeds: int, work: Path) -> dict[Path, TrainConfig]:
    """Run folder → configuration, one for each seed; the folder depends on the configuration only."""
    seeded = [replace(config, seed=seed) for seed in range(seeds)]
    return {run_folder(work, "run", some): some for some in seeded}


def judged(checks: Mapping[str, bool]) -> Verdict:
    """Reproduced if everything claimed was found, partly if some of it.

    >>> judged({"GSP helps": True, "more prototypes help": False})
    'partly reproduced'
    """
    found = sum(checks.values())
    return "reproduced" if found == len(checks) else "partly reproduced" if found else "not reproduced"
