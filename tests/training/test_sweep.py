"""Search spaces, designs, and a sweep over a function instead of trainings."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumpool.cli.sweep import check
from sumpool.errors import InputError
from sumpool.training import sweep as module
from sumpool.training.factorial import GENERATORS, design, main_effects
from sumpool.training.space import Choice, Range, grid, put, read_space, screening
from sumpool.training.sweep import RunError, Sweep
from sumpool.training.sweep_plots import draw_sweep

SPACE = read_space({"a": {"low": 0.0, "high": 1.0}, "b.c": {"low": 1, "high": 8}})


def valley(point: dict[str, Any], folder: Path) -> float:
    return 1 - (point["a"] - 0.3) ** 2 - 0.01 * (point["b.c"] - 5) ** 2


@pytest.mark.parametrize("factors", GENERATORS)
def test_designs_are_balanced_and_orthogonal(factors: int) -> None:
    runs = np.array(design(factors))
    assert runs.shape[1] == factors
    assert len({tuple(run) for run in runs}) == len(runs)
    assert (runs.T @ runs == len(runs) * np.eye(factors)).all()
    assert (runs.sum(0) == 0).all()


@pytest.mark.parametrize("factors", [number for number in GENERATORS if number >= 3])
def test_no_main_effect_is_confounded_with_an_interaction_of_two(factors: int) -> None:
    runs = np.array(design(factors))
    for first, second in combinations(range(factors), 2):
        interaction = runs[:, first] * runs[:, second]
        assert (np.delete(runs, [first, second], 1).T @ interaction == 0).all()


def test_main_effects_recover_a_linear_model() -> None:
    runs = design(6)
    slopes = [3.0, 0.0, -1.0, 0.5, 0.0, 2.0]
    scores = [7 + sum(slope * level for slope, level in zip(slopes, run, strict=True)) for run in runs]
    assert main_effects(runs, scores) == pytest.approx([2 * slope for slope in slopes])


def test_spaces_are_read() -> None:
    space = read_space({"lr": {"low": 1e-6, "high": 1e-3, "log": True}, "k": {"low": 1, "high": 9}, "f": ["x", "y"]})
    assert space == {"lr": Range(1e-6, 1e-3, True), "k": Range(1, 9), "f": Choice(("x", "y"))}
    assert [space["lr"].whole, space["k"].whole] == [False, True]
    assert not Range(1, 9, step=0.5).whole


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"low": 1}, "low and high"),
        ([3], "at least two choices"),
        (5, "at least two choices"),
        ({"low": 2, "high": 1}, "low < high"),
        ({"low": 0, "high": 1, "log": True}, "low > 0"),
        ({"low": 0, "high": 1, "lgo": True}, "no part 'lgo': did you mean 'low' or 'log'"),
        ({"low": "small", "high": 1}, "must be a number"),
        ({"low": 0, "high": 1, "step": 0}, "above 0"),
    ],
)
def test_bad_spaces_get_one_sentence(entry: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_space({"lr": entry})


def test_grid_and_screening() -> None:
    space = read_space({"a": {"low": 0.0, "high": 1.0, "step": 0.25}, "k": {"low": 1, "high": 5, "step": 2}})
    points = grid(space)
    assert [point["a"] for point in points[::3]] == [0, 0.25, 0.5, 0.75, 1]
    assert [point["k"] for point in points[:3]] == [1, 3, 5]
    assert screening(space)[1:3] == [{"a": 0.0, "k": 5}, {"a": 1.0, "k": 1}]
    with pytest.raises(InputError, match="needs a list or a step for a"):
        grid(SPACE)
    with pytest.raises(InputError, match="needs two levels for f, got 3"):
        screening(read_space({"f": [1, 2, 3]}))
    with pytest.raises(InputError, match="1 to 11"):
        screening(read_space({str(number): [0, 1] for number in range(12)}))


def test_values_go_to_their_places_and_leave_the_original_alone() -> None:
    settings: dict[str, Any] = {"loss_settings": {"xbm": {"batches": 3}}}
    assert put(settings, {"loss_settings.ccp.per_class": 4, "lr": 1})["loss_settings"] == {
        "xbm": {"batches": 3},
        "ccp": {"per_class": 4},
    }
    assert settings == {"loss_settings": {"xbm": {"batches": 3}}}


def test_bayesian_search_finds_the_top_and_draws(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, SPACE, "gp", trials=13)
    sweep.run(valley)
    number, best, score = sweep.results()[0]
    assert score > 0.98
    assert isinstance(best["b.c"], int)
    assert [path.read_bytes()[:4] for path in draw_sweep(sweep)] == [b"\x89PNG", b"\x89PNG"]
    again = Sweep(tmp_path, SPACE, "gp", trials=13)
    again.run(refuse)  # everything is done
    assert again.results()[0] == (number, best, score)


def refuse(point: dict[str, Any], folder: Path) -> float:
    raise AssertionError("nothing is left to train")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, InputError])
def test_a_stopped_sweep_continues_with_the_same_trial(stop: type[BaseException], tmp_path: Path) -> None:
    space = read_space({"x": [1, 2, 3], "y": ["u", "v"]})
    calls: list[tuple[tuple[object, ...], str]] = []

    def train(point: dict[str, Any], folder: Path) -> float:
        calls.append((tuple(point.values()), folder.name))
        if len(calls) == 3:
            raise stop
        return float(point["x"])

    with pytest.raises(stop):
        Sweep(tmp_path, space, "grid").run(train)
    sweep = Sweep(tmp_path, space, "grid")
    sweep.run(train)
    assert calls.count(calls[2]) == 2
    assert sorted({point for point, _ in calls}) == [(x, y) for x in (1, 2, 3) for y in "uv"]
    assert len({folder for _, folder in calls}) == len(sweep.results()) == 6


def test_a_failed_run_is_left_out(tmp_path: Path) -> None:
    def train(point: dict[str, Any], folder: Path) -> float:
        if point["x"] == 2:
            raise RunError("the loss is not finite")
        return float(point["x"])

    sweep = Sweep(tmp_path, read_space({"x": [1, 2, 3]}), "grid")
    sweep.run(train)
    assert [point["x"] for _, point, _ in sweep.results()] == [3, 1]


def test_the_trial_of_a_dead_worker_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT", 1)
    monkeypatch.setattr(module, "GRACE", 2)
    space = read_space({"x": [1, 2]})
    dead = Sweep(tmp_path, space, "grid")
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = dead.study.ask()  # as if it had been killed before it read its point
    dead.study._storage.record_heartbeat(trial._trial_id)
    folders: dict[str, float] = {}

    def train(point: dict[str, Any], folder: Path) -> float:
        folders[folder.name] = float(point["x"])
        return float(point["x"])

    Sweep(tmp_path, space, "grid").run(train)
    assert folders == {"trial-0000": 1.0, "trial-0001": 2.0}


def test_workers_share_the_trials(tmp_path: Path) -> None:
    """The second worker runs while the first is in the middle of a trial."""
    space = read_space({"x": [1, 2, 3, 4]})
    seen: list[tuple[str, int]] = []

    def trainer(name: str, meanwhile: Callable[[], None] | None = None) -> Callable[[dict[str, Any], Path], float]:
        def train(point: dict[str, Any], folder: Path) -> float:
            seen.append((name, point["x"]))
            if meanwhile is not None and len(seen) == 1:
                meanwhile()
            return float(point["x"])

        return train

    storage = f"sqlite:///{tmp_path / 'shared.sqlite3'}"
    second = Sweep(tmp_path / "second", space, "grid", storage=storage)
    Sweep(tmp_path / "first", space, "grid", storage=storage).run(
        trainer("first", lambda: second._one(trainer("second")))
    )
    assert sorted(x for _, x in seen) == [1, 2, 3, 4]
    assert {name for name, _ in seen} == {"first", "second"}


def test_another_space_or_configuration_is_refused(tmp_path: Path) -> None:
    Sweep(tmp_path, SPACE, about={"lr": 1})
    Sweep(tmp_path, SPACE, about={"lr": 1}, trials=50)
    for space, about in ((SPACE, {"lr": 2}), (read_space({"a": [1, 2]}), {"lr": 1})):
        with pytest.raises(InputError, match="other settings or another space"):
            Sweep(tmp_path, space, about=about)


def test_a_bad_storage_and_method_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot open the trials of the storage"):
        Sweep(tmp_path, SPACE, storage="nothing://here")
    with pytest.raises(InputError, match="unknown method 'gird': did you mean 'grid'"):
        Sweep(tmp_path, SPACE, "gird")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"lr": ["a", "b"]}, "lr must be a number, got 'a'"),
        ({"lr.x": [1, 2]}, "lr has no parts, so there is no setting 'lr.x' to vary"),
        ({"steps": {"low": 1, "high": 2.5}}, "steps must be a whole number, got 1.0"),
    ],
)
def test_a_space_that_no_run_can_take_is_refused_before_the_first(space: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check({"dataset": "toy", "lr": 0.1}, read_space(space))
