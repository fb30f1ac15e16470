"""Training from cached features: the same run as without, and a cache that notices every change."""

import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from sumpool.backbones import create_backbone
from sumpool.data import Draw
from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.training.config import TrainConfig, to_yaml
from sumpool.training.feature_store import FEATURES, ROWS, FeatureStore, stamp
from sumpool.training.features import FeatureSet, cached
from sumpool.training.loop import Training
from sumpool.training.processes import Processes
from sumpool.training.run import BEST, Run

ALONE = Processes(0, 1, torch.device("cpu"))
SETTINGS: dict[str, Any] = {
    "backbone": "tiny",
    "freeze": "all",
    "pooling_settings": {"prototypes": 4, "memory": 20},
    "dim": 8,
    "augment": "none",
    "lr": 1e-2,
    "classes_per_batch": 2,
    "images_per_class": 3,
    "steps": 12,
    "validate_every": 4,
}


def training(folder: Path, dataset: str = "toy", **changes: Any) -> Training:
    config = TrainConfig(dataset, **{**SETTINGS, **changes})
    run = Run(folder)
    run.create(to_yaml(config))
    return Training(config, run, ALONE)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images' features were written by each call."""
    counts: list[int] = []
    original = FeatureStore.write

    def counting(store: FeatureStore, images: Any, view: int, features: Any) -> None:
        counts.append(len(images))
        original(store, images, view, features)

    monkeypatch.setattr(FeatureStore, "write", counting)
    return counts


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of 4 classes with 10 image files each."""
    rng = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "pictures" / f"class{number % 4}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), np.uint8)).save(path)
    return tmp_path / "pictures"


def entries(cache: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(cache.glob(f"*/{FEATURES}")))


@pytest.mark.parametrize("changes", [{}, {"chunk": 4, "ema": 0.5}, {"loss": "ccp/contrastive"}], ids=str)
def test_the_run_is_the_same_with_and_without_cache(tmp_path: Path, changes: dict[str, Any]) -> None:
    plain = training(tmp_path / "plain", **changes)
    cached = training(tmp_path / "cached", cache=str(tmp_path / "cache"), **changes)
    for run in (plain, cached):
        run.fit()
    before, after = ([e["map@r"] for e in run.run.entries()] for run in (plain, cached))
    assert len(before) == 3
    assert after == pytest.approx(before, abs=1e-6)
    ours = cached.embedder.state_dict()
    for name, theirs in plain.embedder.state_dict().items():
        torch.testing.assert_close(ours[name], theirs, rtol=0, atol=1e-6, msg=name)


def test_the_saved_model_is_complete(tmp_path: Path) -> None:
    run = training(tmp_path / "run", cache=str(tmp_path / "cache"))
    run.fit()
    model = Embedder.load(tmp_path / "run" / BEST)
    assert type(model) is Embedder
    plain = training(tmp_path / "plain").data.validation
    for row in (0, 5):
        image, features = plain[row][0], run.data.validation[row][0]
        torch.testing.assert_close(model.embed(image[None]), run.embedder.embed(features[None]))


def test_features_are_computed_once(tmp_path: Path, written: list[int]) -> None:
    cache = str(tmp_path / "cache")
    training(tmp_path / "a", cache=cache)
    assert sum(written) == 64
    training(tmp_path / "b", cache=cache)
    training(tmp_path / "c", cache=cache, pooling="gap", pooling_settings={}, loss="triplet")
    assert sum(written) == 64


def test_runs_side_by_side_take_turns(tmp_path: Path, written: list[int]) -> None:
    plain = training(tmp_path / "plain")
    config = TrainConfig("toy", **SETTINGS, cache=str(tmp_path / "cache"))

    # One network for all: threads share torch's random numbers, so that each would draw other weights.
    def fill(_: int) -> list[FeatureSet]:
        return cached(config, plain.embedder.backbone, plain.data, (1, 1), ALONE)

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(fill, range(3)))
    assert sum(written) == 64
    for first, *others in zip(*runs, strict=True):
        for other in others:
            torch.testing.assert_close(other[5][0], first[5][0], rtol=0, atol=0)


def test_other_weights_sizes_and_precisions_are_computed_anew(tmp_path: Path, written: list[int]) -> None:
    cache = str(tmp_path / "cache")
    weights = create_backbone("tiny").state_dict()
    save_file({name: value + 0.01 for name, value in weights.items()}, tmp_path / "w.safetensors")
    changes: list[dict[str, Any]] = [{}, {"seed": 1}, {"weights": str(tmp_path / "w.safetensors")}]
    changes += [{"cache_dtype": "float16"}, {"backbone_settings": {"channels": 16}}]
    for number, change in enumerate(changes):
        training(tmp_path / str(number), cache=cache, **change)
        assert sum(written) == 64 * (number + 1), change
    assert len(list(entries(tmp_path / "cache"))) == 2 * len(changes)


def test_a_changed_file_is_computed_anew(tmp_path: Path, pictures: Path, written: list[int]) -> None:
    settings: dict[str, Any] = {"cache": str(tmp_path / "cache"), "dataset": str(pictures), "validate_on": "test"}
    before = training(tmp_path / "a", **settings).data.train
    kept = [before[row][0].clone() for row in range(len(before))]
    total = sum(written)
    Image.new("RGB", (30, 30), "red").save(before.records[3].name)
    after = training(tmp_path / "b", **settings).data.train
    assert sum(written) == total + 1
    assert [row for row, features in enumerate(kept) if not torch.equal(after[row][0], features)] == [3]
    fresh = training(tmp_path / "c", **{**settings, "cache": str(tmp_path / "other")}).data.train
    torch.testing.assert_close(after[3][0], fresh[3][0], rtol=0, atol=1e-6)


def test_stamps_tell_images_apart(tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    stamps = [stamp(source) for source in (pixels, pixels.T, pixels + 1, (pixels, pixels), (pixels,) * 4)]
    assert len(set(stamps)) == len(stamps)
    assert stamp(pixels.copy()) == stamps[0]
    assert stamp(tmp_path / "nothing.png") == 0


def test_damage_is_noticed(tmp_path: Path, written: list[int]) -> None:
    cache = tmp_path / "cache"
    truth = training(tmp_path / "a", cache=str(cache)).data.train
    total, expected = sum(written), [truth[row][0].clone() for row in range(len(truth))]
    first, second = entries(cache)
    for folder in (first, second):
        with open(folder / FEATURES, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
    again = training(tmp_path / "b", cache=str(cache)).data.train
    assert sum(written) == total + 2  # the damaged image of each entry
    for name in (FEATURES, ROWS):
        os.truncate(first / name, 50)
        os.truncate(second / name, 50)
        again = training(tmp_path / name, cache=str(cache)).data.train
        assert all(torch.equal(again[row][0], features) for row, features in enumerate(expected))
    assert sum(written) == 3 * total + 2


FLAGS = ["toy", "--pooling_settings.prototypes", "4", "--pooling_settings.memory", "20", "--dim", "8", "--lr", "1e-2"]
FLAGS += ["--backbone", "tiny", "--freeze", "all", "--augment", "none", "--classes_per_batch", "2"]
FLAGS += ["--images_per_class", "3", "--steps", "12", "--validate_every", "4"]
KILLED = """
import os, signal, sys
from zlib import crc32
from sumpool.cli import main
from sumpool.training import feature_store, features
features.BATCH = 8
calls = 0
def dying(row):
    global calls
    calls += 1
    if calls == 20:  # features of the third batch are in the file, their stamps are not
        os.kill(os.getpid(), signal.SIGKILL)
    return crc32(row)
