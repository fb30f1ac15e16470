"""Embeddings of a few augmented images of every class, from which class proxies are picked.

Shape letters: C classes, P images of a class' pool, D dimensions.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sumpool.data import Dataset, EachClass, Loader
from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.losses import gather
from sumpool.training.processes import place

BATCH = 128


class Pool(NamedTuple):
    """Embedded images by class."""

    points: Tensor
    """(C, P, D)"""
    mask: Tensor
    """(C, P) True where there is an image; the valid ones come first, at least one per class."""

    def filled(self) -> Tensor:
        """(C, P, D) with the first image of a class in the places of those that could not be read."""
        return torch.where(self.mask.unsqueeze(2), self.points, self.points[:, :1])


@torch.no_grad()
def embed_pool(
    embedder: Embedder,
    dataset: Dataset,
    per_class: int,
    draw: int,
    *,
    seed: int = 0,
    workers: int = 0,
    bad: Literal["raise", "skip"] = "raise",
) -> Pool:
    """Embed `per_class` random images of every class as in evaluation; (seed, draw) decide images and augmentation.

    Processes embed a share each, and all of them get the same pool.
    """
    # Whole classes in a batch: the shares of one, joined in rank order, then have the order of a single process.
    size = per_class * max(BATCH // per_class, 1)
    rank, count = place()
    sampler = EachClass(dataset.labels, per_class, size, seed, rank, count)
    assert dataset.transform is not None
    loader = Loader(dataset.transformed(dataset.transform, seed, dataset.crop_boxes), sampler, workers, bad=bad)
    loader.load_state_dict({"epoch": draw, "batch": 0})
    device = next(embedder.parameters()).device
    vectors, labels = [torch.empty(0, embedder.dim)], [torch.empty(0, dtype=torch.long)]
    for batch in loader:
        vectors.append(embedder.embed(batch.images))
        labels.append(batch.labels)
    everyone = [gather(torch.cat(parts).to(device)).cpu() for parts in (vectors, labels)]
    return by_class(everyone[0], everyone[1], len(dataset.classes), per_class)


def by_class(vectors_ND: Tensor, labels_N: Tensor, classes: int, per_class: int) -> Pool:
    """Rows sorted into classes, each in its own order.

    >>> by_class(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 0, 1]), classes=2, per_class=2).mask
    tensor([[ True, False],
            [ True,  True]])
    """
    order_N = labels_N.argsort(stable=True)
    counts_C = labels_N.bincount(minlength=classes)
    if not bool(counts_C.all()):
        missing = int((counts_C == 0).nonzero()[0])
        raise InputError(f"none of the {per_class} images drawn of class {missing} could be read: repair its files")
    mask_CP = torch.arange(per_class) < counts_C.unsqueeze(1)
    points_CPD = vectors_ND.new_zeros(classes, per_class, vectors_ND.shape[1])
    points_CPD[mask_CP] = vectors_ND[order_N]
    return Pool(points_CPD, mask_CP)
