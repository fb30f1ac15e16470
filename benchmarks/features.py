"""Training from cached features against computing the features of a frozen backbone in every step.

A step is what `sumpool train` does in one: load a batch of 32, pool to 128 dimensions, contrastive loss, backward and
Adam; without the cache also decoding JPEG files of 500×375 pixels and the backbone's forward pass. EfficientNet-Lite0
gives 1280×7×7 features (0.25 MB an image in float32), ResNet-50 2048×8×8 (0.52 MB); weights are random. The cache is in
the memory of the system, as it is from the second epoch on where it fits.

Aim: thousands of images per second on a CPU. What bounds it: with GAP, copying the features into a batch; with GSP,
projecting every local feature, forward and for the gradient of the projection (32 MFLOP an image for EfficientNet-Lite0
and 67 for ResNet-50), which runs at the speed of a matrix product, takes 70 % of the step and keeps ResNet-50 on two
cores below two thousand. float16 halves the disk space and is not faster: it is widened on loading.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import photos
from benchmarks.measure import all_threads, median_seconds, threads
from sumpool.training.config import TrainConfig
from sumpool.training.loop import Training
from sumpool.training.processes import Processes
from sumpool.training.run import Run

CLASSES, PER_CLASS, CACHED_STEPS = 16, 16, 10


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder, threads(all_threads()):
        images = labelled(Path(folder))
        return [
            row(Path(folder), images, backbone, pooling)
            for backbone in ("efficientnet_lite0", "resnet50")
            for pooling in ("gap", "gsp")
        ]


def labelled(folder: Path) -> Path:
    """A folder of classes; what the photos show does not matter here."""
    photos(folder / "photos", 500, 375)
    sources = sorted((folder / "photos").iterdir())
    for number in range(CLASSES * PER_CLASS):
        path = folder / "classes" / f"{number % CLASSES:02}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources[number % len(sources)], path)
    return folder / "classes"


def row(folder: Path, images: Path, backbone: str, pooling: str) -> dict[str, object]:
    settings: dict[str, Any] = {"backbone": backbone, "pooling": pooling}
    cached = {**settings, "cache": str(folder / "cache")}
    candidates = {
        "computed": steps(1, folder, images, **settings),
        "cached": steps(CACHED_STEPS, folder, images, **cached),
        "cached, float16": steps(CACHED_STEPS, folder, images, **cached, cache_dtype="float16"),
    }
    seconds = median_seconds(candidates, rounds=5)
    rates = {name: 32 * (1 if name == "computed" else CACHED_STEPS) / taken for name, taken in seconds.items()}
    result: dict[str, object] = {"backbone": backbone, "pooling": pooling, "threads": all_threads()}
    result |= {f"{name}, images/s": f"{rate:.0f}" for name, rate in rates.items()}
    return result | {"cached ÷ computed": f"{rates['cached'] / rates['computed']:.0f}"}


def steps(count: int, folder: Path, images: Path, **settings: Any) -> Callable[[], object]:
    config = TrainConfig(str(images), freeze="all", validate_on="test", augment="none", loss="contrastive", **settings)
    training = Training(config, Run(folder / "run"), Processes(0, 1, torch.device("cpu")))
    training.embedder.train()
    batches = training.batches()
    return lambda: [training.train_on(next(batches)) for _ in range(count)]
