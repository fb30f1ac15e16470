"""Tokens: what the study reads from a trained model, on one whose table is written by hand."""

from pathlib import Path

import pytest
import torch

from sumpool.data import load_dataset
from sumpool.embedder import Embedder
from sumpool.studies.base import Call
from sumpool.studies.tokens import BEST, CLASSES, PER_CLASS, Geometry, geometry, trial, verdict
from sumpool.training.setup import create_embedder


def planted(name: str, folder: Path) -> Geometry:
    """Classes on a 4×4 grid with equal tokens, the background in a corner; prototypes on the grid."""
    settings, _ = trial(name, 0.5, 0, Call("smoke", folder))
    embedder: Embedder = create_embedder(settings, load_dataset("tokens"))
    grid = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)) * 0.1 - 0.3
    with torch.no_grad():
        table = torch.cat([grid.repeat_interleave(PER_CLASS, 0), torch.full((4, 2), 0.3)])
        next(embedder.backbone.parameters()).copy_(table)
        if name == "GSP":
            embedder.pooling.prototypes.copy_(grid.repeat_interleave(PER_CLASS, 0))
            embedder.pooling.seen.fill_(embedder.pooling.memory)
    embedder.save(folder / BEST)
    return geometry((settings, folder))


def test_gap_weighs_the_background_by_its_share_of_the_tokens(tmp_path: Path) -> None:
    found = planted("GAP", tmp_path)
    ids = torch.stack([torch.as_tensor(record.source) for record in load_dataset("tokens").split("test").records])
    assert found.background == pytest.approx(float((ids >= CLASSES * PER_CLASS).double().mean()), abs=1e-6)
    assert found.tokens.shape == (68, 2)
    torch.testing.assert_close(found.tokens[-1], torch.tensor([0.3, 0.3]))


def test_gsp_leaves_the_background_out_so_that_samples_lie_on_their_class(tmp_path: Path) -> None:
    found = planted("GSP", tmp_path)
    assert found.background < 0.01
    own = found.tokens[found.labels * PER_CLASS]
    assert float((found.points - own).abs().max()) < 0.01


@pytest.mark.parametrize(
    ("mean", "low", "expected"),
    [(0.7, 0.6, "reproduced"), (0.6, -0.1, "not reproduced"), (0.3, 0.2, "partly reproduced")],
)
def test_the_verdict_needs_fifty_points_and_certainty(mean: float, low: float, expected: str) -> None:
    assert verdict({"0.5": {"mean": mean, "ci95": [low, 1.0]}})[0] == expected
