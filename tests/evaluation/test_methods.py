"""The methods of the papers expand to the published settings of every dataset."""

import csv
from importlib.resources import files
from typing import Any

import pytest
from torch import nn

from sumpool.cli import main
from sumpool.errors import InputError
from sumpool.evaluation.methods import METHODS, POOLING_NAMES, applicable, expand, parse_method
from sumpool.losses import Memory, Proxies, create_objective
from sumpool.pooling import create_pooling
from sumpool.training.ccp import POOLS
from sumpool.training.config import TrainConfig

DATASETS = ("cub", "cars", "inshop", "sop")
# Loss settings per dataset (CUB, Cars, In-shop, SOP), as the texts give them.
LOSSES: dict[str, dict[str, tuple[float, ...]]] = {
    "C1": {"margin": (0.5, 0.5, 0.5, 0.5)},
    "C2": {"positive_margin": (0, 0.2652, 0.2858, 0.2858), "negative_margin": (0.3841, 0.5409, 0.5130, 0.5130)},
    "Triplet": {"margin": (0.0961, 0.1190, 0.0451, 0.0451)},
    "MS": {"alpha": (2, 14.35, 8.49, 2), "beta": (40, 75.83, 57.38, 40), "base": (0.5, 0.66, 0.41, 0.5)},
    "PAnchor": {"margin": (0.1, 0.1, 0.1, 0.1), "scale": (32, 32, 32, 32)},
    "PNCA": {"temperature": (0.11, 0.11, 0.11, 0.11)},
    "SoftTriple": {
        "scale": (20, 17.69, 20, 100),
        "temperature": (0.1, 19.18, 0.1, 47.9),
        "spread": (0.2, 0.0669, 0.2, 0.2),
        "margin": (0.01, 0.3588, 0.01, 0.3145),
    },
}
# Settings of a training, in the fair protocol.
TRAININGS: dict[str, dict[str, tuple[Any, ...]]] = {
    "C2": {
        "classes_per_batch": (8, 8, 8, 8),
        "images_per_class": (4, 4, 4, 4),
        "validate_every": (100, 100, 1000, 1000),
        "patience": (15, 15, 10, 10),
        "lr": (1e-5, 1e-5, 1e-5, 1e-5),
        "dim": (128, 128, 128, 128),
        "normalize": ("unit", "unit", "unit", "unit"),
        "pooling": ("gap", "gap", "gap", "gap"),
    },
    "PAnchor": {
        "classes_per_batch": (32, 32, 32, 32),
        "images_per_class": (1, 1, 1, 1),
        "warmup": (100, 100, 1000, 1000),
        "lr": (1e-5, 1e-5, 1e-5, 5e-6),
    },
    "C1+CCP-L": {
        "validate_every": (25, 25, 250, 250),
        "patience": (60, 60, 60, 60),
        "normalize": ("lipschitz", "lipschitz", "lipschitz", "lipschitz"),
        "distance": ("euclidean", "euclidean", "euclidean", "euclidean"),
    },
    "C1+CCP": {"validate_every": (25, 25, 250, 250), "normalize": ("unit",) * 4, "distance": ("cosine",) * 4},
    "C1+XBM+L": {
        "validate_every": (100, 100, 1000, 1000),
        "normalize": ("lipschitz",) * 4,
        "distance": ("euclidean",) * 4,
    },
    "OTP-64x128": {"dim": (8192, 8192, 8192, 8192)},
}
# Settings of a pooling: m, μ, ε.
POOLINGS: dict[str, dict[str, tuple[float, ...]]] = {
    "C2+GSP": {"prototypes": (64, 64, 128, 128), "mass": (0.3,) * 4, "sharpness": (5,) * 4},
    "C1+CCP+GSP": {"prototypes": (64, 64, 128, 128), "mass": (0.3,) * 4, "sharpness": (5,) * 4},
    "PNCA+GSP": {"prototypes": (64, 64, 128, 128), "mass": (0.3,) * 4, "sharpness": (0.5,) * 4},
    "PAnchor+GeMean+GSP": {"prototypes": (64, 64, 128, 128), "sharpness": (0.5,) * 4},
    "OTP": {"prototypes": (8,) * 4},
    "NetVLAD": {"prototypes": (8,) * 4},
    "NetVLAD-64x128": {"prototypes": (64,) * 4},
}


