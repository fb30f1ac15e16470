"""N-pair loss: one positive pair per class, all other classes' positives as negatives.

Shape letters: B anchors, R references, P anchors with a positive, N pairs (one per class).
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sumpool.losses.base import PairLoss, Reference
from sumpool.losses.checks import above_zero
from sumpool.ops.similarity import Norm


def n_pair(similarity_NN: Tensor, scale: float) -> Tensor:
    r"""Mean over the classes of $\log\bigl(1 + \sum_{j\ne i} e^{\gamma(s(a_i, p_j) - s(a_i, p_i))}\bigr)$.

    Sohn, *Improved deep metric learning with multi-class N-pair loss objective*, NIPS 2016. Class i takes part with
    the first of its anchors that has a positive, a_i, and that anchor's first positive, p_i.
    """
    target_N = torch.arange(len(similarity_NN), device=similarity_NN.device)
    return cross_entropy(scale * similarity_NN, target_N, reduction="sum") / max(len(similarity_NN), 1)


def one_pair_per_class(positives_BR: Tensor, negatives_BR: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the chosen pairs.

    The classes need not be known: the first reference that is no negative of an anchor stands for its class.
    """
    anchors, references = positives_BR.shape
    paired_P = positives_BR.any(1).nonzero().flatten()
    if not references:
        return paired_P, paired_P
    class_B = negatives_BR.byte().argmin(1)
    earliest_R = paired_P.new_full((references,), anchors)
    earliest_R.scatter_reduce_(0, class_B[paired_P], paired_P, "amin")
    anchor_N = earliest_R[earliest_R < anchors]
    return anchor_N, positives_BR.byte().argmax(1)[anchor_N]


class NPair(PairLoss):
    """N-pair: each class's positive pair more similar than to every other class's positive."""

    def __init__(self, scale: float = 1.0, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.scale = above_zero("scale", scale)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor, reference: Reference) -> Tensor:
        """The similarities of the chosen rows and references only."""
        anchor_N, positive_N = one_pair_per_class(*self.pairs(embeddings_BD, labels_B, reference))
        if reference.embeddings is embeddings_BD:  # one gather, so that the gradient is put back once
            chosen = embeddings_BD[torch.cat([anchor_N, positive_N])]
            anchors_ND, positives_ND = chosen.tensor_split(2)
        else:
            anchors_ND = embeddings_BD[anchor_N]
            positives_ND = reference.embeddings[positive_N].to(embeddings_BD.dtype)
        return n_pair(self.measure(anchors_ND, positives_ND, self.norm), self.scale)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `n_pair`."""
        anchor_N, positive_N = one_pair_per_class(positives_BR, negatives_BR)
        return n_pair(matrix_BR[anchor_N][:, positive_N], self.scale)
