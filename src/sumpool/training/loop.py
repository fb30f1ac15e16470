"""The training loop: step, validate, keep the best, stop early; every state of it can be saved and continued."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from sumpool.backbones.weights import load_weights
from sumpool.data import load_dataset
from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.training import setup
from sumpool.training.average import Average
from sumpool.training.ccp import create_ccp
from sumpool.training.checkpoint import load_state, random_state, restore_random_state, save_state
from sumpool.training.config import TrainConfig
from sumpool.training.evaluate import require_metrics, score_dataset
from sumpool.training.features import use_features
from sumpool.training.optimiser import create_optimizer, set_learning_rate
from sumpool.training.processes import Processes, agreed, anyone, shared
from sumpool.training.progress import Progress
from sumpool.training.run import BEST, CONFIG, LAST, Run
from sumpool.training.step import Stepper
from sumpool.training.stopping import stop_requests
from sumpool.types import Batch

METRICS = ("p@1", "p@r", "map@r")
DIVERGED = "if it diverged, start a new run with a lower lr or a clip_norm such as 1"
# Settings that do not decide what a step computes, but where, how safely and how often: others may continue a run.
FREE = ("data_root", "cache", "cache_gb", "device", "workers", "bad_images", "checkpoint_every", "steps")


class Training:
    """A run in progress. `fit` trains to the end; killed at any moment, `resume` and `fit` end the same."""

    def __init__(self, config: TrainConfig, run: Run, processes: Processes) -> None:
        self.config, self.run, self.processes = config, run, processes
        require_metrics([config.score])
        dataset = load_dataset(config.dataset, config.data_root, **config.data_settings)
        self.embedder = setup.create_embedder(config, dataset).to(processes.device)
        setup.join_batchnorms(config, self.embedder, processes)
        self.data = setup.create_data(config, dataset, self.embedder.backbone.preprocessing)
        if config.cache is not None:
            self.embedder, self.data = use_features(config, self.embedder, self.data, processes)
        self.objective = setup.create_training_objective(config, self.data, self.embedder.dim).to(processes.device)
        self.loader = setup.create_loader(config, self.data, processes)
        self.optimizer = create_optimizer(config, self.embedder, self.objective)
        model = forward_model(self.embedder, config.compile, processes)
        settings = (config.precision, config.clip_norm, config.chunk)
        self.stepper = Stepper(model, self.objective, self.optimizer, processes.device, *settings)
        self.average = Average(self.embedder, config.ema) if config.ema else None
        self.ccp = create_ccp(config, self.embedder, self.objective, self.optimizer, self.data.train)
        self.step, self.lr, self.interrupted = 0, config.lr, False
        self.best_score, self.best_step = -float("inf"), 0
        self.stale = self.flat = 0  # validations without improvement, and since the learning rate last changed

    def fit(self) -> None:
        """Train until the steps or the patience are used up, or the process is asked to stop; restore the best."""
        self.embedder.train()
        self.objective.train()
        if self.ccp is not None and self.ccp.problem == 0:
            self.ccp.begin(self.step)
        with Progress(self.config.steps, self.step, self.processes.writes) as progress, stop_requests() as stop:
            batches, stopping = self.batches(), False
            while not (self.finished or stopping):
                values = self.train_on(next(batches))
                validating = self.step % self.config.validate_every == 0 or self.step == self.config.steps
                if validating:
                    self.validate(values)
                stopping = anyone(stop.made, self.processes.device)
                if validating or stopping or self.step % (self.config.checkpoint_every or self.step + 1) == 0:
                    self.save()
                progress.advance(f"loss {float(values['total']):.4f}, best {self.config.score} {self.best_score:.4f}")
        self.interrupted = not self.finished
        if self.finished:
            self.restore_best()

    @property
    def finished(self) -> bool:
        """Whether the steps or the patience are used up."""
        return self.step >= self.config.steps or self.stale >= self.config.patience

    def restore_best(self) -> None:
        """The best weights into the embedder of every process; the folder may be out of reach of all but the first."""
        if self.processes.writes:
            load_weights(self.embedder, self.run.folder / BEST / "model.safetensors")
        for tensor in self.embedder.state_dict().values():
            shared(tensor)

    def batches(self) -> Iterator[Batch]:
        """Epoch after epoch, on all processes in step."""
        while True:
            for batch in self.loader:
                if self.config.bad_images == "skip":
                    self.require_same_batch()
                yield batch

    def require_same_batch(self) -> None:
        """Refuse that a process which could read nothing of its share of a batch has moved on to the next one."""
        place, device = self.loader.epoch * len(self.loader) + self.loader.batch, self.processes.device
        if anyone(place != agreed(place, device), device):
            raise InputError(
                f"after step {self.step} a process could read no image of its share of a batch: "
                "repair the images that the warnings name, or train in one process"
            )

    def train_on(self, batch: Batch) -> dict[str, Tensor]:
        """One step."""
        set_learning_rate(self.optimizer, self.lr, warming_up=self.step < self.config.warmup)
        try:
            values = self.stepper(batch, None if self.ccp is None else self.ccp.adjust)
        except InputError as reason:
            raise InputError(f"training failed at step {self.step + 1}: {reason}; {DIVERGED}") from reason
        self.step += 1
        if self.average is not None:
            self.average.update(self.embedder)
        return values

    def validate(self, values: dict[str, Tensor]) -> None:
        """Score the validation set; keep the best model, count the patience, lower the learning rate on a plateau."""
        config, started = self.config, time.perf_counter()
        model = self.embedder if self.average is None else self.average.model
        names = (*METRICS, config.score) if config.score not in METRICS else METRICS
        loading = {"workers": config.readers, "bad": config.bad_images}
        metrics = score_dataset(model, self.data.validation, names, config.distance, **loading)
        score = agreed(metrics[config.score], self.processes.device)
        if math.isnan(score):
            raise InputError(f"{self.data.validation!r} gives no {config.score}: no image has another of its class")
        improved = score > self.best_score + config.min_delta
        self.stale, self.flat = (0, 0) if improved else (self.stale + 1, self.flat + 1)
        if improved:
            self.best_score, self.best_step = score, self.step
            if self.processes.writes:
                model.save(self.run.folder / BEST)
        entry = {"step": self.step, "lr": self.lr, **{name: float(value) for name, value in values.items()}}
        seconds = {"validation seconds": round(time.perf_counter() - started, 2)}
        problem = {} if self.ccp is None else self.ccp.diagnostics(self.step)
        self.run.log({**entry, **metrics, "best": self.best_score, **problem, **seconds})
        if self.ccp is not None:
            self.ccp.validated(score, model, self.step)
        if config.plateau_patience and self.flat >= config.plateau_patience:
            self.lr, self.flat = self.lr * config.plateau_factor, 0

    def state(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "config": asdict(self.config),
            "classes": self.data.train.classes,
            "embedder": self.embedder.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.stepper.scaler.state_dict(),
            "average": None if self.average is None else self.average.model.state_dict(),
            "ccp": None if self.ccp is None else self.ccp.state_dict(),
            "loader": self.loader.state_dict(),
            "random": random_state(self.processes.device),
            "step": self.step,
            "lr": self.lr,
            "best": [self.best_score, self.best_step],
            "patience": [self.stale, self.flat],
        }

    def save(self) -> None:
        """Write the checkpoint."""
        if self.processes.writes:
            save_state(self.run.folder / LAST, self.state())

    def resume(self) -> None:
        """Continue from the checkpoint, if one was written; a run killed before that starts again."""
        there, device = (self.run.folder / LAST).exists(), self.processes.device
        if anyone(there, device) and anyone(not there, device):
            raise InputError(f"not every process sees {self.run.folder / LAST}: resuming needs a shared folder")
        if not there:
            self.run.forget_after(0)
            return
        state = load_state(self.run.folder / LAST)
        self.require_same(state)
        self.embedder.load_state_dict(state["embedder"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.stepper.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.model.load_state_dict(state["average"])
        if self.ccp is not None:
            self.ccp.load_state_dict(state["ccp"])
        self.loader.load_state_dict(state["loader"])
        restore_random_state(state["random"], self.processes.device)
        self.step, self.lr = state["step"], state["lr"]
        (self.best_score, self.best_step), (self.stale, self.flat) = state["best"], state["patience"]
        self.run.forget_after(self.step)

    def require_same(self, state: dict[str, Any]) -> None:
        """Refuse a checkpoint of other settings or classes; it may lack what was not kept when it was written."""
        kept, now = (json.loads(json.dumps(config)) for config in (state["config"], asdict(self.config)))
        for name in now:
            if name not in FREE and kept.get(name, now[name]) != now[name]:
                raise InputError(
                    f"the run was started with {name} {kept[name]}, {self.run.folder / CONFIG} now says {now[name]}: "
                    "put the old value back, or start a new run"
                )
        classes = self.data.train.classes
        if state.get("classes", classes) != classes:
            raise InputError(
                f"the run was started on {len(state['classes'])} training classes, {self.config.dataset} now gives "
                f"{len(classes)} or others: put the old images back, or start a new run"
            )


def forward_model(embedder: Embedder, compiled: bool, processes: Processes) -> nn.Module:
    """What runs forward: the embedder, compiled if asked for, wrapped when there are many processes."""
    model: nn.Module = embedder
    if compiled:
        model = torch.compile(embedder)  # type: ignore[assignment]
    if processes.count > 1:
        ids = [processes.device.index] if processes.device.type == "cuda" else None
        # Buffers are equal on all processes already: none are sent around. PyTorch 2.13 has renamed the option.
        parallel = nn.parallel.DistributedDataParallel
        known = signature(parallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {"device_ids": ids, name: False}
        model = parallel(model, **options)
    return model
