"""Trainable tokens: a table of vectors that stays in its box."""

import pytest
import torch

from sumpool.backbones import create_backbone
from sumpool.errors import InputError


def test_an_id_is_its_vector_whatever_the_number_type() -> None:
    backbone = create_backbone("tokens", tokens=5, channels=3)
    table = next(backbone.parameters())
    ids = torch.tensor([[4, 0], [1, 1]])
    assert torch.equal(backbone(ids), table[ids])
    assert torch.equal(backbone(ids.float()), table[ids])
    assert backbone.out_features == 3


def test_training_stops_at_the_wall_of_the_box_and_can_leave_it_again() -> None:
    backbone = create_backbone("tokens", tokens=2, channels=2, bound=0.3)
    ids = torch.tensor([[0, 1]])
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
    for target, reached in ((1.0, 0.3), (0.1, 0.1)):
        for _ in range(40):
            optimizer.zero_grad()
            (backbone(ids) - target).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(backbone(ids).detach(), torch.full((1, 2, 2), reached), atol=1e-3, rtol=0)


def test_vectors_start_all_over_the_box() -> None:
    table = next(create_backbone("tokens", tokens=400, bound=0.2).parameters())
    assert 0.19 < float(table.detach().abs().max()) <= 0.2
    assert abs(float(table.detach().mean())) < 0.03


def test_impossible_settings() -> None:
    with pytest.raises(InputError, match=r"bound > 0, got 68, 2 and 0\.0"):
        create_backbone("tokens", bound=0.0)
