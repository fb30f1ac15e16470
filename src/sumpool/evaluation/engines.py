"""Where the trainings of a comparison run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from sumpool.evaluation.trial import Part, run_trial
from sumpool.training.config import TrainConfig

Trial: TypeAlias = tuple[TrainConfig, Path]


def run_trials(trials: Sequence[Trial], jobs: int = 1, part: Part = "test") -> None:
    """Run every training, or what is left of it."""
    for config, folder in trials:
        run_trial(config, folder, part)
