"""A CCP training that keeps what the plane looked like whenever a problem ended.

problem-1.safetensors, … in the run folder hold, at the end of that problem, the embedded test images, the proxies the
problem ended with, and those that the next one starts with; problem-0.safetensors is the untrained network.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sumpool.evaluation.trial import TEST, Embedded, embed_part, load_embedded, prepared_test, save_embedded
from sumpool.studies.sample_references import use_samples
from sumpool.training.config import TrainConfig
from sumpool.training.evaluate import embed_dataset
from sumpool.training.loop import Training
from sumpool.training.start import start


class Moment(NamedTuple):
    """The plane between two problems; proxies (C,K,D) as the embedder would normalise them."""

    vectors: Tensor
    """(N,D) test images."""
    ended: Tensor
    """Proxies of the problem that ended."""
    fresh: Tensor
    """Proxies of the problem that begins."""


def run_recorded(config: TrainConfig, folder: Path, samples: bool = False) -> Embedded:
    """Train, or take what is complete; `samples` puts images in the place of the proxies.

    What was cut short starts again: the images that stand for proxies are not part of a checkpoint.
    """
    if not (folder / TEST).exists():
        shutil.rmtree(folder, ignore_errors=True)
        training = start(folder, config)
        if samples:
            use_samples(training)
        record(training)
        training.fit()
        if training.interrupted:
            raise KeyboardInterrupt
        save_embedded(embed_part(config, folder, training.processes), folder)
    return load_embedded(folder)


def record(training: Training) -> None:
    """Make a run write a `Moment` whenever a problem begins."""
    ccp = training.ccp
    assert ccp is not None
    begin = ccp.begin
    model = training.embedder if training.average is None else training.average.model
    test = prepared_test(training.config, model)

    def recorded(step: int) -> None:
        ended = ccp.normalize(ccp.proxies.vectors.detach().clone())
        begin(step)
        moment = Moment(embed_dataset(model, test)[0], ended, ccp.normalize(ccp.proxies.vectors.detach()))
        content = {name: part.cpu().contiguous() for name, part in moment._asdict().items()}
        save_file(content, training.run.folder / f"problem-{ccp.problem - 1}.safetensors")

    ccp.begin = recorded  # type: ignore[method-assign]


def moments(folder: Path) -> list[Moment]:
    """What `record` left in a run folder, in order."""
    count = len(list(folder.glob("problem-*.safetensors")))
    return [Moment(**load_file(folder / f"problem-{number}.safetensors")) for number in range(count)]


def spread(points_CKD: Tensor) -> Tensor:
    """(C,) mean distance between two of the K points of a class.

    >>> spread(torch.tensor([[[0.0, 0.0], [3.0, 4.0]]]))
    tensor([5.])
    """
    count = points_CKD.shape[1]
    return torch.cdist(points_CKD, points_CKD).sum((1, 2)) / max(count * (count - 1), 1)
