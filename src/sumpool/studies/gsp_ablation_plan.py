"""The trainings of GSP's ablations: sweeps around the published settings, each a change of one configuration."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any, NamedTuple

from sumpool.studies.base import Call
from sumpool.studies.gsp_setting import gsp_setting
from sumpool.training.config import TrainConfig
from sumpool.training.space import Choice, Space, put, screening

LOSSES = ("C2", "PNCA")
# The two-level screening of the text (table 5.4), in its order.
FACTORS: Space = {
    "pooling_settings.prototypes": Choice((16, 128)),
    "pooling_settings.mass": Choice((0.3, 0.7)),
    "pooling_settings.sharpness": Choice((0.5, 20.0)),
    "loss_settings.zsr.weight": Choice((0.1, 0.5)),
}
SYMBOLS = ("m", "μ", "ε", "λ")
# Name → method: with and without either component (table 5.3).
COMPONENTS = {"neither": "C2", "GSP": "C2+GSP-ZS", "L_ZS": "C2+ZS", "GSP and L_ZS": "C2+GSP"}


class Levels(NamedTuple):
    """What is swept."""

    masses: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    prototypes: tuple[int, ...] = (16, 64, 128)
    """Of the grid."""
    sharpnesses: tuple[float, ...] = (0.5, 5.0, 20.0, 50.0)
    """Of the grid."""
    numbers: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    """Of prototypes, at the published sharpness."""
    losses: tuple[str, ...] = LOSSES


def levels(call: Call) -> Levels:
    """All of them, or at scale `smoke` two of each kind with one loss."""
    tiny = Levels((0.3, 0.9), (64,), (5.0, 20.0), (64, 128), ("C2",))
    found: Levels = call.pick(tiny, Levels(), Levels())
    return found


def configurations(call: Call, plan: Levels) -> dict[str, TrainConfig]:
    """Everything that is trained, by name, such as "C2 μ 0.5" or "PNCA m 64 ε 5"."""
    found = {name: gsp_setting(call, method) for name, method in COMPONENTS.items()}
    both = {loss: gsp_setting(call, f"{loss}+GSP") for loss in plan.losses}
    found |= {f"{loss} GAP": gsp_setting(call, loss) for loss in plan.losses}
    found |= {f"C2 μ {mass:g}": changed(both["C2"], mass=mass) for mass in plan.masses}
    for loss, m, epsilon in product(plan.losses, plan.prototypes, plan.sharpnesses):
        found[f"{loss} m {m} ε {epsilon:g}"] = changed(both[loss], prototypes=m, sharpness=epsilon)
    for loss, m in product(plan.losses, plan.numbers):
        found[f"{loss} m {m}"] = changed(both[loss], prototypes=m)
    for loss in plan.losses:
        found |= dict(zip(screened(loss), screening_of(both[loss]), strict=True))
    return found


def changed(config: TrainConfig, **settings: float) -> TrainConfig:
    """The configuration with other settings of its pooling."""
    return replace(config, pooling_settings={**config.pooling_settings, **settings})


def screened(loss: str) -> list[str]:
    """Names of the runs of the screening."""
    return [f"{loss} screening {run + 1}" for run in range(len(screening(FACTORS)))]


def screening_of(config: TrainConfig) -> Sequence[TrainConfig]:
    """The runs of the screening."""
    settings: dict[str, Any] = asdict(config)
    return [TrainConfig.from_dict(put(settings, point)) for point in screening(FACTORS)]
