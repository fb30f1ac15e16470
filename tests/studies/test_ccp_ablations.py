"""CCP ablations: the arms differ where they should, and claims are judged by their intervals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumpool.data import in_memory, load_dataset
from sumpool.studies import ccp_arms
from sumpool.studies.ccp_ablations import CLAIMS, judged
from sumpool.studies.ccp_arms import cell, changed, characters, compared, problem_lengths, varied
from sumpool.training.config import TrainConfig
from sumpool.training.run import Run

BASE = TrainConfig("toy", **ccp_arms.METHOD | ccp_arms.SMALL)


def test_every_arm_changes_what_its_name_says() -> None:
    found = compared(BASE) | varied(BASE)
    assert found["λ = 0"].ccp_settings == {"pull": 0.0, "pool": 12}
    assert found["one problem"].ccp_settings["patience"] == ccp_arms.NEVER
    assert found[cell(4, 8)].loss_settings["ccp"] == {"per_class": 4}
    assert found[cell(4, 8)].ccp_settings == {"pull": 2e-4, "pool": 8}
    assert found["contrastive, batch 128"].loss == "contrastive"
    assert found["contrastive, batch 128"].classes_per_batch == 32
    assert found[cell(8, 12)] == found["CCP, batch 32"] == found["CCP"] == BASE
    assert all(name in found for claim in CLAIMS.values() for name in (*claim.more, *claim.less))


def test_the_base_is_not_changed_by_its_arms() -> None:
    changed(BASE, {"ccp_settings.pull": 3.0})
    assert BASE.ccp_settings["pull"] == 2e-4


def found(low: float, high: float) -> dict[str, Any]:
    return {"mean": (low + high) / 2, "ci95": [low, high]}


def test_a_claim_of_no_difference_holds_unless_the_interval_is_above_zero() -> None:
    differences = {text: found(0.1, 0.2) if claim.above else found(-0.1, 0.1) for text, claim in CLAIMS.items()}
    assert judged(differences)[0] == "reproduced"
    verdict, reason = judged(differences | {"CCP is not better in batches of 128 than of 16 (3.8)": found(0.1, 0.2)})
    assert verdict == "partly reproduced"
    assert reason.endswith("Contradicted: CCP is not better in batches of 128 than of 16 (3.8).")
    opposite = {text: found(-0.1, 0.1) if claim.above else found(0.1, 0.2) for text, claim in CLAIMS.items()}
    assert judged(opposite)[0] == "not reproduced"


def test_lengths_are_those_of_problems_that_ended(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("score: map@r\n")
    (tmp_path / "environment.json").write_text("{}")
    for step, problem, steps in [(25, 1, 25), (50, 1, 50), (75, 2, 25), (100, 3, 25), (125, 3, 50)]:
        entry = {"step": step, "problem": problem, "problem steps": steps, "map@r": 0.5, "best": 0.5}
        Run(tmp_path).log(entry)
    assert problem_lengths(tmp_path) == [50, 25]


def test_characters_are_chosen_from_both_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = in_memory(load_dataset("glyphs", classes=20, per_class=3))
    monkeypatch.setattr(ccp_arms, "load_dataset", lambda name, root: whole)
    pack = load_dataset(str(characters(tmp_path / "small.npz", None, train=5, test=4)))
    for split, count in {"train": 5, "test": 4}.items():
        part = pack.split(split)
        assert (len(part), len(part.classes)) == (3 * count, count)
        assert set(part.classes) <= set(whole.split(split).classes)
        original = whole.split(split)
        first = [original.classes[label] for label in original.labels].index(part.classes[0])
        np.testing.assert_array_equal(np.asarray(part.image(0)), np.asarray(original.image(first)))
