"""Images in the place of proxies: what every step compares the batch with is embedded at that step, with gradients.

Shape letters: C classes, K references per class, D dimensions, N training images.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sumpool.data import CentreCrop
from sumpool.losses import ClassProxies
from sumpool.losses.base import Reference
from sumpool.losses.proxies import Proxies
from sumpool.training.evaluate import embed_dataset
from sumpool.training.loop import Training


class SampleReferences(ClassProxies):
    """K images of every class; `vectors` is what they were last embedded as and is not trained.

    Args:
        like: the proxies whose place these take.
        find: from picked embeddings (C,K,D) to the images they belong to.
        embed: from images to embeddings, with gradients.
    """

    def __init__(self, like: ClassProxies, find: Callable[[Tensor], Tensor], embed: Callable[[Tensor], Tensor]) -> None:
        classes, per_class, dim = like.vectors.shape
        super().__init__(classes, dim, per_class)
        self.vectors.requires_grad_(False)
        self.find, self.embed, self.images = find, embed, torch.empty(0)

    def reset(self, vectors: Tensor) -> None:
        """The references of the next problem."""
        super().reset(vectors)
        self.images = self.find(self.vectors)

    def reference(self, dtype: torch.dtype) -> Reference:
        """The images as the model embeds them now."""
        embedded_RD = self.embed(self.images)
        self.vectors.copy_(embedded_RD.detach().view_as(self.vectors))
        return super().reference(dtype)._replace(embeddings=embedded_RD.to(dtype))


def use_samples(training: Training) -> None:
    """Give a run with CCP images instead of proxies, before it is started."""
    ccp, terms = training.ccp, training.objective.terms
    assert ccp is not None
    train = training.data.train.transformed(CentreCrop(training.embedder.backbone.preprocessing))

    def find(vectors_CKD: Tensor) -> Tensor:
        points_ND, rows_N = embed_dataset(training.embedder, train)
        wanted_R = torch.arange(len(vectors_CKD)).repeat_interleave(vectors_CKD.shape[1])
        other_RN = wanted_R.unsqueeze(1) != train.labels[rows_N]
        gap_RN = torch.cdist(vectors_CKD.flatten(0, 1).cpu(), points_ND).masked_fill(other_RN, torch.inf)
        images = [train[int(rows_N[nearest])][0] for nearest in gap_RN.argmin(1)]
        return torch.stack(images).to(training.processes.device)

    samples = SampleReferences(ccp.proxies, find, lambda images: training.embedder(images).vector)
    for term in terms:
        if isinstance(term.loss, Proxies):
            term.loss.proxies = samples
    ccp.proxies = samples
