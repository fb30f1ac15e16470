"""The trainings of the study of centre regularisers: losses × regularisers, and sweeps with one loss.

Pair losses have no class centres. They get one proxy per class, which starts as the embedding of an image and is then
trained, in place of the other images of the batch (`ccp` with a single problem).
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from sumpool.studies.base import Call
from sumpool.studies.collage import pretrained
from sumpool.studies.glyph_collage import pretraining
from sumpool.studies.gsp_setting import SMALL
from sumpool.training.config import TrainConfig

LOSSES = {
    "Proxy-Anchor": "proxy_anchor",
    "Proxy-NCA": "original_proxy_nca",
    "SoftTriple": "soft_triple",
    "MS": "ccp/multi_similarity",
    "N-pair": "ccp/n_pair",
    "lifted structure": "ccp/lifted_structure",
}
REGULARISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "R1": ("nearest_push", {}),
    "R2": ("similarity_mean", {}),
    "far-push": ("far_push", {}),
    "UniformFace": ("uniform_face", {}),
    "MHE": ("energy", {"power": 2.0}),
}
FIRST = "Proxy-Anchor"


class Sweeps(NamedTuple):
    """What is varied: losses with all regularisers, and the sweeps with Proxy-Anchor (dimensions: with MS, too)."""

    losses: tuple[str, ...] = tuple(LOSSES)
    dims: tuple[int, ...] = (64, 128, 256, 512, 1024)
    weights: tuple[float, ...] = (0.1, 1.0, 10.0)
    skews: Mapping[str, tuple[float, ...]] = {"R2": (1.0, 4.0, 16.0), "far-push": (-16.0, -4.0, 1.0, 4.0, 16.0)}
    margins: tuple[float, ...] = (0.0, 0.25, 0.5)


def sweeps(call: Call) -> Sweeps:
    """Everything, or at scale `smoke` one of each kind."""
    tiny = Sweeps((FIRST, "MS"), (128,), (1.0,), {"far-push": (4.0,)}, (0.0, 0.5))
    found: Sweeps = call.pick(tiny, Sweeps(), Sweeps())
    return found


def configurations(base: TrainConfig, plan: Sweeps) -> dict[str, TrainConfig]:
    """Everything that is trained, by name, such as "Proxy-Anchor R1" or "Proxy-Anchor R1 weight 10"."""
    found = {f"{loss} {name}": chained(base, loss, name) for loss in plan.losses for name in ("none", *REGULARISERS)}
    for loss, dim, name in product((FIRST, "MS"), plan.dims, ("none", "R1", "far-push")):
        found[f"{loss} {name} {dim}-D"] = replace(chained(base, loss, name), dim=dim)
    for name, weight in product(REGULARISERS, plan.weights):
        found[f"{FIRST} {name} weight {weight:g}"] = chained(base, FIRST, name, weight=weight)
    for name, skews in plan.skews.items():
        found |= {f"{FIRST} {name} λ {skew:g}": chained(base, FIRST, name, skew=skew) for skew in skews}
    return found | {f"{FIRST} R1 δ {margin:g}": chained(base, FIRST, "R1", margin=margin) for margin in plan.margins}


def chained(base: TrainConfig, loss: str, name: str, **settings: float) -> TrainConfig:
    """The base with a loss and, unless its name is "none", a regulariser with weight 1 or the settings given."""
    chain = LOSSES[loss]
    settings = {"weight": 1.0, **settings}
    loss_settings: dict[str, dict[str, Any]] = {}
    ccp: dict[str, Any] = {}
    if chain.startswith("ccp/"):
        loss_settings["ccp"] = {"per_class": 1, "in_batch": 0.0, "lr_multiplier": 100.0}
        ccp = {"pool": 1, "patience": 10**6}
    if name != "none":
        regulariser, own = REGULARISERS[name]
        chain = f"{regulariser}/{chain}"
        loss_settings[regulariser] = {**own, **settings}
    return replace(base, loss=chain, loss_settings=loss_settings, ccp_settings=ccp)


def setting(call: Call) -> TrainConfig:
    """The text's training of BN-Inception on CUB, or a linear map on top of a small network that learned symbols."""
    common: dict[str, Any] = {"optimizer": "adamw", "score": "r@1", "pooling": "gap", "images_per_class": 2}
    if call.scale == "paper":
        return TrainConfig(
            "cub",
            call.data_root,
            validate_on="fold",
            backbone="bn_inception",
            weights="pretrained",
            dim=512,
            lr=1e-4,
            classes_per_batch=64,
            steps=1840,  # 40 epochs
            validate_every=46,
            patience=40,
            **common,
        )
    network: dict[str, Any] = {**SMALL, "augment": "shift", "flip": 0.0, "device": "cpu"}
    symbols = pretraining(call, {"per_class": call.pick(4, 60, None), "classes": 5}, network)
    return TrainConfig(
        "glyphs",
        data_settings=call.pick({"per_class": 4, "classes": 40}, {"per_class": 10}, None),
        weights=str(pretrained(symbols, call.work)),
        freeze="all",
        cache=str(call.work / "features"),
        dim=128,
        lr=1e-3,
        classes_per_batch=call.pick(8, 32, None),
        steps=call.pick(2, 400, None),
        validate_every=call.pick(2, 100, None),
        patience=100,
        **common,
        **{**network, "augment": "none"},
    )
