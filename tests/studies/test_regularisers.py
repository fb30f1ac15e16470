"""Every loss gets centres to regularise; δ of R1 is a constant; the claims can fail."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from sumpool.losses import NearestPush, create_objective
from sumpool.studies.base import Call
from sumpool.studies.grid import Grid
from sumpool.studies.regulariser_plan import LOSSES, REGULARISERS, Sweeps, configurations, setting
from sumpool.studies.regularisers import judge


def test_every_configuration_has_an_objective_with_the_regulariser_it_is_named_after() -> None:
    configs = configurations(setting(Call("paper", Path("out/regularisers"))), Sweeps())
    for loss in LOSSES:
        for name in ("none", *REGULARISERS):
            config = configs[f"{loss} {name}"]
            objective = create_objective(config.loss, 4, config.dim, settings=config.loss_settings)
            names = [term.name for term in objective.terms]
            assert names[1:] == ([] if name == "none" else [REGULARISERS[name][0]])
            assert objective.proxies is not None
    assert configs["Proxy-Anchor far-push λ -4"].loss_settings["far_push"]["skew"] == -4
    assert configs["MS none 64-D"].dim == 64
    assert configs["Proxy-Anchor R1 weight 1"] == configs["Proxy-Anchor R1"]


def test_delta_of_r1_shifts_the_value_and_leaves_the_gradient() -> None:
    centres = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    values = [NearestPush(margin=margin)(centres) for margin in (0.0, 0.5)]
    gradients = [torch.autograd.grad(value, centres)[0] for value in values]
    torch.testing.assert_close(values[0] - values[1], torch.tensor(0.5, dtype=torch.float64))
    torch.testing.assert_close(gradients[0], gradients[1])


def test_claims_depend_on_the_scores() -> None:
    plan = Sweeps(("MS",), (64, 128, 256), margins=(0.0, 0.5))
    sure, unsure = ({"mean": 0.1, "p by Holm": p} for p in (0.01, 0.2))

    def claims(wide: float, shifted: float, gain: dict[str, Any]) -> dict[str, bool]:
        scores = {"Proxy-Anchor far-push 128-D": 0.5, "Proxy-Anchor far-push 256-D": wide}
        scores |= {"Proxy-Anchor R1 δ 0": 0.5, "Proxy-Anchor R1 δ 0.5": shifted}
        grid = Grid({name: {"r@1": np.full((1, 4), value)} for name, value in scores.items()}, np.arange(4))
        gains = {f"MS {name} − MS none": gain for name in REGULARISERS}
        return judge(grid, plan, gains, {"far-push − MHE": gain})

    assert all(claims(0.505, 0.6, sure).values())
    assert not any(claims(0.4, 0.5, unsure).values())
