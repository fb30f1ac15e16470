"""Run the short trainings of RUNS as the process that the environment names: `distributed_run.py FOLDER`."""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sumpool.losses import LOSSES
from sumpool.training.config import TrainConfig, to_yaml
from sumpool.training.loop import Training
from sumpool.training.processes import Processes, end, join, leave
from sumpool.training.run import Run
from sumpool.types import Batch

GSP = {"pooling": "gsp", "pooling_settings": {"prototypes": 3, "memory": 16}}
XBM = {"batches": 2, "start": 1}
CCP = {"pool": 5, "min_delta": 10.0, "patience": 1}  # no score improves so much: a new problem every two validations
BASE = {
    "data_settings": {"per_class": 6, "classes": 15},  # 6 classes to train on, 3 to validate
    "backbone_settings": {"channels": 8},
    "pooling": "gap",
    "dim": 4,
    "classes_per_batch": 4,
    "images_per_class": 2,
    "augment": "shift",
    "lr": 1e-3,
    "steps": 6,
    "validate_every": 1,
}
RUNS: dict[str, dict[str, Any]] = {
    **{name: {"loss": name, "steps": 2} for name in LOSSES},
    "xbm": {"loss": "xbm/original_contrastive", "loss_settings": {"xbm": XBM}},
    "zsr-gsp": {"loss": "zsr/contrastive", **GSP},
    "chunks": {"loss": "zsr/contrastive", "chunk": 3, **GSP},
    "ccp": {"loss": "ccp/contrastive", "loss_settings": {"ccp": {"per_class": 3}}, "ccp_settings": CCP},
    "ccp-random": {
        "loss": "ccp/triplet",
        "loss_settings": {"ccp": {"per_class": 3}},
        "ccp_settings": {**CCP, "pool": 1},
    },
    "everything": {
        "loss": "zsr/ccp/xbm/multi_similarity",
        "loss_settings": {"ccp": {"per_class": 3}, "xbm": XBM},
        "ccp_settings": CCP,
        "ema": 0.5,
        **GSP,
    },
}


class Precise(Training):
    """In float64: what differs then is wrong, not rounded."""

    def train_on(self, batch: Batch) -> dict[str, Tensor]:
        values = super().train_on(batch._replace(images=batch.images.double()))
        self.last = {f"last.{key}": value.clone() for key, value in self.embedder.state_dict().items()}
        return values


def train(name: str, folder: Path, processes: Processes) -> dict[str, Tensor]:
    config = TrainConfig("glyphs", backbone="tiny", **BASE | RUNS[name])
    # Every process has a folder of its own here, so that a file written by any but the first is seen.
    run = Run(folder, processes.writes)
    if processes.writes:
        run.create(to_yaml(config))
    training = Precise(config, run, processes)
    training.fit()
    state = training.last | {f"best.{key}": value for key, value in training.embedder.state_dict().items()}
    state |= {f"objective.{key}": value for key, value in training.objective.state_dict().items()}
    if training.ccp is not None:
        state |= {"problem": torch.tensor(training.ccp.problem)}
        state |= {f"previous.{key}": value for key, value in training.ccp.previous.items()}
    return state | {"score": torch.tensor(training.best_score), "step": torch.tensor(training.best_step)}


def main() -> None:
    warnings.simplefilter("error")
    torch.set_default_dtype(torch.float64)
    folder, processes = Path(sys.argv[1]), join("cpu")
    try:
        for name in RUNS:
            state = train(name, folder / name, processes)
            save_file({key: value.clone() for key, value in state.items()}, folder / f"{name}.safetensors")
    finally:
        leave()
    end(0)


if __name__ == "__main__":
    main()
