"""The numbers of the published protocols, spot-checked against the texts."""

import inspect
from typing import Any

import pytest

from sumpool.errors import InputError
from sumpool.losses import LOSSES, PRESETS, ProxyLoss
from sumpool.pooling import POOLINGS
from sumpool.training.config import TrainConfig
from sumpool.training.presets import GSP_POOLINGS, PROTOCOLS, PROXY_LOSSES, protocol_settings

DATASETS = ("cub", "cars", "inshop", "sop")


def settings(protocol: str, dataset: str, loss: str = "zsr/contrastive", **more: str) -> dict[str, Any]:
    return protocol_settings(protocol, dataset, loss, **{"pooling": "gsp", **more})


def chosen(values: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(values[name] for name in names)


@pytest.mark.parametrize("loss", ["zsr/contrastive", "proxy_anchor", "ccp/triplet", "zsr/xbm/original_contrastive"])
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_combination_is_a_configuration(protocol: str, dataset: str, loss: str) -> None:
    config = TrainConfig.from_dict({"dataset": dataset, "loss": loss, **settings(protocol, dataset, loss)})
    assert config.preset == dataset


def test_fair() -> None:
    values = settings("fair", "cub")
    assert chosen(values, "optimizer", "lr", "weight_decay", "betas") == ("adam", 1e-5, 1e-4, (0.9, 0.999))
    assert chosen(values, "validate_on", "folds", "dim", "score") == ("fold", 4, 128, "map@r")
    assert chosen(values, "classes_per_batch", "images_per_class", "freeze_batchnorm") == (8, 4, True)
    pace = [chosen(settings("fair", name), "validate_every", "patience") for name in DATASETS]
    assert pace == [(100, 15), (100, 15), (1000, 10), (1000, 10)]


def test_conventional() -> None:
    values = settings("conventional", "cars", backbone="bn_inception")
    assert chosen(values, "validate_on", "score", "dim", "plateau_patience") == ("test", "r@1", 512, 4)
    assert chosen(values, "classes_per_batch", "images_per_class", "weight_decay") == (32, 4, 1e-4)
    other = settings("conventional", "cars", backbone="resnet50")
    assert chosen(other, "classes_per_batch", "images_per_class", "weight_decay") == (28, 4, 4e-4)
    assert [settings("conventional", name)["lr"] for name in DATASETS] == [1e-5, 1e-4, 1e-4, 1e-4]
    assert [settings("conventional", name)["validate_every"] for name in DATASETS] == [25, 25, 250, 250]


def test_tuning_holds_out_a_fifth_or_with_ccp_a_third() -> None:
    assert chosen(settings("tuning", "cub"), "folds", "fold") == (5, 4)
    assert chosen(settings("tuning", "cub", "ccp/contrastive"), "folds", "fold") == (3, 2)


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_proxy_losses(loss: str) -> None:
    values = settings("fair", "cars", f"zsr/{loss}")
    assert chosen(values, "classes_per_batch", "images_per_class", "warmup", "lr") == (32, 1, 100, 1e-5)
    assert settings("fair", "sop", loss)["lr"] == 5e-6
    assert values["pooling_settings"]["sharpness"] == 0.5


def test_gsp() -> None:
    pools = [settings("fair", name)["pooling_settings"] for name in DATASETS]
    assert [pool["prototypes"] for pool in pools] == [64, 64, 128, 128]
    assert {(pool["mass"], pool["sharpness"]) for pool in pools} == {(0.3, 5.0)}
    assert "pooling_settings" not in settings("fair", "cub", pooling="gem")


def test_ccp() -> None:
    pace = [chosen(settings("fair", name, "ccp/contrastive"), "validate_every", "patience") for name in DATASETS]
    assert pace == [(25, 60), (25, 60), (250, 60), (250, 60)]
    values = settings("fair", "cub", "ccp/contrastive")
    assert chosen(values, "normalize", "classes_per_batch", "images_per_class") == ("lipschitz", 8, 4)
    assert (values["distance"], values["loss_settings"]) == ("euclidean", {"contrastive": {"norm": "lipschitz"}})
    assert values["pooling_settings"]["sharpness"] == 5.0


def test_the_names_are_those_of_the_tables() -> None:
    assert set(PROXY_LOSSES) == {name for name, loss in LOSSES.items() if issubclass(loss, ProxyLoss)}
    taking = {name for name, pool in POOLINGS.items() if "sharpness" in inspect.signature(pool).parameters}
    assert set(GSP_POOLINGS) == {name for name in taking if "mass" in inspect.signature(POOLINGS[name]).parameters}
    assert set(DATASETS) == set(PRESETS)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown protocol 'fiar': did you mean 'fair'"):
        settings("fiar", "cub")
    with pytest.raises(InputError, match="'car': did you mean 'cars'"):
        settings("fair", "car")
