"""Trainings on a cluster, through Ray: it queues them, places them, and starts them again when a machine dies.

Every machine has sumpool installed and the folders of the protocol and the data mounted at the same paths. A training
that lost its machine continues elsewhere from its last checkpoint.
"""

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sumpool.data.root import VARIABLE
from sumpool.errors import InputError
from sumpool.evaluation.engines import Trial
from sumpool.evaluation.tally import Tally
from sumpool.evaluation.trial import Part
from sumpool.evaluation.worker import train

RETRIES = 10  # lost machines per training; a training that kills its process every time should end too
GRACE = 120.0  # seconds that trainings get to save their state when the command is stopped


def run_on_ray(
    trials: Sequence[Trial], part: Part = "test", address: str | None = None, cpus: float = 1, gpus: float = 0
) -> None:
    """Run every training, or what is left of it, as a task of the cluster at `address` that needs `cpus` and `gpus`."""
    if cpus < 0 or gpus < 0 or cpus + gpus == 0:
        raise InputError(f"a training on a cluster needs some CPU or GPU, got {cpus:g} and {gpus:g}")
    if not trials:
        return
    ray = _connected(address)
    tally = Tally(len(trials), _places(ray, cpus, gpus))
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(train_there)
    here = (os.getcwd(), os.environ.get(VARIABLE))
    pending = {task.remote(asdict(config), str(folder), part, *here): folder for config, folder in trials}
    try:
        while pending:
            (ready,), _ = ray.wait(list(pending), num_returns=1)
            folder = pending.pop(ready)
            _require_success(ray, ready, folder)
            tally.done(folder)
    finally:
        for left in pending:
            ray.cancel(left)  # like Ctrl-C in the training: it saves its state
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=GRACE)
        ray.shutdown()


def train_there(settings: dict[str, Any], folder: str, part: Part, directory: str, data: str | None) -> str | None:
    """One training, in a process of the cluster; what went wrong in one sentence, or None."""
    os.chdir(directory)  # paths in the settings may be relative
    if data is not None:
        os.environ[VARIABLE] = data
    return train(settings, folder, part)


def _connected(address: str | None) -> Any:
    """The `ray` package, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as missing:
        raise InputError("a cluster needs Ray: pip install 'sumpool[ray]'") from missing
    try:
        _require_listener(address)
        ray.init(address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as reason:
        line = str(reason).split("\n")[0]
        raise InputError(
            f"no Ray cluster at {address or 'this machine'}, start one with `ray start`: {line}"
        ) from reason
    return ray


def _require_listener(address: str | None) -> None:
    """Fail at once where nobody listens: Ray would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


def _places(ray: Any, cpus: float, gpus: float) -> str:
    """How many trainings the cluster can run at a time; it may have no place yet for any, and wait for machines."""
    needed = {kind: amount for kind, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(min(int(own.get(kind, 0) // needed[kind]) for kind in needed) for own in machines)
    asked = " and ".join(f"{amount:g} {kind}" for kind, amount in needed.items())
    return f"{places} at a time on the {len(machines)} machines of the cluster ({asked} each)"


def _require_success(ray: Any, task: Any, folder: Path) -> None:
    try:
        error = ray.get(task)
    except ray.exceptions.RayError as reason:
        error = f"the cluster could not finish it: {str(reason).strip().splitlines()[-1]}"
    if error:
        raise InputError(f"{folder}: {error}")
