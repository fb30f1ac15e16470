"""Settings of the published protocols, per dataset, loss and backbone; whatever the user writes wins over them.

fair          four folds of the training classes, 128-D, constant learning rate (Musgrave et al. 2020)
tuning        one fifth of the training classes held out (one third for CCP), otherwise as fair
conventional  all training classes, 512-D, the model selected on the test classes: old practice, not a fair estimate
"""

from typing import Any, NamedTuple

from sumpool.ops.similarity import Norm
from sumpool.registry import lookup

# Losses that compare images with learned class proxies; CCP's proxies stand in for images and do not count.
PROXY_LOSSES = ("original_proxy_nca", "proxy_nca", "proxy_anchor", "soft_triple", "normalized_softmax")
GSP_POOLINGS = ("gsp", "gmp+gsp", "gem+gsp")

COMMON: dict[str, Any] = {
    "weights": "pretrained",
    "freeze_batchnorm": True,
    "optimizer": "adam",
    "betas": (0.9, 0.999),
    "clip_norm": 10.0,
    "min_delta": 1e-5,
    "augment": "crop",
    "crop_area": (0.0244140625, 1.0),  # sides from 40 to 256 of a short side of 256
    "flip": 0.5,
    "steps": 1_000_000,  # a ceiling: the patience is used up long before
}
FAIR = COMMON | {
    "validate_on": "fold",
    "folds": 4,
    "backbone": "bn_inception",
    "dim": 128,
    "lr": 1e-5,
    "weight_decay": 1e-4,
    "classes_per_batch": 8,
    "images_per_class": 4,
    "score": "map@r",
}
CONVENTIONAL = COMMON | {
    "validate_on": "test",
    "backbone": "bn_inception",
    "dim": 512,
    "lr": 1e-4,
    "weight_decay": 1e-4,
    "classes_per_batch": 32,
    "images_per_class": 4,
    "plateau_patience": 4,
    "plateau_factor": 0.5,
    "score": "r@1",
}
PROTOCOLS = {"fair": FAIR, "tuning": FAIR | {"folds": 5, "fold": 4}, "conventional": CONVENTIONAL}


class Pace(NamedTuple):
    """When a model is validated, and how often without improvement before training stops."""

    validate_every: int
    patience: int


# The texts give no patience for the conventional protocol; that of CCP, which has the same pace, is used.
OFTEN, SELDOM = Pace(25, 60), Pace(250, 60)
PACES = {
    "fair": {"cub": Pace(100, 15), "cars": Pace(100, 15), "inshop": Pace(1000, 10), "sop": Pace(1000, 10)},
    "often": {"cub": OFTEN, "cars": OFTEN, "inshop": SELDOM, "sop": SELDOM},
}
PROTOTYPES = {"cub": 64, "cars": 64, "inshop": 128, "sop": 128}


def protocol_settings(
    protocol: str, dataset: str, loss: str, pooling: str, backbone: str | None = None
) -> dict[str, Any]:
    """The settings of a run under a protocol.

    >>> settings = protocol_settings("fair", "cub", "zsr/proxy_anchor", "gsp")
    >>> settings["classes_per_batch"], settings["images_per_class"], settings["warmup"]
    (32, 1, 100)
    """
    settings = dict(lookup("protocol", PROTOCOLS, protocol), preset=dataset)
    names = loss.split("/")
    proxies, ccp = names[-1] in PROXY_LOSSES, "ccp" in names
    prototypes = lookup("dataset with published settings", PROTOTYPES, dataset)
    settings |= PACES["often" if ccp or protocol == "conventional" else "fair"][dataset]._asdict()
    if protocol == "conventional":
        settings |= _conventional(dataset, backbone or settings["backbone"])
    if ccp:
        settings |= norm_settings("lipschitz", loss) | ({"folds": 3, "fold": 2} if protocol == "tuning" else {})
    if proxies:
        # The first epoch, which is what lies between two validations, trains only the head and the proxies.
        settings |= {"classes_per_batch": 32, "images_per_class": 1, "warmup": settings["validate_every"]}
        settings |= {"lr": 5e-6} if dataset == "sop" else {}
    if pooling in GSP_POOLINGS:
        settings["pooling_settings"] = {"prototypes": prototypes, "mass": 0.3, "sharpness": 0.5 if proxies else 5.0}
    return settings


def norm_settings(norm: Norm, loss: str) -> dict[str, Any]:
    """One norm for the model, its pair loss and its scores: the length that the Lipschitz norm keeps counts in both."""
    distance = "cosine" if norm == "unit" else "euclidean"
    return {"normalize": norm, "distance": distance, "loss_settings": {loss.split("/")[-1]: {"norm": norm}}}


def _conventional(dataset: str, backbone: str) -> dict[str, Any]:
    """What the conventional protocol changes for CUB and for ResNet50."""
    settings: dict[str, Any] = {"lr": 1e-5} if dataset == "cub" else {}
    return settings | ({"classes_per_batch": 28, "weight_decay": 4e-4} if backbone == "resnet50" else {})
