"""The screening is the text's, its effects are those of the scores, and every claim can fail."""

from pathlib import Path

import numpy as np
import pytest

from sumpool.evaluation.published import all_published
from sumpool.studies.base import Call
from sumpool.studies.grid import Grid
from sumpool.studies.gsp_ablation_plan import FACTORS, Levels, configurations, screened, screening_of
from sumpool.studies.gsp_ablations import component_claims, effects, gains, grid_claims, mass_claims, screening_claims
from sumpool.training.config import TrainConfig
from sumpool.training.factorial import design
from sumpool.training.space import screening

ONE = Levels(losses=("C2",))


def test_the_screening_has_the_eight_runs_of_table_5_4() -> None:
    published = {
        (16, 0.3, 0.5, 0.1), (16, 0.7, 0.5, 0.5), (128, 0.3, 0.5, 0.5), (128, 0.7, 0.5, 0.1),
        (16, 0.3, 20, 0.5), (16, 0.7, 20, 0.1), (128, 0.3, 20, 0.1), (128, 0.7, 20, 0.5),
    }  # fmt: skip
    assert {tuple(point.values()) for point in screening(FACTORS)} == published
    assert sum(row.table == "5.4" for row in all_published()) == 2 * (
        len(published) + 1
    )  # two losses, and the baseline
    configs = screening_of(TrainConfig("toy", pooling="gsp", loss="zsr/contrastive"))
    assert configs[-1].pooling_settings == {"prototypes": 128, "mass": 0.7, "sharpness": 20.0}
    assert configs[-1].loss_settings == {"zsr": {"weight": 0.5}}


def test_effects_are_those_that_the_scores_were_made_of() -> None:
    rng = np.random.default_rng(0)
    made = np.array([0.0, -0.02, 0.05, -0.01])
    means = 0.5 + np.array(design(4)) @ made / 2
    scores = {
        name: {"map@r": mean + rng.normal(0, 0.01, (3, 90))} for name, mean in zip(screened("C2"), means, strict=True)
    }
    found = effects(Grid(scores, np.repeat(np.arange(30), 3)), ONE)
    assert [value["mean"] for value in found.values()] == pytest.approx(made, abs=0.003)
    claims = screening_claims(found, ONE)
    assert all(claims.values())
    flipped = {
        name: {"mean": -value["mean"], "ci95": [-end for end in reversed(value["ci95"])], "p by Holm": 0.0}
        for name, value in found.items()
    }
    flipped["C2 ε"]["mean"] = 0.0
    assert not any(screening_claims(flipped, ONE).values())


def test_claims_about_components_need_sure_gains() -> None:
    pairs = ("GSP − neither", "L_ZS − neither", "GSP and L_ZS − GSP", "GSP and L_ZS − L_ZS")
    for p_value, sure in ((0.001, True), (0.5, False)):
        found = component_claims({pair: {"mean": 0.1, "p by Holm": p_value} for pair in pairs})
        assert set(found.values()) == {sure}


def test_claims_about_mass_and_grid_depend_on_the_scores() -> None:
    plan = Levels((0.1, 0.3, 0.9), (16, 64), (0.5, 5.0), (64, 128), ("C2",))
    sure, unsure = ({"mean": 0.1, "p by Holm": p} for p in (0.001, 0.5))
    assert [gains(value) for value in (sure, unsure, {"mean": -0.1, "p by Holm": 0.001})] == [True, False, False]
    good = {"C2 μ 0.1": 0.5, "C2 μ 0.3": 0.5, "C2 μ 0.9": 0.3}
    bad = {"C2 μ 0.1": 0.3, "C2 μ 0.3": 0.4, "C2 μ 0.9": 0.5}
    assert all(mass_claims(good, {"μ": sure}, plan).values())
    assert not any(mass_claims(bad, {"μ": unsure}, plan).values())
    grid = {"C2 m 16 ε 0.5": 0.1, "C2 m 64 ε 0.5": 0.1, "C2 m 16 ε 5": 0.1, "C2 m 64 ε 5": 0.2}
    assert all(grid_claims({**grid, "C2 m 64": 0.2, "C2 m 128": 0.2}, plan).values())
    assert not any(
        grid_claims({**grid, "C2 m 64 ε 5": 0.0, "C2 m 16 ε 5": 0.0, "C2 m 64": 0.2, "C2 m 128": 0.3}, plan).values()
    )


def test_at_full_size_every_run_has_the_published_settings_but_for_what_is_swept() -> None:
    configs = configurations(Call("paper", Path("out/gsp-ablations")), Levels())
    base = configs["GSP and L_ZS"]
    assert (base.dataset, base.backbone, base.loss, base.folds) == ("cub", "bn_inception", "zsr/contrastive", 5)
    assert configs["C2 μ 0.3"] == configs["C2 m 64 ε 5"] == configs["C2 m 64"] == base
    assert configs["C2 μ 0.9"].pooling_settings == {**base.pooling_settings, "mass": 0.9}
    assert configs["PNCA m 64"].pooling_settings["sharpness"] == 0.5
    assert configs["neither"] == configs["C2 GAP"]
    assert (configs["L_ZS"].pooling, configs["L_ZS"].loss) == ("gap_attributes", "zsr/contrastive")
    assert (configs["GSP"].pooling, configs["GSP"].loss) == ("gsp", "contrastive")
