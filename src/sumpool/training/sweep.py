"""A sweep: many runs over a search space, by Optuna, resumable and shared by any number of workers.

Workers meet in a storage, a file in the sweep's folder or any database by URL. A worker that dies stops its heartbeat;
another one, or the same command started again, then continues its run from the last checkpoint.
"""

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from sumpool.errors import InputError
from sumpool.registry import lookup
from sumpool.training.factorial import main_effects
from sumpool.training.space import Choice, Point, Space, grid, screening, two_levels

# Seconds between signs of life of a worker, and without one until its trial is given to another.
HEARTBEAT, GRACE = 15, 60
NAME, ABOUT, ORIGIN = "sweep", "about", "origin"

# Methods that fix their points before the first run; "gp" chooses each from the results so far.
DESIGNS: dict[str, Callable[[Space], list[Point]]] = {"grid": grid, "factorial": screening}
METHODS = ("gp", *DESIGNS)

Train = Callable[[Point, Path], float]
"""Trains, or continues, a run with the settings of a point in a folder; returns its score."""


class RunError(Exception):
    """A run that ended without a score, such as by a loss that is not finite; the sweep goes on."""


def import_optuna() -> ModuleType:
    """Optuna, or a sentence that says how to get it."""
    try:
        import optuna
    except ImportError as missing:
        raise InputError("sweeps need pip install 'sumpool[sweep]'") from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Sweep:
    """A sweep in a folder.

    Args:
        folder: below which every trial has its run folder.
        space: what is varied.
        method: "gp" (Bayesian, Gaussian process), "grid" or "factorial" (two-level screening).
        trials: how many runs "gp" makes in all; the others make those of their design.
        storage: URL of a database; by default an SQLite file in the folder.
        about: everything else the runs depend on; a sweep is only continued with the same.
        seed: of the choice of points.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        method: str = "gp",
        trials: int = 20,
        storage: str | None = None,
        about: Any = None,
        seed: int = 0,
    ) -> None:
        lookup("method", dict.fromkeys(METHODS), method)
        self.optuna = import_optuna()
        self.folder, self.space, self.method, self.seed = folder, space, method, seed
        points = DESIGNS[method](space) if method in DESIGNS else []
        self.trials = len(points) or trials
        self.study = self._open(storage, json.dumps([method, str(space), about], sort_keys=True))
        for point in points:
            self.study.enqueue_trial(point, skip_if_exists=True)

    def _open(self, storage: str | None, about: str) -> Any:
        """The study in the storage; one of another space or configuration is refused."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shown = self.folder if storage is None else "the storage"  # whose URL may hold a password
        url = storage or f"sqlite:///{(self.folder / 'trials.sqlite3').resolve()}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # heartbeats are called experimental
            try:
                database = self.optuna.storages.RDBStorage(
                    url,
                    heartbeat_interval=HEARTBEAT,
                    grace_period=GRACE,
                    heartbeat_stale_trial_callback=_take_over,
                )
            except Exception as reason:  # whatever the driver of the database raises
                raise InputError(f"cannot open the trials of {shown}: {str(reason).splitlines()[0]}") from reason
        study = self.optuna.create_study(storage=database, study_name=NAME, direction="maximize", load_if_exists=True)
        if study.user_attrs.get(ABOUT, about) != about:
            raise InputError(f"{shown} holds a sweep with other settings or another space: choose another")
        study.set_user_attr(ABOUT, about)
        return study

    def run(self, train: Train) -> None:
        """Work until all trials are done, also those that other workers leave behind."""
        states = self.optuna.trial.TrialState
        while self._count(states.WAITING) or len(self._origins()) < self.trials or self._count(states.RUNNING):
            if self._count(states.WAITING) or len(self._origins()) < self.trials:
                self._one(train)
            else:  # other workers are busy; should one die, its trial is ours
                time.sleep(HEARTBEAT / 3)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.optuna.storages.fail_stale_trials(self.study)

    def _one(self, train: Train) -> None:
        def objective(trial: Any) -> float:
            point = {name: _suggest(trial, name, dimension) for name, dimension in self.space.items()}
            try:
                return train(point, self.folder / f"trial-{_origin(trial):04d}")
            except RunError:
                raise
            except BaseException:  # stopped, or a mistake that the user can mend: continued by the next worker
                _again(self.study, point, _origin(trial))
                raise

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Another seed for every trial, so that workers do not all draw the same points.
            self.study.sampler = self.optuna.samplers.GPSampler(seed=self.seed + len(self.study.trials))
            self.study.optimize(objective, n_trials=1, catch=(RunError,))

    def _count(self, state: Any) -> int:
        return len(self.study.get_trials(deepcopy=False, states=(state,)))

    def _origins(self) -> set[int]:
        return {_origin(trial) for trial in self.study.get_trials(deepcopy=False)}

    def results(self) -> list[tuple[int, Point, float]]:
        """Number, point and score of the finished trials, best first."""
        done = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.COMPLETE,))
        return sorted(((_origin(trial), trial.params, trial.value) for trial in done), key=lambda row: -row[2])

    def effects(self) -> dict[str, float]:
        """Main effects of a factorial screening, largest first."""
        ends = {name: two_levels(name, dimension) for name, dimension in self.space.items()}
        rows = [(point, score) for _, point, score in self.results()]
        levels = [tuple(1 if point[name] == ends[name][1] else -1 for name in self.space) for point, _ in rows]
        values = main_effects(levels, [score for _, score in rows])
        return dict(sorted(zip(self.space, values, strict=False), key=lambda pair: -abs(pair[1])))


def _suggest(trial: Any, name: str, dimension: Any) -> Any:
    if isinstance(dimension, Choice):
        return trial.suggest_categorical(name, dimension.values)
    if dimension.whole:
        return trial.suggest_int(name, dimension.low, dimension.high, log=dimension.log, step=dimension.step or 1)
    return trial.suggest_float(name, dimension.low, dimension.high, log=dimension.log, step=dimension.step)


def _origin(trial: Any) -> int:
    """The number under which a trial was first started: it names the run folder."""
    return int(trial.user_attrs.get(ORIGIN, trial.number))


def _take_over(study: Any, trial: Any) -> None:
    """Queue the trial of a worker that died, perhaps before it had read all of its point."""
    _again(study, {**trial.system_attrs.get("fixed_params", {}), **trial.params}, _origin(trial))


def _again(study: Any, point: Point, origin: int) -> None:
    """Queue a trial that was cut short, to be continued in its folder."""
    study.enqueue_trial(point, user_attrs={ORIGIN: origin})
