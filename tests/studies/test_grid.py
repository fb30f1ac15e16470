"""Equal configurations share a training; differences have the right sign and are adjusted together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sumpool.studies.curves import Panel, draw_panels
from sumpool.studies.grid import Grid, folders_of
from sumpool.training.config import TrainConfig


def test_the_folder_depends_on_the_configuration_and_the_seed_only() -> None:
    config = TrainConfig("toy", lr=0.1)
    folders = folders_of(config, 2, Path("work"))
    assert folders == folders_of(replace(config, seed=7), 2, Path("work"))
    assert [some.seed for some in folders.values()] == [0, 1]
    assert not folders.keys() & folders_of(replace(config, lr=0.2), 2, Path("work")).keys()


def test_differences_have_the_sign_of_candidate_minus_baseline_and_are_adjusted_together() -> None:
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(40), 5)
    noise = {name: rng.normal(0, 0.05, (3, 200)) for name in ("a", "b", "c")}
    grid = Grid(
        {name: {"m": 0.5 + shift + noise[name]} for name, shift in (("a", 0.0), ("b", 0.1), ("c", 0.0))}, classes
    )
    found = grid.differences([("b", "a"), ("c", "a")], "m")
    assert found["b − a"]["mean"] == pytest.approx(0.1, abs=0.02)
    assert found["b − a"]["ci95"][0] > 0
    assert found["b − a"]["p by Holm"] == pytest.approx(2 * found["b − a"]["p"])
    assert found["c − a"]["p by Holm"] == pytest.approx(found["c − a"]["p"])
    assert grid.results()["b"]["m"]["mean"] == pytest.approx(0.6, abs=0.01)


def test_what_trainings_with_the_same_seed_share_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    seed_effects = np.array([[-0.2], [0.0], [0.2]])
    scores = {
        name: {"m": 0.5 + shift + seed_effects + rng.normal(0, 0.01, (3, 60))}
        for name, shift in (("a", 0), ("b", 0.05))
    }
    found = Grid(scores, np.arange(60)).differences([("b", "a")], "m")["b − a"]
    assert 0.04 < found["ci95"][0] < found["ci95"][1] < 0.06


def test_panels_draw_numbers_intervals_and_lines(tmp_path: Path) -> None:
    value = {"mean": 1.0, "ci95": [0.5, 1.5]}
    numbers = Panel("numbers", "k", (1, 2), {"a": [1.0, 2.0]}, "ms", {"line": 1.5}, log=True)
    named = Panel("names", "", ("x", "y"), {"a": [value, value], "b": [value, value]}, "%", joined=False)
    draw_panels([numbers, named], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