def config(name: str, dataset: str = "cub", protocol: str = "fair", **given: Any) -> TrainConfig:
    return TrainConfig.from_dict(expand(parse_method(name), protocol, {"dataset": dataset, **given}))


def objective(found: TrainConfig) -> list[tuple[str, float, Any]]:
    built = create_objective(found.loss, 4, found.dim, preset=found.preset, settings=found.loss_settings)
    return [(term.name, term.weight, term.loss) for term in built.terms]


def innermost(loss: Any) -> nn.Module:
    while isinstance(loss, Memory | Proxies):
        loss = loss.loss
    assert isinstance(loss, nn.Module)
    return loss


@pytest.mark.parametrize("more", ["", "+GSP", "+XBM", "+CCP", "+XBM+L", "+CCP-L+GSP"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_have_their_published_parameters(loss: str, more: str) -> None:
    if loss in ("PAnchor", "PNCA", "SoftTriple") and ("XBM" in more or "CCP" in more):
        with pytest.raises(InputError, match="no pairs"):
            parse_method(loss + more)
        return
    losses = [innermost(objective(config(loss + more, dataset))[0][2]) for dataset in DATASETS]
    assert {name: tuple(getattr(found, name) for found in losses) for name in LOSSES[loss]} == LOSSES[loss]


@pytest.mark.parametrize("name", ["C2+XBM+L", "MS+CCP-L+GSP", "Triplet+L"])
def test_the_lipschitz_norm_reaches_model_loss_and_scores(name: str) -> None:
    """The three must agree: unit vectors in the loss, or cosines in the ranking, would undo it."""
    found = config(name)
    assert (found.normalize, found.distance) == ("lipschitz", "euclidean")
    assert innermost(objective(found)[0][2]).norm == "lipschitz"
    plain = config(name.replace("-L", "").replace("+L", ""))
    assert (plain.normalize, plain.distance) == ("unit", "cosine")
    assert innermost(objective(plain)[0][2]).norm == "unit"


def test_the_lipschitz_norm_is_refused_where_it_has_no_effect() -> None:
    with pytest.raises(InputError, match="'PNCA\\+L': the Lipschitz norm is for losses over pairs, PNCA"):
        parse_method("PNCA+L")


@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_have_their_published_settings(name: str) -> None:
    found = [config(name, dataset) for dataset in DATASETS]
    assert {key: tuple(getattr(one, key) for one in found) for key in TRAININGS[name]} == TRAININGS[name]


@pytest.mark.parametrize("name", POOLINGS)
def test_poolings_have_their_published_settings(name: str) -> None:
    found = [config(name, dataset).pooling_settings for dataset in DATASETS]
    assert {key: tuple(one[key] for one in found) for key in POOLINGS[name]} == POOLINGS[name]


def test_memory_and_proxies() -> None:
    memories = [objective(config("C1+XBM", dataset))[0][2] for dataset in DATASETS]
    assert [(memory.batches, memory.start) for memory in memories] == [
        (25, 1000),
        (25, 1000),
        (400, 1000),
        (1400, 1000),
    ]
    ccp = [objective(config("MS+CCP-L", dataset))[0][2] for dataset in DATASETS]
    assert [found.proxies.vectors.shape[1] for found in ccp] == [8, 8, 4, 4]
    assert [POOLS[str(config("MS+CCP", dataset).preset)] for dataset in DATASETS] == [12, 12, 7, 7]
    centres = [objective(config("SoftTriple", dataset))[0][2] for dataset in DATASETS]
    assert [found.proxies.vectors.shape[1] for found in centres] == [10, 10, 4, 4]


@pytest.mark.parametrize(
    ("name", "terms", "pooling"),
    [
        ("C2", {"contrastive": 1.0}, "gap"),
        ("C2+GSP-ZS", {"contrastive": 1.0}, "gsp"),
        ("C2+ZS", {"contrastive": 0.9, "zsr": 0.1}, "gap_attributes"),
        ("C2+GSP", {"contrastive": 0.9, "zsr": 0.1}, "gsp"),
    ],
)
def test_with_and_without_zero_shot_prediction_and_gsp(name: str, terms: dict[str, float], pooling: str) -> None:
    found = config(name)
    assert {term: weight for term, weight, _ in objective(found)} == pytest.approx(terms)
    assert found.pooling == pooling


@pytest.mark.parametrize("name", sorted({*METHODS, *POOLING_NAMES}))
@pytest.mark.parametrize("protocol", ["fair", "tuning", "conventional"])
def test_every_named_method_can_be_built(protocol: str, name: str) -> None:
    found = config(name, "cars", protocol)
    assert objective(found)
    assert create_pooling(found.pooling, 16, found.dim, **found.pooling_settings).out_features == found.dim


def test_every_published_row_has_a_method() -> None:
    folder = files("sumpool.evaluation") / "published"
    names = {row["method"] for file in folder.iterdir() for row in csv.DictReader(file.read_text().splitlines())}
    assert len(names) > 20
    assert {parse_method(name).name for name in names} == names


def test_names_may_be_written_in_lower_case() -> None:
    assert parse_method("proxynca+++t-smk") == ("ProxyNCA+++T-SMK", "proxy_nca", "tsmk", {"normalize": "unit"})
    assert parse_method("delf")[1:] == parse_method("C2+DeLF")[1:]
    assert parse_method("SoftTriplet-S/L").slug == "SoftTriplet-S-L"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("C2+GSSP", "unknown part 'GSSP' of method 'C2\\+GSSP': did you mean 'gsp'"),
        ("tripplet", "did you mean 'triplet'"),
        ("GSP+C2", "a loss, then XBM, CCP or L, then a pooling"),
        ("C1+C2", "a loss, then"),
        ("", "a loss, then"),
        ("PNCA+XBM", "no pairs for xbm"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_method(name)


def test_given_settings_win_and_reach_only_methods_that_have_them() -> None:
    given = {
        "lr": 0.1,
        "pooling_settings": {"mass": 0.7},
        "loss_settings": {"xbm": {"start": 3}},
        "ccp_settings": {"pool": 9},
    }
    gsp = config("C2+GSP", **given)
    assert (gsp.lr, gsp.pooling_settings, gsp.loss_settings) == (
        0.1,
        {"prototypes": 64, "mass": 0.7, "sharpness": 5.0},
        {"contrastive": {"norm": "unit"}},
    )
    xbm = config("C1+XBM", **given)
    assert (xbm.pooling_settings, xbm.loss_settings["xbm"], xbm.ccp_settings) == ({}, {"start": 3}, {})
    assert applicable(parse_method("C1+CCP"), given)["ccp_settings"] == {"pool": 9}


def test_a_dataset_without_published_settings() -> None:
    plain, borrowed = config("C2+GSP", "photos/"), config("C2+GSP", "photos/", preset="sop")
    assert (plain.preset, plain.validate_on, plain.folds, plain.validate_every) == (None, "fold", 4, 100)
    assert (
        objective(plain)[0][2].negative_margin == objective(TrainConfig("x", loss="contrastive"))[0][2].negative_margin
    )
    assert (borrowed.preset, borrowed.validate_every, borrowed.pooling_settings["prototypes"]) == ("sop", 1000, 128)
    with pytest.raises(InputError, match="preset 'cup' has no published settings: did you mean 'cub'"):
        config("C2", "photos/", preset="cup")


def test_the_conventional_protocol_depends_on_the_backbone() -> None:
    found = config("C1+XBM+GSP", "cars", "conventional", backbone="resnet50", dim=128)
    assert (found.validate_on, found.score, found.dim, found.classes_per_batch) == ("test", "r@1", 128, 28)
    assert (found.weight_decay, found.lr, found.validate_every) == (4e-4, 1e-4, 25)


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(METHODS)
    assert any(line.split() == ["MS", "multi-similarity", "loss"] for line in lines)
