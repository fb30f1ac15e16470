"""CIFAR collage: which poolings leave out a background that all classes share (figures 5.5 and 5.12 of the thesis).

Command: `sumpool study cifar-collage --data-root DATA --scale cpu --out docs/studies/cifar-collage`.

Claim: GSP is about 17 points of MAP@R above GAP, the zero-shot loss L_ZS adds to it, and GSP is better than 13 other
poolings with C2 and PNCA, except for C2 with NetVLAD.

Setting: 64-px collages of CIFAR-100.

Measured: not yet.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from sumpool.data import CentreCrop, Dataset, load_dataset
from sumpool.data.pack import load_arrays
from sumpool.data.record import Record
from sumpool.data.root import data_root
from sumpool.data.sets.cifar import cifar100
from sumpool.data.sets.cifar_collage import coarse_labels, division
from sumpool.embedder import Embedder
from sumpool.studies.base import Call, Outcome, markdown_table
from sumpool.studies.collage import Plan, every_pooling, main_rows, pretrained, report, trials
from sumpool.training.config import TrainConfig
from sumpool.training.run import BEST

GSP = {"prototypes": 128, "mass": 0.2, "sharpness": 10.0}
PROXIES = {"PNCA": {"lr_multiplier": 10.0}}  # 100, for a learning rate of 1e-5, is too fast at 1e-3


def cifar_collage(call: Call) -> Outcome:
    """CIFAR collage: every pooling with C2 and PNCA on CIFAR-100 images among shared ones (figures 5.5, 5.12)."""
    planned = plan(call)
    outcome = report(call, planned, target=0.10)
    test = load_dataset("cifar-collage", planned.base.data_root, **planned.base.data_settings).split("test")
    alone = load_dataset("cifar-collage", planned.base.data_root, **planned.distilled["data_settings"]).split("test")
    shares = {
        name: {"weight on the class tile": weight_on_class(some[0][1] / BEST, test, alone)}
        for name, some in trials(planned).items()
        if name.split()[1] in ("GAP", "GSP", "GSP+L_ZS")
    }
    rows = [{"method": name, **{key: f"{value:.2f}" for key, value in share.items()}} for name, share in shares.items()]
    body = f"{outcome.body}\n\n{markdown_table(rows)}"
    results = {**outcome.results, **{name: {**outcome.results[name], **share} for name, share in shares.items()}}
    return outcome._replace(results=results, body=body)


@torch.no_grad()
def weight_on_class(folder: Path, collages: Dataset, alone: Dataset, count: int = 320) -> float:
    """Mean pooling weight on the tile that shows the class, over `count` collages; equal weights give 0.25.

    `alone` has the class tiles in the same order, which tells where they are.
    """
    embedder = Embedder.load(folder)
    shown = collages.transformed(CentreCrop(embedder.backbone.preprocessing))
    found: list[float] = []
    for rows in np.array_split(np.linspace(0, len(collages) - 1, min(count, len(collages)), dtype=int), 10):
        pooled = embedder(torch.stack([shown[row][0] for row in rows.tolist()]))
        height, width = pooled.grid
        quarters = pooled.weights.reshape(-1, 2, height // 2, 2, width // 2).sum((2, 4)).flatten(1)
        places = [class_tile(collages.records[row], alone.records[row]) for row in rows.tolist()]
        found += quarters[range(len(places)), places].tolist()
    return float(np.mean(found))


def class_tile(collage: Record, alone: Record) -> int:
    """Which of the four tiles shows the class."""
    tiles, wanted = np.asarray(collage.source), np.asarray(alone.source)
    return int((tiles == wanted).all(axis=(1, 2, 3)).argmax())


def mapped(root: Path, work: Path, most: int = 500) -> Path:
    """A data folder with the CIFAR-100 pack uncompressed, so that a training maps it instead of reading it.

    `most` photos of each class and part are kept; 500 are all.
    """
    place, _ = cifar100.find(root)
    copy = work / "data" / "cifar100.npz"
    if place.suffix != ".npz":
        return root
    if not copy.exists():
        arrays = load_arrays(place)
        for part in ("train", "test"):
            labels = arrays[f"y_{part}"]
            kept = np.sort(np.concatenate([np.flatnonzero(labels == label)[:most] for label in np.unique(labels)]))
            arrays |= {f"x_{part}": arrays[f"x_{part}"][kept], f"y_{part}": labels[kept]}
        copy.parent.mkdir(parents=True, exist_ok=True)
        np.savez(copy.with_suffix(".part.npz"), allow_pickle=False, **arrays)
        copy.with_suffix(".part.npz").replace(copy)
    return copy.parent


def seen_photos(root: Path, work: Path) -> Path:
    """A pack of the photos of the collage's training sub-classes, and for validation of its validation sub-classes."""
    path = work / "data" / "seen.npz"
    if not path.exists():
        photos = cifar100(root, verify=False)
        split_of, _ = division(coarse_labels(root, photos.class_names), np.random.default_rng(0))
        wanted = {("train", "train"), ("train", "test"), ("val", "test")}
        kept = [record for record in photos.records if (split_of[record.label], record.split) in wanted]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            x=np.stack([np.asarray(record.source) for record in kept]),
            y=np.array([record.label for record in kept]),
            class_names=np.array(photos.class_names),
            is_eval=np.array([split_of[record.label] == "val" for record in kept]),
        )
    return path


def pretraining(call: Call, work: Path, root: Path) -> TrainConfig:
    """Classification of single photos: of the training sub-classes only, or at paper scale of all CIFAR-100."""
    return TrainConfig(
        "cifar100",
        data_root=str(root),
        data_settings={"verify": False},
        validate_on="test",
        backbone="resnet20",
        freeze_batchnorm=False,
        pooling="gap",
        loss="normalized_softmax",
        loss_settings={"normalized_softmax": {"lr_multiplier": 10.0, "temperature": 0.1}},
        lr=2e-3,
        plateau_patience=2,
        classes_per_batch=32,
        steps=call.pick(1, 6000, 80_000),
        validate_every=call.pick(1, 1500, 2000),
        patience=100,
        augment="shift",
        precision="bf16",
        ema=0.998,
    )


def plan(call: Call) -> Plan:
    """The trainings."""
    work = call.work
    root = mapped(data_root(call.data_root), work, call.pick(4, 500, 500))
    weights = pretrained(pretraining(call, work, root), work)
    data: dict[str, Any] = {"per_class": call.pick(2, 100, 600), "verify": False}
    base = TrainConfig(
        "cifar-collage",
        data_root=str(root),
        data_settings=data,
        backbone="resnet20",
        weights=str(weights),
        lr=1e-3,
        plateau_patience=5,
        classes_per_batch=call.pick(4, 16, 16),
        images_per_class=call.pick(2, 4, 4),
        steps=call.pick(1, 300, 20_000),
        validate_every=call.pick(1, 150, 300),
        patience=call.pick(100, 100, 15),
        augment="shift",
        precision="bf16",
    )
    distilled = {"data_settings": {**data, "distilled": True}}
    rows = call.pick(main_rows, main_rows, every_pooling)(GSP)
    return Plan(base, distilled, rows, 0.5, PROXIES, call.pick(1, 3, 3), call.pick(1, 1, 3), work)
