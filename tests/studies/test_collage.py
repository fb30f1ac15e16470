"""The collage studies: their table, their run folders, what pretraining sees, and what counts as reproduced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumpool.backbones import create_backbone
from sumpool.data.sets.cifar_collage import cifar_collage
from sumpool.embedder import Embedder
from sumpool.losses.chain import parse_chain
from sumpool.pooling import POOLINGS, create_pooling
from sumpool.studies.cifar_collage import GSP, weight_on_class
from sumpool.studies.collage import Plan, every_pooling, judge, main_rows, pretrained, run_folder, training, trials
from sumpool.training.config import TrainConfig


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    base = TrainConfig("glyph-collage", backbone="tiny")
    return Plan(base, {"dataset": "glyphs"}, every_pooling(GSP), 0.5, {"PNCA": {"temperature": 0.2}}, 3, 1, tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A data folder with a CIFAR-100 of 6 random photos a class."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
    labels = np.tile(np.arange(100), 6)
    names = np.array([f"class {number}" for number in range(100)])
    np.savez_compressed(
        tmp_path / "cifar100.npz",
        x_train=images[:500],
        y_train=labels[:500],
        x_test=images[500:],
        y_test=labels[500:],
        fine_names=names,
        fine_to_coarse=np.arange(100) // 5,
    )
    return tmp_path


def test_the_table_has_every_pooling_and_each_can_be_built() -> None:
    rows = every_pooling(GSP)
    assert {row.pooling for row in rows.values()} == set(POOLINGS)
    for row in rows.values():
        assert create_pooling(row.pooling, 64, row.dim, **row.settings).out_features == row.dim
    assert set(main_rows(GSP)) < set(rows)


def test_a_training_is_the_base_with_a_rows_pooling_and_loss(plan: Plan) -> None:
    config = training(plan, "PNCA", "GSP+L_ZS", plan.rows["GSP+L_ZS"], seed=2)
    assert (config.pooling, config.pooling_settings, config.dim, config.seed) == ("gsp", GSP, 128, 2)
    assert parse_chain(config.loss) == ["zsr", "proxy_nca"]
    assert config.loss_settings == {"zsr": {"weight": 0.5}, "proxy_nca": {"temperature": 0.2}}
    alone = training(plan, "C2", "distilled GAP", plan.rows["distilled GAP"], seed=0)
    assert (alone.dataset, alone.pooling, alone.loss) == ("glyphs", "gap", "contrastive")


def test_main_rows_have_more_seeds_and_no_two_trainings_share_a_folder(plan: Plan) -> None:
    found = trials(plan)
    assert (len(found["C2 GSP"]), len(found["PNCA WELDON"])) == (3, 1)
    folders = [folder for some in found.values() for _, folder in some]
    assert len(set(folders)) == len(folders) == 2 * (3 * 4 + 20)


def test_a_changed_configuration_has_another_folder() -> None:
    config = TrainConfig("toy")
    assert run_folder(Path(), "GAP", config) == run_folder(Path(), "GAP", replace(config))
    assert run_folder(Path(), "GAP", config) != run_folder(Path(), "GAP", replace(config, lr=1e-4))


def test_pretraining_ends_in_a_weights_file_and_is_not_repeated(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"classes_per_batch": 2, "steps": 1, "validate_every": 1, "augment": "none", "dim": 4}
    config = TrainConfig(
        "toy", validate_on="test", backbone="tiny", pooling="gap", loss="normalized_softmax", device="cpu", **sizes
    )
    path = pretrained(config, tmp_path)
    written = path.stat().st_mtime_ns
    create_backbone("tiny", weights=path)
    assert pretrained(config, tmp_path) == path
    assert path.stat().st_mtime_ns == written


def test_weight_on_class_finds_the_tile(photos: Path, tmp_path: Path) -> None:
    """Attention to brightness lies on the class tile where nothing else is bright."""
    parts = [cifar_collage(photos, 1, distilled, verify=False).split("test") for distilled in (False, True)]
    collages, alone = ([np.asarray(record.source) for record in part.records] for part in parts)
    lit = [
        np.stack([(tile == one).all() * np.full_like(tile, 255) for tile in tiles])
        for tiles, one in zip(collages, alone, strict=True)
    ]
    bright = parts[0].with_records(
        [r._replace(source=tuple(tiles)) for r, tiles in zip(parts[0].records, lit, strict=True)]
    )
    white = parts[1].with_records(
        [r._replace(source=np.full_like(one, 255)) for r, one in zip(parts[1].records, alone, strict=True)]
    )
    assert weight_on_class(looking_at_bright(tmp_path), bright, white) > 0.9


def looking_at_bright(folder: Path) -> Path:
    """A model whose first channel is brightness, with attention to that channel."""
    embedder = Embedder(create_backbone("tiny"), create_pooling("attention", 32, 8)).eval()
    stages: Any = embedder.backbone.stages
    query: Any = embedder.pooling.query
    with torch.no_grad():
        for stage in stages:
            stage[0].weight.zero_()
            stage[0].weight[0, :, 1, 1] = 1
        query[0] = 100
    embedder.backbone.preprocessing = replace(embedder.backbone.preprocessing, size=64, resize=64)
    embedder.save(folder / "model")
    return folder / "model"


@pytest.mark.parametrize(
    ("gain", "zero_shot", "verdict"),
    [
        ((0.12, 0.08), 0.01, "reproduced"),
        ((0.12, 0.08), -0.01, "partly reproduced"),
        ((0.06, 0.04), 0.01, "partly reproduced"),
        ((0.12, -0.01), 0.01, "not reproduced"),
        ((0.02, -0.01), 0.01, "not reproduced"),
    ],
)
def test_reproduced_means_target_reached_interval_above_zero_and_zero_shot_adding(
    gain: tuple[float, float], zero_shot: float, verdict: str
) -> None:
    differences = {
        "C2 GSP − GAP": {"map@r": {"mean": gain[0], "ci95": [gain[1], 0.2]}},
        "C2 L_ZS": {"map@r": {"mean": zero_shot + 0.01, "ci95": [zero_shot, 0.1]}},
    }
    found, reason = judge(differences, target=0.10)
    assert found == verdict
    assert f"{100 * gain[0]:.1f}" in reason