feature_store.crc32 = dying
sys.exit(main(sys.argv[1:]))
"""


def test_killed_in_the_middle_it_continues(tmp_path: Path, written: list[int]) -> None:
    command = [sys.executable, "-c", KILLED, "train", *FLAGS, "--cache", str(tmp_path / "cache")]
    ended = subprocess.run([*command, "--out", str(tmp_path / "killed")], capture_output=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    continued = training(tmp_path / "continued", cache=str(tmp_path / "cache"))
    assert sum(written) == 64 - 16
    fresh = training(tmp_path / "fresh", cache=str(tmp_path / "other"))
    for ours, theirs in zip(continued.data, fresh.data, strict=True):
        for row in range(len(theirs)):
            torch.testing.assert_close(ours[row][0], theirs[row][0], rtol=0, atol=1e-6)


def test_two_processes_share_the_work_and_train_as_one(tmp_path: Path, written: list[int]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "sumpool", "train", *FLAGS, "--cache", str(tmp_path / "cache")]
    command += ["--out", str(tmp_path / "pair")]
    pair = [subprocess.Popen(command, env=os.environ | place | {"RANK": rank}) for rank in "01"]
    assert [process.wait(timeout=300) for process in pair] == [0, 0]
    alone = training(tmp_path / "alone", cache=str(tmp_path / "cache"))
    assert written == []
    alone.fit()
    ours, theirs = (load_file(tmp_path / name / BEST / "model.safetensors") for name in ("pair", "alone"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_views_are_augmented_and_repeatable(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"augment": "shift", "cache_views": 3}
    one, two = (training(tmp_path / name, cache=str(tmp_path / f"{name} cache"), **settings) for name in "ab")
    source = one.data.train.records[0].source
    assert isinstance(source, np.ndarray)
    assert source.shape[0] == 3
    assert not np.array_equal(source[0], source[1])
    draws = [Draw(0, epoch, position) for epoch in range(2) for position in range(20)]
    seen = [one.data.train[draw][0] for draw in draws]
    assert all(torch.equal(features, two.data.train[draw][0]) for features, draw in zip(seen, draws, strict=True))
    assert {int(np.abs(source - features.numpy()).sum((1, 2, 3)).argmin()) for features in seen} == {0, 1, 2}
    assert all(record.source.shape[0] == 1 for record in one.data.validation.records)  # type: ignore[union-attr]


def test_half_precision_halves_the_size(tmp_path: Path) -> None:
    full, half = (
        training(tmp_path / name, cache=str(tmp_path / f"{name} cache"), cache_dtype=name)
        for name in ("float32", "float16")
    )
    sizes = [sum((e / FEATURES).stat().st_size for e in entries(tmp_path / f"float{n} cache")) for n in (32, 16)]
    assert sizes[0] == 2 * sizes[1]
    assert half.data.train[0][0].dtype == torch.float32
    torch.testing.assert_close(half.data.train[0][0], full.data.train[0][0], rtol=1e-3, atol=1e-3)


def test_values_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, {}, [1], 1, (2,), "float16")
    store.reserve()
    with pytest.raises(InputError, match="cache_dtype float32"), np.errstate(over="ignore"):
        store.write(np.array([0]), 0, np.array([[1.0, 1e6]]))


def test_too_large_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"take 3.35e-05 GB, more than cache_gb 1e-05"):
        training(tmp_path / "a", cache=str(tmp_path / "cache"), cache_gb=1e-5)
    full = type("usage", (), {"free": 1000})
    monkeypatch.setattr("sumpool.training.feature_store.shutil.disk_usage", lambda path: full)
    with pytest.raises(InputError, match=r"the disk of .* has 1e-06 GB"):
        training(tmp_path / "b", cache=str(tmp_path / "cache"))
    assert not list(entries(tmp_path / "cache"))


def test_the_longest_unused_entries_make_room(tmp_path: Path) -> None:
    cache, bound = tmp_path / "cache", 80e-6  # two runs of 33.5 kB fit, three do not
    (cache / "mine").mkdir(parents=True)
    (cache / "mine" / "notes.txt").write_text("not part of the cache")
    folders: list[set[Path]] = []
    for seed in (0, 1, 0, 2):
        training(tmp_path / f"{len(folders)}", cache=str(cache), cache_gb=bound, seed=seed)
        folders.append(set(entries(cache)))
    assert [len(found) for found in folders] == [2, 4, 4, 4]
    assert folders[0] < folders[3]
    assert (cache / "mine" / "notes.txt").exists()


def test_unreadable_images_are_named_or_skipped(tmp_path: Path, pictures: Path) -> None:
    settings: dict[str, Any] = {"cache": str(tmp_path / "cache"), "dataset": str(pictures), "validate_on": "test"}
    broken = next(pictures.glob("class0/*.png"))
    broken.write_bytes(b"no image")
    with pytest.raises(InputError, match=broken.name):
        training(tmp_path / "a", **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = training(tmp_path / "b", bad_images="skip", **settings)
        run.fit()
    assert any(broken.name in str(warning.message) for warning in caught)
    row = next(row for row, record in enumerate(run.data.train.records) if record.name == str(broken))
    with pytest.raises(InputError, match="no features in the cache"):
        run.data.train[row]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"freeze": 2}, "use freeze all, got 2"),
        ({"cache_views": 3}, "augment none has one view"),
        ({"cache_views": -1}, "cache_views must be at least 0"),
    ],
)
def test_impossible_settings_say_so(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainConfig("toy", **{**SETTINGS, "cache": "somewhere", **settings})


def test_features_do_not_depend_on_the_precision_of_the_training(tmp_path: Path, written: list[int]) -> None:
    training(tmp_path / "half", cache=str(tmp_path / "cache"), precision="bf16")
    assert written
    written.clear()
    training(tmp_path / "full", cache=str(tmp_path / "cache"))
    assert not written
