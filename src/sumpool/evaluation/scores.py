"""Per-query scores of one method: of every training, and of the ensembles of one training per fold.

An ensemble concatenates the vectors of its models, as unit vectors where cosines rank. There are R^F of them, so their
scores are computed once and kept in the method's folder, together with a hash of the embeddings and the distance.
"""

import hashlib
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save
from torch.nn.functional import normalize

from sumpool.data.progress import counted
from sumpool.data.record import Array
from sumpool.errors import InputError
from sumpool.evaluation.trial import Embedded, Part, load_embedded
from sumpool.files import write_atomically
from sumpool.retrieval.comparison import Distance
from sumpool.training.loop import METRICS

SCORES = "scores.safetensors"


class Scores(NamedTuple):
    """Metric → per-query scores."""

    dim: int
    """Length of one model's embedding."""
    labels: Array
    """(Q,) class of each query."""
    single: dict[str, Array]
    """(F, R, Q)"""
    ensemble: dict[str, Array]
    """(R,)*F + (Q,); empty with one fold."""


def method_scores(
    runs: Sequence[Sequence[Path]], store: Path, part: Part = "test", distance: Distance = "cosine"
) -> Scores:
    """The scores of run folders by fold and repeat, from `store` if they were computed from the same embeddings."""
    files = [run / f"{part}.safetensors" for fold in runs for run in fold]
    stamp = " ".join([distance, *(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)])
    scores = _kept(store, stamp)
    if scores is None:
        scores = compute_scores([[load_embedded(run, part) for run in fold] for fold in runs], distance)
        tensors = {f"{kind}/{name}": a for kind in ("single", "ensemble") for name, a in getattr(scores, kind).items()}
        metadata = {"embeddings": stamp, "dim": str(scores.dim)}
        write_atomically(store, save({**tensors, "labels": scores.labels}, metadata))
    return scores


def compute_scores(runs: Sequence[Sequence[Embedded]], distance: Distance = "cosine") -> Scores:
    """Scores of single models and ensembles; all runs must have embedded the same images."""
    first = runs[0][0]
    if any(not torch.equal(first.labels, run.labels) for fold in runs for run in fold):
        raise InputError("the trainings have embedded different images, so their scores cannot be compared")
    singles = [[run.metrics(METRICS, distance).per_query for run in fold] for fold in runs]
    single = {name: np.array([[found[name].numpy() for found in fold] for fold in singles]) for name in METRICS}
    ensemble = _ensembles(runs, distance) if len(runs) > 1 else {}
    return Scores(first.vectors.shape[1], first.labels[first.query].numpy(), single, ensemble)


def _ensembles(runs: Sequence[Sequence[Embedded]], distance: Distance) -> dict[str, Array]:
    """Metric → scores of every collection of one repeat per fold."""
    whole = [[run.vectors.float() for run in fold] for fold in runs]
    parts = [[normalize(vectors, dim=1) for vectors in fold] for fold in whole] if distance == "cosine" else whole
    collections = list(product(*(range(len(fold)) for fold in runs)))
    found = []
    for choice in counted(collections, len(collections), "scoring ensembles"):
        vectors = torch.cat([fold[repeat] for fold, repeat in zip(parts, choice, strict=True)], dim=1)
        found.append(runs[0][0]._replace(vectors=vectors).metrics(METRICS, distance).per_query)
    shape = [len(fold) for fold in runs]
    return {name: np.stack([scores[name].numpy() for scores in found]).reshape(*shape, -1) for name in METRICS}


def _kept(store: Path, stamp: str) -> Scores | None:
    """Stored scores; None if there are none, or if they belong to other embeddings."""
    if not store.exists():
        return None
    with safe_open(store, framework="np") as file:
        metadata = file.metadata()
        if metadata["embeddings"] != stamp:
            return None
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    single, ensemble = (
        {name.split("/")[1]: values for name, values in arrays.items() if name.startswith(f"{kind}/")}
        for kind in ("single", "ensemble")
    )
    return Scores(int(metadata["dim"]), arrays["labels"], single, ensemble)
