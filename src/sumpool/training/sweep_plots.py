"""What a sweep has found, as pictures: which settings matter, and the score over the two that matter most."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sumpool.errors import InputError
from sumpool.training.sweep import Sweep

FEWEST = 4  # finished trials without which a picture would say nothing


def draw_sweep(sweep: Sweep) -> list[Path]:
    """Write importance.png and, with two settings or more, contour.png; nothing while there are too few trials."""
    scores = [score for _, _, score in sweep.results()]
    if len(scores) < FEWEST or min(scores) == max(scores):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these plots are called experimental
        weights = sweep.optuna.importance.get_param_importances(sweep.study)
        plots = sweep.optuna.visualization.matplotlib
        drawn = [_write(sweep.folder / "importance.png", lambda: plots.plot_param_importances(sweep.study))]
        if len(weights) > 1:
            pair = sorted(list(weights)[:2], key=list(sweep.space).index)
            drawn.append(
                _write(sweep.folder / "contour.png", lambda: plots.plot_contour(sweep.study, pair, target_name="score"))
            )
    return drawn


def _write(path: Path, draw: Callable[[], Any]) -> Path:
    try:
        import matplotlib
        import matplotlib.pyplot as plt
    except ImportError as missing:
        raise InputError("the pictures of a sweep need pip install 'sumpool[sweep]'") from missing
    with matplotlib.rc_context({"figure.figsize": (7, 5), "figure.dpi": 120}):
        draw()
        plt.gcf().savefig(path, bbox_inches="tight")
        plt.close("all")
    return path
