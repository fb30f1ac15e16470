"""What a report takes from the folders of trainings: validation scores, the best of several runs."""

from collections.abc import Sequence
from pathlib import Path

from sumpool.evaluation.results import run_config
from sumpool.training.curves import Line
from sumpool.training.run import Run


def validation_line(folder: Path) -> Line:
    """Validation score over the steps, its best marked."""
    score = run_config(folder).score
    points = [(entry["step"], float(entry[score])) for entry in Run(folder).entries() if score in entry]
    mark = max(points, key=lambda point: point[1])[0] if points else None
    return Line(points, mark, folder.name)


def best_run(folders: Sequence[Path]) -> Path:
    """The run with the highest validation score: choosing by test scores would flatter."""
    return max(folders, key=lambda folder: max((y for _, y in validation_line(folder).points), default=0.0))
