"""A trial trains, continues or takes what is there; its test embeddings are those of the best model."""

from pathlib import Path

import pytest
import torch

from sumpool.data import load_dataset
from sumpool.embedder import Embedder
from sumpool.evaluation.methods import expand, parse_method
from sumpool.evaluation.trial import Embedded, prepared_test, run_trial
from sumpool.training.config import TrainConfig
from sumpool.training.evaluate import score_dataset
from sumpool.training.loop import METRICS, Training

from .cases import SMALL


def test_the_scores_are_those_of_the_best_model_on_the_test_images(tmp_path: Path) -> None:
    config = TrainConfig("glyphs", **SMALL)
    metrics = run_trial(config, tmp_path / "run").metrics()
    embedder = Embedder.load(tmp_path / "run" / "best")
    expected = score_dataset(embedder, prepared_test(config, embedder), METRICS)
    assert metrics == expected
    assert len(metrics.per_query["map@r"]) == len(load_dataset("glyphs", per_class=4, classes=15).split("test"))


def test_a_complete_trial_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig("glyphs", **SMALL)
    first = run_trial(config, tmp_path / "run")
    monkeypatch.setattr(Training, "fit", lambda self: pytest.fail("trained again"))
    torch.testing.assert_close(run_trial(config, tmp_path / "run").vectors, first.vectors, rtol=0, atol=0)


def test_an_interrupted_trial_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig("glyphs", **SMALL)
    whole = run_trial(config, tmp_path / "whole")
    monkeypatch.setattr(Training, "fit", lambda self: setattr(self, "interrupted", True))
    with pytest.raises(KeyboardInterrupt):
        run_trial(config, tmp_path / "cut")
    monkeypatch.undo()
    assert not (tmp_path / "cut" / "test.safetensors").exists()
    torch.testing.assert_close(run_trial(config, tmp_path / "cut").vectors, whole.vectors, rtol=0, atol=0)


def test_cached_features_give_the_same_test_embeddings(tmp_path: Path) -> None:
    plain = run_trial(TrainConfig("glyphs", **SMALL, freeze="all"), tmp_path / "plain")
    config = TrainConfig("glyphs", **SMALL, freeze="all", cache=str(tmp_path / "cache"))
    torch.testing.assert_close(run_trial(config, tmp_path / "cached").vectors, plain.vectors)


def test_queries_are_searched_in_the_gallery_where_both_exist() -> None:
    vectors, labels = torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 1, 0, 1])
    query, gallery = torch.tensor([True, False, False, False]), torch.tensor([False, True, True, True])
    assert Embedded(vectors, labels, query, gallery).metrics(("p@1",)) == {"p@1": 0.0}
    assert Embedded(vectors, torch.tensor([0, 0, 1, 1]), query, gallery).metrics(("p@1",)) == {"p@1": 1.0}


def test_a_method_with_the_lipschitz_norm_trains_and_ranks_by_it(tmp_path: Path) -> None:
    """Shorter vectors than 1 keep their length in the loss, in the model and in the ranking."""
    small = {name: value for name, value in SMALL.items() if name not in ("pooling", "loss")}
    given = {"dataset": "glyphs", "weights": None, "warmup": 0, "validate_on": "auto", **small}
    with_l, without = (expand(parse_method(name), "fair", given) for name in ("C2+L", "C2"))
    found = run_trial(TrainConfig.from_dict(with_l), tmp_path / "with")
    plain = run_trial(TrainConfig.from_dict(without), tmp_path / "without")
    lengths = found.vectors.norm(dim=1)
    assert lengths.max() <= 1 + 1e-6
    assert lengths.min() < 0.99
    assert not torch.allclose(torch.nn.functional.normalize(found.vectors), plain.vectors, atol=1e-3)
    assert found.metrics(METRICS, with_l["distance"]) != found.metrics(METRICS, "cosine")
