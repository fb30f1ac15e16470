"""The trainings of the CCP ablations: one setting, and the arms that change it in one or two places."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.data import load_dataset
from sumpool.evaluation.engines import run_trials
from sumpool.evaluation.trial import run_trial
from sumpool.studies.base import Call
from sumpool.studies.collage import pretrained, run_folder
from sumpool.training.config import TrainConfig
from sumpool.training.presets import protocol_settings
from sumpool.training.run import Run
from sumpool.training.space import Point, Range, Space, put
from sumpool.training.sweep import Sweep

NEVER = 10**9  # validations without improvement that never come
PROXIES, POOLS, BATCHES = (1, 4, 8), (1, 8, 12), (16, 32, 64, 128)
PULL, PER_CLASS, POOL = "ccp_settings.pull", "loss_settings.ccp.per_class", "ccp_settings.pool"
C2 = {"contrastive": {"norm": "lipschitz"}}
METHOD: dict[str, Any] = {
    "loss": "ccp/contrastive",
    "loss_settings": C2 | {"ccp": {"per_class": 8}},
    "ccp_settings": {"pull": 2e-4, "pool": 12},
    "pooling": "gap",
    "distance": "euclidean",
}
PLAIN: dict[str, Any] = {"loss": "contrastive", "loss_settings": C2, "ccp_settings": {}}
SMALL: dict[str, Any] = {
    "backbone": "tiny",
    "dim": 64,
    "normalize": "lipschitz",
    "augment": "shift",
    "flip": 0.0,
    "patience": NEVER,
}


def setting(call: Call) -> TrainConfig:
    """The contrastive loss with CCP as the thesis has it, at the size of the scale."""
    if call.scale == "paper":
        published = protocol_settings("tuning", "cub", "ccp/contrastive", "gap")
        return TrainConfig("cub", call.data_root, **published | METHOD | {"patience": 40})
    letters: dict[str, Any] = {"dataset": "glyphs", "data_settings": call.pick({"classes": 80, "per_class": 3}, {}, {})}
    pace = call.pick({"steps": 2, "validate_every": 2}, {"steps": 800, "validate_every": 200}, {})
    first = {"lr": 2e-3, "freeze_batchnorm": False, "classes_per_batch": 16}
    weights = str(pretrained(TrainConfig(**letters | METHOD | SMALL | PLAIN | pace | first), call.work))
    if call.scale == "cpu":
        letters = {"dataset": str(characters(call.work / "characters.npz", call.data_root)), "folds": 6, "fold": 5}
    pace = call.pick({"steps": 3, "validate_every": 1}, {"steps": 500, "validate_every": 10, "lr": 1e-3}, {})
    config = TrainConfig(**letters | METHOD | SMALL | pace, weights=weights)
    quick: Point = {"ccp_settings.patience": 1, "ccp_settings.min_delta": 1.0}
    return changed(config, quick) if call.scale == "smoke" else config


def characters(path: Path, root: str | None, train: int = 120, test: int = 100) -> Path:
    """A pack of random Omniglot characters at 28×28 pixels, the same every time."""
    if not path.exists():
        whole, rng = load_dataset("omniglot", root), np.random.default_rng(0)
        halves = [(whole.split("train"), train), (whole.split("test"), test)]
        parts = [part.of_classes(rng.permutation(len(part.classes))[:count].tolist()) for part, count in halves]
        images = [part.image(row).convert("L").resize((28, 28)) for part in parts for row in range(len(part))]
        labels = np.concatenate([parts[0].labels, parts[1].labels + train])
        path.parent.mkdir(parents=True, exist_ok=True)
        names = np.array(parts[0].classes + parts[1].classes)
        np.savez(
            path,
            x=np.stack([np.asarray(image) for image in images]),
            y=labels,
            is_eval=labels >= train,
            class_names=names,
        )
    return path


def cell(proxies: int, pool: int) -> str:
    """The name of an arm of the grid."""
    return f"K = {proxies}, b = {pool}"


def compared(base: TrainConfig) -> dict[str, TrainConfig]:
    """What is compared one against one."""
    return {
        "CCP": base,
        "contrastive": replace(base, **PLAIN),
        "one problem": changed(base, {"ccp_settings.patience": NEVER}),
        "λ = 0": changed(base, {PULL: 0.0}),
        "λ = 10": changed(base, {PULL: 10.0}),
    }


def varied(base: TrainConfig) -> dict[str, TrainConfig]:
    """Proxies × pools, and batch sizes with and without CCP."""
    methods = {"CCP": base, "contrastive": replace(base, **PLAIN)}
    batches = [(name, config, size) for name, config in methods.items() for size in BATCHES]
    small, longer = BATCHES[0], BATCHES[-1] // BATCHES[0]
    # As many images and validations as with the largest batch.
    pace: dict[str, Any] = {"steps": longer * base.steps, "validate_every": longer * base.validate_every}
    return {
        **{cell(k, b): changed(base, {PER_CLASS: k, POOL: b}) for k in PROXIES for b in POOLS},
        **{f"{name}, batch {size}": replace(config, classes_per_batch=size // 4) for name, config, size in batches},
        **{f"{n}, batch {small}, longer": replace(c, classes_per_batch=small // 4, **pace) for n, c in methods.items()},
    }


def changed(base: TrainConfig, point: Point) -> TrainConfig:
    """The configuration with other settings, by dotted name."""
    return TrainConfig.from_dict(put(asdict(base), point))


def train_arms(base: TrainConfig, call: Call) -> dict[str, list[Path]]:
    """Train every arm with several seeds; its run folders. Arms with the same configuration share theirs."""
    one, few, more = call.pick((1, 1, 1), (1, 2, 3), (3, 3, 3))
    arms = {name: (config, few) for name, config in varied(base).items()}
    arms |= {name: (config, more) for name, config in compared(base).items()}
    longer = compared(replace(base, steps=3 * base.steps))
    arms |= {f"{name}, longer": (config, one) for name, config in longer.items()}
    configs = {name: [replace(config, seed=seed) for seed in range(count)] for name, (config, count) in arms.items()}
    folders = {name: [run_folder(call.work, "run", config) for config in some] for name, some in configs.items()}
    trials = {folder: config for name in configs for folder, config in zip(folders[name], configs[name], strict=True)}
    run_trials([(config, folder) for folder, config in trials.items()], call.jobs)
    return folders


def search(base: TrainConfig, folder: Path, trials: int) -> list[dict[str, Any]]:
    """λ, K and validation score of every trial of a Bayesian search, best first."""
    space: Space = {PULL: Range(1e-6, 10.0, log=True), PER_CLASS: Range(1, 12)}
    sweep = Sweep(folder, space, "gp", trials, about=asdict(base))

    def train(point: Point, place: Path) -> float:
        run_trial(changed(base, point), place)
        return float(Run(place).entries()[-1]["best"])

    sweep.run(train)
    return [{"pull": point[PULL], "proxies": point[PER_CLASS], "map@r": score} for _, point, score in sweep.results()]


def problem_lengths(folder: Path) -> list[int]:
    """Steps of the problems of a run that ended."""
    steps: dict[int, int] = {}
    for entry in Run(folder).entries():
        steps[entry["problem"]] = entry["problem steps"]
    return list(steps.values())[:-1]
