"""CIFAR collage: which poolings leave out a background that all classes share (figures 5.5 and 5.12 of the thesis).

Command: `sumpool study cifar-collage --data-root DATA --scale cpu --out docs/studies/cifar-collage`.

Claim: GSP is about 17 points of MAP@R above GAP, the zero-shot loss L_ZS adds to it, and GSP is better than 13 other
poolings with C2 and PNCA, except for C2 with NetVLAD.

Setting: 64-px collages of CIFAR-100, one photo of the class and three of the background; what must be found again is
one of 16 super-classes, by sub-classes that the training has not seen, among background that it has not seen. The text
says neither which super-classes are background nor, clearly, that they are the classes; here the background is scenery
(flowers, buildings and roads, landscapes, trees). As in the text, a ResNet20 first learns to classify all of CIFAR-100,
so it knows the test classes: 6000 steps of 128 photos at scale `cpu`, which leave it at 48 % P@1, far from converged.
Then, at scale `cpu`, 100 collages a sub-class, m 128, λ 0.5, batches of 16 × 4: every pooling over the frozen network
(300 steps, learning rate 0.003; 3 seeds for GAP, GSP and distilled GAP, one for the others); and GAP and GSP with C2
with the network trained too (200 steps, 0.0003, 2 seeds; the text's 0.001 unlearns more than it learns in so few
steps). μ 0.1 and ε 20 instead of the text's 0.2 and 10, and the learning rates, were chosen on the validation classes;
test results of those pilots were seen too.

Measured: over the frozen network GSP more than doubles GAP's MAP@R: 9.4 against 4.2 with C2, a gain of 5.2 [1.7, 8.8],
and 7.3 [3.1, 11.5] with PNCA. With the network trained too it is 12.1 against 8.2: 3.9 [1.9, 5.9], and GSP puts twice
GAP's share of its weight on the class tile (0.53). So GSP is surely better, and the 10 points aimed at are missed: the
class photo alone, with this network, is found with 24 to 25, where GAP on collages starts at 4. L_ZS does not add, it
costs: −3.1 [−5.4, −0.8] with the network trained. GSP is among the best poolings and not alone there: DeLF, and with
PNCA GSoP, are as good (one seed each, frozen network); the 8192-D NetVLAD is not better. What bounds the result, and
what was tried, is in the lab log. The time below is that of a busy machine, with the pretraining (38 minutes).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sumpool.data import CentreCrop, Dataset, load_dataset
from sumpool.data.pack import load_arrays
from sumpool.data.record import Record
from sumpool.data.root import data_root
from sumpool.data.sets.cifar import cifar100
from sumpool.embedder import Embedder
from sumpool.studies.base import Call, Outcome, markdown_table
from sumpool.studies.collage import Plan, every_pooling, judge, main_rows, measure, pretrained, report, table
from sumpool.training.config import TrainConfig
from sumpool.training.run import BEST

TARGET = 0.10
GSP = {"prototypes": 128, "mass": 0.1, "sharpness": 20.0}
PROXIES = {"PNCA": {"lr_multiplier": 10.0}}  # 100, for a learning rate of 1e-5, is too fast at 1e-3
SCENERY = [2, 9, 10, 17]  # flowers, buildings and roads, landscapes, trees
LOOKED_AT = ("C2 GAP", "C2 GSP", "C2 GSP+L_ZS")


def cifar_collage(call: Call) -> Outcome:
    """CIFAR collage: every pooling with C2 and PNCA on CIFAR-100 images among shared ones (figures 5.5, 5.12)."""
    frozen = plan(call)
    outcome = report(call, frozen, target=TARGET)
    tuned = fine_tuned(frozen, call)
    results, trained = measure(tuned, call.jobs)
    test, alone = (
        load_dataset("cifar-collage", tuned.base.data_root, **settings).split("test")
        for settings in (tuned.base.data_settings, tuned.distilled["data_settings"])
    )
    for name in LOOKED_AT:
        results[name]["weight on the class tile"] = weight_on_class(trained[name][0][1] / BEST, test, alone)
    weights = [{"C2": name, "weight": f"{results[name]['weight on the class tile']:.2f}"} for name in LOOKED_AT]
    body = f"""{outcome.body}

With the network trained too:

{table(results, tuned, trained)}

Share of the pooling weight on the tile that shows the class (first training of each; equal weights give 0.25):

{markdown_table(weights)}"""
    verdict, reason = judge(results["differences"], TARGET)
    reason = f"Frozen network: {outcome.reason} Trained network: {reason}"
    return Outcome({**outcome.results, "network trained too": results}, body, verdict, reason)


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


def pretraining(call: Call, root: Path) -> TrainConfig:
    """Classification of all of CIFAR-100, as in the text: it has seen the classes that are unseen by the trainings."""
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
    """Every pooling over the frozen network; at paper scale, as in the text, the network is trained too."""
    root = mapped(data_root(call.data_root), call.work, call.pick(4, 500, 500))
    weights = pretrained(pretraining(call, root), call.work)
    data: dict[str, Any] = {"per_class": call.pick(2, 100, 600), "verify": False, "groups": True, "background": SCENERY}
    base = TrainConfig(
        "cifar-collage",
        data_root=str(root),
        data_settings=data,
        backbone="resnet20",
        weights=str(weights),
        freeze=call.pick("all", "all", 0),
        cache=None if call.scale == "paper" else str(call.work / "features"),
        lr=call.pick(3e-3, 3e-3, 1e-3),
        plateau_patience=5,
        classes_per_batch=call.pick(4, 16, 16),
        images_per_class=call.pick(2, 4, 4),
        steps=call.pick(1, 300, 20_000),
        validate_every=call.pick(1, 100, 300),
        patience=call.pick(100, 100, 15),
        augment="shift",
        precision="bf16",
    )
    distilled = {"data_settings": {**data, "distilled": True}}
    rows = call.pick(main_rows, every_pooling, every_pooling)(GSP)
    return Plan(base, distilled, rows, 0.5, PROXIES, call.pick(1, 3, 3), call.pick(1, 1, 3), call.work)


def fine_tuned(frozen: Plan, call: Call) -> Plan:
    """The rows that the claim is about, with C2, the network trained too."""
    base = replace(frozen.base, freeze=0, cache=None, lr=call.pick(3e-4, 3e-4, 1e-3), steps=call.pick(1, 200, 20_000))
    return replace(frozen, base=base, rows=main_rows(GSP), seeds=call.pick(1, 2, 3), losses=("C2",))
