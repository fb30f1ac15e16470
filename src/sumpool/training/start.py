"""A training run and its folder, begun or continued."""

from pathlib import Path

from sumpool.training.config import TrainConfig, to_yaml
from sumpool.training.loop import Training
from sumpool.training.processes import join
from sumpool.training.run import Run


def start(folder: Path, config: TrainConfig, resume: bool = False) -> Training:
    """The `Training` of a new folder, or of one to continue; its `fit` trains."""
    processes = join(config.device)
    run = Run(folder, processes.writes)
    if not resume:
        run.require_new()
    training = Training(config, run, processes)
    if resume:
        training.resume()
    else:  # only now, so that a mistake in the settings leaves no folder behind
        run.create(to_yaml(config))
    return training
