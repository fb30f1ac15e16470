"""Zero-shot prediction loss: attributes must predict classes they were not fitted on.

Shape letters: B batch, M attributes, D dimensions of the class embeddings, C classes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sumpool.errors import InputError
from sumpool.losses.base import full_precision
from sumpool.losses.checks import Classes, above_zero, checked, whole


def class_halves(labels_B: Tensor) -> Tensor:
    """True for the rows of every second class present, (B,): two halves with disjoint classes, for any number."""
    rank_B: Tensor = labels_B.unique(return_inverse=True)[1]
    return rank_B % 2 == 1


def ridge_prediction(attributes_BM: Tensor, targets_BD: Tensor, half_B: Tensor, ridge: float) -> Tensor:
    r"""Predict each half's targets from its attributes by the ridge regression fitted on the other half, (B,D).

    $A_b = \Upsilon_b (Z_b^\top Z_b + \epsilon I)^{-1} Z_b^\top$ in the kernel form: only inner products of attributes
    are needed, and one $|b|\times|b|$ Cholesky factorisation per half.
    """
    kernel_BB = attributes_BM @ attributes_BM.mT
    predicted_BD = torch.zeros_like(targets_BD)
    for fitted_B in (half_B, ~half_B):
        system = kernel_BB[fitted_B][:, fitted_B]
        factor = torch.linalg.cholesky(
            system + ridge * torch.eye(len(system), dtype=system.dtype, device=system.device)
        )
        coefficients = torch.cholesky_solve(targets_BD[fitted_B], factor)
        predicted_BD = predicted_BD.masked_scatter(
            ~fitted_B.unsqueeze(1), kernel_BB[~fitted_B][:, fitted_B] @ coefficients
        )
    return predicted_BD


def required(attributes: Tensor | None) -> Tensor:
    """The attributes of a pooling, which must have some."""
    if attributes is None:
        raise InputError(
            "the zero-shot loss needs pseudo-attributes, but the pooling gives none: use one with prototypes (gsp)"
        )
    return attributes


class ZeroShotPrediction(nn.Module):
    r"""Zero-shot prediction: cross-entropy over all classes of attributes mapped by a regression of the other half.

    Class embeddings $\upsilon_c$ are free parameters, not normalised; the logits are $s\,\upsilon_c^\top A z_i$.
    A batch of a single class contributes 0.
    """

    def __init__(
        self, classes: int | Sequence[int] | Sequence[str], dim: int, ridge: float = 0.05, scale: float = 9.5
    ) -> None:
        super().__init__()
        self.classes = Classes(classes)
        self.ridge = above_zero("ridge", ridge)
        self.scale = above_zero("scale", scale)
        self.class_embeddings = nn.Parameter(torch.empty(self.classes.count, whole("dim", dim, 1)))
        nn.init.normal_(self.class_embeddings, std=(2 / dim) ** 0.5)

    def forward(self, attributes: Tensor | None, labels: Any) -> Tensor:
        """The loss of a batch of attributes (B,M)."""
        attributes_BM, index_B = checked(required(attributes), self.classes.index(labels), "attributes")
        with full_precision(attributes_BM):
            table_CD = self.class_embeddings.to(attributes_BM.dtype)
            half_B = class_halves(index_B)
            if not bool(half_B.any()):
                return attributes_BM.sum() * 0 + table_CD.sum() * 0
            predicted_BD = ridge_prediction(attributes_BM, table_CD[index_B], half_B, self.ridge)
            return cross_entropy(self.scale * predicted_BD @ table_CD.mT, index_B)
