"""Zero-shot attributes: the linear map transfers exactly when attributes and embeddings are linearly related."""

import numpy as np
import pytest
import torch

from sumpool.studies.zero_shot_attributes import MEASURES, transfer, verdict


def made(classes: int, attributes: int, dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.rand(classes, attributes, generator=generator).double()
    return z, torch.randn(classes, dim, generator=generator).double()


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_linearly_related_attributes_transfer_to_every_class(distance: str) -> None:
    attributes, _ = made(10, 3, 16)
    means = attributes @ made(3, 1, 16)[1]
    assert transfer(attributes, means, 1e-9, distance, splits=50).tolist() == [1.0] * 10


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_unrelated_attributes_are_right_by_chance(distance: str) -> None:
    found = [transfer(*made(10, 8, 16, seed), 0.05, distance, splits=100).mean() for seed in range(8)]
    assert np.mean(found) == pytest.approx(0.2, abs=0.06)


def test_a_prediction_competes_only_with_the_classes_of_its_half() -> None:
    attributes = torch.tensor([[1.0], [1.0]]).double()
    assert transfer(attributes, torch.eye(2).double(), 1e-6, "euclidean", splits=3).tolist() == [1.0, 1.0]


def result(mean: float, low: float) -> dict[str, object]:
    return {"mean": mean, "ci95": [low, 1.0]}


@pytest.mark.parametrize(
    ("mean", "low", "expected"),
    [(0.35, 0.1, "reproduced"), (0.35, -0.1, "not reproduced"), (0.2, 0.1, "partly reproduced")],
)
def test_the_verdict_is_about_the_ridge_of_the_loss(mean: float, low: float, expected: str) -> None:
    gains = {key: result(mean, low) if ridge == 0.05 else result(-0.5, -0.6) for key, (ridge, _) in MEASURES.items()}
    assert verdict({"cifar10": {"difference": gains}})[0] == expected


def test_a_gain_on_another_set_is_a_part_of_the_claim() -> None:
    good, bad = ({"difference": dict.fromkeys(MEASURES, result(mean, mean - 0.1))} for mean in (0.4, -0.2))
    assert verdict({"cifar10": bad, "digits": good})[0] == "partly reproduced"
    assert verdict({"cifar10": good, "digits": bad})[0] == "reproduced"
    assert verdict({"cifar10": bad, "digits": bad})[0] == "not reproduced"
